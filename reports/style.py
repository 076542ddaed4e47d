"""One look for all matplotlib figures: theme, fonts, direct labels, and files whose bytes repeat.

    with style.look(style.LIGHT):
        figure, axes = style.figure(7.0, 3.0, title="Throughput", unit="tok/s")
        axes.plot(...)
        style.label_end(axes, x, y, "EAGLE-3", colour)
        style.save(figure, folder / "throughput.svg")

Works without pyplot and without a display. Text from files goes through :func:`text` first.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from profkit import escape, files
from profkit.reports.palette import (
    ACTIVITY_NAMES as ACTIVITY_NAMES,
)  # fmt: skip
from profkit.reports.palette import (
    DARK as DARK,
)
from profkit.reports.palette import (
    HEADLINE_NAMES as HEADLINE_NAMES,
)
from profkit.reports.palette import (
    LIGHT as LIGHT,
)
from profkit.reports.palette import (
    PHASE_NAMES as PHASE_NAMES,
)
from profkit.reports.palette import (
    THEMES as THEMES,
)
from profkit.reports.palette import (
    Theme as Theme,
)
from profkit.reports.palette import (
    text_on as text_on,
)

DPI: Final = 144
# What a browser takes when DejaVu Sans is not installed: metrics are nearest to Verdana's.
_FALLBACK: Final = "'DejaVu Sans', Verdana, 'Segoe UI', sans-serif"
# To decide whether a label fits into a bar before the layout is known, in inches.
_PLOT_SHARE: Final = 0.85
_LETTER: Final = 0.072


def _settings(theme: Theme) -> dict[Any, Any]:
    return {
        "svg.hashsalt": "profkit",
        "svg.fonttype": "none",
        "font.family": "DejaVu Sans",
        "font.size": 9.5,
        "text.color": theme.text,
        "figure.facecolor": theme.background,
        "savefig.facecolor": theme.background,
        "axes.facecolor": theme.background,
        "axes.edgecolor": theme.muted,
        "axes.labelcolor": theme.muted,
        "axes.titlecolor": theme.text,
        "axes.titlesize": 10.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.titlepad": 10.0,
        "axes.labelsize": 9.0,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.unicode_minus": True,
        "axes.prop_cycle": cycler(color=list(theme.series)),
        "grid.color": theme.grid,
        "grid.linewidth": 0.7,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "xtick.major.size": 3.0,
        "ytick.major.size": 0.0,
        "lines.linewidth": 1.8,
        "lines.markersize": 5.0,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "hatch.linewidth": 0.6,
        "hatch.color": theme.muted,
    }


@contextlib.contextmanager
def look(theme: Theme = LIGHT) -> Iterator[Theme]:
    """Draw and save inside this context to get the look; matplotlib's own settings come back after it."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_settings(theme))
        yield theme


def text(value: str, limit: int = 60) -> str:
    """Text from a file as a label: one line, no control characters, and a dollar starts no mathematics."""
    return escape.visible(value, limit).replace("$", r"\$")


def figure(
    width: float,
    height: float,
    *,
    title: str | None = None,
    unit: str | None = None,
    grid: Literal["x", "y", "both"] | None = "y",
) -> tuple[Figure, Axes]:
    """A figure of ``width`` x ``height`` inches with one panel; ``unit`` labels the value axis (that of the grid)."""
    drawn, panels = grid_of(1, width, height, grid=grid)
    axes = panels[0]
    if title:
        axes.set_title(title)
    if unit:
        (axes.set_xlabel if grid == "x" else axes.set_ylabel)(unit)
    return drawn, axes


def grid_of(
    panels: int, width: float, height: float, *, columns: int = 1, grid: Literal["x", "y", "both"] | None = "y"
) -> tuple[Figure, list[Axes]]:
    """A figure of ``panels`` equal panels; surplus places of the last row stay empty."""
    drawn = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    rows = -(-panels // columns)
    places = list(drawn.subplots(rows, columns, squeeze=False).flatten())
    for axes in places[:panels]:
        if grid:
            axes.grid(visible=True, axis=grid)
    for axes in places[panels:]:
        axes.set_axis_off()
    return drawn, places[:panels]


def label_end(axes: Axes, x: float, y: float, words: str, colour: str, *, offset: tuple[float, float] = (6, 0)) -> None:
    """Write the name of a line or point beside its end, in its colour: no legend to look up."""
    axes.annotate(
        words, (x, y), xytext=offset, textcoords="offset points", color=colour, va="center", ha="left",
        fontsize=8.5, annotation_clip=False,
    )  # fmt: skip


def stacked_bar(
    axes: Axes,
    place: float,
    parts: Sequence[tuple[str, float, str]],
    *,
    total: float,
    height: float = 0.62,
) -> None:
    """A horizontal bar of (name, value, colour) segments; a segment is named inside where it is wide enough.

    ``total`` is the longest bar of the panel; the axis is made to reach a little beyond it.
    """
    axes.set_xlim(0.0, (total or 1.0) * 1.02)
    drawn = axes.get_figure(root=True)
    inches = (drawn.get_figwidth() if drawn is not None else 6.0) * _PLOT_SHARE
    left = 0.0
    for words, value, colour in parts:
        axes.barh(place, value, height, left=left, color=colour, edgecolor=axes.get_facecolor(), linewidth=0.8)
        if value / (total or 1.0) * inches >= _LETTER * (len(words) + 1):
            axes.text(
                left + value / 2,
                place,
                words,
                ha="center",
                va="center",
                fontsize=8,
                color=text_on(colour),
                clip_on=True,
            )
        left += value


def svg(drawn: Figure) -> str:
    """The figure as SVG text, the same for the same figure; text stays text."""
    buffer = io.StringIO()
    FigureCanvasAgg(drawn)
    drawn.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    made = buffer.getvalue()
    return made.replace("font-family: 'DejaVu Sans'", f"font-family: {_FALLBACK}").replace(
        "px 'DejaVu Sans'", f"px {_FALLBACK}"
    )


def png(drawn: Figure) -> bytes:
    """The figure as PNG at twice the usual screen density, the same for the same figure."""
    buffer = io.BytesIO()
    FigureCanvasAgg(drawn)
    drawn.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def save(drawn: Figure, path: Path, *, force: bool = True) -> None:
    """Write ``path`` as SVG or PNG by its suffix, atomically; call it inside :func:`look`.

    Raises:
        ValueError: another suffix.
        UsageError: the file exists and ``force`` is false, or cannot be written.
    """
    if path.suffix == ".svg":
        files.write_text(path, svg(drawn), force=force)
    elif path.suffix == ".png":
        with files.writing(path, force=force) as temporary:
            temporary.write_bytes(png(drawn))
    else:
        raise ValueError(f"figures are SVG or PNG, not {path.suffix or 'without a suffix'}")
