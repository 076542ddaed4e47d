"""Real SGLang servers on the CPU engine, four releases: host ops stand for GPU ops, same code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from profkit import tables
from profkit.attribution import Attribution, attribute, needs_frames
from profkit.attribution.host_timeline import read_host_ops
from profkit.parsers.trace import read_traces
from profkit.run import Fact, Facts
from profkit.trace import Trace, TraceInfo
from tests.paths import SHARED, needs_shared

ROOT = SHARED / "sglang-cpu"


@cache
def result(run: str, algorithm: str | None = None, frames: bool = False) -> Attribution:
    folder = ROOT / run
    known = Facts({"speculative.algorithm": Fact(algorithm, "test")}) if algorithm else Facts()
    return attribute(read_traces([folder], frames=frames), facts=known)


def calls(found: Attribution, kind: str) -> dict[str, float]:
    return {c.phase: c.calls for c in found.collectives if c.kind == kind}


# Four target layers and one draft layer: 2 L + 1 all-reduces per forward, one all-gather of logits.
# Three steps: two draft forwards, one draft_extend.
TP2 = [
    ("0.5.16_eagle_tp2/traces_stage", "annotation", 6, {"partial": 1, "prefill": 2}),
    ("0.5.23_eagle_tp2/traces_merge", "annotation", 6, {"partial": 1, "prefill": 1}),
    ("0.5.23_eagle_tp2_steady/traces_stage", "annotation", 16, {"partial": 1, "prefill": 1}),
    ("0.5.9_eagle_tp2_steady/traces_plain", "graph", 16, {"partial": 1, "prefill": 0}),
]


@needs_shared
@pytest.mark.parametrize(("run", "source", "cycles", "dropped"), TP2)
def test_two_ranks_have_the_model_s_all_reduces(run: str, source: str, cycles: int, dropped: dict[str, int]) -> None:
    found = result(run)
    assert found.cycle is not None
    assert found.cycle.count == cycles
    assert [r.dropped for r in found.ranks] == [dropped] * 2
    assert calls(found, "all_reduce") == {"draft": 6.0, "verify": 9.0, "draft_extend": 3.0}
    assert calls(found, "all_gather") == {"draft": 2.0, "verify": 1.0, "draft_extend": 1.0}
    assert all({str(k): v for k, v in r.labelled_by.items()}[source] > 0.99 for r in found.ranks)
    assert all(r.time_source == "cpu" for r in found.ranks)
    assert any(f.kind == "cpu_time" for f in found.findings)
    # Matched: waiting and transfer are known, and a rank waits only as long as it is in the call.
    for row in found.collectives:
        if row.kind == "all_reduce":
            assert row.transfer_us is not None
            assert row.wait_us is not None
            assert row.transfer_us + row.wait_us == pytest.approx(row.mean_us, rel=1e-9)


@needs_shared
def test_annotated_and_unannotated_releases_agree_on_the_order_of_things() -> None:
    by_name, by_order = result(TP2[2][0]), result(TP2[3][0])
    assert by_name.cycle is not None
    assert by_order.cycle is not None
    for found in (by_name, by_order):
        assert found.cycle is not None
        busy = {p: (a["compute"] or 0) for p, a in found.cycle.parts_us.items()}
        assert busy["verify"] > busy["draft"] > busy["draft_extend"] > 0
        assert busy["decode"] == 0


@needs_shared
@pytest.mark.parametrize(
    ("run", "batch", "cycles", "partial"),
    [
        ("0.5.23_eagle3_tp1/traces_plain", 3, 5, 1),
        ("0.5.23_eagle_detail/traces_detail", 1, 4, 1),
        ("0.5.23_eagle_tp2_steady/traces_plain", 4, 9, 1),
    ],
)
def test_eagle_on_one_rank(run: str, batch: int, cycles: int, partial: int) -> None:
    found = result(run)
    assert found.cycle is not None
    assert (found.cycle.batch_size, found.cycle.count) == (batch, cycles)
    assert found.ranks[0].dropped["partial"] == partial
    assert found.ranks[0].boundary == "first host op of draft"
    for name, parts in found.cycle.parts_us.items():
        assert ((parts["compute"] or 0) > 0) == (name in ("draft", "verify", "accept", "draft_extend", "other"))
    assert found.cycle.parts_us["decode"]["compute"] == 0


@needs_shared
def test_ngram_drafts_nowhere_on_the_timeline() -> None:
    found = result("0.5.23_ngram_tp1/traces_plain")
    assert found.cycle is not None
    assert found.cycle.count == 6
    assert found.cycle.parts_us["draft"]["compute"] == 0
    assert found.cycle.parts_us["draft_extend"]["compute"] == 0
    assert (found.cycle.parts_us["verify"]["compute"] or 0) > 0
    assert "draft has none" in found.ranks[0].boundary


@needs_shared
def test_without_annotations_the_server_s_arguments_tell_verify_from_decode() -> None:
    unknown = result("0.5.9_ngram_tp1/traces_plain")
    told = result("0.5.9_ngram_tp1/traces_plain", "NGRAM")
    assert unknown.cycle is not None
    assert told.cycle is not None
    assert unknown.cycle.parts_us["verify"]["compute"] == 0
    assert told.cycle.parts_us["verify"]["compute"] == unknown.cycle.parts_us["decode"]["compute"]


@needs_shared
@pytest.mark.parametrize("kind", ["plain", "detail", "stack"])
def test_decoding_without_speculation(kind: str) -> None:
    found = result(f"0.5.23_overlap_tp1/traces_{kind}")
    assert found.cycle is not None
    assert (found.cycle.batch_size, found.cycle.count) == (1, 4)
    assert (found.cycle.parts_us["decode"]["compute"] or 0) > 900
    assert found.cycle.parts_us["verify"]["compute"] == 0


@needs_shared
def test_without_annotations_or_collectives_the_sizes_of_forwards_tell() -> None:
    found = result("0.5.3_eagle_tp1/traces_plain")
    assert found.cycle is not None
    assert found.cycle.count == 4
    assert found.ranks[0].dropped == {"partial": 1, "prefill": 0}
    stage = result("0.5.3_eagle_tp1/traces_stage")
    assert stage.ranks[0].dropped["prefill"] == 2  # two prompts came in between


@needs_shared
def test_stacks_are_asked_for_only_where_they_help() -> None:
    with_annotations = read_traces([ROOT / "0.5.23_overlap_tp1" / "traces_stack"])
    assert with_annotations[0].info.python_frames
    assert not needs_frames(with_annotations[0])


@needs_shared
@pytest.mark.parametrize("path", sorted(ROOT.glob("*/traces_*")), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_every_recording_adds_up(path: Path) -> None:
    found = result(str(path.relative_to(ROOT)))
    for rank in found.ranks:
        assert sum(v or 0 for p in rank.parts_ns.values() for v in p.values()) == rank.wall_ns
        assert sum(rank.labelled_by.values()) == pytest.approx(1.0)


def host_trace(ops: Sequence[tuple[str, int, int]]) -> Trace:
    rows = [
        {"name": n, "start_ns": s, "duration_ns": d, "pid": 7, "tid": 7, "external_id": i}
        for i, (n, s, d) in enumerate(ops)
    ]
    empty: dict[str, Any] = {
        n: tables.empty(s) for n, s in tables.TRACE_TABLES.items() if n not in ("frames", "cpu_ops")
    }
    return Trace(
        info=TraceInfo(path="x", kind="cpu_only"), cpu_ops=pa.Table.from_pylist(rows, schema=tables.CPU_OPS), **empty
    )


def test_an_op_whose_end_was_lost_hides_nothing_after_it() -> None:
    # Seen in a real recording: a child of 10 us that claims to last 23 ms, far beyond its parent.
    ops = read_host_ops(host_trace([("aten::index", 0, 10), ("aten::as_strided", 5, 23_000), ("aten::linear", 20, 5)]))
    assert [ops.names[i] for i in ops.name] == ["aten::index", "aten::linear"]


def test_nested_ops_count_once() -> None:
    ops = read_host_ops(
        host_trace([("aten::linear", 0, 100), ("aten::addmm", 10, 50), ("aten::copy_", 70, 20), ("aten::add", 100, 5)])
    )
    assert ops.duration.tolist() == [100, 5]
