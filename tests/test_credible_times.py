"""Damaged times that still parse: named, bounded by what the recording shows, and of no weight in the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.attribution import Attribution, attribute
from profkit.attribution.credible import MOST_UNDER, credible, last_moment, shortened
from profkit.parsers.trace import read_traces
from profkit.trace import Trace
from tests.attribution_modes import record, scenario
from tests.paths import SAMPLES

CPU = SAMPLES / "sglang-cpu-eagle-tp2"


@cache
def sound() -> tuple[Trace, ...]:
    return record(scenario())[0]


def with_column(table: pa.Table, name: str, change: Callable[[list[int]], list[int]]) -> pa.Table:
    at = table.schema.get_field_index(name)
    values = [int(value) for value in table[name].to_numpy()]
    return table.set_column(at, table.schema.field(at), pa.array(change(values), pa.int64()))


def hurt(traces: tuple[Trace, ...], row: int, *, duration: int, window: bool) -> tuple[Trace, ...]:
    """The first rank with one op that claims another duration."""

    def changed(values: list[int]) -> list[int]:
        values[row] = duration
        return values

    first = replace(traces[0], gpu_ops=with_column(traces[0].gpu_ops, "duration_ns", changed))
    if not window:
        first = replace(first, info=replace(first.info, window_start_ns=None, window_duration_ns=None))
    return (first, *traces[1:])


def same_split(found: Attribution, other: Attribution) -> None:
    """Cell by cell, but for the one op's own time."""
    for mine, theirs in zip(found.ranks, other.ranks, strict=True):
        assert mine.cycles == theirs.cycles
        assert mine.wall_ns == pytest.approx(theirs.wall_ns, rel=0.001)
        for phase, cells in theirs.parts_ns.items():
            for activity, value in cells.items():
                assert abs((mine.parts_ns[phase][activity] or 0) - (value or 0)) < 0.002 * theirs.wall_ns
    for a, b in zip(found.collectives, other.collectives, strict=True):
        assert (a.phase, a.kind, a.calls_per_cycle) == (b.phase, b.kind, b.calls_per_cycle)
        assert a.mean_us == pytest.approx(b.mean_us, rel=0.05)


@pytest.mark.parametrize("window", [True, False])
@pytest.mark.parametrize("seconds", [0.02, 1.0, 240.0, 3000.0])
@pytest.mark.parametrize("where", [0.3, 0.5, 0.999])
def test_an_op_that_claims_minutes_stretches_no_cycle(where: float, seconds: float, window: bool) -> None:
    whole = attribute(sound())
    row = int(where * sound()[0].gpu_ops.num_rows)
    claimed = round(seconds * 1e9)
    found = attribute(hurt(sound(), row, duration=claimed, window=window))
    same_split(found, whole)
    if (where, seconds, window) == (0.999, 0.02, False):
        return  # a last op of 20 ms could be: nothing in the recording contradicts it
    (said,) = [f for f in found.findings if f.kind == "durations_damaged"]
    assert said.severity == "warning"
    assert said.numbers["ops"] == 1
    assert said.numbers["claimed_s"] == pytest.approx(seconds)
    assert said.sentence in found.warnings
    assert not [f for f in whole.findings if f.kind == "durations_damaged"]


def test_many_damaged_ops_are_counted() -> None:
    whole, traces = attribute(sound()), sound()
    for row in range(40, traces[0].gpu_ops.num_rows - 40, 100):
        traces = hurt(traces, row, duration=60_000_000_000, window=False)
    found = attribute(traces)
    (said,) = [f for f in found.findings if f.kind == "durations_damaged"]
    assert said.numbers["ops"] == len(range(40, sound()[0].gpu_ops.num_rows - 40, 100))
    assert [r.cycles for r in found.ranks] == [r.cycles for r in whole.ranks]
    assert found.ranks[0].wall_ns == pytest.approx(whole.ranks[0].wall_ns, rel=0.01)


