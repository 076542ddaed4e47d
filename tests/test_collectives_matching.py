"""Matching of collectives over ranks: alignment, transfer and wait, clocks, and when it must abstain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.collectives.clocks import clock_offset
from profkit.collectives.matching import CLEAR_RATIO, Calls, align, match

CYCLE = 10_000_000


@dataclass(frozen=True)
class Made:
    ranks: list[Calls]
    transfer: np.ndarray  # (cycles, calls)
    late: np.ndarray  # (ranks, cycles, calls): how late each rank arrives after the first


def made(
    *,
    ranks: int = 3,
    cycles: int = 8,
    per_cycle: int = 5,
    offsets: tuple[int, ...] = (),
    first: tuple[int, ...] = (),
    jitter: float = 0.05,
    seed: int = 0,
) -> Made:
    """Ranks that run the same cycles; rank r recorded from cycle ``first[r]`` with its clock off by ``offsets[r]``."""
    rng = np.random.default_rng(seed)
    lengths = CYCLE * (1 + jitter * rng.standard_normal(cycles))
    starts = np.concatenate([[0.0], np.cumsum(lengths)[:-1]])
    transfer = rng.integers(20_000, 30_000, (cycles, per_cycle))
    late = rng.integers(0, 8_000, (ranks, cycles, per_cycle))
    late[0] = 0
    if not jitter:
        late[:], transfer[:] = 0, 25_000
    result = []
    for r in range(ranks):
        offset = offsets[r] if r < len(offsets) else 0
        skip = first[r] if r < len(first) else 0
        rows = []
        for c in range(skip, cycles):
            for k in range(per_cycle):
                arrive = int(starts[c]) + k * 100_000
                begin = arrive + int(late[r, c, k])
                end = arrive + int(late[:, c, k].max()) + int(transfer[c, k])
                rows.append((c - skip, 7, k, begin + offset, end + offset))
        table = np.array(rows, np.int64)
        result.append(
            Calls(
                cycle=table[:, 0], key=table[:, 1], ordinal=table[:, 2], start=table[:, 3], end=table[:, 4],
                symmetric=np.ones(len(table), np.bool_), joint_end=np.ones(len(table), np.bool_),
                usable=np.arange(cycles - skip, dtype=np.int64), cycle_ns=float(CYCLE),
            )
        )  # fmt: skip
    return Made(result, transfer, late)


def test_transfer_is_what_the_last_rank_needs() -> None:
    one = made()
    found = match(one.ranks, same_clock=False)
    for r, calls in enumerate(one.ranks):
        assert [a.shift for a in found.alignment] == [0, 0, 0]
        expected = one.transfer[calls.cycle, calls.ordinal]
        assert (found.transfer[r] == expected).all()
        waiting = one.late.max(axis=0)[calls.cycle, calls.ordinal] - one.late[r][calls.cycle, calls.ordinal]
        assert (found.wait[r] == waiting).all()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(-(10**12), 10**12),
    st.integers(-(10**12), 10**12),
    st.integers(0, 10_000),
)
def test_shifts_and_clocks_are_recovered(a: int, b: int, one_ns: int, two_ns: int, seed: int) -> None:
    # Clocks may be off by many cycles: the rhythm of the cycles tells the shift.
    one = made(first=(0, a, b), offsets=(0, one_ns, two_ns), seed=seed)
    found = match(one.ranks, same_clock=False)
    assert [x.shift for x in found.alignment] == [0, a, b]
    offsets = [o.offset for o in found.offset if o is not None]
    assert offsets == pytest.approx([0, one_ns, two_ns], abs=1)
    for r, calls in enumerate(one.ranks):
        cycle = calls.cycle + (0, a, b)[r]
        both = cycle >= max(a, b)
        assert (found.transfer[r][both] == one.transfer[cycle, calls.ordinal][both]).all()
        assert (found.transfer[r][~both] == -1).all()


def test_even_cycles_are_ambiguous_without_a_common_clock() -> None:
    one = made(first=(0, 2), ranks=2, jitter=0.0, offsets=(0, 123_456_789))
    found = match(one.ranks, same_clock=False)
    assert found.alignment[1].how == "ambiguous"
    assert found.alignment[1].shift is None
    assert all((t == -1).all() for t in found.transfer)
    assert found.offset == [None, None]


def test_a_common_clock_decides_between_even_cycles() -> None:
    one = made(first=(0, 2), ranks=2, jitter=0.0, offsets=(0, 40_000))
    found = match(one.ranks, same_clock=True)
    assert (found.alignment[1].how, found.alignment[1].shift) == ("clock", 2)


def test_two_ranks_with_one_cycle_each_need_a_common_clock() -> None:
    one = made(ranks=2, cycles=1)
    assert align(one.ranks[1], one.ranks[0], same_clock=False).shift is None
    assert align(one.ranks[1], one.ranks[0], same_clock=True).shift == 0


def test_cycles_with_unequal_counts_are_left_out() -> None:
    one = made(ranks=2)
    whole = one.ranks[1]
    keep = ~((whole.cycle == 3) & (whole.ordinal == 4))
    lame = Calls(
        whole.cycle[keep], whole.key[keep], whole.ordinal[keep], whole.start[keep], whole.end[keep],
        whole.symmetric[keep], whole.joint_end[keep], whole.usable, whole.cycle_ns,
    )  # fmt: skip
    found = match([one.ranks[0], lame], same_clock=False)
    assert found.unequal.tolist() == [3]
    assert (found.transfer[0][one.ranks[0].cycle == 3] == -1).all()
    assert (found.transfer[0][one.ranks[0].cycle != 3] >= 0).all()


def test_a_broadcast_has_no_transfer_and_no_clock() -> None:
    one = made(ranks=2)
    asymmetric = [
        Calls(
            c.cycle, c.key, c.ordinal, c.start, c.end, np.zeros(len(c), np.bool_), np.zeros(len(c), np.bool_),
            c.usable, c.cycle_ns,
        )
        for c in one.ranks
    ]  # fmt: skip
    found = match(asymmetric, same_clock=True)
    assert all((t == -1).all() for t in found.transfer)
    assert found.calls == 0


def test_a_rank_that_is_always_late_is_always_last() -> None:
    one = made(ranks=4)
    late = list(one.ranks)
    slow = late[2]
    late[2] = Calls(
        slow.cycle, slow.key, slow.ordinal, slow.start + 15_000, slow.end, slow.symmetric, slow.joint_end, slow.usable,
        slow.cycle_ns,
    )  # fmt: skip
    found = match(late, same_clock=False)
    assert found.last_share[2] > 0.95
    assert found.arrival_skew == pytest.approx(15_000 + one.late[2].mean(), rel=0.2)


def test_one_rank_matches_nothing() -> None:
    one = made(ranks=1)
    found = match(one.ranks, same_clock=True)
    assert (found.transfer[0] == -1).all()
    assert found.offset == [None]


def test_clock_offset_of_nothing_is_unknown() -> None:
    nothing = np.zeros(0, np.int64)
    assert clock_offset(nothing, nothing) is None


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=50), st.integers(-(2**62), 2**61))
def test_offsets_keep_nanoseconds_at_any_clock(noise: list[int], base: int) -> None:
    reference = np.full(len(noise), base, np.int64)
    found = clock_offset(reference + np.array(noise, np.int64), reference)
    assert found is not None
    assert found.offset == float(np.median(noise))
    assert found.spread >= 0


def test_how_clear_an_alignment_is() -> None:
    clear = match(made(ranks=2, first=(0, 1)).ranks, same_clock=False).alignment[1]
    assert clear.how == "spread"
    assert clear.margin is not None
    assert clear.margin > 2 * CLEAR_RATIO
    even = match(made(ranks=2, first=(0, 1), jitter=0.0).ranks, same_clock=True).alignment
    assert even[0].margin is None
    assert even[1].how == "clock"
    # Cycles so even that the next shift fits nearly as well: decided, but narrowly.
    margins = []
    for jitter in (0.00025, 0.0005, 0.001, 0.004, 0.02):
        found = match(made(ranks=2, cycles=30, first=(0, 1), jitter=jitter).ranks, same_clock=False).alignment[1]
        if found.how == "spread":
            assert found.shift == 1
            assert found.margin is not None
            assert found.margin > CLEAR_RATIO
            margins.append(found.margin)
    assert margins == sorted(margins)
    assert len(margins) >= 2
