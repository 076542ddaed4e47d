"""Batch lines of one block, read with array operations wherever their prefix and layout are plain.

Everything else is left to the general reader, line by line; both give the same rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profkit.parsers.log.batch import read_batch
from profkit.parsers.log.prefix import Prefix, read_standard
from profkit.parsers.log.rules import LineKind
from profkit.parsers.log.template import PADDING, Index, Mask, Template, Text, digits

_U = np.uint64
_NEWLINE, _RETURN, _BRACKET, _POINT = 10, 13, 93, 46
_DATE_LENGTH: Final = 20  # [2026-01-02 03:04:05
_LONGEST_RANKS: Final = 40
_MOST_TEMPLATES: Final = 32
_NEW_PER_BLOCK: Final = 8
_RANKS = re.compile(rb"(?: [A-Z][A-Z_]*\d{1,5})*\Z")


def _word(text: bytes) -> np.uint64:
    return _U(int.from_bytes(text, "little"))


# "] Decode batch, " and "] Prefill batch, " as words; the separator may be a full stop.
_STARTS: Final[dict[LineKind, tuple[np.uint64, tuple[np.uint64, ...], int]]] = {
    "decode": (_word(b"] Decode"), (_word(b" batch, "), _word(b" batch. ")), 16),
    "prefill": (_word(b"] Prefil"), (_word(b"l batch,"), _word(b"l batch.")), 17),
}
_ACCESS = _word(b"] INFO: ")


@dataclass(slots=True)
class Matched:
    """Lines of one kind and layout: positions in the block, values, and which prefix group each has."""

    template: Template
    lines: Index  # line of the block, from 0
    values: dict[str, npt.NDArray[Any]]
    times: npt.NDArray[np.float64]
    groups: Index


@dataclass(slots=True)
class FastBlock:
    """What was read of a block, and the lines that the general reader has to read."""

    matched: list[Matched] = field(default_factory=list)
    prefixes: list[Prefix] = field(default_factory=list)  # by group
    rest: list[tuple[int, bytes]] = field(default_factory=list)  # (line of the block, text)
    skipped: int = 0


class FastReader:
    """Learns the layouts of a file and reads the lines that have one."""

    def __init__(self) -> None:
        self._templates: list[Template] = []
        self._days: dict[bytes, float | None] = {}

    def read(self, data: bytes) -> FastBlock:
        """Read a block of whole lines."""
        result = FastBlock()
        padded = data + b"\0" * PADDING
        text = Text.of(padded)
        ends = np.flatnonzero(text.raw[: len(data)] == _NEWLINE)
        starts = np.append(0, ends + 1)[: len(ends)]
        taken = np.zeros(len(ends), np.bool_)
        brackets = np.flatnonzero(text.raw[: len(data)] == _BRACKET)
        words = text.words[brackets]
        for kind, (first, seconds, length) in _STARTS.items():
            found = brackets[words == first]
            second = text.words[found + 8]
            good = (second == seconds[0]) | (second == seconds[1])
            if kind == "prefill":
                good &= text.raw[found + 16] == 32
            self._read_kind(kind, text, data, found[good], length, starts, ends, taken, result)
        access = brackets[words == _ACCESS]
        lines = np.searchsorted(ends, access)
        lines, access = lines[lines < len(ends)], access[lines < len(ends)]
        # Access lines: a date in brackets, no ranks. They say nothing that is kept.
        plain = (access - starts[lines] == _DATE_LENGTH) & (text.raw[starts[lines]] == 91)
        plain &= ~taken[lines]
        result.skipped = int(plain.sum())
        taken[lines[plain]] = True
        self._leave(data, starts, ends, taken, result)
        return result

    def _read_kind(
        self,
        kind: LineKind,
        text: Text,
        data: bytes,
        brackets: Index,
        length: int,
        starts: Index,
        ends: Index,
        taken: Mask,
        result: FastBlock,
    ) -> None:
        lines = np.searchsorted(ends, brackets)
        inside = lines < len(ends)
        lines, brackets = lines[inside], brackets[inside]
        times, groups, good = self._prefixes(text, data, starts[lines], brackets, result)
        lines, brackets, times, groups = lines[good], brackets[good], times[good], groups[good]
        body = brackets + length
        stop = ends[lines]
        stop = stop - (text.raw[np.maximum(stop - 1, 0)] == _RETURN)
        first_comma = np.searchsorted(text.commas, body)
        commas = np.searchsorted(text.commas, stop) - first_comma
        pending = np.arange(len(lines))
        for template in [t for t in self._templates if t.kind == kind]:
            pending = self._match(
                template, text, pending, lines, body, stop, first_comma, commas, times, groups, taken, result
            )
        for _ in range(_NEW_PER_BLOCK):
            if not len(pending) or len(self._templates) >= _MOST_TEMPLATES:
                break
            row = int(pending[0])
            message = data[int(brackets[row]) + 2 : int(stop[row])]
            template_or_none = Template.learn(read_batch(kind, message))
            pending = pending[1:] if template_or_none is None or self._known(template_or_none) else pending
            if template_or_none is None or self._known(template_or_none):
                continue
            self._templates.append(template_or_none)
            pending = self._match(
                template_or_none, text, pending, lines, body, stop, first_comma, commas, times, groups, taken, result
            )

    def _known(self, template: Template) -> bool:
        return any(
            t.kind == template.kind and t.literals == template.literals and t.tail == template.tail
            for t in self._templates
        )

    @staticmethod
    def _match(
        template: Template,
        text: Text,
        pending: Index,
        lines: Index,
        body: Index,
        stop: Index,
        first_comma: Index,
        commas: Index,
        times: npt.NDArray[np.float64],
        groups: Index,
        taken: Mask,
        result: FastBlock,
    ) -> Index:
        if not len(pending):
            return pending
        found = template.match(text, body[pending], stop[pending], first_comma[pending], commas[pending])
        if not len(found.rows):
            return pending
        rows = pending[found.rows]
        taken[lines[rows]] = True
        result.matched.append(Matched(template, lines[rows], dict(found.values), times[rows], groups[rows]))
        left = np.ones(len(pending), np.bool_)
        left[found.rows] = False
        return pending[left]

    def _prefixes(
        self, text: Text, data: bytes, starts: Index, brackets: Index, result: FastBlock
    ) -> tuple[npt.NDArray[np.float64], Index, Mask]:
        """Times and prefix groups of lines that begin with a date in brackets; where they do so."""
        words = text.words
        ranks_at = starts + _DATE_LENGTH
        good = (brackets >= ranks_at) & (text.raw[starts] == 91)
        milliseconds, has_fraction, ok = _fractions(text, ranks_at)
        good &= ok
        ranks_at = ranks_at + 4 * has_fraction
        width = brackets - ranks_at
        good &= (width >= 0) & (width <= _LONGEST_RANKS)
        seconds, clock = _clock(words, starts + 12)
        good &= clock
        days, dated = self._dates(words, data, starts, good)
        good &= dated
        groups, known = _rank_groups(text, data, starts, ranks_at, width, has_fraction, good, result)
        return days + (seconds + milliseconds / 1000.0), groups, good & known

    def _dates(
        self, words: npt.NDArray[np.uint64], data: bytes, starts: Index, good: Mask
    ) -> tuple[npt.NDArray[np.float64], Mask]:
        """Seconds since 1970 of the day of each line."""
        days = np.full(len(starts), np.nan)
        if not len(starts):
            return days, good
        # [2026-01 and -02 and the blank behind it.
        head, rest = words[starts], words[starts + 8] & _U(0xFFFFFFFF)
        change = np.flatnonzero(np.append(True, (head[1:] != head[:-1]) | (rest[1:] != rest[:-1])))
        bounds = np.append(change, len(starts))
        for number, first in enumerate(change.tolist()):
            key = data[int(starts[first]) : int(starts[first]) + 12]
            if key not in self._days:
                prefix = read_standard(key + b"00:00:00] ")
                self._days[key] = prefix.time if prefix is not None and prefix.dated else None
            day = self._days[key]
            if day is not None:
                days[first : bounds[number + 1]] = day
        return days, ~np.isnan(days)

    @staticmethod
    def _leave(data: bytes, starts: Index, ends: Index, taken: Mask, result: FastBlock) -> None:
        rest = np.flatnonzero(~taken)
        for line, start, end in zip(rest.tolist(), starts[rest].tolist(), ends[rest].tolist(), strict=True):
            result.rest.append((line, data[start:end]))
        tail = int(ends[-1]) + 1 if len(ends) else 0
        if tail < len(data):
            result.rest.append((len(ends), data[tail:]))


def _fractions(text: Text, at: Index) -> tuple[npt.NDArray[np.float64], Index, Mask]:
    """Milliseconds behind the seconds, where there are any."""
    fraction = text.raw[at] == _POINT
    if not fraction.any():
        return np.zeros(len(at)), np.zeros(len(at), np.int64), np.ones(len(at), np.bool_)
    value, good = digits(text.words, at + 1, np.full(len(at), 3))
    return np.where(fraction, value, 0).astype(np.float64), fraction.astype(np.int64), ~fraction | good


def _clock(words: npt.NDArray[np.uint64], at: Index) -> tuple[npt.NDArray[np.float64], Mask]:
    """Seconds of the day from ``hh:mm:ss``."""
    clock = words[at]
    colons = _U(0x0000FF0000FF0000)
    good = (clock & colons) == _U(0x00003A00003A0000)
    # Colons become the digit 0: hh0mm0ss.
    value, valid = digits((clock & ~colons) | _U(0x0000300000300000), np.arange(len(at)), np.full(len(at), 8))
    hours, minutes, seconds = value // 1_000_000, value // 1000 % 100, value % 100
    good &= valid & (hours <= 23) & (minutes <= 59) & (seconds <= 60)
    return (hours * 3600 + minutes * 60 + seconds).astype(np.float64), good


def _rank_groups(
    text: Text, data: bytes, starts: Index, at: Index, width: Index, fraction: Index, good: Mask, result: FastBlock
) -> tuple[Index, Mask]:
    """A number per distinct text between time and bracket, and where that text is a list of ranks."""
    groups = np.zeros(len(at), np.int64)
    known = np.zeros(len(at), np.bool_)
    rows = np.flatnonzero(good)
    if not len(rows):
        return groups, known
    pieces = [width[rows].astype(np.uint64) * _U(2) + fraction[rows].astype(np.uint64)]
    for offset in range(0, _LONGEST_RANKS, 8):
        left = np.clip(width[rows] - offset, 0, 8)
        if not left.any():
            break
        mask = np.where(left >= 8, _U(0xFFFFFFFFFFFFFFFF), (_U(1) << (left * 8).astype(np.uint64)) - _U(1))
        pieces.append(text.words[np.where(left > 0, at[rows] + offset, 0)] & mask)
    mixed = np.zeros(len(rows), np.uint64)
    for piece in pieces:
        mixed = (mixed ^ piece) * _U(0x9E3779B97F4A7C15)
    _, first, inverse = np.unique(mixed, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    same = np.ones(len(rows), np.bool_)
    for piece in pieces:  # two texts with one hash: the second is left to the general reader
        same &= piece == piece[first][inverse]
    numbers = np.full(len(first), -1, np.int64)
    for number, row in enumerate(rows[first].tolist()):
        ranks = data[int(at[row]) : int(at[row] + width[row])]
        if not _RANKS.match(ranks):
            continue
        prefix = read_standard(data[int(starts[row]) : int(at[row] + width[row])] + b"] ")
        if prefix is not None:
            numbers[number] = len(result.prefixes)
            result.prefixes.append(prefix)
    groups[rows] = numbers[inverse]
    known[rows] = same & (numbers[inverse] >= 0)
    return groups, known
