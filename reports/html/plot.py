"""The all-reduce's time over its size, on logarithmic axes, as inline SVG in the page's colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from profkit.collectives.cost import Curve
from profkit.escape import visible

_WIDTH, _HEIGHT = 900, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 300, 20, 42
_LINE: Final = 15
_CHARACTER: Final = 7.0  # width of one character of such words, about
_BELOW: Final = 29  # from words above a point to words below it


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured all-reduce: bytes, us, whose it is, and the name of its colour; ``bound``: at most so long."""

    size: float
    time: float
    name: str
    colour: str
    bound: bool = False


def _ticks(low: float, high: float, base: float) -> list[float]:
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    return [base**i for i in range(first, last + 1)]


def size_text(size: float) -> str:
    """Bytes with the binary unit that suits them."""
    for unit, step in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= step:
            return f"{size / step:g} {unit}"
    return f"{size:g} B"


def _spread(places: Sequence[float], least: float, most: float) -> list[float]:
    """Label heights near ``places`` that do not overlap, in the same order."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    found = [0.0] * len(places)
    below = least - _LINE
    for i in order:
        below = max(places[i], below + _LINE)
        found[i] = below
    over = max(below - most, 0.0)
    if over:
        above = most + _LINE
        for i in reversed(order):
            above = min(found[i], above - _LINE)
            found[i] = above
    return found


@dataclass(frozen=True, slots=True)
class _Box:
    """Where words stand: from ``left`` to ``right``, on the baseline ``height``."""

    left: float
    right: float
    height: float

    def covers(self, x: float, y: float) -> bool:
        return self.left - 8 < x < self.right + 8 and self.height - 17 < y < self.height + 8

    def meets(self, other: _Box) -> bool:
        return self.left < other.right and other.left < self.right and abs(self.height - other.height) < _LINE

    def inside(self) -> bool:
        return self.left >= _LEFT and self.right <= _WIDTH - _RIGHT and _TOP <= self.height <= _HEIGHT - _BOTTOM


def _places(dots: Sequence[tuple[float, float]], words: Sequence[str]) -> list[_Box]:
    """Where each dot's words stand: beside it, as near as they cover no dot and meet neither other words nor the edges.

    Right of the dot and above it come first; with no free place left they stand there all the same.
    """
    found: list[_Box] = []
    for (x, y), text in zip(dots, words, strict=True):
        length, first = _CHARACTER * len(text), y - 9
        steps = [0.0, *(s for n in range(len(dots) + 2) for s in (_BELOW + n * _LINE, -(n + 1) * _LINE))]
        tries = [
            box for step in steps
            for box in (_Box(x + 11, x + 11 + length, first + step), _Box(x - 11 - length, x - 11, first + step))
        ]  # fmt: skip
        free = (
            box
            for box in tries
            if box.inside() and not any(box.covers(*dot) for dot in dots) and not any(box.meets(o) for o in found)
        )
        found.append(next(free, tries[0]))
    return found


def allreduce_plot(
    points: Sequence[Measured],
    curves: Sequence[tuple[str, Curve, tuple[float, float] | None]],
    model: tuple[float, str] | None,
) -> str:
    """SVG text: measured points, named reference curves, and NCCL's own latency as a dashed line.

    A curve's pair bounds the sizes (bytes) that it was measured at; outside it is drawn thinner.
    """
    if not points:
        return ""
    sizes = [p.size for p in points]
    low, high = min(min(sizes) / 2, 4096.0), max(max(sizes) * 2, 524288.0)
    times = [p.time for p in points] + [c.at(s) for _, c, _ in curves for s in (low, high)]
    times += [model[0]] if model else []
    bottom = 10 ** math.floor(math.log10(max(min(times), 0.5)))
    top = max(10 ** math.ceil(math.log10(max(times))), 10 * bottom)  # one time that is a power of ten needs room too
    inside, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(size: float) -> float:
        return _LEFT + inside * math.log(size / low) / math.log(high / low)

    def y(time: float) -> float:
        return _TOP + tall * (1 - math.log(max(time, bottom) / bottom) / math.log(top / bottom))

    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(_summary(points, curves, model))}">',
        *_axes(low, high, bottom, top, x, y),
        *_lines(low, high, curves, model, x, y),
    ]
    dots = [(x(p.size), y(p.time)) for p in points]
    for point, (across, down), box in zip(points, dots, _places(dots, [_words(p) for p in points]), strict=True):
        line, inside_of = ("surface", point.colour) if not point.bound else (point.colour, "surface")
        parts.append(
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="6" stroke="var(--{line})" '
            f'stroke-width="2" fill="var(--{inside_of})"><title>{escape(_words(point))}</title></circle>'
        )
        left = box.right < across
        parts.append(
            f'<text class="strong" x="{box.right if left else box.left:.1f}" y="{box.height:.1f}" '
            f'text-anchor="{"end" if left else "start"}">{escape(_words(point))}</text>'
        )
    return "\n".join([*parts, "</svg>"])


def _words(point: Measured) -> str:
    return f"{visible(point.name, 40)}: {'at most ' * point.bound}{point.time:.1f} us at {size_text(point.size)}"


def _summary(
    points: Sequence[Measured],
    curves: Sequence[tuple[str, Curve, tuple[float, float] | None]],
    model: tuple[float, str] | None,
) -> str:
    words = ["Time of one all-reduce over its size. Measured here: " + "; ".join(_words(p) for p in points)]
    words += [f"{name}: {curve.at(points[0].size):.1f} us at {size_text(points[0].size)}" for name, curve, _ in curves]
    words += [f"{model[1]}: {model[0]:.1f} us"] if model else []
    return ". ".join(words)


def _axes(
    low: float, high: float, bottom: float, top: float, x: Callable[[float], float], y: Callable[[float], float]
) -> list[str]:
    edge = _WIDTH - _RIGHT
    parts = []
    for time in _ticks(bottom, top, 10.0):
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{edge}" y1="{y(time):.1f}" y2="{y(time):.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(time) + 4:.1f}" text-anchor="end">{time:g}</text>')
    parts += [
        f'<text x="{x(size):.1f}" y="{_HEIGHT - 20}" text-anchor="middle">{size_text(size)}</text>'
        for size in _ticks(low, high, 4.0)
    ]
    parts.append(f'<text x="{_LEFT - 8}" y="{_TOP - 8}" text-anchor="end">us</text>')
    middle = (_LEFT + edge) / 2
    parts.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 4}" text-anchor="middle">message size per rank</text>')
    return parts


def _lines(
    low: float,
    high: float,
    curves: Sequence[tuple[str, Curve, tuple[float, float] | None]],
    model: tuple[float, str] | None,
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> list[str]:
    edge = _WIDTH - _RIGHT
    parts: list[str] = []
    labels: list[tuple[float, str]] = []
    steps = [low * (high / low) ** (i / 48) for i in range(49)]
    for name, curve, bounds in curves:
        for lowest, highest, opacity in ((low, high, 0.35), (*(bounds or (low, high)), 1.0)):
            path = " ".join(f"{x(s):.1f},{y(curve.at(s)):.1f}" for s in steps if lowest <= s <= highest)
            parts.append(f'<polyline class="curve" points="{path}" opacity="{opacity}"/>')
        labels.append((y(curve.at(high)), visible(name, 44)))
    if model:
        level = y(model[0])
        parts.append(f'<line class="model" x1="{_LEFT}" x2="{edge}" y1="{level:.1f}" y2="{level:.1f}"/>')
        labels.append((level, visible(model[1], 40)))
    heights = _spread([p for p, _ in labels], _TOP + 4, _HEIGHT - _BOTTOM)
    for (place, words), height in zip(labels, heights, strict=True):
        parts.append(f'<line class="grid" x1="{edge}" x2="{edge + 10}" y1="{place:.1f}" y2="{height:.1f}"/>')
        parts.append(f'<text x="{edge + 13}" y="{height + 4:.1f}">{escape(words)}</text>')
    return parts
