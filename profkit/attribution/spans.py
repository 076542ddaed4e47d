"""Which span encloses a moment: vectorised containment of launches in annotations and frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of host threads (or GPU streams): ``kind`` is an index into ``kinds``; times are half-open ns.

    ``batch`` is the number of requests the span's text names, -1 where it names none; ``word`` indexes the
    dictionary of names the spans came from.
    """

    kinds: tuple[str, ...]
    kind: npt.NDArray[np.int32]
    start: Ints
    end: Ints
    thread: Ints
    batch: Ints
    word: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.start)

    def rows(self, *kinds: str) -> Ints:
        """Rows of these kinds, in time order per thread (longer first where two start together)."""
        wanted = [i for i, k in enumerate(self.kinds) if k in kinds]
        found = np.flatnonzero(np.isin(self.kind, wanted))
        return found[np.lexsort((-self.end[found], self.start[found], self.thread[found]))].astype(np.int64)

    def has(self, *kinds: str) -> bool:
        """Whether any span is of one of these kinds."""
        return bool(len(self.rows(*kinds)))

    def outermost(self, *kinds: str) -> Ints:
        """Rows of these kinds that lie in no other of them on their thread: disjoint, in time order."""
        rows = self.rows(*kinds)
        kept = [p[outermost(self.start[rows[p]], self.end[rows[p]])] for p in _by_thread(self.thread[rows])]
        return rows[np.concatenate(kept)] if kept else rows

    def enclosing(self, rows: Ints, moment: Ints, thread: Ints) -> Ints:
        """For each moment the one of the disjoint ``rows`` that encloses it on the same thread, else -1."""
        result = np.full(len(moment), NONE, np.int64)
        place = self.preceding(rows, moment, thread)
        inside = place >= 0
        inside[inside] = moment[inside] < self.end[rows[place[inside]]]
        result[inside] = rows[place[inside]]
        return result

    def preceding(self, rows: Ints, moment: Ints, thread: Ints) -> Ints:
        """For each moment the position in ``rows`` of the last that starts at or before it on its thread, else -1."""
        result = np.full(len(moment), NONE, np.int64)
        for part in _by_thread(self.thread[rows]):
            here = np.flatnonzero(thread == self.thread[rows[part[0]]])
            place = np.searchsorted(self.start[rows[part]], moment[here], side="right") - 1
            result[here] = np.where(place >= 0, part[np.maximum(place, 0)], NONE)
        return result


def outermost(start: Ints, end: Ints) -> Bools:
    """Which intervals, sorted by start and then longest first, lie in no other kept one.

    An interval that begins inside a kept one and ends after it is broken (Kineto writes such ops when it loses an end):
    it counts as inside, and its late end hides nothing that follows.
    """
    keep = np.zeros(len(start), np.bool_)
    free = -(2**63)
    for i, (begin, stop) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        if begin >= free:
            keep[i], free = True, stop
    return keep


def _by_thread(thread: Ints) -> list[Ints]:
    """Positions of rows, already sorted by thread, one array per thread."""
    if not len(thread):
        return []
    return [p.astype(np.int64) for p in np.split(np.arange(len(thread)), np.flatnonzero(np.diff(thread)) + 1)]
