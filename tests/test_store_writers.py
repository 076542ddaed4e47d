"""Several writers at once, and writers that are killed: runs are whole or absent."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from profkit.store import writer as store_writer
from profkit.store.layout import RunRecord
from profkit.store.reader import Store
from profkit.store.writer import add_run
from tests.paths import ROOT
from tests.store_data import analysis

WRITER = """
import sys
from pathlib import Path
from profkit.store.writer import add_run
from tests.store_data import analysis
root, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
runs = [analysis(f"r{i}", 50.0 + i / 100, traced=True) for i in range(first, last)]
print("ready", flush=True)
sys.stdin.readline()
for index, run in enumerate(runs, first):
    add_run(root, run)
    print(index, flush=True)
"""


Writer: TypeAlias = Callable[[Path, int, int], subprocess.Popen[str]]


@pytest.fixture
def writer() -> Iterator[Writer]:
    """Starts processes that add runs once told to; whatever becomes of the test, none outlives it."""
    started = []

    def start(root: Path, first: int, last: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root), str(first), str(last)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_writers_of_the_same_runs_agree(writer: Writer, tmp_path: Path) -> None:
    root = tmp_path / "s"
    writers = [writer(root, first, last) for first, last in ((0, 12), (0, 12), (6, 18))]
    for process in writers:
        go(process)
    for process in writers:
        process.communicate()
        assert process.returncode == 0
    store = Store.open(root)
    assert sorted(int(r.name[1:]) for r in store.records()) == list(range(18))
    assert store.verify() == []
    assert list((root / "incoming").iterdir()) == []


@pytest.mark.parametrize("removed", [False, True], ids=["kept", "removed"])
def test_a_faster_writer_between_look_and_write(removed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = analysis("r", 50.0, traced=True)
    refuse = store_writer._refuse_second_filing
    first: list[RunRecord] = []

    def slow(store: Store, record: RunRecord) -> None:
        refuse(store, record)
        if not first:
            first.append(record)
            assert add_run(tmp_path, run).new
            if removed:
                Store.open(tmp_path).mark([record.id], "remove")

    monkeypatch.setattr(store_writer, "_refuse_second_filing", slow)
    added = add_run(tmp_path, run)
    assert added.new is removed, "a run that somebody just removed is there again, otherwise nothing is new"
    assert added.record.tables, "the record is the stored one"
    assert [r.id for r in Store.open(tmp_path).records()] == [added.record.id]


def test_killed_writers_leave_whole_runs_only(writer: Writer, tmp_path: Path) -> None:
    root = tmp_path / "s"
    seed = random.Random(4)
    reported: set[int] = set()
    for start in range(0, 6 * 200, 200):
        process = writer(root, start, start + 200)
        go(process)
        assert process.stdout is not None
        # Some die at once, while the store is being made; the others somewhere within a later run.
        seen = "".join(process.stdout.readline() for _ in range(seed.choice([0, 1, 3])))
        time.sleep(seed.uniform(0.0, 0.05))
        process.send_signal(signal.SIGKILL)
        out = seen + process.communicate()[0]
        # A line may be cut by the kill; only whole lines are promises.
        reported |= {int(line) for line in out.splitlines(keepends=True) if line.endswith("\n")}
        if not (root / "profkit-store.json").exists():
            continue
        store = Store.open(root)
        names = {int(r.name[1:]) for r in store.records()}
        assert reported <= names, "a run that was reported as added is gone"
        assert store.problems == []
        assert store.verify() == []
        assert len(store.launches()) == len(names)
    assert reported, "no writer lived long enough to add a run"
    again = writer(root, 0, 20)
    go(again)
    again.communicate()
    assert again.returncode == 0
    assert set(range(20)) <= {int(r.name[1:]) for r in Store.open(root).records()}
