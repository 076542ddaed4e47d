"""Plots of the plan: cycle budget, what speculation needs, levers on both arms, all-reduce over message size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from profkit.collectives.cost import reference_curves
from profkit.planning.budget import ROWS
from profkit.planning.fabric import tested
from profkit.planning.plan import Plan
from profkit.planning.ranking import RankedLever
from profkit.reports import style
from profkit.words import Phase

WIDTH = 7.6
MOST_LEVERS = 8
# Parts of a cycle below this share are left out of the legend.
NAMED_SHARE = 0.004
KIB = 1024.0


def _row_colour(theme: style.Theme, phases: tuple[Phase, ...], activity: str) -> str:
    if activity == "allreduce":
        return theme.activities["allreduce"] if "verify" in phases else theme.tones["unsure"]
    if activity == "comm":
        return theme.activities["comm"]
    if activity == "memory":
        return theme.activities["memory"]
    if activity == "idle":
        return theme.activities["idle"]
    if "verify" in phases:
        return theme.activities["compute"]
    return theme.phases[phases[0]]


def _short(names: Sequence[str]) -> list[str]:
    """Names without the leading words that all of them share."""
    words = [name.split() for name in names]
    same = 0
    while len(words) > 1 and all(len(w) > same + 1 for w in words) and len({w[same] for w in words}) == 1:
        same += 1
    return [style.text(" ".join(w[same:]), 28) for w in words]


def _legend(drawn: Figure, axes: Axes, used: Mapping[str, str]) -> None:
    """The parts that are too narrow to be named inside a bar, and all others, below the panel."""
    handles = [axes.barh([0], [0], color=colour, label=name) for name, colour in used.items()]
    drawn.legend(handles=handles, loc="outside lower center", ncols=4, handlelength=1.0, columnspacing=1.4)


def budget_plot(plan: Plan, path: Path) -> bool:
    """One stacked bar per traced run; ``False`` when none is."""
    traced = [b for b in plan.budgets if b.rows]
    if not traced:
        return False
    total = max(b.wall.value or 0.0 for b in traced)
    with style.look() as theme:
        drawn, axes = style.figure(
            WIDTH, 1.6 + 0.5 * len(traced), title="Where one cycle goes", unit="ms per cycle", grid="x"
        )
        used: dict[str, str] = {}
        for place, found in enumerate(traced):
            parts = [
                (
                    row.name.removeprefix("target's forward: "),
                    row.time.value or 0.0,
                    _row_colour(theme, phases, activity),
                )
                for row, (_, phases, activity) in zip(found.rows, ROWS, strict=True)
            ]
            style.stacked_bar(axes, place, parts, total=total)
            used |= {
                row.name: colour
                for row, (_, _, colour) in zip(found.rows, parts, strict=True)
                if (row.share or 0.0) >= NAMED_SHARE
            }
            style.label_end(axes, found.wall.value or 0.0, place, f"{found.wall.value:.1f} ms", theme.text)
        axes.set_xlim(0.0, total * 1.12)
        axes.set_yticks(range(len(traced)), _short([b.name for b in traced]))
        axes.invert_yaxis()
        _legend(drawn, axes, used)
        style.save(drawn, path)
    return True


def economics_plot(plan: Plan, path: Path) -> bool:
    """Throughput over accept length: today's cycle, the baseline, and where they meet; ``False`` without both."""
    found = plan.situation.economics
    cycle, base, even = found.cycle.value, found.baseline_throughput.value, found.break_even_accept_len.value
    running = found.candidate.running_req
    if cycle is None or base is None or even is None or running is None:
        return False
    points = [(plan.situation.candidate.name, found.accept_len.value, found.throughput.value)]
    points += [(o.name, o.economics.accept_len.value, o.economics.throughput.value) for o in plan.others]
    rows = plan.situation.facts.number("speculative.num_draft_tokens") or even + 1
    most = max(rows, even * 1.15)
    with style.look() as theme:
        drawn, axes = style.figure(WIDTH, 3.1, title="What speculation needs", unit="tok/s")
        lengths = np.array([1.0, most])
        axes.plot(lengths, 1000.0 * running * lengths / cycle, color=theme.series[1])
        style.label_end(axes, most, 1000.0 * running * most / cycle, "today's cycle", theme.series[1])
        axes.axhline(base, color=theme.series[3], linewidth=1.4)
        style.label_end(axes, most, base, "baseline", theme.series[3])
        axes.axvline(even, color=theme.muted, linewidth=0.9, linestyle=":")
        axes.annotate(
            f"break-even {even:.2f}", (even, 0), xytext=(4, 6), textcoords="offset points",
            color=theme.muted, fontsize=8.5,
        )  # fmt: skip
        for name, (_, length, speed) in zip(_short([p[0] for p in points]), points, strict=True):
            if length is not None and speed is not None:
                axes.plot([length], [speed], "o", color=theme.series[2])
                style.label_end(axes, length, speed, name, theme.series[2], offset=(7, -9))
        axes.set_xlabel("accept length (tokens per cycle)")
        axes.set_xlim(1.0, most)
        axes.set_ylim(bottom=0.0)
        style.save(drawn, path)
    return True


def _known(plan: Plan) -> list[RankedLever]:
    active = [r for r in plan.levers if r.priority is not None and r.gain.candidate_throughput.value is not None]
    return active[:MOST_LEVERS]


