"""The part of a log line before its message: time, ranks, and what other programs put in front."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass, replace
from typing import Final

from profkit.parsers.log.rules import foreign_prefixes

RANK_NAMES: Final = ("dp", "pp", "tp", "ep", "attn_cp", "moe_dp")
DAY: Final = 86_400.0

_RANK = rb"[A-Z][A-Z_]*\d{1,5}"
_SOURCE_FILE = rb"[\w./-]{1,80}\.py:\d+"
_CLOCK = rb"(?P<clock>\d\d:\d\d:\d\d)(?P<fraction>[.,]\d{1,9})?"
_DATE = rb"(?P<date>\d{4}-\d\d-\d\d)"
_INSIDE = rb"(?P<ranks>(?: ?" + _RANK + rb")*)(?: ?" + _SOURCE_FILE + rb")?"
# [2026-01-02 03:04:05.678 DP0 TP1] message   [03:04:05 TP0] message   [TP0] message
_STANDARD = re.compile(rb"\[(?:(?:" + _DATE + rb" )?" + _CLOCK + rb")?" + _INSIDE + rb"\] ")
# 2026-01-02 03:04:05 INFO 4711 [DP3 TP3 metrics.py:222] message: an own logging configuration
_CUSTOM = re.compile(
    rb"\[?" + _DATE + rb"[ T]" + _CLOCK + rb"\]?"
    rb"(?:[ |:-]{1,3}(?:\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\]?|\[?\d{1,9}\]?|[\w.]{1,80}:\d+|"
    rb"sglang[\w.]{0,80})){1,5}"
    rb"(?:[ |:-]{1,3}\[" + _INSIDE + rb"\])?[ |:-]{1,3}"
)
# What is left of a standard prefix when the first characters of the line were lost: 025-06-23 18:55:20 TP0] message
_BEHEADED = re.compile(
    rb"(?:(?P<date>\d{0,4}-?\d{0,2}-?\d{1,2}) )?(?:" + _CLOCK + rb")?(?P<ranks>(?: ?" + _RANK + rb")*)\] "
)
_RANKS = re.compile(rb"([A-Z][A-Z_]*)(\d{1,5})")
_CACHE_LIMIT: Final = 50_000


@dataclass(frozen=True, slots=True)
class Prefix:
    """A line's prefix. ``time`` is seconds on the log's own clock, ``None`` if the line shows none.

    ``length`` is where the message starts; ``ranks`` are (dp, pp, tp, ep, attn_cp, moe_dp); ``rank_names`` the
    names shown, which tell servers apart; ``source`` the foreign program's name for the line's origin, or ``""``.
    """

    length: int
    time: float | None
    dated: bool
    ranks: tuple[int | None, ...]
    rank_names: frozenset[str]
    source: str = ""
    milliseconds: bool = False
    beheaded: bool = False


_NO_RANKS: Final = (None,) * len(RANK_NAMES)


class PrefixReader:
    """Reads the prefixes of one file; keeps the day for logs that show the time of day only."""

    def __init__(self) -> None:
        self._cache: dict[bytes, Prefix | None] = {}
        self._day = 0.0
        self._last_clock: float | None = None

    def read(self, line: bytes) -> Prefix | None:
        """The prefix of ``line``, or ``None`` when the line does not begin with one."""
        end = line.find(b"] ", 0, 160)
        head = line[: end + 2] if end >= 0 else b""
        if head.startswith(b"[") and head in self._cache:
            return self._rolled(self._cache[head])
        prefix = read_standard(line) or self._foreign(line)
        if prefix is not None and prefix.length == len(head) and head.startswith(b"["):
            if len(self._cache) > _CACHE_LIMIT:
                self._cache.clear()
            self._cache[head] = prefix
        return self._rolled(prefix)

    def _rolled(self, prefix: Prefix | None) -> Prefix | None:
        if prefix is None or prefix.time is None or prefix.dated:
            return prefix
        if self._last_clock is not None and prefix.time < self._last_clock - DAY / 2:
            self._day += DAY
        elif self._last_clock is not None and self._day and prefix.time > self._last_clock + DAY / 2:
            # A line of another process that was written late, just before midnight.
            return replace(prefix, time=self._day - DAY + prefix.time)
        self._last_clock = prefix.time
        return replace(prefix, time=self._day + prefix.time) if self._day else prefix

    @staticmethod
    def _foreign(line: bytes) -> Prefix | None:
        start, sources, outer, last = 0, [], None, None
        for _ in range(3):
            for rule in foreign_prefixes():
                if rule.after is not None and rule.after != last:
                    continue
                match = rule.pattern.match(line, start)
                if match is None:
                    continue
                found = match.groupdict()
                if found.get("source"):
                    sources.append(found["source"].decode("utf-8", "replace"))
                if found.get("clock"):
                    outer = _outer_time(found)
                start, last = match.end(), rule.name
                break
            else:
                break
        source = " ".join(sources)
        rest = line[start:] if start else line
        inner = _STANDARD.match(rest)
        if inner is not None and inner.end() > 3:
            return _made(inner, start + inner.end(), source, outer)
        custom = _CUSTOM.match(rest)
        if custom is not None and custom.end() <= 200:
            return _made(custom, start + custom.end(), source, outer)
        return _beheaded(rest, start, source, outer) or (
            Prefix(start, outer, outer is not None, _NO_RANKS, frozenset(), source) if outer is not None else None
        )


def _beheaded(rest: bytes, start: int, source: str, outer: float | None) -> Prefix | None:
    match = _BEHEADED.match(rest)
    if match is None or not (match["clock"] or match["ranks"]):
        return None
    ranks, names = _read_ranks(match["ranks"] or b"")
    time, dated = outer, outer is not None
    seconds = _seconds(match["clock"], match["fraction"]) if match["clock"] else None
    date = _completed(match["date"]) if match["date"] else None
    if seconds is not None and date is not None:
        day = _day(date)
        time, dated = (day + seconds, True) if day is not None else (time, dated)
    return Prefix(start + match.end(), time, dated, ranks, names, source, beheaded=True)


def _completed(tail: bytes) -> bytes | None:
    """The whole date when at most the 20 of the year is lost."""
    whole = b"20"[: max(0, 10 - len(tail))] + tail
    return whole if len(whole) == 10 else None


def read_standard(line: bytes) -> Prefix | None:
    """The prefix that SGLang's own logging configuration writes, without the roll-over of the day."""
    match = _STANDARD.match(line)
    if match is None or match.end() <= 3:
        return None
    return _made(match, match.end())


