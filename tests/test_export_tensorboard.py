"""TensorBoard's plug-in says what profkit says: its parser in this process, and a really started TensorBoard."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from torch_tb_profiler.profiler.data import RunProfileData
from typer.testing import CliRunner

from profkit.attribution import Attribution, attribute
from profkit.cli.app import build_app
from profkit.errors import UsageError
from profkit.parsers.trace import find_traces, read_traces
from profkit.reports.tensorboard import write_tensorboard
from profkit.trace import Trace
from profkit.words import ACTIVITIES
from tests.paths import ROOT, SHARED, needs_shared

SAMPLES = ROOT / "sample_logs" / "kimi-k2.5-tp8"
RUNS = ("baseline", "eagle3", "ngram")
HOSTILE = 'x</script><img src=x onerror="alert(1)">\x1b[31m\u202e"\\'


@cache
def attributed(run: str, ranks: int = 2) -> tuple[Attribution, tuple[Trace, ...]]:
    traces = read_traces(find_traces(SAMPLES / run)[:ranks], cache=False)
    return attribute(traces), traces


def document(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return loaded


def parsed(path: Path, tmp_path: Path) -> Any:
    return RunProfileData.parse(path.name.partition(".")[0], "1", str(path), str(tmp_path))


@pytest.mark.parametrize("run", RUNS)
def test_its_parser_finds_our_numbers(run: str, tmp_path: Path) -> None:
    result, traces = attributed(run)
    written = write_tensorboard(result, traces, tmp_path, run=run)
    assert written.notes == ()
    for rank, trace, path in zip(result.ranks, traces, written.files, strict=True):
        theirs = parsed(path, tmp_path)
        assert len(theirs.steps_names) == rank.cycles
        kernel, memcpy, memset, communication, *_, total = theirs.avg_costs.costs
        ours = {a: sum(p[a] or 0 for p in rank.parts_ns.values()) / rank.cycles / 1000 for a in ACTIVITIES}
        assert total == pytest.approx(rank.wall_ns / rank.cycles / 1000, abs=1e-6)
        assert kernel == pytest.approx(ours["compute"], abs=1e-6)
        # A copy under a collective: they call it a copy, rule 3 calls it communication.
        assert communication + memcpy + memset == pytest.approx(
            ours["allreduce"] + ours["comm"] + ours["memory"], abs=1e-6
        )
        assert memcpy + memset == pytest.approx(ours["memory"], abs=5.0)
        kernels = trace.gpu_ops.to_pandas()
        sums = (
            kernels[kernels["category"] == "kernel"].groupby("name", observed=True)["duration_ns"].agg(["sum", "size"])
        )
        stat = theirs.kernel_stat
        assert dict(stat["count"].astype(int)) == dict(sums["size"])
        for name, row in sums.iterrows():
            assert stat.loc[name, "sum"] == pytest.approx(row["sum"] / 1000, abs=1e-6)
        calls = result.calls.to_pandas()
        counted = result.cycles.to_pandas().query("kind == 'counted'")
        calls = calls.merge(counted[["rank", "cycle"]], on=["rank", "cycle"])
        mine = calls[calls["rank"] == rank.rank]
        assert len(theirs.comm_node_list) == len(mine)
        assert {n.step_name for n in theirs.comm_node_list} == set(theirs.steps_names)


def test_files_are_listed_clean_and_repeat(tmp_path: Path) -> None:
    result, traces = attributed("eagle3")
    first = write_tensorboard(result, traces, tmp_path / "a", run="../x y")
    second = write_tensorboard(result, traces, tmp_path / "b", run="../x y")
    assert first.folder.parent == tmp_path / "a"
    for one, other in zip(first.files, second.files, strict=True):
        assert re.fullmatch(r"tp\d_\d+\.\d+\.pt\.trace\.json\.gz", one.name)
        assert one.read_bytes() == other.read_bytes()
        assert list(document(one))[-1] == "traceEvents"
        for event in document(one)["traceEvents"]:
            assert isinstance(event["name"], str)
            if event["ph"] == "X":
                assert {"cat", "ts", "dur", "pid", "tid"} <= set(event)
                assert isinstance(event["tid"], int)
    with pytest.raises(UsageError, match="--force"):
        write_tensorboard(result, traces, tmp_path / "a", run="../x y")


def renamed(trace: Trace, table: str, change: dict[str, str]) -> Trace:
    old = trace.table(table)
    names = [change.get(str(n), str(n)) for n in old.column("name").to_pylist()]
    column = pa.array(names, pa.string()).dictionary_encode()
    return replace(trace, **{table: old.set_column(0, old.schema.field(0), column)})  # type: ignore[arg-type]


def test_other_implementations_count_and_held_names_are_freed(tmp_path: Path) -> None:
    """A custom all-reduce is communication too; recorded annotations of the plug-in's names count nothing."""
    traces = attributed("eagle3")[1]
    names = sorted({str(n) for n in traces[0].gpu_ops.column("name").to_pylist()})
    reduces = [n for n in names if n.startswith("ncclDevKernel_AllReduce")]
    custom = dict.fromkeys(reduces, "void sglang::cross_device_reduce_1stage<__nv_bfloat16, 8>()")
    compute = next(n for n in names if "marlin" in n)
    changed = tuple(
        renamed(renamed(t, "gpu_ops", {**custom, compute: HOSTILE}), "annotations", {"draft_extend": "nccl:all_reduce"})
        for t in traces
    )
    result = attribute(changed)
    written = write_tensorboard(result, changed, tmp_path)
    theirs = parsed(written.files[0], tmp_path)
    assert theirs.has_communication
    calls = result.calls.to_pandas().merge(
        result.cycles.to_pandas().query("kind == 'counted'")[["rank", "cycle"]], on=["rank", "cycle"]
    )
    assert len(theirs.comm_node_list) == int((calls["rank"] == 0).sum())
    text = gzip.decompress(written.files[0].read_bytes()).decode()
    assert "</script" not in text
    assert "\x1b" not in text


