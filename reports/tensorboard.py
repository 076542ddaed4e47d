"""A log directory for TensorBoard's PyTorch profiler plug-in (torch-tb-profiler 0.4).

The plug-in was made for training traces of 2021 to 2023. Files are written so that its views are right all the same:

* steps are profkit's counted cycles, given as ``ProfilerStep#N`` on the GPU's time line;
* each communication kernel inside a step, whoever wrote it, belongs to an annotation of the names that the plug-in
  knows (``nccl:all_reduce`` ...) by a fresh ``External id``; annotations that already bore such names are renamed;
* launches keep their place as ``cuda_runtime``, which the plug-in shows and does not count. What ties an op to its
  kernels is a launch of no length before the first step: real ones would stretch a step to the end of every kernel
  that was launched in it, and an overlapping scheduler launches a cycle ahead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from profkit.attribution.result import Attribution
from profkit.errors import InputError
from profkit.export.clocks import base_shifts_ns
from profkit.export.ops import OpRow, op_rows
from profkit.reports.trace_events import EventSink, writing_trace
from profkit.trace import Trace

# The plug-in knows these five; any other exchange is shown under the last.
KNOWN_KINDS: Final = ("all_reduce", "all_gather", "reduce_scatter", "reduce", "broadcast")
_LEAD_NS: Final = 1000
_CYCLE_THREAD: Final = 1_000_000_001
_COLLECTIVE_THREAD: Final = 1_000_000_100
_HELD_NAMES: Final = re.compile(r"^(nccl:|gloo:|ProfilerStep#)")


@dataclass(frozen=True, slots=True)
class TensorBoardFiles:
    """What was written: one file per rank in ``folder``, and sentences a user should know."""

    folder: Path
    files: tuple[Path, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Rank:
    """One rank's part of the export; times are shifted by ``shift`` ns to count from the run's origin."""

    trace: Trace
    ops: pa.Table
    cycles: tuple[Mapping[str, Any], ...]  # counted
    shift: int
    host: int  # process id of the host side

    @cached_property
    def windows(self) -> dict[int, tuple[int, int]]:
        """Begin and end of each counted cycle by its ordinal."""
        return {row["cycle"]: (row["start_ns"], row["end_ns"]) for row in self.cycles}

    def is_step_call(self, op: OpRow) -> bool:
        """Whether an op is a collective that lies in one step from end to end (in the recording without steps)."""
        if op.collective_kind is None:
            return False
        if not self.cycles:
            return True
        begin, end = self.windows.get(-1 if op.cycle is None else op.cycle, (0, -1))
        return begin <= op.raw_start_ns and op.raw_start_ns + op.raw_duration_ns <= end


def matching_traces(result: Attribution, traces: Sequence[Trace]) -> list[Trace]:
    """The trace of each input, in the order of ``result.inputs``."""
    by_path = {t.info.path: t for t in traces}
    return [by_path[i.path] for i in result.inputs]


def worker_name(trace: Trace, place: int, host: int) -> str:
    """``tp0_31200``: coordinates and process, as the plug-in lists it."""
    info = trace.info
    parts = [
        f"{k}{v}" for k, v in (("dp", info.dp), ("pp", info.pp), ("tp", info.tp), ("ep", info.ep)) if v is not None
    ]
    return f"{'-'.join(parts) or f'rank{info.rank if info.rank is not None else place}'}_{host}"


def write_tensorboard(
    result: Attribution,
    traces: Sequence[Trace],
    folder: Path,
    *,
    run: str = "profkit",
    force: bool = False,
    progress: Callable[[], None] | None = None,
) -> TensorBoardFiles:
    """Write one ``*.pt.trace.json.gz`` per rank into ``folder / run``.

    Args:
        result: the attribution of ``traces``.
        traces: tables of the ranks; a superset of those attributed.
        folder: the log directory to give to TensorBoard.
        run: name of the run in TensorBoard.
        force: overwrite files of the same names.
        progress: called after each file.

    Raises:
        InputError: a trace without GPU ops, which the plug-in's views are about.
        UsageError: a file exists and ``force`` is false.
    """
    ranks = _ranks(result, matching_traces(result, traces))
    for rank in ranks:
        if rank.trace.info.kind != "gpu":
            raise InputError(f"{rank.trace.info.path}: has no GPU ops to show in TensorBoard; use export html instead")
    origin = min(_first_ns(rank) for rank in ranks) - _LEAD_NS
    span = result.inputs[0].base_ns + origin
    target = folder / (re.sub(r"[^\w.-]+", "_", run).strip("._") or "profkit")
    written: list[Path] = []
    workers: set[str] = set()
    for place, rank in enumerate(ranks):
        worker = worker_name(rank.trace, place, rank.host)
        worker = worker if worker not in workers else f"file{place}-{worker}"
        workers.add(worker)
        path = target / f"{worker}.{span}.pt.trace.json.gz"
        with writing_trace(path, _head(rank, span), force=force) as sink:
            _write_rank(sink, rank, origin)
        written.append(path)
        if progress:
            progress()
    return TensorBoardFiles(target, tuple(written), tuple(_notes(result, ranks)))


def _ranks(result: Attribution, traces: Sequence[Trace]) -> list[_Rank]:
    numbers = [c.rank for c in result.clock_offsets_us]
    counted: dict[int, list[Mapping[str, Any]]] = {}
    for row in result.cycles.to_pylist():
        if row["kind"] == "counted":
            counted.setdefault(row["rank"], []).append(row)
    shifts = base_shifts_ns(result)
    return [
        _Rank(t, o, tuple(counted.get(n, ())), s, _host(t, i))
        for i, (t, o, n, s) in enumerate(zip(traces, result.ops, numbers, shifts, strict=True))
    ]


def _host(trace: Trace, place: int) -> int:
    for table in (trace.launches, trace.annotations, trace.cpu_ops):
        for pid in table.column("pid").drop_null().slice(0, 1).to_pylist():
            if pid is not None:
                return int(pid)
    return 100_000 + place


def _first_ns(rank: _Rank) -> int:
    """The earliest time in the tables, on the run's origin."""
    trace = rank.trace
    tables = (trace.gpu_ops, trace.launches, trace.annotations, trace.cpu_ops)
    starts = [_least(t) for t in tables]
    return min(s for s in starts if s is not None) + rank.shift


