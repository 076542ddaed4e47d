"""Projection against the simulator: change a physical parameter, simulate again, and see whether the first run's
files told it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from jsonschema import validate

from profkit.analysis import RunAnalysis
from profkit.cli.app import run as profkit
from profkit.collectives.cost import SizeLatency
from profkit.errors import UsageError
from profkit.pipeline import analyse_path
from profkit.projection import Change, project
from profkit.simulation import Drafter, Hardware, Model, Recording, Scenario, Serving, simulate, write_run
from tests.paths import ROOT, SAMPLES

STORY = SAMPLES / "kimi-k2.5-tp8"
ACCEPTANCE = (0.62, 0.5, 0.45)


def accept_len(rows: int) -> float:
    total, reached = 1.0, 1.0
    for rate in ACCEPTANCE[: rows - 1]:
        reached *= rate
        total += reached
    return total


def scenario(hardware: Hardware, serving: Serving, seed: int, overhead_ns: float = 0.0) -> Scenario:
    return Scenario(
        name="grid",
        config="grid",
        seed=seed,
        ranks=2,
        model=Model(layers=10, moe_layers=9, dense_weight_bytes=21.7e9 * 10 / 61),
        drafter=Drafter(conditional_acceptance=ACCEPTANCE),
        hardware=hardware,
        serving=serving,
        recording=Recording(cycles=6, log_lines=40, log_cycles=48, op_overhead_ns=overhead_ns),
    )


def analysed(made: Scenario) -> RunAnalysis:
    with TemporaryDirectory() as folder:
        write_run(simulate(made), Path(folder) / "run")
        return analyse_path(Path(folder) / "run", cache=False)


EAGLE = Serving(algorithm="EAGLE3", num_steps=3, num_draft_tokens=4)
PLAIN = Serving()


@dataclass(frozen=True)
class Physics:
    """Effects that the projector does not model."""

    name: str
    hardware: Hardware
    eager: bool = False
    overhead_ns: float = 0.0  # what recording adds before each op; the log has none of it

    def serving(self, serving: Serving) -> Serving:
        return replace(serving, target_graph=not self.eager)


FAST = Hardware(dense_compute_us=1510.0 * 10 / 61, expert_compute_us=103.9 * 10 / 61)
GRID = (
    Physics("plain", FAST),
    Physics("straggler", replace(FAST, rank_slowdown=(1.0, 1.15))),
    Physics("jitter", replace(FAST, transfer_jitter=0.08, compute_jitter=0.08)),
    Physics("launch-bound", replace(FAST, allreduce_alpha_us=30.0), eager=True),
    Physics("clock-offset", replace(FAST, clock_offset_us=(0.0, 250.0))),
    Physics("profiled", FAST, overhead_ns=1500.0),
    # One graph launch takes longer than its kernels: the host paces the baseline without many launches.
    Physics("slow-graphs", replace(FAST, graph_launch_us=2500.0)),
    Physics("host-paced", replace(FAST, allreduce_alpha_us=10.0, allreduce_us_per_kib=0.2, host_speed=1.3), eager=True),
)
STRAGGLER, HOST_PACED = 1, 7


@cache
def arms(index: int) -> tuple[RunAnalysis, RunAnalysis]:
    physics = GRID[index]
    return (
        analysed(scenario(physics.hardware, physics.serving(EAGLE), 1, physics.overhead_ns)),
        analysed(scenario(physics.hardware, physics.serving(PLAIN), 2, physics.overhead_ns)),
    )


def throughput(analysis: RunAnalysis) -> float:
    server = analysis.server()
    assert server is not None
    mean = server.by_batch[0].gen_throughput_tok_s.mean
    accept = server.by_batch[0].accept_len.mean or 1.0
    assert mean is not None
    return mean / accept  # steps per second: the luck of acceptance is not the projector's business


def check(value: float, low: float | None, high: float | None, truth: float) -> None:
    inside = low is not None and high is not None and low * 0.995 <= truth <= high * 1.005
    assert inside or value == pytest.approx(truth, rel=0.03), (value, low, high, truth)


def steps_per_second(after: object, accept: float) -> tuple[float, float | None, float | None]:
    from profkit.quantity import Quantity

    assert isinstance(after, Quantity)
    return (
        after.require() / accept,
        None if after.low is None else after.low / accept,
        None if after.high is None else after.high / accept,
    )


@pytest.mark.parametrize("index", range(len(GRID)), ids=[p.name for p in GRID])
@pytest.mark.parametrize("us", [10.0, 60.0, 120.0, 300.0])
def test_another_all_reduce_on_both_arms(index: int, us: float) -> None:
    physics = GRID[index]
    candidate, baseline = arms(index)
    projected = project(candidate, baseline, Change(allreduce_us=us))
    hardware = replace(physics.hardware, allreduce_alpha_us=us, allreduce_us_per_kib=0.0)
    truth = analysed(scenario(hardware, physics.serving(EAGLE), 3))
    base_truth = analysed(scenario(hardware, physics.serving(PLAIN), 4))
    before = projected.accept_len_before.require()
    check(*steps_per_second(projected.candidate.throughput_after, before), throughput(truth))
    assert projected.baseline is not None
    check(*steps_per_second(projected.baseline.throughput_after, 1.0), throughput(base_truth))


@pytest.mark.parametrize("us", [10.0, 60.0])
def test_a_host_that_becomes_the_limit_is_not_taken_for_profiling_cost(us: float) -> None:
    """Recording stretches the gaps on the GPU, not the host's work, which no cheaper all-reduce gets past."""
    hardware = replace(FAST, graph_launch_us=2000.0)
    candidate, baseline = (analysed(scenario(hardware, s, i, 800.0)) for i, s in ((1, EAGLE), (2, PLAIN)))
    projected = project(candidate, baseline, Change(allreduce_us=us))
    assert projected.baseline is not None
    truth = analysed(scenario(replace(hardware, allreduce_alpha_us=us, allreduce_us_per_kib=0.0), PLAIN, 4))
    check(*steps_per_second(projected.baseline.throughput_after, 1.0), throughput(truth))