def levers_plot(plan: Plan, path: Path) -> bool:
    """Forecast ranges of both arms per lever; ``False`` when no lever has a forecast."""
    ranked = _known(plan)
    if not ranked:
        return False
    economics = plan.situation.economics
    with style.look() as theme:
        mine, other = theme.series[2], theme.series[3]
        drawn, axes = style.figure(
            WIDTH, 1.35 + 0.55 * len(ranked), title="What each lever would bring", unit="tok/s", grid="x"
        )
        for place, one in enumerate(ranked):
            for offset, quantity, colour in (
                (-0.14, one.gain.candidate_throughput, mine),
                (0.14, one.gain.baseline_throughput, other),
            ):
                if quantity.value is None:
                    continue
                low = quantity.low if quantity.low is not None else quantity.value
                high = quantity.high if quantity.high is not None else quantity.value
                axes.plot([low, high], [place + offset] * 2, color=colour, linewidth=2.4, solid_capstyle="round")
                axes.plot([quantity.value], [place + offset], "o", color=colour)
        for quantity, colour, words in (
            (economics.throughput, mine, "speculation today"),
            (economics.baseline_throughput, other, "baseline today"),
        ):
            if quantity.value is not None:
                axes.axvline(quantity.value, color=colour, linewidth=1.0, linestyle=":")
                axes.plot([], [], "o-", color=colour, label=words.replace(" today", "") + " (dotted: today)")
        axes.set_yticks(range(len(ranked)), [style.text(r.lever.title, 44) for r in ranked])
        axes.invert_yaxis()
        axes.set_xlim(left=0.0)
        drawn.legend(loc="outside lower center", ncols=2)
        style.save(drawn, path)
    return True


def allreduce_plot(plan: Plan, path: Path) -> bool:
    """Time over message size: measured calls, their fit, NCCL's model, reference hosts; ``False`` without sizes."""
    points = [
        (
            run.name if call.transfer_is == "measured" else f"{run.name}, at most",
            call.message_bytes / KIB,
            call.mean_us if call.transfer_us is None else call.transfer_us,
        )
        for run in plan.runs
        for call in (run.attribution.collectives if run.attribution else ())
        if call.kind == "all_reduce" and call.message_bytes and call.phase in ("verify", "decode")
    ]
    if not points:
        return False
    largest = max(size for _, size, _ in points) * 1.3
    sizes = np.linspace(0.5, largest, 50)
    model = plan.situation.economics.nccl_model_per_call
    with style.look() as theme:
        drawn, axes = style.figure(WIDTH, 3.4, title="One all-reduce over its message size", unit="us per call")
        if plan.size_curve is not None:
            curve = plan.size_curve
            times = curve.alpha_us + curve.beta_us_per_kib * sizes
            axes.plot(sizes, times, color=theme.series[2])
            style.label_end(axes, largest, float(times[-1]), "these runs", theme.series[2])
        if model.low is not None and model.high is not None and "nccl" in plan.situation.implementations:
            axes.axhspan(model.low, model.high, color=theme.series[1], alpha=0.14, linewidth=0)
            style.label_end(axes, largest, (model.low * model.high) ** 0.5, "NCCL's model", theme.series[1])
        if (test := tested(plan.situation.candidate, plan.situation.baseline)) is not None:
            inside = [(size / KIB, time) for size, time in test.points if size / KIB <= largest]
            if inside:
                axes.plot(*zip(*inside, strict=True), color=theme.series[4], marker=".", linewidth=1.1)
                style.label_end(axes, *inside[-1], "nccl-tests here", theme.series[4])
        link, ranks = plan.situation.facts.text("link.kind"), plan.situation.facts.integer("parallel.tp")
        traced = plan.situation.candidate.attribution
        if link == "pcie" and ranks == 8 and not (traced is not None and traced.without_gpu):
            for name, colour in (
                ("nccl-8x-sm120-two-socket", theme.muted),
                ("pcie-ipc-8x-sm120-two-socket", theme.series[3]),
            ):
                reference = reference_curves()[name]
                times = reference.alpha_us + reference.beta_us_per_kib * sizes
                axes.plot(sizes, times, color=colour, linewidth=1.1, linestyle="--")
                words = "NCCL elsewhere" if name.startswith("nccl") else "PCIe-IPC elsewhere"
                style.label_end(axes, largest, float(times[-1]), words, colour)
        for name, (_, size, time) in zip(_short([p[0] for p in points]), points, strict=True):
            axes.plot([size], [time], "o", color=theme.series[2])
            style.label_end(axes, size, time, name, theme.series[2], offset=(7, -9))
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlim(0.0, largest)
        axes.set_xlabel("message (KiB per rank)")
        style.save(drawn, path)
    return True


PLOTS: tuple[tuple[str, str, Callable[[Plan, Path], bool]], ...] = (
    ("budget.svg", "Milliseconds of one cycle by what they are spent on, one bar per run", budget_plot),
    ("economics.svg", "Throughput over accept length, with the baseline and the break-even", economics_plot),
    ("levers.svg", "Forecast throughput of both arms for each lever", levers_plot),
    ("allreduce.svg", "Time of one all-reduce over its message size", allreduce_plot),
)
