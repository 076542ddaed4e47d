"""The cut-out for Perfetto: valid Chrome trace JSON, small, on one clock, and readable by profkit itself."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from profkit.attribution import Attribution, attribute
from profkit.cli.app import build_app
from profkit.errors import UsageError
from profkit.export.selection import choose
from profkit.parsers.trace import find_traces, read_traces
from profkit.reports.perfetto import write_perfetto
from profkit.trace import Trace
from tests.paths import ROOT, SHARED, needs_shared

SAMPLES = ROOT / "sample_logs" / "kimi-k2.5-tp8"

COMMON = {"pid": {"type": "string", "pattern": r"^\[TP\d\d\] \d+$"}, "tid": {"type": "integer", "minimum": 0}}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["traceEvents", "displayTimeUnit"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "baseTimeNanoseconds": {"type": "integer"},
        "otherData": {"type": "object", "additionalProperties": {"type": "string"}},
        "traceEvents": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["ph", "name", "pid", "ts"],
                "properties": {"ph": {"enum": ["X", "M", "s", "t", "f"]}, "name": {"type": "string"}},
                "allOf": [
                    {
                        "if": {"properties": {"ph": {"const": "X"}}},
                        "then": {
                            "required": ["cat", "tid", "dur"],
                            "properties": {
                                **COMMON,
                                "ts": {"type": "number", "minimum": 0},
                                "dur": {"type": "number", "minimum": 0},
                                "args": {"type": "object"},
                            },
                        },
                    },
                    {
                        "if": {"properties": {"ph": {"enum": ["s", "t", "f"]}}},
                        "then": {"required": ["cat", "id", "tid"], "properties": {**COMMON, "id": {"type": "integer"}}},
                    },
                    {"if": {"properties": {"ph": {"const": "M"}}}, "then": {"required": ["args"]}},
                ],
            },
        },
    },
}


@cache
def attributed(run: str = "eagle3") -> tuple[Attribution, tuple[Trace, ...]]:
    traces = read_traces(find_traces(SAMPLES / run), cache=False)
    return attribute(traces), traces


def exported(path: Path, cycle: str, run: str = "eagle3") -> list[dict[str, Any]]:
    result, traces = attributed(run)
    count = write_perfetto(result, traces, choose(result, cycle), path, force=True)
    document = json.loads(gzip.decompress(path.read_bytes()))
    events: list[dict[str, Any]] = document["traceEvents"]
    assert count == len(events)
    return events


def nanoseconds(event: dict[str, Any]) -> tuple[int, int]:
    start, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
    return start, start + length


def test_schema_and_size(tmp_path: Path) -> None:
    path = tmp_path / "cycle.trace.json.gz"
    events = exported(path, "median")
    document = json.loads(gzip.decompress(path.read_bytes()))
    few = {**document, "traceEvents": events[:400] + events[-2000::7]}
    jsonschema.validate(few, SCHEMA)
    assert path.stat().st_size < 2_000_000
    assert {e["pid"] for e in events} == {f"[TP0{r}] {r + 1}" for r in range(8)}


@pytest.mark.parametrize("run", ["eagle3", "baseline"])
def test_lanes_tile_the_cycle_and_add_up(run: str, tmp_path: Path) -> None:
    result = attributed(run)[0]
    chosen = choose(result, "median")[0]
    events = exported(tmp_path / "c.trace.json.gz", "median", run)
    parts = result.parts.to_pandas()
    for place, row in chosen.members.items():
        mine = [e for e in events if e["ph"] == "X" and e["pid"] == f"[TP0{place}] {place + 1}"]
        (cycle,) = [nanoseconds(e) for e in mine if e["cat"] == "profkit.cycle"]
        assert cycle[1] - cycle[0] == row["end_ns"] - row["start_ns"]
        for lane in ("profkit.phase", "profkit.activity"):
            spans = sorted(nanoseconds(e) for e in mine if e["cat"] == lane)
            assert spans[0][0] == cycle[0]
            assert spans[-1][1] == cycle[1]
            assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))
        here = parts[(parts["rank"] == row["rank"]) & (parts["cycle"] == row["cycle"])]
        by_activity: dict[str, int] = defaultdict(int)
        for event in mine:
            if event["cat"] == "profkit.activity":
                begin, end = nanoseconds(event)
                by_activity[event["name"].replace("all-reduce", "allreduce").replace("copies", "memory")] += end - begin
        wanted = here.groupby("activity", observed=True)["duration_ns"].sum()
        for activity, value in wanted.items():
            assert (
                by_activity[str(activity).replace("comm", "other comm") if activity == "comm" else str(activity)]
                == value
            )


def test_slices_on_one_lane_nest(tmp_path: Path) -> None:
    """Chrome's importer drops slices that overlap without nesting."""
    lanes: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for event in exported(tmp_path / "c.trace.json.gz", "worst"):
        if event["ph"] == "X":
            lanes[event["pid"], event["tid"]].append(nanoseconds(event))
    for spans in lanes.values():
        stack: list[int] = []
        for begin, end in sorted(spans, key=lambda s: (s[0], -s[1])):
            while stack and stack[-1] <= begin:
                stack.pop()
            assert not stack or end <= stack[-1]
            stack.append(end)