def _least(table: pa.Table) -> int | None:
    value = pc.min(table.column("start_ns")).as_py()
    return None if value is None else int(value)


def _head(rank: _Rank, span: int) -> dict[str, Any]:
    info = rank.trace.info
    return {
        "schemaVersion": 1,
        "deviceProperties": [dict(d) for d in info.devices] or None,
        "distributedInfo": dict(info.distributed) if info.distributed else None,
        "baseTimeNanoseconds": span,
        "displayTimeUnit": "ms",
    }


def _write_rank(sink: EventSink, rank: _Rank, origin: int) -> None:
    move = rank.shift - origin
    _write_names(sink, rank)
    _write_steps(sink, rank, move)
    links = _write_host(sink, rank, move)
    _write_ops(sink, rank, move, links)


def _write_names(sink: EventSink, rank: _Rank) -> None:
    for row in rank.trace.processes.to_pylist():
        if row["pid"] is None or row["key"] not in ("process_name", "process_labels", "thread_name"):
            continue
        sink.name(row["key"], row["pid"], row["tid"], row["value"] or "")
    sink.name("thread_name", rank.host, _CYCLE_THREAD, "profkit: cycles")
    sink.name("thread_name", rank.host, _COLLECTIVE_THREAD, "profkit: collectives")


def _write_steps(sink: EventSink, rank: _Rank, move: int) -> None:
    for row in rank.cycles:
        number = row["aligned_cycle"] if row["aligned_cycle"] is not None else row["cycle"]
        begin, end = row["start_ns"], row["end_ns"]
        args = {"batch size": row["batch_size"]}
        sink.complete(
            f"ProfilerStep#{number}", "user_annotation", rank.host, _CYCLE_THREAD, begin + move, end - begin, args
        )
    if not rank.cycles:
        rows = [(s, s + (d or 0)) for s, d in _intervals(rank.trace.gpu_ops)]
        begin, end = min(b for b, _ in rows), max(e for _, e in rows)
        sink.complete("ProfilerStep#0", "user_annotation", rank.host, _CYCLE_THREAD, begin + move, max(end - begin, 1))


def _intervals(table: pa.Table) -> Iterator[tuple[int, int | None]]:
    for batch in table.select(["start_ns", "duration_ns"]).to_batches(65_536):
        for start, duration in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            if start is not None:
                yield start, duration


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(65_536):
        for row in batch.to_pylist():
            if row["start_ns"] is not None:
                yield row


