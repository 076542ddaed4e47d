"""Plots of a log's summary: throughput and accept length over time, step time against batch size."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from pathlib import Path, PurePath

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from profkit.reports.palette import Theme
from profkit.reports.style import grid_of, label_end, look, save, text
from profkit.serving.result import BatchRow, LogSummary, ServerSummary

_WIDTH, _PANEL, _BATCH_PANEL = 9.0, 2.5, 3.6
_MOST_SERVERS = 6
# Points this many times farther apart than usual were not one stretch of decoding.
SILENT = 5.0


def plot_log(summary: LogSummary, folder: Path, *, force: bool = False) -> list[Path]:
    """Write ``log_over_time.png`` and ``step_time.png``; returns the files written, none when nothing was decoded.

    Raises:
        UsageError: a file exists and ``force`` is false, or cannot be written.
    """
    servers = [server for server in summary.servers if server.by_batch][:_MOST_SERVERS]
    if not servers:
        return []
    paths = [folder / "log_over_time.png", folder / "step_time.png"]
    with look() as theme:
        save(_over_time(servers, theme), paths[0], force=force)
        save(_step_time(servers, theme), paths[1], force=force)
    return paths


def _name(server: ServerSummary) -> str:
    how = server.algorithm or ("no speculation" if server.speculative is False else "speculation unknown")
    file = PurePath((server.start_line or "").rpartition(":")[0])
    place = file.parent.name or file.name or "server"
    return text(f"{place} {server.server}: {how}", 40)


def _over_time(servers: Sequence[ServerSummary], theme: Theme) -> Figure:
    quantities = [("gen_throughput_tok_s", "Throughput", "tok/s")]
    if any(_known(server.series.get("accept_len", ())) for server in servers):
        quantities.append(("accept_len", "Accept length", "tokens per step"))
    drawn, panels = grid_of(len(quantities), _WIDTH, _PANEL * len(quantities) + 0.4)
    for axes, (key, title, unit) in zip(panels, quantities, strict=True):
        axes.set_title(title)
        axes.set_ylabel(unit)
        for number, server in enumerate(servers):
            _line(axes, server, key, theme.series[1:][number % (len(theme.series) - 1)], len(servers) > 1)
        axes.set_ylim(bottom=1.0 if key == "accept_len" else 0.0)
        axes.margins(x=0.02)
    clocked = all(_known(server.series.get("time_s", ())) for server in servers)
    panels[-1].set_xlabel("seconds since the first line" if clocked else "stretches of the log")
    return drawn


def _line(axes: Axes, server: ServerSummary, key: str, colour: str, several: bool) -> None:
    values = server.series.get(key, ())
    times = server.series.get("time_s", ())
    points = [
        (time if time is not None else float(at), value)
        for at, (time, value) in enumerate(zip(times, values, strict=True))
        if value is not None
    ]
    if not points:
        return
    drawn = _broken(points)
    axes.plot([p[0] for p in drawn], [p[1] for p in drawn], color=colour, marker="o", ms=3, lw=1.4)
    if several:
        label_end(axes, points[-1][0], points[-1][1], _name(server), colour)


def _broken(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points with a hole wherever the server was silent: a line across would claim that it went on decoding."""
    gaps = [b[0] - a[0] for a, b in itertools.pairwise(points)]
    longest = SILENT * statistics.median(gaps) if gaps else 0.0
    result = [points[0]]
    for gap, point in zip(gaps, points[1:], strict=True):
        result += [(point[0], math.nan), point] if gap > longest else [point]
    return result


def _known(values: Sequence[float | None]) -> bool:
    return any(value is not None for value in values)


def _step_time(servers: Sequence[ServerSummary], theme: Theme) -> Figure:
    drawn, (axes,) = grid_of(1, _WIDTH, _BATCH_PANEL)
    axes.set_title("Step time by batch size")
    axes.set_xlabel("running requests per DP rank")
    axes.set_ylabel("ms (median, 10 to 90 %)")
    highest = 0.0
    for number, server in enumerate(servers):
        colour = theme.series[1:][number % (len(theme.series) - 1)]
        rows = [row for row in server.by_batch if row.step_ms.p50 is not None]
        highest = max(highest, _points(axes, rows, colour))
        if rows and len(servers) > 1:
            label_end(axes, rows[-1].running_req, rows[-1].step_ms.p50 or 0.0, _name(server), colour)
    loads = [row.running_req for server in servers for row in server.by_batch if row.step_ms.p50 is not None]
    if loads:
        axes.set_xlim(0.0, max(loads) * 1.04 + 0.5)  # a single load would get ticks of hundredths of a request
    if highest:
        axes.set_ylim(0.0, highest * 1.08)
    else:
        axes.text(0.5, 0.5, "unknown: the log shows no accept length", transform=axes.transAxes, ha="center")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return drawn


def _points(axes: Axes, rows: Sequence[BatchRow], colour: str) -> float:
    highest = 0.0
    xs, ys, below, above = [], [], [], []
    for row in rows:
        spread = row.step_ms
        if spread.p50 is None or spread.p10 is None or spread.p90 is None:
            continue
        xs.append(row.running_req)
        ys.append(spread.p50)
        below.append(spread.p50 - spread.p10)
        above.append(spread.p90 - spread.p50)
        highest = max(highest, spread.p90)
    axes.errorbar(xs, ys, yerr=[below, above], color=colour, fmt="o", ms=4, lw=1.0, capsize=2)
    return highest
