"""Collectives of all ranks of one group: which cycles belong together, which calls, who waited for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from profkit.collectives.clocks import Offset, clock_offset

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_ORDINALS: Final = 1 << 20
_KEYS: Final = 1 << 10
# Overlap of two ranks' cycles below this share of the shorter one proves nothing.
MIN_OVERLAP: Final = 0.6
# A shift is clear when the next best one spreads this many times wider.
CLEAR_RATIO: Final = 3.0
# The next best shift spreads the ends so many times wider at least, or it was a narrow decision.
NARROW: Final = 2 * CLEAR_RATIO
# A spread below a microsecond is the clock's grain: between two such shifts it decides nothing.
GRAIN_NS: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Calls:
    """Collective calls of one rank. ``key`` codes (phase, kind), the same on all ranks; ``start`` and ``end`` are
    absolute ns on the rank's clock; ``usable`` are cycles (by ordinal) that are whole, in ascending order.
    """

    cycle: Ints
    key: Ints
    ordinal: Ints
    start: Ints
    end: Ints
    symmetric: Bools
    joint_end: Bools  # kinds whose ends are nearly simultaneous on all ranks
    usable: Ints
    cycle_ns: float  # typical length of a cycle

    def __len__(self) -> int:
        return len(self.cycle)


@dataclass(frozen=True, slots=True)
class Alignment:
    """``shift`` is added to a rank's cycle ordinals to get those of the reference.

    ``how``: ``reference``; ``spread`` (one shift stands out); ``clock`` (several fit, the host's clock decides);
    ``ambiguous`` (shift is ``None``). ``spread_ns`` and ``next_spread_ns`` are those of the best and the next shift.
    """

    shift: int | None
    how: Literal["reference", "spread", "clock", "ambiguous"]
    spread_ns: float | None = None
    next_spread_ns: float | None = None

    @property
    def margin(self) -> float | None:
        """How many times wider the next best shift spreads the ends: little more than :data:`CLEAR_RATIO` is a narrow
        decision. ``None`` where nothing was decided, or no other shift was possible."""
        if self.spread_ns is None or self.next_spread_ns is None:
            return None
        return self.next_spread_ns / max(self.spread_ns, GRAIN_NS)


@dataclass(frozen=True, slots=True)
class Matched:
    """Result for one group of ranks; lists are per rank. -1 in ``transfer`` and ``wait`` where unmatched.

    ``unequal`` are aligned cycles whose counts differ between ranks. ``arrival_skew`` is the median over matched
    symmetric calls of the last start minus the first, clocks corrected, in ns; ``None`` where clocks are unknown.
    """

    alignment: list[Alignment]
    offset: list[Offset | None]
    transfer: list[Ints]
    wait: list[Ints]
    unequal: Ints
    last_share: list[float]  # share of matched symmetric calls in which this rank arrived last (waited least)
    arrival_skew: float | None
    calls: int


def _signatures(calls: Calls) -> dict[int, tuple[tuple[int, int], ...]]:
    """Per usable cycle how many calls of each key it has."""
    result: dict[int, tuple[tuple[int, int], ...]] = {int(c): () for c in calls.usable}
    both = np.stack([calls.cycle, calls.key], axis=1)
    if len(both):
        pairs, counts = np.unique(both, axis=0, return_counts=True)
        for (cycle, key), count in zip(pairs.tolist(), counts.tolist(), strict=True):
            if cycle in result:
                result[cycle] += ((key, count),)
    return result


@dataclass(frozen=True, slots=True)
class _Rhythm:
    """Per usable cycle, by ordinal: the mean end of its calls in ns after ``base``, and a number for its signature.

    Cycles without a call of joint end have no mean (NaN). Cycles of one signature hold the same calls, so that a
    difference of their means is the mean of the differences.
    """

    first: int
    base: int
    mean: npt.NDArray[np.float64]
    signature: Ints


def _rhythms(calls: Calls, reference: Calls) -> tuple[_Rhythm, _Rhythm] | None:
    numbers: dict[tuple[tuple[int, int], ...], int] = {}
    made = []
    for one in (calls, reference):
        wanted = one.joint_end & np.isin(one.cycle, one.usable)
        if not wanted.any():
            return None
        first = int(one.usable[0])
        count = int(one.usable[-1]) - first + 1
        base = int(one.end[wanted].min())
        place = one.cycle[wanted] - first
        sums = np.bincount(place, weights=(one.end[wanted] - base).astype(np.float64), minlength=count)
        calls_in = np.bincount(place, minlength=count)
        mean = np.divide(sums, calls_in, out=np.full(count, np.nan), where=calls_in > 0)
        signature = np.full(count, -1, np.int64)
        for cycle, counts in _signatures(one).items():
            signature[cycle - first] = numbers.setdefault(counts, len(numbers))
        made.append(_Rhythm(first, base, mean, signature))
    return made[0], made[1]


def _try_shift(mine: _Rhythm, theirs: _Rhythm, shift: int, need: int) -> tuple[float, float, int] | None:
    """Spread and size of the differences of ends at a shift, ``None`` where too few cycles overlap or look alike."""
    # Position i of mine meets position i + lag of theirs.
    lag = mine.first + shift - theirs.first
    low, high = max(0, -lag), min(len(mine.mean), len(theirs.mean) - lag)
    if high - low < need:
        return None
    a, b = slice(low, high), slice(low + lag, high + lag)
    known = np.isfinite(mine.mean[a]) & np.isfinite(theirs.mean[b])
    alike = known & (mine.signature[a] == theirs.signature[b])
    if known.sum() < need or alike.sum() < max(1, int(np.ceil(MIN_OVERLAP * known.sum()))):
        return None
    difference = (mine.mean[a] - theirs.mean[b])[alike]
    p10, p50, p90 = np.percentile(difference, [10, 50, 90])
    return float(p90 - p10), abs(float(p50) + (mine.base - theirs.base)), shift


def align(calls: Calls, reference: Calls, *, same_clock: bool) -> Alignment:
    """The shift of ``calls``' cycles onto ``reference``'s that spreads the differences of collective ends least.

    ``same_clock``: both ranks ran on one host, so that their clocks may decide between shifts that fit equally well.
    """
    rhythms = _rhythms(calls, reference)
    if rhythms is None:
        return Alignment(None, "ambiguous")
    mine, theirs = rhythms
    shortest = min(int(np.isfinite(r.mean).sum()) for r in rhythms)
    need = max(1, int(np.ceil(MIN_OVERLAP * shortest)))
    first = theirs.first - mine.first - len(mine.mean) + 1
    last = theirs.first - mine.first + len(theirs.mean) - 1
    # Spread, |median difference|, shift: the least first.
    tried = sorted(t for s in range(first, last + 1) if (t := _try_shift(mine, theirs, s, need)) is not None)
    if not tried:
        return Alignment(None, "ambiguous")
    best = tried[0]
    following = tried[1][0] if len(tried) > 1 else None
    limit = CLEAR_RATIO * max(best[0], GRAIN_NS)
    clear = Alignment(best[2], "spread", best[0], following)
    near = [t for t in tried if t[1] < 0.25 * reference.cycle_ns]
    if shortest > 1 and (following is None or following > limit):
        # A narrow decision of which one host's clock says the same is none.
        agreed = same_clock and near == [best] and clear.margin is not None and clear.margin < NARROW
        return replace(clear, how="clock") if agreed else clear
    if same_clock and len(near) == 1 and near[0][0] <= limit:
        others = [t[0] for t in tried if t[2] != near[0][2]]
        return Alignment(near[0][2], "clock", near[0][0], min(others) if others else None)
    return Alignment(None, "ambiguous", best[0], following)


def _joined(calls: Calls, shift: int) -> Ints:
    """One integer per call, equal on all ranks for calls that belong together."""
    return ((calls.cycle + shift + _KEYS * 64) * _KEYS + calls.key) * _ORDINALS + calls.ordinal


def match(ranks: Sequence[Calls], *, same_clock: bool, parties: Sequence[int] | None = None) -> Matched:
    """Match the calls of one group of ranks.

    Nothing is matched when the group has one rank or any alignment is ambiguous. ``parties`` names, for every rank,
    those among which durations are compared; all of them when not given.
    """
    count = len(ranks)
    reference = max(range(count), key=lambda r: (len(ranks[r].usable), -r))
    alignment = [
        Alignment(0, "reference") if r == reference else align(c, ranks[reference], same_clock=same_clock)
        for r, c in enumerate(ranks)
    ]
    nothing = [np.full(len(c), -1, np.int64) for c in ranks]
    none = Matched(alignment, [None] * count, nothing, [n.copy() for n in nothing], np.zeros(0, np.int64),
                   [0.0] * count, None, 0)  # fmt: skip
    shifts = [a.shift for a in alignment]
    if count < 2 or any(s is None for s in shifts):
        return none
    known = [int(s) for s in shifts if s is not None]
    unequal = _unequal_cycles(ranks, known)
    return _matched(ranks, known, alignment, unequal, reference, np.array(parties or [0] * count, np.int64))


def _unequal_cycles(ranks: Sequence[Calls], shifts: list[int]) -> Ints:
    signatures = [{c + s: v for c, v in _signatures(r).items()} for r, s in zip(ranks, shifts, strict=True)]
    common = set.intersection(*(set(s) for s in signatures))
    return np.array(sorted(c for c in common if len({s[c] for s in signatures}) > 1), np.int64)


def _matched(
    ranks: Sequence[Calls], shifts: list[int], alignment: list[Alignment], unequal: Ints, reference: int, party: Ints
) -> Matched:
    count = len(ranks)
    keys, rank_of, position = [], [], []
    for r, (calls, shift) in enumerate(zip(ranks, shifts, strict=True)):
        good = np.isin(calls.cycle, calls.usable) & ~np.isin(calls.cycle + shift, unequal)
        place = np.flatnonzero(good)
        keys.append(_joined(calls, shift)[place])
        rank_of.append(np.full(len(place), r))
        position.append(place)
    key, inverse, seen = np.unique(np.concatenate(keys), return_inverse=True, return_counts=True)
    row = np.full((count, len(key)), -1, np.int64)
    row[np.concatenate(rank_of), inverse.reshape(-1)] = np.concatenate(position)
    row = row[:, seen == count]
    start = np.stack([c.start[row[r]] for r, c in enumerate(ranks)])
    end = np.stack([c.end[row[r]] for r, c in enumerate(ranks)])
    duration = end - start
    symmetric, joint = ranks[0].symmetric[row[0]], ranks[0].joint_end[row[0]]
    least = np.zeros_like(duration)
    for one in np.unique(party) if duration.size else ():
        least[party == one] = duration[party == one].min(axis=0)
    transfer = [np.full(len(c), -1, np.int64) for c in ranks]
    wait = [np.full(len(c), -1, np.int64) for c in ranks]
    for r in range(count):
        transfer[r][row[r][symmetric]] = least[r][symmetric]
        wait[r][row[r][symmetric]] = (duration[r] - least[r])[symmetric]
    offset = [clock_offset(end[r][joint], end[reference][joint]) for r in range(count)]
    total = int(symmetric.sum())
    last = np.zeros(count)
    skew = None
    if total:
        last = np.bincount(duration[:, symmetric].argmin(axis=0), minlength=count) / total
        if all(o is not None for o in offset):
            moved = np.stack([start[r] - round(o.offset) for r, o in enumerate(offset) if o is not None])[:, symmetric]
            skew = float(np.median(moved.max(axis=0) - moved.min(axis=0)))
    return Matched(alignment, offset, transfer, wait, unequal, last.tolist(), skew, total)
