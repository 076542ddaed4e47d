"""Traces without a GPU: the outermost host ops of the scheduler's thread stand for GPU ops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profkit.attribution.credible import credible, last_moment
from profkit.attribution.kernels import class_table
from profkit.attribution.labels.dialect import annotation_meaning
from profkit.attribution.ops import MISSING, Ops, Threads, int_column, text_codes, window_of
from profkit.attribution.spans import outermost
from profkit.trace import Trace

Ints = npt.NDArray[np.int64]


def scheduler_thread(trace: Trace, threads: Threads) -> int:
    """The thread with most engine annotations, else with most collectives, else with most ops; -1 if none."""
    count = len(threads.pairs)
    if not count:
        return MISSING
    words, word = text_codes(trace.annotations, "name")
    engine = np.array([annotation_meaning(w).span not in ("nothing", "collective") for w in words] or [False])[word]
    cpu_words, cpu_word = text_codes(trace.cpu_ops, "name")
    talk = np.array([w.startswith("c10d::") for w in cpu_words] or [False])[cpu_word]
    annotated, worked = threads.code(trace.annotations), threads.code(trace.cpu_ops)
    keys = (
        np.bincount(annotated[engine & (annotated >= 0)], minlength=count),
        np.bincount(worked[talk & (worked >= 0)], minlength=count),
        np.bincount(worked[worked >= 0], minlength=count),
    )
    return max(range(count), key=lambda t: tuple(int(k[t]) for k in keys))


def read_host_ops(trace: Trace) -> Ops:
    """Outermost host ops of the scheduler's thread as :class:`Ops` on one stream; each is its own launch."""
    threads = Threads.of(trace.launches, trace.annotations, trace.cpu_ops)
    thread = scheduler_thread(trace, threads)
    table = trace.cpu_ops
    start, duration = int_column(table, "start_ns"), np.maximum(int_column(table, "duration_ns", 0), 0)
    window = window_of(trace.info)
    usable = credible(start, duration, table.column("start_ns").is_valid().to_numpy(zero_copy_only=False), window)
    # A host op that outlasts the recording would swallow all that follow: what it encloses stands for it.
    rows = np.flatnonzero(usable)
    usable[rows] = start[rows] + duration[rows] <= last_moment(start[rows], duration[rows], window)
    mine = np.flatnonzero(usable & (threads.code(table) == thread))
    order = mine[np.lexsort((mine, -duration[mine], start[mine]))]
    row = np.sort(order[outermost(start[order], start[order] + duration[order])]).astype(np.int64)
    table = table.take(row)
    names, name = text_codes(table, "name")
    classes = class_table(names, name, ["kernel"] * len(names))
    start, duration = start[row], duration[row]
    count = len(row)
    return Ops(
        row=row,
        names=names,
        name=name,
        classes=classes,
        activity=classes.activity(),
        start=start,
        end=start + duration,
        stream=np.zeros(count, np.int64),
        streams=((MISSING, 0),),
        correlation=np.full(count, MISSING, np.int64),
        graph=np.full(count, MISSING, np.int64),
        launch_ns=start,
        launch_end_ns=start,
        launch_thread=np.full(count, thread, np.int64),
        graph_launch=np.zeros(count, np.bool_),
        threads=threads,
        order=np.lexsort((np.arange(count), start)).astype(np.int64),
        unusable=int((~usable).sum()),
    )
