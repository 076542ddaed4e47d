"""Runs made from the result contracts, with known figures, for tests of the store, comparisons and weekly reports."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from profkit.analysis import RunAnalysis
from profkit.attribution.result import (
    Attribution,
    BatchSummary,
    CollectiveSummary,
    CycleSummary,
    RankResult,
    WallUs,
)
from profkit.comparison.fingerprint import Scalar
from profkit.logs import LogFile
from profkit.run import Fact, Facts
from profkit.serving.result import BatchRow, DecodeSummary, LogSummary, ServerSummary, Spread
from profkit.tables import COLLECTIVE_CALLS, CYCLES, OPS, PARTS, SEGMENTS, empty
from profkit.words import Activity, Phase

SYSTEM: dict[str, Scalar] = {
    "model.name": "/models/Kimi-K2.5",
    "model.quantization": "int4",
    "parallel.tp": 8,
    "speculative.algorithm": "EAGLE3",
    "speculative.num_draft_tokens": 4,
    "engine.version": "0.5.6",
    "gpu.name": "RTX 6000D",
    "driver.version": "580.95",
    "server_args.attention_backend": "flashinfer",
    "server_args.port": 30000,
}
# Microseconds per cycle: the verify all-reduces dominate.
PARTS_US: dict[Phase, dict[Activity, float]] = {
    "draft": {"compute": 1800.0, "allreduce": 200.0, "comm": 0.0, "memory": 10.0, "idle": 300.0},
    "verify": {"compute": 5000.0, "allreduce": 25000.0, "comm": 40.0, "memory": 60.0, "idle": 500.0},
}


def _spread(value: float, noise: float = 0.02) -> Spread:
    return Spread(p10=value * (1 - noise), p50=value, p90=value * (1 + noise), mean=value)


def server(throughput: float, accept_len: float, running_req: int, lines: int) -> ServerSummary:
    step = 1000.0 * running_req * accept_len / throughput
    row = BatchRow(running_req, lines, _spread(throughput), _spread(accept_len), _spread(step), 0.1)
    decode = DecodeSummary(
        lines, 0, 2, _spread(throughput), _spread(throughput), _spread(accept_len), _spread(step), 1.0
    )
    return ServerSummary(
        server=0, engine="sglang", engine_version="0.5.6", version_range=(None, None), model="Kimi-K2.5",
        algorithm="EAGLE3", speculative=True, num_steps=3, topk=1, num_draft_tokens=4, tp=8, dp=1, pp=1, ep=1,
        decode=decode, by_batch=(row,), prefill={}, requests={}, events={}, start_line="server.log:1",
    )  # fmt: skip


def attribution(parts_us: Mapping[Phase, Mapping[Activity, float]], cycles: int = 3) -> Attribution:
    """One rank whose cycles are all alike; the ops are one per cell, of a class named after it."""
    wall = sum(sum(cells.values()) for cells in parts_us.values())
    walls = WallUs(wall, wall, wall, wall, wall)
    parts: list[dict[str, object]] = []
    ops: list[dict[str, object]] = []
    table: list[dict[str, object]] = []
    for cycle in range(cycles):
        start = round(cycle * wall * 1000)
        table.append(
            {"rank": 0, "cycle": cycle, "aligned_cycle": cycle, "start_ns": start, "batch_size": 1,
             "end_ns": start + round(wall * 1000), "kind": "counted", "confidence": 1.0, "overlapped_comm_ns": 0}
        )  # fmt: skip
        for phase, cells in parts_us.items():
            for activity, us in cells.items():
                if us <= 0:
                    continue
                parts.append(
                    {"rank": 0, "cycle": cycle, "batch_size": 1, "counted": True, "phase": phase,
                     "activity": activity, "duration_ns": round(us * 1000)}
                )  # fmt: skip
                if activity != "idle":
                    ops.append(
                        {"gpu_op": len(ops), "cycle": cycle, "start_ns": start, "end_ns": start + round(us * 1000),
                         "stream": 7, "phase": phase, "activity": activity, "label_source": "annotation",
                         "kernel_class": "comm.allreduce" if activity == "allreduce" else f"{phase}.{activity}",
                         "implementation": "nccl" if activity == "allreduce" else None, "collective": None}
                    )  # fmt: skip
    rank = RankResult(
        0, None, 0, None, None, cycles, {"partial": 2, "prefill": 0}, round(wall * 1000) * cycles,
        {p: {a: round(us * 1000) * cycles for a, us in cells.items()} for p, cells in parts_us.items()},
        0, {"annotation": 0.97, "frame": 0.0, "graph": 0.0, "gpu_annotation": 0.0, "none": 0.03},
        "first draft op", "gpu",
    )  # fmt: skip
    per_call = parts_us["verify"]["allreduce"] / 122
    reduce = CollectiveSummary(
        "verify", "all_reduce", "nccl", "ncclDevKernel_AllReduce", False, 122.0, per_call, per_call * 0.9,
        per_call * 0.1, 57344, 0.5, "measured",
    )  # fmt: skip
    return Attribution(
        inputs=(), ranks=(rank,), cycle=CycleSummary(cycles, 1, walls, parts_us, {}),
        by_batch=(BatchSummary(1, cycles, walls, parts_us),), collectives=(reduce,), clock_offsets_us=(), findings=(),
        warnings=(), parts=pa.Table.from_pylist(parts, schema=PARTS), cycles=pa.Table.from_pylist(table, schema=CYCLES),
        segments=empty(SEGMENTS), calls=empty(COLLECTIVE_CALLS), ops=(pa.Table.from_pylist(ops, schema=OPS),),
    )  # fmt: skip


def analysis(
    name: str = "run",
    throughput: float = 60.0,
    *,
    accept_len: float = 2.0,
    running_req: int = 1,
    config: str | None = "eagle3",
    date: str | None = "2026-11-23",
    facts: Mapping[str, Scalar] | None = None,
    labels: Mapping[str, str] | None = None,
    traced: bool = False,
    parts_us: Mapping[Phase, Mapping[Activity, float]] | None = None,
    lines: int = 40,
) -> RunAnalysis:
    """A run with one server and, when ``traced``, one rank. Its content key depends on its name and figures."""
    known = {**SYSTEM, **(facts or {})}
    summary = LogSummary((LogFile("server.log", "sglang", 100, 9000),),
                         (server(throughput, accept_len, running_req, lines),))  # fmt: skip
    key = hashlib.sha256(repr((name, throughput, accept_len, date, traced)).encode()).hexdigest()
    return RunAnalysis(
        name=name,
        path=name,
        config=config,
        date=date,
        facts=Facts({k: Fact(v, "run.toml") for k, v in known.items()}),
        log=summary,
        attribution=attribution(parts_us or PARTS_US) if traced or parts_us else None,
        content_key=key,
        labels=labels or {},
    )


def noisy(level: float, n: int, *, noise: float, seed: int) -> list[float]:
    """``n`` throughputs around ``level`` with relative noise."""
    return [float(x) for x in level * (1 + noise * np.random.default_rng(seed).standard_normal(n))]
