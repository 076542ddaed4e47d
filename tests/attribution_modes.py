"""Simulated serving modes, read and attributed, with the truth their simulator counted."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from profkit.attribution import Attribution, attribute
from profkit.parsers.trace import read_traces
from profkit.simulation import Drafter, Hardware, Model, Recording, Scenario, Serving, simulate
from profkit.simulation.files import write_trace
from profkit.simulation.truth import Truth
from profkit.trace import Trace
from profkit.words import ACTIVITIES, PHASES

SMALL = Model(layers=10, moe_layers=9)
BASE = Scenario(
    ranks=2,
    model=SMALL,
    hardware=Hardware(rank_slowdown=(1.0, 1.05), clock_offset_us=(0.0, 17.5)),
    drafter=Drafter(conditional_acceptance=(0.5, 0.5, 0.5)),
    recording=Recording(cycles=5),
)
EAGLE = Serving(algorithm="EAGLE", num_steps=3, num_draft_tokens=4)


def scenario(serving: dict[str, Any] | None = None, recording: dict[str, Any] | None = None, **more: Any) -> Scenario:
    """A scenario that differs from the base in the given parameters."""
    return replace(
        BASE,
        serving=replace(EAGLE, **(serving or {})),
        recording=replace(BASE.recording, **(recording or {})),
        **more,
    )


def record(one: Scenario, *, frames: bool = False) -> tuple[tuple[Trace, ...], Truth]:
    """Write, read back, and count."""
    simulation = simulate(one)
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(one.ranks):
            write_trace(simulation, rank, Path(folder) / f"1700000000.5-TP-{rank}-DECODE.trace.json.gz", 1_790_000_000)
        return read_traces([folder], frames=frames), simulation.truth()


@cache
def attributed(one: Scenario, frames: bool = False) -> tuple[Attribution, Truth]:
    """The attribution of a scenario and its truth."""
    traces, truth = record(one, frames=frames)
    return attribute(traces), truth


def worst_error(found: Attribution, truth: Truth) -> float:
    """Largest difference of a (rank, phase, activity) cell from the truth, as a share of the rank's wall."""
    worst = 0.0
    for mine, cycles in zip(found.ranks, truth.ranks, strict=True):
        counted = [c for c in cycles if not c.prefill]
        wall = sum(c.wall_ns for c in counted)
        for phase in PHASES:
            for activity in ACTIVITIES:
                wanted = sum(c.parts_ns.get((phase, activity), 0) for c in counted)
                worst = max(worst, abs((mine.parts_ns[phase][activity] or 0) - wanted) / wall)
    return worst


# What the simulator's own list of modes has with annotations, here from kernels alone, and other variants.
MODES: dict[str, Scenario] = {
    "eagle": scenario(),
    "eagle markers": scenario(recording={"dialect": "none", "evidence": "markers"}),
    "eager draft_extend markers": scenario({"extend_graph": False}, {"dialect": "none", "evidence": "markers"}),
    "eager draft 0.5.11": scenario({"draft_graph": False}, {"dialect": "0.5.11"}),
    "all eager markers": scenario(
        {"draft_graph": False, "extend_graph": False, "target_graph": False},
        {"dialect": "none", "evidence": "markers"},
    ),
    "v1 0.5.11": scenario({"worker": "v1", "overlap": False}, {"dialect": "0.5.11"}),
    "topk": scenario({"algorithm": "EAGLE3", "topk": 4, "num_draft_tokens": 8, "num_steps": 4}),
    "standalone markers": scenario(
        {"algorithm": "STANDALONE"},
        {"dialect": "none", "evidence": "markers"},
        drafter=replace(BASE.drafter, layers=12, architecture="LlamaForCausalLM"),
    ),
    "one step markers": scenario({"num_steps": 1, "num_draft_tokens": 2}, {"dialect": "none", "evidence": "markers"}),
    "mtp markers": scenario({"algorithm": "MTP"}, {"dialect": "none", "evidence": "markers"}),
    "ngram no overlap": scenario({"algorithm": "NGRAM", "num_draft_tokens": 8, "overlap": False}),
    "ngram markers": scenario(
        {"algorithm": "NGRAM", "num_draft_tokens": 8, "overlap": False}, {"dialect": "none", "evidence": "markers"}
    ),
    "dflash 0.5.20": scenario({"algorithm": "DFLASH", "num_steps": 1, "num_draft_tokens": 8}, {"dialect": "0.5.20"}),
    "plain 0.5.11": scenario({"algorithm": "none", "num_steps": 0, "num_draft_tokens": 0}, {"dialect": "0.5.11"}),
    "plain markers": scenario(
        {"algorithm": "none", "num_steps": 0, "num_draft_tokens": 0}, {"dialect": "none", "evidence": "markers"}
    ),
    "vllm markers": scenario({"worker": "vllm"}, {"dialect": "none", "evidence": "markers"}),
    "side stream markers": scenario({"side_stream": True}, {"dialect": "none", "evidence": "markers"}),
    "prefill 0.5.20": scenario({"prefill_before": (5,)}, {"dialect": "0.5.20"}),
    "changing batch": scenario({"batch_sizes": (1, 1, 2)}),
    "changing batch markers": scenario({"batch_sizes": (1, 1, 2)}, {"dialect": "none", "evidence": "markers"}),
    "prefill markers": scenario({"prefill_before": (5,)}, {"dialect": "none", "evidence": "markers"}),
    "prefill all eager markers": scenario(
        {"draft_graph": False, "extend_graph": False, "target_graph": False, "prefill_before": (5,)},
        {"dialect": "none", "evidence": "markers"},
    ),
    "prefill plain markers": scenario(
        {"algorithm": "none", "num_steps": 0, "num_draft_tokens": 0, "prefill_before": (5,)},
        {"dialect": "none", "evidence": "markers"},
    ),
    "dflash 0.5.11": scenario({"algorithm": "DFLASH", "num_steps": 1, "num_draft_tokens": 8}, {"dialect": "0.5.11"}),
    "dflash 0.5.11 streams": scenario(
        {"algorithm": "DFLASH", "num_steps": 1, "num_draft_tokens": 8, "draft_graph": False, "side_stream": True},
        {"dialect": "0.5.11"},
    ),
    "dflash markers": scenario(
        {"algorithm": "DFLASH", "num_steps": 1, "num_draft_tokens": 8}, {"dialect": "none", "evidence": "markers"}
    ),
    "start skew": scenario(recording={"start_skew_cycles": (0, 2)}),
    "custom allreduce": scenario(hardware=replace(BASE.hardware, collective="custom")),
    "fused allreduce": scenario(hardware=replace(BASE.hardware, collective="flashinfer_fused")),
}
FRAME_MODES: dict[str, Scenario] = {
    "v2 frames 0.5.11": scenario(recording={"dialect": "0.5.11", "python_stacks": True}),
    "prefill frames": scenario({"prefill_before": (5,)}, {"dialect": "none", "python_stacks": True}),
    "plain frames": scenario(
        {"algorithm": "none", "num_steps": 0, "num_draft_tokens": 0}, {"dialect": "none", "python_stacks": True}
    ),
    "eager frames": scenario(
        {"draft_graph": False, "extend_graph": False, "target_graph": False},
        {"dialect": "none", "python_stacks": True},
    ),
}
