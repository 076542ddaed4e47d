"""From decoded events to the tables of one rank, chunk by chunk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from profkit import tables
from profkit.parsers.trace.events import Event, Number
from profkit.parsers.trace.exact import integers, names, nanoseconds

CpuOps: TypeAlias = Literal["all", "collectives"]

# Category as written -> category as kept. Capitalised names were written until 2021.
GPU_CATEGORIES: Final = {
    "kernel": "kernel",
    "gpu_memcpy": "gpu_memcpy",
    "gpu_memset": "gpu_memset",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
GPU_ANNOTATION = "gpu_user_annotation"
_WINDOW = "window"
_TABLE_OF: Final[dict[str | None, str]] = {
    **dict.fromkeys(GPU_CATEGORIES, "gpu_ops"),
    **dict.fromkeys(
        ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime", "driver", "Runtime"), "launches"
    ),
    **dict.fromkeys(("user_annotation", GPU_ANNOTATION), "annotations"),
    **dict.fromkeys(("cpu_op", "Operator"), "cpu_ops"),
    "python_function": "frames",
    "Trace": _WINDOW,
}
# CPU ops that stand for communication; kept when only those are wanted.
_COLLECTIVE_OPS = ("c10d::", "record_param_comms", "nccl", "gloo", "symm_mem", "all_reduce", "allreduce", "all_gather")


def _stream(event: Event) -> Number:
    return event.tid if event.args.stream is None else event.args.stream


def _device(event: Event) -> Number:
    return event.pid if event.args.device is None else event.args.device


def _external(event: Event) -> Number:
    found = event.args.external_id
    return event.args.old_external_id if found is None else found


def _is_collective(event: Event) -> bool:
    name = event.name or ""
    return event.args.collective is not None or any(part in name for part in _COLLECTIVE_OPS)


class Columns:
    """Collects the tables of one rank.

    ``keep_frames`` false leaves Python frames out (their presence is noted); ``cpu_ops`` may be restricted to
    collectives to save memory. Add chunks in file order.
    """

    def __init__(self, *, keep_frames: bool, cpu_ops: CpuOps = "all") -> None:
        self._keep_frames = keep_frames
        self._cpu_ops = cpu_ops
        self._parts: dict[str, list[pa.RecordBatch]] = {name: [] for name in tables.TRACE_TABLES}
        self._rows = dict.fromkeys(tables.TRACE_TABLES, 0)
        self._windows: list[tuple[int | None, int | None]] = []
        self.has_frames = False
        self.events = 0

    def add(self, events: Sequence[Event]) -> None:
        """Add a chunk of events."""
        self.events += len(events)
        groups: defaultdict[str | None, list[Event]] = defaultdict(list)
        for event in events:
            if event.ph == "X":
                groups[_TABLE_OF.get(event.cat)].append(event)
            elif event.ph == "M":
                groups["processes"].append(event)
        gpu, cpu, frames = groups["gpu_ops"], groups["cpu_ops"], groups["frames"]
        if self._cpu_ops == "collectives":
            cpu = [e for e in cpu if _is_collective(e)]
        self._add_metadata(groups["processes"])
        self._add_collectives(events, gpu, cpu)
        self._add_gpu(gpu)
        self._add_launches(groups["launches"])
        self._add_annotations(groups["annotations"])
        self._add_cpu(cpu)
        self.has_frames |= bool(frames)
        if self._keep_frames:
            self._add_frames(frames)
        for event in groups[_WINDOW]:
            start, duration = (nanoseconds([text])[0].as_py() for text in (event.ts, event.dur))
            self._windows.append((start, duration))

    def skip(self, count: int, *, frames: int) -> None:
        """Count events that were dropped unread, ``frames`` of which are Python frames."""
        self.events += count
        self.has_frames |= frames > 0

    def _append(self, table: str, columns: dict[str, pa.Array[Any]]) -> None:
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        if batch.num_rows:
            self._parts[table].append(batch)
            self._rows[table] += batch.num_rows

    def _add_gpu(self, events: list[Event]) -> None:
        if not events:
            return
        args = [e.args for e in events]
        self._append(
            "gpu_ops",
            {
                "name": names([e.name for e in events]),
                "category": names([GPU_CATEGORIES[e.cat or ""] for e in events]),
                "start_ns": nanoseconds([e.ts for e in events]),
                "duration_ns": nanoseconds([e.dur for e in events]),
                "stream": integers([_stream(e) for e in events]),
                "device": integers([_device(e) for e in events]),
                "correlation": integers([a.correlation for a in args]),
                "graph_id": integers([a.graph_id for a in args]),
                "graph_node_id": integers([a.graph_node_id for a in args]),
                "external_id": integers([_external(e) for e in events]),
            },
        )

    def _add_launches(self, events: list[Event]) -> None:
        if not events:
            return
        self._append(
            "launches",
            {
                "name": names([e.name for e in events]),
                "category": names([e.cat for e in events]),
                "start_ns": nanoseconds([e.ts for e in events]),
                "duration_ns": nanoseconds([e.dur for e in events]),
                "pid": integers([e.pid for e in events]),
                "tid": integers([e.tid for e in events]),
                "correlation": integers([e.args.correlation for e in events]),
                "external_id": integers([_external(e) for e in events]),
            },
        )

    def _add_annotations(self, events: list[Event]) -> None:
        if not events:
            return
        on_gpu = [e.cat == GPU_ANNOTATION for e in events]
        self._append(
            "annotations",
            {
                "name": names([e.name for e in events]),
                "side": names(["gpu" if gpu else "host" for gpu in on_gpu]),
                "start_ns": nanoseconds([e.ts for e in events]),
                "duration_ns": nanoseconds([e.dur for e in events]),
                "pid": integers([e.pid for e in events]),
                "tid": integers([None if gpu else e.tid for e, gpu in zip(events, on_gpu, strict=True)]),
                "stream": integers([_stream(e) if gpu else None for e, gpu in zip(events, on_gpu, strict=True)]),
                "external_id": integers([_external(e) for e in events]),
            },
        )

    def _add_cpu(self, events: list[Event]) -> None:
        if not events:
            return
        self._append(
            "cpu_ops",
            {
                "name": names([e.name for e in events]),
                "start_ns": nanoseconds([e.ts for e in events]),
                "duration_ns": nanoseconds([e.dur for e in events]),
                "pid": integers([e.pid for e in events]),
                "tid": integers([e.tid for e in events]),
                "external_id": integers([_external(e) for e in events]),
            },
        )

    def _add_frames(self, events: list[Event]) -> None:
        if not events:
            return
        self._append(
            "frames",
            {
                "name": names([e.name for e in events]),
                "start_ns": nanoseconds([e.ts for e in events]),
                "duration_ns": nanoseconds([e.dur for e in events]),
                "pid": integers([e.pid for e in events]),
                "tid": integers([e.tid for e in events]),
                "python_id": integers([e.args.python_id for e in events]),
                "parent_id": integers([e.args.python_parent_id for e in events]),
            },
        )

    def _add_collectives(self, events: Sequence[Event], gpu: list[Event], cpu: list[Event]) -> None:
        found = [e for e in events if e.args.collective is not None and e.ph == "X"]
        if not found:
            return
        gpu_row = {id(e): row for row, e in enumerate(gpu, self._rows["gpu_ops"])}
        cpu_row = {id(e): row for row, e in enumerate(cpu, self._rows["cpu_ops"])}
        args = [e.args for e in found]
        self._append(
            "collectives",
            {
                "gpu_op": integers([gpu_row.get(id(e)) for e in found]),
                "cpu_op": integers([cpu_row.get(id(e)) for e in found]),
                "name": names([a.collective for a in args]),
                "dtype": names([a.dtype for a in args]),
                "in_elements": integers([a.in_elements for a in args]),
                "out_elements": integers([a.out_elements for a in args]),
                "group_size": integers([a.group_size for a in args]),
                "group": names([a.group for a in args]),
            },
        )

    def _add_metadata(self, events: Iterable[Event]) -> None:
        rows: list[tuple[Number, Number, str | None, str]] = []
        for event in events:
            args = event.args
            rows += [
                (event.pid, event.tid, event.name, str(value))
                for value in (args.name, args.labels, args.sort_index)
                if value is not None
            ]
        if not rows:
            return
        self._append(
            "processes",
            {
                "pid": integers([r[0] for r in rows]),
                "tid": integers([r[1] for r in rows]),
                "key": pa.array([r[2] for r in rows], pa.string()),
                "value": pa.array([r[3] for r in rows], pa.string()),
            },
        )

    @property
    def window(self) -> tuple[int | None, int | None]:
        """Start and duration of the profiler's window in nanoseconds, as far as the file says them."""
        return self._windows[0] if self._windows else (None, None)

    def table(self, name: str) -> pa.Table:
        """The finished table; its chunks are merged and its dictionaries unified."""
        schema = tables.TRACE_TABLES[name]
        parts = self._parts[name]
        if not parts:
            return tables.empty(schema)
        return pa.Table.from_batches(parts).unify_dictionaries().combine_chunks().cast(schema)
