"""Annotations and frames whose duration is missing or cannot be: they would hide, or merge, the steps they mark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profkit.attribution.credible import FARTHEST_NS, FEWEST, WINDOW_SLACK_NS, holds
from profkit.attribution.labels.dialect import NOTHING, annotation_meaning, frame_meaning
from profkit.attribution.ops import int_column, pairs_of, text_codes, window_of
from profkit.trace import Trace

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
# A span of no length is damaged where others of its name last this long.
LASTS_NS: Final = 100_000
# So many sound spans of a kind tell which others begin within it.
PEERS: Final = 100


@dataclass(frozen=True, slots=True)
class DamagedSpans:
    """How many meaningful spans have no credible duration, and how many of these could be given one."""

    found: int = 0
    mended: int = 0


def with_credible_spans(trace: Trace) -> tuple[Trace, DamagedSpans]:
    """The trace with a duration for every span that marks a step: where it has none that can be, that of the others
    of its name (the middle one), up to the next span that does not begin within those."""
    annotations, first = _mended(trace.annotations, trace, frames=False)
    if trace.frames is None:
        return (replace(trace, annotations=annotations) if first.found else trace), first
    frames, second = _mended(trace.frames, trace, frames=True)
    both = DamagedSpans(first.found + second.found, first.mended + second.mended)
    return (replace(trace, annotations=annotations, frames=frames) if both.found else trace), both


def _mended(table: pa.Table, trace: Trace, *, frames: bool) -> tuple[pa.Table, DamagedSpans]:
    if not table.num_rows:
        return table, DamagedSpans()
    start, duration = int_column(table, "start_ns"), int_column(table, "duration_ns", -1)
    suspect = (duration < (0 if frames else 1)) | _too_long(table, start, duration, trace, frames=frames)
    if not suspect.any():
        return table, DamagedSpans()
    words, word = text_codes(table, "name")
    meaning = [(frame_meaning if frames else annotation_meaning)(w).span for w in words]
    kinds = sorted(set(meaning))
    kind = np.array([kinds.index(m) for m in meaning], np.int64)[word]
    means = np.array([m != NOTHING for m in meaning], np.bool_)[word] & (start >= 0)
    rows = np.flatnonzero(means)
    spans = _Spans(
        start[rows], duration[rows], kind[rows], word[rows].astype(np.int64), _lane(table, frames=frames)[rows]
    )
    new, found = spans.mended(suspect[rows])
    if not found:
        return table, DamagedSpans()
    duration = duration.copy()
    duration[rows] = new
    at = table.schema.get_field_index("duration_ns")
    column = pa.array(duration, pa.int64(), mask=duration < 0)
    mended = table.set_column(at, table.schema.field(at), column)
    return mended, DamagedSpans(found, int(np.count_nonzero(new != spans.duration)))


def _too_long(table: pa.Table, start: Ints, duration: Ints, trace: Trace, *, frames: bool) -> Bools:
    """Spans that outlast any recording, or this one although another of their name begins after them.

    The last one may: the profiler stops within a batch, and waits until its span has ended.
    """
    late = duration > FARTHEST_NS
    known = start[start >= 0]
    outlasts = late.copy()
    if len(known) >= FEWEST:
        outlasts |= duration > int(known.max()) - int(known.min())
    window = window_of(trace.info)
    if window is not None:
        inside = start + np.where(late, 0, duration) <= window[1] + WINDOW_SLACK_NS
        if holds(inside):
            outlasts |= ~inside
    if not outlasts.any():
        return late
    _, name = pairs_of(text_codes(table, "name")[1].astype(np.int64), _lane(table, frames=frames))
    last = np.full(int(name.max()) + 1, -1, np.int64)
    np.maximum.at(last, name, start)
    return late | (outlasts & (start < last[name]))


def _lane(table: pa.Table, *, frames: bool) -> Ints:
    """A number per host thread, or per GPU stream."""
    _, thread = pairs_of(int_column(table, "pid"), int_column(table, "tid"))
    if frames:
        return thread
    return pairs_of(thread, int_column(table, "stream"))[1]


@dataclass(frozen=True, slots=True)
class _Spans:
    """Spans with a meaning; times in ns, -1 where unknown."""

    start: Ints
    duration: Ints
    kind: Ints
    word: Ints
    lane: Ints

    def mended(self, suspect: Bools) -> tuple[Ints, int]:
        """New durations, and how many of the old ones cannot be."""
        result, found = self.duration.copy(), 0
        sound = ~suspect
        for row in np.flatnonzero(suspect).tolist():
            beside = sound & (self.lane == self.lane[row])
            peers = np.flatnonzero(beside & (self.word == self.word[row]))
            if not len(peers):
                peers = np.flatnonzero(beside & (self.kind == self.kind[row]))
            usual = int(np.median(self.duration[peers])) if len(peers) else 0
            if self.duration[row] == 0 and usual < LASTS_NS:
                continue  # too short for the recording's clock
            found += 1
            if len(peers):
                result[row] = min(usual, self._next(row, peers) - int(self.start[row]))
            elif self.duration[row] > 0:
                result[row] = 0
        return result, found

    def _next(self, row: int, peers: Ints) -> int:
        """The start of the next span of the lane that is not of a kind that begins within ``peers``."""
        lane = np.flatnonzero(self.lane == self.lane[row])
        lane = lane[np.argsort(self.start[lane], kind="stable")]
        starts, kinds = self.start[lane], self.kind[lane]
        some: Sequence[int] = peers[:: max(1, len(peers) // PEERS)].tolist()
        within = {
            k
            for p in some
            for k in kinds[
                np.searchsorted(starts, self.start[p], "right") : np.searchsorted(
                    starts, self.start[p] + self.duration[p], "left"
                )
            ].tolist()
        }
        after = np.flatnonzero((starts > self.start[row]) & ~np.isin(kinds, list(within)))
        return int(starts[after[0]]) if len(after) else int(np.iinfo(np.int64).max)
