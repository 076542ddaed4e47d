"""What the HTML page about a run shows, gathered from the run's results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profkit.analysis import RunAnalysis
from profkit.export.timeline import timeline
from profkit.export.whatif import whatif_table
from profkit.speculation.economics import Economics, economics
from profkit.trace import Trace


@dataclass(frozen=True, slots=True)
class PageContent:
    """The results behind a page.

    Attributes:
        analysis: the run that the page is about.
        baseline: a run without speculation at the same load: the other arm.
        plan: the document ``profkit.plan/1`` of the same runs: its sentences become the verdict, its levers a table.
        economics: whether speculation pays; ``None`` where there is nothing to ask.
        whatif: the table behind the sliders, ``None`` without ``economics`` or where nothing can be replayed.
        timeline: the chosen cycles on all ranks, ``None`` without a cycle.
    """

    analysis: RunAnalysis
    baseline: RunAnalysis | None
    plan: Mapping[str, Any] | None
    economics: Economics | None
    whatif: dict[str, Any] | None
    timeline: dict[str, Any] | None


def page_content(
    analysis: RunAnalysis,
    *,
    traces: Sequence[Trace] | None = None,
    baseline: RunAnalysis | None = None,
    plan: Mapping[str, Any] | None = None,
    cycles: Sequence[str] = ("median", "worst"),
) -> PageContent:
    """Gather what the page about ``analysis`` shows.

    Args:
        analysis: the run.
        traces: its traces, for the names of GPU ops in the timeline; without them ops show their class only.
        baseline: the other arm.
        plan: the plan of the same runs, where one was made.
        cycles: which cycles the timeline offers (``median``, ``worst``, ``all`` or numbers), the first shown first.

    Raises:
        UsageError: no cycle of such a number.
    """
    # Without an arm to compare with and without speculation there is nothing to ask.
    asked = baseline is not None or analysis.facts.text("speculative.algorithm") is not None
    result = analysis.attribution
    return PageContent(
        analysis=analysis,
        baseline=baseline,
        plan=plan,
        economics=economics(analysis, baseline) if asked else None,
        whatif=whatif_table(analysis, baseline) if asked else None,
        timeline=timeline(result, traces, cycles) if result is not None and result.cycles.num_rows else None,
    )
