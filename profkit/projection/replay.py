"""Replaying measured cycles with other durations, all ranks of a cycle together.

Every op starts when the op that released it has ended, plus the gap that was measured between the two. The releasing
op is the one that ended last before it started, on whatever stream; ops of one stream keep their order. So what ran
hidden under something else stays hidden until it becomes the longer one, and a shortened op lets its successors move
up. A matched collective begins on all ranks when the last of them has arrived, so waiting for a late rank is not kept
but arises anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ReplayCycle:
    """Ops of one counted cycle on one rank, in start order; times in ns from the cycle's start.

    ``transfer_ns`` and ``message_bytes`` are -1 where unknown or no collective.
    """

    rank: int
    cycle: int
    wall_ns: int
    origin_ns: float  # the cycle's start on the clock that the ranks of its group share
    start: Ints
    end: Ints
    stream: Ints
    phase: npt.NDArray[np.str_]
    activity: npt.NDArray[np.str_]
    is_allreduce: Bools
    transfer_ns: Ints
    message_bytes: Ints
    released: Ints  # index of the op that ended last before each op, -1 for none
    ahead: Ints  # index of the op ahead on the same stream, -1 for none
    late: Bools  # its launch returned only after the op before had ended: the GPU waited for the host
    launched: Ints  # when the host called the op's launch, on the trace's clock; -1 where not recorded
    meets: Ints  # which matched collective of the group the op belongs to, -1 for none
    host_ns: int  # host time to the next cycle, waits for the GPU left out; -1 where not recorded

    @property
    def gap(self) -> Ints:
        """Ns between the end of the releasing op and each op's start."""
        return np.where(self.released >= 0, self.start - self.end[self.released], self.start)

    @property
    def tail(self) -> int:
        """Ns between the end of the last op that ends inside the cycle and the cycle's end."""
        inside = self.end[self.end <= self.wall_ns]
        return int(self.wall_ns - inside.max()) if len(inside) else 0


@dataclass(frozen=True, slots=True)
class ReplayGroup:
    """The same cycle on all ranks that meet in collectives; one rank where nothing was matched."""

    ranks: tuple[ReplayCycle, ...]

    @property
    def wall_ns(self) -> int:
        """Sum of the ranks' walls."""
        return sum(cycle.wall_ns for cycle in self.ranks)


@dataclass(frozen=True, slots=True)
class NewTimes:
    """What one rank's cycle is replayed with, in ns per op.

    ``duration`` counts from the op's own start, ``transfer`` from the last rank's arrival (for ops that meet);
    ``gap`` is the time before each op, ``tail`` after the last one; no op starts before ``earliest``.
    """

    duration: Floats
    transfer: Floats
    gap: Floats
    tail: float
    earliest: Floats | None = None


def release_order(start: Ints, end: Ints, stream: Ints) -> tuple[Ints, Ints]:
    """For ops in start order: which op ended last before each one started, and which is ahead on its stream; -1 for
    none."""
    count = len(start)
    by_end = np.argsort(end, kind="stable")
    before = np.searchsorted(end[by_end], start, side="right") - 1
    released = np.where(before >= 0, by_end[np.maximum(before, 0)], -1)
    ahead = np.full(count, -1, np.int64)
    for one in np.unique(stream):
        members = np.flatnonzero(stream == one)
        ahead[members[1:]] = members[:-1]
    # An op of no length can "end last" at its own start; it must lie ahead in start order to release anything.
    released = np.where(released < np.arange(count), released, -1)
    return released.astype(np.int64), ahead


class _Rank:
    """One rank on its way through the cycle. Plain lists: a loop over numpy scalars is several times slower."""

    def __init__(self, cycle: ReplayCycle, new: NewTimes) -> None:
        self.origin = cycle.origin_ns
        self.released, self.ahead, self.meets = cycle.released.tolist(), cycle.ahead.tolist(), cycle.meets.tolist()
        self.gap, self.duration, self.transfer = new.gap.tolist(), new.duration.tolist(), new.transfer.tolist()
        count = len(self.gap)
        self.earliest = [float("-inf")] * count if new.earliest is None else (new.earliest + self.origin).tolist()
        self.finished: list[float] = []

    @property
    def done(self) -> bool:
        return len(self.finished) == len(self.gap)

    def advance(self, arrived: dict[int, dict[int, float]], began: dict[int, float], me: int) -> int:
        """Go on until a collective must wait for another rank: the collective arrived at, or -1 at the end."""
        finished = self.finished
        for op in range(len(finished), len(self.gap)):
            before, own = self.released[op], self.ahead[op]
            start = (finished[before] if before >= 0 else self.origin) + self.gap[op]
            if own >= 0 and finished[own] > start:
                start = finished[own]
            if start < self.earliest[op]:
                start = self.earliest[op]
            meeting = self.meets[op]
            if meeting < 0:
                finished.append(start + self.duration[op])
                continue
            if meeting not in began:
                arrived.setdefault(meeting, {})[me] = start
                return int(meeting)
            finished.append(max(began[meeting], start) + self.transfer[op])
        return -1


def replay(group: ReplayGroup, new: Sequence[NewTimes]) -> list[float]:
    """Wall of the cycle on each rank in ns, replayed with ``new`` times (one per rank of the group)."""
    states = [_Rank(cycle, times) for cycle, times in zip(group.ranks, new, strict=True)]
    expected: dict[int, int] = {}
    for cycle in group.ranks:
        for meeting in cycle.meets[cycle.meets >= 0].tolist():
            expected[meeting] = expected.get(meeting, 0) + 1
    arrived: dict[int, dict[int, float]] = {}
    began: dict[int, float] = {}
    while not all(state.done for state in states):
        stuck = []
        for me, state in enumerate(states):
            meeting = state.advance(arrived, began, me)
            if meeting >= 0:
                stuck.append(meeting)
                if len(arrived[meeting]) == expected[meeting]:
                    began[meeting] = max(arrived[meeting].values())
        if stuck and not any(meeting in began for meeting in stuck):
            # Ranks that order two collectives differently block each other: the first goes on with whom it has.
            began[stuck[0]] = max(arrived[stuck[0]].values())
    return [_wall(c, s.finished, n) for c, s, n in zip(group.ranks, states, new, strict=True)]


def _wall(cycle: ReplayCycle, finished: list[float], new: NewTimes) -> float:
    if not finished:
        return float(cycle.wall_ns)
    finish = np.array(finished) - cycle.origin_ns
    inside = cycle.end <= cycle.wall_ns
    if not inside.any():
        return float(finish.max())
    last = int(np.argmax(np.where(inside, cycle.end, -1)))
    return float(max(finish[inside].max(), finish[last] + new.tail))
