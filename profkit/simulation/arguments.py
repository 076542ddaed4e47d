"""Server arguments of a launch, for the log's first line and for ``server_args.json``."""

from __future__ import annotations

import json
from typing import Any

from profkit.simulation.noise import Noise
from profkit.simulation.releases import Release
from profkit.simulation.scenario import Scenario


def server_arguments(scenario: Scenario, release: Release) -> dict[str, Any]:
    """All arguments of the release with the values of this launch, in the order of the release."""
    arguments = release.arguments()
    serving, drafter, hardware = scenario.serving, scenario.drafter, scenario.hardware
    path = f"/models/{scenario.model.name.rsplit('/', 1)[-1]}"
    values: dict[str, Any] = {
        "model_path": path,
        "tokenizer_path": path,
        "served_model_name": path,
        "tp_size": scenario.ranks,
        "random_seed": int(Noise(scenario.seed, 9).raw(1)[0] % 1_000_000_000),
        "disable_overlap_schedule": not serving.overlap,
        "decode_log_interval": scenario.recording.decode_log_interval,
        "disable_custom_all_reduce": hardware.collective == "nccl" and hardware.link == "nvlink",
        "enable_flashinfer_allreduce_fusion": hardware.collective == "flashinfer_fused",
        "enable_torch_symm_mem": hardware.collective == "multimem",
        "disable_cuda_graph": not serving.target_graph,
    }
    if scenario.speculative:
        values |= {
            "speculative_algorithm": {"MTP": "EAGLE"}.get(serving.algorithm, serving.algorithm),
            "speculative_num_steps": serving.num_steps,
            "speculative_eagle_topk": serving.topk,
            "speculative_num_draft_tokens": serving.num_draft_tokens,
            "speculative_adaptive": bool(serving.adaptive_steps),
            "max_running_requests": 48,
            "enable_multi_layer_eagle": serving.algorithm == "MTP",
        }
        if drafter.model is not None and serving.algorithm != "NGRAM":
            values |= {"speculative_draft_model_path": drafter.model, "speculative_draft_model_revision": "main"}
        if serving.algorithm == "NGRAM":
            values["speculative_ngram_max_bfs_breadth"] = serving.topk
    return arguments | {key: value for key, value in values.items() if key in arguments}


def arguments_json(arguments: dict[str, Any], release: Release) -> str:
    """``server_args.json`` as the profiler's client saves it."""
    if "cuda_graph_config" in arguments:
        arguments = arguments | {"cuda_graph_config": release.graph_config()}
    return json.dumps(arguments, indent=2) + "\n"
