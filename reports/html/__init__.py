"""One self-contained HTML page about a run."""

from profkit.reports.html.page import render as render

__all__ = ["render"]
