"""GPU ops together with what attribution decided about them, as plain rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from profkit.trace import Trace

CHUNK = 65_536
_RAW = ("name", "category", "start_ns", "duration_ns", "stream", "device", "correlation", "external_id")
_DECIDED = (
    "gpu_op", "cycle", "start_ns", "end_ns", "phase", "activity", "kernel_class", "implementation", "collective",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OpRow:
    """One GPU op.

    ``raw_start_ns`` and ``raw_duration_ns`` are the trace's own, ``start_ns`` and ``end_ns`` effective (on its stream
    an op begins when the one before it has ended).
    """

    gpu_op: int
    name: str
    category: str
    raw_start_ns: int
    raw_duration_ns: int
    stream: int | None
    device: int | None
    correlation: int | None
    external_id: int | None
    cycle: int | None
    start_ns: int
    end_ns: int
    phase: str
    activity: str
    kernel_class: str
    implementation: str | None
    collective: int | None

    @property
    def collective_kind(self) -> str | None:
        """``all_reduce``, ``all_gather`` ...; ``None`` for ops that are no collective."""
        return collective_kind(self.kernel_class)


_KINDS = {
    "comm.allreduce": "all_reduce",
    "comm.allgather": "all_gather",
    "comm.reducescatter": "reduce_scatter",
    "comm.broadcast": "broadcast",
    "comm.reduce": "reduce",
    "comm.sendrecv": "send_recv",
    "comm.alltoall": "all_to_all",
    "comm.barrier": "barrier",
}


def collective_kind(kernel_class: str) -> str | None:
    """The kind of collective that a kernel class stands for; ``unknown`` for other communication."""
    if not kernel_class.startswith("comm."):
        return None
    return _KINDS.get(".".join(kernel_class.split(".")[:2]), "unknown")


def op_rows(trace: Trace, ops: pa.Table, cycles: set[int] | None = None) -> Iterator[OpRow]:
    """Rows of the ops table (all, or those of ``cycles``) joined with the trace, a chunk at a time.

    In a trace without a GPU the ops are host ops, and ``gpu_op`` is a row of ``cpu_ops``.
    """
    on_gpu = trace.info.kind == "gpu"
    source, usual = (trace.gpu_ops, "kernel") if on_gpu else (trace.cpu_ops, "cpu_op")
    if cycles is not None:
        ops = ops.filter(pc.is_in(ops.column("cycle"), value_set=pa.array(sorted(cycles), pa.int64())))
    for at in range(0, ops.num_rows, CHUNK):
        part = ops.slice(at, CHUNK)
        raw = source.take(part.column("gpu_op"))
        nothing = [None] * part.num_rows
        columns = [raw.column(n).to_pylist() if n in raw.column_names else nothing for n in _RAW]
        decided = [part.column(n).to_pylist() for n in _DECIDED]
        for values in zip(*columns, *decided, strict=True):
            (name, category, start, duration, stream, device, correlation, external,
             row, cycle, begin, end, phase, activity, kind, implementation, collective) = values  # fmt: skip
            yield OpRow(
                row, name or "", category or usual, start, duration or 0, stream, device, correlation, external,
                cycle, begin, end, phase or "unlabelled", activity or "compute", kind or "other", implementation,
                collective,
            )  # fmt: skip
