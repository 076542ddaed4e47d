"""Kernels whose names nobody knows: the sizes of forwards alone."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from profkit.attribution import attribute
from profkit.attribution.labels.dialect import NOTHING, marker_of
from profkit.trace import Trace
from tests.attribution_modes import record, scenario, worst_error


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
    reduces = {c.phase: c.calls_per_cycle for c in found.collectives if c.kind == "all_reduce"}
    assert reduces["verify"] == 20
    assert reduces["draft_extend"] == 2


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
