"""Why the GPU waited: each idle gap by what the host did before it launched the op that ended the gap."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.attribution.cycles import Cycles
from profkit.attribution.kernels import IDLE
from profkit.attribution.labels import DRAFT, VERIFY, Labels
from profkit.attribution.ops import Ops, int_column, text_codes
from profkit.attribution.timeline import Timeline
from profkit.trace import Trace

Ints = npt.NDArray[np.int64]

# The order is the order of tables.
CAUSES: Final = ("host_sync", "cpu_draft", "scheduler", "host_bound", "launch", "dependency", "kernel_gaps", "unknown")
WORDS: Final = {
    "host_sync": "the host waited for the GPU (stream synchronize, copy to the host) before it launched on",
    "cpu_draft": "drafting on the CPU",
    "scheduler": "the scheduler between two cycles",
    "host_bound": "the host launched late",
    "launch": "inside the launch call and on the way to the GPU",
    "dependency": "launched in time, waiting for another stream or event",
    "kernel_gaps": "between kernels that were already queued",
    "unknown": "no launch recorded",
}
# In traces without a GPU every host op is its own launch: between two of them the thread runs what is no torch op.
HOST_WORDS: Final = {
    **WORDS,
    "cpu_draft": "Python code before the verify (drafting on the CPU)",
    "host_bound": "Python code between two host ops",
    "launch": "Python code between two host ops",
}
# A launched op that starts this soon after its launch call was waiting for the launch itself.
LAUNCH_LATENCY_NS: Final = 20_000
# Queued kernels of one stream follow each other within this time unless the later one waits for something else.
KERNEL_GAP_NS: Final = 5_000
_SYNC_NAMES: Final = ("Synchronize", "EventQuery", "StreamWaitValue")


def cause_words(cause: str, *, without_gpu: bool) -> str:
    """What a cause of idle time is, in words; in a trace without a GPU nothing is launched."""
    return (HOST_WORDS if without_gpu else WORDS).get(cause, cause)


def idle_by_cause(trace: Trace, ops: Ops, labels: Labels, cycles: Cycles, timeline: Timeline) -> Ints:
    """Idle ns per cycle and cause, shape (cycles, causes); a cycle's row adds up to its idle time exactly."""
    result = np.zeros((len(cycles), len(CAUSES)), np.int64)
    gap = np.flatnonzero(timeline.activity == IDLE)
    if not len(gap):
        return result
    begin, end = timeline.start[gap], timeline.end[gap]
    window, op = timeline.window[gap], timeline.winner[gap]
    safe = np.maximum(op, 0)
    known = (op >= 0) & (ops.launch_ns[safe] >= 0)
    launch = np.where(known, ops.launch_ns[safe], begin)
    # The host's part of a gap ends when it calls the launch; the rest is the way from the call to the kernel.
    host_end = np.clip(launch, begin, end)
    late = known & (launch > begin)
    cause = np.full(len(gap), CAUSES.index("unknown"))
    in_time = known & ~late
    cause[in_time] = CAUSES.index("dependency")
    cause[in_time & (end - ops.launch_end_ns[safe] < LAUNCH_LATENCY_NS)] = CAUSES.index("launch")
    before = _op_before(ops, begin)
    queued = in_time & (before >= 0)
    earlier = np.maximum(before, 0)
    same_graph = ops.graph_launch[safe] & (ops.correlation[safe] == ops.correlation[earlier])
    next_in_line = (ops.stream[safe] == ops.stream[earlier]) & (end - begin <= KERNEL_GAP_NS)
    cause[queued & (same_graph | next_in_line)] = CAUSES.index("kernel_gaps")
    cause[late] = CAUSES.index("host_bound")
    cause[late & _next_cycle_begins(cycles, window, end)] = CAUSES.index("scheduler")
    cause[late & _synchronised(trace, ops, begin, launch, ops.launch_thread[safe])] = CAUSES.index("host_sync")
    if drafts_on_cpu(labels):
        # The host waits for the result because it drafts from it: the draft is the cause.
        cause[late & (labels.phase[safe] == VERIFY)] = CAUSES.index("cpu_draft")
    flat = result.reshape(-1)
    np.add.at(flat, window * len(CAUSES) + cause, np.where(late, host_end - begin, end - begin))
    np.add.at(result[:, CAUSES.index("launch")], window[late], (end - host_end)[late])
    return result


def drafts_on_cpu(labels: Labels) -> bool:
    """Whether target forwards verify although no GPU op drafts: the drafts come from the CPU (NGRAM)."""
    return bool((labels.phase == VERIFY).any()) and not bool((labels.phase == DRAFT).any())


def _op_before(ops: Ops, moment: Ints) -> Ints:
    """The op that ended last before each moment, -1 if none."""
    order = np.argsort(ops.end, kind="stable")
    place = np.searchsorted(ops.end[order], moment, side="right") - 1
    return np.where(place >= 0, order[np.maximum(place, 0)], -1)


def _next_cycle_begins(cycles: Cycles, window: Ints, end: Ints) -> npt.NDArray[np.bool_]:
    return np.asarray(end == cycles.end[window])


def _synchronised(trace: Trace, ops: Ops, begin: Ints, launch: Ints, thread: Ints) -> npt.NDArray[np.bool_]:
    """Whether the launching thread came back from a blocking call between the gap's start and the launch."""
    words, word = text_codes(trace.launches, "name")
    blocking = np.array([any(s in w for s in _SYNC_NAMES) for w in words] or [False], np.bool_)[word]
    # A copy to pageable host memory blocks like a synchronize: its call lasts until the copy is done.
    copies = np.array(["Memcpy" in w for w in words] or [False], np.bool_)[word]
    starts, lasts = int_column(trace.launches, "start_ns"), int_column(trace.launches, "duration_ns", 0)
    blocking |= copies & (lasts > LAUNCH_LATENCY_NS)
    if not blocking.any():
        return np.zeros(len(begin), np.bool_)
    threads = ops.threads.code(trace.launches.take(np.flatnonzero(blocking)))
    ends = starts[blocking] + lasts[blocking]
    result = np.zeros(len(begin), np.bool_)
    for code in np.unique(threads).tolist():
        mine = threads == code
        finish = np.sort(ends[mine])
        here = np.flatnonzero(thread == code)
        place = np.searchsorted(finish, launch[here], side="right") - 1
        good = place >= 0
        # It was open when the GPU ran dry, or was entered in the gap: the launch had to wait for it.
        good[good] = finish[place[good]] >= begin[here[good]]
        result[here] = good
    return result
