"""The public functions, re-exported lazily by :mod:`profkit`."""

from __future__ import annotations

from profkit.attribution import attribute
from profkit.loading import load_run
from profkit.parsers.log import read_log
from profkit.parsers.trace import read_trace, read_traces
from profkit.pipeline import analyse, analyse_path
from profkit.projection import project

__all__ = ["analyse", "analyse_path", "attribute", "load_run", "project", "read_log", "read_trace", "read_traces"]
