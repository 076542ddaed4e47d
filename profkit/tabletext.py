"""Columns of a table as text, a whole column at a time: cells of CSV and values of JSON."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit.escape import FORMULA_START, csv_cell
from profkit.jsonio import SIGNIFICANT_DIGITS, plain

_ROUNDED: Final = 10.0 ** (
    SIGNIFICANT_DIGITS - 1
)  # a number scaled to this or more, below ten times it, has all digits
_POWERS: Final = np.array([float(f"1e{n}") for n in range(23)])  # those a float holds exactly
_YEAR_1, _YEAR_9999 = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (1, 9999))
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000}


class Text(ABC):
    """How the values of a column are written. A column that reads the same in all rows comes as one ``str``."""

    null: str

    @abstractmethod
    def string(self, value: str) -> str:
        """A string as it is written."""

    @abstractmethod
    def strings(self, values: Any) -> Any:
        """The same for an array without nulls."""

    @abstractmethod
    def other(self, value: Any) -> str:
        """A list, a map or a value of a rare type."""

    @abstractmethod
    def stamps(self, values: Any) -> Any:
        """Times in ISO 8601 as they are written."""

    def column(self, values: Any) -> Any:
        """An Arrow array of any type as an array of strings without nulls, or the one text of all its rows."""
        kind = values.type
        if values.null_count == len(values):
            return self.null
        if pa.types.is_nested(kind):
            return self._nested(values)
        if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
            ends = pc.min_max(values)
            if not values.null_count and ends["min"] == ends["max"]:
                values = values.slice(0, 1)
            texts = pc.fill_null(pc.cast(values, pa.string()), self.null)
            return texts[0].as_py() if len(texts) == 1 else texts
        coded = values if pa.types.is_dictionary(kind) else values.dictionary_encode()
        texts = self._values(coded.dictionary)
        if len(texts) == 1 and not values.null_count:
            return texts[0].as_py()
        return pc.fill_null(texts.take(coded.indices), self.null)

    def _values(self, values: Any) -> Any:
        """Distinct values as an array of strings."""
        kind = values.type
        plain_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if plain_text and not values.null_count:
            return self.strings(pc.cast(values, pa.string()))
        if kind in (pa.float64(), pa.float32()) and not values.null_count:
            return _floats(pc.cast(values, pa.float64()), self.null)
        if pa.types.is_timestamp(kind) and kind.tz is None and kind.unit in _PER_SECOND and not values.null_count:
            stamps = _iso(values)
            if stamps is not None:
                return self.stamps(stamps)
        return pa.array([self.other(value) for value in values.to_pylist()], pa.string())

    def _nested(self, values: Any) -> Any:
        """Lists, maps and structures; most rows of a log have the empty one, which is converted once."""
        as_map = pa.types.is_map(values.type)
        if not (as_map or pa.types.is_list(values.type)):
            return pa.array([self.other(value) for value in values.to_pylist()], pa.string())
        ends = values.offsets.to_numpy()
        filled = np.flatnonzero((np.diff(ends) > 0) & values.is_valid().to_numpy(zero_copy_only=False))
        empty = self.other({} if as_map else [])
        if not len(filled) and not values.null_count:
            return empty
        texts = pc.if_else(values.is_valid(), empty, self.null)
        if not len(filled):
            return texts
        found = None if as_map else _distinct(values, ends, filled)
        if found is None:
            found = pa.array(np.arange(len(filled))), filled
        which, rows = found
        known: dict[str, str] = {}
        made = []
        for value in values.take(pa.array(rows)).to_pylist():
            key = repr(value)
            if key not in known:
                known[key] = self.other(dict(value) if as_map else value)
            made.append(known[key])
        mask = np.zeros(len(values), bool)
        mask[filled] = True
        shown: Any = pa.array(made, pa.string())
        return pc.replace_with_mask(texts, pa.array(mask), shown.take(which))


class CsvText(Text):
    """Cells of CSV, quoted where they must be; unknown is the empty cell."""

    null = ""
    # A formula, a cell to be quoted, and whatever is not plain ASCII: for those the cell is made one by one.
    _odd = f'^[{re.escape("".join(FORMULA_START))}]|[",]|[^ -~]'

    def string(self, value: str) -> str:
        """A cell that no spreadsheet runs as a formula and no terminal obeys."""
        cell = csv_cell(value)
        return '"' + cell.replace('"', '""') + '"' if re.search('[",\n]', cell) else cell

    def strings(self, values: Any) -> Any:
        """Cells of an array of strings."""
        return _mended(values, self._odd, self.string)

    def other(self, value: Any) -> str:
        """Lists with semicolons, maps as JSON, times in ISO 8601."""
        if isinstance(value, list):
            return self.string(";".join(str(v) for v in value))
        if isinstance(value, dict):
            return self.string(json.dumps(plain(value), ensure_ascii=False)) if value else ""
        if isinstance(value, bool):
            return "true" if value else "false"
        cell = plain(value)
        return self.string(cell) if isinstance(value, str) else "" if cell is None else str(cell)

    def stamps(self, values: Any) -> Any:
        """Times stand as they are."""
        return values


class JsonText(Text):
    """Values of JSON; unknown is null."""

    null = "null"

    def string(self, value: str) -> str:
        """A quoted string."""
        return json.dumps(value, ensure_ascii=False)

    def strings(self, values: Any) -> Any:
        """Quoted strings of an array."""
        return _mended(values, r'["\\\x00-\x1f]', self.string, self.stamps)

    def other(self, value: Any) -> str:
        """Any value as JSON."""
        return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)

    def stamps(self, values: Any) -> Any:
        """Times are strings that need no escape."""
        return pc.binary_join_element_wise('"', values, '"', "")


def lines(columns: Sequence[Any], between: Sequence[str], rows: int) -> Any:
    """Rows as UTF-8 bytes: ``between[0]``, the first column, ``between[1]``, the second and so on to the end.

    Args:
        columns: per column an array of ``rows`` strings without nulls, or the one text of all rows.
        between: texts before each column, and one behind the last.
    """
    pieces: list[Any] = [between[0]]
    for column, behind in zip(columns, between[1:], strict=True):
        if isinstance(column, str) and isinstance(pieces[-1], str):
            pieces[-1] += column
        else:
            pieces.append(column)
        if isinstance(pieces[-1], str):
            pieces[-1] += behind
        else:
            pieces.append(behind)
    if len(pieces) == 1:
        return pieces[0].encode() * rows
    joined = pc.binary_join_element_wise(*pieces, "")  # the last argument is the separator
    _, ends, data = joined.buffers()
    spans = np.frombuffer(ends, np.int32)[joined.offset : joined.offset + rows + 1]
    return memoryview(data)[spans[0] : spans[-1]]


def _distinct(values: Any, ends: Any, filled: Any) -> tuple[Any, Any] | None:
    """Of the ``filled`` rows of a column of short lists: which distinct list each holds, and a row with each of them.

    ``None`` where a list cannot be told from the numbers of its members put behind each other.
    """
    first, last = int(ends[0]), int(ends[-1])
    kind = values.type.value_type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
        return None
    coded = values.values.slice(first, last - first).dictionary_encode()
    # 0: no member there; 1: null.
    members = np.append(pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 2, 0)
    starts, lengths = ends[filled].astype(np.int64) - first, (ends[filled + 1] - ends[filled]).astype(np.int64)
    base, longest = len(coded.dictionary) + 2, int(lengths.max())
    if base**longest >= 1 << 62:
        return None
    key = np.zeros(len(filled), np.int64)
    for place in range(longest):
        key = key * base + members[np.where(place < lengths, starts + place, -1)]
    _, rows, which = np.unique(key, return_index=True, return_inverse=True)
    return pa.array(which.reshape(-1)), filled[rows]


def _mended(values: Any, pattern: str, mend: Callable[[str], str], ordinary: Callable[[Any], Any] | None = None) -> Any:
    """``mend`` of the strings in which ``pattern`` occurs, ``ordinary`` of the others."""
    odd = pc.match_substring_regex(values, pattern)
    texts = values if ordinary is None else ordinary(values)
    if not odd.true_count:
        return texts
    mended = [mend(value) for value in values.filter(odd).to_pylist()]
    return pc.replace_with_mask(texts, odd, pa.array(mended, pa.string()))


def _floats(values: Any, null: str) -> Any:
    """Numbers as Python writes them, rounded like in every document; what is not finite is unknown."""
    numbers = _rounded(values.to_numpy(zero_copy_only=False))
    size = np.abs(numbers)
    # Between these bounds Arrow and Python both write decimals without an exponent.
    simple = ((size >= 1e-4) & (size < 1e10)) | (size == 0)
    whole = simple & (np.floor(size) == size)
    if whole.all() and not np.signbit(numbers).any():
        return pc.binary_join_element_wise(pc.cast(pa.array(numbers.astype(np.int64)), pa.string()), ".0", "")
    texts = pc.cast(pa.array(np.where(simple, numbers, 0.0)), pa.string())
    if whole.any():
        texts = pc.binary_join_element_wise(texts, pc.if_else(pa.array(whole), ".0", ""), "")
    if simple.all():
        return texts
    rare = [repr(n) if np.isfinite(n) else null for n in numbers[~simple].tolist()]
    return pc.replace_with_mask(texts, pa.array(~simple), pa.array(rare, pa.string()))


def _rounded(numbers: Any) -> Any:
    """To 12 significant digits: the same floats as printing and reading back gives.

    A float times or divided by an exact power of ten is off by less than 1e-4 here, so only a number that is nearly
    half way between two results can round to the wrong one; the integer over the power is then the nearest float.
    """
    size = np.abs(numbers)
    with np.errstate(all="ignore"):
        places = SIGNIFICANT_DIGITS - 1 - np.floor(np.log10(size))
        sure = np.abs(places) < len(_POWERS)
        power = _POWERS[np.where(sure, np.abs(places), 0).astype(np.int64)]
        up = places >= 0
        scaled = np.where(up, size * power, size / power)
        digits = np.rint(scaled)
        sure &= (digits >= _ROUNDED) & (digits <= 10 * _ROUNDED) & (np.abs(scaled - np.floor(scaled) - 0.5) > 1e-3)
        rounded = np.copysign(np.where(up, digits / power, digits * power), numbers)
    rounded = np.where(sure, rounded, numbers)
    rest = ~sure & np.isfinite(numbers) & (size > 0)
    rounded[rest] = [plain(n) for n in numbers[rest].tolist()]
    return rounded


def _iso(values: Any) -> Any | None:
    """Times as ``datetime.isoformat`` writes them; None where a year has not four digits."""
    per_second = _PER_SECOND[values.type.unit]
    ticks = pc.cast(values, pa.int64()).to_numpy()
    if len(ticks) and (ticks.min() < _YEAR_1 * per_second or ticks.max() >= _YEAR_9999 * per_second):
        return None
    whole = ticks % per_second == 0
    seconds = pc.cast(pa.array((ticks // per_second).astype("datetime64[s]")), pa.string())
    texts = (
        seconds
        if whole.all()
        else pc.if_else(whole, seconds, pc.cast(pc.cast(values, pa.timestamp("us")), pa.string()))
    )
    return pc.replace_substring(texts, " ", "T")
