"""How long the host works per cycle: the pace that the GPU cannot beat, however fast it gets."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.attribution.cycles import Cycles
from profkit.attribution.ops import MISSING, Ops, int_column, text_codes
from profkit.trace import Trace

Ints = npt.NDArray[np.int64]

# Calls in which the host only waits for the GPU.
_WAITS: Final = ("Synchronize", "StreamWaitValue")


def host_time(trace: Trace, ops: Ops, cycles: Cycles) -> Ints:
    """Host ns per cycle, from its first launch to the next cycle's, less the calls that wait for the GPU.

    Shape (cycles,); -1 where a cycle or its successor has no recorded launch.
    """
    count = len(cycles)
    result = np.full(count, MISSING, np.int64)
    known = (ops.launch_ns >= 0) & (cycles.op_cycle >= 0)
    if count < 2 or not known.any():
        return result
    first = np.full(count, np.iinfo(np.int64).max, np.int64)
    np.minimum.at(first, cycles.op_cycle[known], ops.launch_ns[known])
    begin, end = first[:-1], first[1:]
    whole = (end < np.iinfo(np.int64).max) & (begin < end)
    waited = _waited_before(trace, end) - _waited_before(trace, begin)
    result[:-1] = np.where(whole, end - begin - waited, MISSING)
    return result


def _waited_before(trace: Trace, moments: Ints) -> Ints:
    """Ns spent in waiting calls before each moment; calls of several threads that overlap count once."""
    words, codes = text_codes(trace.launches, "name")
    waits = np.array([any(w in word for w in _WAITS) for word in words] or [False])
    rows = np.flatnonzero(waits[codes]) if len(words) else np.zeros(0, np.int64)
    if not len(rows):
        return np.zeros(len(moments), np.int64)
    start = int_column(trace.launches, "start_ns")[rows]
    stop = start + int_column(trace.launches, "duration_ns", 0)[rows]
    order = np.argsort(start, kind="stable")
    start, stop = start[order], np.maximum.accumulate(stop[order])
    start[1:] = np.maximum(start[1:], stop[:-1])
    done = np.concatenate([[0], np.cumsum(stop - start)])
    at = np.searchsorted(start, moments, side="right")
    last = np.maximum(at - 1, 0)
    running = np.where(at > 0, np.clip(stop[last] - moments, 0, None), 0)
    waited: Ints = done[at] - np.minimum(running, stop[last] - start[last])
    return waited
