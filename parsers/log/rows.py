"""Rows collected in Python lists, turned into Arrow record batches of a fixed schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa


class Rows:
    """Rows of one table; a column that a row does not name is null."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._rows: list[Mapping[str, Any]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row; maps may be dicts."""
        self._rows.append(row)

    def take(self) -> pa.RecordBatch:
        """All rows as one batch; the collection is empty afterwards."""
        rows, self._rows = self._rows, []
        return pa.RecordBatch.from_arrays([self._column(field, rows) for field in self.schema], schema=self.schema)

    @staticmethod
    def _column(field: Any, rows: list[Mapping[str, Any]]) -> Any:
        values = [row.get(field.name) for row in rows]
        if pa.types.is_map(field.type):
            values = [list(v.items()) if isinstance(v, Mapping) else v for v in values]
        if pa.types.is_dictionary(field.type):
            return pa.array(values, pa.string()).dictionary_encode().cast(field.type)
        if pa.types.is_timestamp(field.type):
            micros = [None if v is None else round(v * 1e6) for v in values]
            return pa.array(micros, pa.int64()).cast(field.type)
        return pa.array(values, field.type)
