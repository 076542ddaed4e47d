"""Bytes of every all-reduce against what the simulator sent: right or unknown, never wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profkit.attribution import Attribution, attribute
from profkit.attribution.message_sizes import _padded, stated
from profkit.facts import from_server_args
from profkit.loading import load_run
from profkit.run import Fact, Facts, Run
from profkit.simulation import Scenario, Simulation, simulate, write_run
from profkit.simulation.modes import mode_scenarios
from tests.attribution_modes import BASE, scenario

MODES = mode_scenarios()
CHAIN = {"draft", "verify", "draft_extend"}


def small(one: Scenario) -> Scenario:
    """The mode with fewer layers and ranks: sizes do not depend on them."""
    return replace(one, ranks=2, model=replace(one.model, layers=4, moe_layers=3))


def loaded(one: Scenario, folder: Path) -> tuple[Simulation, Run]:
    simulation = simulate(one)
    write_run(simulation, folder / "run")
    return simulation, load_run(folder / "run", cache=False, frames=one.recording.python_stacks)


def sizes(found: Attribution, rank: int) -> dict[tuple[int, str], list[int | None]]:
    """Bytes of the all-reduces of every whole cycle of a rank, by the cycle's place among them, and phase."""
    whole = [r["cycle"] for r in found.cycles.to_pylist() if r["rank"] == rank and r["kind"] != "partial"]
    place = {cycle: i for i, cycle in enumerate(whole)}
    result: dict[tuple[int, str], list[int | None]] = {}
    for row in found.calls.to_pylist():
        if row["rank"] == rank and row["kind"] == "all_reduce" and row["cycle"] in place and row["phase"] in (
            "draft", "verify", "draft_extend", "decode",
        ):  # fmt: skip
            result.setdefault((place[row["cycle"]], row["phase"]), []).append(row["message_bytes"])
    return result


def sent(simulation: Simulation, rank: int) -> dict[tuple[int, str], list[int]]:
    place = {w.cycle: i for i, w in enumerate(simulation.truth().ranks[rank])}
    result: dict[tuple[int, str], list[int]] = {}
    for block in simulation.machine.blocks:
        for op in block.ops:
            if op.collective == "allreduce" and block.cycle in place and block.phase != "other":
                result.setdefault((place[block.cycle], block.phase), []).append(op.message_bytes)
    return result


def known_phases(found: Attribution, simulation: Simulation) -> set[str]:
    """Phases whose sizes are all known; fails where one is known and wrong."""
    known: set[str] = set()
    unknown: set[str] = set()
    for rank in range(simulation.scenario.ranks):
        mine, real = sizes(found, rank), sent(simulation, rank)
        assert mine.keys() == real.keys()
        for key, values in mine.items():
            assert len(values) == len(real[key])
            for value, truth in zip(values, real[key], strict=True):
                assert value in (None, truth), (key, value, truth)
                (unknown if value is None else known).add(key[1])
    return known - unknown


EXPECTED: dict[str, set[str]] = {
    "plain": {"decode"},
    "plain_batches": {"decode"},
    "eagle3_v2": CHAIN,
    "eagle3_v2_20": CHAIN,
    "eagle3_v2_batches": CHAIN,
    "eagle3_v2_step1": {"verify", "draft_extend"},
    "eagle3_v2_eager_all": CHAIN,
    "eagle3_v2_prefill": CHAIN,
    "eagle3_v2_markers": set(),  # nothing states the number of requests
    "eagle3_v2_arguments": CHAIN,
    "eagle3_v2_detailed": CHAIN,
    # The number of drafts changes from cycle to cycle and nothing says it; a draft forward's rows do not change.
    "eagle3_v2_adaptive": {"draft"},
    # The first worker's draft_extend runs over accepted tokens; a release that has both says nothing.
    "eagle_v1": {"draft", "verify"},
    "eagle3_v2_11": {"draft", "verify"},
    "mtp": {"verify", "draft_extend"},
    "ngram": {"verify"},
    # A draft model of its own: how wide it is nobody says.
    "standalone": {"verify"},
    "dflash": {"verify"},
    "vllm": {"verify"},
}


@pytest.mark.parametrize("mode", EXPECTED)
def test_sizes_are_those_sent_or_unknown(mode: str, tmp_path: Path) -> None:
    simulation, run = loaded(small(MODES[mode]), tmp_path)
    assert known_phases(attribute(run.traces, facts=run.facts), simulation) == EXPECTED[mode]


def test_detailed_annotations_tell_the_rows_of_adaptive_steps(tmp_path: Path) -> None:
    one = small(MODES["eagle3_v2_detailed"])
    one = replace(
        one,
        serving=replace(one.serving, adaptive_steps=(3, 2, 4)),
        drafter=replace(one.drafter, conditional_acceptance=(0.7, 0.6, 0.5, 0.5)),
        recording=replace(one.recording, cycles=7),
    )
    simulation, run = loaded(one, tmp_path)
    assert run.facts.flag("server_args.speculative_adaptive") is True
    found = attribute(run.traces, facts=run.facts)
    assert known_phases(found, simulation) == CHAIN
    assert len({v for (_, phase), values in sizes(found, 0).items() if phase == "verify" for v in values}) == 3
    # Calls of several sizes have no common one.
    assert next(c for c in found.collectives if c.phase == "verify").message_bytes is None


