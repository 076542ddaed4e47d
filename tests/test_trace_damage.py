"""Damaged traces: everything sound is read, the rest is counted and located, and nothing is invented."""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit import tables
from profkit.errors import InputError
from profkit.parsers.trace.single import ReadOptions, read_file
from profkit.parsers.trace.source import MAX_UNPACKED_VARIABLE
from profkit.trace import Trace
from tests import oracle_trace
from tests.trace_makers import decode_events, document, text_of

EVENTS = decode_events(6)
WHOLE = document(EVENTS, "kineto")


def read(data: bytes, path: Path, *, chunk: int = 1 << 20) -> Trace:
    path.write_bytes(data)
    (trace,) = read_file(path, ReadOptions(frames=True), chunk=chunk)
    return trace


def rows(trace: Trace, name: str) -> list[dict[str, object]]:
    return trace.table(name).to_pylist()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return read(WHOLE, tmp_path_factory.mktemp("whole") / "t.json")


def assert_prefix(part: Trace, whole: Trace) -> None:
    for name in tables.TRACE_TABLES:
        got = rows(part, name)
        assert got == rows(whole, name)[: len(got)], name


def test_cut_off_anywhere(whole: Trace, tmp_path: Path) -> None:
    ends = [i + 1 for i in range(len(WHOLE)) if WHOLE[: i + 1].endswith(b"\n  }")]
    array_end = WHOLE.index(b"\n  ]") + 4
    for cut in [*range(0, len(WHOLE), 3), array_end - 1, array_end, len(WHOLE) - 1]:
        complete = sum(end <= cut for end in ends)
        if not complete:
            with pytest.raises(InputError):
                read(WHOLE[:cut], tmp_path / "t.json")
            continue
        part = read(WHOLE[:cut], tmp_path / "t.json", chunk=700)
        assert part.info.events == complete
        assert_prefix(part, whole)
        if cut < array_end:
            assert part.info.truncated
            assert [p.kind for p in part.info.problems] == ["truncated"]


@pytest.mark.parametrize("level", [0, 6])
def test_cut_off_gzip(level: int, whole: Trace, tmp_path: Path) -> None:
    packed = gzip.compress(WHOLE, level)
    read_some = 0
    for cut in range(len(packed) - 40, 20, -max(1, len(packed) // 60)):
        try:
            part = read(packed[:cut], tmp_path / "t.json.gz")
        except InputError:
            continue
        read_some += 1
        assert part.info.truncated
        assert "truncated" in {p.kind for p in part.info.problems}
        assert_prefix(part, whole)
    assert read_some > 20


def test_gzip_with_several_members_padding_and_garbage(whole: Trace, tmp_path: Path) -> None:
    half = len(WHOLE) // 2
    members = gzip.compress(WHOLE[:half]) + gzip.compress(WHOLE[half:])
    assert rows(read(members, tmp_path / "t.json.gz"), "gpu_ops") == rows(whole, "gpu_ops")
    assert read(members + bytes(512), tmp_path / "t.json.gz").info.problems == ()
    dirty = read(members + b"garbage", tmp_path / "t.json.gz")
    assert rows(dirty, "gpu_ops") == rows(whole, "gpu_ops")
    assert {p.kind for p in dirty.info.problems} == {"trailing_garbage"}


@pytest.mark.parametrize(
    "bad",
    [
        '{"ph": "X", "cat": "kernel", "name": "a "quoted" name", "pid": 0, "tid": 7, "ts": 1.5, "dur": 1}',
        '{"ph": "X", "cat": "kernel", "name": "odd " quote", "pid": 0, "tid": 7, "ts": 1.5, "dur": 1}',
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1.5 "dur": 1}',
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1.5, "dur": 1',
        '{"ph": "X", "cat": "kernel", "name": "never closed, "ts": 1.5, "dur": 1}',
        '{"ph": "X", "cat": "kernel", "name": "k", "args": {"a": [1, 2}, "ts": 1}',
        "\x00\x00\x00\x00",
        "nonsense",
        '"text"',
        "}",
    ],
)
@pytest.mark.parametrize("layout", ["kineto", "kineto_lines", "one_line", "indent_4"])
@pytest.mark.parametrize("chunk", [500, 1 << 20])
def test_one_bad_event_among_good_ones(bad: str, layout: str, chunk: int, whole: Trace, tmp_path: Path) -> None:
    marker = {"ph": "X", "cat": "kernel", "name": "MARKER"}
    events = [*EVENTS[:9], marker, *EVENTS[9:]]
    text = document(events, layout).decode()
    start = text.rindex("{", 0, text.index("MARKER"))
    end = text.index("}", start) + 1
    damaged = text[:start] + bad + text[end:]
    trace = read(damaged.encode(), tmp_path / "t.json", chunk=chunk)
    for name in tables.TRACE_TABLES:
        assert rows(trace, name) == rows(whole, name), name
    assert {p.kind for p in trace.info.problems} == {"damaged_event"}
    (problem,) = trace.info.problems
    assert problem.count >= 1
    assert problem.where is not None
    assert abs(int(problem.where.removeprefix("byte ")) - start) <= 2
    assert not trace.info.truncated


def test_what_strict_json_refuses_but_can_be_understood(tmp_path: Path) -> None:
    odd = [
        '{"ph": "X", "cat": "kernel", "name": "nan", "ts": NaN, "dur": Infinity, "tid": 1}',
        '{"ph": "X", "cat": "kernel", "name": "a\x01b\nc", "ts": 2.001, "dur": 1, "tid": 1}',
        '{"ph": "X", "cat": "kernel", "name": "bool", "ts": 3.001, "dur": true, "tid": true}',
    ]
    text = '{"traceEvents": [' + ", ".join([*map(text_of, EVENTS[:2]), *odd, text_of(EVENTS[2])]) + "]}"
    trace = read(text.encode(), tmp_path / "t.json")
    found = [(r["name"], r["start_ns"], r["duration_ns"], r["stream"]) for r in rows(trace, "gpu_ops")]
    assert found == [("nan", None, None, 1), ("a\x01b\nc", 2001, 1000, 1), ("bool", 3001, None, None)]
    problems = {p.kind: p.count for p in trace.info.problems}
    assert problems == {"irregular_event": 3, "missing_start": 1, "missing_duration": 2}


def test_broken_utf8_in_a_name(tmp_path: Path) -> None:
    data = b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a\xff\xfeb", "ts": 1, "dur": 2}]}'
    trace = read(data, tmp_path / "t.json")
    assert rows(trace, "gpu_ops")[0]["name"] == "a\ufffd\ufffdb"
    lone = b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a\\ud800b", "ts": 1, "dur": 2}]}'
    assert rows(read(lone, tmp_path / "t.json"), "gpu_ops")[0]["name"] == "a?b"


def test_damage_behind_the_events_costs_only_the_facts_there(whole: Trace, tmp_path: Path) -> None:
    first = document(EVENTS, where="first")
    broken = first[: first.rindex(b'"/tmp')]
    trace = read(broken, tmp_path / "t.json")
    assert rows(trace, "gpu_ops") == rows(whole, "gpu_ops")
    assert [p.kind for p in trace.info.problems] == ["damaged_metadata"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"  \n ", "white space"),
        (b"INFO server started\n", "no JSON"),
        (b'{"a": 1}', "no traceEvents"),
        (b'{"traceEvents": []}', "traceEvents is empty"),
        (b"[]", "traceEvents is empty"),
        (b'{"traceEvents": {"a": 1}}', "no traceEvents"),
        (b'{"traceEvents": nul', "before its traceEvents"),
        (b'{"schemaVersion": 1, "traceEve', "before its traceEvents"),
        (b'{"traceEvents": [{]', "damaged"),
        (b"\x1f\x8b\x08\x00broken", "white space"),
        (b"PK\x03\x04broken", "zip"),
        (b"\x28\xb5\x2f\xfdbroken", "white space"),
        (b"BZhbroken!", "white space"),
    ],
)
def test_no_trace_at_all(data: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read(data, tmp_path / "t.json")
    assert str(tmp_path / "t.json") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MAX_UNPACKED_VARIABLE, "0.02")
    bomb = gzip.compress(b'{"traceEvents": [' + text_of(EVENTS[0]).encode() + b"," + b" " * 50_000_000)
    with pytest.raises(InputError, match="unpacks to more than"):
        read(bomb, tmp_path / "t.json.gz")


