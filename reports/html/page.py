"""The page: results in, one HTML document out. Everything that comes from files is escaped by the template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profkit.escape import visible
from profkit.export.page import PageContent
from profkit.reports.html import sections
from profkit.reports.html.shell import embedded, fill
from profkit.reports.palette import ACTIVITY_NAMES, PHASE_NAMES
from profkit.words import ACTIVITIES, PHASES

# A page stays below 1.5 MB; further cycles are left out where they would break that.
MOST_DATA_BYTES = 1_250_000
SCRIPTS = ("common.js", "timeline.js", "economics.js")


def render(content: PageContent) -> str:
    """The page as HTML text; the same bytes for the same content."""
    shown = _shortened(content.timeline)
    baseline = content.baseline
    document = {
        "timeline": shown,
        "whatif": content.whatif,
        "names": {
            "candidate": visible(content.analysis.name, 60),
            "baseline": visible(baseline.name, 60) if baseline else "",
        },
        "phase_names": [PHASE_NAMES[p] for p in PHASES],
        "activity_names": [ACTIVITY_NAMES[a] for a in ACTIVITIES],
    }
    cycles = shown["cycles"][:1] if shown else []
    values = sections.context(content.analysis, baseline, content.economics, content.plan, cycles)
    values |= {
        "has_timeline": bool(shown and shown["cycles"]),
        "has_whatif": content.whatif is not None,
        "clock_note": _clock_note(shown),
    }
    return fill("page.html.j2", values, document, scripts=SCRIPTS)


def _shortened(timeline: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The timeline with as many cycles as a page can hold."""
    if timeline is None:
        return None
    cycles = list(timeline["cycles"])
    while len(cycles) > 1 and len(embedded({**timeline, "cycles": cycles})) > MOST_DATA_BYTES:
        cycles.pop()
    return {**timeline, "cycles": cycles}


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
