"""Random combinations of algorithm, worker, graphs, dialect, evidence and disturbance, against their truth."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from profkit.attribution import attribute, needs_frames
from profkit.attribution.groups import groups_of
from profkit.simulation import Scenario
from profkit.simulation.scenario import Collective
from profkit.trace import TraceInfo
from tests.attribution_modes import BASE, record, scenario, worst_error

TREES = ("EAGLE", "EAGLE3", "STANDALONE")
BLOCKS = ("DFLASH", "DSPARK")
ALGORITHMS = ("none", "NGRAM", "MTP", *BLOCKS, *TREES)
COLLECTIVES: tuple[Collective, ...] = ("nccl", "custom", "flashinfer_fused", "multimem", "pcie_ipc")


def random_scenario(seed: int) -> Scenario:
    rng = random.Random(seed)
    algorithm = ALGORITHMS[seed % len(ALGORITHMS)]
    steps = {"none": 0, "NGRAM": 2, "DFLASH": 1, "DSPARK": 7, "MTP": rng.choice((2, 3))}.get(
        algorithm, rng.choice((1, 2, 3, 5))
    )
    rows = {"none": 0, "NGRAM": rng.choice((4, 8)), "DFLASH": 8, "DSPARK": 8}.get(algorithm, steps + 1)
    worker = rng.choice(("v1", "v2")) if algorithm in ("EAGLE", "EAGLE3") else "v2"
    serving: dict[str, Any] = {
        "algorithm": algorithm,
        "worker": worker,
        "num_steps": steps,
        "num_draft_tokens": rows,
        "overlap": worker == "v2" and rng.random() < 0.6,
        "target_graph": rng.random() < 0.7,
        "side_stream": rng.random() < 0.3,
        "batch_sizes": rng.choice(((1,), (4,), (1, 2))),
        "prefill_before": (rng.choice((4, 5)),) if rng.random() < 0.3 else (),
    }
    if algorithm in TREES:
        serving |= {"draft_graph": rng.random() < 0.7, "extend_graph": rng.random() < 0.7}
    if algorithm in BLOCKS:
        serving |= {"draft_graph": rng.random() < 0.7, "embedding_allreduce": rng.random() < 0.5}
    if algorithm == "DSPARK":
        serving |= {"ragged_verify": rng.random() < 0.5, "folded_append": rng.random() < 0.5}
    evidence = rng.choice(("host", "host", "launches", "gpu_annotations", "markers"))
    dialect = rng.choice(("none", "0.5.11") if worker == "v1" else ("none", "0.5.11", "0.5.14", "0.5.20"))
    stacks = evidence == "host" and algorithm != "MTP" and rng.random() < 0.3
    return scenario(
        serving,
        {"dialect": dialect, "evidence": evidence, "python_stacks": stacks},
        hardware=replace(BASE.hardware, pdl_early_ns=rng.choice((0.0, 900.0)), collective=rng.choice(COLLECTIVES)),
        drafter=replace(BASE.drafter, conditional_acceptance=(0.5,) * max(1, steps)),
        seed=seed,
    )


@pytest.mark.parametrize("seed", range(16))
def test_random_mode(seed: int) -> None:
    one = random_scenario(seed)
    traces, truth = record(one, frames=one.recording.python_stacks)
    found = attribute(traces)
    assert worst_error(found, truth) <= 0.005
    for mine, cycles, partial in zip(found.ranks, truth.ranks, truth.partial, strict=True):
        prefills = sum(c.prefill for c in cycles)
        assert (mine.cycles, mine.dropped) == (len(cycles) - prefills, {"partial": partial, "prefill": prefills})


def test_frames_are_needed_only_where_no_annotation_names_the_work() -> None:
    bare, _ = record(scenario(recording={"dialect": "none", "python_stacks": True}))
    assert all(needs_frames(t) for t in bare)
    read, _ = record(scenario(recording={"dialect": "none", "python_stacks": True}), frames=True)
    assert not any(needs_frames(t) for t in read)
    named, _ = record(scenario(recording={"python_stacks": True}))
    assert not any(needs_frames(t) for t in named)


def info(tp: int | None, dp: int | None = None, pp: int | None = None) -> TraceInfo:
    return TraceInfo(path=f"{dp}-{pp}-{tp}", kind="gpu", rank=tp, tp=tp, dp=dp, pp=pp)


@pytest.mark.parametrize(
    ("infos", "groups"),
    [
        ([info(0), info(1)], [(0, 1)]),
        # Replicas number their ranks anew and never talk; under DP attention ranks are numbered through, and do.
        ([info(0, 0), info(1, 0), info(0, 1), info(1, 1)], [(0, 1), (2, 3)]),
        ([info(0, 0), info(1, 0), info(2, 1), info(3, 1)], [(0, 1, 2, 3)]),
        ([info(0, None, 0), info(0, None, 1), info(1, None, 0), info(1, None, 1)], [(0, 2), (1, 3)]),
        ([info(None), info(None)], [(0, 1)]),
        ([info(0)], [(0,)]),
    ],
)
def test_which_ranks_share_collectives(infos: list[TraceInfo], groups: list[tuple[int, ...]]) -> None:
    assert groups_of(infos) == groups
