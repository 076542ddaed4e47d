"""Columns of exact integers: nanoseconds from the decimal text of microseconds, identifiers of any spelling."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_INTEGER = re.compile(r"-?\d+")
_LOW, _HIGH = -(1 << 63), (1 << 63) - 1
_DOT, _NEWLINE, _ZERO, _NINE = b".\n09"
_MAX_DIGITS = 16  # before the point; three decimals more fit into 64 bits, or the cast says that they do not


def to_nanoseconds(text: bytes) -> int | None:
    """Microseconds as JSON text (a number, or a string that holds one) to integer nanoseconds.

    Digits beyond the nanosecond are cut. ``None`` when there is no finite number.
    """
    try:
        number = Decimal(text.decode("utf-8").strip().strip('"'))
        value = int(number * 1000)
    except (ArithmeticError, ValueError):
        return None
    return value if _LOW <= value <= _HIGH else None


def nanoseconds(texts: Sequence[Any]) -> pa.Array[Any]:
    """A column of :func:`to_nanoseconds` of bytes-like ``texts``, none of which holds a line break."""
    count = len(texts)
    if not count:
        return pa.array([], pa.int64())
    joined = b"\n".join(texts) + b"\n"
    fast = _plain_decimals(np.frombuffer(joined, np.uint8), count)
    if fast is not None:
        return fast
    return pa.array([to_nanoseconds(bytes(t)) for t in texts], pa.int64())


def _plain_decimals(data: np.ndarray[Any, Any], count: int) -> pa.Array[Any] | None:
    """Numbers of digits with at most one dot and three decimals, one a line; ``None`` if there is anything else."""
    breaks, dots = data == _NEWLINE, data == _DOT
    marks = breaks | dots
    ends, points = np.flatnonzero(breaks), np.flatnonzero(dots)
    digits: Any = data[~marks]
    if ends.size != count or not digits.size or digits.min() < _ZERO or digits.max() > _NINE:
        return None
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    decimals = np.zeros(count, np.int64)
    if points.size:
        rows = np.searchsorted(ends, points)
        if points.size > count or (np.diff(rows) == 0).any() or (points == starts[rows]).any():
            return None
        decimals[rows] = ends[rows] - points - 1
        dotted = np.zeros(count, np.int64)
        dotted[rows] = 1
        if (decimals[rows] == 0).any():
            return None
    else:
        dotted = decimals
    lengths = ends - starts - dotted
    if decimals.max() > 3 or lengths.min() < 1 or (lengths - decimals).max() > _MAX_DIGITS:
        return None
    offsets: Any = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    text = pa.Array.from_buffers(pa.utf8(), count, [None, pa.py_buffer(offsets), pa.py_buffer(digits)])
    try:
        values: np.ndarray[Any, Any] = pc.cast(text, pa.int64()).to_numpy()
    except pa.ArrowInvalid:  # beyond 64 bits
        return None
    if decimals.min() < 3:
        scale = 10 ** (3 - decimals)
        if (values > _HIGH // scale).any():
            return None
        values = values * scale
    return pa.array(values, pa.int64())


def to_integer(value: Any) -> int | None:
    """An integer written as int, as a float without fraction or as decimal text; else ``None``."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = int(value) if len(value) < 25 and _INTEGER.fullmatch(value) and value.isascii() else None
    elif isinstance(value, float):
        value = int(value) if value.is_integer() else None
    return value if isinstance(value, int) and _LOW <= value <= _HIGH else None


def integers(values: list[Any]) -> pa.Array[Any]:
    """A column of :func:`to_integer`."""
    try:
        return pa.array(values, pa.int64())
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return pa.array([to_integer(v) for v in values], pa.int64())


def names(values: list[str | None]) -> pa.Array[Any]:
    """A dictionary-encoded column of strings."""
    return pa.array(values, pa.string()).dictionary_encode()
