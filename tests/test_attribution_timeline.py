"""The exclusive timeline against a slow one that looks at every nanosecond by itself."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.attribution.kernels import IDLE
from profkit.attribution.labels import UNLABELLED
from profkit.attribution.ops import effective_intervals
from profkit.attribution.timeline import exclusive_timeline


@dataclass(frozen=True)
class Op:
    start: int
    duration: int
    stream: int
    activity: int
    phase: int


OPS = st.lists(
    st.builds(
        Op,
        start=st.integers(-20, 40),
        duration=st.integers(-3, 15),
        stream=st.integers(0, 3),
        activity=st.integers(0, 3),
        phase=st.integers(0, 5),
    ),
    max_size=14,
)
WINDOWS = st.lists(st.integers(-25, 60), min_size=2, max_size=6, unique=True).map(sorted)


def effective(ops: list[Op]) -> list[tuple[int, int]]:
    """By hand: per stream, in order of start, an op begins when those before it have ended."""
    result = [(0, 0)] * len(ops)
    for stream in {o.stream for o in ops}:
        free: int | None = None
        for i in sorted((i for i, o in enumerate(ops) if o.stream == stream), key=lambda i: (ops[i].start, i)):
            begin = ops[i].start if free is None else max(ops[i].start, free)
            end = max(ops[i].start + max(ops[i].duration, 0), begin)
            free = end if free is None else max(free, end)
            result[i] = (begin, end)
    return result


def at(moment: int, ops: list[Op], spans: list[tuple[int, int]]) -> tuple[int, int, bool]:
    """Phase, activity, and whether communication is hidden, in [moment, moment + 1)."""
    running = [i for i, (b, e) in enumerate(spans) if b <= moment < e]
    if running:
        best = min(running, key=lambda i: (ops[i].activity, ops[i].stream != 0, spans[i][0], i))
        hidden = ops[best].activity == 0 and any(ops[i].activity in (1, 2) for i in running)
        return ops[best].phase, ops[best].activity, hidden
    later = [i for i, (b, _) in enumerate(spans) if b > moment]
    if not later:
        return UNLABELLED, IDLE, False
    following = min(later, key=lambda i: (spans[i][0], ops[i].stream != 0, i))
    return ops[following].phase, IDLE, False


def arrays(ops: list[Op]) -> dict[str, np.ndarray]:
    return {
        "start": np.array([o.start for o in ops], np.int64),
        "duration": np.array([o.duration for o in ops], np.int64),
        "stream": np.array([o.stream for o in ops], np.int64),
        "activity": np.array([o.activity for o in ops], np.int8),
        "phase": np.array([o.phase for o in ops], np.int8),
    }


@settings(max_examples=300, deadline=None)
@given(OPS, WINDOWS)
def test_every_nanosecond_goes_where_the_rules_send_it(ops: list[Op], cuts: list[int]) -> None:
    columns = arrays(ops)
    start, end = effective_intervals(columns["start"], columns["duration"], columns["stream"])
    spans = effective(ops)
    assert list(zip(start.tolist(), end.tolist(), strict=True)) == spans
    left, right = np.array(cuts[:-1], np.int64), np.array(cuts[1:], np.int64)
    line = exclusive_timeline(
        start, end, columns["activity"], columns["phase"], columns["stream"], columns["stream"] == 0, left, right
    )
    parts = line.parts(len(left))
    assert (parts.sum(axis=(1, 2)) == right - left).all()
    for window, (begin, stop) in enumerate(itertools.pairwise(cuts)):
        expected = np.zeros(parts.shape[1:], np.int64)
        hidden = 0
        for moment in range(begin, stop):
            phase, activity, under = at(moment, ops, spans)
            expected[phase, activity] += 1
            hidden += under
        assert (parts[window] == expected).all()
        assert line.overlapped[window] == hidden


@settings(max_examples=100, deadline=None)
@given(OPS, WINDOWS)
def test_segments_tile_the_windows(ops: list[Op], cuts: list[int]) -> None:
    columns = arrays(ops)
    start, end = effective_intervals(columns["start"], columns["duration"], columns["stream"])
    left, right = np.array(cuts[:-1], np.int64), np.array(cuts[1:], np.int64)
    line = exclusive_timeline(
        start, end, columns["activity"], columns["phase"], columns["stream"], columns["stream"] == 0, left, right
    )
    assert line.start[0] == cuts[0]
    assert line.end[-1] == cuts[-1]
    assert (line.start[1:] == line.end[:-1]).all()
    assert (line.end > line.start).all()
    same = (line.window[1:] == line.window[:-1]) & (line.phase[1:] == line.phase[:-1])
    assert not (same & (line.activity[1:] == line.activity[:-1])).any()


def test_nanoseconds_survive_at_today_s_clock() -> None:
    base = 1_900_000_000_000_000_000
    start = np.array([base, base + 7], np.int64)
    end = np.array([base + 3, base + 8], np.int64)
    line = exclusive_timeline(
        start, end, np.array([0, 1], np.int8), np.array([1, 1], np.int8), np.zeros(2, np.int64),
        np.ones(2, np.bool_), np.array([base], np.int64), np.array([base + 8], np.int64),
    )  # fmt: skip
    assert (line.end - line.start).tolist() == [3, 4, 1]
    assert line.activity.tolist() == [0, IDLE, 1]


def test_an_early_launched_kernel_does_not_hide_the_allreduce_it_waits_for() -> None:
    # Programmatic dependent launch: the norm's record begins inside the all-reduce, on the same stream.
    start, end = effective_intervals(np.array([0, 90], np.int64), np.array([100, 20], np.int64), np.zeros(2, np.int64))
    line = exclusive_timeline(
        start, end, np.array([1, 0], np.int8), np.array([1, 1], np.int8), np.zeros(2, np.int64),
        np.ones(2, np.bool_), np.array([0], np.int64), np.array([110], np.int64),
    )  # fmt: skip
    assert line.parts(1)[0, 1, :2].tolist() == [10, 100]
    assert line.overlapped.tolist() == [0]
