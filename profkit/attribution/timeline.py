"""The exclusive timeline: at each instant one phase and one activity, in integer nanoseconds.

Compute hides an all-reduce, an all-reduce hides other communication, that hides copies,
and what is left is idle. Ties in the winning activity go to the target forward's stream, then to the op that started
first, then to file order. Idle goes to the phase of the next op. So the parts of any window add up to its length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profkit.attribution.kernels import ALLREDUCE, COMM, COMPUTE, IDLE
from profkit.attribution.labels import UNLABELLED
from profkit.words import ACTIVITIES, PHASES

Ints = npt.NDArray[np.int64]
Small = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Segments that tile the windows: half-open [start, end) with window, phase and activity codes.

    ``winner`` is the position of the op that the segment was given to; for idle the op that ends it, -1 if none.
    ``overlapped`` is the communication hidden under compute, in ns per window.
    """

    window: Ints
    start: Ints
    end: Ints
    phase: Small
    activity: Small
    winner: Ints
    overlapped: Ints

    def parts(self, windows: int) -> Ints:
        """Sums in ns, shape (windows, phases, activities)."""
        shape = (windows, len(PHASES), len(ACTIVITIES))
        flat = np.ravel_multi_index((self.window, self.phase, self.activity), shape)
        sums = np.zeros(int(np.prod(shape)), np.int64)
        np.add.at(sums, flat, self.end - self.start)
        return sums.reshape(shape)


def exclusive_timeline(
    start: Ints,
    end: Ints,
    activity: Small,
    phase: Small,
    stream: Ints,
    main: npt.NDArray[np.bool_],
    window_start: Ints,
    window_end: Ints,
) -> Timeline:
    """Split disjoint, ascending windows among ops in file order.

    Args:
        start: effective starts in ns. On one stream ops must not overlap (:func:`ops.effective_intervals`).
        end: effective ends, ``end >= start``.
        activity: codes of :data:`profkit.words.ACTIVITIES`, never idle.
        phase: codes of :data:`profkit.words.PHASES`.
        stream: any integer per stream.
        main: ops on the target forward's stream.
        window_start: first ns of each window.
        window_end: first ns after each window.
    """
    borders = np.sort(np.concatenate([start, end, window_start, window_end]))
    borders = borders[np.append(True, borders[1:] != borders[:-1])] if len(borders) else borders
    if len(borders) < 2 or not len(window_start):
        return _empty(len(window_start))
    left, right = borders[:-1], borders[1:]
    window = np.searchsorted(window_start, left, side="right") - 1
    inside = window >= 0
    inside[inside] = left[inside] < window_end[window[inside]]
    count = len(left)
    winner = np.full(count, -1, np.int64)
    talking = np.zeros(count, np.bool_)
    begin, stop = np.searchsorted(borders, start), np.searchsorted(borders, end)
    for code in np.unique(stream):
        mine = np.flatnonzero((stream == code) & (end > start))
        here = _running(mine, begin[mine], stop[mine], count)
        on = np.flatnonzero(here >= 0)
        op = here[on]
        talking[on] |= (activity[op] == ALLREDUCE) | (activity[op] == COMM)
        winner[on] = _better(winner[on], op, activity, main, start)
    busy = winner >= 0
    idle_op = _next_op(right, start, main)
    owner = np.where(busy, winner, idle_op)
    seg_phase = np.full(count, UNLABELLED, np.int8)
    seg_phase[owner >= 0] = phase[owner[owner >= 0]]
    seg_activity = np.full(count, IDLE, np.int8)
    seg_activity[busy] = activity[winner[busy]]
    length = right - left
    hidden = inside & talking & busy & (seg_activity == COMPUTE)
    overlapped = np.zeros(len(window_start), np.int64)
    np.add.at(overlapped, window[hidden], length[hidden])
    return _merge(window[inside], left[inside], right[inside], seg_phase[inside], seg_activity[inside],
                  owner[inside], overlapped)  # fmt: skip


def _empty(windows: int) -> Timeline:
    none, small = np.zeros(0, np.int64), np.zeros(0, np.int8)
    return Timeline(none, none, none, small, small, none, np.zeros(windows, np.int64))


def _running(ops: Ints, begin: Ints, stop: Ints, count: int) -> Ints:
    """Per elementary interval the op of one stream that runs in it, else -1. Ops of a stream never overlap."""
    change = np.zeros(count + 1, np.int64)
    # +k at its first interval, -k after its last: the running sum names the op, shifted by one so that 0 is nothing.
    np.add.at(change, begin, ops + 1)
    np.add.at(change, stop, -(ops + 1))
    return np.cumsum(change)[:count] - 1


def _better(held: Ints, new: Ints, activity: Small, main: npt.NDArray[np.bool_], start: Ints) -> Ints:
    """Of two running ops per interval the one that wins it; ``held`` may be -1."""
    safe = np.maximum(held, 0)
    wins = held < 0
    tie = ~wins
    for mine, theirs in (
        (activity[new], activity[safe]),
        (~main[new], ~main[safe]),
        (start[new], start[safe]),
        (new, safe),
    ):
        wins |= tie & (mine < theirs)
        tie &= mine == theirs
    return np.where(wins, new, held)


def _next_op(moment: Ints, start: Ints, main: npt.NDArray[np.bool_]) -> Ints:
    """The op that starts first at or after each moment (target stream first, then file order), else -1."""
    if not len(start):
        return np.full(len(moment), -1, np.int64)
    order = np.lexsort((np.arange(len(start)), ~main, start))
    place = np.searchsorted(start[order], moment, side="left")
    return np.where(place < len(order), order[np.minimum(place, len(order) - 1)], -1)


def _merge(window: Ints, left: Ints, right: Ints, phase: Small, activity: Small, owner: Ints, overlapped: Ints) -> (
    Timeline
):  # fmt: skip
    """Join neighbours of the same window, phase and activity; the first one's op stays."""
    if not len(left):
        return _empty(len(overlapped))
    new = np.ones(len(left), np.bool_)
    new[1:] = (
        (window[1:] != window[:-1])
        | (phase[1:] != phase[:-1])
        | (activity[1:] != activity[:-1])
        | (left[1:] != right[:-1])
    )
    first = np.flatnonzero(new)
    last = np.append(first[1:] - 1, len(left) - 1)
    return Timeline(window[first], left[first], right[last], phase[first], activity[first], owner[first], overlapped)
