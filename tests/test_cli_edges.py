"""The command line at its edges: pipes that close, devices as outputs, names that would drive a terminal."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profkit.cli.app import run
from profkit.errors import UsageError
from profkit.files import write_text
from tests.paths import SAMPLES

EAGLE3 = SAMPLES / "kimi-k2.5-tp8" / "eagle3"


def profkit(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "profkit", *arguments], capture_output=True, check=False)


def test_a_reader_that_goes_away_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "profkit", "parse", str(EAGLE3), "--table", "decode"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_names_in_errors_drive_no_terminal() -> None:
    done = profkit("parse", "no\x1b[31m\nsuch.log")
    assert done.returncode == 3
    assert b"\x1b" not in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_a_pipe_is_written_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        write_text(pipe, "content\n", force=True)
        assert reader.communicate()[0] == b"content\n"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.fixture
def piped(tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    """Makes a named pipe through which a file comes once, as a shell's ``<(cat FILE)`` does."""
    writers: list[subprocess.Popen[bytes]] = []

    def make(path: Path) -> Path:
        pipe = tmp_path / f"{len(writers)}-{path.name}"
        os.mkfifo(pipe)
        writers.append(subprocess.Popen(["/bin/sh", "-c", 'exec cat "$0" > "$1"', str(path), str(pipe)]))
        return pipe

    yield make
    for writer in writers:
        writer.kill()
        writer.wait()


def test_pipes_are_read_once(piped: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]) -> None:
    traces = sorted((EAGLE3 / "traces").glob("*"))[:2]
    found = []
    for paths in (traces, [piped(path) for path in traces]):
        assert run(["attribute", *map(str, paths), "--format", "json"]) == 0
        found.append([rank["parts_ns"] for rank in json.loads(capsys.readouterr().out)["ranks"]])
    assert found[0] == found[1]
    assert run(["parse", str(piped(EAGLE3 / "server.log"))]) == 0
    assert "EAGLE3 speculation" in capsys.readouterr().out


def test_what_is_read_more_than_once_is_no_pipe(
    piped: Callable[[Path], Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["plan", str(piped(EAGLE3 / "server.log")), "-o", str(tmp_path / "plan")]) == 3
    assert "is a pipe or a device" in capsys.readouterr().err


def test_frames_of_a_trace_on_standard_input_are_read_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = next((EAGLE3 / "traces").glob("*TP-0*"))
    document = json.loads(gzip.decompress(trace.read_bytes()))
    document["traceEvents"] = [e for e in document["traceEvents"] if "annotation" not in str(e.get("cat"))]
    first = min(e["ts"] for e in document["traceEvents"] if "ts" in e)
    frame = {"ph": "X", "cat": "python_function", "name": "a.py(1): f", "pid": 1, "tid": 1, "ts": first, "dur": 1.0}
    document["traceEvents"].append(frame)
    text = json.dumps(document).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text))))
    assert run(["attribute", "-"]) == 0
    assert "Decode cycle: 33.35 ms" in capsys.readouterr().out


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_is_no_output_file(force: bool, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        write_text(tmp_path, "content\n", force=force)
    assert list(tmp_path.iterdir()) == []
