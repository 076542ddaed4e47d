"""profkit: where the time of an LLM server's decode cycles goes, and what to do about it."""

from __future__ import annotations

from profkit._version import __version__

TYPE_CHECKING = False  # typing itself waits too: importing it takes longer than all before the first interrupt handler
if TYPE_CHECKING:
    from typing import Any

    from profkit.api import (
        Change,
        analyse,
        analyse_path,
        attribute,
        compare,
        economics,
        load_run,
        project,
        read_log,
        read_trace,
        read_traces,
        summarise,
    )

__all__ = [
    "Change",
    "__version__",
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


def __getattr__(name: str) -> Any:
    # Heavy imports wait until a function is used: the command line imports this package first.
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("profkit.api"), name)
    raise AttributeError(f"module 'profkit' has no attribute {name!r}")
