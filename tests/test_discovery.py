"""A run folder whose files have no usual names: told by content, within bounds, and what is left out is named."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.cli.app import run as profkit
from profkit.errors import InputError
from profkit.loading import load_run
from profkit.parsers.discovery import run_files
from profkit.parsers.opening import ByteSource
from profkit.parsers.sniff import content_of
from profkit.sources import run_paths
from tests.paths import SAMPLES
from tests.trace_makers import decode_events, document

EAGLE3 = SAMPLES / "kimi-k2.5-tp8" / "eagle3"
LOG = (EAGLE3 / "server.log").read_bytes()
BASE = (SAMPLES / "kimi-k2.5-tp8" / "baseline" / "server.log").read_bytes()
TRACE = document(decode_events(9))
NCCL_TESTS = b"""# nThread 1 nGpus 8 minBytes 4096 maxBytes 8192 step: 2(factor) warmup iters: 5 iters: 20
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        4096          2048  bfloat16     sum      -1    98.11    0.04    0.07      0    97.56    0.04    0.07      0
        8192          4096  bfloat16     sum      -1   101.20    0.08    0.14      0   100.56    0.08    0.14      0
"""
NCCL_DEBUG = b"node:11:22 [0] NCCL INFO NCCL version 2.28.9+cuda12.8\n"
BENCH = (EAGLE3 / "bench.jsonl").read_bytes()


def fill(folder: Path, **files: bytes) -> Path:
    """Files by name; ``__`` stands for a dot, ``___`` for a slash."""
    for name, data in files.items():
        path = folder / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return folder


def names(paths: tuple[Path, ...]) -> list[str]:
    return [p.name for p in paths]


@pytest.mark.parametrize(
    ("name", "data", "content"),
    [
        ("x.json", TRACE, "trace"),
        ("x.json.gz", TRACE, "trace"),
        ("stdout.txt", LOG, "server"),
        ("x.log.gz", LOG, "server"),
        ("x.out", b"warming up\n" * 40_000 + LOG, "server"),  # the arguments come late, batch lines at the end
        ("perf.txt", NCCL_TESTS, "nccl"),
        ("debug.txt", NCCL_DEBUG, "nccl"),
        ("bench.txt", BENCH, "bench"),
        ("notes.txt", b"throughput was fine, 60 tok/s\n", "unknown"),
        ("access.log", b'[2026-01-02 03:04:05] INFO:     1.2.3.4:5 - "GET / HTTP/1.1" 200 OK\n', "unknown"),
        ("empty.log", b"", "unknown"),
        ("bytes.out", bytes(range(256)) * 400, "unknown"),
    ],
)
def test_content_decides(name: str, data: bytes, content: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert content_of(path) == content


@given(st.binary(max_size=3000))
@settings(max_examples=60, deadline=None)
def test_any_bytes_are_something(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "x.log"
    path.write_bytes(data)
    try:
        assert content_of(path) in ("trace", "server", "bench", "nccl", "unknown")
    except InputError:
        assert data[:2] in (b"\x1f\x8b", b"PK") or data[:4] == b"\x28\xb5\x2f\xfd"


def test_big_files_are_not_read_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.write(b"nothing known\n" * 1000)
        file.truncate(4 << 30)  # sparse
        file.seek(0, 2)
        file.write(b"\n" + LOG)
    read: list[int] = []
    whole = ByteSource._read_raw

    def counted(source: ByteSource, size: int) -> bytes:
        data = whole(source, size)
        read.append(len(data))
        return data

    monkeypatch.setattr(ByteSource, "_read_raw", counted)
    assert content_of(path) == "server"
    assert sum(read) < 16 << 20


def test_odd_names_are_read_where_nothing_else_is_there(tmp_path: Path) -> None:
    fill(tmp_path, rank0__json__gz=TRACE, stdout__txt=LOG, perf__out=NCCL_TESTS, notes__txt=b"hello\n", a__json=b"{}")
    found = run_files(tmp_path)
    assert names(found.logs) == ["perf.out", "stdout.txt"]
    assert names(found.traces) == ["rank0.json.gz"]
    assert found.notes == (
        "read because of their content: perf.out (NCCL output), rank0.json.gz (a trace), stdout.txt (a server log)",
    )
    assert found.seen == (
        "a.json (no trace and no log that profkit knows)",
        "notes.txt (no trace and no log that profkit knows)",
    )
    run = load_run(tmp_path)
    assert run.log is not None
    assert run.log.server.num_rows == 1
    assert len(run.traces) == 1
    assert found.notes[0] in run.warnings


def test_usual_names_come_first_and_the_rest_is_named(tmp_path: Path) -> None:
    usual = {"server__log": LOG, "traces___1__5-TP-0__trace__json": TRACE, "bench__jsonl": BENCH}
    plain = run_files(fill(tmp_path, **usual))
    assert (plain.notes, plain.seen) == ((), ())
    odd = {"old__txt": BASE, "export__json__gz": TRACE, "client__out": BENCH, "traces___whole__json": TRACE}
    found = run_files(fill(tmp_path, **odd, perf__txt=NCCL_TESTS))
    assert found.traces == plain.traces
    assert names(found.logs) == ["bench.jsonl", "perf.txt", "server.log"]
    first, second = found.notes
    assert first == "read because of their content: perf.txt (NCCL output)"
    for name in ("old.txt (a server log)", "export.json.gz (a trace)", "client.out (benchmark output)", "traces/whole"):
        assert name in second
    assert "files with the usual names are there" in second


def test_traces_of_odd_names_in_their_own_folder(tmp_path: Path) -> None:
    fill(tmp_path, server__log=LOG, traces___0__json__gz=TRACE, other___1__json__gz=TRACE)
    assert [p.relative_to(tmp_path).as_posix() for p in run_files(tmp_path).traces] == ["traces/0.json.gz"]


def test_files_of_a_meaning_of_their_own_and_hidden_ones_are_left_alone(tmp_path: Path) -> None:
    fill(tmp_path, server_args__json=TRACE, config__json=TRACE, run__toml=b"", __hidden__log=LOG, data__csv=LOG)
    found = run_files(tmp_path)
    assert not found
    assert found.seen == ()


def test_two_server_logs_in_one_folder_are_said(tmp_path: Path) -> None:
    fill(tmp_path, server_a__log=LOG, server_b__log=BASE)
    (said,) = load_run(tmp_path).warnings
    assert said.startswith("logs of 2 servers in one run (server_a.log, server_b.log): figures of the log are those of")
    assert "in server_a.log; give each launch a folder of its own" in said


def test_parts_of_a_rotated_log_and_a_prefill_server_are_one_run(tmp_path: Path) -> None:
    lines = LOG.splitlines(keepends=True)
    fill(tmp_path, server__log__1=b"".join(lines[:150]), server__log=b"".join(lines[150:]))
    prefill = b"[2026-01-02 03:04:05] Prefill batch, #new-seq: 1, #new-token: 9, #cached-token: 0, #queue-req: 0\n"
    fill(tmp_path, server_prefill__log=prefill)
    assert load_run(tmp_path).warnings == ()


def test_an_empty_folder_names_what_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path, notes__txt=b"hello\n", broken__json__gz=TRACE)
    (tmp_path / "broken.json.gz").write_bytes(b"\x1f\x8bnonsense")
    for call in (["plan"], ["attribute"], ["parse"], ["compare", str(EAGLE3)]):
        assert profkit([*call, str(tmp_path)]) == 3, call
        error = capsys.readouterr().err
        assert "notes.txt (no trace and no log that profkit knows)" in error, call
        assert "broken.json.gz (unreadable)" in error, call
        assert "Traceback" not in error
    for each in list(tmp_path.iterdir()):
        each.unlink()
    assert profkit(["plan", str(tmp_path)]) == 3
    assert "seen" not in capsys.readouterr().err


def test_runs_below_a_folder_may_have_odd_names(tmp_path: Path) -> None:
    fill(tmp_path, a___out__txt=LOG, b___server__log=LOG, c___deep___x__json=TRACE, d___readme__txt=b"x", e__txt=LOG)
    assert run_paths(tmp_path) == [tmp_path / "a", tmp_path / "b", tmp_path / "c" / "deep"]
    assert run_paths(tmp_path / "a") == [tmp_path / "a"]


def test_a_folder_that_cannot_be_looked_into_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, out__txt=LOG, traces___x__json=TRACE)
    listed = Path.iterdir

    def closed(folder: Path) -> Iterator[Path]:
        if folder.name == "traces":
            raise PermissionError(13, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", closed)
    found = run_files(tmp_path)
    assert (names(found.logs), names(found.traces)) == (["out.txt"], [])


def test_commands_read_such_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces = sorted((EAGLE3 / "traces").iterdir())[:2]
    fill(tmp_path, stdout__txt=LOG)
    for number, trace in enumerate(traces):
        (tmp_path / f"rank{number}.json.gz").write_bytes(trace.read_bytes())
    assert profkit(["parse", str(tmp_path), "-f", "json"]) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["servers"]) == 1
    assert "read because of their content" in captured.err
    assert profkit(["attribute", str(tmp_path), "-f", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["ranks"]) == 2
    assert profkit(["doctor", str(tmp_path), "-f", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert (len(found["traces"]), found["launches"]) == (2, 1)
    assert profkit(["plan", str(tmp_path), "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["bottleneck"]["phase"] == "verify"


def test_every_command_says_what_it_told_by_content(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = fill(tmp_path / "odd", stdout__txt=LOG)
    said = f"warning: {run.name}: read because of their content: stdout.txt (a server log)"
    for command in (
        ["compare", str(run), str(EAGLE3)],
        ["compare", str(EAGLE3), str(run), "-f", "json"],
        ["add", str(run), "--config", "eagle3", "--week", "2026-W47", "--store", str(tmp_path / "store")],
        ["export", "html", str(EAGLE3), "--baseline", str(run), "-o", str(tmp_path / "page.html")],
        ["plan", str(run), "--json"],
    ):
        assert profkit(command) == 0
        assert said in capsys.readouterr().err.splitlines(), command
