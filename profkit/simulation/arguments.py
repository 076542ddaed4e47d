"""Server arguments of one release, for the log's first line and for ``server_args.json``."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from profkit.simulation.noise import Noise
from profkit.simulation.scenario import Scenario

_CAPTURE_BATCHES = (1, 2, 4, 8, 12, 16, 24, 32)
_PREFILL_TOKENS = (
    *range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64), *range(1280, 4097, 256),
    *range(4608, 8193, 512),
)  # fmt: skip


def server_arguments(scenario: Scenario) -> dict[str, Any]:
    """All arguments of SGLang 0.5.16 with the values of this launch, in the order of the release."""
    text = files("profkit.simulation").joinpath("server_args_0_5_16.json").read_text(encoding="utf-8")
    arguments: dict[str, Any] = json.loads(text)
    model, serving, drafter = scenario.model, scenario.serving, scenario.drafter
    path = f"/models/{model.name.rsplit('/', 1)[-1]}"
    arguments |= {
        "model_path": path,
        "tokenizer_path": path,
        "served_model_name": path,
        "tp_size": scenario.ranks,
        "random_seed": int(Noise(scenario.seed, 9).raw(1)[0] % 1_000_000_000),
        "disable_overlap_schedule": not serving.overlap,
        "decode_log_interval": scenario.recording.decode_log_interval,
        "disable_custom_all_reduce": scenario.hardware.collective == "nccl" and scenario.hardware.link == "nvlink",
        "enable_flashinfer_allreduce_fusion": scenario.hardware.collective == "flashinfer_fused",
        "enable_torch_symm_mem": scenario.hardware.collective == "multimem",
        "chunked_prefill_size": 8192,
    }
    if scenario.speculative:
        arguments |= {
            "speculative_algorithm": {"MTP": "EAGLE"}.get(serving.algorithm, serving.algorithm),
            "speculative_num_steps": serving.num_steps,
            "speculative_eagle_topk": serving.topk,
            "speculative_num_draft_tokens": serving.num_draft_tokens,
            "max_running_requests": 48,
            "enable_multi_layer_eagle": serving.algorithm == "MTP",
        }
        if drafter.model is not None:
            arguments |= {
                "speculative_draft_model_path": drafter.model,
                "speculative_draft_model_revision": "main",
            }
        if serving.algorithm == "NGRAM":
            arguments["speculative_ngram_max_bfs_breadth"] = serving.topk
    return arguments


def capture_batches() -> list[int]:
    """Batch sizes for which graphs are captured."""
    return list(_CAPTURE_BATCHES)


def arguments_text(arguments: dict[str, Any]) -> str:
    """``ServerArgs(...)`` as the release prints it."""
    phase = "PhaseConfig(backend='{}', max_bs={}, bs={}, tc_compiler='eager', full_prefill_max_req=None)"
    graphs = (
        f"CudaGraphConfig(decode={phase.format('full', _CAPTURE_BATCHES[-1], list(_CAPTURE_BATCHES))}, "
        f"prefill={phase.format('disabled', _PREFILL_TOKENS[-1], list(_PREFILL_TOKENS))})"
    )
    parts = [f"{key}={graphs if key == 'cuda_graph_config' else repr(value)}" for key, value in arguments.items()]
    return f"ServerArgs({', '.join(parts)})"


def arguments_json(arguments: dict[str, Any]) -> str:
    """``server_args.json`` as the profiler's client saves it."""
    phase = {"tc_compiler": "eager", "full_prefill_max_req": None}
    config = {
        "decode": {"backend": "full", "max_bs": _CAPTURE_BATCHES[-1], "bs": list(_CAPTURE_BATCHES)} | phase,
        "prefill": {"backend": "disabled", "max_bs": _PREFILL_TOKENS[-1], "bs": list(_PREFILL_TOKENS)} | phase,
    }
    return json.dumps(arguments | {"cuda_graph_config": config}, indent=2) + "\n"
