"""Kernels whose names nobody knows: the sizes of forwards alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from profkit.attribution import attribute
from profkit.attribution.labels.dialect import NOTHING, marker_of
from profkit.run import Fact, Facts
from profkit.trace import Trace
from tests.attribution_modes import BASE, record, scenario, worst_error


def anonymous(trace: Trace) -> Trace:
    """The trace with every marker kernel renamed to something without meaning."""
    words = [str(n) for n in trace.gpu_ops.column("name").to_pylist()]
    code = {n: f"kernel_{i}" if marker_of(n) != NOTHING else n for i, n in enumerate(dict.fromkeys(words))}
    renamed = pa.array([code[n] for n in words], pa.string()).dictionary_encode()
    place = trace.gpu_ops.schema.get_field_index("name")
    return replace(trace, gpu_ops=trace.gpu_ops.set_column(place, "name", renamed))


MARKERS = {"dialect": "none", "evidence": "markers"}


@pytest.mark.parametrize(
    "serving", [{}, {"extend_graph": False}, {"num_steps": 4, "num_draft_tokens": 5}], ids=["graphs", "eager", "steps"]
)
def test_large_and_small_forwards_make_a_ring(serving: dict[str, int]) -> None:
    traces, truth = record(scenario(serving, MARKERS))
    found = attribute([anonymous(t) for t in traces])
    assert all(r.labelled_by["graph"] == pytest.approx(1.0) for r in found.ranks)
    assert [r.cycles for r in found.ranks] == [len(c) for c in truth.ranks]
    # Glue between phases cannot be told apart without names, the forwards can.
    assert worst_error(found, truth) < 0.01
    assert any(f.kind == "phases_by_order" and f.severity == "warning" for f in found.findings)
    counted = found.cycles.to_pandas().query("kind == 'counted'")
    assert (counted["confidence"] <= 0.5).all()
    reduces = {c.phase: c.calls_per_cycle for c in found.collectives if c.kind == "all_reduce"}
    assert reduces["verify"] == 20
    assert reduces["draft_extend"] == 2


STANDALONE = [
    # More layers than the target has, or fewer but more attention in one replay of the draft.
    (14, {"num_steps": 1, "num_draft_tokens": 2}),
    (14, {"num_steps": 3, "num_draft_tokens": 4, "prefill_before": (5,)}),
    (14, {"num_steps": 5, "num_draft_tokens": 6, "batch_sizes": (1, 2)}),
    (14, {"draft_graph": False, "extend_graph": False, "target_graph": False}),
    (4, {"num_steps": 5, "num_draft_tokens": 6, "prefill_before": (5,)}),
    (4, {"draft_graph": False, "extend_graph": False, "target_graph": False, "prefill_before": (5,)}),
]


@pytest.mark.parametrize(("layers", "serving"), STANDALONE)
@pytest.mark.parametrize("evidence", ["markers", "launches"])
def test_a_drafter_deeper_than_the_target_is_not_taken_for_it(
    layers: int, serving: dict[str, Any], evidence: str
) -> None:
    drafter = replace(
        BASE.drafter, layers=layers, architecture="LlamaForCausalLM", forward_compute_us=400.0,
        extend_compute_us=430.0, conditional_acceptance=(0.5,) * 5,
    )  # fmt: skip
    one = scenario({"algorithm": "STANDALONE"} | serving, {"dialect": "none", "evidence": evidence}, drafter=drafter)
    traces, truth = record(one)
    found = attribute([anonymous(t) for t in traces])
    assert [r.cycles for r in found.ranks] == [sum(not c.prefill for c in cycles) for cycles in truth.ranks]
    assert worst_error(found, truth) < 0.01
    assert {c.calls_per_cycle for c in found.collectives if (c.phase, c.kind) == ("verify", "all_reduce")} == {20}


EAGER = {"draft_graph": False, "extend_graph": False, "target_graph": False}


def test_a_drafter_slower_than_the_target_is_told_by_the_order_of_forwards() -> None:
    slow = replace(BASE.drafter, layers=14, forward_compute_us=9000.0, extend_compute_us=9000.0)
    one = {"algorithm": "STANDALONE", "num_steps": 2, "num_draft_tokens": 3} | EAGER
    traces, truth = record(scenario(one, MARKERS, drafter=slow))
    found = attribute([anonymous(t) for t in traces])
    assert [r.cycles for r in found.ranks] == [len(c) for c in truth.ranks]
    assert worst_error(found, truth) < 0.01


def test_two_kinds_of_forward_alike_are_left_open() -> None:
    """One eager forward of each model per cycle, and both take equally long: nothing tells which one verifies."""
    alike = replace(BASE.drafter, layers=14, forward_compute_us=3300.0, extend_compute_us=3300.0)
    one = {"algorithm": "STANDALONE", "num_steps": 1, "num_draft_tokens": 2} | EAGER
    traces, _ = record(scenario(one, MARKERS, drafter=alike))
    known = Facts({"speculative.algorithm": Fact("STANDALONE", "test")})
    found = attribute([anonymous(t) for t in traces], facts=known)
    assert found.cycle is None
    assert all(r.labelled_by["none"] > 0.9 for r in found.ranks)


def test_without_speculation_there_is_no_ring() -> None:
    traces, truth = record(scenario({"algorithm": "none", "num_steps": 0, "num_draft_tokens": 0}, MARKERS))
    found = attribute([anonymous(t) for t in traces])
    assert found.cycle is not None
    assert (found.cycle.parts_us["decode"]["compute"] or 0) > 0
    assert found.cycle.parts_us["verify"]["compute"] == 0
    assert worst_error(found, truth) < 0.005


def test_gpu_annotations_help_where_kernels_tell_nothing() -> None:
    traces, truth = record(scenario(recording={"evidence": "gpu_annotations"}))
    bare = [anonymous(t) for t in traces]
    assert all(t.launches.num_rows == 0 for t in bare)
    found = attribute(bare)
    assert all(r.labelled_by["gpu_annotation"] > 0.9 for r in found.ranks)
    assert [r.cycles for r in found.ranks] == [len(c) for c in truth.ranks]
    assert worst_error(found, truth) < 0.01