def test_deep_nesting_ends_in_no_crash(tmp_path: Path) -> None:
    deep = '{"ph": "X", "cat": "kernel", "name": "deep", "args": ' + "[" * 20_000 + "]" * 20_000 + "}"
    data = ('{"traceEvents": [' + text_of(EVENTS[0]) + ", " + deep + ", " + text_of(EVENTS[1]) + "]}").encode()
    trace = read(data, tmp_path / "t.json")
    assert trace.cpu_ops.num_rows == 2
    assert [(p.kind, p.count) for p in trace.info.problems] == [("damaged_event", 1)]


def test_a_name_of_several_megabytes(tmp_path: Path) -> None:
    giant = {"ph": "X", "cat": "kernel", "name": "k" * 3_000_000, "ts": 1, "dur": 2}
    trace = read(document([*EVENTS, giant, *EVENTS[:9]]), tmp_path / "t.json")
    assert trace.info.events == len(EVENTS) + 10
    assert trace.info.problems == ()


def test_many_damaged_events_cost_linear_time(tmp_path: Path) -> None:
    bad = '{"ph": "X", "cat": "kernel", "name": "odd " quote", "ts": 1.5, "dur": 1}'
    good = text_of(EVENTS[0])
    data = ('{"traceEvents": [' + ", ".join([good, bad] * 1500) + "]}").encode()
    trace = read(data, tmp_path / "t.json")
    assert trace.cpu_ops.num_rows == 1500
    assert {p.kind: p.count for p in trace.info.problems} == {"damaged_event": 1500}


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_random_damage_never_crashes(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    layout = data.draw(st.sampled_from(["kineto", "one_line", "indent_2"]))
    text = bytearray(document(EVENTS, layout))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=8))
    path = tmp_path_factory.getbasetemp() / "fuzzed.json"
    path.write_bytes(text)
    try:
        (trace,) = read_file(path, ReadOptions(frames=True), chunk=data.draw(st.sampled_from([300, 1 << 20])))
    except InputError:
        return
    try:
        want = oracle_trace.read(path)
    except ValueError:
        return
    for name in tables.TRACE_TABLES:  # it is sound JSON all the same
        assert rows(trace, name) == rows(want, name), name


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_never_crash(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "noise.json"
    for data in (noise, b"\x1f\x8b\x08" + noise, b"PK\x03\x04" + noise, b'{"traceEvents": [' + noise, b"[{" + noise):
        path.write_bytes(data)
        with contextlib.suppress(InputError):
            read_file(path, ReadOptions())
