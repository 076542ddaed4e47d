"""Plots of the weekly report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from profkit.reports import style
from profkit.reports.palette import EVENT_MARKS, Theme, event_colour
from profkit.reports.weekly import unbroken
from profkit.weekly.model import ConfigurationWeek, Event, Weekly
from profkit.words import ACTIVITIES, Activity

MOST_PANELS = 12
LABELLED_WEEKS = 13


def _mark_events(
    axes: Axes, events: Sequence[Event], weeks: Sequence[str], top: float, gap: float, theme: Theme
) -> None:
    stacked: dict[str, int] = {}
    for event in events:
        if event.week not in weeks:
            continue
        level = stacked.get(event.week, 0)
        stacked[event.week] = level + 1
        colour, at = event_colour(theme, event.kind), weeks.index(event.week)
        axes.plot(at, top - gap * level, EVENT_MARKS[event.kind], color=colour, ms=7, mec=theme.background, mew=0.6)
        if event.kind == "environment":
            axes.axvline(at - 0.5, color=colour, lw=0.8, ls=":")


def _panel(axes: Axes, row: ConfigurationWeek, weeks: Sequence[str], unit: str, theme: Theme) -> None:
    for at, point in enumerate(row.series):
        axes.plot([at] * point.n, point.values, ".", color=theme.muted, ms=4, zorder=2)
        if point.low is not None and point.high is not None:
            axes.plot([at, at], [point.low, point.high], color=theme.accent, lw=2.2, alpha=0.55, zorder=3)
    for known in unbroken(row):
        axes.plot([at for at, _ in known], [m for _, m in known], "-", color=theme.accent, lw=1.2, zorder=3)
    values = [v for p in row.series for v in p.values] or [0.0, 1.0]
    highest, room = max(values), (max(values) - min(values)) or abs(max(values)) or 1.0
    axes.set_ylim(max(0.0, min(values) - 0.6 * room), highest + 0.45 * room)
    axes.set_xlim(-0.6, len(weeks) - 0.4)
    _mark_events(axes, (*row.history, *row.events), list(weeks), highest + 0.33 * room, 0.13 * room, theme)
    step = max(1, math.ceil(len(weeks) / LABELLED_WEEKS))
    axes.set_xticks(range(0, len(weeks), step), [w[-3:] for w in weeks[::step]])
    axes.set_title(style.text(row.title, 48))
    axes.set_ylabel(unit)


def throughput_plot(report: Weekly, path: Path, *, force: bool = False) -> None:
    """The primary metric week by week: launches, medians with intervals, events; one panel per configuration."""
    rows = report.configurations[:MOST_PANELS]
    columns = 1 if len(rows) == 1 else 2
    height = math.ceil(len(rows) / columns)
    with style.look(style.LIGHT) as theme:
        figure, panels = style.grid_of(len(rows), 5.4 * columns, 2.7 * height + 0.5, columns=columns)
        for axes, row in zip(panels, rows, strict=True):
            unit = row.metrics[0].current.unit if row.metrics else ""
            _panel(axes, row, report.weeks, unit, theme)
        kinds = {e.kind for r in rows for e in (*r.history, *r.events)}
        handles = [
            Line2D([], [], ls="", marker=EVENT_MARKS[kind], color=event_colour(theme, kind), ms=7, label=kind)
            for kind in EVENT_MARKS
            if kind in kinds
        ]
        if handles:
            figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        style.save(figure, path, force=force)


def _cells(row: ConfigurationWeek, side: str) -> dict[Activity, float]:
    """Milliseconds per cycle by activity, over all phases."""
    found: dict[Activity, float] = dict.fromkeys(ACTIVITIES, 0.0)
    for metric in row.budget:
        name = metric.name.partition(".")[2]
        value = (metric.base if side == "base" else metric.candidate).median
        for activity in ACTIVITIES:
            if activity == name:
                found[activity] += (value or 0.0) / 1000
    return found


def traced(report: Weekly) -> list[ConfigurationWeek]:
    """Configurations with a cycle budget on both sides."""
    return [r for r in report.configurations if any(m.base.values and m.candidate.values for m in r.budget)]


def budget_plot(report: Weekly, path: Path, *, force: bool = False) -> bool:
    """The cycle budget by activity, reference week against this week; ``False`` when no trace was there."""
    rows = traced(report)[:MOST_PANELS]
    if not rows:
        return False
    bars = [
        (2.6 * at + offset, f"{style.text(row.name, 28)}  {(week or '')[-3:]}", _cells(row, side))
        for at, row in enumerate(rows)
        for offset, side, week in ((0.0, "base", row.reference), (1.0, "candidate", report.week))
    ]
    longest = max(sum(cells.values()) for _, _, cells in bars)
    with style.look(style.LIGHT) as theme:
        figure, axes = style.figure(
            9.0, 1.4 + 0.36 * len(bars), title="Where a cycle goes, by what the GPU does", unit="ms per cycle", grid="x"
        )
        for place, _, cells in bars:
            parts = [(style.ACTIVITY_NAMES[a], value, theme.activities[a]) for a, value in cells.items() if value > 0]
            style.stacked_bar(axes, place, parts, total=longest, height=0.86)
        axes.set_yticks([place for place, _, _ in bars], [name for _, name, _ in bars])
        axes.invert_yaxis()
        used = [a for a in ACTIVITIES if any(cells[a] > 0 for _, _, cells in bars)]
        figure.legend(
            handles=[Patch(color=theme.activities[a], label=style.ACTIVITY_NAMES[a]) for a in used],
            loc="outside lower center", ncols=len(used), frameon=False, fontsize=8, handlelength=1.0,
        )  # fmt: skip
        style.save(figure, path, force=force)
    return True
