"""Streams one trace: finds its events, cuts them into chunks, decodes these and feeds the columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from profkit.errors import InputError, Problem
from profkit.jsonio import loads
from profkit.parsers.trace.events import FRAME, Event
from profkit.parsers.trace.scan import INCOMPLETE, Layout, find_array_end, find_events
from profkit.parsers.trace.source import Source
from profkit.parsers.trace.typed import ChunkDecoder
from profkit.parsers.trace.walk import Walker

# Chunks that stay in the processor's cache are read fastest: larger ones cost up to half as much again.
CHUNK = 1 << 20
# What a document may hold besides its events.
MAX_METADATA = 256 << 20
_OPEN, _CLOSE = b"[]"


class Sink(Protocol):
    """Takes events in file order."""

    def add(self, events: list[Event]) -> None:
        """Take a chunk."""

    def may_skip_frames(self) -> bool:
        """Whether Python frames are not wanted and need only be counted."""

    def skip_frames(self, count: int) -> None:
        """Count frames that were not decoded."""


@dataclass(slots=True)
class Document:
    """What a trace file says besides its events."""

    metadata: dict[str, Any] = field(default_factory=dict)
    truncated: bool = False
    problems: list[Problem] = field(default_factory=list)


class Reader:
    """Reads one source once. Memory is bounded by the chunk, not by the file."""

    def __init__(
        self, source: Source, sink: Sink, *, chunk: int = CHUNK, progress: Callable[[int], None] | None = None
    ) -> None:
        self._source = source
        self._sink = sink
        self._progress = progress
        # One byte is kept free before the events: a chunk is bracketed in place.
        self._buffer = bytearray(chunk + 1)
        self._begin, self._end = 1, 1
        self._base = -1  # place in the file of buffer[0]
        self._complete = False
        self._layout = Layout()
        self._decoder = ChunkDecoder()
        self._walker = Walker(self._layout)

    def read(self) -> Document:
        """Read everything.

        Raises:
            InputError: the source is no trace.
        """
        head, bare = self._find_events()
        ended = self._read_events()
        tail = self._read_tail() if ended and not bare else b""
        document = Document(truncated=self._source.truncated or not ended)
        document.metadata = {} if bare else self._metadata(head, tail, document)
        document.problems += self._source.problems
        self._describe_damage(document, ended=ended)
        return document

    # --- the buffer -------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Move what is left to the front and read until the buffer is full or the source ends."""
        left = self._end - self._begin
        if self._begin > 1:
            self._buffer[1 : 1 + left] = self._buffer[self._begin : self._end]
            self._base += self._begin - 1
            self._begin, self._end = 1, 1 + left
        if self._complete or self._end == len(self._buffer):
            return
        with memoryview(self._buffer) as view:
            count = self._source.readinto(view[self._end :])
        self._complete = self._end + count < len(self._buffer)
        self._end += count
        if self._progress:
            self._progress(self._source.consumed)

    def _grow(self) -> None:
        self._buffer += bytes(len(self._buffer))

    # --- the parts of a document ------------------------------------------------------------------

    def _find_events(self) -> tuple[bytes, bool]:
        self._fill()
        while True:
            head = bytes(self._buffer[1 : self._end])
            start = find_events(head, len(head), complete=self._complete, label=self._source.label)
            if start is not None:
                self._begin += start.position
                return head[: start.position - 1], start.bare
            if len(head) > MAX_METADATA:
                raise InputError(
                    f"{self._source.label}: no traceEvents within the first {MAX_METADATA >> 20} MiB; it is no trace"
                )
            self._grow()
            self._fill()

    def _read_events(self) -> bool:
        """Feed all events to the sink; whether the end of their array was seen."""
        self._fill()
        self._layout.learn_first(self._buffer, self._begin, self._end)
        while True:
            if self._decode_chunk():
                self._fill()
                continue
            walked = self._walker.walk(self._buffer, self._begin, self._end, offset=self._base, final=self._complete)
            self._sink.add(walked.events)
            moved = walked.position > self._begin
            self._begin = walked.position
            if walked.ended:
                return True
            if self._complete:
                return self._end_behind_damage()
            if not moved and self._begin == 1 and self._end == len(self._buffer):
                self._grow()
            self._fill()

    def _end_behind_damage(self) -> bool:
        """Whether the events end in a damaged one; the file is cut off otherwise."""
        position = find_array_end(self._buffer, self._begin, self._end)
        if position == INCOMPLETE:
            return False
        self._walker.damage.bad(self._base + self._begin)
        self._begin = position
        return True

    def _decode_chunk(self) -> bool:
        """Decode everything up to the last separator at once; false when the careful way is needed."""
        cut = self._layout.last_boundary(self._buffer, self._begin, self._end)
        if cut is None:
            return False
        stop, following = cut
        text = self._buffer
        frames = self._layout.only_frames(text, self._begin, stop) if self._sink.may_skip_frames() else 0
        if frames:
            self._sink.skip_frames(frames)
            self._begin = following
            return True
        # The bytes around the chunk are separators (or the array's own bracket): lend them for brackets.
        before, behind = text[self._begin - 1], text[stop]
        text[self._begin - 1], text[stop] = _OPEN, _CLOSE
        try:
            with memoryview(text) as view:
                events = self._decoder.decode(view[self._begin - 1 : stop + 1])
                if events and events[-1].cat == FRAME:
                    self._layout.learn_frame(text, self._begin, stop)
                self._sink.add(events)
                del events  # they hold on to the buffer
        except (msgspec.DecodeError, RecursionError):
            return False
        finally:
            text[self._begin - 1], text[stop] = before, behind
        self._begin = following
        return True

    def _read_tail(self) -> bytes:
        parts = [bytes(self._buffer[self._begin : self._end])]
        size = len(parts[0])
        self._begin = self._end
        while not self._complete:
            self._fill()
            if size <= MAX_METADATA:
                parts.append(bytes(self._buffer[self._begin : self._end]))
                size += len(parts[-1])
            self._begin = self._end
        return b"".join(parts)

    def _metadata(self, head: bytes, tail: bytes, document: Document) -> dict[str, Any]:
        """The document without its events; what follows them is lost if it is damaged or missing."""
        for rest, sound in ((tail, True), (b"}", not tail.strip())):
            try:
                found = loads((head + b"null" + rest).decode("utf-8", "replace"), strict=False)
            except (ValueError, RecursionError):
                continue
            if not sound:
                document.problems.append(
                    Problem("damaged_metadata", 1, "what follows the events is damaged and was left out")
                )
            return found if isinstance(found, dict) else {}
        document.problems.append(Problem("damaged_metadata", 1, "the facts around the events cannot be read"))
        return {}

    def _describe_damage(self, document: Document, *, ended: bool) -> None:
        damage = self._walker.damage
        if not ended and all(p.kind != "truncated" for p in document.problems):
            place = f"byte {self._base + self._begin}"
            document.problems.append(
                Problem("truncated", 1, "the file ends inside its events; all complete ones were read", place)
            )
        if damage.damaged:
            document.problems.append(
                Problem(
                    "damaged_event",
                    damage.damaged,
                    "stretches that are no JSON event were left out",
                    f"byte {damage.first_damaged}",
                )
            )
        if damage.lenient:
            document.problems.append(
                Problem(
                    "irregular_event",
                    damage.lenient,
                    "events with NaN, control characters, broken UTF-8 or unusual types were read leniently",
                    f"byte {damage.first_lenient}",
                )
            )
