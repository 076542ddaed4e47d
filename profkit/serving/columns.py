"""Columns of Arrow tables as numpy arrays, with an explicit value for null."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = pa.Table | pa.RecordBatch

# The library takes more kinds of arguments than its type hints say.
pc: Any = pa.compute


def column(rows: Rows, name: str) -> Any:
    """A column as one Arrow array."""
    values: Any = rows.column(name)
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def floats(rows: Rows, name: str) -> Floats:
    """Numbers; NaN where null."""
    return np.asarray(column(rows, name).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def integers(rows: Rows, name: str, missing: int) -> Integers:
    """Integers; ``missing`` where null."""
    filled = pc.fill_null(column(rows, name).cast(pa.int64()), missing)
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)


def booleans(rows: Rows, name: str, missing: bool) -> Mask:
    """Truth values; ``missing`` where null."""
    return np.asarray(pc.fill_null(column(rows, name), missing).to_numpy(zero_copy_only=False), np.bool_)


def known(rows: Rows, name: str) -> Mask:
    """Where a column is not null."""
    return np.asarray(pc.is_valid(column(rows, name)).to_numpy(zero_copy_only=False), np.bool_)


def codes(rows: Rows, name: str) -> tuple[Integers, list[str]]:
    """A text column as numbers into a list of its values; -1 where null."""
    values = column(rows, name)
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    numbers = pc.fill_null(values.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return np.asarray(numbers, np.int64), list(values.dictionary.to_pylist())


def flagged(rows: Rows, names: Sequence[str]) -> Mask:
    """Rows whose list column ``flags`` holds one of the names."""
    flags = column(rows, "flags")
    found = np.zeros(rows.num_rows, np.bool_)
    hits = pc.is_in(flags.flatten(), value_set=pa.array(list(names), pa.string()))
    found[pc.list_parent_indices(flags).filter(hits).to_numpy(zero_copy_only=False)] = True
    return found


def groups_of(columns: Sequence[Integers]) -> Iterator[tuple[tuple[int, ...], Integers]]:
    """Row numbers, in order, of each distinct combination of values; combinations in ascending order."""
    count = len(columns[0])
    if not count:
        return
    varying = [c for c in columns if c[0] != c[-1] or (c != c[0]).any()]
    if not varying:
        yield tuple(int(c[0]) for c in columns), np.arange(count)
        return
    code = np.zeros(count, np.int64)
    for values in varying:
        distinct, number = np.unique(values, return_inverse=True)
        # Dense numbers at every step: they never exceed the number of rows.
        code = np.unique(code * len(distinct) + number.reshape(-1), return_inverse=True)[1].reshape(-1)
    order = np.argsort(code, kind="stable")
    bounds = np.flatnonzero(np.append(True, np.diff(code[order]) != 0))
    for first, last in zip(bounds.tolist(), [*bounds[1:].tolist(), count], strict=True):
        rows = order[first:last]
        yield tuple(int(c[rows[0]]) for c in columns), rows
