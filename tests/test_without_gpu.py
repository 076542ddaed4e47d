"""Traces without a usable GPU timeline: what is there is named, never called absent, and never set beside GPU hosts."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from profkit.analysis import RunAnalysis
from profkit.attribution.checks import cycle_findings
from profkit.attribution.idle import CAUSES, WORDS, cause_words
from profkit.attribution.result import Attribution
from profkit.pipeline import analyse_path
from profkit.planning.plan import Plan, make_plan
from profkit.reports import attribution as report
from profkit.reports.plan import document
from profkit.speculation.arm import why_untraced
from tests.html_pages import html_of
from tests.paths import SAMPLES
from tests.plan_data import sample, with_facts
from tests.trace_makers import decode_events
from tests.trace_makers import document as trace_document

CPU = SAMPLES / "sglang-cpu-eagle-tp2"


@cache
def on_cpu() -> RunAnalysis:
    return analyse_path(CPU, jobs=1, cache=False)


def attributed(run: RunAnalysis) -> Attribution:
    assert run.attribution is not None
    return run.attribution


def run_with_trace(folder: Path, *categories: str) -> RunAnalysis:
    """The CPU sample's log with one trace that holds only events of some categories."""
    (folder / "server.log").write_bytes((CPU / "server.log").read_bytes())
    events = [e for e in decode_events(9) if e.get("cat") in categories or e["ph"] == "M"]
    (folder / "1.5-TP-0.trace.json").write_bytes(trace_document(events))
    return analyse_path(folder, jobs=1, cache=False)


def first_sentence(plan: Plan) -> str:
    return plan.verdict.sentences[0]


def test_a_plan_from_traces_of_the_cpu_says_so_first() -> None:
    plan = make_plan(on_cpu())
    assert "recorded without a GPU, so these are shares of the CPU's time" in first_sentence(plan)
    assert "there is no trace" not in document(plan, names=["cpu"])
    (limit,) = [x for x in plan.limits if "what any kernel costs" in x.what]
    assert "recorded without a GPU" in limit.why


@pytest.mark.parametrize(
    ("categories", "words"),
    [
        (("cpu_op",), "the trace, recorded without a GPU, shows no complete decode cycle"),
        (("cpu_op", "cuda_runtime"), "being recorded with a GPU but without a kernel (was GPU among the activities?)"),
    ],
)
def test_a_trace_that_cannot_be_split_is_not_called_absent(
    categories: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    plan = make_plan(run_with_trace(tmp_path, *categories))
    assert words in first_sentence(plan)
    text = document(plan, names=["run"])
    assert "there is no trace" not in text
    assert "no trace of the candidate" not in text
    assert any(words in x.why for x in plan.limits)


def test_without_any_trace_there_is_none() -> None:
    bare = replace(on_cpu(), attribution=None)
    assert first_sentence(make_plan(bare)).endswith("cannot be said: there is no trace.")


def test_traces_of_another_load_are_named_with_theirs() -> None:
    run = on_cpu()
    shown = "the 2 traces, recorded without a GPU, show batch size 4"
    assert why_untraced(run, 64) == f"{shown}, and most steady lines of the log 64 running requests"


def test_the_page_says_it_in_its_head_and_draws_no_gpu_host() -> None:
    page = html_of(on_cpu())
    head, _, rest = page.partition('id="collectives"') if 'id="collectives"' in page else page.partition("Collectives")
    assert "Recorded without a GPU: host operators stand for GPU work, and all times are the CPU&#39;s." in head
    assert "CPU times, no GPU" in head
    assert 'class="curve"' not in page
    assert 'class="model"' not in page
    assert "no curve of a GPU host belongs here" in rest
    assert "Why the GPU waits" not in page
    gpu = html_of(sample("eagle3"), baseline=sample("baseline"))
    assert 'class="curve"' in gpu
    assert "without a GPU" not in re.sub(r"<script.*?</script>", "", gpu, flags=re.DOTALL)


def test_a_stated_link_brings_no_latency_model_to_calls_of_the_cpu() -> None:
    run = with_facts(on_cpu(), link__kind="pcie", parallel__tp=8)
    plan = make_plan(run)
    assert plan.situation.economics.nccl_model_per_call.value is None
    assert "NCCL" not in first_sentence(plan)
    assert 'class="model"' not in html_of(run)


def test_the_attribution_names_the_clock_in_its_title() -> None:
    found = attributed(on_cpu())
    assert found.without_gpu
    assert report.terminal(found).splitlines()[0].endswith(", recorded without a GPU: the CPU's times")
    assert "first host op of draft" in report.terminal(found)
    assert "recorded without a GPU: the CPU's times**" in report.as_markdown(found)
    gpu = attributed(sample("eagle3"))
    assert not gpu.without_gpu
    assert "without a GPU" not in report.terminal(gpu)


def test_idle_of_a_host_thread_is_not_laid_on_launches() -> None:
    found = attributed(on_cpu())
    page, markdown = html_of(on_cpu()), report.as_markdown(found)
    for text in (report.terminal(found), markdown, page, first_sentence(make_plan(on_cpu()))):
        assert "the host launched late" not in text
        assert "host launching late" not in text
        assert "GPU op" not in text.replace("stand for GPU ops", "").replace("<script", "")
    assert "Python code between two host ops" in markdown
    assert "Python code between two host ops" in page
    (said,) = [f for f in found.findings if f.kind == "cpu_time"]
    assert "idle is what this thread spends outside them" in said.sentence
    causes = {cause_words(c, without_gpu=True) for c in CAUSES}
    assert not any("launch" in words for words in causes - {WORDS["unknown"], WORDS["host_sync"], WORDS["dependency"]})


def test_the_log_may_hold_longer_steps_than_the_trace() -> None:
    found = attributed(on_cpu())
    assert found.cycle is not None
    step = found.cycle.wall_us.mean / 1000
    for factor, words in ((2.0, "the log's steps hold more than these cycles do"), (0.5, "profiling costs time")):
        (said,) = [f for f in cycle_findings(found.cycle, step * factor, "gpu") if f.kind == "trace_to_log"]
        assert words in said.sentence
        assert said.severity == "warning"
    (said,) = [f for f in cycle_findings(found.cycle, step, "gpu") if f.kind == "trace_to_log"]
    assert said.severity == "info"


def test_a_recording_without_a_cycle_has_no_figures_per_cycle(tmp_path: Path) -> None:
    found = attributed(run_with_trace(tmp_path, "cpu_op"))
    assert found.cycle is None
    text = report.terminal(found)
    assert "us per cycle" not in text
    assert "us in all" in text
    assert "us per cycle" not in report.as_markdown(found)
    row = next(line for line in text.splitlines() if line.startswith("  tp0"))
    assert row.split()[3:6] == ["–", "–", "–"]


def test_one_cycle_is_no_mean() -> None:
    found = attributed(sample("eagle3"))
    assert found.cycle is not None
    one = replace(found, cycle=replace(found.cycle, count=1))
    assert report.terminal(one).splitlines()[1].startswith("one cycle on 8 ranks, ")
