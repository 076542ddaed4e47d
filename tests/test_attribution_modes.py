"""Every serving mode the simulator knows, against its truth: worst cell <= 0.5 % of the wall, counts exact."""

from __future__ import annotations

import pytest

from profkit.attribution import Attribution, attribute
from profkit.simulation.modes import mode_scenarios
from profkit.simulation.truth import Truth
from tests.attribution_modes import FRAME_MODES, MODES, attributed, record, scenario, worst_error

TOLERANCE = 0.005


def check(found: Attribution, truth: Truth) -> None:
    for place, (mine, cycles) in enumerate(zip(found.ranks, truth.ranks, strict=True)):
        prefills = sum(c.prefill for c in cycles)
        assert mine.cycles == len(cycles) - prefills
        assert mine.dropped == {"partial": truth.partial[place], "prefill": prefills}
        assert sum(v or 0 for p in mine.parts_ns.values() for v in p.values()) == mine.wall_ns
        hidden = sum(c.overlapped_comm_ns for c in cycles if not c.prefill)
        assert abs(mine.overlapped_comm_ns - hidden) <= TOLERANCE * mine.wall_ns
    assert worst_error(found, truth) <= TOLERANCE


SIMULATED = mode_scenarios()


@pytest.mark.parametrize("mode", SIMULATED)
def test_simulated_mode(mode: str) -> None:
    # Not kept: with four ranks each they would fill the memory of a small machine.
    traces, truth = record(SIMULATED[mode], frames=SIMULATED[mode].recording.python_stacks)
    check(attribute(traces), truth)


@pytest.mark.parametrize("mode", MODES)
def test_mode(mode: str) -> None:
    check(*attributed(MODES[mode]))


@pytest.mark.parametrize("mode", FRAME_MODES)
def test_mode_from_python_frames(mode: str) -> None:
    found, truth = attributed(FRAME_MODES[mode], frames=True)
    check(found, truth)
    assert all(rank.labelled_by["frame"] > 0.1 for rank in found.ranks)


def test_counts_of_collectives_are_exact() -> None:
    found, truth = attributed(MODES["eagle"])
    kinds = {"allreduce": "all_reduce", "allgather": "all_gather"}
    for row in truth.collectives:
        mine = [c for c in found.collectives if c.phase == row.phase and c.kind == kinds[row.kind]]
        assert sum(c.calls for c in mine) == pytest.approx(row.calls / row.cycles)
        assert mine[0].transfer_us == pytest.approx(row.shortest_ns / row.calls / 1000, rel=1e-6)
        assert mine[0].mean_us == pytest.approx(row.duration_ns / row.calls / 1000, rel=1e-6)


def test_clock_offset_and_straggler_are_recovered() -> None:
    found, truth = attributed(MODES["eagle"])
    clock = found.clock_offsets_us[1]
    assert clock.offset == pytest.approx(truth.clock_offset_us[1], abs=0.2)
    straggler = next(f for f in found.findings if f.kind == "straggler")
    assert straggler.numbers["rank"] == 1  # its compute is 5 % slower


def test_ranks_that_start_apart_are_aligned() -> None:
    found, _ = attributed(MODES["start skew"])
    finding = next(f for f in found.findings if f.kind == "ranks_aligned")
    assert "rank 1: +2" in finding.sentence or "rank 0: -2" in finding.sentence
    cycles = found.cycles.to_pandas()
    starts = (
        cycles[cycles["kind"] != "partial"].pivot(index="aligned_cycle", columns="rank", values="start_ns").dropna()
    )
    assert len(starts) >= 3
    # On the same clock but for the simulated offset, aligned cycles start together.
    assert ((starts[1] - starts[0]).abs() < 100_000).all()


def test_batch_sizes_are_kept_apart() -> None:
    found, truth = attributed(MODES["changing batch"])
    assert found.cycle is not None
    assert found.cycle.batch_size == 1
    for row in found.by_batch:
        walls = [c.wall_ns for cycles in truth.ranks for c in cycles if c.batch == row.batch_size]
        assert row.cycles == len(walls)
        assert row.wall_us.mean == pytest.approx(sum(walls) / len(walls) / 1000, rel=1e-3)


def test_fused_collectives_are_flagged() -> None:
    found, _ = attributed(MODES["fused allreduce"])
    assert any(c.fused and c.implementation == "flashinfer" for c in found.collectives)


def test_drafting_on_the_cpu_is_named_as_the_cause_of_idle() -> None:
    found, _ = attributed(MODES["ngram no overlap"])
    assert found.cycle is not None
    causes = found.cycle.idle_causes_us
    assert max(causes, key=lambda c: causes[c]) == "cpu_draft"
    assert found.cycle.parts_us["draft"]["compute"] == 0.0


def test_the_name_of_the_implementation_changes_nothing() -> None:
    nccl, _ = attributed(MODES["eagle"])
    other, truth = attributed(scenario(hardware=MODES["custom allreduce"].hardware))
    assert {c.implementation for c in nccl.collectives if c.kind == "all_reduce"} == {"nccl"}
    assert "nccl" not in {c.implementation for c in other.collectives if c.kind == "all_reduce"}
    check(other, truth)