def _made(match: re.Match[bytes], length: int, source: str = "", outer: float | None = None) -> Prefix | None:
    ranks, names = _read_ranks(match["ranks"] or b"")
    clock = match["clock"]
    if clock is None:
        return Prefix(length, outer, outer is not None, ranks, names, source)
    seconds = _seconds(clock, match["fraction"])
    if seconds is None:
        return None
    date = match["date"]
    if date is None:
        return Prefix(length, seconds, False, ranks, names, source)
    day = _day(date)
    if day is None:
        return None
    return Prefix(length, day + seconds, True, ranks, names, source, match["fraction"] is not None)


def _outer_time(found: dict[str, bytes | None]) -> float | None:
    date, clock = found.get("date"), found.get("clock")
    day = _day(date) if date else None
    seconds = _seconds(clock, found.get("fraction")) if clock else None
    return day + seconds if day is not None and seconds is not None else None


def _read_ranks(text: bytes) -> tuple[tuple[int | None, ...], frozenset[str]]:
    if not text:
        return _NO_RANKS, frozenset()
    found = {name.decode().lower(): int(number) for name, number in _RANKS.findall(text)}
    return tuple(found.get(name) for name in RANK_NAMES), frozenset(found)


def _day(date: bytes) -> float | None:
    year, month, day = int(date[:4]), int(date[5:7]), int(date[8:10])
    if not (1970 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]):
        return None
    return float(calendar.timegm((year, month, day, 0, 0, 0)))


def _seconds(clock: bytes, fraction: bytes | None) -> float | None:
    hour, minute, second = int(clock[:2]), int(clock[3:5]), int(clock[6:8])
    if hour > 23 or minute > 59 or second > 60:
        return None
    base = float(hour * 3600 + minute * 60 + second)
    return base + float(b"0." + fraction[1:]) if fraction else base
