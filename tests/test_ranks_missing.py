"""Traces of some ranks only: what they show of a collective is a bound, and is used as one."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import jsonschema
import pytest

from profkit.analysis import RunAnalysis
from profkit.attribution import Attribution, attribute
from profkit.attribution.result import CollectiveSummary
from profkit.comparison.launch import launch_of
from profkit.jsonio import dumps
from profkit.parsers.trace import read_traces
from profkit.pipeline import analyse_path
from profkit.planning.budget import budget
from profkit.planning.calls import mean_wait_us
from profkit.planning.plan import make_plan
from profkit.projection import Change, project
from profkit.reports.attribution import as_markdown, terminal
from profkit.reports.plan import document
from profkit.run import Fact, Facts
from profkit.simulation import Drafter, Hardware, Model, Recording, Scenario, Serving, simulate, write_run
from profkit.simulation.truth import CollectiveTruth
from tests.attribution_modes import BASE, attributed, record, scenario
from tests.html_pages import html_of

RANKS = 3
# The last rank computes half as long again: the others wait for it in every call.
SLOW = Hardware(
    dense_compute_us=1510.0 * 10 / 61, expert_compute_us=103.9 * 10 / 61, rank_slowdown=(1.0, 1.0, 1.5),
    allreduce_alpha_us=20.0, allreduce_us_per_kib=0.2,
)  # fmt: skip
SCHEMA = json.loads(files("profkit.schemas").joinpath("attribution.schema.json").read_text(encoding="utf-8"))


def launch(hardware: Hardware = SLOW, seed: int = 1) -> Scenario:
    return Scenario(
        name="some ranks",
        config="some ranks",
        seed=seed,
        ranks=RANKS,
        model=Model(layers=10, moe_layers=9),
        drafter=Drafter(conditional_acceptance=(0.5, 0.5, 0.5)),
        hardware=hardware,
        serving=Serving(algorithm="EAGLE3", num_steps=3, num_draft_tokens=4),
        recording=Recording(cycles=5, log_lines=30, log_cycles=32),
    )


@cache
def analysed(kept: tuple[int, ...], seed: int = 1, allreduce_us: float | None = None) -> RunAnalysis:
    """The run as seen by someone who has the traces of ``kept`` only."""
    hardware = SLOW
    if allreduce_us is not None:
        hardware = replace(SLOW, allreduce_alpha_us=allreduce_us, allreduce_us_per_kib=0.0)
    with TemporaryDirectory() as folder:
        write_run(simulate(launch(hardware, seed)), Path(folder) / "run")
        for trace in (Path(folder) / "run" / "traces").iterdir():
            if not any(f"-TP-{rank}-" in trace.name for rank in kept):
                trace.unlink()
        return analyse_path(Path(folder) / "run", cache=False)


def attribution(kept: tuple[int, ...]) -> Attribution:
    found = analysed(kept).attribution
    assert found is not None
    return found


def verify(found: Attribution) -> CollectiveSummary:
    return next(c for c in found.collectives if (c.phase, c.kind) == ("verify", "all_reduce"))


@cache
def truth() -> CollectiveTruth:
    return next(c for c in simulate(launch()).truth().collectives if (c.phase, c.kind) == ("verify", "allreduce"))


def test_all_ranks_measure_the_transfer() -> None:
    row = verify(attribution((0, 1, 2)))
    assert row.transfer_is == "measured"
    assert row.transfer_us == pytest.approx(truth().transfer_ns / truth().calls / 1000, rel=0.01)
    assert {(r.group, r.group_size, r.transfer_is) for r in attribution((0, 1, 2)).ranks} == {(0, 3, "measured")}


@pytest.mark.parametrize("kept", [(0, 1), (0, 2), (1, 2)])
def test_some_ranks_bound_it(kept: tuple[int, ...]) -> None:
    found = attribution(kept)
    row = verify(found)
    real, everything = truth().transfer_ns / truth().calls / 1000, verify(attribution((0, 1, 2)))
    assert row.transfer_is == "upper_bound"
    assert row.transfer_us is not None
    assert row.wait_us is not None
    assert everything.wait_us is not None
    assert row.transfer_us >= real * 0.999
    # Without the rank that the others wait for, most of what looks like transfer is waiting.
    assert (row.transfer_us > 1.2 * real) == (2 not in kept)
    assert (row.bus_bandwidth_gb_s or 0.0) <= (everything.bus_bandwidth_gb_s or 0.0) * 1.001
    (finding,) = [f for f in found.findings if f.kind == "ranks_missing"]
    (absent,) = {0, 1, 2} - set(kept)
    assert f"2 of 3 ranks are here (missing: {absent}); transfer times are at most what is shown" in finding.sentence
    assert {r.transfer_is for r in found.ranks} == {"upper_bound"}
    late = [f.sentence for f in found.findings if f.kind == "straggler"]
    assert all(" arrives last of the ranks that are here in " in sentence for sentence in late)
    whole = [f.sentence for f in attribution((0, 1, 2)).findings if f.kind == "straggler"]
    assert ["Rank 2 arrives last in " in sentence for sentence in whole] == [True]


def test_one_rank_says_nothing_of_the_transfer() -> None:
    found = attribution((1,))
    row = verify(found)
    assert (row.transfer_us, row.wait_us, row.transfer_is, row.bus_bandwidth_gb_s) == (None, None, None, None)
    assert any("1 of 3 ranks is here (missing: 0, 2)" in w for w in found.warnings)


def test_without_a_word_on_the_group_nothing_is_called_measured() -> None:
    traces, _ = record(scenario())
    silent = tuple(replace(t, info=replace(t.info, distributed=None)) for t in traces)
    found = attribute(silent)
    assert {c.transfer_is for c in found.collectives} == {"upper_bound"}
    assert any(f.kind == "group_size_unknown" for f in found.findings)
    told = attribute(silent, facts=Facts({"parallel.tp": Fact(2, "test")}))
    assert {c.transfer_is for c in told.collectives} == {"measured"}
    assert not [f for f in told.findings if f.kind in ("group_size_unknown", "ranks_missing")]


def test_documents_say_at_most() -> None:
    analysis = analysed((0, 1))
    found = attribution((0, 1))
    document_of = json.loads(dumps(found))
    jsonschema.validate(document_of, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert {c["transfer_is"] for c in document_of["collectives"]} == {"upper_bound"}
    line = next(x for x in terminal(found).splitlines() if x.startswith("  verify all_reduce"))
    assert re.search(r"≤ [\d.]+ +≥ [\d.·]+ .*≥ [\d.]+  nccl", line)
    assert re.search(r"verify all\\_reduce .*\| ≤ [\d.]+ \| ≥ ", as_markdown(found))
    page = html_of(analysis)
    assert '<td class="n">≤ ' in page
    assert "Open dots: ranks are missing" in page
    text = document(make_plan(analysis), names=("run",))
    assert re.search(r"of this, waiting for a late rank \| ≥ ", text)
    assert re.search(r"\| ≤ [\d.]+ \| ≥ [\d.]+ \|", text)
    assert "so the transfer is at most this, wait and bandwidth at least." in text
    assert "at most this" not in document(make_plan(analysed((0, 1, 2))), names=("run",))
    whole = attribution((0, 1, 2))
    assert not re.search("[≤≥]", terminal(whole) + as_markdown(whole) + html_of(analysed((0, 1, 2))))


def test_a_bound_is_no_measurement_to_compare_or_to_plan_with() -> None:
    some, every = analysed((0, 1)), analysed((0, 1, 2))
    assert mean_wait_us(some) is None
    assert mean_wait_us(every) is not None
    names = {m.name for m in launch_of(some).measurements}
    assert {"allreduce_transfer", "wait"} & {m.name for m in launch_of(every).measurements}
    assert not {"allreduce_transfer", "wait"} & names
    assert "allreduce_per_call" in names
    row = next(r for r in budget(some, 1).rows if r.wait is not None)
    assert row.wait is not None
    assert row.transfer is not None
    assert (row.wait.low, row.wait.high) == (row.wait.value, row.time.value)
    assert (row.transfer.low, row.transfer.high) == (0.0, row.transfer.value)
    first = make_plan(some).verdict.sentences[0]
    assert "waiting for ranks whose traces are not here included, so record all ranks first" in first
    assert "health of the fabric" not in first
    assert any("traces of 2 of 3 ranks only" in limit.why for limit in make_plan(some).limits)
    assert not any("ranks only" in limit.why for limit in make_plan(every).limits)
    assert make_plan(some).situation.measured["wait_share"].value is None


@pytest.mark.parametrize("kept", [(0, 1, 2), (0, 1), (0, 2), (0,), (2,)])
@pytest.mark.parametrize("us", [4.0, 15.0])
def test_a_projection_from_some_ranks_holds_the_truth_in_its_range(kept: tuple[int, ...], us: float) -> None:
    found = project(analysed(kept), None, Change(allreduce_us=us))
    after, before = found.candidate.cycle_after, found.candidate.cycle_before
    real = analysed((0, 1, 2), 7, us)
    server = real.server()
    assert server is not None
    step = server.by_batch[0].step_ms.mean
    assert step is not None
    assert after.low is not None
    assert after.high is not None
    assert after.low * 0.99 <= step <= after.high * 1.01
    said = [note for note in found.assumptions if "not all ranks' calls could be compared" in note]
    assert bool(said) == (len(kept) < RANKS)
    if len(kept) < RANKS:
        # Everything that the change would take away may be waiting for a rank that nobody recorded.
        assert after.high >= before.require() * 0.98
    else:
        assert after.high < before.require() * 0.98


def test_other_waits_from_some_ranks_are_a_range() -> None:
    def width(kept: tuple[int, ...]) -> float:
        after = project(analysed(kept), None, Change(wait_us=0.0)).candidate.cycle_after
        assert after.low is not None
        assert after.high is not None
        return after.high - after.low

    assert width((0, 1)) > 1.5 * width((0, 1, 2))


def test_no_cycle_no_calls_per_cycle() -> None:
    traces, _ = record(replace(BASE, recording=replace(BASE.recording, cycles=1), serving=scenario().serving))
    short = [replace(t, gpu_ops=t.gpu_ops.slice(0, t.gpu_ops.num_rows // 3)) for t in traces]
    found = attribute(short)
    assert found.cycle is None
    assert found.collectives
    assert {c.calls_per_cycle for c in found.collectives} == {None}
    jsonschema.validate(json.loads(dumps(found)), SCHEMA, cls=jsonschema.Draft202012Validator)
    whole, _ = attributed(scenario())
    assert all((c.calls_per_cycle or 0) > 0 for c in whole.collectives)


def test_a_run_is_read_alike_from_files_and_from_its_folder(tmp_path: Path) -> None:
    write_run(simulate(launch()), tmp_path / "run")
    (first, second, _) = sorted((tmp_path / "run" / "traces").iterdir())
    found = attribute(read_traces([first, second]))
    assert {r.transfer_is for r in found.ranks} == {"upper_bound"}
