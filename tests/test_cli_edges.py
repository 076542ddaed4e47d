"""The command line at its edges: pipes that close, devices as outputs, names that would drive a terminal."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_is_no_output_file(force: bool, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        write_text(tmp_path, "content\n", force=force)
    assert list(tmp_path.iterdir()) == []
