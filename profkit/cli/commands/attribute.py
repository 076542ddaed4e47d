"""``profkit attribute``: traces of all ranks in, every decode cycle split by phase and activity."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli.console import Messages, colour_wanted, terminal_width
from profkit.cli.options import (
    ForceOption,
    Format,
    FormatOption,
    JobsOption,
    NoCacheOption,
    OutputOption,
    QuietOption,
    VerboseOption,
    examples,
)
from profkit.errors import InputError

if TYPE_CHECKING:
    from profkit.analysis import RunAnalysis
    from profkit.attribution import Attribution
    from profkit.trace import Trace


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "attribute",
        short_help="Split every decode cycle by phase and activity.",
        epilog=examples(
            "profkit attribute runs/eagle3",
            "profkit attribute traces/*.trace.json.gz",
            "profkit attribute runs/eagle3 -f parquet --table calls -o calls.parquet",
        ),
    )(attribute)


def attribute(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", help="Trace files of all ranks, or folders that hold them.")
    ],
    form: FormatOption = Format.TABLE,
    output: OutputOption = None,
    table: Annotated[
        str | None,
        typer.Option("--table", "-t", help="One table instead of the summary: parts, cycles, segments or calls."),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", help="Also draw plots into this folder.", file_okay=False)
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write one self-contained page to this file.", dir_okay=False)
    ] = None,
    force: ForceOption = False,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Split every decode cycle, on every rank, into draft, verify compute, all-reduce and idle."""
    from profkit.cli.sinks import refuse_terminal

    form, table = _checked(form, table)
    refuse_terminal(form, output)
    messages = Messages(quiet, verbose)
    one_folder = len(paths) == 1 and Path(paths[0]).is_dir()
    analysis, traces = (
        _run(paths[0], messages, jobs, not no_cache) if one_folder else _files(paths, messages, jobs, not no_cache)
    )
    result = analysis.attribution
    if result is None:
        raise InputError(
            f"{paths[0]}: no trace that can be attributed in this folder; profile the server while it decodes"
        )
    drawn: dict[str, str] = {}
    if plots is not None:
        from profkit.reports.attribution_plots import draw

        drawn = {caption: str(plots / name) for caption, name in draw(result, plots, force=force).items()}
        messages.note(f"plots: {', '.join(drawn.values()) or 'none, since no cycle is counted'}")
    if html is not None:
        from profkit.export.page import page_content
        from profkit.files import write_text
        from profkit.reports.html import render

        write_text(html, render(page_content(analysis, traces=traces)), force=force)
        messages.note(f"wrote {html}")
    _write(result, form, output, table, drawn, force=force)
    for problem in (p for info in result.inputs for p in info.problems):
        messages.detail(str(problem))
    if form not in (Format.TABLE, Format.MARKDOWN):
        for warning in result.warnings:
            messages.warn(warning)


TABLES = ("parts", "cycles", "segments", "calls")
AS_TABLE = (Format.CSV, Format.JSONL, Format.PARQUET)


def _checked(form: Format, table: str | None) -> tuple[Format, str | None]:
    """Form and table that will be written, before any file is read; a table's own form is csv, csv's table is parts."""
    from profkit.errors import UsageError

    if table is None:
        return form, "parts" if form in AS_TABLE else None
    if table not in TABLES:
        raise UsageError(f"no table {table!r}; the attribution has {', '.join(TABLES)}")
    if form is Format.MARKDOWN:
        raise UsageError("a table has no markdown form; choose csv, json, jsonl or parquet")
    return (Format.CSV if form is Format.TABLE else form), table


def _run(path: str, messages: Messages, jobs: int | None, cache: bool) -> tuple[RunAnalysis, tuple[Trace, ...]]:
    """A run folder: its facts size the collectives, its log checks the cycle time."""
    from profkit.pipeline import load_and_analyse

    with messages.progress("reading", 1.0) as advance:
        run, analysis = load_and_analyse(path, jobs=jobs, cache=cache, progress=advance)
    for warning in analysis.warnings:
        messages.warn(warning)
    return analysis, run.traces


def _files(
    paths: Sequence[str], messages: Messages, jobs: int | None, cache: bool
) -> tuple[RunAnalysis, tuple[Trace, ...]]:
    from profkit.analysis import RunAnalysis
    from profkit.cli.attributed import attributed

    result, facts, traces = attributed(paths, messages, jobs, cache=cache)
    name = Path(paths[0]).name if len(paths) == 1 else f"{len(result.inputs)} traces"
    return RunAnalysis(name, paths[0], None, None, facts, None, result), traces


def _write(
    result: Attribution, form: Format, output: Path | None, table: str | None, drawn: dict[str, str], *, force: bool
) -> None:
    from profkit.cli.sinks import write

    if table is not None:
        from profkit.tableio import write_table

        chosen = getattr(result, table)
        write(
            output,
            lambda sink: write_table(chosen.schema, chosen.to_batches(), sink, form.value, name=table),
            force=force,
        )
        return
    text = _rendered(result, form, output, drawn)
    write(output, lambda sink: sink.write(text.encode()), force=force)


def _rendered(result: Attribution, form: Format, output: Path | None, drawn: dict[str, str]) -> str:
    if form is Format.JSON:
        from profkit.jsonio import dumps

        return dumps(result)
    from profkit.reports.attribution import as_markdown, terminal

    if form is Format.MARKDOWN:
        import os

        page = output.parent if output is not None else Path()
        return as_markdown(result, plots={c: Path(os.path.relpath(p, page)).as_posix() for c, p in drawn.items()})
    if output is not None:
        return terminal(result)
    return terminal(result, colour=colour_wanted(), width=terminal_width())
