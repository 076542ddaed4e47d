"""How fast traces are attributed, beside a plain loop over the same ops in the same run.

Usage: python benchmarks/attribution.py [--ops 1000000] [--ranks 1] [--loop-ops 100000]

The input is a sample trace, repeated in time. Three ways of finding the phase of each op are measured: by annotations,
with annotations taken away (by the order of kernels), and, as the ratio's other side, the sweep alone as a plain
Python loop over sorted starts and ends, which is what a script written for one trace does. CPU seconds, no reading.
"""

from __future__ import annotations

import argparse
import heapq
import resource
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit import tables
from profkit.attribution import attribute
from profkit.attribution.ops import read_ops
from profkit.attribution.timeline import exclusive_timeline
from profkit.parsers.trace import read_traces
from profkit.trace import Trace

SAMPLE = Path(__file__).resolve().parent.parent / "sample_logs" / "kimi-k2.5-tp8" / "eagle3" / "traces"


def repeated(trace: Trace, times: int) -> Trace:
    """The trace ``times`` times, one after the other."""
    starts = trace.gpu_ops.column("start_ns").to_numpy()
    span = int(starts.max() - starts.min()) + 1_000_000
    # Host and GPU of one copy must move together, and correlations must stay unique.
    keys = int(pc.max(trace.launches.column("correlation")).as_py() or 0) + 1

    def tiled(table: pa.Table, *links: str) -> pa.Table:
        parts = []
        for i in range(times):
            part = table
            for name, step in [("start_ns", span), *((link, keys) for link in links)]:
                place = part.schema.get_field_index(name)
                moved = pc.add(part.column(name), pa.scalar(i * step, pa.int64()))
                part = part.set_column(place, part.schema.field(place), moved)
            parts.append(part)
        return pa.concat_tables(parts).combine_chunks()

    return replace(
        trace,
        gpu_ops=tiled(trace.gpu_ops, "correlation"),
        launches=tiled(trace.launches, "correlation"),
        annotations=tiled(trace.annotations),
        cpu_ops=tables.empty(tables.CPU_OPS),
    )


def plain_loop(trace: Trace, limit: int) -> tuple[int, float]:
    """Ops swept by a Python loop, and the CPU seconds it took."""
    ops = read_ops(trace)
    first = ops.order[:limit]
    stamps: list[tuple[int, int, int]] = []
    for i in first.tolist():
        stamps.append((int(ops.start[i]), 1, i))
        stamps.append((int(ops.end[i]), 0, i))
    begin = time.process_time()
    heapq.heapify(stamps)
    active: set[int] = set()
    parts: dict[Any, int] = {}
    at = stamps[0][0]
    while stamps:
        moment, what, i = heapq.heappop(stamps)
        cell = min((int(ops.activity[j]), int(ops.start[j])) for j in active)[0] if active else 4
        parts[cell] = parts.get(cell, 0) + moment - at
        at = moment
        (active.add if what else active.discard)(i)
    return len(first), time.process_time() - begin


def row(name: str, ops: int, spent: float, note: str = "") -> None:
    print(f"{name:<24}{ops:>10} ops {spent:>7.2f} s CPU {ops / spent / 1e6:>6.2f} M ops/s  {note}")


def measure(name: str, traces: list[Trace]) -> None:
    """Attribute, all steps."""
    begin, wall = time.process_time(), time.monotonic()
    found = attribute(traces)
    spent, waited = time.process_time() - begin, time.monotonic() - wall
    cycles = sum(r.cycles for r in found.ranks)
    row(name, sum(t.gpu_ops.num_rows for t in traces), spent, f"{cycles} cycles, {waited:.2f} s wall")


def sweep_alone(trace: Trace) -> tuple[int, float]:
    """The exclusive timeline over the whole recording, as the attribution computes it."""
    ops = read_ops(trace)
    ends = np.array([ops.start.min()]), np.array([ops.end.max()])
    begin = time.process_time()
    line = exclusive_timeline(
        ops.start, ops.end, ops.activity, np.zeros(len(ops), np.int8), ops.stream, ops.stream == 0, *ends
    )
    spent = time.process_time() - begin
    assert line.parts(1).sum() == ends[1][0] - ends[0][0]
    return len(ops), spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=1_000_000, help="GPU ops per rank")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--loop-ops", type=int, default=100_000)
    options = parser.parse_args()
    traces = list(read_traces([SAMPLE], cache=False))[: options.ranks]
    times = max(options.ops // traces[0].gpu_ops.num_rows, 1)
    large = [repeated(t, times) for t in traces]
    measure("all, annotations", large)
    measure("all, order of kernels", [replace(t, annotations=tables.empty(tables.ANNOTATIONS)) for t in large])
    ours = sweep_alone(large[0])
    loop = plain_loop(large[0], options.loop_ops)
    row("sweep alone", *ours)
    row("sweep alone, plain loop", *loop)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"ratio of the sweeps {ours[0] / ours[1] / (loop[0] / loop[1]):.1f}; peak memory {peak:.0f} MiB")


if __name__ == "__main__":
    main()
