"""The text forms of tables, written cell by cell: slow, and plain to read. The product must write the same bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import pyarrow as pa

from profkit.escape import csv_cell
from profkit.jsonio import plain


def _texts(batches: Iterable[pa.RecordBatch], convert: Callable[[Any], str]) -> Iterator[list[tuple[str, ...]]]:
    for batch in batches:
        columns = [_column(batch.column(n), convert) for n in range(batch.num_columns)]
        yield list(zip(*columns, strict=True))


def _column(values: Any, convert: Callable[[Any], str]) -> list[str]:
    is_map = pa.types.is_map(values.type)
    return [convert(dict(value) if is_map and value is not None else value) for value in values.to_pylist()]


def _json(value: Any) -> str:
    if type(value) is float and value - value == 0:  # what json.dumps does with a finite float, without its cost
        return repr(plain(value))
    if type(value) is int:
        return str(value)
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


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
        return csv_cell(json.dumps(plain(value), ensure_ascii=False)) if value else ""
    cell = plain(value)
    return "" if cell is None else str(cell)


def write_table(schema: pa.Schema, batches: Iterable[pa.RecordBatch], sink: IO[bytes], form: str, *, name: str) -> None:
    """Write record batches as ``csv``, ``jsonl`` or ``json``."""
    text = io.TextIOWrapper(sink, encoding="utf-8", newline="")
    rows = [row for part in _texts(batches, _cell if form == "csv" else _json) for row in part]
    if form == "csv":
        table = csv.writer(text, lineterminator="\n")
        table.writerow(schema.names)
        table.writerows(rows)
    else:
        keys = [_json(column) for column in schema.names]
        objects = ["{" + ", ".join(f"{key}: {cell}" for key, cell in zip(keys, row, strict=True)) + "}" for row in rows]
        if form == "json":
            head = json.dumps({"schema": "profkit.table/1", "table": name}, ensure_ascii=False)
            text.write(head[:-1] + ', "rows": [' + ",".join("\n" + one for one in objects) + "\n]}\n")
        else:
            text.writelines(one + "\n" for one in objects)
    text.flush()
    text.detach()
