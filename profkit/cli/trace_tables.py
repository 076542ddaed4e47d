"""Tables of one trace for ``profkit parse``."""

from __future__ import annotations

from pathlib import Path

from profkit.cli.options import Format
from profkit.cli.sinks import write
from profkit.errors import UsageError


def show(path: str, table: str | None, form: Format, output: Path | None, *, force: bool) -> None:
    """Write one table of a trace, or say which there are."""
    from profkit.parsers.trace import read_trace
    from profkit.tableio import write_table
    from profkit.tables import TRACE_TABLES

    if table is not None and table not in TRACE_TABLES:
        raise UsageError(f"no table {table!r}; traces have {', '.join(TRACE_TABLES)}")
    if table is None and form is not Format.TABLE:
        raise UsageError(f"{path}: a trace has no {form} form as a whole; choose a table with --table")
    trace = read_trace(path, frames=table == "frames")
    if table is None:
        there = [name for name in TRACE_TABLES if name != "frames"]
        sizes = "".join(f"  {name:<12} {trace.table(name).num_rows:>10} rows\n" for name in there)
        text = f"{trace.info.path}: a {trace.info.kind} trace; choose a table with --table\n{sizes}"
        write(output, lambda sink: sink.write(text.encode()), force=force)
        return
    found = trace.table(table)
    wanted = "csv" if form is Format.TABLE else form.value
    write(
        output,
        lambda sink: write_table(found.schema, found.unify_dictionaries().to_batches(), sink, wanted, name=table),
        force=force,
    )
