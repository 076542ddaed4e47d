"""The page: results in, one HTML document out. Everything that comes from files is escaped by the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profkit.analysis import RunAnalysis
from profkit.escape import visible
from profkit.export.timeline import timeline
from profkit.export.whatif import whatif_table
from profkit.reports.html import sections
from profkit.reports.html.shell import embedded, fill
from profkit.reports.palette import ACTIVITY_NAMES, PHASE_NAMES
from profkit.speculation.economics import economics
from profkit.trace import Trace
from profkit.words import ACTIVITIES, PHASES

# A page stays below 1.5 MB; further cycles are left out where they would break that.
MOST_DATA_BYTES = 1_250_000
SCRIPTS = ("common.js", "timeline.js", "economics.js")


def render(
    analysis: RunAnalysis,
    *,
    traces: Sequence[Trace] | None = None,
    baseline: RunAnalysis | None = None,
    plan: Mapping[str, Any] | None = None,
    cycles: Sequence[str] = ("median", "worst"),
) -> str:
    """The page about ``analysis`` as HTML text; the same bytes for the same input.

    Args:
        analysis: the run that the page is about.
        traces: its traces, for the names of GPU ops in the timeline; without them ops show their class only.
        baseline: a run without speculation at the same load: the other arm.
        plan: the document ``profkit.plan/1`` of the same runs: its sentences become the verdict, its levers a table.
        cycles: which cycles the timeline offers (``median``, ``worst``, ``all`` or numbers), the first shown first.

    Raises:
        UsageError: no cycle of such a number.
    """
    # Without an arm to compare with and without speculation there is nothing to ask.
    speculative = analysis.facts.text("speculative.algorithm") is not None
    figures = economics(analysis, baseline) if baseline is not None or speculative else None
    whatif = whatif_table(analysis, baseline) if figures is not None else None
    shown = _timeline(analysis, traces, cycles)
    document = {
        "timeline": shown,
        "whatif": whatif,
        "names": {"candidate": visible(analysis.name, 60), "baseline": visible(baseline.name, 60) if baseline else ""},
        "phase_names": [PHASE_NAMES[p] for p in PHASES],
        "activity_names": [ACTIVITY_NAMES[a] for a in ACTIVITIES],
    }
    values = sections.context(analysis, baseline, figures, plan, shown["cycles"][:1] if shown else [])
    values |= {
        "has_timeline": bool(shown and shown["cycles"]),
        "has_whatif": whatif is not None,
        "clock_note": _clock_note(shown),
    }
    return fill("page.html.j2", values, document, scripts=SCRIPTS)


def _timeline(analysis: RunAnalysis, traces: Sequence[Trace] | None, cycles: Sequence[str]) -> dict[str, Any] | None:
    if analysis.attribution is None or analysis.attribution.cycles.num_rows == 0:
        return None
    data = timeline(analysis.attribution, traces, cycles)
    while len(data["cycles"]) > 1 and len(embedded(data)) > MOST_DATA_BYTES:
        data["cycles"].pop()
    return data


def _clock_note(shown: Mapping[str, Any] | None) -> str:
    if not shown or not shown["cycles"]:
        return ""
    clocks = (
        "All ranks are on the first rank's clock."
        if shown["aligned"]
        else "The ranks could not be matched: each is on its own clock."
    )
    clocks = clocks if len(shown["cycles"][0]["ranks"]) > 1 else ""
    hidden = max((c["hidden_ops"] for c in shown["cycles"]), default=0)
    return clocks + (f"{' ' * bool(clocks)}{hidden} of the shortest ops are left out of the details." if hidden else "")
