"""Replaying measured cycles with other durations, all ranks of a cycle together, many cycles and changes at once.

Every op starts when the op that released it has ended, plus the gap that was measured between the two. The releasing
op is the one that ended last before it started, on whatever stream; ops of one stream keep their order. So what ran
hidden under something else stays hidden until it becomes the longer one, and a shortened op lets its successors move
up. A matched collective begins on all ranks when the last of them has arrived, so waiting for a late rank is not kept
but arises anew.

Which op waits for which is the same whatever the durations are. So the ops of all cycles are sorted into rounds once:
those of a round depend on earlier rounds only, and are worked out together for all cycles, ranks and changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from profkit.projection.replay import Bools, Floats, Ints, ReplayCycle, ReplayGroup

_Places: TypeAlias = npt.NDArray[np.intp]
# Ops times changes that are worked on at once, which bounds the memory.
_ROOM = 1 << 22


@dataclass(frozen=True, slots=True)
class NewTimes:
    """What the cycles of a course are replayed with, in ns.

    ``gap`` is the time before each op. ``duration`` counts from the op's start; for an op that meets those of other
    ranks, from the last rank's arrival. Both in the course's order of ops. ``tail``: after the last op of each lane.
    """

    gap: Floats
    duration: Floats
    tail: Floats


@dataclass(frozen=True, slots=True)
class _Round:
    """Ops of one round, in rows ``begin`` to ``end``, and the rows that they wait for.

    ``met`` are the members that meet here, sorted by meeting; ``first`` the first of each meeting among them, ``of``
    the meeting of each. ``late`` come to a meeting that has begun without them, at the time in row ``began``;
    ``kept`` are the meetings to which somebody comes late, with the rows that keep their begin.
    """

    begin: int
    end: int
    before: _Places
    own: _Places | None
    met: _Places | None
    first: _Places
    of: _Places
    late: _Places | None
    began: _Places
    kept: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Meetings:
    """Of the ops of a course: ``round``; ``meeting`` or -1; whether it came ``late`` to a meeting."""

    round: Ints
    meeting: Ints
    late: Bools


class Course:
    """The ops of many cycles, sorted into rounds.

    A lane is one cycle on one rank; lanes lie behind each other, group by group, and ops in start order within one.
    With ``meetings`` false every rank is on its own.
    """

    def __init__(self, groups: Sequence[ReplayGroup], *, meetings: bool = True) -> None:
        self.cycles: tuple[ReplayCycle, ...] = tuple(cycle for group in groups for cycle in group.ranks)
        counts = np.array([len(cycle.start) for cycle in self.cycles], np.int64)
        self.first: Ints = np.append(0, np.cumsum(counts))
        self.lane: Ints = np.repeat(np.arange(len(counts)), counts)
        self.meeting = self._numbered(groups) if meetings else np.full(len(self.lane), -1, np.int64)
        found = self._sorted(groups)
        self._order = np.argsort(found.round, kind="stable")
        self._row = np.empty_like(self._order)
        self._row[self._order] = np.arange(len(self._order))
        self._origins = np.array([cycle.origin_ns for cycle in self.cycles])
        late = np.unique(found.meeting[found.late])
        self._late_rows = {int(meeting): len(self.lane) + len(counts) + 1 + i for i, meeting in enumerate(late)}
        self._rounds = list(self._made(found))
        self._inside, self._last, self._whole = self._ends(counts)

    def flat(self, name: str) -> Any:
        """A field of the cycles' ops, all lanes behind each other."""
        return np.concatenate([np.empty(0, np.int64), *(getattr(cycle, name) for cycle in self.cycles)])

    # --- the structure ----------------------------------------------------------------------------

    def _numbered(self, groups: Sequence[ReplayGroup]) -> Ints:
        """A number per collective of a group, -1 for ops that meet nothing."""
        keys = self.flat("meets").astype(np.int64)
        group = np.repeat(
            np.array([g for g, group in enumerate(groups) for _ in group.ranks], np.int64), np.diff(self.first)
        )
        kinds, key = np.unique(keys, return_inverse=True)
        _, number = np.unique(group * len(kinds) + key.reshape(-1), return_inverse=True)
        return np.where(keys >= 0, number.reshape(-1), -1)

    def _sorted(self, groups: Sequence[ReplayGroup]) -> _Meetings:
        """The round of every op: behind the op before it in its lane, meetings behind those of all their ranks."""
        found = _Meetings(
            np.arange(len(self.lane)) - self.first[self.lane], self.meeting, np.zeros(len(self.lane), np.bool_)
        )
        lane = 0
        for group in groups:
            lanes = range(lane, lane := lane + len(group.ranks))
            _align([slice(int(self.first[x]), int(self.first[x + 1])) for x in lanes], found)
        return found

    def _made(self, found: _Meetings) -> Iterator[_Round]:
        count, lanes = len(self.lane), len(self.cycles)
        released, ahead = self.flat("released"), self.flat("ahead")
        start = self.first[self.lane]
        row = np.append(self._row, 0)  # what index -1 finds
        before = np.where(released >= 0, row[np.where(released >= 0, start + released, -1)], count + self.lane)
        # An op whose predecessor on the stream released it waits for that one only: gaps are not negative.
        held = (ahead >= 0) & (ahead != released)
        own = np.where(held, row[np.where(held, start + ahead, -1)], count + lanes)
        nobody = np.empty(0, np.intp)
        bounds = np.searchsorted(found.round[self._order], np.arange(int(found.round.max(initial=-1)) + 2))
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            ops = self._order[begin:end]
            meeting, late = found.meeting[ops], found.late[ops]
            met = behind = numbers = first = of = nobody
            if meeting.max() >= 0:
                met = np.flatnonzero((meeting >= 0) & ~late)
                met = met[np.argsort(meeting[met], kind="stable")]
                numbers, first, of = np.unique(meeting[met], return_index=True, return_inverse=True)
                behind = np.flatnonzero(late)
            yield _Round(
                begin=begin,
                end=end,
                before=before[ops],
                own=own[ops] if held[ops].any() else None,
                met=met if len(met) else None,
                first=first,
                of=of.reshape(-1),
                late=behind if len(behind) else None,
                began=np.array([self._late_rows[m] for m in meeting[behind].tolist()], np.intp),
                kept=tuple((i, self._late_rows[m]) for i, m in enumerate(numbers.tolist()) if m in self._late_rows),
            )

    def _ends(self, counts: Ints) -> tuple[Bools, Ints, Bools]:
        """Which ops count for their lane's wall, the last of each lane inside its cycle, and lanes that have one."""
        lane, end = self.lane, self.flat("end")
        inside = end <= np.array([cycle.wall_ns for cycle in self.cycles], np.int64)[lane]
        has = np.bincount(lane[inside], minlength=len(counts)) > 0
        last = np.zeros(len(counts), np.int64)
        for number in np.flatnonzero(has).tolist():
            ops = slice(int(self.first[number]), int(self.first[number + 1]))
            last[number] = ops.start + int(np.argmax(np.where(inside[ops], end[ops], -1)))
        return inside | ~has[lane], last, has

    # --- replaying --------------------------------------------------------------------------------

    def walls(self, new: Sequence[NewTimes]) -> Floats:
        """Wall of every lane in ns (rows) with each of the ``new`` times (columns)."""
        at_once = max(1, _ROOM // max(1, len(self.lane)))
        parts = [self._walls(new[i : i + at_once]) for i in range(0, len(new), at_once)]
        return np.concatenate([np.empty((len(self.cycles), 0)), *parts], axis=1)

    def _walls(self, new: Sequence[NewTimes]) -> Floats:
        walls = np.repeat(np.array([float(c.wall_ns) for c in self.cycles])[:, None], len(new), axis=1)
        busy = np.flatnonzero(np.diff(self.first) > 0)
        if not len(busy):
            return walls
        finish = self._finished(new) - self._origins[self.lane][:, None]
        longest = np.maximum.reduceat(np.where(self._inside[:, None], finish, -np.inf), self.first[busy], axis=0)
        tail = np.stack([times.tail for times in new], axis=1)[busy]
        ended = np.maximum(longest, finish[self._last[busy]] + tail)
        walls[busy] = np.where(self._whole[busy][:, None], ended, longest)
        return walls

    def _finished(self, new: Sequence[NewTimes]) -> Floats:
        """When every op ends, on the clock that the ranks of its group share."""
        count, lanes = len(self.lane), len(self.cycles)
        gap = np.stack([times.gap for times in new], axis=1)[self._order]
        duration = np.stack([times.duration for times in new], axis=1)[self._order]
        # Behind the ops: the origin of each lane, a time before all others, and when meetings began for who comes late.
        ends = np.full((count + lanes + 1 + len(self._late_rows), len(new)), -np.inf)
        ends[count : count + lanes] = self._origins[:, None]
        for one in self._rounds:
            start = ends.take(one.before, axis=0)
            start += gap[one.begin : one.end]
            if one.own is not None:
                np.maximum(start, ends.take(one.own, axis=0), out=start)
            if one.met is not None:
                began = np.maximum.reduceat(start[one.met], one.first, axis=0)
                start[one.met] = began[one.of]
                for meeting, row in one.kept:
                    ends[row] = began[meeting]
            if one.late is not None:
                start[one.late] = np.maximum(start[one.late], ends[one.began])
            np.add(start, duration[one.begin : one.end], out=ends[one.begin : one.end])
        return ends[self._row]


def _align(lanes: Sequence[slice], found: _Meetings) -> None:
    """Put the meetings of one group's lanes into common rounds.

    Ranks that order two meetings differently would block each other: then the first of them that waits goes on with
    whom its meeting has, and who comes later is late.
    """
    places = [np.flatnonzero(found.meeting[ops] >= 0) for ops in lanes]
    meetings = [found.meeting[ops][place].tolist() for ops, place in zip(lanes, places, strict=True)]
    expected: dict[int, int] = {}
    for own in meetings:
        for meeting in own:
            expected[meeting] = expected.get(meeting, 0) + 1
    following, delay = [0] * len(lanes), [0] * len(lanes)
    arrived: dict[int, set[int]] = {}
    began: dict[int, int] = {}  # the round in which a meeting began

    def begin(meeting: int) -> None:
        began[meeting] = max(int(places[x][following[x]]) + delay[x] for x in arrived[meeting])

    def go_on(me: int) -> int:
        """Pass meetings that have begun; the one that must be waited for, or -1 at the end."""
        while following[me] < len(meetings[me]):
            meeting: int = meetings[me][following[me]]
            if meeting not in began:
                arrived.setdefault(meeting, set()).add(me)
                return meeting
            place = int(places[me][following[me]])
            late = me not in arrived.get(meeting, ())
            arrived[meeting].discard(me)  # should it come to the same one again, it is late
            behind = max(place + delay[me], began[meeting] + late)
            if behind > place + delay[me]:
                found.round[lanes[me]][place:] += behind - (place + delay[me])
            found.late[lanes[me]][place] = late
            delay[me] = behind - place
            following[me] += 1
        return -1

    while True:
        stuck = []
        for me in range(len(lanes)):
            meeting = go_on(me)
            if meeting >= 0:
                stuck.append(meeting)
                if len(arrived[meeting]) == expected[meeting]:
                    begin(meeting)
        if not stuck:
            return
        if not any(meeting in began for meeting in stuck):
            begin(stuck[0])
