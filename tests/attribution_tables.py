"""Small traces written by hand: kernels with their launches, and annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from profkit import tables
from profkit.trace import Trace, TraceInfo

Kernel = tuple[str, int, int, int]  # name, start, duration, launch


def trace(
    kernels: Sequence[Kernel],
    spans: Sequence[tuple[str, int, int]] = (),
    *,
    calls: Sequence[tuple[str, int, int]] = (),
    collectives: Sequence[dict[str, Any]] = (),
    streams: Sequence[int] | None = None,
    **info: Any,
) -> Trace:
    """A trace of one thread: every kernel is launched by its own call at ``launch``; times in ns."""
    made: dict[str, Any] = {n: tables.empty(s) for n, s in tables.TRACE_TABLES.items() if n != "frames"}
    ops, launches = [], []
    for i, (name, start, duration, launch) in enumerate(kernels):
        category = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        ops.append(
            {
                "name": name, "category": category, "start_ns": start, "duration_ns": duration, "device": 0,
                "stream": streams[i] if streams else 7, "correlation": i + 1,
            }
        )  # fmt: skip
        launches.append({"name": "cudaLaunchKernel", "start_ns": launch, "duration_ns": 2, "correlation": i + 1})
    launches += [{"name": n, "start_ns": s, "duration_ns": d} for n, s, d in calls]
    for launch_row in launches:
        launch_row |= {"pid": 1, "tid": 1, "category": "cuda_runtime"}
    notes = [{"name": n, "side": "host", "start_ns": s, "duration_ns": d, "pid": 1, "tid": 1} for n, s, d in spans]
    rows: dict[str, list[dict[str, Any]]] = {
        "gpu_ops": ops, "launches": launches, "annotations": notes, "collectives": list(collectives),
    }  # fmt: skip
    for table, content in rows.items():
        made[table] = pa.Table.from_pylist(content, schema=tables.TRACE_TABLES[table])
    known: dict[str, Any] = {"path": "x.json", "kind": "gpu", "rank": 0} | info
    return Trace(info=TraceInfo(**known), **made)


def decode_steps(count: int, body: Sequence[tuple[str, int, int]], *, period: int, lead: int = 50) -> dict[str, Any]:
    """Keywords for :func:`trace`: ``count`` decode steps, whose kernels are given as (name, start, duration)."""
    kernels: list[Kernel] = []
    spans = []
    for step in range(count):
        base = step * period + 1000
        spans.append(("step[DECODE bs=2]", base - lead - 10, 20 + len(body)))
        kernels += [(n, base + s, d, base - lead + i) for i, (n, s, d) in enumerate(body)]
    return {"kernels": kernels, "spans": spans}
