"""From decoded events to the tables of one rank, chunk by chunk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from profkit import tables
from profkit.parsers.trace.events import FRAME, Event, Number
from profkit.parsers.trace.exact import Names, integers, nanoseconds, strings

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
    FRAME: "frames",
    "Trace": _WINDOW,
}
_EMPTY: Final[dict[pa.DataType, Callable[[list[Any]], pa.Array[Any]]]] = {pa.int64(): integers, pa.string(): strings}
# CPU ops that stand for communication; kept when only those are wanted.
_COLLECTIVE_OPS = ("c10d::", "record_param_comms", "nccl", "gloo", "symm_mem", "all_reduce", "allreduce", "all_gather")


def _stream(event: Event) -> Number:
    return event.tid if event.args.stream is None else event.args.stream


def _device(event: Event) -> Number:
    return event.pid if event.args.device is None else event.args.device


def _external_ids(events: list[Event]) -> pa.Array[Any]:
    found = [e.args.external_id for e in events]
    if None in found:  # also written in lower case, by old profilers
        found = [e.args.old_external_id if v is None else v for e, v in zip(events, found, strict=True)]
    return integers(found)


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
        self._parts: dict[str, list[dict[str, pa.Array[Any]]]] = {name: [] for name in tables.TRACE_TABLES}
        self._names: defaultdict[tuple[str, str], Names] = defaultdict(Names)
        self._rows = dict.fromkeys(tables.TRACE_TABLES, 0)
        self._windows: list[tuple[int | None, int | None]] = []
        self.has_frames = False
        self.events = 0

    def add(self, events: Sequence[Event]) -> None:
        """Add a chunk of events."""
        self.events += len(events)
        route = _Router()
        for event in events:
            route[event.cat](event)
        groups: defaultdict[str | None, list[Event]] = defaultdict(list)
        metadata: list[Event] = []
        for table, group in route.groups.items():
            # Nearly always all or none of a table's events are complete ("X") ones.
            groups[table] = [e for e in group if e.ph == "X"] if table is not None else []
            if len(groups[table]) < len(group):
                metadata += [e for e in group if e.ph == "M"]
        gpu, cpu, frames = groups["gpu_ops"], groups["cpu_ops"], groups["frames"]
        if self._cpu_ops == "collectives":
            cpu = [e for e in cpu if _is_collective(e)]
        self._add_metadata(metadata)
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

    def skip_frames(self, count: int) -> None:
        """Count Python frames that were left out undecoded."""
        self.events += count
        self.has_frames |= count > 0

    def _append(self, table: str, columns: dict[str, pa.Array[Any] | list[str | None]]) -> None:
        """Add a chunk of rows; lists of text become dictionary codes."""
        arrays = {
            column: self._names[table, column].codes(values) if isinstance(values, list) else values
            for column, values in columns.items()
        }
        self._parts[table].append(arrays)
        self._rows[table] += len(next(iter(arrays.values())))

    def _add_gpu(self, events: list[Event]) -> None:
        if not events:
            return
        args = [e.args for e in events]
        self._append(
            "gpu_ops",
            {
                "name": [e.name for e in events],
                "category": [GPU_CATEGORIES[e.cat or ""] for e in events],
                "start_ns": nanoseconds([e.ts for e in events]),
                "duration_ns": nanoseconds([e.dur for e in events]),
                "stream": integers([_stream(e) for e in events]),
                "device": integers([_device(e) for e in events]),
                "correlation": integers([a.correlation for a in args]),
                "graph_id": integers([a.graph_id for a in args]),
                "graph_node_id": integers([a.graph_node_id for a in args]),
                "external_id": _external_ids(events),
            },
        )

    def _add_launches(self, events: list[Event]) -> None:
        if not events:
            return
        self._append(
            "launches",
            {
                "name": [e.name for e in events],
                "category": [e.cat for e in events],
                "start_ns": nanoseconds([e.ts for e in events]),
                "duration_ns": nanoseconds([e.dur for e in events]),
                "pid": integers([e.pid for e in events]),
                "tid": integers([e.tid for e in events]),
                "correlation": integers([e.args.correlation for e in events]),
                "external_id": _external_ids(events),
            },
        )

    def _add_annotations(self, events: list[Event]) -> None:
        if not events:
            return
        on_gpu = [e.cat == GPU_ANNOTATION for e in events]
        self._append(
            "annotations",
            {
                "name": [e.name for e in events],
                "side": ["gpu" if gpu else "host" for gpu in on_gpu],
                "start_ns": nanoseconds([e.ts for e in events]),
                "duration_ns": nanoseconds([e.dur for e in events]),
                "pid": integers([e.pid for e in events]),
                "tid": integers([None if gpu else e.tid for e, gpu in zip(events, on_gpu, strict=True)]),
                "stream": integers([_stream(e) if gpu else None for e, gpu in zip(events, on_gpu, strict=True)]),
                "external_id": _external_ids(events),
            },
        )

    def _add_cpu(self, events: list[Event]) -> None:
        if not events:
            return
        self._append(
            "cpu_ops",
            {
                "name": [e.name for e in events],
                "start_ns": nanoseconds([e.ts for e in events]),
                "duration_ns": nanoseconds([e.dur for e in events]),
                "pid": integers([e.pid for e in events]),
                "tid": integers([e.tid for e in events]),
                "external_id": _external_ids(events),
            },
        )

    def _add_frames(self, events: list[Event]) -> None:
        if not events:
            return
        self._append(
            "frames",
            {
                "name": [e.name for e in events],
                "start_ns": nanoseconds([e.ts for e in events]),
                "duration_ns": nanoseconds([e.dur for e in events]),
                "pid": integers([e.pid for e in events]),
                "tid": integers([e.tid for e in events]),
                "python_id": integers([e.args.python_id for e in events]),
                "parent_id": integers([e.args.python_parent_id for e in events]),
            },
        )

    def _add_collectives(self, events: Sequence[Event], gpu: list[Event], cpu: list[Event]) -> None:
        if events and events[0].without_collectives:
            return
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
                "name": [a.collective for a in args],
                "dtype": [a.dtype for a in args],
                "in_elements": integers([a.in_elements for a in args]),
                "out_elements": integers([a.out_elements for a in args]),
                "group_size": integers([a.group_size for a in args]),
                "group": [a.group for a in args],
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
                "key": strings([r[2] for r in rows]),
                "value": strings([r[3] for r in rows]),
            },
        )

    @property
    def window(self) -> tuple[int | None, int | None]:
        """Start and duration of the profiler's window in nanoseconds, as far as the file says them."""
        return self._windows[0] if self._windows else (None, None)

    @property
    def windows(self) -> int:
        """How many recordings the events come from, as far as the file says."""
        return len(self._windows)

    def table(self, name: str) -> pa.Table:
        """The finished table, each column in one piece."""
        schema = tables.TRACE_TABLES[name]
        parts = self._parts[name]
        columns = []
        for field in schema:
            dictionary = pa.types.is_dictionary(field.type)
            if parts:
                values = pa.concat_arrays([part[field.name] for part in parts])
            else:
                values = Names().codes([]) if dictionary else _EMPTY[field.type]([])
            columns.append(self._names[name, field.name].column(values) if dictionary else values)
        return pa.Table.from_arrays(columns, schema=schema)


class _Router(dict[str | None, Callable[[Event], None]]):
    """Appends an event to the list of its table, by category; learns a category when it first comes."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: defaultdict[str | None, list[Event]] = defaultdict(list)

    def __missing__(self, category: str | None) -> Callable[[Event], None]:
        append = self[category] = self.groups[_TABLE_OF.get(category)].append
        return append
