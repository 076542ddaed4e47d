"""Processes that read files: one per thread, used again, replaced when they die."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from profkit.errors import InputError
from profkit.parsers.trace import worker
from profkit.parsers.trace.cache import read_entry
from profkit.parsers.trace.worker import Workers
from tests.trace_makers import same_tables, write_trace


def task(path: Path, out: Path, *, compressed: bool = False) -> dict[str, Any]:
    out.mkdir()
    return {
        "path": str(path), "member": None, "frames": False, "cpu_ops": "all", "key": None, "out": str(out),
        "compressed": compressed,
    }  # fmt: skip


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Process ids of the workers that were started."""
    pids: list[int] = []
    popen = subprocess.Popen

    def counted(*arguments: Any, **more: Any) -> Any:
        process = popen(*arguments, **more)
        pids.append(process.pid)
        return process

    monkeypatch.setattr(subprocess, "Popen", counted)
    return pids


def test_one_process_reads_file_after_file(tmp_path: Path, started: list[int]) -> None:
    path = write_trace(tmp_path / "t.json")
    broken = tmp_path / "broken.json"
    broken.write_text("no trace")
    with Workers() as workers:
        workers.run(task(path, tmp_path / "a"), lambda _: None)
        with pytest.raises(InputError, match=r"broken\.json"):
            workers.run(task(broken, tmp_path / "b"), lambda _: None)
        told: list[int] = []
        workers.run(task(path, tmp_path / "c", compressed=True), told.append)
    assert len(started) == 1
    assert told[-1] == path.stat().st_size
    (first,), (again,) = (read_entry(tmp_path / name, str(path)) for name in "ac")
    assert same_tables(first, again)


def test_a_process_that_dies_is_named_and_replaced(
    tmp_path: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_trace(tmp_path / "t.json")
    with Workers() as workers:
        with monkeypatch.context() as broken:
            broken.setattr(worker, "_CODE", "import sys; sys.stdin.readline(); sys.exit('no memory')")
            with pytest.raises(InputError, match=r"t\.json: the process that read it ended early \(no memory\)"):
                workers.run(task(path, tmp_path / "a"), lambda _: None)
        workers.run(task(path, tmp_path / "b"), lambda _: None)
    assert len(started) == 2
    assert read_entry(tmp_path / "b", str(path))[0].gpu_ops.num_rows
