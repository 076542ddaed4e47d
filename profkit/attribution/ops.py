"""One rank's GPU ops as arrays: effective intervals on their streams, and the host call that launched each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from profkit.attribution.credible import credible, shortened
from profkit.attribution.kernels import ClassTable, class_table
from profkit.trace import Trace, TraceInfo

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

MISSING: Final = -1


def int_column(table: pa.Table, name: str, missing: int = MISSING) -> Ints:
    """An int64 column with ``missing`` where it is null."""
    column = table.column(name)
    if column.null_count:
        column = column.fill_null(pa.scalar(missing, column.type))
    return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def text_codes(table: pa.Table, name: str) -> tuple[list[str], Codes]:
    """A dictionary column as its words and one code per row; null becomes the empty word."""
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    chunks: list[Any] = column.unify_dictionaries().chunks
    if not chunks:
        return [], np.zeros(0, np.int32)
    words = ["" if w is None else str(w) for w in chunks[0].dictionary.to_pylist()]
    parts = []
    for chunk in chunks:
        codes = chunk.indices.fill_null(len(words)) if chunk.indices.null_count else chunk.indices
        parts.append(codes.to_numpy(zero_copy_only=False).astype(np.int32, copy=False))
    return [*words, ""], np.concatenate(parts)


@dataclass(frozen=True, slots=True)
class Threads:
    """Dense codes of host threads: code ``i`` is (pid, tid) ``pairs[i]``."""

    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, *tables: pa.Table) -> Threads:
        """All threads that occur in tables with ``pid`` and ``tid``."""
        seen: set[tuple[int, int]] = set()
        for table in tables:
            seen.update(pairs_of(int_column(table, "pid"), int_column(table, "tid"))[0])
        return cls(tuple(sorted(seen)))

    def code(self, table: pa.Table) -> Ints:
        """The thread code of each row."""
        pid, tid = int_column(table, "pid"), int_column(table, "tid")
        result = np.full(len(pid), MISSING, np.int64)
        for code, (p, t) in enumerate(self.pairs):
            result[(pid == p) & (tid == t)] = code
        return result


@dataclass(frozen=True, slots=True)
class Ops:
    """GPU ops of one rank in file order (host ops where the trace has no GPU).

    ``start`` and ``end`` are effective nanoseconds (half-open): on its stream an op begins when the one before it
    has ended. ``launch_ns`` and ``launch_thread`` are -1 where no launch is known; so are ``correlation`` and the
    entries of ``graph``. ``stream`` is a dense code; ``streams[code]`` is (device, stream).
    """

    row: Ints
    names: list[str]
    name: Codes
    classes: ClassTable
    activity: npt.NDArray[np.int8]
    start: Ints
    end: Ints
    stream: Ints
    streams: tuple[tuple[int, int], ...]
    correlation: Ints
    graph: Ints
    launch_ns: Ints
    launch_end_ns: Ints
    launch_thread: Ints
    graph_launch: Bools
    threads: Threads
    order: Ints  # positions sorted by effective start, then file order
    unusable: int  # rows without a credible start or duration, left out
    shortened: int = 0  # ops that claimed to last longer than can be
    longest_ns: int = 0  # longest duration that an op claimed

    def __len__(self) -> int:
        return len(self.start)

    @property
    def duration(self) -> Ints:
        """Effective durations in ns."""
        return self.end - self.start


def effective_intervals(start: Ints, duration: Ints, stream: Ints) -> tuple[Ints, Ints]:
    """Half-open intervals: per stream an op begins no earlier than every op before it has ended.

    An op that ends inside an earlier one keeps its place with length zero.
    """
    new_start, new_end = start.copy(), np.maximum(start + np.maximum(duration, 0), start)
    if not len(start):
        return new_start, new_end
    order = np.lexsort((np.arange(len(start)), start, stream))
    borders = np.flatnonzero(np.diff(stream[order])) + 1
    for part in np.split(order, borders):
        ends = np.maximum.accumulate(new_end[part])
        before = np.concatenate([[np.iinfo(np.int64).min], ends[:-1]])
        new_start[part] = np.maximum(start[part], before)
        new_end[part] = np.maximum(new_end[part], new_start[part])
    return new_start, new_end


def pairs_of(device: Ints, stream: Ints) -> tuple[tuple[tuple[int, int], ...], Ints]:
    """The pairs of two columns that occur, sorted, and the place of each row's pair among them."""
    devices, streams = np.unique(device), np.unique(stream)
    key = np.searchsorted(devices, device) * max(len(streams), 1) + np.searchsorted(streams, stream)
    used = np.unique(key)
    named = [(int(devices[k // len(streams)]), int(streams[k % len(streams)])) for k in used.tolist()]
    return tuple(named), np.searchsorted(used, key).astype(np.int64)


def _first_of_key(keys: Ints, wanted: Ints) -> Ints:
    """For each wanted key the first row of ``keys`` that has it, else -1; negative keys never match."""
    if not len(keys):
        return np.full(len(wanted), MISSING, np.int64)
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys[order], wanted, side="left")
    inside = np.minimum(place, len(keys) - 1)
    found = order[inside]
    return np.where((keys[found] == wanted) & (wanted >= 0), found, MISSING)


def _is_graph_launch(words: list[str]) -> Bools:
    return np.array([("GraphLaunch" in w) for w in words] or [False], np.bool_)


def window_of(info: TraceInfo) -> tuple[int, int] | None:
    """First and last ns of the recording, as its own span states them."""
    if info.window_start_ns is None or not info.window_duration_ns or info.window_duration_ns < 0:
        return None
    return info.window_start_ns, info.window_start_ns + info.window_duration_ns


def read_ops(trace: Trace) -> Ops:
    """GPU ops of a trace with GPU activity."""
    table = trace.gpu_ops
    start, duration = int_column(table, "start_ns"), int_column(table, "duration_ns", 0)
    window = window_of(trace.info)
    usable = credible(start, duration, table.column("start_ns").is_valid().to_numpy(zero_copy_only=False), window)
    row = np.flatnonzero(usable).astype(np.int64)
    if len(row) < len(start):
        table, start, duration = table.take(row), start[row], duration[row]
    names, name = text_codes(table, "name")
    categories, category = text_codes(table, "category")
    of_name = [""] * len(names)
    for both in np.unique(name.astype(np.int64) * max(len(categories), 1) + category).tolist():
        of_name[both // len(categories)] = categories[both % len(categories)]
    classes = class_table(names, name, of_name)
    device, number = int_column(table, "device"), int_column(table, "stream")
    pairs, stream = pairs_of(device, number)
    duration = np.maximum(duration, 0)
    longest = int(duration.max(initial=0))
    duration, cut = shortened(start, duration, stream, number != MISSING, window)
    start, end = effective_intervals(start, duration, stream)
    threads = Threads.of(trace.launches, trace.annotations, trace.cpu_ops)
    correlation = int_column(table, "correlation")
    launch = _first_of_key(int_column(trace.launches, "correlation"), correlation)
    launch_words, launch_name = text_codes(trace.launches, "name")
    launched = launch >= 0
    launch_ns, launch_end, thread = (np.full(len(start), MISSING, np.int64) for _ in range(3))
    graph_launch = np.zeros(len(start), np.bool_)
    if launched.any():
        hit = launch[launched]
        launch_ns[launched] = int_column(trace.launches, "start_ns")[hit]
        launch_end[launched] = launch_ns[launched] + int_column(trace.launches, "duration_ns", 0)[hit]
        thread[launched] = threads.code(trace.launches)[hit]
        graph_launch[launched] = _is_graph_launch(launch_words)[launch_name[hit]]
    # A runtime API that was not recorded leaves the link to the host op that made the call.
    external = _first_of_key(int_column(trace.cpu_ops, "external_id"), int_column(table, "external_id"))
    linked = ~launched & (external >= 0)
    if linked.any():
        hit = external[linked]
        launch_ns[linked] = int_column(trace.cpu_ops, "start_ns")[hit]
        launch_end[linked] = launch_ns[linked]
        thread[linked] = threads.code(trace.cpu_ops)[hit]
    return Ops(
        row=row,
        names=names,
        name=name,
        classes=classes,
        activity=classes.activity(),
        start=start,
        end=end,
        stream=stream,
        streams=pairs,
        correlation=correlation,
        graph=int_column(table, "graph_id"),
        launch_ns=launch_ns,
        launch_end_ns=launch_end,
        launch_thread=thread,
        graph_launch=graph_launch,
        threads=threads,
        order=np.lexsort((np.arange(len(start)), start)).astype(np.int64),
        unusable=int(trace.gpu_ops.num_rows - len(row)),
        shortened=len(cut),
        longest_ns=longest,
    )


def copies_from_host(ops: Ops) -> Bools:
    """Which ops copy from host memory to the GPU."""
    words = [n.startswith(("Memcpy HtoD", "CopyHostToDevice")) for n in ops.names]
    return np.array(words or [False], np.bool_)[ops.name]