@pytest.mark.parametrize("rows", [2, 3])
def test_fewer_draft_tokens(rows: int) -> None:
    candidate, baseline = arms(0)
    given = project(candidate, baseline, Change(draft_tokens=rows, accept_len=accept_len(rows)))
    truth = analysed(scenario(GRID[0].hardware, replace(EAGLE, num_steps=rows - 1, num_draft_tokens=rows), 5))
    check(*steps_per_second(given.candidate.throughput_after, accept_len(rows)), throughput(truth))
    # Without the acceptance per position only a range can be given, and it must hold the truth.
    ranged = project(candidate, baseline, Change(draft_tokens=rows)).accept_len_after
    assert ranged.low is not None
    assert ranged.high is not None
    assert ranged.low - 0.05 <= accept_len(rows) <= ranged.high + 0.05
    assert given.baseline is not None
    assert given.baseline.gain == pytest.approx(0)


@pytest.mark.parametrize(("index", "factor"), [(0, 0.7), (STRAGGLER, 0.4), (HOST_PACED, 0.5), (HOST_PACED, 2.0)])
def test_other_compute_on_both_arms(index: int, factor: float) -> None:
    physics = GRID[index]
    candidate, baseline = arms(index)
    projected = project(candidate, baseline, Change(compute_scale={"verify": factor, "decode": factor}))
    before = physics.hardware
    other = replace(
        before,
        dense_compute_us=before.dense_compute_us * factor,
        expert_compute_us=before.expert_compute_us * factor,
    )
    truth = analysed(scenario(other, physics.serving(EAGLE), 6))
    base_truth = analysed(scenario(other, physics.serving(PLAIN), 7))
    accept = projected.accept_len_before.require()
    check(*steps_per_second(projected.candidate.throughput_after, accept), throughput(truth))
    assert projected.baseline is not None
    check(*steps_per_second(projected.baseline.throughput_after, 1.0), throughput(base_truth))


def test_a_straggler_that_is_mended() -> None:
    candidate, _ = arms(STRAGGLER)
    projected = project(candidate, None, Change(wait_us=0.0))
    truth = analysed(scenario(replace(GRID[STRAGGLER].hardware, rank_slowdown=()), EAGLE, 8))
    check(
        *steps_per_second(projected.candidate.throughput_after, projected.accept_len_before.require()),
        throughput(truth),
    )


