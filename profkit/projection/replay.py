"""Measured cycles as a replay takes them: what released each op, what it waited for, which collectives meet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ReplayCycle:
    """Ops of one counted cycle on one rank, in start order; times in ns from the cycle's start.

    ``transfer_ns`` and ``message_bytes`` are -1 where unknown or no collective. ``likely_ns`` is -1 where
    the transfer was measured over all ranks; else a call's transfer is at most ``transfer_ns`` (its duration where
    that is -1) and most likely ``likely_ns``.
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
    likely_ns: Ints

    @property
    def bounded(self) -> Bools:
        """All-reduces whose transfer is known as an upper bound only."""
        return self.is_allreduce & (self.likely_ns >= 0)

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
