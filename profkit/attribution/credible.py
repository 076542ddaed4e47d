"""Which times of a recording can be: one damaged digit moves an op by days, or lets it last for minutes."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# No recording lasts this long: an hour of events would be terabytes.
FARTHEST_NS: Final = 3_600_000_000_000
# On one stream a kernel may begin before the one ahead has ended (programmatic dependent launch), and its follower may
# follow at once. Real recordings show one or two such kernels; an op that "runs" under more does not run any more.
MOST_UNDER: Final = 8
# Clocks of GPU and host are aligned to about this.
WINDOW_SLACK_NS: Final = 1_000_000
# Fewer ops than this are no measure of what else is in a recording.
FEWEST: Final = 16
# A window that leaves out more than this share of the ops is the damaged one.
WINDOW_MISSED: Final = 0.05


def credible(start: Ints, duration: Ints, known: Bools, window: tuple[int, int] | None) -> Bools:
    """Rows with a start near the others' and inside the recording's window, and a duration that an op can have.

    Args:
        start: ns.
        duration: ns.
        known: rows that have a start.
        window: first and last ns of the recording, where it says so.
    """
    if not known.any():
        return known
    middle = int(np.median(start[known]))
    near = (start >= middle - FARTHEST_NS) & (start <= middle + FARTHEST_NS)
    good = known & near & (duration <= FARTHEST_NS)
    if window is None:
        return good
    inside = (start >= window[0] - WINDOW_SLACK_NS) & (start <= window[1] + WINDOW_SLACK_NS)
    return good & inside if holds(inside[good]) else good


def holds(inside: Bools) -> bool:
    """Whether a window, given which rows lie inside, is to be believed."""
    return bool(len(inside)) and float((~inside).mean()) <= WINDOW_MISSED


def last_moment(start: Ints, duration: Ints, window: tuple[int, int] | None) -> Ints:
    """The latest ns at which each op can have ended: the window's end where the recording states a window that the ops
    fit in; else no op lasts longer than everything else in the recording."""
    far = np.full(len(start), np.iinfo(np.int64).max)
    if not len(start):
        return far
    end = start + duration
    if window is not None:
        limit = window[1] + WINDOW_SLACK_NS
        if holds(end <= limit):
            return np.full(len(start), limit)
    first, last = int(start.min()), int(start.max())
    usual = duration <= last - first
    if np.count_nonzero(usual) < FEWEST:
        return far
    rest = max(last, int(end[usual].max()))
    return np.where(duration > rest - first, np.maximum(rest, start), far)


def shortened(
    start: Ints, duration: Ints, stream: Ints, ordered: Bools, window: tuple[int, int] | None
) -> tuple[Ints, Ints]:
    """Durations with those cut that cannot be, and the rows that were cut.

    An op under which more than :data:`MOST_UNDER` later ones of its stream begin has ended when the next one began.
    One that ends after the recording ended with it (:func:`last_moment`), and where the next op of its stream begins.

    Args:
        start: ns.
        duration: ns, not negative.
        stream: any integer per stream.
        ordered: rows whose stream is known, so that its ops run one after the other.
        window: first and last ns of the recording, where it says so.
    """
    result, end = duration.copy(), start + duration
    late = end > last_moment(start, duration, window)
    order = np.lexsort((np.arange(len(start)), start, stream))
    borders = np.flatnonzero(np.diff(stream[order])) + 1
    for part in np.split(order, borders) if len(start) else ():
        begin = start[part]
        under = np.searchsorted(begin, end[part], side="left") - np.arange(len(part)) - 1
        cut = ordered[part] & (under > 0) & ((under > MOST_UNDER) | late[part])
        following = np.append(begin[1:], end[part[-1]])
        result[part[cut]] = (following - begin)[cut]
    limit = last_moment(start, duration, window)
    still = start + result > limit
    result[still] = np.maximum(limit - start, 0)[still]
    return result, np.flatnonzero(result < duration).astype(np.int64)
