"""The primary metric of a configuration week by week, as inline SVG in the page's colours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from profkit.escape import visible
from profkit.reports.palette import EVENT_COLOURS, EVENT_MARKS
from profkit.reports.weekly import unbroken
from profkit.reports.wording import figure, launches, percent
from profkit.weekly.model import ConfigurationWeek, Event, EventKind, Point

# Weeks that stay readable; earlier ones are in the table.
MOST_WEEKS: Final = 53
_TALL: Final = 210
# Few weeks make a small chart, which a phone shows whole; many are packed closer.
_NARROWEST, _WIDEST, _WEEK = 300, 818, 56
_SHRINK, _GROW = 0.9, 1.3  # what of its own size a chart is shown at
_LEFT, _RIGHT, _BOTTOM = 58, 84, 30
_LANE, _MOST_LANES = 19, 7
_LETTER = 6.6
_LABELLED_WEEKS = 13
_TICKS = 4

# Shapes around 0,0 as SVG paths, by their name in matplotlib.
_SHAPES: Final = {
    "v": "M-6 -5H6L0 6Z",
    "^": "M-6 5H6L0 -6Z",
    "s": "M-5 -5H5V5H-5Z",
    "X": "M-6 -3L-3 -6L0 -3L3 -6L6 -3L3 0L6 3L3 6L0 3L-3 6L-6 3L-3 0Z",
    "o": "M-5 0A5 5 0 1 1 5 0A5 5 0 1 1 -5 0Z",
}


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart as SVG text, and what each of its weeks says, oldest first: a heading and lines."""

    svg: str
    weeks: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where weeks and values lie."""

    first: int  # index of the first week shown
    number: int
    low: float
    high: float
    top: float

    @property
    def edge(self) -> int:
        """Where the last week ends."""
        return _LEFT + max(_NARROWEST, min(_WIDEST, _WEEK * self.number))

    @property
    def width(self) -> int:
        return self.edge + _RIGHT

    @property
    def step(self) -> float:
        return (self.edge - _LEFT) / self.number

    def x(self, at: float) -> float:
        return _LEFT + self.step * (at - self.first + 0.5)

    def y(self, value: float) -> float:
        return self.top + _TALL * (self.high - value) / (self.high - self.low)


def mark(kind: EventKind) -> str:
    """The SVG path of an event's mark around 0,0."""
    return _SHAPES[EVENT_MARKS[kind]]


def chart(row: ConfigurationWeek, weeks: Sequence[str], unit: str) -> Chart:
    """The chart of one configuration; ``weeks`` are those of the report, ``unit`` that of the primary metric."""
    first = max(0, len(weeks) - MOST_WEEKS)
    points = list(enumerate(row.series))[first:]
    events = [(weeks.index(e.week), e) for e in (*row.history, *row.events) if e.week in weeks[first:]]
    events.sort(key=lambda pair: pair[0])
    low, high = _bounds([p for _, p in points])
    lanes = _lanes(events, _Scale(first, max(len(points), 1), low, high, 0.0))
    top = 14.0 + _LANE * (max((lane for lane, _ in lanes), default=0) + 1 if events else 0)
    scale = _Scale(first, max(len(points), 1), low, high, top)
    told = tuple((p.week, tuple(_lines(p, unit, [e for at, e in events if at == i]))) for i, p in points)
    height = top + _TALL + _BOTTOM
    summary = f"{visible(row.title, 120)} by week, {unit}. Every week says its figures."
    parts = [
        f'<svg viewBox="0 0 {scale.width} {height:.0f}" role="group" aria-label="{escape(summary)}" '
        f'style="min-width: {_SHRINK * scale.width:.0f}px; max-width: {_GROW * scale.width:.0f}px">',
        *_axes(scale, points),
        *_stems(scale, events, lanes),
        *_measured(scale, row, points, unit),
        *_marks(scale, events, lanes),
        *_targets(scale, points, told),
        "</svg>",
    ]
    return Chart("\n".join(parts), told)


def _bounds(points: Sequence[Point]) -> tuple[float, float]:
    values = [v for p in points for v in (*p.values, p.low, p.high) if v is not None] or [0.0, 1.0]
    room = (max(values) - min(values)) or abs(max(values)) or 1.0
    low, high = min(values) - 0.12 * room, max(values) + 0.12 * room
    return (max(0.0, low) if min(values) >= 0 else low), high


def _ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * f for f in (1, 2, 5, 10) if power * f >= rough)
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _axes(scale: _Scale, points: Sequence[tuple[int, Point]]) -> Iterator[str]:
    for value in _ticks(scale.low, scale.high):
        level = scale.y(value)
        yield f'<line class="grid" x1="{_LEFT}" x2="{scale.edge}" y1="{level:.1f}" y2="{level:.1f}"/>'
        yield f'<text x="{_LEFT - 8}" y="{level + 4:.1f}" text-anchor="end">{value:g}</text>'
    step = max(1, math.ceil(len(points) / _LABELLED_WEEKS))
    base = scale.top + _TALL + 18
    for at, point in points[::step]:
        yield f'<text x="{scale.x(at):.1f}" y="{base:.0f}" text-anchor="middle">{escape(point.week[-3:])}</text>'


