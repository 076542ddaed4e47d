"""Tables out: CSV, JSON, JSON lines, Parquet, in bounded memory."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import IO, Any

import pyarrow as pa

from profkit.escape import csv_cell
from profkit.jsonio import plain


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        maps = [f.name for f in batch.schema if pa.types.is_map(f.type)]
        for row in batch.to_pylist():
            for name in maps:
                if row[name] is not None:
                    row[name] = dict(row[name])
            yield row


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return csv_cell(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return csv_cell(";".join(str(v) for v in value))
    if isinstance(value, dict):
        return json.dumps(plain(value), ensure_ascii=False) if value else ""
    cell = plain(value)
    return "" if cell is None else str(cell)


def write_table(schema: pa.Schema, batches: Iterable[pa.RecordBatch], sink: IO[bytes], form: str, *, name: str) -> int:
    """Write record batches as they come; returns the number of rows.

    ``form`` is ``csv``, ``jsonl``, ``json`` (the document ``profkit.table/1``) or ``parquet``.
    Strings that a spreadsheet would run as a formula are quoted in CSV.

    Raises:
        ValueError: unknown ``form``.
    """
    rows = 0
    if form == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        return rows
    text = io.TextIOWrapper(sink, encoding="utf-8", newline="", write_through=False)
    try:
        if form == "csv":
            table = csv.writer(text, lineterminator="\n")
            table.writerow(schema.names)
            for row in _rows(batches):
                table.writerow([_cell(v) for v in row.values()])
                rows += 1
        elif form == "jsonl":
            for row in _rows(batches):
                text.write(json.dumps(plain(row), ensure_ascii=False, allow_nan=False) + "\n")
                rows += 1
        elif form == "json":
            head = json.dumps({"schema": "profkit.table/1", "table": name}, ensure_ascii=False)
            text.write(head[:-1] + ', "rows": [')
            for row in _rows(batches):
                text.write(",\n" if rows else "\n")
                text.write(json.dumps(plain(row), ensure_ascii=False, allow_nan=False))
                rows += 1
            text.write("\n]}\n")
        else:
            raise ValueError(f"unknown table format {form!r}")
        text.flush()
    finally:
        text.detach()
    return rows
