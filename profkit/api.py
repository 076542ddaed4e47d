"""The public functions, re-exported lazily by :mod:`profkit`."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.analysis import RunAnalysis
from profkit.attribution import attribute
from profkit.comparison.launch import launch_of
from profkit.comparison.result import Comparison, Settings
from profkit.comparison.verdict import compare as compare_launches
from profkit.loading import load_run
from profkit.parsers.log import read_log
from profkit.parsers.trace import read_trace, read_traces
from profkit.pipeline import analyse, analyse_path
from profkit.projection import Change, project
from profkit.serving import summarise
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
    base: Sequence[RunAnalysis], candidate: Sequence[RunAnalysis], settings: Settings | None = None
) -> Comparison:
    """Compare two groups of analysed runs, each run one server launch; see :func:`profkit.comparison.verdict.compare`.

    Raises:
        InputError: a group is empty, or nothing was measured on both sides.
    """
    return compare_launches([launch_of(run) for run in base], [launch_of(run) for run in candidate], settings)