def _measured(scale: _Scale, row: ConfigurationWeek, points: Sequence[tuple[int, Point]], unit: str) -> Iterator[str]:
    for at, point in points:
        x = scale.x(at)
        if point.low is not None and point.high is not None:
            yield f'<path class="interval" d="M{x:.1f} {scale.y(point.low):.1f}V{scale.y(point.high):.1f}"/>'
        if point.values:
            # A line of no length with round ends is a dot.
            dots = "".join(f"M{x:.1f} {scale.y(v):.1f}h0" for v in point.values)
            yield f'<path class="launches" d="{dots}"/>'
    for known in unbroken(row):
        line = [(at, median) for at, median in known if at >= scale.first]
        if line:
            path = " ".join(f"{scale.x(at):.1f},{scale.y(m):.1f}" for at, m in line)
            yield f'<polyline class="median" points="{path}"/>'
    known_points = [(at, p.median) for at, p in points if p.median is not None]
    if known_points:
        at, median = known_points[-1]
        where = f'x="{scale.edge + 4}" y="{scale.y(median) + 4:.1f}"'
        yield f'<text class="strong" {where}>{escape(figure(median, visible(unit, 12)))}</text>'


def _label(event: Event) -> str:
    return event.kind + (f" {percent(event.change)}" if event.change is not None and event.kind != "noise" else "")


def _lanes(events: Sequence[tuple[int, Event]], scale: _Scale) -> list[tuple[int, bool]]:
    """(lane, whether the label stands left of its mark) of each event, so that no label runs into another."""
    ends: list[list[tuple[float, float]]] = [[] for _ in range(_MOST_LANES)]
    found = []
    for at, event in events:
        x, width = scale.x(at), 16 + _LETTER * len(_label(event))
        left = x + width > scale.width
        span = (x - width, x + 8) if left else (x - 8, x + width)
        free = (i for i, taken in enumerate(ends) if all(span[1] <= a or span[0] >= b for a, b in taken))
        lane = next(free, _MOST_LANES - 1)
        ends[lane].append(span)
        found.append((lane, left))
    return found


def _stems(scale: _Scale, events: Sequence[tuple[int, Event]], lanes: Sequence[tuple[int, bool]]) -> Iterator[str]:
    """From a mark down to its week; before a week with another system a dotted line: nothing compares across it."""
    foot = scale.top + _TALL
    for (at, event), (lane, _) in zip(events, lanes, strict=True):
        x, y = scale.x(at), _mark_height(lane)
        if event.kind == "environment":
            edge = scale.x(at - 0.5)
            yield f'<path class="break" d="M{x:.1f} {y}H{edge:.1f}V{foot:.0f}"/>'
        else:
            yield f'<path class="stem" d="M{x:.1f} {y}V{foot:.0f}"/>'


def _mark_height(lane: int) -> int:
    return 12 + _LANE * lane


def _marks(scale: _Scale, events: Sequence[tuple[int, Event]], lanes: Sequence[tuple[int, bool]]) -> Iterator[str]:
    for (at, event), (lane, left) in zip(events, lanes, strict=True):
        x, y, colour = scale.x(at), _mark_height(lane), EVENT_COLOURS[event.kind]
        yield f'<path class="event" fill="var(--{colour})" transform="translate({x:.1f} {y})" d="{mark(event.kind)}"/>'
        place = f'x="{x + (-11 if left else 11):.1f}" y="{y + 4}" text-anchor="{"end" if left else "start"}"'
        yield f'<text class="event-label" {place}>{escape(_label(event))}</text>'


def _lines(point: Point, unit: str, events: Sequence[Event]) -> Iterator[str]:
    if point.median is None:
        yield "not measured"
    else:
        yield f"median {figure(point.median, unit)}"
        if point.low is not None and point.high is not None:
            yield f"95% interval {figure(point.low)} to {figure(point.high)}"
        yield f"{launches(point.n)}: {', '.join(figure(v) for v in point.values)}"
    for event in events:
        yield f"{event.kind}: {visible(event.sentence, 240)}"


def _targets(
    scale: _Scale, points: Sequence[tuple[int, Point]], told: Sequence[tuple[str, tuple[str, ...]]]
) -> Iterator[str]:
    """One area per week that pointer and keyboard find; the last week is the one that Tab comes to first."""
    wide = scale.step
    tall = scale.top + _TALL
    for index, ((at, _), (week, lines)) in enumerate(zip(points, told, strict=True)):
        stop = 0 if index == len(points) - 1 else -1
        label = escape(f"{week}: {'; '.join(lines)}")
        yield (
            f'<rect class="week" x="{scale.x(at) - wide / 2:.1f}" y="0" width="{wide:.1f}" height="{tall:.0f}" '
            f'role="img" tabindex="{stop}" aria-label="{label}" data-week="{index}"/>'
        )
