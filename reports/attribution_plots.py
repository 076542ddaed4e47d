"""Plots of an attribution: the split of a cycle, the timeline of the median cycle, the spread over cycles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from profkit.attribution.result import Attribution, CycleSummary
from profkit.attribution.views import Lane, median_cycle, walls_by_batch
from profkit.reports import style
from profkit.reports.palette import ACTIVITY_NAMES, PHASE_NAMES, Theme
from profkit.reports.wording import part_name
from profkit.words import ACTIVITIES, HEADLINE_PARTS, PHASES, Phase

MOST_BATCHES = 8
# A stretch of one phase is named inside when it has this share of the cycle.
NAMED_SHARE = 0.06


def draw(result: Attribution, folder: Path, *, force: bool, suffix: str = "svg") -> dict[str, str]:
    """Draw every plot that the result has figures for into ``folder``; captions and file names.

    Raises:
        UsageError: a file exists and ``force`` is false, or the folder cannot be written.
    """
    made: dict[str, str] = {}
    with style.look() as theme:
        for caption, name, plot in (
            ("Where the cycle's time goes", "split", _split),
            ("The median cycle on every rank", "median_cycle", _timeline),
            ("Cycle time over all cycles", "cycles", _cycles),
        ):
            figure = plot(result, theme)
            if figure is not None:
                file = f"{name}.{suffix}"
                style.save(figure, folder / file, force=force)
                made[caption] = file
    return made


def split_bars(axes: Axes, rows: Sequence[tuple[str, CycleSummary]], theme: Theme) -> None:
    """One stacked bar per configuration, in ms: the eight parts of the headline."""
    longest = max(summary.wall_us.mean for _, summary in rows) / 1000.0
    for place, (_, summary) in enumerate(rows):
        parts = [
            (part_name(p, summary), (summary.headline_us[p] or 0.0) / 1000.0, theme.headline(p)) for p in HEADLINE_PARTS
        ]
        style.stacked_bar(axes, place, [p for p in parts if p[1] > 0], total=longest)
    axes.set_yticks(range(len(rows)), [style.text(name) for name, _ in rows])
    axes.invert_yaxis()


def _clock(result: Attribution) -> str:
    """What a title must say of a recording without a GPU."""
    return " (recorded without a GPU: the CPU's times)" if result.without_gpu else ""


def _split(result: Attribution, theme: Theme) -> Figure | None:
    if result.cycle is None:
        return None
    cycle = result.cycle
    used = [p for p in HEADLINE_PARTS if (cycle.headline_us[p] or 0.0) > 0]
    figure, axes = style.figure(
        8.0, 2.1, title=f"Where {cycle.wall_us.mean / 1000:.2f} ms per cycle go{_clock(result)}", unit="ms", grid="x"
    )
    size = "" if cycle.batch_size is None else f"batch {cycle.batch_size}"
    split_bars(axes, [(size, cycle)], theme)
    total = cycle.wall_us.mean
    handles = [
        Patch(color=theme.headline(p), label=f"{part_name(p, cycle)} {(cycle.headline_us[p] or 0.0) / total:.1%}")
        for p in used
    ]
    _legend(figure, handles)
    return figure


def _legend(figure: Figure, handles: Sequence[Patch]) -> None:
    figure.legend(
        handles=list(handles), loc="outside lower center", ncols=min(len(handles), 5), frameon=False, fontsize=8,
        handlelength=1.0, columnspacing=1.2,
    )  # fmt: skip


def _timeline(result: Attribution, theme: Theme) -> Figure | None:
    lanes = median_cycle(result)
    if not lanes:
        return None
    figure, axes = style.figure(
        9.0,
        1.6 + 0.3 * len(lanes),
        title=f"The median cycle (no. {lanes[0].cycle}){_clock(result)}",
        unit="ms",
        grid="x",
    )
    _phase_strip(axes, lanes[0], theme)
    for place, lane in enumerate(lanes, start=1):
        for activity in ACTIVITIES:
            spans = [(s / 1000, d / 1000) for s, d, _, a in lane.segments if a == activity]
            if spans:
                axes.broken_barh(spans, (place - 0.4, 0.8), facecolors=theme.activities[activity], linewidth=0)
    axes.set_yticks(range(len(lanes) + 1), ["phase", *(style.text(lane.name, 20) for lane in lanes)])
    axes.set_ylim(len(lanes) + 0.6, -0.6)
    axes.set_xlim(0, max(lane.wall_us for lane in lanes) / 1000)
    seen = {a for lane in lanes for *_, a in lane.segments}
    named = {p for p, first, last in _stretches(lanes[0]) if last - first > NAMED_SHARE * lanes[0].wall_us}
    short = {p for _, _, p, _ in lanes[0].segments} - named
    handles = [Patch(color=theme.activities[a], label=ACTIVITY_NAMES[a]) for a in ACTIVITIES if a in seen]
    handles += [Patch(color=theme.phases[p], label=f"phase {PHASE_NAMES[p]}") for p in PHASES if p in short]
    _legend(figure, handles)
    return figure


def _phase_strip(axes: Axes, lane: Lane, theme: Theme) -> None:
    for phase in PHASES:
        spans = [(s / 1000, d / 1000) for s, d, p, _ in lane.segments if p == phase]
        if spans:
            axes.broken_barh(spans, (-0.4, 0.8), facecolors=theme.phases[phase], linewidth=0)
    for phase, first, last in _stretches(lane):
        if last - first > NAMED_SHARE * lane.wall_us:
            axes.text(
                (first + last) / 2000, 0, PHASE_NAMES[phase], ha="center", va="center", fontsize=8,
                color=style.text_on(theme.phases[phase]),
            )  # fmt: skip


def _stretches(lane: Lane) -> list[tuple[Phase, float, float]]:
    """Neighbouring segments of one phase as one stretch, in us."""
    found: list[tuple[Phase, float, float]] = []
    for start, length, phase, _ in lane.segments:
        if found and found[-1][0] == phase:
            found[-1] = (phase, found[-1][1], start + length)
        else:
            found.append((phase, start, start + length))
    return found


def _cycles(result: Attribution, theme: Theme) -> Figure | None:
    walls = walls_by_batch(result)
    sizes = sorted(walls, key=lambda b: (b is None, b or 0))[:MOST_BATCHES]
    if not any(len(walls[b]) > 1 for b in sizes):
        return None
    figure, axes = style.figure(
        8.0, 1.3 + 0.55 * len(sizes), title=f"Time of every counted cycle{_clock(result)}", unit="ms", grid="x"
    )
    for place, size in enumerate(sizes):
        values = walls[size]
        # Dots are spread by their order, not at random: the same result gives the same picture.
        heights = [place + 0.5 * ((i * 0.618034) % 1.0 - 0.5) for i in range(len(values))]
        axes.plot(values, heights, "o", ms=4, alpha=0.6, color=theme.accent, mew=0)
        middle = next(r.wall_us.p50 for r in result.by_batch if r.batch_size == size) / 1000
        axes.plot([middle, middle], [place - 0.38, place + 0.38], color=theme.text, lw=1.6)
        axes.annotate(
            f"median {middle:.2f} ms", (middle, place - 0.4), ha="center", va="bottom", fontsize=8, color=theme.text
        )
    labels = ["unknown batch" if b is None else f"batch {b}" for b in sizes]
    axes.set_yticks(range(len(sizes)), labels)
    axes.set_ylim(len(sizes) - 0.45, -0.75)
    return figure
