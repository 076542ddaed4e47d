"""The cache of parsed traces: keyed by content, safe with several writers, never an error."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profkit.parsers.trace import cache as cache_module
from profkit.parsers.trace import read_trace, read_traces
from profkit.parsers.trace.cache import TraceCache, hash_file, read_entry, write_entry
from profkit.parsers.trace.single import ReadOptions, read_file
from profkit.parsers.trace.worker import Workers
from tests.trace_makers import decode_events, document, same_tables, write_trace

EVENTS = decode_events(5, frames=4)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TraceCache:
    monkeypatch.setenv("PROFKIT_CACHE_DIR", str(tmp_path / "cache"))
    return TraceCache()


def old(path: Path) -> Path:
    """Make a file look as if it had been written long ago."""
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the file was read again")

    monkeypatch.setattr("profkit.parsers.trace.many.read_file", fail)


def test_the_second_reading_comes_from_the_cache(
    own: TraceCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = old(write_trace(tmp_path / "1.5-TP-0-DECODE.trace.json.gz", host_name="n1", deviceProperties=[{"id": 0}]))
    first = read_trace(path, frames=True)
    forbid_reading(monkeypatch)
    monkeypatch.setattr(cache_module, "hash_file", lambda _: pytest.fail("the file was hashed again"))
    second = read_trace(path, frames=True)
    assert same_tables(first, second)
    assert first.info == second.info
    assert first.info.content_key is not None
    assert own.usage().entries == 1


def test_the_key_is_the_content_and_the_name_is_the_files_own(
    own: TraceCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = old(write_trace(tmp_path / "1.5-TP-0.trace.json"))
    read_trace(path)
    moved = path.rename(tmp_path / "2.5-TP-6-DECODE.trace.json")
    forbid_reading(monkeypatch)
    info = read_trace(moved).info
    assert (info.rank, info.stage, info.profile_id, info.path) == (6, "decode", "2.5", str(moved))


def test_changed_content_is_read_anew(own: TraceCache, tmp_path: Path) -> None:
    path = old(write_trace(tmp_path / "t.json"))
    data = path.read_bytes()
    assert read_trace(path).gpu_ops["duration_ns"][0].as_py() == 4125
    path.write_bytes(data.replace(b"4.125", b"5.125"))
    assert read_trace(path).gpu_ops["duration_ns"][0].as_py() == 5125


def test_a_file_changed_within_the_clocks_tick_is_not_trusted(own: TraceCache, tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json")
    soon = time.time() + 3600  # it stays young however slow the machine is
    os.utime(path, (soon, soon))
    read_trace(path)
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b"4.125", b"5.125"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert read_trace(path).gpu_ops["duration_ns"][0].as_py() == 5125


def test_no_cache_leaves_nothing(own: TraceCache, tmp_path: Path) -> None:
    read_trace(write_trace(tmp_path / "t.json"), cache=False)
    assert not own.root.exists()


@pytest.mark.parametrize("harm", ["truncate", "empty", "remove", "info", "schema", "deep"])
def test_a_damaged_entry_is_replaced(harm: str, own: TraceCache, tmp_path: Path) -> None:
    path = old(write_trace(tmp_path / "t.json"))
    want = read_trace(path)
    (entry,) = (p for p in (own.root / f"traces-v{cache_module.FORMAT}").iterdir())
    table = entry / "0.gpu_ops.arrow"
    if harm == "truncate":
        table.write_bytes(table.read_bytes()[:-100])
    elif harm == "empty":
        table.write_bytes(b"")
    elif harm == "remove":
        table.unlink()
    elif harm == "info":
        (entry / "entry.json").write_text('[{"label": null, "info": {"path": 1}}]')
    elif harm == "deep":
        deep = "[" * 100_000
        (entry / "entry.json").write_text(f"{hashlib.sha256(deep.encode()).hexdigest()}\n{deep}")
    else:
        table.write_bytes((entry / "0.cpu_ops.arrow").read_bytes())
    assert same_tables(read_trace(path), want)
    assert same_tables(read_trace(path), want)
    assert own.usage().entries == 1


@pytest.mark.parametrize("name", ["0.gpu_ops.arrow", "0.launches.arrow", "entry.json"])
def test_no_flipped_bit_of_an_entry_becomes_a_figure(name: str, own: TraceCache, tmp_path: Path) -> None:
    path = old(write_trace(tmp_path / "t.json", 300))
    want = read_trace(path)
    (entry,) = (own.root / f"traces-v{cache_module.FORMAT}").iterdir()
    sound = (entry / name).read_bytes()
    for at in range(0, len(sound), max(1, len(sound) // 40)):
        place = entry / name
        place.write_bytes(sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :])
        with pytest.raises(cache_module.UNREADABLE):
            read_entry(entry, str(path))
    assert same_tables(read_trace(path), want)
    assert read_trace(path).info == want.info


def test_a_file_that_changes_while_it_is_read_is_told_of_and_not_kept(
    own: TraceCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = old(write_trace(tmp_path / "t.json", 5))

    def slow(*args: Any, **options: Any) -> Any:
        write_trace(path, 6)
        return read_file(*args, **options)

    monkeypatch.setattr("profkit.parsers.trace.many.read_file", slow)
    traces = read_trace(path)
    monkeypatch.undo()
    assert [p.kind for p in traces.info.problems] == ["changed_file"]
    monkeypatch.setenv("PROFKIT_CACHE_DIR", str(own.root))
    assert own.usage().entries == 0
    early = old(write_trace(tmp_path / "copy" / "t.json", 5))
    assert read_trace(early).gpu_ops.num_rows == 5, "the key of the early content does not lead to the later one"


@pytest.mark.parametrize("harm", ["full", "cleared", "unreadable"])
def test_what_a_worker_cannot_hand_back_is_read_here(
    harm: str, own: TraceCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [old(write_trace(tmp_path / f"{n}.json", 5 + n)) for n in range(2)]
    run = Workers.run

    def spoilt(workers: Workers, task: dict[str, Any], progress: Callable[[int], None]) -> None:
        if harm == "full":
            task = task | {"out": "/dev/full/no"}
        run(workers, task, progress)
        if harm == "cleared":
            own.clear()
        else:
            (Path(task["out"]) / "0.gpu_ops.arrow").write_bytes(b"")

    monkeypatch.setattr(Workers, "run", spoilt)
    traces = read_traces(paths, jobs=2)
    assert [t.gpu_ops.num_rows for t in traces] == [5, 6]
    assert [p.kind for t in traces for p in t.info.problems] == []


def test_entries_of_other_versions_make_room_too(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path / "t.json", 300), cache=False)
    cache = TraceCache(tmp_path / "cache", limit=10**9)
    cache.store("a", ReadOptions(), None, [trace])
    size = cache.usage().bytes
    older = tmp_path / "cache" / "traces-v1" / "entry"
    older.mkdir(parents=True)
    (older / "data").write_bytes(bytes(size))
    os.utime(older, (1, 1))
    assert cache.usage().entries == 2
    TraceCache(tmp_path / "cache", limit=int(size * 2.5)).store("b", ReadOptions(), None, [trace])
    assert not older.exists()
    assert cache.usage().entries == 2


def test_a_folder_of_somebody_else_is_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("PROFKIT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    ours = tmp_path / f"profkit-cache-{os.getuid()}"
    assert TraceCache().root == ours
    ours.mkdir()
    assert TraceCache().root == ours
    theirs = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: theirs)
    (tmp_path / f"profkit-cache-{theirs}").mkdir()
    path = write_trace(tmp_path / "t.json")
    assert read_trace(path).gpu_ops.num_rows == 5
    assert list((tmp_path / f"profkit-cache-{theirs}").iterdir()) == []


def test_concurrent_writers_leave_one_sound_entry(own: TraceCache, tmp_path: Path) -> None:
    path = old(write_trace(tmp_path / "t.json", 200))
    want = read_trace(path, cache=False)
    failures: list[BaseException] = []

    def use() -> None:
        try:
            for _ in range(4):
                assert same_tables(read_trace(path), want)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert own.usage().entries == 1
    assert [p for p in (own.root / f"traces-v{cache_module.FORMAT}").iterdir() if p.name.startswith(".tmp-")] == []


def test_an_interrupted_writer_leaves_no_entry(
    own: TraceCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(place: Path, traces: object) -> None:
        (place / "0.gpu_ops.arrow").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(cache_module, "write_entry", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read_trace(write_trace(tmp_path / "t.json"))
    assert own.usage().entries == 0
    # What a killed process leaves is removed by the next run, once it is surely abandoned.
    left = own.root / f"traces-v{cache_module.FORMAT}" / ".tmp-left"
    left.mkdir()
    assert own.usage().entries == 0
    assert left.exists()
    os.utime(left, (1, 1))
    own.usage()
    assert not left.exists()


def test_the_oldest_entries_make_room(tmp_path: Path) -> None:
    traces = [read_trace(write_trace(tmp_path / f"{n}.json", 300 + n), cache=False) for n in range(4)]
    roomy = TraceCache(tmp_path / "cache", limit=10**9)
    for n, trace in enumerate(traces[:3]):
        roomy.store(str(n), ReadOptions(), None, [trace])
        os.utime(roomy.entry(str(n), ReadOptions(), None), (n + 1, n + 1))
    one = roomy.usage().bytes // 3
    tight = TraceCache(tmp_path / "cache", limit=int(one * 2.5))
    assert tight.load("x.json", "0", ReadOptions(), None) is not None  # used, and so no longer the oldest
    tight.store("3", ReadOptions(), None, [traces[3]])
    kept = [n for n in range(4) if tight.load("x.json", str(n), ReadOptions(), None) is not None]
    assert kept == [0, 3]


def test_options_are_kept_apart(own: TraceCache, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(document(EVENTS))
    assert read_trace(path).frames is None
    framed = read_trace(path, frames=True).frames
    assert framed is not None
    assert framed.num_rows == 4
    few = read_trace(path, cpu_ops="collectives")
    assert few.cpu_ops.num_rows == 0
    assert read_trace(path).cpu_ops.num_rows == 5


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PROFKIT_CACHE_DIR", str(tmp_path / "file" / "cache"))
    path = write_trace(tmp_path / "t.json")
    assert read_trace(path).gpu_ops.num_rows == 5
    assert read_traces([path, write_trace(tmp_path / "u.json")], jobs=2)[0].gpu_ops.num_rows == 5


def test_entries_keep_every_fact(tmp_path: Path) -> None:
    trace = read_trace(
        write_trace(tmp_path / "1.5-TP-1.trace.json", distributedInfo={"rank": 1}), frames=True, cache=False
    )
    trace = replace(trace, info=replace(trace.info, truncated=True))
    (tmp_path / "entry").mkdir()
    write_entry(tmp_path / "entry", [trace])
    (back,) = read_entry(tmp_path / "entry", trace.info.path)
    assert back.info == trace.info
    assert same_tables(back, trace)
    assert hash_file(tmp_path / "1.5-TP-1.trace.json") == hash_file(tmp_path / "1.5-TP-1.trace.json")


def test_the_cache_command(own: TraceCache, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from profkit.cli.app import run

    read_trace(write_trace(tmp_path / "t.json"))
    assert run(["cache"]) == 0
    assert "holds 1 trace," in capsys.readouterr().out
    assert run(["cache", "--clear", "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["entries"], said["cleared"], said["limit_bytes"]) == (1, True, 4_000_000_000)
    assert own.usage().entries == 0
    assert run(["cache", "--format", "csv"]) == 2
    assert "use --format json" in capsys.readouterr().err
