"""Choosing the traces that belong together."""

from __future__ import annotations

from typing import Any

from profkit import tables
from profkit.attribution.selection import select_traces
from profkit.trace import Trace, TraceInfo


def trace(path: str, **facts: Any) -> Trace:
    info = TraceInfo(path=path, **({"kind": "gpu"} | facts))
    empty: dict[str, Any] = {
        name: tables.empty(schema) for name, schema in tables.TRACE_TABLES.items() if name != "frames"
    }
    return Trace(info=info, **empty)


def paths(*traces: Trace) -> list[str]:
    return [t.info.path for t in select_traces(traces)[0]]


def test_prefill_files_leave_only_when_decode_files_are_there() -> None:
    decode, prefill = trace("d", rank=0, stage="decode"), trace("p", rank=0, stage="prefill")
    assert paths(prefill, decode) == ["d"]
    assert paths(prefill) == ["p"]


def test_the_profile_with_most_ranks_wins_then_the_latest() -> None:
    old = [trace(f"old{r}", rank=r, profile_id="100.1") for r in range(2)]
    new = [trace(f"new{r}", rank=r, profile_id="200.1") for r in range(2)]
    assert paths(*old, *new) == ["new0", "new1"]
    assert paths(*old, new[0]) == ["old0", "old1"]
    assert "100.1 is used, the one with the most ranks, not 200.1" in select_traces([*old, new[0]])[1][0]
    assert "200.1 is used, the latest of those with the most ranks" in select_traces([*old, *new])[1][0]


def test_profiles_go_by_their_folders_where_each_has_one() -> None:
    one = [trace(f"runs/eagle3/t{r}", rank=r, profile_id="100.1") for r in range(2)]
    other = [trace(f"runs/ngram/t{r}", rank=r, profile_id="200.1") for r in range(2)]
    said = select_traces([*one, *other])[1][0]
    assert "200.1 in runs/ngram is used" in said
    assert "not 100.1 in runs/eagle3: give" in said
    third = trace("runs/ngram/later", rank=0, profile_id="300.1")
    assert " in runs" not in select_traces([*one, *other, third])[1][0]
    unnamed = [trace(f"old/t{r}", rank=r) for r in range(3)]
    assert "the unnamed one in old is used" in select_traces([*one, *unnamed])[1][0]


def test_captures_and_repeated_ranks_are_named() -> None:
    chosen, said = select_traces([trace("a", rank=0), trace("b", rank=0), trace("c", kind="capture")])
    assert [t.info.path for t in chosen] == ["a"]
    assert len(said) == 2


def test_ranks_that_nobody_knows_are_all_kept() -> None:
    assert paths(trace("a"), trace("b")) == ["a", "b"]
    assert select_traces([]) == ((), ())
