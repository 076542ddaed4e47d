"""Speculation without any name to hold on to: the target's forwards are the large ones, the drafter's the small ones.

Between two large forwards the first small one is the draft_extend, the others draft. Nothing is concluded where sizes
do not fall into such a ring.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from profkit.attribution.labels import ACCEPT, DRAFT, DRAFT_EXTEND, OTHER, VERIFY, Labels
from profkit.attribution.labels.sequence import Sequence

# A forward with at least this share of the largest one's work is the target's.
_LARGE: Final = 0.6
# So many of the stretches between large forwards must look alike.
_ALIKE: Final = 0.6


@dataclass(frozen=True, slots=True)
class Forward:
    """Positions [first, stop) of one forward and its size: attention kernels, or GEMMs where layers differ in those."""

    first: int
    stop: int
    size: int


def forwards(sequence: Sequence, *, on_host: bool) -> list[Forward]:
    """All forwards of the sequence: on a GPU replays and eager stretches, on the host from embedding to embedding."""
    if not on_host:
        return [Forward(u.first, u.stop, u.attention) for u in sequence.units(0, len(sequence.op)) if u.attention]
    borders = [*np.flatnonzero(sequence.embedding).tolist(), len(sequence.op)]
    result = []
    for first, limit in itertools.pairwise(borders):
        gemms = int(sequence.gemm[first:limit].sum())
        if gemms:
            result.append(Forward(first, sequence.model_extent(first, limit)[1], gemms))
    return result


def label_ring(sequence: Sequence, labels: Labels, found: list[Forward]) -> bool:
    """Label a ring of large and small forwards; false if there is none."""
    if len(found) < 3:
        return False
    largest = max(f.size for f in found)
    large = [i for i, f in enumerate(found) if f.size >= _LARGE * largest]
    between = [b - a - 1 for a, b in itertools.pairwise(large)]
    if not between or not any(between):
        return False
    usual, alike = Counter(b for b in between if b).most_common(1)[0]
    if alike < _ALIKE * len(between):
        return False
    ring = _Painter(sequence, labels)
    # A large forward that no draft precedes, where drafts usually do, read a prompt.
    counts = [usual, *between]
    prefill = {i for i, count in zip(large, counts, strict=True) if usual > 1 and count <= 1}
    for place, i in enumerate(large):
        follower = large[place + 1] if place + 1 < len(large) else len(found)
        ring.target(found[i], prefill=i in prefill)
        small = found[i + 1 : follower]
        stop = found[follower].first if follower < len(found) else len(sequence.op)
        ring.after_target(found[i], small, stop, prefill=i in prefill, last=follower == len(found))
    ring.head(found[: large[0]], found[large[0]])
    return True


class _Painter:
    def __init__(self, sequence: Sequence, labels: Labels) -> None:
        self.sequence, self.labels = sequence, labels

    def _set(self, first: int, stop: int, phase: int, *, prefill: bool = False) -> None:
        if stop > first:
            self.labels.set_at(self.sequence.op[first:stop], phase, "graph", prefill=prefill)

    def target(self, forward: Forward, *, prefill: bool) -> None:
        """One forward of the target model."""
        self._set(forward.first, forward.stop, OTHER if prefill else VERIFY, prefill=prefill)
        if not prefill:
            self.labels.forward[self.sequence.op[forward.first : forward.stop]] = len(self.labels.batch)
            self.labels.batch.append(-1)

    def after_target(self, target: Forward, small: list[Forward], stop: int, *, prefill: bool, last: bool) -> None:
        """What follows a target forward, up to the next one."""
        if not small:
            sampled = self.sequence.last_sampling(target.stop, stop)
            self._set(target.stop, sampled + 1, OTHER if prefill else ACCEPT, prefill=prefill)
            self._set(target.stop, stop, OTHER)
            return
        extend = small[0]
        self._set(target.stop, extend.first, OTHER if prefill else ACCEPT, prefill=prefill)
        picked = self.sequence.first_sampling(extend.stop, small[1].first if len(small) > 1 else stop)
        extend_stop = picked + 1 if picked < stop and len(small) > 1 else extend.stop
        self._set(extend.first, extend_stop, OTHER if prefill else DRAFT_EXTEND, prefill=prefill)
        drafts = small[1:]
        if not drafts:
            self._set(extend_stop, stop, OTHER)
            return
        self._set(extend_stop, drafts[0].first, OTHER)
        self._drafts(drafts, stop, last=last)

    def _drafts(self, drafts: list[Forward], stop: int, *, last: bool) -> None:
        sampled = self.sequence.last_sampling(drafts[-1].stop, stop)
        end = max(drafts[-1].stop, sampled + 1)
        self._set(drafts[0].first, end, DRAFT)
        self._set(end, stop, OTHER if last else VERIFY)

    def head(self, small: list[Forward], target: Forward) -> None:
        """Before the first target forward: drafts, after what is left of an earlier cycle."""
        if small:
            self._drafts(small, target.first, last=False)
