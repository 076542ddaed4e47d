"""Output of nccl-tests beside a run: found, compared with the server's all-reduces, and used by plan and whatif."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from profkit.analysis import RunAnalysis
from profkit.cli.app import run as profkit
from profkit.collectives.cost import MeasuredCurve, curve_of_nccl_rows
from profkit.loading import load_run
from profkit.pipeline import analyse_path
from profkit.planning.calls import transfer_us
from profkit.planning.plan import Plan, make_plan
from profkit.reports.plan import document
from tests.html_pages import html_of
from tests.paths import SAMPLES
from tests.plan_data import sample, trace_only

STORY = SAMPLES / "kimi-k2.5-tp8"
KIB = 1024.0


def nccl_tests(times: Callable[[int], float], *, ranks: int = 8, sizes: tuple[int, ...] = (14, 28, 56, 112)) -> str:
    """What all_reduce_perf prints."""
    lines = [
        f"#  Rank {rank:2d} Group  0 Pid {100 + rank} on  node7 device {rank:2d} [0000:{rank:02x}:00] NVIDIA RTX"
        for rank in range(ranks)
    ]
    columns = "    time   algbw   busbw #wrong"
    lines += [
        f"#       size         count      type   redop    root {columns} {columns}",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)",
    ]
    for size in sizes:
        time = f"{times(size):8.2f}    0.04    0.07      0"
        lines.append(f"{size * 1024:12d} {size * 512:12d}  bfloat16     sum      -1 {time} {time}")
    return "\n".join([*lines, "# Avg bus bandwidth    : 0.4", ""])


def beside(run: RunAnalysis, at_56_kib: float, *, ranks: int | None = 8, last: float = 112.0) -> RunAnalysis:
    """A run with a curve of nccl-tests, flat up to its last size."""
    points = ((4 * KIB, at_56_kib), (last * KIB, at_56_kib))
    return replace(run, allreduce_test=MeasuredCurve(points, "nccl-tests in perf.txt", ranks))


def planned(candidate: RunAnalysis) -> Plan:
    return make_plan(candidate, sample("baseline"))


def states(plan: Plan) -> dict[str, str]:
    return {r.lever.id: r.state for r in plan.levers}


def test_output_under_any_name_is_found_with_its_ranks(tmp_path: Path) -> None:
    shutil.copy(STORY / "eagle3" / "server.log", tmp_path / "server.log")
    (tmp_path / "perf.out").write_text(nccl_tests(lambda size: 50.0 + size))
    run = load_run(tmp_path)
    assert run.log is not None
    curve = curve_of_nccl_rows(run.log.nccl.to_pylist())
    assert curve is not None
    assert (curve.ranks, curve.source) == (8, "nccl-tests in perf.out")
    assert [time for _, time in curve.points] == [64.0, 78.0, 106.0, 162.0]
    assert analyse_path(tmp_path).allreduce_test == curve


def test_of_several_outputs_the_one_with_most_ranks_counts(tmp_path: Path) -> None:
    shutil.copy(STORY / "eagle3" / "server.log", tmp_path / "server.log")
    (tmp_path / "two.txt").write_text(nccl_tests(lambda _: 10.0, ranks=2))
    (tmp_path / "all.txt").write_text(nccl_tests(lambda _: 200.0))
    curve = analyse_path(tmp_path).allreduce_test
    assert curve is not None
    assert (curve.ranks, curve.source, curve.at(56 * KIB)) == (8, "nccl-tests in all.txt", 200.0)


def test_a_fabric_as_dear_as_the_server_is_the_limit() -> None:
    plan = planned(beside(sample("eagle3"), 198.0))
    where = plan.verdict.sentences[0]
    assert "nccl-tests needs 198 us for it too, so the fabric is the limit: repair that first" in where
    assert "look at the health of the fabric first" not in where
    (check,) = [c for c in plan.checks if c.name == "nccl_tests"]
    assert check.state == "pass"
    assert check.numbers["test_us"] == 198.0
    assert states(plan)["fabric-health"] == states(planned(sample("eagle3")))["fabric-health"]
    assert not any("outside the server" in e.title for e in plan.experiments)


def test_a_fabric_that_can_do_better_points_into_the_server() -> None:
    plan = planned(beside(sample("eagle3"), 90.0))
    assert "nccl-tests needs 90 us for it on this host, so look inside the server" in plan.verdict.sentences[0]
    (check,) = [c for c in plan.checks if c.name == "nccl_tests"]
    assert check.state == "fail"
    assert "consistency check" not in plan.verdict.sentences[0]
    assert states(plan)["fabric-health"] == "closed"
    step = next(e for e in plan.experiments if "dearer than nccl-tests" in e.title)
    assert "--allreduce-curve nccl-tests" in step.command
    assert "205 us in the server and 90 us outside it" in document(plan, names=["run", "base"])
    assert "nccl-tests in perf.txt, this host" in html_of(plan.situation.candidate)


def test_with_ranks_missing_the_server_s_time_is_a_bound() -> None:
    whole = beside(sample("eagle3"), 90.0)
    assert whole.attribution is not None
    calls = tuple(replace(c, transfer_is="upper_bound") for c in whole.attribution.collectives)
    some = replace(whole, attribution=replace(whole.attribution, collectives=calls))
    said = [check.sentence for run in (whole, some) for check in planned(run).checks if check.name == "nccl_tests"]
    assert [
        ("outside the server, 205 us in it" in s, "outside the server, at most 205 us in it" in s) for s in said
    ] == [
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (sample("eagle3"), "no output of nccl-tests (all_reduce_perf) lies in the run's folder"),
        (beside(sample("eagle3"), 90.0, ranks=2), "it ran on 2 ranks, the server reduces over 8"),
        (beside(sample("eagle3"), 90.0, last=8.0), "it sent 4 to 8 KiB, the server sends 56 KiB"),
        (replace(beside(sample("eagle3"), 90.0), attribution=None), "is not known"),
    ],
    ids=["none", "ranks", "sizes", "untraced"],
)
def test_what_cannot_be_compared_abstains(run: RunAnalysis, words: str) -> None:
    plan = planned(run)
    (check,) = [c for c in plan.checks if c.name == "nccl_tests"]
    assert check.state == "abstain"
    assert words in check.sentence
    assert "nccl-tests needs" not in plan.verdict.sentences[0]


def test_output_beside_the_baseline_serves_too_and_without_speculation_the_plan_uses_it() -> None:
    plan = make_plan(sample("eagle3"), beside(sample("baseline"), 198.0))
    assert "nccl-tests needs 198 us" in plan.verdict.sentences[0]
    alone = make_plan(beside(sample("baseline"), transfer_us(sample("baseline")) or 0.0))
    assert "other figures of nccl-tests than these" in alone.verdict.sentences[2]
    assert "the fabric is the limit" in alone.verdict.sentences[2]
    make_plan(trace_only(beside(sample("eagle3"), 90.0)))


def test_whatif_takes_the_output_beside_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "eagle3"
    shutil.copytree(STORY / "eagle3", folder)
    (folder / "perf.txt").write_text(nccl_tests(lambda _: 90.0))
    call = ["whatif", str(folder), "-f", "json", "--allreduce-curve"]
    assert profkit([*call, "nccl-tests"]) == 0
    beside_it = json.loads(capsys.readouterr().out)
    assert profkit([*call, str(folder / "perf.txt")]) == 0
    named = json.loads(capsys.readouterr().out)
    assert beside_it["candidate"] == named["candidate"]
    assert beside_it["candidate"]["throughput_after"]["value"] > 80
    assert profkit(["whatif", str(STORY / "eagle3"), "--allreduce-curve", "nccl-tests"]) == 3
    assert "no output of nccl-tests in this folder" in capsys.readouterr().err
