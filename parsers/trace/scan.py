"""Exact scanning of JSON text as bytes: where a value ends, where the events are, how events are separated."""

from __future__ import annotations

import contextlib
import json
import re
from typing import NamedTuple, TypeAlias

from profkit.errors import InputError

Buffer: TypeAlias = bytes | bytearray

INCOMPLETE = -1

# A complete string, or one that the end of the text cuts off (then the group is empty), or a bracket.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\(?:.|\Z)[^"\\]*+)*+("|\Z)|[\[\]{}]', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*")
_COLON = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_COMMA = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")
_FIRST_KEY = re.compile(rb'\{[ \t\r\n]*"[A-Za-z_][^"\\]*"')
# Anything behind which an event may begin, also where a brace or a comma is missing.
BOUNDARY = re.compile(rb'[,}][ \t\r\n]*(?=\{[ \t\r\n]*"[A-Za-z_])')
_ARRAY_END = re.compile(rb'\}[ \t\r\n]*\][ \t\r\n]*(?=,[ \t\r\n]*"|\})')
_ARRAY_END_TRIES = 40
_FRAME_START = re.compile(
    rb'\{[ \t\r\n]*"ph"[ \t\r\n]*:[ \t\r\n]*"X"[ \t\r\n]*,[ \t\r\n]*"cat"[ \t\r\n]*:[ \t\r\n]*"python_function"'
)
_EVENTS_KEY = b'"traceEvents"'
_QUOTE, _OPEN = ord('"'), b"[{"
_BOM = b"\xef\xbb\xbf"


def skip_space(text: Buffer, position: int, end: int) -> int:
    """The first position from ``position`` on that is no white space."""
    match = _SPACE.match(text, position, end)
    return match.end() if match else position


def value_end(text: Buffer, position: int, end: int) -> int:
    """The end of the object or array that opens at ``position``; :data:`INCOMPLETE` if it is not within ``end``."""
    depth = 0
    for token in _TOKEN.finditer(text, position, end):
        first = text[token.start()]
        if first == _QUOTE:
            if not token.group(1):
                return INCOMPLETE
        elif first in _OPEN:
            depth += 1
        else:
            depth -= 1
            if depth <= 0:
                return token.end()
    return INCOMPLETE


class Start(NamedTuple):
    """Where the events begin."""

    position: int  # just behind the opening bracket
    bare: bool  # the document is the array itself


def find_events(text: Buffer, end: int, *, complete: bool, label: str) -> Start | None:
    """Find the array of events at the top of a document.

    Returns ``None`` while ``text`` is too short to tell and not ``complete``.

    Raises:
        InputError: the document is no trace.
    """
    position = skip_space(text, len(_BOM) if text[:3] == _BOM else 0, end)
    if position == end:
        if complete:
            raise InputError(f"{label}: holds nothing but white space; it is no trace")
        return None
    if text[position : position + 1] == b"[":
        return Start(position + 1, True)
    if text[position : position + 1] != b"{":
        raise InputError(f"{label}: is no JSON document; a torch-profiler trace begins with {{ or [")
    depth = 0
    for token in _TOKEN.finditer(text, position, end):
        first = text[token.start()]
        if first == _QUOTE:
            if depth == 1 and token.group() == _EVENTS_KEY:
                colon = _COLON.match(text, token.end(), end)
                if colon and text[colon.end() : colon.end() + 1] == b"[":
                    return Start(colon.end() + 1, False)
                if colon is None or colon.end() == end:
                    break
        elif first in _OPEN:
            depth += 1
        else:
            depth -= 1
            if depth <= 0:
                raise InputError(f"{label}: has no traceEvents; it is no torch-profiler trace")
    if complete:
        raise InputError(f"{label}: ends before its traceEvents begin; it is cut off, or no torch-profiler trace")
    return None


def find_array_end(text: Buffer, position: int, end: int) -> int:
    """The end of the array of events when the last of them is damaged, or :data:`INCOMPLETE`.

    It is a closing bracket behind which the rest of the document makes sense.
    """
    found = list(_ARRAY_END.finditer(text, position, end))
    for bracket in found[-_ARRAY_END_TRIES:]:
        with contextlib.suppress(ValueError, RecursionError):
            json.loads(b'{"traceEvents": null' + bytes(text[bracket.end() : end]))
            return bracket.end()
    return INCOMPLETE


class Layout:
    """How this file separates its events, learned from the events themselves.

    A separator is the text from the closing brace of an event through the first key of the next, such as
    ``},\\n  {\\n    "ph"``. In valid JSON an unescaped quote between a brace and a letter cannot lie inside a
    string, so a separator is never found there; whether it lies between two events (and not inside one) is
    shown by decoding the text before it.
    """

    _KEPT = 6

    def __init__(self) -> None:
        self.separators: list[bytes] = []
        self._frame = b""  # how a Python frame begins, through its category

    def learn_frame(self, text: Buffer, position: int, end: int) -> None:
        """Learn how Python frames begin, from a text with at least one."""
        if not self._frame:
            found = _FRAME_START.search(text, position, end)
            self._frame = found.group() if found else b""

    def only_frames(self, text: Buffer, position: int, end: int) -> int:
        """How many Python frames the text consists of; 0 if it holds anything else, or that is not certain.

        In valid JSON every event has the bytes ``"ph"``, since quotes inside strings are escaped. If these occur
        just as often as frames begin, then nothing but frames is there.
        """
        if not self._frame or not text.startswith(self._frame, position, end):
            return 0
        frames = text.count(self._frame, position, end)
        return frames if frames == text.count(b'"ph"', position, end) else 0

    def learn(self, text: Buffer, event_end: int, next_start: int, end: int) -> None:
        """Learn from two neighbours: the end of one event and the start of the next."""
        key = _FIRST_KEY.match(text, next_start, end)
        if key is None:
            return
        separator = bytes(text[event_end - 1 : key.end()])
        if separator not in self.separators:
            self.separators = [separator, *self.separators[: self._KEPT - 1]]

    def learn_first(self, text: Buffer, position: int, end: int) -> None:
        """Learn from the first two events from ``position`` on."""
        start = skip_space(text, position, end)
        if text[start : start + 1] != b"{":
            return
        event_end = value_end(text, start, end)
        comma = None if event_end == INCOMPLETE else _COMMA.match(text, event_end, end)
        if comma:
            self.learn(text, event_end, comma.end(), end)

    def last_boundary(self, text: Buffer, position: int, end: int) -> tuple[int, int] | None:
        """The last separator: (end of the event before it, start of the event behind it)."""
        for begin in (max(position, end - (1 << 16)), position):
            best, found = -1, b""
            for separator in self.separators:
                at = text.rfind(separator, begin, end)
                if at > best:
                    best, found = at, separator
            if best >= 0:
                return best + 1, best + found.index(b"{", 1)
            if begin == position:
                break
        return None


def comma_end(text: Buffer, position: int, end: int) -> int:
    """The end of a comma and the white space around it, or :data:`INCOMPLETE` if there is none."""
    match = _COMMA.match(text, position, end)
    return match.end() if match else INCOMPLETE
