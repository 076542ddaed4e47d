"""Attribution of whatever tables a reader may yield: always adds up, never fails, same bytes each time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profkit import tables
from profkit.attribution import attribute
from profkit.errors import InputError
from profkit.jsonio import dumps
from profkit.pipeline import analyse_path
from profkit.planning.plan import make_plan
from profkit.reports.attribution import as_markdown, terminal
from profkit.trace import Trace, TraceInfo
from profkit.words import LABEL_SOURCES

NAMES = st.sampled_from(
    [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
        "Memcpy HtoD (Pinned -> Device)",
        "flash_fwd_kernel",
        "nvjet_gemm",
        "build_tree_efficient",
        "assign_draft_cache_locs",
        "assign_extend_cache_locs",
        "VerifyTreeGreedy",
        "_draft_extend_inputs_kernel",
        "rejection_greedy_sample_kernel",
        "eagle_prepare_inputs_padded_kernel",
        "rotate_input_ids_kernel",
        "argmax_kernel",
        "what_is_this",
        "<script>|`\x1b[31m",
    ]
)
SPANS = st.sampled_from(
    [
        "draft",
        "draft_extend",
        "step[TARGET_VERIFY bs=2]",
        "step[VERIFY bs=1]",
        "step[DECODE bs=3]",
        "step[DRAFT bs=1]",
        "step[EXTEND bs=1 toks=9]",
        "scheduler.run_batch",
        "scheduler.recv_requests",
        "copy_result_to_cpu",
        "execute_context_0(0)_generation_2(2)",
        "execute_context_1(5)_generation_2(2)",
        "gpu_model_runner: draft",
        "gpu_model_runner: sample",
        "nccl:all_reduce",
        "something else",
    ]
)
TIME = st.integers(0, 400)
MAYBE = st.one_of(st.none(), st.integers(0, 12))
OP = st.fixed_dictionaries(
    {
        "name": NAMES,
        "category": st.sampled_from(["kernel", "gpu_memcpy", "gpu_memset"]),
        "start_ns": st.one_of(TIME, TIME, TIME, st.none()),
        "duration_ns": st.one_of(st.integers(-5, 60), st.none()),
        "stream": st.one_of(st.none(), st.integers(0, 3)),
        "device": st.one_of(st.none(), st.integers(0, 1)),
        "correlation": MAYBE,
        "graph_id": st.one_of(st.none(), st.integers(0, 2)),
        "graph_node_id": st.none(),
        "external_id": MAYBE,
    }
)
LAUNCH = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["cudaLaunchKernel", "cudaGraphLaunch", "cudaStreamSynchronize", "cudaMemcpyAsync"]),
        "category": st.just("cuda_runtime"),
        "start_ns": st.one_of(TIME, st.none()),
        "duration_ns": st.one_of(st.integers(0, 30), st.none()),
        "pid": st.just(1),
        "tid": st.one_of(st.integers(1, 2), st.none()),
        "correlation": MAYBE,
        "external_id": st.none(),
    }
)
ANNOTATION = st.fixed_dictionaries(
    {
        "name": SPANS,
        "side": st.sampled_from(["host", "host", "gpu"]),
        "start_ns": st.one_of(TIME, TIME, st.none()),
        "duration_ns": st.one_of(st.integers(0, 200), st.none()),
        "pid": st.just(1),
        "tid": st.one_of(st.integers(1, 2), st.none()),
        "stream": st.one_of(st.integers(0, 3), st.none()),
        "external_id": st.none(),
    }
)
FRAME = st.fixed_dictionaries(
    {
        "name": st.sampled_from(
            [
                "sglang/srt/speculative/eagle_worker.py(5): draft",
                "sglang/srt/speculative/eagle_worker.py(5): verify",
                "sglang/srt/speculative/eagle_info.py(216): verify",
                "sglang/srt/model_executor/cuda_graph_runner.py(8): replay",
                "sglang/srt/managers/scheduler.py(1): run_batch",
                "vllm/v1/worker/gpu_model_runner.py(3380): execute_model",
                "elsewhere.py(1): f",
            ]
        ),
        "start_ns": TIME,
        "duration_ns": st.integers(0, 200),
        "pid": st.just(1),
        "tid": st.integers(1, 2),
        "python_id": st.none(),
        "parent_id": st.none(),
    }
)
CPU_OP = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["aten::linear", "aten::embedding", "c10d::allreduce_", "c10d::broadcast_"]),
        "start_ns": st.one_of(TIME, st.none()),
        "duration_ns": st.one_of(st.integers(0, 40), st.none()),
        "pid": st.just(1),
        "tid": st.integers(1, 2),
        "external_id": MAYBE,
    }
)


@st.composite
def traces(draw: st.DrawFn, place: int = 0) -> Trace:
    ops = draw(st.lists(OP, max_size=30))
    cpu = draw(st.lists(CPU_OP, max_size=12))
    made: dict[str, Any] = {n: tables.empty(s) for n, s in tables.TRACE_TABLES.items()}
    filled: dict[str, list[Any]] = {
        "gpu_ops": ops,
        "launches": draw(st.lists(LAUNCH, max_size=14)),
        "annotations": draw(st.lists(ANNOTATION, max_size=12)),
        "frames": draw(st.lists(FRAME, max_size=6)),
        "cpu_ops": cpu,
    }
    for name, rows in filled.items():
        made[name] = pa.Table.from_pylist(rows, schema=tables.TRACE_TABLES[name])
    info = TraceInfo(
        path=f"r{place}.json",
        kind="gpu" if ops else "cpu_only",
        rank=place,
        tp=place,
        base_ns=draw(st.sampled_from([0, 1_775_078_550_000_000_000])),
        distributed={"world_size": 2},
    )
    return Trace(info=info, **made)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.tuples(traces(0), traces(1)))
def test_any_two_ranks_add_up(pair: tuple[Trace, Trace]) -> None:
    if not any(t.gpu_ops.num_rows or t.cpu_ops.num_rows for t in pair):
        with pytest.raises(InputError, match="no timeline"):
            attribute(list(pair))
        return
    found = attribute(list(pair))
    for rank in found.ranks:
        assert sum(v or 0 for p in rank.parts_ns.values() for v in p.values()) == rank.wall_ns
        assert set(rank.labelled_by) == set(LABEL_SOURCES)
        assert sum(rank.labelled_by.values()) == pytest.approx(1.0)
    parts: dict[tuple[int, int], int] = {}
    for row in found.parts.to_pylist():
        key = row["rank"], row["cycle"]
        parts[key] = parts.get(key, 0) + row["duration_ns"]
    before: dict[int, int] = {}
    for row in found.cycles.to_pylist():
        assert parts.get((row["rank"], row["cycle"]), 0) == row["end_ns"] - row["start_ns"]
        assert row["kind"] != "counted" or row["end_ns"] > row["start_ns"]
        assert 0.0 <= row["confidence"] <= 1.0
        # Cycles tile: each begins where the one before it ended.
        assert before.get(row["rank"], row["start_ns"]) == row["start_ns"]
        before[row["rank"]] = row["end_ns"]
    if found.cycle is not None:
        assert sum(v or 0.0 for v in found.cycle.headline_us.values()) == pytest.approx(found.cycle.wall_us.mean)
        assert sum(found.cycle.idle_causes_us.values()) == pytest.approx(found.cycle.headline_us["idle"] or 0.0)
    text = terminal(found)
    assert "\x1b" not in text
    assert "<script>" not in as_markdown(found)
    assert dumps(found) == dumps(attribute(list(pair)))


@pytest.mark.parametrize(("dur", "counted"), [(0, 0), (5, 1)])
def test_a_cycle_without_length_is_none(dur: int, counted: int, tmp_path: Path) -> None:
    host = {"ph": "X", "pid": 1, "tid": 1}
    events = [
        {**host, "cat": "user_annotation", "name": "step[DECODE bs=1]", "ts": 50, "dur": 100},
        {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 60, "dur": 1, "args": {"correlation": 1}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 100, "dur": dur,
         "args": {"device": 0, "stream": 7, "correlation": 1}},
    ]  # fmt: skip
    (tmp_path / "a.trace.json").write_text(json.dumps({"traceEvents": events}))
    run = analyse_path(tmp_path, cache=False)
    assert run.attribution is not None
    assert [rank.cycles for rank in run.attribution.ranks] == [counted]
    assert make_plan(run, None).verdict.sentences


@pytest.mark.parametrize("end", ["VerifyTreeGreedy", "assign_draft_cache_locs", "nvjet_gemm"])
def test_a_draft_s_begin_may_be_followed_by_anything(end: str) -> None:
    names = ("assign_draft_cache_locs", "what_is_this", end)
    ops = [
        {"name": name, "category": "kernel", "start_ns": 100 * i, "duration_ns": 50, "stream": 7, "device": 0}
        for i, name in enumerate(names)
    ]
    made: dict[str, Any] = {name: tables.empty(schema) for name, schema in tables.TRACE_TABLES.items()}
    made["gpu_ops"] = pa.Table.from_pylist(ops, schema=tables.GPU_OPS)
    found = attribute([Trace(info=TraceInfo(path="a", kind="gpu"), **made)])
    assert found.ops[0].column("phase").to_pylist()[:2] == ["draft", "draft"]


def test_nothing_is_an_error_that_names_the_mend() -> None:
    with pytest.raises(InputError, match="profile the server while it decodes"):
        attribute([])