def test_profiling_is_said_to_cost_time() -> None:
    candidate, baseline = arms(5)
    found = project(candidate, baseline, Change(allreduce_us=10.0))
    assert any("traced cycle is" in text for text in found.assumptions)
    paced, plain = arms(HOST_PACED)
    assert any("late launch" in text for text in project(paced, plain, Change(allreduce_us=5.0)).assumptions)


def test_changes_together_and_alone() -> None:
    candidate, baseline = arms(0)
    found = project(candidate, baseline, Change(allreduce_us=10.0, draft_tokens=2, acceptance=(0.62, 0.31, 0.14)))
    assert [one.part for one in found.alone] == ["allreduce_us", "draft_tokens"]
    assert found.accept_len_after.require() == pytest.approx(1.62)
    before = found.candidate.throughput_before.require()
    gains = [one.candidate_throughput.require() / before for one in found.alone]
    assert found.candidate.throughput_after.require() / before != pytest.approx(gains[0] * gains[1], rel=0.01)
    assert project(candidate, baseline, Change(allreduce_us=10.0)).alone == ()


def test_a_trace_without_a_log_gives_cycles() -> None:
    candidate, baseline = (replace(arm, log=None) for arm in arms(0))
    found = project(candidate, baseline, Change(allreduce_us=10.0))
    assert found.candidate.cycle_after.require() < found.candidate.cycle_before.require()
    assert found.break_even_accept_len_after.value is not None
    assert found.candidate.throughput_after.value is None
    assert found.pays is None


def test_a_change_of_nothing_changes_nothing() -> None:
    for index in range(len(GRID)):
        candidate, baseline = arms(index)
        same = project(candidate, baseline, Change(idle=1.0))
        assert same.candidate.gain == pytest.approx(0, abs=1e-9)
        assert same.break_even_accept_len_after.require() == pytest.approx(
            same.break_even_accept_len_before.require(), rel=1e-9
        )


def test_the_reference_story_moves_both_arms() -> None:
    candidate, baseline = analyse_path(STORY / "eagle3"), analyse_path(STORY / "baseline")
    free = project(candidate, baseline, Change(allreduce_us=0.0))
    assert free.baseline is not None
    assert free.baseline.gain is not None
    assert free.candidate.gain is not None
    # With communication for free the baseline gains as well, and speculation still does not pay.
    assert free.baseline.gain > 2.0
    assert free.candidate.gain > 2.5
    assert free.break_even_accept_len_after.require() > 2.01
    dearer = project(candidate, baseline, Change(accept_len=3.93))
    assert dearer.candidate.throughput_after.require() == pytest.approx(118, abs=0.5)
    assert dearer.pays is True


def test_a_curve_prices_each_arm_at_its_own_size() -> None:
    candidate, baseline = analyse_path(STORY / "eagle3"), analyse_path(STORY / "baseline")
    curve = SizeLatency(6.0, 0.076, "test")
    by_curve = project(candidate, baseline, Change(allreduce_curve=curve))
    small = project(candidate, baseline, Change(allreduce_us=curve.at(14 * 1024)))
    large = project(candidate, baseline, Change(allreduce_us=curve.at(56 * 1024)))
    assert by_curve.baseline is not None
    assert small.baseline is not None
    assert by_curve.baseline.cycle_after.require() == pytest.approx(small.baseline.cycle_after.require(), rel=1e-6)
    assert by_curve.candidate.cycle_after.require() == pytest.approx(large.candidate.cycle_after.require(), rel=0.002)


def test_a_curve_is_read_at_the_new_size() -> None:
    candidate = analyse_path(STORY / "eagle3")
    curve = SizeLatency(6.0, 2.0, "test")
    by_curve = project(candidate, None, Change(allreduce_curve=curve, draft_tokens=2))
    at_new_size = project(candidate, None, Change(allreduce_us=curve.at(28 * 1024), draft_tokens=2))
    assert by_curve.candidate.cycle_after.require() == pytest.approx(
        at_new_size.candidate.cycle_after.require(), rel=0.01
    )


