"""``run.toml`` (what an operator would know) and ``expected.toml`` (what a reader of the files should find)."""

from __future__ import annotations

from typing import Any

from profkit.simulation.scenario import Scenario
from profkit.simulation.serverlog import ServerLog
from profkit.simulation.simulate import Simulation
from profkit.simulation.truth import Cell, mean_parts
from profkit.words import ACTIVITIES, PHASES


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(v) for v in value)}]"
    if isinstance(value, float):
        return repr(round(value, 6))
    return str(value)


def _table(name: str, values: dict[str, Any]) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in values.items() if value is not None]
    return f"\n[{name}]\n" + "\n".join(lines) + "\n" if lines else ""


def run_toml(scenario: Scenario) -> str:
    """Name, configuration, date, labels and facts under the names that reports use."""
    model, hardware, serving = scenario.model, scenario.hardware, scenario.serving
    text = "# Written by the simulator: nothing here was measured on a machine.\n"
    text += f"name = {_value(scenario.name)}\nconfig = {_value(scenario.config)}\n"
    text += f"date = {_value(scenario.recording.date)}\n"
    text += _table("labels", {"origin": "simulated"} | dict(scenario.labels))
    text += _table(
        "model",
        {
            "name": model.name, "layers": model.layers, "moe_layers": model.moe_layers or None,
            "hidden_size": model.hidden_size,
            "experts": model.experts if model.moe_layers else None,
            "experts_per_token": model.experts_per_token if model.moe_layers else None,
            "expert_intermediate_size": model.expert_intermediate_size if model.moe_layers else None,
            "activation_bytes": model.activation_bytes,
            "weight_bytes": model.weight_bytes, "dense_weight_bytes": model.dense_weight_bytes,
            "quantization": model.quantization, "dtype": "bfloat16",
        },
    )  # fmt: skip
    if scenario.speculative:
        text += _table(
            "speculative",
            {
                "algorithm": {"MTP": "EAGLE"}.get(serving.algorithm, serving.algorithm),
                "num_steps": serving.num_steps, "topk": serving.topk, "num_draft_tokens": serving.num_draft_tokens,
                "draft_model": scenario.drafter.model,
            },
        )  # fmt: skip
    text += _table("parallel", {"tp": scenario.ranks, "dp": 1, "pp": 1, "ep": 1, "dp_attention": False})
    name = "vllm" if serving.worker == "vllm" else "sglang"
    text += _table("engine", {"name": name, "version": scenario.recording.engine_version})
    text += _table(
        "gpu",
        {
            "name": hardware.gpu, "count": scenario.ranks, "sm": str(hardware.sm),
            "memory_bandwidth_gb_s": hardware.memory_bandwidth_gb_s, "power_cap_w": hardware.power_cap_w,
        },
    )  # fmt: skip
    text += _table("link", {"kind": hardware.link, "p2p": hardware.peer_access})
    text += _table("nccl", {"version": hardware.nccl})
    return text + _table("driver", {"version": hardware.driver})


def _parts(name: str, parts: dict[Cell, float] | dict[Cell, int], scale: float = 1.0) -> str:
    text = ""
    for phase in PHASES:
        row: dict[str, Any] = {a: parts[phase, a] * scale if scale != 1.0 else parts[phase, a]
               for a in ACTIVITIES if (phase, a) in parts}  # fmt: skip
        text += _table(f"{name}.{phase}", row)
    return text


def expected_toml(simulation: Simulation, log: ServerLog, *, traces: bool) -> str:
    """The truth of the simulated timeline and of the log's unflagged decode lines."""
    scenario, counted = simulation.scenario, log.truth
    accept = counted.tokens / counted.request_steps
    throughput = counted.tokens / counted.seconds
    text = "# What these files must yield, counted from the simulated timeline (not from the files).\n"
    text += 'schema = "profkit.expected/1"\n'
    text += f"assumed = {_value(list(scenario.assumed))}\n"
    text += _table(
        "log",
        {
            "decode_lines": counted.lines + counted.flagged, "flagged_lines": counted.flagged,
            "throughput_tok_s": throughput, "accept_length": accept if scenario.speculative else None,
            "cycle_ms": counted.seconds / counted.steps * 1000,
        },
    )  # fmt: skip
    if not traces:
        return text
    truth = simulation.truth()
    clean = [[c for c in one if not c.prefill] for one in truth.ranks]
    everything = [c for one in clean for c in one]
    if not everything:
        return text
    mean = sum(c.wall_ns for c in everything) / len(everything)
    text += _table("cycle", {"wall_us": mean / 1000, "count_per_rank": [len(one) for one in clean]})
    text += _parts("cycle.parts_us", mean_parts(everything), 0.001)
    for rank, one in enumerate(clean):
        text += "\n[[rank]]\n"
        entry: dict[str, Any] = {
            "rank": rank, "cycles": len(one), "partial": truth.partial[rank],
            "with_prefill": len(truth.ranks[rank]) - len(one), "gpu_ops": truth.gpu_ops[rank],
            "wall_ns": sum(c.wall_ns for c in one),
            "overlapped_comm_ns": sum(c.overlapped_comm_ns for c in one),
            "clock_offset_us": truth.clock_offset_us[rank],
        }  # fmt: skip
        text += "\n".join(f"{key} = {_value(value)}" for key, value in entry.items()) + "\n"
        total: dict[Cell, int] = {}
        for cycle in one:
            for cell, value in cycle.parts_ns.items():
                total[cell] = total.get(cell, 0) + value
        text += _parts("rank.parts_ns", total)
    for row in truth.collectives:
        text += "\n[[collective]]\n"
        entry = {
            "phase": row.phase, "kind": row.kind, "kernel": row.kernel, "fused": row.fused,
            "calls_per_cycle": row.calls / row.cycles, "mean_us": row.duration_ns / row.calls / 1000,
            "shortest_us": row.shortest_ns / row.calls / 1000, "transfer_us": row.transfer_ns / row.calls / 1000,
            "wait_by_rank_us": [w / row.calls / 1000 for w in row.wait_by_rank_ns],
            "message_bytes": row.message_bytes,
        }  # fmt: skip
        text += "\n".join(f"{key} = {_value(value)}" for key, value in entry.items()) + "\n"
    return text
