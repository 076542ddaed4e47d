"""Plots of the weekly report. Same report, same bytes: no date and no version in the files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from profkit.escape import visible
from profkit.weekly.model import ConfigurationWeek, Event, Weekly
from profkit.words import ACTIVITIES, Activity

MOST_PANELS = 12
LABELLED_WEEKS = 13
# Colours that stay apart for colour-blind readers (Okabe and Ito).
EVENTS = {
    "regression": ("v", "#D55E00"),
    "improvement": ("^", "#009E73"),
    "environment": ("s", "#0072B2"),
    "noise": ("X", "#E69F00"),
    "missing": ("o", "#000000"),
}
ACTIVITY_COLOURS: dict[Activity, str] = {
    "compute": "#0072B2",
    "allreduce": "#D55E00",
    "comm": "#E69F00",
    "memory": "#CC79A7",
    "idle": "#BBBBBB",
}


def _text(text: str, limit: int = 48) -> str:
    # A dollar would start mathematics.
    return visible(text, limit).replace("$", r"\$")


def _save(figure: Figure, path: Path) -> None:
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=110, metadata={"Software": None}, format="png")


def _mark_events(axes: Axes, events: Sequence[Event], weeks: Sequence[str], top: float, gap: float) -> None:
    stacked: dict[str, int] = {}
    for event in events:
        if event.week not in weeks:
            continue
        marker, colour = EVENTS[event.kind]
        level = stacked.get(event.week, 0)
        stacked[event.week] = level + 1
        axes.plot(weeks.index(event.week), top - gap * level, marker, color=colour, ms=7, mec="white", mew=0.6)
        if event.kind == "environment":
            axes.axvline(weeks.index(event.week) - 0.5, color=colour, lw=0.8, ls=":")


def _panel(axes: Axes, row: ConfigurationWeek, weeks: Sequence[str], unit: str) -> None:
    for at, point in enumerate(row.series):
        axes.plot([at] * point.n, point.values, ".", color="#888888", ms=4, zorder=2)
        if point.low is not None and point.high is not None:
            axes.plot([at, at], [point.low, point.high], color="#0072B2", lw=2.2, alpha=0.55, zorder=3)
    known = [(at, p.median) for at, p in enumerate(row.series) if p.median is not None]
    axes.plot([at for at, _ in known], [m for _, m in known], "-", color="#0072B2", lw=1.2, zorder=3)
    values = [v for p in row.series for v in p.values] or [0.0, 1.0]
    highest, room = max(values), (max(values) - min(values)) or abs(max(values)) or 1.0
    axes.set_ylim(max(0.0, min(values) - 0.6 * room), highest + 0.45 * room)
    axes.set_xlim(-0.6, len(weeks) - 0.4)
    _mark_events(axes, (*row.history, *row.events), list(weeks), highest + 0.33 * room, 0.13 * room)
    step = max(1, math.ceil(len(weeks) / LABELLED_WEEKS))
    axes.set_xticks(range(0, len(weeks), step), [w[-3:] for w in weeks[::step]], fontsize=8)
    axes.set_title(_text(row.title), fontsize=10, loc="left")
    axes.set_ylabel(unit, fontsize=9)
    axes.grid(axis="y", color="#E5E5E5", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def throughput_plot(report: Weekly, path: Path) -> None:
    """The primary metric week by week: launches, medians with intervals, events; one panel per configuration."""
    rows = report.configurations[:MOST_PANELS]
    columns = 1 if len(rows) == 1 else 2
    height = math.ceil(len(rows) / columns)
    figure = Figure(figsize=(5.4 * columns, 2.7 * height + 0.5), layout="constrained")
    panels = figure.subplots(height, columns, squeeze=False).flatten()
    for axes, row in zip(panels, rows, strict=False):
        standing = row.metrics[0] if row.metrics else None
        _panel(axes, row, report.weeks, standing.current.unit if standing else "")
    for axes in panels[len(rows) :]:
        axes.set_visible(False)
    kinds = dict.fromkeys(e.kind for r in rows for e in (*r.history, *r.events))
    handles = [
        panels[0].plot([], [], EVENTS[kind][0], color=EVENTS[kind][1], ms=7, ls="", label=kind)[0] for kind in EVENTS
        if kind in kinds
    ]  # fmt: skip
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    _save(figure, path)


def _cells(row: ConfigurationWeek, side: str) -> dict[Activity, float]:
    found: dict[Activity, float] = dict.fromkeys(ACTIVITIES, 0.0)
    for metric in row.budget:
        activity = metric.name.partition(".")[2]
        value = (metric.base if side == "base" else metric.candidate).median
        for known in ACTIVITIES:
            if known == activity:
                found[known] += (value or 0.0) / 1000
    return found


def traced(report: Weekly) -> list[ConfigurationWeek]:
    """Configurations with a cycle budget on both sides."""
    return [r for r in report.configurations if any(m.base.values and m.candidate.values for m in r.budget)]


def budget_plot(report: Weekly, path: Path) -> bool:
    """The cycle budget by activity, reference week against this week; ``False`` when no trace was there."""
    rows = traced(report)[:MOST_PANELS]
    if not rows:
        return False
    figure = Figure(figsize=(8.5, 1.1 + 0.85 * len(rows)), layout="constrained")
    axes = figure.subplots()
    labels = []
    for at, row in enumerate(rows):
        for offset, side, week in ((-0.2, "base", row.reference), (0.2, "candidate", report.week)):
            left = 0.0
            for activity, value in _cells(row, side).items():
                axes.barh(at + offset, value, 0.36, left=left, color=ACTIVITY_COLOURS[activity])
                left += value
            labels.append((at + offset, f"{_text(row.name, 24)} {(week or '')[-3:]}"))
    axes.set_yticks([at for at, _ in labels], [text for _, text in labels], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("ms per cycle", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    handles = [axes.barh([0], [0], color=c, label=a) for a, c in ACTIVITY_COLOURS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    _save(figure, path)
    return True
