"""The simulated machine obeys its own physics, and the truth is counted from it exactly."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.simulation import Simulation, simulate
from profkit.simulation.engine import MAIN_STREAM, TICK_NS
from profkit.simulation.noise import Noise
from profkit.simulation.truth import CycleTruth, Entry, sweep
from profkit.words import ACTIVITIES, Activity, Phase
from tests.simulated import MODES, simulated


@pytest.mark.parametrize("mode", MODES)
def test_streams_hosts_and_collectives(mode: str) -> None:
    simulation = simulated(mode)
    scenario = simulation.scenario
    launched = {h.correlation: h for h in simulation.machine.host if h.correlation}
    last: dict[int, np.ndarray] = {}
    for block in simulation.machine.blocks:
        assert np.all(block.end > block.begin)
        assert np.all(block.recorded <= block.begin)
        assert np.all(block.begin % TICK_NS == 0)
        assert np.all(block.begin[1:] >= block.end[:-1]), "one stream, one operation at a time"
        assert np.all(block.recorded[1:] >= block.begin[:-1]), "an early start waits for one predecessor only"
        if block.stream in last:
            assert np.all(block.begin[0] >= last[block.stream])
        last[block.stream] = block.end[-1]
        for index, op in enumerate(block.ops):
            call = launched[int(block.correlation[index])]
            assert np.all(block.begin[index] > call.start), "nothing runs before it was launched"
            if op.collective is None or block.phase == "other":  # a prefill is scaled
                continue
            # It ends everywhere together, one transfer after the last rank has arrived.
            arrived = block.begin[index].max()
            late = block.end[index] - arrived - block.transfer[index]
            assert np.all(late >= 0)
            assert np.all(late <= 4 * scenario.hardware.end_jitter_ns + TICK_NS)
            size = op.message_bytes / 1024
            hardware = scenario.hardware
            curve = (
                hardware.allreduce_alpha_us + hardware.allreduce_us_per_kib * size
                if op.collective == "allreduce"
                else hardware.allgather_alpha_us + hardware.allgather_us_per_kib * size
            )
            assert block.transfer[index] / 1000 == pytest.approx(curve, rel=0.06)
    for event in simulation.machine.host:
        assert np.all(event.end >= event.start)


@pytest.mark.parametrize("mode", MODES)
def test_truth_adds_up_and_counts_the_collectives_of_the_model(mode: str) -> None:
    simulation = simulated(mode)
    scenario, truth = simulation.scenario, simulation.truth()
    for cycles in truth.ranks:
        assert len(cycles) >= scenario.recording.cycles - 1
        for cycle in cycles:
            assert sum(cycle.parts_ns.values()) == cycle.wall_ns
            assert cycle.overlapped_comm_ns <= cycle.wall_ns
        assert all(a.end_ns == b.start_ns for a, b in itertools.pairwise(cycles))
    calls = {(c.phase, c.kind): c.calls / c.cycles for c in truth.collectives}
    forward: Phase = "verify" if scenario.speculative else "decode"
    embedding = int(scenario.serving.embedding_allreduce)
    assert calls[forward, "allreduce"] == 2 * scenario.model.layers + embedding
    assert calls[forward, "allgather"] == 1
    drafter, serving = scenario.drafter, scenario.serving
    if serving.algorithm in ("EAGLE", "EAGLE3", "STANDALONE") and serving.worker != "vllm":
        if not serving.adaptive_steps:
            drafted = calls.get(("draft", "allreduce"), 0.0)
            assert drafted == 2 * drafter.layers * (serving.num_steps - 1)
        assert calls["draft_extend", "allreduce"] == 2 * drafter.layers
    if serving.algorithm == "MTP":
        assert ("draft", "allreduce") not in calls
        assert calls["draft_extend", "allreduce"] == 2 * drafter.layers * serving.num_steps
    if serving.algorithm == "NGRAM":
        assert not any(cell[0] == "draft" for rank in truth.ranks for c in rank for cell in c.parts_ns)


def test_what_a_parameter_does() -> None:
    base = MODES["eagle3_v2"]

    def wall(**hardware: object) -> float:
        changed = replace(base, hardware=replace(base.hardware, **hardware))  # type: ignore[arg-type]
        return float(np.mean(simulate(changed, record=False).walls_ns[1]))

    calls = 2 * 8 + 2 * 2 + 2
    before = wall()
    cheaper = wall(allreduce_alpha_us=base.hardware.allreduce_alpha_us - 10)
    assert before - cheaper == pytest.approx(calls * 10_000, rel=0.02)
    assert wall(rank_slowdown=(1.0, 1.0, 1.0, 1.0)) < before < wall(rank_slowdown=(1.0, 1.3, 1.0, 1.0))
    assert wall(graph_launch_us=4000.0) > 3 * 4_000_000, "three launches of 4 ms bound the cycle"
    assert wall(graph_launch_us=300.0) == pytest.approx(before, rel=0.01), "hidden behind the GPU"


def test_a_straggler_makes_the_others_wait() -> None:
    collectives = simulated("eagle3_v2").truth().collectives
    waits = next(c.wait_by_rank_ns for c in collectives if (c.phase, c.kind) == ("verify", "allreduce"))
    assert waits[1] < 0.2 * min(waits[0], waits[2], waits[3])


def test_programmatic_launch_hides_nothing() -> None:
    """Records begin early, but the truth counts what an operation waits for as the all-reduce."""
    early, plain = simulated("eagle3_v2_pdl"), simulated("eagle3_v2")
    assert any(np.any(b.recorded < b.begin) for b in early.machine.blocks)
    assert not any(np.any(b.recorded < b.begin) for b in plain.machine.blocks)

    def reduce(simulation: Simulation) -> float:
        cycles = simulation.truth().ranks[0]
        return sum(c.parts_ns["verify", "allreduce"] for c in cycles) / len(cycles)

    assert reduce(early) == pytest.approx(reduce(plain), rel=0.02)


def test_modes_reach_the_corners() -> None:
    hidden = simulated("eagle3_v2_comm_overlap").truth().ranks[0]
    assert all(c.overlapped_comm_ns > 0 for c in hidden)
    starved = simulated("eagle3_v2_launch_bound").truth().ranks[0]
    assert all(sum(v for (_, a), v in c.parts_ns.items() if a == "idle") > 0.5 * c.wall_ns for c in starved)
    assert {c.batch for c in simulated("eagle3_v2_batches").truth().ranks[0]} == {1, 2}
    assert sum(c.prefill for c in simulated("eagle3_v2_prefill").truth().ranks[0]) == 1
    assert len({len(one) for one in simulated("eagle3_v2_skew").truth().ranks}) > 1
    assert all(b.stream == MAIN_STREAM or b.stream in (7, 27) for b in simulated("eagle3_v2").machine.blocks)
    assert any(b.stream == 31 for b in simulated("eagle3_v2_side_stream").machine.blocks)
    kinds = {op.kind for b in simulated("eagle_v1").machine.blocks for op in b.ops}
    assert kinds == {"kernel", "gpu_memcpy", "gpu_memset"}
    host_sync = [h for h in simulated("eagle_v1").machine.host if h.name == "cudaStreamSynchronize"]
    assert len(host_sync) >= MODES["eagle_v1"].recording.cycles


PHASE: st.SearchStrategy[Phase] = st.sampled_from(["draft", "verify", "accept", "other"])
ACTIVITY: st.SearchStrategy[Activity] = st.sampled_from(["compute", "allreduce", "comm", "memory"])


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12), PHASE, ACTIVITY, st.booleans()), max_size=9),
    st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(1, 20)),
)
@settings(max_examples=150, deadline=None)
def test_sweep_against_looking_at_every_nanosecond(
    drawn: list[tuple[int, int, Phase, Activity, bool]], borders: tuple[int, int, int]
) -> None:
    entries = [Entry(b, b + d, p, a, m, i) for i, (b, d, p, a, m) in enumerate(drawn)]
    first, one, two = borders
    windows = [CycleTruth(0, 1, False, first, first + one), CycleTruth(1, 1, False, first + one, first + one + two)]
    sweep(entries, windows)
    for window in windows:
        counted: dict[tuple[Phase, Activity], int] = {}
        hidden = 0
        for instant in range(window.start_ns, window.end_ns):
            running = [e for e in entries if e.begin <= instant < e.end]
            cell: tuple[Phase, Activity]
            if running:
                rank = min(ACTIVITIES.index(e.activity) for e in running)
                best = sorted(
                    (e for e in running if ACTIVITIES.index(e.activity) == rank),
                    key=lambda e: (0 if e.main else 1, e.begin, e.order),
                )[0]
                cell = (best.phase, best.activity)
                hidden += best.activity == "compute" and any(e.activity in ("allreduce", "comm") for e in running)
            else:
                later = sorted(
                    (e for e in entries if e.begin > instant), key=lambda e: (e.begin, 0 if e.main else 1, e.order)
                )
                cell = (later[0].phase if later else "other", "idle")
            counted[cell] = counted.get(cell, 0) + 1
        assert window.parts_ns == counted
        assert window.overlapped_comm_ns == hidden


def test_noise_is_the_same_everywhere() -> None:
    """Only the raw stream of the bit generator is used, which NumPy promises to keep."""
    assert [int(x) for x in Noise(1, 2).raw(3)] == GOLDEN_RAW
    draws = Noise(3).normal(200_000)
    assert abs(float(draws.mean())) < 0.01
    assert float(draws.std()) == pytest.approx(1.0, abs=0.01)
    assert float(np.abs(draws).max()) < 3.5
    uniform = Noise(4).uniform(10_000)
    assert float(uniform.min()) >= 0.0
    assert float(uniform.max()) < 1.0
    order = Noise(5).shuffled(np.arange(50, dtype=np.int64))
    assert sorted(order.tolist()) == list(range(50))
    assert order.tolist() != list(range(50))


GOLDEN_RAW = [8271799387826207682, 7948369750201702571, 7747616451078592673]
