"""Names, containers, folders, merged files and reading side by side."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from profkit.errors import InputError
from profkit.parsers.trace import find_traces, read_trace, read_traces
from profkit.parsers.trace.names import coordinates_of_label, coordinates_of_name, split_label
from profkit.parsers.trace.single import ReadOptions, read_file
from profkit.rules import load_rules
from tests.paths import ROOT
from tests.trace_makers import decode_events, document, same_tables, write_trace

EVENTS = decode_events(5, frames=4)

# --- names ----------------------------------------------------------------------------------------

EXAMPLES = [(s["name"], e) for s in load_rules("trace_names")["scheme"] for e in s["examples"]]


@pytest.mark.parametrize(("scheme", "example"), EXAMPLES, ids=[e["file"] for _, e in EXAMPLES])
def test_every_naming_scheme(scheme: str, example: dict[str, Any]) -> None:
    found = coordinates_of_name(example["file"])
    for key in ("rank", "dp", "tp", "pp", "ep", "stage", "profile"):
        assert getattr(found, key) == example.get(key), (scheme, key)


def test_names_that_say_nothing() -> None:
    for name in (
        "trace.json",
        "prank1.json",
        "http2.json",
        "rank.json",
        "stp3x.json.gz",
        "host_12.async_llm.9.pt.trace.json.gz",
    ):
        found = coordinates_of_name(name)
        assert (found.rank, found.tp, found.stage) == (None, None, None), name


def test_labels_of_merged_files() -> None:
    assert split_label("[TP00-EP01] 123") == ("TP00-EP01", "123")
    assert split_label("[TP00] ") == ("TP00", "")
    assert split_label("[0, 1]") is None
    assert split_label("Spans") is None
    found = coordinates_of_label("TP03-DP01-PP02-EP00")
    assert (found.tp, found.dp, found.pp, found.ep) == (3, 1, 2, 0)


def test_pipeline_stages_take_the_rank_of_the_process_group(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "1.5-TP-1-PP-1.trace.json", distributedInfo={"rank": 3})
    assert read_trace(path).info.rank == 3
    assert read_trace(write_trace(tmp_path / "1.5-TP-1.trace.json", distributedInfo={"rank": 3})).info.rank == 1


# --- containers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("t.json", bytes),
        ("t.json.gz", gzip.compress),
        ("t.json.zst", zstandard.ZstdCompressor().compress),
        ("t.json.bz2", bz2.compress),
        ("t.json.xz", lzma.compress),
    ],
)
def test_containers(name: str, pack: Any, tmp_path: Path) -> None:
    data = document(EVENTS)
    plain = tmp_path / "plain.json"
    plain.write_bytes(data)
    want = read_trace(plain, frames=True, cache=False)
    packed = tmp_path / name
    packed.write_bytes(pack(data))
    assert same_tables(read_trace(packed, frames=True, cache=False), want)
    misnamed = tmp_path / "other.trace.json"
    misnamed.write_bytes(pack(data))
    assert same_tables(read_trace(misnamed, frames=True, cache=False), want)


def test_zip_with_one_and_with_several_traces(tmp_path: Path) -> None:
    path = tmp_path / "traces.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run/1.5-TP-1.trace.json", document(decode_events(2)))
    assert read_trace(path).info.rank == 1
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("run/1.5-TP-0.trace.json.gz", gzip.compress(document(decode_events(3))))
        archive.writestr("readme.txt", "x")
    found = read_traces([path])
    assert [(t.info.rank, t.info.gpu_ops) for t in found] == [(0, 3), (1, 2)]
    assert found[0].info.path == f"{path}!run/1.5-TP-0.trace.json.gz"
    with pytest.raises(InputError, match="holds 2 ranks"):
        read_trace(path)


def test_truncated_zstd_and_xz(tmp_path: Path) -> None:
    data = document(decode_events(4000))
    for name, pack in (
        ("t.zst", zstandard.ZstdCompressor().compress),
        ("t.xz", lzma.compress),
        ("t.bz2", bz2.compress),
    ):
        path = tmp_path / name
        packed = pack(data)
        path.write_bytes(packed[: len(packed) * 3 // 4])
        trace = read_trace(path, cache=False)
        assert trace.info.truncated
        assert 0 < trace.cpu_ops.num_rows <= 4000


def test_standard_input_and_pipes(tmp_path: Path) -> None:
    code = "from profkit.parsers.trace import read_traces; print(read_traces(['-'])[0].info.gpu_ops)"
    for data in (document(EVENTS), gzip.compress(document(EVENTS))):
        done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True, cwd=ROOT)
        assert done.stdout == b"5\n"


def test_remote_paths_through_fsspec(tmp_path: Path) -> None:
    import fsspec

    with fsspec.open("memory://run/1.5-TP-2.trace.json.gz", "wb") as file:
        file.write(gzip.compress(document(EVENTS)))
    trace = read_trace("memory://run/1.5-TP-2.trace.json.gz")
    assert (trace.info.rank, trace.info.gpu_ops) == (2, 5)
    with pytest.raises(InputError, match="cannot be opened"):
        read_trace("memory://nothing.json")


# --- folders and several ranks --------------------------------------------------------------------


def test_a_folder_of_ranks(tmp_path: Path) -> None:
    for rank in (3, 0, 10, 2):
        write_trace(tmp_path / "run" / f"1.5-TP-{rank}.trace.json.gz")
    write_trace(tmp_path / "run" / ".hidden" / "1.5-TP-7.trace.json.gz")
    (tmp_path / "run" / "server_args.json").write_text("{}")
    assert [t.info.rank for t in read_traces([tmp_path])] == [0, 2, 3, 10]
    assert len(find_traces(tmp_path)) == 4
    assert [t.info.rank for t in read_traces([str(tmp_path / "run" / "*TP-1*.gz")])] == [10]
    named = [tmp_path / "run" / "1.5-TP-3.trace.json.gz", tmp_path / "run"]
    assert [t.info.rank for t in read_traces(named)] == [0, 2, 3, 10]


def test_nothing_found(tmp_path: Path) -> None:
    for path, words in (
        ("no.json", "No such file or directory; check the path"),
        ("*.json", "no file matches"),
        (".", "no \\*.trace.json"),
    ):
        with pytest.raises(InputError, match=words):
            read_traces([tmp_path / path])


def test_duplicates_are_kept_and_named(tmp_path: Path) -> None:
    data = document(decode_events(2))
    for name in ("a/1.5-TP-0.trace.json", "b/1.5-TP-0.trace.json", "a/1.5-TP-1.trace.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    found = read_traces([tmp_path])
    assert [t.info.rank for t in found] == [0, 0, 1]
    assert [[p.kind for p in t.info.problems] for t in found] == [["duplicate_rank"], ["duplicate_rank"], []]


def test_stages_of_one_rank_are_no_duplicates(tmp_path: Path) -> None:
    for stage in ("EXTEND", "DECODE"):
        write_trace(tmp_path / f"1.5-TP-0-{stage}.trace.json")
    assert [t.info.problems for t in read_traces([tmp_path])] == [(), ()]


def test_an_unusable_file_among_usable_ones(tmp_path: Path) -> None:
    write_trace(tmp_path / "1.5-TP-0.trace.json")
    (tmp_path / "1.5-TP-1.trace.json").write_text("")
    (found,) = read_traces([tmp_path])
    assert [(p.kind, p.count) for p in found.info.problems] == [("unreadable_file", 1)]
    assert "TP-1" in found.info.problems[0].detail


def merged(ranks: list[list[dict[str, Any]]], labels: list[str]) -> bytes:
    events = [e | {"pid": f"[{label}] {e['pid']}"} for label, part in zip(labels, ranks, strict=True) for e in part]
    return json.dumps(
        {"traceEvents": json.loads(json.dumps(events, default=float)), "deviceProperties": [{"id": 0}, {"id": 1}]}
    ).encode()


@pytest.mark.parametrize("chunk", [400, 1 << 20])
def test_a_merged_file_gives_the_tables_of_its_parts(chunk: int, tmp_path: Path) -> None:
    parts = [decode_events(4, frames=3, pid=100), decode_events(6, pid=200)]
    path = tmp_path / "merged-1.5.trace.json"
    path.write_bytes(merged(parts, ["TP00-EP00", "TP01-EP01"]))
    found = read_file(path, ReadOptions(frames=True), chunk=chunk)
    assert [(t.info.rank, t.info.tp, t.info.ep) for t in found] == [(0, 0, 0), (1, 1, 1)]
    for trace, events in zip(found, parts, strict=True):
        alone = tmp_path / "alone.json"
        alone.write_bytes(document(json.loads(json.dumps(events, default=float)), "one_line"))
        (want,) = read_file(alone, ReadOptions(frames=True))
        assert same_tables(trace, want)
        assert trace.info.events == want.info.events


def test_a_merged_file_with_two_recordings_of_a_rank_says_so(tmp_path: Path) -> None:
    path = tmp_path / "merged-1.5.trace.json"
    path.write_bytes(merged([decode_events(2), decode_events(3)], ["TP00", "TP00"]))
    assert [p.kind for p in read_trace(path).info.problems] == ["several_recordings"]


def test_processes_side_by_side_give_the_same(tmp_path: Path) -> None:
    for rank in range(3):
        write_trace(tmp_path / f"1.5-TP-{rank}.trace.json.gz", 20 + rank)
    (tmp_path / "1.5-TP-9.trace.json.gz").write_bytes(b"")
    shares: list[float] = []
    alone = read_traces([tmp_path], cache=False, jobs=1)
    aside = read_traces([tmp_path], cache=False, jobs=2, progress=shares.append)
    assert [t.info for t in alone] == [t.info for t in aside]
    assert all(same_tables(a, b) for a, b in zip(alone, aside, strict=True))
    assert sum(shares) == pytest.approx(1)


def test_as_many_processes_as_cores_files_and_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from profkit.parsers.trace import many

    def jobs(files: int, megabytes: int, *, cores: int = 16, free_gb: float = 100) -> int:
        monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)), raising=False)
        monkeypatch.setattr(many, "_available_memory", lambda _: int(free_gb * 1e9))
        return many._default_jobs([many._Task(Path(f"{n}.json.gz"), None, megabytes << 20) for n in range(files)])

    assert jobs(8, 50) == 8
    assert jobs(8, 50, cores=2) == 2
    assert jobs(8, 50, free_gb=2) == 3
    assert jobs(8, 50, free_gb=0.1) == 1
    assert jobs(8, 1) == 1  # starting processes would take longer