def test_the_width_of_a_draft_model_can_be_stated(tmp_path: Path) -> None:
    simulation, run = loaded(small(MODES["standalone"]), tmp_path)
    width = Fact(simulation.scenario.model.hidden_size, "run.toml")
    facts = Facts({**run.facts, "speculative.draft_hidden_size": width})
    assert known_phases(attribute(run.traces, facts=facts), simulation) == CHAIN


def with_facts(run: Run, **changes: Any) -> Facts:
    return Facts({**run.facts, **{k.replace("__", "."): Fact(v, "test") for k, v in changes.items()}})


def test_ranks_that_hold_half_a_batch_have_no_size(tmp_path: Path) -> None:
    _, run = loaded(scenario(), tmp_path)
    for flag in ("parallel__dp_attention", "server_args__enable_two_batch_overlap"):
        found = attribute(run.traces, facts=with_facts(run, **{flag: True}))
        assert {c.message_bytes for c in found.collectives} == {None}


@pytest.mark.parametrize(
    ("batch", "listed", "rows"),
    [(1, None, 1), (2, None, 2), (9, None, None), (10, None, 10), (9, "1,2,4,8,16", 16), (3, "1,2,4,8", 4),
     (9, "1,2,4,8", None), (33, None, None)],
)  # fmt: skip
def test_a_graph_runs_over_the_next_captured_size(
    batch: int, listed: str | None, rows: int | None, tmp_path: Path
) -> None:
    _, run = loaded(scenario({"batch_sizes": (batch,)}, model=replace(BASE.model, layers=2, moe_layers=1)), tmp_path)
    facts = with_facts(run, **({"server_args__cuda_graph_bs": listed} if listed else {}))
    found = attribute(run.traces, facts=facts)
    each = {c.phase: c.message_bytes for c in found.collectives if c.kind == "all_reduce"}
    width = 7168 * 2
    wanted = (None,) * 3 if rows is None else (rows * width, rows * 4 * width, rows * 4 * width)
    assert (each["draft"], each["verify"], each["draft_extend"]) == wanted
    eager = scenario(
        {"batch_sizes": (batch,), "draft_graph": False, "extend_graph": False, "target_graph": False},
        model=replace(BASE.model, layers=2, moe_layers=1),
    )
    _, run = loaded(eager, tmp_path / "eager")
    found = attribute(run.traces, facts=run.facts)
    each = {c.phase: c.message_bytes for c in found.collectives if c.kind == "all_reduce"}
    assert each["verify"] == batch * 4 * width


def test_rows_that_requests_do_not_share_evenly_are_padded_to_nothing_known() -> None:
    rows, requests, graph = np.array([8, 5, 5]), np.array([2, 2, 2]), np.array([True, True, False])
    assert _padded(rows, requests, graph, Facts({}), vllm=False).tolist() == [8, -1, 5]


def test_captured_sizes_are_a_fact() -> None:
    facts = from_server_args({"cuda_graph_bs": [1, 2, 4], "cuda_graph_bs_decode": None, "other": [1]}, "x")
    assert {k: f.value for k, f in facts.items()} == {"server_args.cuda_graph_bs": "1,2,4"}
    assert from_server_args({"cuda_graph_bs": [True, "2"]}, "x") == {}


@pytest.mark.parametrize(
    ("name", "rows", "requests"),
    [
        ("step[VERIFY bs=2 g_sq=8 g_sqsq=32 g_sqsk=9 g_sk=9 forward_id=12]", 8, 2),
        ("step[DRAFT bs=2 c_sq=6 c_sqsq=18 c_sqsk=9 c_sk=9 forward_id=3]", 6, 2),
        ("step[MIXED bs=3 c=1 g=2 c_sq=50 c_sk=50 c_sqsq=2500 c_sqsk=2500 g_sq=2 g_sk=9 g_sqsq=2 g_sqsk=9]", 52, 3),
        ("step[VERIFY bs=2]", -1, -1),
        ("step[EXTEND bs=1 toks=51]", -1, -1),
        ("execute_context_0(0)_generation_2(8)", 8, 2),
        ("execute_context_1(888_788544)_generation_0(0)", 888, 0),
        ("draft_extend", -1, -1),
        ("step[VERIFY bs=99999999999999999999 g_sq=99999999999999999999]", -1, -1),
    ],
)
def test_what_annotations_state(name: str, rows: int, requests: int) -> None:
    found = stated(name)
    assert (found.rows, found.requests) == (rows, requests)
