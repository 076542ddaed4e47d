"""Columns of exact integers: nanoseconds from the decimal text of microseconds, identifiers of any spelling."""

from __future__ import annotations

import contextlib
import re
from array import array
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
_Positions: TypeAlias = np.ndarray[Any, np.dtype[np.intp]]

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
        return integers([])
    joined = b"\n".join(texts) + b"\n"
    data = np.frombuffer(joined, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    found = None
    if ends.size == count:
        found = _three_decimals(joined, data, ends)
        if found is None:
            found = _plain_decimals(data, ends)
    return integers([to_nanoseconds(bytes(t)) for t in texts]) if found is None else found


def _three_decimals(joined: bytes, data: _Bytes, ends: _Positions) -> pa.Array[Any] | None:
    """Lines that all end in a dot and three digits, as today's profilers write them; ``None`` otherwise."""
    count = ends.size
    if int(ends[0]) < 4 or joined.count(b".") != count or not (data[ends - 4] == _DOT).all():
        return None
    # Without dots and line breaks the text of a line is its number of nanoseconds.
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:] = ends - 2 * np.arange(count) - 1
    return _cast(joined.translate(None, b".\n"), offsets)


def _cast(digits: Any, offsets: Any) -> pa.Array[Any] | None:
    """Integers from adjacent texts; ``None`` when one is no integer or beyond 64 bits."""
    text = pa.Array.from_buffers(pa.utf8(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(digits)])
    try:
        return pc.cast(text, pa.int64())
    except pa.ArrowInvalid:
        return None


def _plain_decimals(data: _Bytes, ends: _Positions) -> pa.Array[Any] | None:
    """Lines of digits with at most one dot and three decimals; ``None`` if there is anything else."""
    count = ends.size
    dots = data == _DOT
    points = np.flatnonzero(dots)
    digits = data[~(dots | (data == _NEWLINE))]
    if not digits.size or digits.min() < _ZERO or digits.max() > _NINE:
        return None
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    decimals, dotted = np.zeros(count, np.int64), np.zeros(count, np.int64)
    if points.size:
        rows = np.searchsorted(ends, points)
        if (np.diff(rows) == 0).any() or (points == starts[rows]).any():
            return None
        decimals[rows] = ends[rows] - points - 1
        dotted[rows] = 1
        if (decimals[rows] == 0).any():
            return None
    lengths = ends - starts - dotted
    if decimals.max() > 3 or lengths.min() < 1 or (lengths - decimals).max() > _MAX_DIGITS:
        return None
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    found = _cast(digits, offsets)
    if found is None or decimals.min() == 3:
        return found
    values, scale = found.to_numpy(), 10 ** (3 - decimals)
    return None if (values > _HIGH // scale).any() else _array(pa.int64(), values * scale)


def to_integer(value: Any) -> int | None:
    """An integer written as int, as a float without fraction or as decimal text; else ``None``."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = int(value) if len(value) < 25 and _INTEGER.fullmatch(value) and value.isascii() else None
    elif isinstance(value, float):
        value = int(value) if value.is_integer() else None
    return value if isinstance(value, int) and _LOW <= value <= _HIGH else None


def integers(values: Sequence[Any]) -> pa.Array[Any]:
    """A column of :func:`to_integer`; ``values`` holds no truth values."""
    with contextlib.suppress(TypeError, OverflowError):  # it takes nothing but integers of 64 bits
        return _array(pa.int64(), array("q", values))
    absent = [v is None for v in values]
    if all(absent):
        return _array(pa.int64(), np.zeros(len(values), np.int64), np.ones(len(values), np.bool_))
    with contextlib.suppress(TypeError, OverflowError):
        return _array(pa.int64(), array("q", [0 if v is None else v for v in values]), np.array(absent))
    known = [to_integer(v) for v in values]
    return _array(pa.int64(), array("q", [v or 0 for v in known]), np.array([v is None for v in known]))


def strings(values: Sequence[str | None]) -> pa.Array[Any]:
    """A column of text."""
    encoded = [b"" if v is None else v.encode() for v in values]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(e) for e in encoded], out=offsets[1:])
    absent = np.fromiter([v is None for v in values], np.bool_, len(values))
    return _array(pa.utf8(), offsets, absent, b"".join(encoded))


def _array(kind: pa.DataType, data: Any, absent: Any = None, text: bytes | None = None) -> pa.Array[Any]:
    """An array over numpy's memory. (``pa.array`` would import pandas, which takes longer than most traces.)"""
    validity, nulls = None, 0
    if absent is not None and absent.any():
        validity, nulls = pa.py_buffer(np.packbits(~absent, bitorder="little").tobytes()), int(absent.sum())
    buffers = [validity, pa.py_buffer(data)] + ([] if text is None else [pa.py_buffer(text)])
    return pa.Array.from_buffers(kind, len(data) - (text is not None), buffers, nulls)


class Names(dict[str | None, int]):
    """A dictionary-encoded column under construction: text to code, codes in order of first appearance."""

    def __missing__(self, name: str | None) -> int:
        if name is None:
            return -1
        code = self[name] = len(self)
        return code

    def codes(self, values: Sequence[str | None]) -> pa.Array[Any]:
        """The codes of a chunk of values; null where there is no text."""
        found = np.fromiter(map(self.__getitem__, values), np.int32, len(values))
        return _array(pa.int32(), found, found < 0)

    def column(self, codes: pa.Array[Any]) -> pa.Array[Any]:
        """The finished column of all codes."""
        return pa.DictionaryArray.from_arrays(codes, strings(list(self)))