def test_a_start_outside_the_recording_is_left_out() -> None:
    first = sound()[0]

    def moved(values: list[int]) -> list[int]:
        values[len(values) // 2] += 30_000_000_000
        return values

    found = attribute((replace(first, gpu_ops=with_column(first.gpu_ops, "start_ns", moved)), *sound()[1:]))
    (lost,) = [f for f in found.findings if f.kind == "ops_without_start"]
    assert lost.numbers == {"ops": 1}
    assert found.ranks[0].wall_ns == pytest.approx(attribute(sound()).ranks[0].wall_ns, rel=0.001)


def test_a_damaged_window_is_not_believed() -> None:
    first = sound()[0]
    assert first.info.window_start_ns is not None
    for start, length in ((0, 1), (first.info.window_start_ns, 5_000_000), (first.info.window_start_ns, None)):
        lying = replace(first, info=replace(first.info, window_start_ns=start, window_duration_ns=length))
        found = attribute((lying, *sound()[1:]))
        assert found.ranks == attribute(sound()).ranks
        assert not {"durations_damaged", "ops_without_start"} & {f.kind for f in found.findings}


def test_a_host_op_that_outlasts_the_recording_hides_nothing() -> None:
    traces = read_traces([CPU], cache=False)
    whole = attribute(traces)
    table = traces[0].cpu_ops

    def longer(values: list[int]) -> list[int]:
        values[len(values) // 3] = 200_000_000_000
        return values

    damaged = replace(traces[0], cpu_ops=with_column(table, "duration_ns", longer))
    for window in (True, False):
        if not window:
            damaged = replace(damaged, info=replace(damaged.info, window_start_ns=None, window_duration_ns=None))
        found = attribute((damaged, *traces[1:]))
        assert [r.cycles for r in found.ranks] == [r.cycles for r in whole.ranks]
        assert found.ranks[0].wall_ns == pytest.approx(whole.ranks[0].wall_ns, rel=0.05)
        (lost,) = [f for f in found.findings if f.kind == "ops_without_start"]
        assert lost.sentence.startswith("1 host ops have no credible")


def test_early_launches_are_no_damage() -> None:
    # Each kernel begins while the ones ahead still run, as dependent launches do, up to the limit.
    start = np.arange(100, dtype=np.int64) * 10
    duration = np.full(100, MOST_UNDER * 10, np.int64)
    same, cut = shortened(start, duration, np.zeros(100, np.int64), np.ones(100, np.bool_), None)
    assert (same == duration).all()
    assert not len(cut)
    # Ops of streams that the trace does not name may run side by side.
    long = np.full(100, 500, np.int64)
    assert not len(shortened(start, long, np.zeros(100, np.int64), np.zeros(100, np.bool_), (0, 2000))[1])
    assert len(shortened(start, long, np.zeros(100, np.int64), np.ones(100, np.bool_), (0, 2000))[1]) == 91


INTERVALS = st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**10), st.integers(0, 3)), max_size=60)


@settings(max_examples=150, deadline=None)
@given(INTERVALS, st.one_of(st.none(), st.tuples(st.integers(0, 10**6), st.integers(10**6, 10**8))))
def test_durations_only_shrink_and_what_is_cut_is_named(
    rows: list[tuple[int, int, int]], window: tuple[int, int] | None
) -> None:
    start, duration, stream = (np.array([r[i] for r in rows], np.int64) for i in range(3))
    ordered = np.ones(len(rows), np.bool_)
    made, cut = shortened(start, duration, stream, ordered, window)
    assert ((made <= duration) & (made >= 0)).all()
    assert set(np.flatnonzero(made < duration).tolist()) == set(cut.tolist())
    again, more = shortened(start, made, stream, ordered, window)
    assert ((again <= made) & (again >= 0)).all()
    assert len(more) <= len(rows)
    assert len(last_moment(start, duration, window)) == len(rows)
    known = credible(start, duration, ordered, window)
    assert len(known) == len(rows)
    if window is None:
        assert known.all()