@contextlib.contextmanager
def tensorboard(folder: Path) -> Iterator[str]:
    """A TensorBoard on a free loopback port; yields its address."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--port", "0", "--host", "127.0.0.1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines: list[str] = []
    found = threading.Event()
    stderr = process.stderr

    def listen() -> None:
        for line in stderr:
            lines.append(line)
            if "http://" in line:
                found.set()

    reader = threading.Thread(target=listen, daemon=True)
    reader.start()
    try:
        assert found.wait(120), "".join(lines)
        match = re.search(r"http://[\d.:a-z]+", "".join(lines))
        assert match, lines
        yield match.group() + "/data/plugin/pytorch_profiler/"
    finally:
        process.terminate()
        process.wait(30)
        reader.join(30)
        stderr.close()


def ask(address: str, path: str, **query: str) -> Any:
    url = f"{address}{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        body = answer.read()
        packed = answer.headers.get("Content-Encoding") == "gzip"
    return json.loads(gzip.decompress(body) if packed else body)


def test_a_started_tensorboard_serves_our_numbers(tmp_path: Path) -> None:
    result, traces = attributed("eagle3")
    write_tensorboard(result, traces, tmp_path, run="eagle3")
    with tensorboard(tmp_path) as address:
        until = time.monotonic() + 180
        while not (listed := ask(address, "runs"))["runs"] and time.monotonic() < until:
            time.sleep(0.5)
        assert listed["runs"] == ["eagle3"]
        views = ask(address, "views", run="eagle3")
        assert {"Overview", "Operator", "Kernel", "Trace", "Distributed"} <= set(views)
        workers = ask(address, "workers", run="eagle3", view="Overview")
        assert len(workers) == 2
        span = ask(address, "spans", run="eagle3", worker=workers[0])[0]
        for rank, trace, worker in zip(result.ranks, traces, workers, strict=True):
            chosen = {"run": "eagle3", "worker": worker, "span": span}
            step = ask(address, "overview", **chosen)["performance"][0]
            assert step["value"] == round(rank.wall_ns / rank.cycles / 1000)
            table = ask(address, "kernel/table", **chosen, group_by="Kernel")["data"]
            total = table["columns"].index({"type": "number", "name": "Total Duration (us)"})
            kernels = trace.gpu_ops.to_pandas().query("category == 'kernel'")
            sums = kernels.groupby("name", observed=True)["duration_ns"].sum()
            served = {row[0]: row[total] for row in table["rows"]}
            assert set(served) == set(sums.index)
            assert all(abs(served[n] - v / 1000) <= 0.5 for n, v in sums.items())
            operators = ask(address, "operation/table", **chosen, group_by="Operation")["data"]
            assert any(row["device_self_duration"] > 0 for row in operators)
        waits = ask(address, "distributed/waittime", run="eagle3", worker="All", span=span)["data"]["all"]
        operations = ask(address, "distributed/commops", run="eagle3", worker="All", span=span)["data"]
        calls = result.calls.to_pandas().merge(
            result.cycles.to_pandas().query("kind == 'counted'")[["rank", "cycle"]], on=["rank", "cycle"]
        )
        for rank, worker in zip(result.ranks, workers, strict=True):
            mine = calls[calls["rank"] == rank.rank]
            assert rank.cycles
            transfer, wait = waits[worker]
            assert transfer == pytest.approx(mine["transfer_ns"].sum() / rank.cycles / 1000, abs=1.5)
            assert wait == pytest.approx(mine["wait_ns"].sum() / rank.cycles / 1000, abs=1.5)
            rows = {row[0]: row for row in operations[worker]["rows"]}
            reduces = mine[mine["kind"] == "all_reduce"]
            assert rows["nccl:all_reduce"][1] == len(reduces)
            assert rows["nccl:all_reduce"][4] == pytest.approx(reduces["duration_ns"].sum() / 1000, abs=1e-3)


def test_command(tmp_path: Path) -> None:
    folder = str(SAMPLES / "eagle3" / "traces")
    done = CliRunner().invoke(build_app(), ["export", "tensorboard", folder, "-o", str(tmp_path / "tb dir")])
    assert done.exit_code == 0, done.output
    assert f"tensorboard --logdir '{tmp_path / 'tb dir'}'" in done.stdout
    assert len(list((tmp_path / "tb dir" / "eagle3").iterdir())) == 8


@needs_shared
def test_real_trace_without_a_cycle(tmp_path: Path) -> None:
    """One rank of eight, eager, prefill: the recording is the step, its symmetric-memory all-reduces communicate."""
    traces = read_traces([SHARED / "traces" / "tracelens" / "b200" / "eager_trace.json.gz"], cache=False)
    result = attribute(traces)
    written = write_tensorboard(result, traces, tmp_path)
    theirs = parsed(written.files[0], tmp_path)
    window = result.window
    assert window is not None
    kernel, memcpy, memset, communication, *_, total = theirs.avg_costs.costs
    sums = {a: sum(p[a] or 0.0 for p in window.parts_us.values()) for a in ACTIVITIES}
    assert total == pytest.approx(window.wall_us.mean, abs=1e-6)
    assert kernel == pytest.approx(sums["compute"], abs=1e-6)
    assert memcpy + memset == pytest.approx(sums["memory"], abs=1e-6)
    assert communication == pytest.approx(sums["allreduce"] + sums["comm"], abs=1e-6)
    assert len(theirs.comm_node_list) == 74
