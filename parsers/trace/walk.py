"""The careful way through a stretch of events: one by one, around damage, to the end of the array."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from profkit.parsers.trace.events import Event, decode_event, decode_leniently
from profkit.parsers.trace.scan import BOUNDARY, INCOMPLETE, Buffer, Layout, comma_end, skip_space, value_end

# An event above this size is damage: real ones stay below a megabyte.
MAX_EVENT = 64 << 20
# An event that is not complete within this size is looked upon as damaged if a sound one lies behind it.
_CREDIBLE_EVENT = 256 << 10
# Limits of the search for the next sound event, so that hostile text costs linear time.
_RESYNC_EVENT = 256 << 10
_RESYNC_BYTES = 5 << 20
_RESYNC_FACTOR = 8
_SCALAR = re.compile(rb"[^,\[\]{}\"]+")
_STRING = re.compile(rb'"[^"\\\n]*"(?=[ \t\r\n]*[,\]])')
_OPEN, _BRACKET, _CLOSE = b"{[]"


@dataclass(slots=True)
class Damage:
    """What could not be read, with the first places."""

    damaged: int = 0
    first_damaged: int | None = None
    lenient: int = 0
    first_lenient: int | None = None

    def bad(self, offset: int) -> None:
        """Note an event that is lost."""
        self.damaged += 1
        if self.first_damaged is None:
            self.first_damaged = offset

    def loose(self, offset: int) -> None:
        """Note an event that strict JSON refuses and that was read all the same."""
        self.lenient += 1
        if self.first_lenient is None:
            self.first_lenient = offset


@dataclass(slots=True)
class Walked:
    """The result of a walk: events in order, where it stopped, and whether the array ended there."""

    events: list[Event] = field(default_factory=list)
    position: int = 0
    ended: bool = False


def _read_one(text: Buffer, start: int, end: int) -> tuple[Event | None, bool]:
    """One event, and whether it is strict JSON."""
    raw = bytes(text[start:end])
    event = decode_event(raw)
    return (event, True) if event is not None else (decode_leniently(raw), False)


def _next_event(text: Buffer, position: int, end: int) -> int:
    """The start of the first complete event behind the damage at ``position``, or :data:`INCOMPLETE`."""
    scanned = 0
    for seam in BOUNDARY.finditer(text, position, end):
        start = seam.end()
        # Garbage nests: every seam in it may open a long object that ends well and is no event.
        if scanned > _RESYNC_BYTES + _RESYNC_FACTOR * (start - position):
            break
        last = min(end, start + _RESYNC_EVENT)
        stop = value_end(text, start, last)
        scanned += (last if stop == INCOMPLETE else stop) - start
        if stop == INCOMPLETE:
            continue
        event, _ = _read_one(text, start, stop)
        if event is not None and event.ph is not None:  # and so no object inside the arguments of one
            return start
    return INCOMPLETE


class Walker:
    """Walks stretches of one file; remembers the damage and teaches the layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.damage = Damage()

    def walk(self, text: Buffer, position: int, end: int, *, offset: int, final: bool) -> Walked:
        """Read events from ``position`` on.

        Stops behind the array, or before the first event that is not complete within ``end``. ``offset`` is the
        place of ``text[0]`` in the file. With ``final`` nothing follows ``end``, and an event that is cut off there
        is left where it is.
        """
        walked = Walked()
        previous_end = INCOMPLETE
        while True:
            position = walked.position = _skip_commas(text, position, end)
            if position >= end:
                return walked
            byte = text[position]
            if byte == _CLOSE:
                walked.position, walked.ended = position + 1, True
                return walked
            if byte != _OPEN:
                following = self._garbage(text, position, end)
                if following == INCOMPLETE and not final and end - position < MAX_EVENT:
                    return walked
                self.damage.bad(offset + position)
                position, previous_end = (end if following == INCOMPLETE else following), INCOMPLETE
                continue
            if previous_end != INCOMPLETE:
                self._layout.learn(text, previous_end, position, end)
            stop, taken = self._take(text, position, min(end, position + _CREDIBLE_EVENT), offset, walked)
            if taken:
                previous_end = position = stop
                continue
            if stop == INCOMPLETE and not final and end - position <= _CREDIBLE_EVENT:
                return walked
            # It is damaged, or larger than any seen: a sound event behind it decides.
            following = _next_event(text, position, end if stop == INCOMPLETE else stop)
            if stop == INCOMPLETE and following == INCOMPLETE:
                stop, taken = self._take(text, position, min(end, position + MAX_EVENT), offset, walked)
                if taken:
                    previous_end = position = stop
                    continue
                if stop == INCOMPLETE and (final or end - position < MAX_EVENT):
                    return walked
            if following == INCOMPLETE:
                following = end if stop == INCOMPLETE else stop
            self.damage.bad(offset + position)
            position, previous_end = following, INCOMPLETE

    def _take(self, text: Buffer, position: int, end: int, offset: int, walked: Walked) -> tuple[int, bool]:
        """Read the event at ``position``: its end, or :data:`INCOMPLETE`, and whether it was sound."""
        stop = value_end(text, position, end)
        if stop == INCOMPLETE:
            return INCOMPLETE, False
        event, strict = _read_one(text, position, stop)
        if event is None:
            return stop, False
        if not strict:
            self.damage.loose(offset + position)
        walked.events.append(event)
        return stop, True

    @staticmethod
    def _garbage(text: Buffer, position: int, end: int) -> int:
        """Where to go on behind something that is no object."""
        scalar = _SCALAR.match(text, position, end)
        if scalar:
            return scalar.end() if scalar.end() < end else INCOMPLETE
        string = _STRING.match(text, position, end)
        if string:
            return string.end()
        if text[position] in b'["':
            stop = value_end(text, position, min(end, position + _RESYNC_EVENT)) if text[position] == _BRACKET else -1
            return _next_event(text, position, end) if stop == INCOMPLETE else stop
        return position + 1  # a stray closing brace


def _skip_commas(text: Buffer, position: int, end: int) -> int:
    while True:
        position = skip_space(text, position, end)
        comma = comma_end(text, position, end)
        if comma == INCOMPLETE:
            return position
        position = comma
