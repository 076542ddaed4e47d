"""The reader against the slow reference reader on every real trace."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
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


KERNEL_FILES = [
    p for p in FILES if any(part in str(p) for part in ("nccl_parser", "trace_diff", "b200", "vllm_", "h100"))
]


@needs_shared
@pytest.mark.parametrize("path", KERNEL_FILES, ids=[p.parent.name for p in KERNEL_FILES])
def test_kernel_totals_equal_those_of_torch_tb_profiler(path: Path, tmp_path: Path) -> None:
    """An independent reader: per kernel the number of calls and the summed, least and greatest duration."""
    from torch_tb_profiler.profiler.data import RunProfileData

    _, document = RunProfileData._preprocess_file(str(path), str(tmp_path))
    profile = RunProfileData("worker", None, document)
    profile.process()
    want = {n: (int(r["count"]), r["sum"], r["min"], r["max"]) for n, r in profile.kernel_stat.iterrows()}
    ops = read_trace(path, cache=False).gpu_ops
    kernels = ops.filter(pc.equal(ops["category"].cast(pa.string()), pa.scalar("kernel")))
    found = kernels.set_column(0, "name", kernels["name"].cast(pa.string())).group_by("name").aggregate(
        [("duration_ns", kind) for kind in ("count", "sum", "min", "max")]
    )  # fmt: skip
    got = {r["name"]: tuple(r[f"duration_ns_{k}"] for k in ("count", "sum", "min", "max")) for r in found.to_pylist()}
    assert len(got) > 3
    assert {n: v[0] for n, v in got.items()} == {n: v[0] for n, v in want.items()}
    for name, (_, *numbers) in got.items():
        assert [n / 1000 for n in numbers] == pytest.approx(list(want[name][1:]), rel=1e-9), name
