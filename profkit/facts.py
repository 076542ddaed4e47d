"""Facts about the system under test, gathered from the places where a run states them.

The first place that knows a fact wins: ``run.toml`` (what its owner says), ``server_args.json``, the server's arguments
in the log, the model's ``config.json``, the traces.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from profkit.run import Fact, Facts
from profkit.trace import Trace

# Server arguments that are facts under another name.
ARGUMENT_NAMES = {
    "speculative_algorithm": "speculative.algorithm",
    "speculative_num_steps": "speculative.num_steps",
    "speculative_eagle_topk": "speculative.topk",
    "speculative_num_draft_tokens": "speculative.num_draft_tokens",
    "speculative_draft_model_path": "speculative.draft_model",
    "tp_size": "parallel.tp",
    "dp_size": "parallel.dp",
    "pp_size": "parallel.pp",
    "ep_size": "parallel.ep",
    "enable_dp_attention": "parallel.dp_attention",
    "model_path": "model.name",
    "quantization": "model.quantization",
    "dtype": "model.dtype",
    "version": "engine.version",  # servers that were asked for their arguments name their release among them
}
# Keys of a model's config.json, in the spellings of the model families.
CONFIG_NAMES = {
    "num_hidden_layers": "model.layers",
    "hidden_size": "model.hidden_size",
    "n_routed_experts": "model.experts",
    "num_experts": "model.experts",
    "num_local_experts": "model.experts",
    "num_experts_per_tok": "model.experts_per_token",
    "moe_intermediate_size": "model.expert_intermediate_size",
}
_UNVERSIONED = "0.0.0"  # what a build from a checkout without tags calls itself
# The same for what one cached token holds, where every layer reads the whole context.
CACHE_NAMES = {
    "kv_lora_rank": "model.kv_latent_size",
    "qk_rope_head_dim": "model.kv_rope_size",
    "num_key_value_heads": "model.kv_heads",
    "head_dim": "model.head_size",
}
# What says that some layers do not: windows, sparse or linear attention, state spaces.
_PARTIAL_CONTEXT = ("layer_types", "layers_block_type", "hybrid_override_pattern", "full_attention_interval",
                    "attn_layer_period", "index_topk", "linear_attn_config")  # fmt: skip
# Batch sizes that CUDA graphs were captured for, kept as text with commas.
SIZE_LISTS = ("cuda_graph_bs", "cuda_graph_bs_decode")
ACTIVATION_BYTES = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4}


def _scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)


def from_run_toml(document: Mapping[str, Any], source: str, prefix: str = "") -> dict[str, Fact]:
    """Tables of ``run.toml`` flattened to dotted names; top-level scalars other than tables are no facts."""
    facts: dict[str, Fact] = {}
    for key, value in document.items():
        if isinstance(value, Mapping) and key != "labels":
            facts |= from_run_toml(value, source, f"{prefix}{key}.")
        elif prefix and _scalar(value):
            facts[f"{prefix}{key}"] = Fact(value, source)
    return facts


def from_server_args(arguments: Mapping[str, Any], source: str) -> dict[str, Fact]:
    """Server arguments as ``server_args.<name>`` and, where there is one, under the fact's own name."""
    facts: dict[str, Fact] = {}
    for key, value in arguments.items():
        if key in SIZE_LISTS and isinstance(value, list) and value and all(type(size) is int for size in value):
            facts[f"server_args.{key}"] = Fact(",".join(map(str, value)), source)
        if not _scalar(value) or (key == "version" and str(value).startswith(_UNVERSIONED)):
            continue
        facts[f"server_args.{key}"] = Fact(value, source)
        if name := ARGUMENT_NAMES.get(key):
            facts[name] = Fact(value, source)
    dtype = arguments.get("dtype")
    if dtype in ACTIVATION_BYTES:
        facts["model.activation_bytes"] = Fact(ACTIVATION_BYTES[dtype], source)
    return facts


def from_model_config(document: Mapping[str, Any], source: str) -> dict[str, Fact]:
    """Shapes from a Hugging Face ``config.json``; multimodal models keep theirs in ``text_config``."""
    config = document.get("text_config") if isinstance(document.get("text_config"), Mapping) else document
    assert isinstance(config, Mapping)
    windowed = config.get("sliding_window") and config.get("use_sliding_window") is not False
    whole = not windowed and not any(config.get(key) for key in _PARTIAL_CONTEXT)
    facts = {
        name: Fact(config[key], source)
        for key, name in (CONFIG_NAMES | (CACHE_NAMES if whole else {})).items()
        if isinstance(config.get(key), int) and not isinstance(config.get(key), bool)
    }
    layers, dense = config.get("num_hidden_layers"), config.get("first_k_dense_replace")
    if isinstance(layers, int) and isinstance(dense, int) and "model.experts" in facts:
        facts["model.moe_layers"] = Fact(layers - dense, source)
    dtype = config.get("torch_dtype", config.get("dtype"))
    if dtype in ACTIVATION_BYTES:
        facts["model.activation_bytes"] = Fact(ACTIVATION_BYTES[dtype], source)
        facts["model.dtype"] = Fact(str(dtype), source)
    return facts


def from_server_row(row: Mapping[str, Any]) -> dict[str, Fact]:
    """One row of the ``server`` table: its arguments, and what the reader inferred about the engine."""
    source = f"{row['file']}:{row['line']}" if row.get("line") is not None else str(row["file"])
    arguments = json.loads(row["server_args"]) if row.get("server_args") else {}
    facts = from_server_args(arguments, source)
    for column, name in {
        "engine": "engine.name",
        "engine_version": "engine.version",
        "version_low": "engine.version_low",
        "version_high": "engine.version_high",
        "algorithm": "speculative.algorithm",
        "num_steps": "speculative.num_steps",
        "topk": "speculative.topk",
        "num_draft_tokens": "speculative.num_draft_tokens",
        "tp": "parallel.tp",
        "dp": "parallel.dp",
        "pp": "parallel.pp",
        "ep": "parallel.ep",
        "model": "model.name",
        "quantization": "model.quantization",
    }.items():
        if row.get(column) is not None:
            facts.setdefault(name, Fact(row[column], source))
    return facts


def from_traces(traces: Sequence[Trace]) -> dict[str, Fact]:
    """GPU, its compute capability and the library versions that a trace's header states."""
    facts: dict[str, Fact] = {}
    for trace in traces:
        info = trace.info
        for device in info.devices:
            if name := device.get("name"):
                facts.setdefault("gpu.name", Fact(str(name), info.path))
            major, minor = device.get("computeMajor"), device.get("computeMinor")
            # ROCm fills these fields with its own architecture numbers.
            if isinstance(major, int) and isinstance(minor, int) and "AMD" not in str(device.get("name")):
                facts.setdefault("gpu.sm", Fact(f"{major}{minor}", info.path))
        distributed = info.distributed or {}
        if distributed.get("nccl_version"):
            facts.setdefault("nccl.version", Fact(str(distributed["nccl_version"]), info.path))
        if info.engine:
            facts.setdefault("engine.name", Fact(info.engine, info.path))
        if info.engine_version:
            facts.setdefault("engine.version", Fact(info.engine_version, info.path))
    return facts


def merge(places: Iterable[Mapping[str, Fact]]) -> Facts:
    """Facts of several places; an earlier place wins."""
    merged: dict[str, Fact] = {}
    for place in places:
        for key, fact in place.items():
            merged.setdefault(key, fact)
    return Facts(dict(sorted(merged.items())))
