"""Exactness: arbitrary events in every layout, cut anywhere, against the slow reference reader."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profkit import tables
from profkit.parsers.trace.exact import integers, nanoseconds
from profkit.parsers.trace.single import ReadOptions, read_file
from profkit.trace import Trace
from tests import oracle_trace
from tests.trace_makers import LAYOUTS, decode_events, document

TEXT = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["}, {", '}, {"ph": "X"', '\\"}, {"ph', "]}", "\\", "\\\\", '"', "{lambda(int)#1}, {lambda(float)#2}",
         "\u2028é𝄞", '"cat": "python_function"', "\x00\x1f", "},\n  {\n    "]
    ),
)  # fmt: skip
NUMBER = st.one_of(
    st.integers(-(10**6), 10**16),
    st.decimals(0, 10**13, places=3),
    st.decimals(0, 10**6, places=1),
    st.decimals(-100, 10**6, places=6),
)
TIME = st.one_of(NUMBER, NUMBER.map(lambda n: format(n, "f") if isinstance(n, Decimal) else str(n)), st.none())
ID = st.one_of(st.integers(0, 2**40), st.integers(-5, 5), st.integers(0, 99).map(str), st.none())
ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), TEXT, st.decimals(-9, 9, places=2)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)
LOOKALIKE = st.lists(
    st.just({"ph": "X", "cat": "python_function", "name": "f", "pid": 1, "tid": 1, "args": {"a": 1}}), max_size=3
)
ARGS = st.fixed_dictionaries(
    {},
    optional={
        "External id": ID,
        "external id": ID,
        "correlation": ID,
        "stream": st.integers(0, 99),
        "device": st.integers(0, 7),
        "graph id": ID,
        "graph node id": ID,
        "Python id": ID,
        "Python parent id": ID,
        "Collective name": TEXT,
        "dtype": TEXT,
        "In msg nelems": ID,
        "Group size": ID,
        "Process Group Name": TEXT,
        "unknown": ANY,
        "nested": LOOKALIKE,
    },
)
CATEGORIES = ["kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cpu_op", "user_annotation",
              "gpu_user_annotation", "python_function", "ac2g", "overhead", "Kernel", "Runtime"]  # fmt: skip
SPAN = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "X", "X", "i", "B", "f"]), "cat": st.sampled_from(CATEGORIES)},
    optional={"name": TEXT, "pid": ID, "tid": ID, "ts": TIME, "dur": TIME, "args": ARGS, "more": ANY},
)
METADATA = st.fixed_dictionaries(
    {"ph": st.just("M"), "name": TEXT, "pid": ID, "tid": ID, "args": st.fixed_dictionaries({"name": TEXT})},
)
ODD = st.dictionaries(TEXT, ANY, max_size=3).filter(lambda d: not {"ph", "cat", "ts", "dur"} & set(d))
EVENTS = st.lists(
    st.one_of(SPAN, SPAN, SPAN, METADATA, ODD).flatmap(
        lambda e: st.permutations(list(e)).map(lambda keys: {k: e[k] for k in keys})
    ),
    min_size=1,
    max_size=25,
)


def read(path: Path, *, frames: bool = True, chunk: int = 1 << 20) -> Trace:
    (trace,) = read_file(path, ReadOptions(frames=frames), chunk=chunk)
    return trace


def assert_equal(got: Trace, want: Trace, names: Sequence[str] = tuple(tables.TRACE_TABLES)) -> None:
    for name in names:
        assert got.table(name).to_pylist() == want.table(name).to_pylist(), name
    assert got.info.events == want.info.events


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=EVENTS,
    layout=st.sampled_from(LAYOUTS),
    where=st.sampled_from(["first", "middle", "last", "bare"]),
    chunk=st.sampled_from([64, 200, 1000, 1 << 20]),
)
def test_any_events_in_any_layout(
    events: list[dict[str, Any]], layout: str, where: str, chunk: int, tmp_path: Path
) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(document(events, layout, where=where))
    want = oracle_trace.read(path)
    got = read(path, chunk=chunk)
    assert_equal(got, want)
    assert got.info.problems == want.info.problems or {p.kind for p in got.info.problems} <= {
        "irregular_event", "missing_start", "missing_duration", "negative_duration"
    }  # fmt: skip
    without = read(path, frames=False, chunk=chunk)
    assert_equal(without, want, [n for n in tables.TRACE_TABLES if n != "frames"])
    assert without.frames is None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_chunk_may_end_at_every_byte(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    data = document(decode_events(4, frames=3), layout, facts={"baseTimeNanoseconds": 1790857026000000000})
    path.write_bytes(data)
    want = oracle_trace.read(path)
    for chunk in [*range(16, 700, 7), len(data) - 1, len(data), len(data) + 1]:
        assert_equal(read(path, chunk=chunk), want)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chunk", [3000, 20_000])
def test_dropped_frames_are_counted_and_nothing_else_is_lost(layout: str, chunk: int, tmp_path: Path) -> None:
    events = decode_events(20, frames=900)
    events.insert(300, {"ph": "X", "cat": "kernel", "name": "lost?", "pid": 0, "tid": 7, "ts": 1, "dur": 2})
    path = tmp_path / "t.json"
    path.write_bytes(document(events, layout))
    want = oracle_trace.read(path)
    got = read(path, frames=False, chunk=chunk)
    assert_equal(got, want, [n for n in tables.TRACE_TABLES if n != "frames"])
    assert got.info.python_frames
    assert got.info.problems == ()


def test_facts_around_the_events(tmp_path: Path) -> None:
    facts = {
        "distributedInfo": {"rank": 5, "backend": "nccl", "world_size": 8},
        "baseTimeNanoseconds": 1790857026000000000,
        "host_name": "node7",
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
    }
    path = tmp_path / "1779464196.17-TP-3-DP-1-EP-3-DECODE.trace.json"
    for where in ("first", "middle", "last"):
        path.write_bytes(document(decode_events(2), facts=facts, where=where))
        info = read(path).info
        assert (info.rank, info.tp, info.dp, info.ep, info.pp, info.stage) == (3, 3, 1, 3, None, "decode")
        assert (info.base_ns, info.host_name, info.profile_id) == (1790857026000000000, "node7", "1779464196.17")
        assert info.devices == ({"id": 0, "name": "NVIDIA H200"},)
        assert info.window_duration_ns == 12345678
        assert info.engine == "sglang"
    other = tmp_path / "t.json"
    other.write_bytes(document(decode_events(2), facts=facts))
    assert (read(other).info.rank, read(other).info.tp) == (5, None)


def test_kinds(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    call = {"ph": "X", "cat": "cuda_runtime", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    launches = [call | {"name": "cudaLaunchKernel"} for _ in range(300)]
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 1}
    for events, kind in (
        ([*launches, call | {"name": "cudaStreamBeginCapture"}, kernel], "capture"),
        ([*launches, kernel], "gpu"),
        (launches, "no_kernels"),
        ([{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 1}], "cpu_only"),
    ):
        path.write_bytes(document(events))
        assert read(path).info.kind == kind


@given(
    st.lists(
        st.one_of(
            NUMBER.map(lambda n: format(n, "f") if isinstance(n, Decimal) else str(n)),
            st.decimals(0, 10**15, places=3).map(lambda n: format(n, "f")),
            st.sampled_from(['"12.5"', "null", "", "1e3", "1.5E-2", '"x"', "9223372036854775.807",
                             "9223372036854775.808", "-0.0015", "12345678901234567890.123", "0.1e5", "1.2345",
                             "-1.500"]),
        ),
        max_size=30,
    )
)  # fmt: skip
def test_nanoseconds_are_exact(texts: list[str]) -> None:
    def reference(text: str) -> int | None:
        found = oracle_trace.nanoseconds(text.strip('"') or None) if text != "null" else None
        return found if found is not None and -(2**63) <= found < 2**63 else None

    assert nanoseconds([t.encode() for t in texts]).to_pylist() == [reference(t) for t in texts]


@given(st.lists(st.one_of(st.integers(-(2**70), 2**70), st.none(), st.floats(), st.text(max_size=6))))
def test_integers_of_any_spelling(values: list[Any]) -> None:
    def reference(value: Any) -> int | None:
        if isinstance(value, float):
            value = int(value) if value.is_integer() else None
        if isinstance(value, str) and not value.isascii():
            value = None
        found = oracle_trace.integer(value)
        return found if found is not None and -(2**63) <= found < 2**63 else None

    assert integers(values).to_pylist() == [reference(v) for v in values]
    assert integers([None, *values, ""]).to_pylist() == [None, *map(reference, values), None]
