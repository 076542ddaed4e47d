"""The weekly report as one HTML page: the words and numbers of ``weekly.md``, with charts that tell their figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from profkit.comparison.result import MetricComparison, delta
from profkit.escape import visible
from profkit.reports.compare import kernel_line
from profkit.reports.html.history import MOST_WEEKS, Chart, chart, mark
from profkit.reports.html.shell import fill
from profkit.reports.palette import EVENT_COLOURS, EVENT_MARKS
from profkit.reports.weekly import KINDS, event_line, parts
from profkit.reports.wording import NOT_KNOWN, VERDICTS, count, figure, launches
from profkit.weekly.model import ConfigurationWeek, Event, Weekly

MOST_BYTES = 1_450_000
MOST_CHARTS = 24
# (charts, weeks of the tables and of earlier events): the first that keeps the page below its limit is taken.
_SIZES: tuple[tuple[int, int | None], ...] = ((MOST_CHARTS, None), (MOST_CHARTS, 53), (12, 26), (6, 8), (0, 2))
SCRIPTS = ("common.js", "weekly.js")
STYLES = ("page.css", "weekly.css")


def render(report: Weekly, *, store: str = "STORE") -> str:
    """The page about a week as HTML text; the same bytes for the same report.

    ``store`` is how the commands at the end name the store.
    """
    for charts, weeks in _SIZES:
        text = _page(report, store, charts, weeks)
        if len(text.encode()) <= MOST_BYTES:
            break
    return text


def _page(report: Weekly, store: str, most: int, weeks: int | None) -> str:
    rows = report.configurations
    charts = [(r, chart(r, report.weeks, _unit(r))) for r in rows[:most]]
    told = parts(report)
    headlines: Any = told["headlines"]
    series: Any = told["series"]
    recent = report.weeks if weeks is None else report.weeks[-weeks:]
    # One scale for the bars of all configurations.
    largest = max((abs(delta(m)) for r in rows for m in r.moved), default=0.0) or 1.0
    values: dict[str, Any] = {
        **told,
        "title": f"Week {report.week}",
        "subtitle": _subtitle(report),
        "notes": [],
        "cards": [_card(r, h) for r, h in zip(rows, headlines, strict=True)],
        "charts": [_shown(r, c) for r, c in charts],
        "chart_notes": list(_chart_notes(report, len(charts))),
        "marks": [_mark(kind) for kind in EVENT_MARKS if any(e.kind == kind for r in rows for e in _all(r))],
        "changes": [_change(e) for r in rows for e in r.events],
        "earlier": [_change(e) for r in rows for e in r.history if e.week in recent],
        "series": [{**s, "rows": s["rows"][-len(recent) :]} for s in series],
        "reach": len(recent) if len(recent) < len(report.weeks) else None,
        "budgets": [_budget(r, largest) for r in rows],
        "drifts": list(_drifts(rows)),
        "store": store,
    }
    document = {"charts": [c.weeks for _, c in charts]}
    return fill("weekly.html.j2", values, document, scripts=SCRIPTS, styles=STYLES)


def _unit(row: ConfigurationWeek) -> str:
    return row.metrics[0].current.unit if row.metrics else ""


def _all(row: ConfigurationWeek) -> tuple[Event, ...]:
    return (*row.history, *row.events)


def _subtitle(report: Weekly) -> str:
    known = [r for r in report.configurations if r.quality.launches]
    total = sum(r.quality.launches for r in known)
    return f"{launches(total)} of {len(known)} of {count(len(report.configurations), 'configuration')}"


_TONES = {"better": "better", "worse": "worse", "no_change": "neutral", "cannot_say": "unsure"}


def _card(row: ConfigurationWeek, headline: tuple[str, str, str]) -> dict[str, Any]:
    title, word, sentences = headline
    primary = row.metrics[0] if row.metrics else None
    return {
        "title": title,
        "word": word,
        "tone": _TONES[row.verdict],
        "sentences": sentences,
        "owner": row.owner,
        "value": figure(primary.current.value) if primary else NOT_KNOWN,
        "unit": primary.current.unit if primary and primary.current.value is not None else "",
        "name": primary.title if primary else "",
    }


def _shown(row: ConfigurationWeek, drawn: Chart) -> dict[str, Any]:
    name = f"{row.metrics[0].title}, {_unit(row)}" if row.metrics else ""
    svg = Markup(drawn.svg)  # noqa: S704 - escaped where the chart was made
    return {"title": row.title, "name": name, "svg": svg}


def _chart_notes(report: Weekly, drawn: int) -> Iterator[str]:
    if (more := len(report.configurations) - drawn) > 0:
        yield f"{count(more, 'more configuration')} {'is' if more == 1 else 'are'} in the tables only."
    if len(report.weeks) > MOST_WEEKS:
        yield f"The charts show the last {MOST_WEEKS} of {len(report.weeks)} weeks."


def _mark(kind: Any) -> dict[str, Any]:
    return {"name": kind, "path": mark(kind), "colour": EVENT_COLOURS[kind]}


def _change(event: Event) -> dict[str, Any]:
    return {
        "kind": KINDS[event.kind],
        "path": mark(event.kind),
        "colour": EVENT_COLOURS[event.kind],
        "line": event_line(event),
        "triaged": event.triaged,
        "evidence": event.evidence,
        "counter": event.counter_evidence,
    }


def _ms(us: float | None) -> str:
    return NOT_KNOWN if us is None else f"{us / 1000:.2f}"


def _cell(metric: MetricComparison, largest: float) -> dict[str, Any]:
    change = delta(metric)
    return {
        "name": metric.title,
        "base": _ms(metric.base.median),
        "now": _ms(metric.candidate.median),
        "change": f"{change / 1000:+.2f}".replace("-", "\N{MINUS SIGN}"),
        "width": f"{50 * abs(change) / largest:.1f}",
        "side": "longer" if change > 0 else "shorter",
        "tone": _TONES[metric.verdict],
        "verdict": VERDICTS[metric.verdict].lower(),
        "n": f"{metric.base.n} and {metric.candidate.n}",
    }


def _budget(row: ConfigurationWeek, largest: float) -> dict[str, Any]:
    return {
        "title": row.title,
        "name": row.name,
        "reference": row.reference,
        "cells": [_cell(m, largest) for m in row.moved],
        "kernels": [kernel_line(k) for k in row.kernels] if row.moved else [],
        "known": bool(row.budget),
    }


def _drifts(rows: Sequence[ConfigurationWeek]) -> Iterator[list[str]]:
    for row in rows:
        for drift in row.drift:
            yield [
                row.name,
                visible(drift.dataset),
                f"{figure(drift.accept_len)} ({drift.n})",
                f"{figure(drift.reference)} ({drift.reference_n})",
            ]
