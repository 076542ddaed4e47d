"""Tables out: CSV, JSON, JSON lines, Parquet, in bounded memory."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa

from profkit.escape import csv_cell
from profkit.jsonio import plain

_SLICE: Final = 16_384
_NESTED: Final = (pa.types.is_list, pa.types.is_large_list, pa.types.is_map, pa.types.is_struct)


def _texts(batches: Iterable[pa.RecordBatch], convert: Callable[[Any], str]) -> Iterator[list[tuple[str, ...]]]:
    """Cells as text, some rows at a time; each distinct value of a column is converted once per stretch."""
    for batch in batches:
        for start in range(0, batch.num_rows, _SLICE):
            part = batch.slice(start, _SLICE)
            columns = [_column(part.column(n), convert) for n in range(part.num_columns)]
            yield list(zip(*columns, strict=True))


def _column(values: Any, convert: Callable[[Any], str]) -> list[str]:
    if any(test(values.type) for test in _NESTED):
        return _nested(values, convert)
    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    texts = [convert(value) for value in coded.dictionary.to_pylist()]
    found = np.array([*texts, convert(None)], object)
    indices = coded.indices.cast(pa.int64()).fill_null(len(texts)).to_numpy(zero_copy_only=False)
    return list(found[indices])


def _nested(values: Any, convert: Callable[[Any], str]) -> list[str]:
    as_dict = pa.types.is_map(values.type)
    if (as_dict or pa.types.is_list(values.type)) and not values.null_count:
        ends = values.offsets
        if not len(values) or ends[0].as_py() == ends[len(values)].as_py():
            return [convert({} if as_dict else [])] * len(values)
    return [convert(dict(v) if as_dict and v is not None else v) for v in values.to_pylist()]


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
            for part in _texts(batches, _cell):
                table.writerows(part)
                rows += len(part)
        elif form in ("jsonl", "json"):
            keys = [f"{_json(column)}: " for column in schema.names]
            whole = form == "json"
            if whole:
                head = json.dumps({"schema": "profkit.table/1", "table": name}, ensure_ascii=False)
                text.write(head[:-1] + ', "rows": [')
            before, after = ("\n", "") if whole else ("", "\n")
            for part in _texts(batches, _json):
                for row in part:
                    cells = ", ".join([key + cell for key, cell in zip(keys, row, strict=True)])
                    text.write(f"{',' if whole and rows else ''}{before}{{{cells}}}{after}")
                    rows += 1
            if whole:
                text.write("\n]}\n")
        else:
            raise ValueError(f"unknown table format {form!r}")
        text.flush()
    finally:
        text.detach()
    return rows
