"""Chunks decoded with a record per category give what the record for all categories gives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.parsers.trace.columns import Columns
from profkit.parsers.trace.events import Event, decode_events
from profkit.parsers.trace.typed import ChunkDecoder
from profkit.tables import TRACE_TABLES

KNOWN = ["cpu_op", "cuda_runtime", "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset", "user_annotation",
         "gpu_user_annotation", "python_function", "Trace", "ac2g", "fwdbwd", "overhead"]  # fmt: skip
ID = st.integers(0, 2**40) | st.integers(0, 99).map(str) | st.none()
IDS = ("External id", "external id", "correlation", "stream", "device", "graph id", "graph node id", "Python id",
       "Python parent id", "In msg nelems", "Group size")  # fmt: skip
ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(IDS, ID),
    "dtype": st.text(max_size=4),
    "Process Group Name": st.text(max_size=4),
    "unknown": st.lists(st.text(max_size=3), max_size=2),
}  # fmt: skip
SEVERAL = {"Collective name": st.sampled_from(["allreduce", "broadcast"])}


def events(categories: Sequence[str], collectives: bool) -> st.SearchStrategy[list[dict[str, Any]]]:
    arguments = ARGUMENTS | (SEVERAL if collectives else {})
    one = st.fixed_dictionaries(
        {"ph": st.sampled_from(["X", "X", "X", "i"]), "cat": st.sampled_from(categories)},
        optional={
            "name": st.text(max_size=5),
            "pid": st.integers(0, 9) | st.just("[TP00] 7"),
            "tid": st.integers(-3, 9) | st.just("stream 7"),
            "ts": st.decimals(0, 10**12, places=3).map(float),
            "dur": st.integers(0, 999),
            "args": st.fixed_dictionaries({}, optional=arguments),
        },
    )
    return st.lists(one.flatmap(lambda e: st.permutations(list(e)).map(lambda keys: {k: e[k] for k in keys})))


def rows(found: list[Event]) -> dict[str, list[dict[str, Any]]]:
    columns = Columns(keep_frames=True)
    columns.add(found)
    return {name: columns.table(name).to_pylist() for name in TRACE_TABLES} | {"window": [{"": columns.window}]}


@given(st.lists(st.booleans().flatmap(lambda several: events(KNOWN, several)), min_size=1, max_size=3))
@settings(max_examples=100, deadline=None)
def test_the_tables_are_the_same(chunks: list[list[dict[str, Any]]]) -> None:
    decoder = ChunkDecoder()
    for chunk in chunks:
        text = json.dumps(chunk).encode()
        found, expected = decoder.decode(text), decode_events(text)
        assert [(e.ph, e.cat, e.pid) for e in found] == [(e.ph, e.cat, e.pid) for e in expected]
        assert rows(found) == rows(expected)


def test_a_file_of_another_kind_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = ChunkDecoder()
    tried: list[int] = []
    typed = ChunkDecoder._typed

    def counted(self: ChunkDecoder, text: bytes) -> list[Event] | None:
        tried.append(1)
        return typed(self, text)

    monkeypatch.setattr(ChunkDecoder, "_typed", counted)
    for _ in range(50):
        (event,) = decoder.decode(b'[{"ph": "X", "cat": "of another profiler", "name": "a"}]')
        assert event.name == "a"
    assert len(tried) < 5


def test_one_odd_chunk_does_not_end_it() -> None:
    decoder = ChunkDecoder()
    for text in (b'[{"ph": "M", "name": "process_name"}]', b'[{"ph": "X", "cat": "kernel"}]'):
        assert len(decoder.decode(text)) == 1
    assert type(decoder.decode(b'[{"ph": "X", "cat": "kernel"}]')[0]) is not Event


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        ChunkDecoder().decode(b'[{"ph": "X", "cat": "kernel", "pid": {}}]')
    with pytest.raises(msgspec.DecodeError):
        ChunkDecoder().decode(b'[{"ph": "X", "cat": "kernel"')
