"""``profkit parse``: server logs, benchmark results and NCCL output as a summary or as tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from profkit.cli.console import Messages, colour_wanted
from profkit.cli.options import ForceOption, Format, FormatOption, OutputOption, QuietOption, VerboseOption, examples
from profkit.errors import UsageError

if TYPE_CHECKING:
    from profkit.serving.result import LogSummary


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "parse",
        short_help="Say what the numbers in server logs mean.",
        epilog=examples(
            "profkit parse server.log",
            "zcat server.log.gz | profkit parse -",
            "profkit parse runs/eagle3 --table decode -f csv -o decode.csv",
        ),
    )(parse)


def parse(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", help="Logs, run folders, quoted globs, or - for stdin.")
    ],
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            "-t",
            help="One table instead of the summary: decode, prefill, request, event, server, "
            "bench, nccl; of a trace: gpu_ops, launches, annotations, ...",
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
    output: OutputOption = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", metavar="DIR", help="Also draw throughput, accept length and step time.")
    ] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Read server logs of any SGLang release and say what the numbers mean."""
    from profkit.cli.inputs import expand
    from profkit.cli.sinks import refuse_terminal, write
    from profkit.parsers.sniff import is_trace

    _check(form, table, plots)
    if table is not None:
        refuse_terminal(form, output)
    messages = Messages(quiet, verbose)
    files = expand(paths, messages.note)
    if len(files) == 1 and Path(files[0]).is_file() and is_trace(files[0]):
        from profkit.cli.trace_tables import show

        if plots is not None:
            raise UsageError(f"{files[0]}: a trace has no plots here; profkit attribute --plots draws its cycles")
        show(files[0], table, form, output, force=force)
        return
    if table is not None:
        write_log_table(files, table, form, output, messages, force=force)
        return
    if form in AS_TABLE:
        raise UsageError(f"a summary has no {form} form; choose a table with --table, or --format json")
    summary = _summary(files, messages)
    write(output, lambda sink: sink.write(_rendered(summary, form, to_terminal=output is None)), force=force)
    for warning in summary.warnings if form is not Format.TABLE else ():
        messages.warn(warning)
    if plots is not None:
        from profkit.reports.log_plots import plot_log

        written = plot_log(summary, plots, force=force)
        messages.note(
            f"wrote {', '.join(map(str, written))}" if written else "nothing was decoded, so nothing is drawn"
        )


AS_TABLE = (Format.CSV, Format.PARQUET, Format.JSONL)


def _check(form: Format, table: str | None, plots: Path | None) -> None:
    """What makes no sense whatever the files hold."""
    if table is None:
        return
    if plots is not None:
        raise UsageError("--plots goes with the summary, not with --table")
    if form is Format.MARKDOWN:
        raise UsageError("a table has no markdown form; choose csv, json, jsonl or parquet")


def write_log_table(
    files: Sequence[str], name: str, form: Format, output: Path | None, messages: Messages, *, force: bool
) -> None:
    """Stream one table to the output."""
    from profkit import tables
    from profkit.cli.inputs import shown_names
    from profkit.cli.sinks import write
    from profkit.errors import InputError
    from profkit.parsers.log.reading import LogStream, nothing_known
    from profkit.serving.stream import interpreted
    from profkit.tableio import write_table

    if name not in tables.LOG_TABLES:
        raise UsageError(f"no table {name!r}; logs have {', '.join(tables.LOG_TABLES)}")
    wanted = Format.CSV if form is Format.TABLE else form
    with messages.progress("reading", _total(files)) as advance:
        stream = LogStream(files, names=shown_names(files), progress=advance)
        batches = (batch for found, batch in interpreted(stream) if found == name)
        # Nothing is written before something is known: a file that is no log must not become an empty table.
        first = next(batches, None)
        if first is None and all(file.kind == "unknown" for file in stream.files):
            raise InputError(nothing_known(stream.files))
        rows = chain([first], batches) if first is not None else iter(())
        write(output, lambda sink: write_table(tables.LOG_TABLES[name], rows, sink, wanted, name=name), force=force)
    for file in stream.files:
        for problem in file.problems:
            messages.warn(f"{file.path}: {problem}")


def _summary(files: Sequence[str], messages: Messages) -> LogSummary:
    from profkit.cli.inputs import shown_names
    from profkit.errors import InputError
    from profkit.parsers.log.reading import LogStream, nothing_known
    from profkit.serving.stream import summarise_stream

    with messages.progress("reading", _total(files)) as advance:
        stream = LogStream(files, names=shown_names(files), progress=advance)
        summary = summarise_stream(stream)
    if not summary.servers and not summary.bench and all(file.kind == "unknown" for file in summary.inputs):
        raise InputError(nothing_known(stream.files))
    return summary


def _rendered(summary: LogSummary, form: Format, *, to_terminal: bool) -> bytes:
    if form is Format.JSON:
        from profkit.jsonio import dumps

        return dumps(summary).encode()
    from profkit.reports.log_summary import as_markdown, terminal

    if form is Format.MARKDOWN:
        return as_markdown(summary).encode()
    return terminal(summary, colour=to_terminal and colour_wanted()).encode()


def _total(files: Sequence[str]) -> float | None:
    sizes: list[Any] = [Path(f).stat().st_size if f != "-" and Path(f).is_file() else None for f in files]
    return None if None in sizes else float(sum(sizes))