def test_without_a_trace_only_acceptance_can_be_projected() -> None:
    log_only = replace(analyse_path(STORY / "eagle3"), attribution=None)
    baseline = analyse_path(STORY / "baseline")
    assert project(log_only, baseline, Change(accept_len=3.0)).candidate.throughput_after.require() > 80
    blind = project(log_only, baseline, Change(allreduce_us=20))
    assert blind.candidate.throughput_after.value is None
    assert "trace" in blind.candidate.throughput_after.source
    assert project(log_only, None, Change(accept_len=3.0)).break_even_accept_len_after.value is None


@pytest.mark.parametrize(
    "change",
    [
        Change(accept_len=4.5),
        Change(accept_len=0.5),
        Change(draft_tokens=2, accept_len=3.0),
        Change(draft_tokens=0),
        Change(idle=2.0),
        Change(allreduce_us=-1),
        Change(compute_scale={"verify": -1.0}),
        Change(allreduce_us=1, allreduce_curve=SizeLatency(1, 1, "x")),
        Change(acceptance=(0.5, 0.6)),
        Change(acceptance=(1.5,)),
        Change(acceptance=(0.5,), accept_len=1.5),
        *(Change(allreduce_us=wrong) for wrong in (math.nan, math.inf)),
        Change(accept_len=math.nan),
        Change(wait_us=math.inf),
        Change(compute_scale={"verify": math.nan}),
    ],
)
def test_what_cannot_be_is_wrong_usage(change: Change) -> None:
    with pytest.raises(UsageError):
        change.check(4)


NCCL_TESTS = """# nThread 1 nGpus 8 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
       14336          7168  bfloat16     sum      -1    20.00    0.71    1.24      0    20.00    0.72    1.25      0
       57344         28672  bfloat16     sum      -1    20.00    1.59    2.78      0    20.00    1.61    2.81      0
"""


def test_output_of_nccl_tests_is_a_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["whatif", str(STORY / "eagle3"), "-b", str(STORY / "baseline"), "--format", "json"]
    (tmp_path / "all_reduce.log").write_text(NCCL_TESTS)
    assert profkit([*arguments, "--allreduce-curve", str(tmp_path / "all_reduce.log")]) == 0
    by_curve = json.loads(capsys.readouterr().out)
    assert profkit([*arguments, "--allreduce-us", "20"]) == 0
    by_time = json.loads(capsys.readouterr().out)
    assert by_curve["change"] == {"allreduce_curve": "nccl-tests in all_reduce.log"}
    for arm in ("candidate", "baseline"):
        assert by_curve[arm]["cycle_after"]["value"] == pytest.approx(by_time[arm]["cycle_after"]["value"], rel=0.01)
    (tmp_path / "other.log").write_text("nothing of the kind\n")
    assert profkit([*arguments, "--allreduce-curve", str(tmp_path / "other.log")]) == 3
    assert profkit([*arguments, "--allreduce-curve", "nonsense"]) == 2
    assert profkit([*arguments, "--acceptance", "0.5,x"]) == 2


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["whatif", str(STORY / "eagle3"), "--baseline", str(STORY / "baseline")]
    assert profkit([*arguments, "--allreduce-us", "20", "--format", "json"]) == 0
    text = capsys.readouterr().out
    document = json.loads(text)
    schema = json.loads((ROOT / "profkit/schemas/whatif.schema.json").read_text(encoding="utf-8"))
    validate(document, schema)
    assert document["change"] == {"allreduce_us": 20}
    assert document["break_even_accept_len_before"]["value"] == pytest.approx(2.734, abs=0.002)
    assert profkit([*arguments, "--allreduce-us", "20", "--format", "json"]) == 0
    assert capsys.readouterr().out == text
    assert profkit([*arguments, "--allreduce-us", "20"]) == 0
    assert "break-even accept length" in capsys.readouterr().out
    assert profkit([*arguments, "--allreduce-us", "20", "--accept-len", "3"]) == 0
    assert "Gains do not add up" in capsys.readouterr().out
    assert profkit([*arguments, "--accept-len", "4.5"]) == 2
    assert profkit(arguments) == 2
    assert profkit([*arguments, "--compute", "nonsense=1"]) == 2
    assert profkit(["whatif", str(STORY / "missing"), "--idle", "0"]) == 3
