"""One arm's measured cycles and how they answer to a change: GPU and host, profiled and not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from profkit.projection.change import Change
from profkit.projection.course import Course
from profkit.projection.model import Case, Cases
from profkit.projection.replay import Floats, ReplayCycle, ReplayGroup
from profkit.projection.times import Setting, Times

# Below this share of the cycle, gaps in which the GPU waited for the host cannot hold back a projection noticeably.
LATE_SHARE = 0.01
# The host sets the pace when its own work fills this share of the cycle.
HOST_PACED = 0.95
# Traced and logged cycles this close need no correction for profiling.
SAME_CYCLE = 0.02
# How well the host's work per cycle is known: launch latency is not in it, waits too short to see are.
HOST_MARGIN = 1.05

NOTHING = Change()
PLAIN = Case()
# Ops that are replayed together, at least: it bounds the memory of long traces.
_PARCEL = 1 << 19


def _draft_shares(cycle: ReplayCycle) -> tuple[float, float, float]:
    """The draft's share of the host's work: by the time from each launch call to the next, by launch calls, and by
    the time with the preparation before each call."""
    known = np.flatnonzero(cycle.launched >= 0)
    moments, first = np.unique(cycle.launched[known], return_index=True)
    if len(moments) < 2:
        return 0.0, 0.0, 0.0
    drafting, steps = cycle.phase[known][first] == "draft", np.diff(moments)
    after, around = steps[drafting[:-1]].sum(), steps[drafting[:-1] | drafting[1:]].sum()
    return float(after / steps.sum()), float(drafting.mean()), float(around / steps.sum())


@dataclass(frozen=True, slots=True)
class _Walls:
    """Mean replayed wall in ns over all cycles and ranks, and the means per rank."""

    mean: float
    by_rank: tuple[float, ...]


_Key: TypeAlias = tuple[str, str, Setting]
_Wanted: TypeAlias = tuple[Change, Case, Setting]


class _Parcel:
    """Some cycles, prepared for replay with and without the meetings of their ranks."""

    def __init__(self, groups: Sequence[ReplayGroup]) -> None:
        self._groups = groups

    @cached_property
    def _together(self) -> tuple[Course, Times]:
        course = Course(self._groups)
        return course, Times(course)

    @cached_property
    def _alone(self) -> tuple[Course, Times]:
        """Every rank on its own: for waits that are given instead of arising."""
        course = Course(self._groups, meetings=False)
        return course, Times(course)

    @property
    def curve_applies(self) -> bool:
        return self._together[1].curve_applies

    def walls(self, wanted: Sequence[_Wanted]) -> Floats:
        """Wall of every cycle and rank in ns (rows) after each change (columns)."""
        found = np.empty((sum(len(group.ranks) for group in self._groups), len(wanted)))
        given = np.array([change.wait_us is not None for change, _, _ in wanted], np.bool_)
        for chosen, alone in ((~given, False), (given, True)):
            if chosen.any():
                course, times = self._alone if alone else self._together
                these = [one for one, mine in zip(wanted, chosen, strict=True) if mine]
                added = [case.added_us * 1e3 for _, case, _ in these]
                found[:, chosen] = course.walls([times.after(*one) for one in these]) + added
        return found


def _parcelled(groups: Sequence[ReplayGroup]) -> Iterator[_Parcel]:
    """Groups in their order, so many together that a parcel holds at least :data:`_PARCEL` ops or is the last."""
    held: list[ReplayGroup] = []
    ops = 0
    for group in groups:
        held.append(group)
        ops += sum(len(cycle.start) for cycle in group.ranks)
        if ops >= _PARCEL:
            yield _Parcel(held)
            held, ops = [], 0
    if held:
        yield _Parcel(held)


@dataclass(slots=True)
class MeasuredArm:
    """Replayed cycles of one run at one load; ``log_over_trace`` is the unprofiled cycle over the traced, ``None``
    when one is unknown."""

    groups: tuple[ReplayGroup, ...]
    log_over_trace: float | None
    _cache: dict[_Key, _Walls] = field(default_factory=dict, init=False, repr=False)
    _parcels: tuple[_Parcel, ...] = field(init=False, repr=False)
    _trace: _Walls = field(init=False)
    _gaps: float = field(init=False)
    _late: float = field(init=False)
    _host: float = field(init=False)  # mean host work per cycle in ns, 0 where not recorded
    _shares: tuple[float, ...] = field(init=False)
    _bounded: bool = field(init=False)  # transfers are known as upper bounds only, since ranks are missing

    def __post_init__(self) -> None:
        self._parcels = tuple(_parcelled(self.groups))
        self._trace = self._walls(NOTHING, PLAIN, Setting())
        cycles = [cycle for group in self.groups for cycle in group.ranks]
        paces = [cycle.host_ns for cycle in cycles if cycle.host_ns >= 0]
        # No cycle is shorter than the host's own work; a host time above the cycle says that calls overlap.
        self._host = min(_mean(paces), self._trace.mean) if paces else 0.0
        self._bounded = any(bool(cycle.bounded.any()) for cycle in cycles)
        shares = [_draft_shares(cycle) for cycle in cycles]
        self._shares = tuple(_mean(share) for share in zip(*shares, strict=True))
        late = sum(float(c.gap[c.late].sum()) for g in self.groups for c in g.ranks)
        self._late = late / sum(g.wall_ns for g in self.groups)
        self._gaps = self._gap_factor()

    @property
    def count(self) -> int:
        """Replayed cycles, all ranks."""
        return sum(len(group.ranks) for group in self.groups)

    @property
    def curve_applies(self) -> bool:
        """Whether every all-reduce of the target's forward has a size that a curve can be read at."""
        return all(parcel.curve_applies for parcel in self._parcels)

    def prepare(self, wanted: Iterable[tuple[Change, Cases]]) -> None:
        """Replay everything that :meth:`factors` asks for, all at once, which is much faster than one by one."""
        self._replay([key for change, cases in wanted for key in self._asked(change, cases)])

    def factors(self, change: Change, cases: Cases) -> tuple[float, float, float]:
        """Cycle after over before the change: expected, least, most."""
        self.prepare([(change, cases)])
        found = [self._ratio(change, cases.expected, self._settings(change)[0])]
        for case in (cases.expected, cases.best, cases.worst):
            found += self._candidates(change, case)
        return found[0], min(found), max(found)

    def explain(self, change: Change) -> tuple[str, ...]:
        """What was assumed about host and profiler, in words."""
        notes = []
        if self._late >= LATE_SHARE and change.idle is None:
            pace = self._host / self._trace.mean
            paced = "sets the pace of the cycle" if self._is_host_paced() else "does not fill the cycle"
            known = f"; its own work ({pace:.0%} of the cycle) {paced}" if self._host else ""
            notes.append(f"in {self._late:.0%} of the cycle the GPU waited for a late launch of the host{known}")
        if self._splits(change) != self._settings(change):
            notes.append(
                "not all ranks' calls could be compared, so how much of an all-reduce is waiting is not known: "
                "expected as the shortest tenth of the calls tells, range from none of it to all that goes away"
            )
        ratio = self.log_over_trace
        if ratio is not None and abs(ratio - 1.0) > SAME_CYCLE:
            text = f"the traced cycle is {1 / ratio:.2f} x the log's; "
            if self._gaps < 1.0:
                text += "the surplus is taken out of the gaps between kernels, or proportionally (range)"
            else:
                text += "scaled in proportion, or the difference kept as it is (range)"
            notes.append(text)
        return tuple(notes)

    def _splits(self, change: Change) -> list[Setting]:
        """How much of an all-reduce may be transfer, where that is not measured and the change works on it."""
        touched = (change.allreduce_us, change.allreduce_curve, change.wait_us, change.draft_tokens)
        settings = self._settings(change)
        if not self._bounded or all(part is None for part in touched):
            return settings
        return [replace(s, transfer=t) for s in settings for t in ("likely", "most", "least")]

    def _is_host_paced(self) -> bool:
        return self._host >= HOST_PACED * self._trace.mean

    def _settings(self, change: Change) -> list[Setting]:
        """Expected treatment of gaps first. A change of idle time says itself what becomes of them."""
        modes = [Setting(self._gaps)]
        if self._late >= LATE_SHARE and change.idle is None:
            queued = Setting(self._gaps, queued=True)
            modes = [queued, *modes] if self._is_host_paced() else [*modes, queued]
        return modes

    def _candidates(self, change: Change, case: Case) -> list[float]:
        found = []
        for setting in self._splits(change):
            for margin in (1.0 / HOST_MARGIN, 1.0, HOST_MARGIN):
                found += [self._ratio(change, case, setting, share, margin) for share in self._shares]
        if self._gaps < 1.0:
            found += [self._ratio(change, case, replace(s, gaps=1.0)) for s in self._splits(change)]
        ratio = self.log_over_trace
        # A small difference weighs more the shorter the cycle gets.
        if ratio is not None and self._gaps == 1.0:
            after = self._trace.mean * self._ratio(change, case, self._settings(change)[0])
            rest = (ratio - 1.0) * self._trace.mean
            if after + rest > 0:
                found.append((after + rest) / (self._trace.mean + rest))
        if change.wait_us is not None:
            for setting in self._splits(change):
                given, today = self._walls(change, case, Setting(transfer=setting.transfer)), self._trace
                found += [a / b for a, b in zip(given.by_rank, today.by_rank, strict=True)]
        return found

    def _ratio(
        self, change: Change, case: Case, setting: Setting, share: float | None = None, margin: float = 1.0
    ) -> float:
        """After over before, both as the longer of GPU and host; ``share`` of the host's work is the draft's."""
        before, after = self._walls(NOTHING, PLAIN, setting), self._walls(change, case, setting)
        drafting = self._shares[0] if share is None else share
        # Whoever removes idle time has mended the host as well. Recording slows the host as it slows the whole cycle,
        # not as it stretches the gaps between kernels.
        slowed = min(1.0, self.log_over_trace or 1.0) if setting.gaps < 1.0 else 1.0
        pace = self._host * slowed if change.idle is None else 0.0
        host = pace * (1.0 - (1.0 - case.draft) * drafting)
        middle = float(np.median(after.by_rank)) if change.wait_us is not None else after.mean
        return max(middle, host * margin) / max(before.mean, pace)

    def _asked(self, change: Change, cases: Cases) -> Iterator[_Wanted]:
        """The replays behind :meth:`factors`."""
        settings = self._splits(change)
        settings += [replace(s, gaps=1.0) for s in settings if s.gaps < 1.0]
        for setting in settings:
            yield NOTHING, PLAIN, setting
            for case in (cases.expected, cases.best, cases.worst):
                yield change, case, setting
        for transfer in {s.transfer: None for s in settings} if change.wait_us is not None else ():
            for case in (cases.expected, cases.best, cases.worst):
                yield change, case, Setting(transfer=transfer)

    def _walls(self, change: Change, case: Case, setting: Setting) -> _Walls:
        key = _key(change, case, setting)
        if key not in self._cache:
            self._replay([(change, case, setting)])
        return self._cache[key]

    def _replay(self, wanted: Sequence[_Wanted]) -> None:
        missing = {key: one for one in wanted if (key := _key(*one)) not in self._cache}
        if not missing:
            return
        changes = list(missing.values())
        walls = np.concatenate([parcel.walls(changes) for parcel in self._parcels])
        ranks = [cycle.rank for group in self.groups for cycle in group.ranks]
        for key, column in zip(missing, walls.T.tolist(), strict=True):
            by_rank: dict[int, list[float]] = {}
            for rank, wall in zip(ranks, column, strict=True):
                by_rank.setdefault(rank, []).append(wall)
            everything = [wall for own in by_rank.values() for wall in own]
            self._cache[key] = _Walls(_mean(everything), tuple(_mean(by_rank[rank]) for rank in sorted(by_rank)))

    def _gap_factor(self) -> float:
        """Factor on gaps that makes the replayed cycle as long as the log's: profiling adds time between kernels.

        1 when the trace is not longer, or when no factor would do.
        """
        ratio = self.log_over_trace
        if ratio is None or ratio >= 1.0 - SAME_CYCLE:
            return 1.0
        goal = ratio * self._trace.mean
        low, high = 0.0, 1.0
        short, long = self._walls(NOTHING, PLAIN, Setting(0.0)).mean, self._trace.mean
        if short > goal:
            return 1.0
        for _ in range(4):
            middle = low + (high - low) * (goal - short) / (long - short)
            wall = self._walls(NOTHING, PLAIN, Setting(middle)).mean
            if abs(wall / goal - 1.0) < 1e-3:
                break
            if wall > goal:
                high, long = middle, wall
            else:
                low, short = middle, wall
        return middle


def _key(change: Change, case: Case, setting: Setting) -> _Key:
    return repr(change), repr(case), setting


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
