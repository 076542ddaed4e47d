"""The replay on timelines drawn at random and by hand: exact where nothing changes, never slower for a cheaper op."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.projection import course as courses
from profkit.projection.change import Change
from profkit.projection.course import Course, NewTimes
from profkit.projection.measured import _joined
from profkit.projection.measured_arm import MeasuredArm
from profkit.projection.model import Case, Cases
from profkit.projection.replay import ReplayCycle, ReplayGroup, release_order
from profkit.projection.times import Setting, Times
from tests import oracle_replay

UNCHANGED, AS_IT_IS = Change(), Setting()


def cycle(
    ops: list[tuple[int, int, int]], wall: int, calls: dict[int, int] | None = None, rank: int = 0, **more: object
) -> ReplayCycle:
    """Ops as (start, end, stream) in start order; ``calls`` maps an op to its transfer time, in order of meeting."""
    start, end, stream = (np.array([op[i] for op in ops], np.int64) for i in range(3))
    released, ahead = release_order(start, end, stream)
    calls = calls or {}
    number = {op: i for i, op in enumerate(sorted(calls))}
    found = np.array([i in calls for i in range(len(ops))], np.bool_)
    made = ReplayCycle(
        rank=rank,
        cycle=0,
        wall_ns=wall,
        origin_ns=0.0,
        start=start,
        end=end,
        stream=stream,
        phase=np.array(["verify"] * len(ops), np.str_),
        activity=np.array(["allreduce" if f else "compute" for f in found], np.str_),
        is_allreduce=found,
        likely_ns=np.full(len(ops), -1, np.int64),
        transfer_ns=np.array([calls.get(i, -1) for i in range(len(ops))], np.int64),
        message_bytes=np.full(len(ops), -1, np.int64),
        released=released,
        ahead=ahead,
        late=np.zeros(len(ops), np.bool_),
        launched=np.full(len(ops), -1, np.int64),
        meets=np.array([number.get(i, -1) for i in range(len(ops))], np.int64),
        host_ns=-1,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def walls(group: ReplayGroup, change: Change = UNCHANGED, case: Case | None = None) -> list[float]:
    course = Course((group,))
    return replayed(course, Times(course).after(change, case or Case(), AS_IT_IS))


def replayed(course: Course, new: NewTimes) -> list[float]:
    return [float(wall) for wall in course.walls([new])[:, 0]]


@st.composite
def timelines(draw: st.DrawFn) -> ReplayCycle:
    """Ops on up to three streams; those of one stream do not overlap."""
    free = dict.fromkeys(range(draw(st.integers(1, 3))), 0)
    ops = []
    for _ in range(draw(st.integers(1, 25))):
        stream = draw(st.sampled_from(sorted(free)))
        start = free[stream] + draw(st.integers(0, 50))
        free[stream] = start + draw(st.integers(0, 60))
        ops.append((start, free[stream], stream))
    ops.sort(key=lambda op: op[0])
    return cycle(ops, max(free.values()) + draw(st.integers(0, 40)))


@given(timelines())
@settings(max_examples=150)
def test_nothing_changed_is_the_measured_wall(one: ReplayCycle) -> None:
    assert walls(ReplayGroup((one,))) == pytest.approx([one.wall_ns])


@given(timelines(), st.data())
@settings(max_examples=150)
def test_a_shorter_op_never_makes_the_cycle_longer(one: ReplayCycle, data: st.DataObject) -> None:
    op = data.draw(st.integers(0, len(one.start) - 1))
    course = Course((ReplayGroup((one,)),))
    new = Times(course).after(UNCHANGED, Case(), AS_IT_IS)
    shorter = new.duration.copy()
    shorter[op] *= data.draw(st.floats(0, 1))
    (wall,) = replayed(course, replace(new, duration=shorter))
    assert wall <= one.wall_ns + 1e-6
    assert wall >= one.wall_ns - (new.duration[op] - shorter[op]) - 1e-6


@st.composite
def meeting_groups(draw: st.DrawFn) -> tuple[ReplayGroup, ...]:
    """Groups whose ranks meet in any order, some more than once or without the others; own clocks."""
    groups = []
    for _ in range(draw(st.integers(1, 3))):
        ranks = []
        for rank in range(draw(st.integers(1, 4))):
            one = draw(timelines()) if draw(st.integers(0, 9)) else cycle([], 70)
            meets = [draw(st.integers(-4, 3)) for _ in one.start]
            if draw(st.booleans()):  # the order of most real ranks
                meets = sorted(meets)
            ranks.append(
                replace(
                    one,
                    rank=rank,
                    origin_ns=float(draw(st.integers(-500, 500))),
                    meets=np.array([max(m, -1) for m in meets], np.int64),
                    wall_ns=one.wall_ns - draw(st.sampled_from((0, 0, 5, 10_000))),
                )
            )
        groups.append(ReplayGroup(tuple(ranks)))
    return tuple(groups)


@given(meeting_groups(), st.integers(1, 4), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_rounds_give_what_one_op_after_the_other_gives(
    groups: tuple[ReplayGroup, ...], changes: int, dice: random.Random
) -> None:
    course = Course(groups)
    count, lanes = int(course.first[-1]), len(course.cycles)
    new = [
        NewTimes(
            gap=np.array([dice.uniform(0, 90) for _ in range(count)]),
            duration=np.array([dice.uniform(0, 90) for _ in range(count)]),
            tail=np.array([dice.uniform(0, 90) for _ in range(lanes)]),
        )
        for _ in range(changes)
    ]
    found = course.walls(new)
    for column, times in enumerate(new):
        expected, lane = [], 0
        for group in groups:
            own = []
            for _ in group.ranks:
                ops = slice(int(course.first[lane]), int(course.first[lane + 1]))
                own.append(
                    oracle_replay.RankTimes(
                        times.gap[ops].tolist(), times.duration[ops].tolist(), float(times.tail[lane])
                    )
                )
                lane += 1
            expected += oracle_replay.walls(group, own)
        assert found[:, column].tolist() == expected


def test_changes_replayed_one_by_one_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Course((straggling(slow=125_000, fast=100_000, transfer=40_000, layers=6),))
    times = Times(course)
    new = [times.after(Change(allreduce_us=float(us)), Case(), AS_IT_IS) for us in range(0, 90, 10)]
    together = course.walls(new)
    monkeypatch.setattr(courses, "_ROOM", 1)
    assert (course.walls(new) == together).all()


def test_what_is_hidden_stays_hidden_until_it_is_the_longer_one() -> None:
    # A 60 ns all-reduce on its own stream beside 100 ns of compute; both are waited for.
    one = cycle([(0, 100, 0), (0, 60, 1), (100, 150, 0)], 150, {1: 60})
    group = ReplayGroup((one,))
    assert walls(group, Change(allreduce_us=0.0)) == [150]
    assert walls(group, Change(allreduce_us=0.09)) == [150]
    # Once it outlasts the compute it ends the cycle itself.
    assert walls(group, Change(allreduce_us=0.4)) == [400]


def test_a_serial_all_reduce_gives_what_it_saves() -> None:
    one = cycle([(0, 50, 0), (52, 102, 0), (103, 153, 0)], 155, {1: 50})
    assert walls(ReplayGroup((one,)), Change(allreduce_us=0.01)) == [115]


def straggling(slow: int, fast: int, transfer: int, layers: int) -> ReplayGroup:
    """Two ranks, one slower, meeting after every layer; clocks 1 ms apart."""
    ranks = []
    for rank, compute in enumerate((slow, fast)):
        ops, at = [], 0
        for _ in range(layers):
            ops += [(at, at + compute, 0), (at + compute, at + slow + transfer, 0)]
            at += slow + transfer
        calls = {2 * i + 1: transfer for i in range(layers)}
        ranks.append(cycle(ops, at, calls, rank))
    return ReplayGroup(tuple(_joined(ranks)))


def test_waiting_for_a_late_rank_arises_anew() -> None:
    group = straggling(slow=125_000, fast=100_000, transfer=40_000, layers=6)
    assert all((c.meets >= 0).sum() == 6 for c in group.ranks)
    assert walls(group) == pytest.approx([990_000] * 2)
    # Compute at half its time halves the wait as well: the slow rank sets the pace of both.
    half = walls(group, case=Case(compute={"verify": 0.5}))
    assert half == pytest.approx([6 * (62_500 + 40_000)] * 2)
    # A free transfer leaves the wait.
    assert walls(group, Change(allreduce_us=0.0)) == pytest.approx([6 * 125_000] * 2)


def test_ranks_that_order_their_collectives_differently_do_not_block_each_other() -> None:
    first = cycle([(0, 50, 0), (60, 110, 1)], 110, {0: 50, 1: 50}, 0)
    second = replace(first, rank=1, meets=first.meets[::-1].copy())
    assert all(wall > 0 for wall in walls(ReplayGroup((first, second))))


def test_given_waits_leave_the_question_which_rank_was_right() -> None:
    group = straggling(slow=125_000, fast=100_000, transfer=40_000, layers=6)
    same = Cases(Case(), Case(), Case())
    expected, low, high = MeasuredArm((group,), None).factors(Change(wait_us=0.0), same)
    assert low == pytest.approx(6 * 140_000 / 990_000)
    assert high == pytest.approx(1.0)
    assert low <= expected <= high


def test_a_longer_trace_is_explained_by_its_gaps() -> None:
    ops = [(i * 100 + 40, i * 100 + 100, 0) for i in range(50)]
    group = ReplayGroup((cycle(ops, 5_000, dict.fromkeys(range(0, 50, 2), 60)),))
    same = Cases(Case(), Case(), Case())
    # Unprofiled the cycle takes 4 us: the gaps of 40 ns were 20 ns, and half the ops can become free.
    expected, low, high = MeasuredArm((group,), 0.8).factors(Change(allreduce_us=0.0), same)
    assert expected == pytest.approx((4_000 - 1_500) / 4_000, abs=1e-3)
    # In proportion less would be gained, and the range says so.
    assert high == pytest.approx((5_000 - 1_500) / 5_000, abs=1e-3)
    assert low <= expected <= high


def test_the_hosts_pace_is_the_floor() -> None:
    one = cycle([(0, 800, 0), (800, 1_000, 0)], 1_000, {0: 800}, host_ns=700)
    same = Cases(Case(), Case(), Case())
    expected, _, _ = MeasuredArm((ReplayGroup((one,)),), None).factors(Change(allreduce_us=0.1), same)
    assert expected == pytest.approx(0.7)
    # Whoever says that idle time goes has mended the host.
    expected, _, _ = MeasuredArm((ReplayGroup((one,)),), None).factors(Change(allreduce_us=0.1, idle=0.0), same)
    assert expected == pytest.approx(0.3)


def test_an_empty_cycle_keeps_its_wall() -> None:
    assert walls(ReplayGroup((cycle([], 70),))) == [70]
