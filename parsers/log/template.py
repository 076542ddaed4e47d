"""One layout of a batch line, matched on many lines at once with array operations.

A layout is the ordered list of keys; between them stand numbers. The text between the numbers is compared as 64-bit
words, the numbers are read digit by digit in parallel, all exactly as the general reader reads them: a line that
differs in any byte of the layout, or holds a number in another form, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from profkit.parsers.log.batch import BatchLine, Value
from profkit.parsers.log.rules import LineKind, fields

Index: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]
Mask: TypeAlias = npt.NDArray[np.bool_]

PADDING: Final = 128  # bytes behind the text that words may be read from
_COMMA: Final = 44
_POINT: Final = 46
_LONGEST_INT: Final = 16
_LONGEST_FLOAT: Final = 15
_U = np.uint64
_ZEROS, _SIXES, _HIGH = _U(0x3030303030303030), _U(0x4646464646464646), _U(0x8080808080808080)
_TRUE = int.from_bytes(b"True", "little")
_FALSE = int.from_bytes(b"False", "little")


@dataclass(frozen=True, slots=True)
class Text:
    """A block of text as arrays: its bytes, its 64-bit words at every byte, where its commas are."""

    raw: npt.NDArray[np.uint8]
    words: Words
    commas: Index

    @classmethod
    def of(cls, padded: bytes) -> Text:
        """Text from a block that ends with :data:`PADDING` zero bytes."""
        raw = np.frombuffer(padded, np.uint8)
        words: Words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
        commas = np.flatnonzero(raw == _COMMA)
        return cls(raw, words, np.append(commas, np.full(PADDING, len(padded) - PADDING)))


@dataclass(frozen=True, slots=True)
class Found:
    """Lines that fit: their numbers in the input arrays, and the values by column."""

    rows: Index
    values: Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Template:
    """The layout of one line: literal, value, literal, value ... tail."""

    kind: LineKind
    literals: tuple[bytes, ...]
    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    tail: bytes
    constants: tuple[tuple[str, Value], ...]
    sample: BatchLine

    @classmethod
    def learn(cls, line: BatchLine) -> Template | None:
        """The layout of a line that the general reader has read, or ``None`` if it is not one for this reader."""
        if line.damage is not None or line.extra or "iteration" in line.values or line.tail not in ("", ", ", ",", " "):
            return None
        known = fields(line.kind)
        columns: list[str] = []
        kinds: list[str] = []
        constants: list[tuple[str, Value]] = []
        for key in line.keys:
            rule = known.get(key)
            if rule is not None and rule.kind != "percent":
                columns.append(rule.column)
                kinds.append(rule.kind)
            elif key == f"{line.values.get('graph_kind')} graph":
                columns.append("cuda_graph")
                kinds.append("bool")
                constants.append(("graph_kind", line.values["graph_kind"]))
            else:
                return None
        if len(set(columns)) != len(columns) or len(columns) != len(line.values) - len(constants):
            return None  # two pools under one key (0.4.9), or a mixed batch
        literals = tuple(f"{', ' if number else ''}{key}: ".encode() for number, key in enumerate(line.keys))
        if any(literal.count(b",") != bool(number) for number, literal in enumerate(literals)):
            return None
        return cls(line.kind, literals, tuple(columns), tuple(kinds), line.tail.encode(), tuple(constants), line)

    def match(self, text: Text, start: Index, end: Index, first_comma: Index, commas: Index) -> Found:
        """Read the lines whose fields begin at ``start`` and end before ``end``.

        ``first_comma`` is the index of the first comma behind ``start``, ``commas`` their number in the line.
        """
        count = len(self.literals)
        rows = np.flatnonzero(commas == count - 1 + self.tail.count(b","))
        values: dict[str, npt.NDArray[Any]] = {}
        position = start[rows]
        for number, literal in enumerate(self.literals):
            good = _equal(text.words, position, literal)
            begin = position + len(literal)
            stop = text.commas[first_comma[rows] + number] if number < count - 1 else end[rows] - len(self.tail)
            value, readable = _READ[self.kinds[number]](text, begin, stop)
            good &= readable
            values[self.columns[number]] = value
            position = stop
            if not good.all():
                rows, position = rows[good], position[good]
                values = {name: found[good] for name, found in values.items()}
        good = _equal(text.words, position, self.tail)
        if not good.all():
            rows, values = rows[good], {name: found[good] for name, found in values.items()}
        return Found(rows, values)


def _equal(words: Words, position: Index, literal: bytes) -> Mask:
    good = np.ones(len(position), np.bool_)
    for offset in range(0, len(literal), 8):
        piece = literal[offset : offset + 8]
        found = words[position + offset]
        if len(piece) < 8:
            found = found & _U((1 << (8 * len(piece))) - 1)
        good &= found == _U(int.from_bytes(piece, "little"))
    return good


def digits(words: Words, begin: Index, width: Index) -> tuple[Index, Mask]:
    """Decimal integers of ``width`` 1 to 8 digits, and where these bytes are digits.

    The word is shifted so that the last digit comes last, the rest filled with zeros; then pairs, fours and eights of
    digits are combined, three multiplications for all of them.
    """
    shift = ((8 - width) * 8).astype(np.uint64)
    filled = (words[begin] << shift) | (_ZEROS & ((_U(1) << shift) - _U(1)))
    good = ((((filled + _SIXES) | (filled - _ZEROS)) & _HIGH) == 0) & (width >= 1) & (width <= 8)
    value = filled & _U(0x0F0F0F0F0F0F0F0F)
    value = (value * _U(2561)) >> _U(8)
    value = ((value & _U(0x00FF00FF00FF00FF)) * _U(6553601)) >> _U(16)
    value = ((value & _U(0x0000FFFF0000FFFF)) * _U(42949672960001)) >> _U(32)
    return value.astype(np.int64), good


def _integer(text: Text, begin: Index, stop: Index) -> tuple[Index, Mask]:
    width = stop - begin
    good = (width >= 1) & (width <= _LONGEST_INT)
    if int(width.max(initial=0)) <= 8:
        value, readable = digits(text.words, begin, np.clip(width, 1, 8))
        return value, good & readable
    low, readable = digits(text.words, np.maximum(stop - 8, begin), np.clip(width, 1, 8))
    high, above = digits(text.words, begin, np.clip(width - 8, 1, 8))
    long = width > 8
    return np.where(long, high * 100_000_000 + low, low), good & readable & (~long | above)


def _decimal(text: Text, begin: Index, stop: Index) -> tuple[npt.NDArray[np.float64], Mask]:
    """Numbers with exactly two decimals. hundredths / 100 rounds once, so it is the float nearest to the text."""
    width = stop - begin
    good = (width >= 4) & (width <= _LONGEST_FLOAT)
    point = np.maximum(stop - 3, begin)
    good &= text.raw[point] == _POINT
    whole, readable = _integer(text, begin, point)
    tenth, hundredth = text.raw[point + 1] - np.uint8(48), text.raw[point + 2] - np.uint8(48)
    good &= readable & (tenth <= 9) & (hundredth <= 9)
    hundredths = whole * 100 + tenth.astype(np.int64) * 10 + hundredth
    return hundredths / 100.0, good


def _boolean(text: Text, begin: Index, stop: Index) -> tuple[Mask, Mask]:
    width, words = stop - begin, text.words[begin]
    true = (width == 4) & ((words & _U(0xFFFFFFFF)) == _U(_TRUE))
    false = (width == 5) & ((words & _U(0xFFFFFFFFFF)) == _U(_FALSE))
    return true, true | false


_READ: Final[Mapping[str, Any]] = {"int": _integer, "float": _decimal, "bool": _boolean}
