"""The replay said plainly: one op after the other, one rank after the other. Slow, and independent of the fast one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profkit.projection.replay import ReplayCycle, ReplayGroup


@dataclass
class RankTimes:
    """New times of one rank's ops, in ns."""

    gap: list[float]
    duration: list[float]
    tail: float


class _Rank:
    def __init__(self, cycle: ReplayCycle, new: RankTimes) -> None:
        self.cycle, self.new = cycle, new
        self.ended: list[float] = []

    def advance(self, arrived: dict[int, dict[int, float]], began: dict[int, float], me: int) -> int:
        """Go on until a meeting must wait for another rank; the meeting, or -1 at the end."""
        for op in range(len(self.ended), len(self.new.gap)):
            before, own, meeting = (int(a[op]) for a in (self.cycle.released, self.cycle.ahead, self.cycle.meets))
            start = (self.ended[before] if before >= 0 else self.cycle.origin_ns) + self.new.gap[op]
            if own >= 0:
                start = max(start, self.ended[own])
            if meeting >= 0:
                if meeting not in began:
                    arrived.setdefault(meeting, {})[me] = start
                    return meeting
                start = max(began[meeting], start)
            self.ended.append(start + self.new.duration[op])
        return -1


def walls(group: ReplayGroup, new: Sequence[RankTimes]) -> list[float]:
    """Wall of the cycle on each rank in ns, replayed with ``new`` times."""
    ranks = [_Rank(cycle, times) for cycle, times in zip(group.ranks, new, strict=True)]
    expected: dict[int, int] = {}
    for cycle in group.ranks:
        for meeting in cycle.meets[cycle.meets >= 0].tolist():
            expected[meeting] = expected.get(meeting, 0) + 1
    arrived: dict[int, dict[int, float]] = {}
    began: dict[int, float] = {}
    while any(len(rank.ended) < len(rank.new.gap) for rank in ranks):
        stuck = []
        for me, rank in enumerate(ranks):
            meeting = rank.advance(arrived, began, me)
            if meeting >= 0:
                stuck.append(meeting)
                if len(arrived[meeting]) == expected[meeting]:
                    began[meeting] = max(arrived[meeting].values())
        if stuck and not any(meeting in began for meeting in stuck):
            began[stuck[0]] = max(arrived[stuck[0]].values())
    return [_wall(rank) for rank in ranks]


def _wall(rank: _Rank) -> float:
    cycle = rank.cycle
    if not rank.ended:
        return float(cycle.wall_ns)
    ends = [end - cycle.origin_ns for end in rank.ended]
    inside = [op for op in range(len(ends)) if cycle.end[op] <= cycle.wall_ns]
    if not inside:
        return max(ends)
    last = inside[int(np.argmax(cycle.end[inside]))]
    return max(*(ends[op] for op in inside), ends[last] + rank.new.tail)
