"""Pages for the tests: one honest, one whose every name tries to do something."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa

from profkit.analysis import RunAnalysis
from profkit.attribution import attribute
from profkit.export.page import page_content
from profkit.export.whatif import whatif_table
from profkit.finding import Finding
from profkit.loading import load_run
from profkit.pipeline import analyse
from profkit.reports.html import render
from profkit.trace import Trace
from tests.paths import ROOT

SAMPLES = ROOT / "sample_logs" / "kimi-k2.5-tp8"
HOSTILE = (
    "</script><script>window.hacked=1</script>",
    '"><img src=x onerror="window.hacked=1">',
    "{{ 7*7 }}<svg onload=window.hacked=1>",
    "\x1b]0;owned\x07\u202egnp.exe\x00",
)


@cache
def loaded(name: str) -> tuple[RunAnalysis, tuple[Trace, ...]]:
    """A sample run, analysed, with its traces."""
    run = load_run(SAMPLES / name, cache=False)
    return analyse(run), run.traces


def remembered_whatif(candidate: RunAnalysis, baseline: RunAnalysis | None) -> Any:
    """The whatif table, replayed once for each pair of runs: the same runs are rendered many times here."""
    key = candidate.content_key if candidate.log and candidate.attribution else None
    other = baseline.content_key if baseline else None
    if key is None:
        return whatif_table(candidate, baseline)
    if (key, other) not in _TABLES:
        _TABLES[key, other] = whatif_table(candidate, baseline)
    return _TABLES[key, other]


_TABLES: dict[tuple[str, str | None], Any] = {}


def html_of(analysis: RunAnalysis, **more: Any) -> str:
    """The page about a run; ``more`` as :func:`page_content` takes it."""
    return render(page_content(analysis, **more))


@cache
def page(name: str = "eagle3", baseline: str | None = "baseline") -> str:
    """The page of a sample run."""
    analysis, traces = loaded(name)
    return html_of(analysis, traces=traces, baseline=loaded(baseline)[0] if baseline else None)


def _renamed(trace: Trace) -> Trace:
    words = [str(n) for n in trace.gpu_ops.column("name").to_pylist()]
    plain = sorted({w for w in words if "nccl" not in w})[:8]
    change = {w: HOSTILE[i % len(HOSTILE)] for i, w in enumerate(plain)}
    names = pa.array([change.get(w, w) for w in words], pa.string()).dictionary_encode()
    ops = trace.gpu_ops.set_column(0, trace.gpu_ops.schema.field(0), names)
    return replace(trace, gpu_ops=ops, info=replace(trace.info, path=f"{HOSTILE[0]}/{HOSTILE[1]}{trace.info.rank}"))


@cache
def hostile_page() -> str:
    """A page whose kernel, file, run, lever and evidence names attack."""
    analysis, traces = loaded("eagle3")
    changed = tuple(_renamed(t) for t in traces)
    result = attribute(changed, facts=analysis.facts)
    finding = Finding("x", "warning", HOSTILE[0], evidence=HOSTILE)
    result = replace(result, findings=(*result.findings, finding))
    plan: dict[str, Any] = {
        "verdict": {"sentences": [HOSTILE[0], HOSTILE[1], HOSTILE[2]]},
        "levers": [
            {
                "id": HOSTILE[0], "priority": HOSTILE[1], "command": HOSTILE[2],
                "acceptance": HOSTILE[0], "kill": [HOSTILE[1], HOSTILE[3]],
                "gates": [{"name": HOSTILE[0], "state": "fail", "why": HOSTILE[1]}],
                "gain": {"candidate_throughput": {"value": 90.0, "unit": "tok/s", "low": 80.0, "high": 100.0}},
            }
        ],
    }  # fmt: skip
    attacked = replace(analysis, name=HOSTILE[1], attribution=result, warnings=HOSTILE)
    base = replace(loaded("baseline")[0], name=HOSTILE[2])
    return html_of(attacked, traces=changed, baseline=base, plan=plan)
