"""Real GPU traces: figures checked by a second, plain computation on the events themselves."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from profkit import tables
from profkit.attribution import Attribution, attribute
from profkit.parsers.trace import read_trace, read_traces
from profkit.trace import Trace
from tests.paths import SHARED, needs_shared

pytestmark = needs_shared
TRACES = SHARED / "traces"
SGLANG = TRACES / "tracelens/sglang_decode/sglang_Qwen3-8B_decode.json.gz"
VLLM = TRACES / "tracelens/vllm_decode_full/graph_execution.json.gz"
PIECEWISE = TRACES / "tracelens/vllm_prefilldecode_piecewise/graph_execution.json.gz"
B200 = TRACES / "tracelens/b200/eager_trace.json.gz"
Interval = tuple[int, int]
REDUCE = re.compile("AllReduce|all_reduce")


@cache
def trace(path: Path) -> Trace:
    return read_trace(path)


@cache
def result(path: Path) -> Attribution:
    return attribute([trace(path)])


@cache
def events(path: Path) -> list[dict[str, Any]]:
    """GPU events straight from the JSON, times as exact integer ns."""
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    wanted = ("kernel", "gpu_memcpy", "gpu_memset")
    return [
        {
            "name": e["name"],
            "cat": e["cat"],
            "start": int(Decimal(e["ts"]) * 1000),
            "end": int(Decimal(e["ts"]) * 1000) + int(Decimal(e["dur"]) * 1000),
            "stream": e["args"].get("stream"),
            "correlation": e["args"].get("correlation"),
        }
        for e in document["traceEvents"]
        if e.get("ph") == "X" and e.get("cat") in wanted
    ]


def union(intervals: list[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def length(intervals: list[Interval]) -> int:
    return sum(end - begin for begin, end in intervals)


def serial(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Names and intervals, each op of a stream beginning when those before it have ended."""
    made = []
    for stream in {r["stream"] for r in rows}:
        free = None
        for row in sorted((r for r in rows if r["stream"] == stream), key=lambda r: r["start"]):
            begin = row["start"] if free is None else max(row["start"], free)
            end = max(row["end"], begin)
            free = end if free is None else max(free, end)
            made.append((row["name"] if row["cat"] == "kernel" else row["cat"], begin, end))
    return made


HOLDS: dict[str, Callable[[str], bool]] = {
    "compute": lambda n: not REDUCE.search(n) and not n.startswith(("nccl", "gpu_mem")),
    "allreduce": lambda n: bool(REDUCE.search(n)),
    "comm": lambda n: n.startswith("nccl") and not REDUCE.search(n),
    "memory": lambda n: n.startswith("gpu_mem"),
}


def expected_activities(path: Path) -> dict[str, int]:
    """Time of each activity over the whole recording, by uniting intervals of ever more activities."""
    rows = serial(events(path))
    seen: list[Interval] = []
    result: dict[str, int] = {}
    for name, holds in HOLDS.items():
        before = length(union(seen))
        seen += [(b, e) for n, b, e in rows if holds(n)]
        result[name] = length(union(seen)) - before
    result["idle"] = max(e for _, _, e in rows) - min(b for _, b, _ in rows) - length(union(seen))
    return result


def activities(found: Attribution) -> dict[str, int]:
    rows = found.parts.to_pylist()
    return {
        a: sum(r["duration_ns"] for r in rows if r["activity"] == a)
        for a in ("compute", "allreduce", "comm", "memory", "idle")
    }


WHOLE = [
    B200,
    VLLM,
    PIECEWISE,
    TRACES / "hta/nccl_parser_config/nccl_data.json.gz",
    TRACES / "hta/trace_filter/sampled_rank-0.json.gz",
    TRACES / "hta/trace_filter/sampled_rank-1.json.gz",
    TRACES / "hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    TRACES / "hta/triton_example/triton_example.json.gz",
]


@pytest.mark.parametrize("path", WHOLE, ids=lambda p: p.parent.name + "/" + p.name[:20])
def test_activities_equal_unions_of_intervals(path: Path) -> None:
    assert activities(result(path)) == expected_activities(path)