def test_members_of_a_collective_end_together_and_are_joined(tmp_path: Path) -> None:
    result = attributed()[0]
    events = exported(tmp_path / "c.trace.json.gz", "median")
    ends: dict[tuple[str, str], list[int]] = defaultdict(list)
    wait = transfer = 0
    for event in events:
        if event.get("cat") == "profkit.collective":
            ends[event["args"]["phase"], event["name"]].append(nanoseconds(event)[1])
        elif event.get("cat") == "profkit.wait":
            wait += nanoseconds(event)[1] - nanoseconds(event)[0]
        elif event.get("cat") == "profkit.transfer":
            transfer += nanoseconds(event)[1] - nanoseconds(event)[0]
    assert all(len(e) == 8 for e in ends.values())
    # The simulated clocks differ by up to 10 us; corrected, ends agree within a microsecond.
    assert max(max(e) - min(e) for e in ends.values()) < 1000
    chosen = choose(result, "median")[0]
    calls = result.calls.to_pandas()
    mine = calls[calls["aligned_cycle"] == chosen.number]
    assert (transfer, wait) == (int(mine["transfer_ns"].sum()), int(mine["wait_ns"].sum()))
    flows: dict[int, list[str]] = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            flows[event["id"]].append(event["ph"])
    assert len(flows) == len(ends)
    assert set(map(tuple, flows.values())) == {("s", *"tttttt", "f")}


def test_profkit_reads_its_own_cut_out(tmp_path: Path) -> None:
    result, traces = attributed()
    path = tmp_path / "c.trace.json.gz"
    write_perfetto(result, traces, choose(result, "3"), path)
    back = read_traces([path], cache=False)
    assert [b.info.tp for b in back] == list(range(8))
    for again, trace, ops in zip(back, traces, result.ops, strict=True):
        assert again.info.problems == ()
        table = ops.to_pandas()
        rows = table[table["cycle"] == choose(result, "3")[0].members[0]["cycle"]]["gpu_op"]
        original = trace.gpu_ops.to_pandas().iloc[rows]
        found = again.gpu_ops.to_pandas()
        assert sorted(found["duration_ns"]) == sorted(original["duration_ns"])
        assert sorted(found["name"].astype(str)) == sorted(original["name"].astype(str))
        moved = sorted(found["start_ns"])[0] - sorted(original["start_ns"])[0]
        assert [s + moved for s in sorted(original["start_ns"])] == sorted(found["start_ns"])


def test_choosing() -> None:
    result = attributed()[0]
    walls = [c.wall_ns for c in choose(result, "all") if c.counted]
    assert choose(result, "worst")[0].wall_ns == max(walls)
    assert sorted(walls)[(len(walls) - 1) // 2] == choose(result, "median")[0].wall_ns
    for word in ("99", "mean", "-1", ""):
        with pytest.raises(UsageError):
            choose(result, word)


def test_command_and_same_bytes(tmp_path: Path) -> None:
    folder = str(SAMPLES / "ngram" / "traces")
    for name in ("a.trace.json.gz", "b.trace.json.gz"):
        done = CliRunner().invoke(
            build_app(), ["export", "perfetto", folder, "-o", str(tmp_path / name), "-c", "worst"]
        )
        assert done.exit_code == 0, done.output
        assert done.stdout.strip() == str(tmp_path / name)
    assert (tmp_path / "a.trace.json.gz").read_bytes() == (tmp_path / "b.trace.json.gz").read_bytes()


@needs_shared
def test_real_traces(tmp_path: Path) -> None:
    """One GPU, a graph and a CPU engine: what is cut out is what the trace holds."""
    folder = SHARED / "traces" / "tracelens"
    places = [
        folder / "sglang_decode" / "sglang_Qwen3-8B_decode.json.gz",
        folder / "vllm_decode_full" / "graph_execution.json.gz",
        SHARED / "sglang-cpu" / "0.5.23_eagle_tp2_steady",
    ]
    for number, place in enumerate(places):
        traces = read_traces([place], cache=False)
        result = attribute(traces)
        path = tmp_path / f"{number}.trace.json.gz"
        write_perfetto(result, traces, choose(result, "median"), path)
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        names = {e["name"] for e in events if e.get("cat") in ("kernel", "cpu_op", "gpu_memcpy", "gpu_memset")}
        known = {n for t in traces for table in (t.gpu_ops, t.cpu_ops) for n in table.column("name").to_pylist()}
        assert names
        assert names <= known
        spans = [nanoseconds(e) for e in events if e["ph"] == "X"]
        cycles = [nanoseconds(e) for e in events if e.get("cat") == "profkit.cycle"]
        assert min(s for s, _ in spans) >= min(s for s, _ in cycles)
