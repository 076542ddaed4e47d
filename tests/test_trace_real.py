"""The reader against the slow reference reader on every real trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit import tables
from profkit.parsers.trace import read_trace, read_traces
from profkit.trace import Trace
from tests import oracle_trace
from tests.paths import SHARED, needs_shared

FILES = sorted(p for p in SHARED.glob("**/*.json.gz") if "merged" not in p.name) if SHARED.is_dir() else []
MERGED = SHARED / "sglang-cpu/0.5.23_eagle_tp2/traces_merge/merged-1795959095.57867.trace.json.gz"
CAPTURE = "capture_traces"


def assert_same_tables(got: Trace, want: Trace) -> None:
    for name in tables.TRACE_TABLES:
        mine, reference = got.table(name), want.table(name)
        assert mine.schema == reference.schema, name
        assert mine.to_pylist() == reference.to_pylist(), name


@needs_shared
@pytest.mark.parametrize("path", FILES, ids=[f"{p.parent.name}/{p.name}" for p in FILES])
def test_equal_to_reference(path: Path) -> None:
    got = read_trace(path, frames=True, cache=False)
    want = oracle_trace.read(path)
    assert_same_tables(got, want)
    for fact in ("rank", "tp", "dp", "pp", "ep", "events", "gpu_ops", "base_ns", "python_frames", "distributed"):
        assert getattr(got.info, fact) == getattr(want.info, fact), fact
    assert got.info.problems == ()
    assert not got.info.truncated
    assert got.info.kind == ("capture" if CAPTURE in str(path) else want.info.kind)


@needs_shared
def test_merged_file_is_split_into_ranks() -> None:
    traces = read_traces([MERGED], cache=False)
    assert [t.info.rank for t in traces] == [0, 1]
    assert [t.info.events for t in traces] == [18202, 18236]
    assert all(isinstance(pid, int) for t in traces for pid in t.cpu_ops["pid"].to_pylist())