def test_sglang_decode_step() -> None:
    found = result(SGLANG)
    rows = events(SGLANG)
    launches = [r["correlation"] for r in rows]
    replay = max(set(launches), key=launches.count)
    assert launches.count(replay) == 544
    ops = found.ops[0].to_pylist()
    assert len(ops) == len(rows) == 558
    for row, op in zip(rows, ops, strict=True):
        if row["correlation"] == replay:
            assert (op["phase"], op["label_source"], op["cycle"]) == ("decode", "annotation", 0)
    assert found.cycle is not None
    assert (found.cycle.count, found.cycle.batch_size) == (1, 32)
    # A foreign kernel of the scheduler's stream lies between the replay's: it is not the forward's.
    foreign = [op for r, op in zip(rows, ops, strict=True) if r["correlation"] != replay and op["phase"] != "decode"]
    assert {op["phase"] for op in foreign} == {"accept", "other"}
    # The step's busy time, by uniting its intervals: what came before it (0.46 s of profiler start-up) is not in it.
    mine = [(b, e) for _, b, e in serial([r for r, op in zip(rows, ops, strict=True) if op["cycle"] == 0])]
    wall = max(e for _, e in mine) - min(b for b, _ in mine)
    assert found.ranks[0].wall_ns == wall
    assert activities(found)["idle"] == wall - length(union(mine))
    assert any(f.kind == "single_cycle" for f in found.findings)
    assert {"attn", "gemm", "norm", "rope", "activation"} <= {op["kernel_class"] for op in ops}
    assert "other" not in {op["kernel_class"] for op in ops}


def test_vllm_full_graph_is_one_step() -> None:
    found = result(VLLM)
    assert found.cycle is not None
    assert (found.cycle.count, found.cycle.batch_size) == (1, 32)
    ops = found.ops[0].to_pylist()
    assert sum(op["kernel_class"] == "moe.gemm" for op in ops) == 48
    assert {op["phase"] for op in ops} == {"decode"}


def test_vllm_piecewise_launches_are_one_forward() -> None:
    rows = events(PIECEWISE)
    counts: dict[int, int] = {}
    for row in rows:
        counts[row["correlation"]] = counts.get(row["correlation"], 0) + 1
    assert sum(c >= 4 for c in counts.values()) == 25
    # With its annotation it is a batch with prompts in it: no decode cycle.
    assert result(PIECEWISE).cycle is None
    assert {op["phase"] for op in result(PIECEWISE).ops[0].to_pylist()} == {"other"}
    # Without, the order of kernels tells: 25 replays and the eager attention between them are one forward.
    bare = replace(trace(PIECEWISE), annotations=tables.empty(tables.ANNOTATIONS))
    found = attribute([bare])
    assert len(found.cycles) == 1
    decode = [op for op in found.ops[0].to_pylist() if op["phase"] == "decode"]
    assert sum(op["kernel_class"] == "attn" for op in decode) == 24


def test_eight_gpu_rank_has_73_exposed_all_reduces() -> None:
    found = result(B200)
    calls = found.calls.to_pylist()
    reduces = [c for c in calls if c["kind"] == "all_reduce"]
    assert len(reduces) == 73 == 2 * 36 + 1
    assert sum(c["duration_ns"] for c in reduces) == activities(found)["allreduce"] == 2_119_548
    assert [c["kind"] for c in calls if c["kind"] != "all_reduce"] == ["all_gather"]
    assert found.cycles.to_pylist()[0]["overlapped_comm_ns"] == 0
    assert found.cycles.to_pylist()[0]["kind"] == "prefill"
    gather = next(c for c in found.collectives if c.kind == "all_gather")
    assert gather.message_bytes == 201_088 * 2  # the arguments say 201088 bfloat16 in all
    assert {c.transfer_us for c in found.collectives} == {None}  # one rank knows no transfer
    assert any(f.kind == "ranks_missing" and f.numbers["world"] == 8 for f in found.findings)
    assert {c.implementation for c in found.collectives} == {"torch_symm_mem", "nccl"}


def test_overlap_is_beside_the_table() -> None:
    path = TRACES / "hta/nccl_parser_config/nccl_data.json.gz"
    rows = serial(events(path))
    compute = union([(b, e) for n, b, e in rows if not n.startswith(("nccl", "gpu_mem"))])
    talk = union([(b, e) for n, b, e in rows if n.startswith("nccl")])
    both = length(compute) + length(talk) - length(union(compute + talk))
    found = result(path).cycles.to_pylist()[0]["overlapped_comm_ns"]
    assert found == both
    assert both > 7_000_000


def test_two_down_sampled_ranks_are_not_matched_by_order() -> None:
    found = attribute(read_traces([TRACES / "hta/trace_filter"]))
    assert all(c["transfer_ns"] is None for c in found.calls.to_pylist())
    assert {o.offset for o in found.clock_offsets_us} == {None}


def test_a_capture_is_no_timeline() -> None:
    from profkit.errors import InputError

    with pytest.raises(InputError, match="capture"):
        attribute(read_traces([TRACES / "tracelens/sglang_decode/capture_traces"]))


@pytest.mark.parametrize("path", sorted(TRACES.glob("*/*/*.gz")), ids=lambda p: f"{p.parent.name}/{p.name[:24]}")
def test_every_trace_adds_up_or_says_why_not(path: Path) -> None:
    found = result(path)
    parts = found.parts.to_pandas().groupby("cycle")["duration_ns"].sum()
    cycles = found.cycles.to_pandas().set_index("cycle")
    assert (parts == (cycles["end_ns"] - cycles["start_ns"])[parts.index]).all()
    assert found.findings
