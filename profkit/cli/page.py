"""Writing the HTML page from a run: shared by the commands that offer one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profkit.analysis import RunAnalysis
    from profkit.cli.console import Messages
    from profkit.run import Run

DEFAULT_CYCLES = ("median", "worst")


def load(path: str, messages: Messages, jobs: int | None, cache: bool = True) -> tuple[Run, RunAnalysis]:
    """A run and its analysis.

    Raises:
        InputError: nothing usable at ``path``.
    """
    from profkit.pipeline import load_and_analyse

    with messages.progress(f"reading {path}", 1.0) as advance:
        return load_and_analyse(path, jobs=jobs, cache=cache, progress=advance)


def write_page(
    run: str,
    baseline: str | None,
    output: Path,
    messages: Messages,
    *,
    plan: Mapping[str, Any] | None = None,
    cycles: Sequence[str] | None = None,
    force: bool = False,
    jobs: int | None = None,
    cache: bool = True,
) -> None:
    """Analyse both runs and write the page to ``output``.

    Raises:
        InputError: a run cannot be used.
        UsageError: no such cycle, or ``output`` exists and ``force`` is false.
    """
    from profkit.export.page import page_content
    from profkit.files import write_text
    from profkit.reports.html import render

    loaded, analysis = load(run, messages, jobs, cache)
    other = load(baseline, messages, jobs, cache)[1] if baseline is not None else None
    for arm in (analysis, other) if other is not None else (analysis,):
        for warning in arm.warnings:
            messages.warn(f"{arm.name}: {warning}")
    chosen = tuple(cycles or DEFAULT_CYCLES)
    text = render(page_content(analysis, traces=loaded.traces, baseline=other, plan=plan, cycles=chosen))
    write_text(output, text, force=force)
    messages.note(f"wrote {output}, {len(text) / 1e6:.2f} MB")
