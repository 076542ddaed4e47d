"""Tables out: CSV, JSON, JSON lines, Parquet, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Final

import pyarrow as pa

from profkit.tabletext import CsvText, JsonText, lines

# Rows turned into text at once, and the bytes that they may take.
_SLICE: Final = 32_768
_ROOM: Final = 32 << 20


def write_table(schema: pa.Schema, batches: Iterable[pa.RecordBatch], sink: IO[bytes], form: str, *, name: str) -> int:
    """Write record batches as they come; returns the number of rows.

    ``form`` is ``csv``, ``jsonl``, ``json`` (the document ``profkit.table/1``) or ``parquet``.
    Strings that a spreadsheet would run as a formula are quoted in CSV.

    Raises:
        ValueError: unknown ``form``.
    """
    if form == "parquet":
        return _parquet(schema, batches, sink)
    if form == "csv":
        text = CsvText()
        sink.write((",".join(text.string(column) for column in schema.names) + "\n").encode())
        between = ["", *[","] * (len(schema.names) - 1), "\n"]
        return sum(_write(batches, text.column, between, sink))
    if form not in ("jsonl", "json"):
        raise ValueError(f"unknown table format {form!r}")
    keys = [f"{json.dumps(column, ensure_ascii=False)}: " for column in schema.names]
    inner = [f"{', ' if n else ''}{key}" for n, key in enumerate(keys)] or [""]
    if form == "jsonl":
        return sum(_write(batches, JsonText().column, ["{" + inner[0], *inner[1:], "}\n"], sink))
    head = json.dumps({"schema": "profkit.table/1", "table": name}, ensure_ascii=False)
    sink.write((head[:-1] + ', "rows": [').encode())
    rows = sum(_write(batches, JsonText().column, [",\n{" + inner[0], *inner[1:], "}"], sink, skip=1))
    sink.write(b"\n]}\n")
    return rows


def _parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch], sink: IO[bytes]) -> int:
    import pyarrow.parquet as pq

    rows = 0
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _write(
    batches: Iterable[pa.RecordBatch],
    convert: Callable[[Any], Any],
    between: list[str],
    sink: IO[bytes],
    *,
    skip: int = 0,
) -> Iterator[int]:
    """Write each batch as text without the first ``skip`` bytes of all; yields the rows written."""
    for batch in batches:
        for part in _parts(batch):
            text = lines([convert(part.column(n)) for n in range(part.num_columns)], between, part.num_rows)
            sink.write(text[skip:])
            skip = 0
            yield part.num_rows


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices whose text stays small, also where many rows share one long string."""
    width = 1
    column: Any
    for column in batch.columns:
        if pa.types.is_dictionary(column.type) and len(column.dictionary):
            width += max(1, column.dictionary.nbytes // len(column.dictionary), _longest(column.dictionary))
    rows = max(1, min(_SLICE, _ROOM // width))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _longest(strings: Any) -> int:
    import pyarrow.compute as pc

    is_text = pa.types.is_string(strings.type) or pa.types.is_large_string(strings.type)
    return (pc.max(pc.binary_length(strings)).as_py() or 0) if is_text else 0
