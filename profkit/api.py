"""The public functions, re-exported lazily by :mod:`profkit`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profkit.analysis import RunAnalysis
from profkit.attribution import attribute
from profkit.comparison.launch import Launch, launch_of
from profkit.comparison.result import Comparison, Settings
from profkit.comparison.verdict import compare as compare_launches
from profkit.config import DEFAULT_STORE
from profkit.loading import load_run
from profkit.parsers.log import read_log
from profkit.parsers.trace import read_trace, read_traces
from profkit.pipeline import analyse, analyse_path
from profkit.projection import Change, project
from profkit.serving import summarise
from profkit.sources import compare_paths, load_launches
from profkit.speculation.economics import economics

__all__ = [
    "Change",
    "analyse",
    "analyse_path",
    "attribute",
    "compare",
    "economics",
    "load_run",
    "project",
    "read_log",
    "read_trace",
    "read_traces",
    "summarise",
]


def compare(
    base: str | Path | Sequence[RunAnalysis],
    candidate: str | Path | Sequence[RunAnalysis],
    settings: Settings | None = None,
) -> Comparison:
    """Compare two groups of server launches.

    Each side is what ``profkit compare`` takes (a run folder, a folder of repeats, ``store:SELECTION``) or a sequence
    of analysed runs, one per launch.

    Raises:
        InputError: a side is empty or unusable, or nothing was measured on both.
    """
    if isinstance(base, str | Path) and isinstance(candidate, str | Path):
        return compare_paths(base, candidate, settings)

    def launches(side: str | Path | Sequence[RunAnalysis]) -> Sequence[Launch]:
        if isinstance(side, str | Path):
            return load_launches(str(side), store=Path(DEFAULT_STORE)).launches
        return [launch_of(run) for run in side]

    return compare_launches(launches(base), launches(candidate), settings)