def _write_host(sink: EventSink, rank: _Rank, move: int) -> dict[int, int]:
    """Host ops, annotations and launches; the ``External id`` of each correlation that an op launched."""
    trace = rank.trace
    for row in _rows(trace.cpu_ops):
        args = {"External id": row["external_id"]}
        sink.complete(row["name"] or "op", "cpu_op", row["pid"] or rank.host, row["tid"] or 0,
                      row["start_ns"] + move, row["duration_ns"] or 0, args)  # fmt: skip
    for row in _rows(trace.annotations):
        if row["side"] == "host":
            name = row["name"] or "annotation"
            name = f"recorded {name}" if _HELD_NAMES.match(name) else name
            sink.complete(name, "user_annotation", row["pid"] or rank.host, row["tid"] or 0,
                          row["start_ns"] + move, row["duration_ns"] or 0)  # fmt: skip
    # The plug-in complains about each link that leads to no op or to no kernel.
    operators = set(trace.cpu_ops.column("external_id").to_pylist())
    launched = set(trace.gpu_ops.column("correlation").to_pylist())
    links: dict[int, int] = {}
    for row in _rows(trace.launches):
        pid, tid = row["pid"] or rank.host, row["tid"] or 0
        args = {"correlation": row["correlation"], "External id": row["external_id"]}
        sink.complete(row["name"] or "launch", "cuda_runtime", pid, tid, row["start_ns"] + move,
                      row["duration_ns"] or 0, args)  # fmt: skip
        if row["correlation"] is not None and row["correlation"] in launched and row["correlation"] not in links:
            external = (row["external_id"] or 0) if row["external_id"] in operators else 0
            links[row["correlation"]] = external
            _link(sink, row["name"] or "launch", pid, tid, row["correlation"], external)
    return links


def _link(sink: EventSink, name: str, pid: int, tid: int, correlation: int, external: int) -> None:
    sink.complete(name, "runtime", pid, tid, 0, 0, {"correlation": correlation, "External id": external})


def _write_ops(sink: EventSink, rank: _Rank, move: int, links: Mapping[int, int]) -> None:
    fresh = max([*links, *links.values(), *_largest(rank.trace)], default=0) + 1
    for op in op_rows(rank.trace, rank.ops):
        stream, device = op.stream or 0, op.device or 0
        correlation, external = op.correlation, op.external_id
        if correlation is not None and correlation in links:
            external = links[correlation]
        if rank.is_step_call(op):
            correlation = external = fresh
            fresh += 1
            _write_call(sink, rank, op, move, external)
        args = {
            "External id": external, "device": device, "stream": stream, "correlation": correlation,
            "phase": op.phase, "activity": op.activity, "class": op.kernel_class,
        }  # fmt: skip
        category = op.category if op.category in ("gpu_memcpy", "gpu_memset") else "kernel"
        sink.complete(op.name or "kernel", category, device, stream, op.raw_start_ns + move, op.raw_duration_ns, args)


def _write_call(sink: EventSink, rank: _Rank, op: OpRow, move: int, external: int) -> None:
    kind = op.collective_kind if op.collective_kind in KNOWN_KINDS else KNOWN_KINDS[-1]
    thread = _COLLECTIVE_THREAD + (op.stream or 0) % 100_000
    args = {"External id": external, "implementation": op.implementation, "phase": op.phase}
    _link(sink, "profkit", rank.host, thread, external, external)
    sink.complete(
        f"nccl:{kind}", "user_annotation", rank.host, thread, op.raw_start_ns + move, op.raw_duration_ns, args
    )


def _largest(trace: Trace) -> Iterable[int]:
    for table, name in ((trace.gpu_ops, "correlation"), (trace.gpu_ops, "external_id"), (trace.cpu_ops, "external_id")):
        value = pc.max(table.column(name)).as_py()
        if value is not None:
            yield int(value)


def _notes(result: Attribution, ranks: Sequence[_Rank]) -> Iterator[str]:
    counts = {len(r.cycles) for r in ranks}
    if counts == {0}:
        yield "no cycle is counted: the whole recording is one step"
    elif len(counts) > 1 or (any(row["aligned_cycle"] is None for r in ranks for row in r.cycles) and len(ranks) > 1):
        yield "the ranks' cycles do not pair up: TensorBoard's distributed view may be missing or pair other calls"
    other = {c.kind for c in result.collectives} - set(KNOWN_KINDS)
    if other:
        yield f"TensorBoard's plug-in has no name for {', '.join(sorted(other))}: shown as nccl:{KNOWN_KINDS[-1]}"
