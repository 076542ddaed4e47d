"""Several writers at once, and writers that are killed: runs are whole or absent."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pytest

from profkit.errors import UsageError
from profkit.store import marks
from profkit.store import writer as store_writer
from profkit.store.layout import Layout, RunRecord, record_from_json
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


def filed(root: Path) -> list[str]:
    """Configurations of the runs that count; nothing must be left unfinished or contradict itself."""
    store = Store.open(root)
    found = [r.config for r in store.records()]
    assert store.verify() == []
    assert store.problems == []
    assert list((root / "incoming").iterdir()) == []
    return found


def test_a_faster_writer_files_the_launch_under_another_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refuse = store_writer._refuse_second_filing
    seen: list[RunRecord] = []

    def slow(store: Store, record: RunRecord) -> None:
        refuse(store, record)
        seen.append(record)
        if len(seen) == 1:
            assert add_run(tmp_path, analysis("r"), config="other").new

    monkeypatch.setattr(store_writer, "_refuse_second_filing", slow)
    with pytest.raises(UsageError, match="already in the store as other"):
        add_run(tmp_path, analysis("r"), config="eagle3")
    assert filed(tmp_path) == ["other"]


def test_two_writers_file_one_launch_at_the_same_moment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    publish, both = store_writer._publish, threading.Barrier(2)
    met: set[int] = set()

    def together(layout: Layout, record: RunRecord, tables: Mapping[str, pa.Table]) -> bool:
        done = publish(layout, record, tables)
        if threading.get_ident() not in met:
            met.add(threading.get_ident())
            both.wait(60)
        return done

    def add(config: str) -> str:
        try:
            return add_run(tmp_path, analysis("r"), config=config).record.config
        except UsageError:
            return "refused"

    monkeypatch.setattr(store_writer, "_publish", together)
    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(add, ("a", "b")))
    assert said[1] == "refused"
    assert filed(tmp_path) == [said[0]]


def test_a_restored_run_is_no_second_launch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = add_run(tmp_path, analysis("r"), config="a").record
    Store.open(tmp_path).mark([first.id], "remove")
    second = add_run(tmp_path, analysis("r"), config="b").record
    with pytest.raises(UsageError, match=f"in the store as b 2026-W48 .run {second.id}."):
        Store.open(tmp_path).restore(first.id)
    assert filed(tmp_path) == ["b"]
    Store.open(tmp_path).mark([second.id], "remove")
    with pytest.raises(UsageError, match="would count twice"):
        Store.open(tmp_path).mark([first.id, second.id], "restore")
    assert filed(tmp_path) == []

    # The launch is filed anew just as it is restored.
    add = marks.add_marks

    def slow(layout: Layout, runs: Sequence[str], action: marks.Action, tag: str | None = None) -> None:
        if action == "restore":
            monkeypatch.undo()
            add_run(tmp_path, analysis("r"), config="b")
        add(layout, runs, action, tag)

    monkeypatch.setattr(marks, "add_marks", slow)
    with pytest.raises(UsageError, match="would count twice"):
        Store.open(tmp_path).restore(first.id)
    assert filed(tmp_path) == ["b"]


def test_a_launch_that_stands_under_two_names_counts_once_and_is_named(tmp_path: Path) -> None:
    kept = add_run(tmp_path / "s", analysis("r"), config="a").record
    copied = add_run(tmp_path / "t", analysis("r"), config="b").record
    shutil.copytree(tmp_path / "t" / "runs", tmp_path / "s" / "runs", dirs_exist_ok=True)
    store = Store.open(tmp_path / "s")
    [counted] = store.records()
    assert len(store.launches()) == 1
    [problem] = store.problems
    assert all(run in problem for run in (kept.id, copied.id))
    assert f"as run {counted.id} " in problem
    store.mark([counted.id], "remove")
    assert len(filed(tmp_path / "s")) == 1


def test_a_run_added_again_while_it_is_purged_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = add_run(tmp_path, analysis("r")).record
    Store.open(tmp_path).mark([run.id], "remove")

    def slow(path: Path) -> None:
        monkeypatch.undo()
        assert add_run(tmp_path, analysis("r")).new

    monkeypatch.setattr(os, "utime", slow)
    assert Store.open(tmp_path).purge() == 0
    assert filed(tmp_path) == ["eagle3"]


def test_a_run_purged_while_it_is_added_again_is_written_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = add_run(tmp_path, analysis("r")).record
    Store.open(tmp_path).mark([run.id], "remove")
    restore = Store.restore

    def slow(store: Store, run: str) -> None:
        monkeypatch.undo()
        assert Store.open(tmp_path).purge() == 1
        restore(store, run)

    monkeypatch.setattr(Store, "restore", slow)
    assert add_run(tmp_path, analysis("r")).new
    assert filed(tmp_path) == ["eagle3"]


def test_a_purge_killed_with_a_restored_run_in_its_hands(tmp_path: Path) -> None:
    run = add_run(tmp_path, analysis("r")).record
    (tmp_path / "runs" / run.id).rename(tmp_path / "incoming" / f"{run.id}.trash.1.abcd")
    assert Store.open(tmp_path).purge() == 0
    os.utime(tmp_path / "incoming" / f"{run.id}.trash.1.abcd", (1, 1))
    Store.open(tmp_path).purge()
    assert filed(tmp_path) == ["eagle3"]


def test_purges_and_writers_at_once_do_not_stumble(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = [add_run(tmp_path, analysis(name)).record.id for name in "abc"]
    Store.open(tmp_path).mark(gone, "remove")

    def other_purge(path: Path) -> None:
        monkeypatch.undo()
        assert Store.open(tmp_path).purge() == 3

    monkeypatch.setattr(os, "utime", other_purge)
    assert Store.open(tmp_path).purge() == 0, "the other purge deleted all of them"

    unfinished = tmp_path / "incoming" / "half"
    unfinished.mkdir()

    def finished() -> float:
        monkeypatch.undo()
        unfinished.rmdir()
        return 0.0

    monkeypatch.setattr(time, "time", finished)
    assert Store.open(tmp_path).purge() == 0
    assert filed(tmp_path) == []


def test_a_run_deleted_while_the_store_is_read_is_no_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, second = sorted(add_run(tmp_path, analysis(name)).record.id for name in "ab")

    def slow(data: bytes, path: Path) -> RunRecord:
        shutil.rmtree(tmp_path / "runs" / second, ignore_errors=True)
        return record_from_json(data, path)

    monkeypatch.setattr("profkit.store.reader.record_from_json", slow)
    store = Store.open(tmp_path)
    assert [r.id for r in store.records()] == [first]
    assert store.problems == []


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
