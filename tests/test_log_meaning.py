"""What decode lines mean in their place: step time, flags, eras, sums over ranks, findings, the stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.jsonio import dumps
from profkit.parsers.log import LogStream, find_logs, in_rotation_order, read_log
from profkit.parsers.log.files import rotated_base, rotation_sorted
from profkit.serving import interpret, steady_decode, summarise
from profkit.serving.eras import decide_era
from profkit.serving.stream import interpreted, summarise_stream

PLAIN = "[2026-01-02 03:00:00] server_args=ServerArgs(model_path='m', tp_size=8, speculative_algorithm=None)\n"
EAGLE = (
    "[2026-01-02 03:00:00] server_args=ServerArgs(model_path='m', tp_size=8, speculative_algorithm='EAGLE3', "
    "speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4)\n"
)


def stamp(second: int) -> str:
    return f"2026-01-02 {3 + second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def decode(
    second: int, *, running: int = 1, accept: float | None = 2.0, speed: float = 60.0, ranks: str = " TP0",
    graph: bool = True, queue: int = 0, usage: float = 0.1, token: int = 900, rate: float | None = None,
) -> str:  # fmt: skip
    spec = "" if accept is None else f"accept len: {accept:.2f}, "
    spec += "" if rate is None else f"accept rate: {rate:.2f}, "
    return (
        f"[{stamp(second)}{ranks}] Decode batch, #running-req: {running}, #token: {token}, token usage: {usage:.2f}, "
        f"{spec}cuda graph: {graph}, gen throughput (token/s): {speed:.2f}, #queue-req: {queue}\n"
    )


def prefill(second: int, *, running: int = 0, ranks: str = " TP0") -> str:
    return (
        f"[{stamp(second)}{ranks}] Prefill batch, #new-seq: 1, #new-token: 10, #cached-token: 0, token usage: 0.00, "
        f"#running-req: {running}, #queue-req: 0\n"
    )


def said(text: str, tmp_path: Path) -> list[dict[str, Any]]:
    path = tmp_path / "server.log"
    path.write_text(text)
    return interpret(read_log([path])).decode.to_pylist()


def findings(text: str, tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "server.log"
    path.write_text(text)
    return {f.kind: f for server in summarise(read_log([path])).servers for f in server.findings}


def test_step_time_of_the_reference_story(tmp_path: Path) -> None:
    first, second = said(EAGLE + decode(1) + decode(2), tmp_path)
    assert second["step_ms"] == pytest.approx(33.3333, abs=1e-3)
    assert first["flags"] == ["after_idle"]
    assert second["flags"] == []
    plain = said(PLAIN + decode(1, accept=None, speed=82) + decode(2, accept=None, speed=82), tmp_path)
    assert plain[1]["step_ms"] == pytest.approx(12.195, abs=1e-3)


def test_without_arguments_a_missing_accept_length_is_not_one(tmp_path: Path) -> None:
    (row,) = said(decode(1, accept=None), tmp_path)
    assert row["step_ms"] is None
    (row,) = said(decode(1, running=0), tmp_path)
    assert row["step_ms"] is None
    assert row["flags"] == ["empty_batch"]


def test_lines_after_prefill_idle_and_in_profiles_are_flagged(tmp_path: Path) -> None:
    text = (
        EAGLE
        + decode(1)
        + decode(2)
        + prefill(3, running=2)
        + decode(4)
        + decode(5)
        + prefill(6)
        + decode(7)
        + decode(8)
    )
    text += "[2026-01-02 03:00:09] Profiling starts. Traces will be saved to: /tmp/p\n" + decode(10)
    text += "[2026-01-02 03:00:11] Profiling done. Traces are saved to: /tmp/p\n" + decode(12) + decode(13)
    flags = [row["flags"] for row in said(text, tmp_path)]
    assert flags == [
        ["after_idle"], [], ["after_prefill"], [], ["after_idle", "after_prefill"], [], ["profiling"], ["profiling"], []
    ]  # fmt: skip
    assert steady_decode(read_log([tmp_path / "server.log"])).num_rows == 4


def test_ranks_have_their_own_context(tmp_path: Path) -> None:
    zero, one = " DP0 TP0", " DP1 TP4"
    text = decode(1, ranks=zero) + decode(1, ranks=one) + prefill(2, ranks=zero, running=1)
    text += decode(3, ranks=one) + decode(3, ranks=zero)
    assert [(r["dp"], r["flags"]) for r in said(text, tmp_path)] == [
        (0, []), (1, []), (1, []), (0, ["after_prefill"])
    ]  # fmt: skip


def test_pauses_without_prefill_lines_show_in_the_step_time(tmp_path: Path) -> None:
    text = "".join(decode(s) for s in range(5)) + decode(60, speed=1.5) + "".join(decode(s) for s in range(61, 64))
    assert [bool(r["flags"]) for r in said(text, tmp_path)] == [False] * 5 + [True] + [False] * 3
    slower = "".join(decode(s) for s in range(5)) + "".join(decode(s, speed=10) for s in range(60, 64))
    assert [r["flags"] for r in said(slower, tmp_path)][5:] == [["after_idle"], [], [], []]


@given(
    st.sampled_from("ABC"), st.integers(1, 15), st.integers(0, 60), st.booleans(),
    st.lists(st.integers(0, 200), min_size=25, max_size=60), st.integers(1, 40),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_the_era_is_never_wrong(era: str, steps: int, extra: int, told: bool, drafts: list[int], factor: int) -> None:
    """Rates printed by one definition are given that definition or none; with distinct ones and arguments, that one."""
    draft = steps + 1 + extra
    lengths = np.array([1 + min(n, 100 * steps) / 100 * min(1.0, factor / 40) for n in drafts])
    rates = {"A": lengths / (steps + 1), "B": lengths / draft, "C": (lengths - 1) / (draft - 1)}[era]
    server = {"num_steps": steps, "num_draft_tokens": draft} if told else {}
    decision = decide_era(np.round(lengths, 2), np.round(rates, 2), server)
    others = {"A": lengths / (steps + 1), "B": lengths / draft, "C": (lengths - 1) / (draft - 1)}
    distinct = all(name == era or np.max(np.abs(others[name] - rates)) > 0.03 for name in others)
    if told:
        assert decision.num_draft_tokens == draft
        if distinct and decision.era is not None:
            assert decision.era == era
    if told and all(n == era or np.mean(np.abs(others[n] - rates) > 0.03) > 0.2 for n in others):
        assert decision.era == era


def test_releases_decide_where_numbers_cannot() -> None:
    lengths = np.array([2.0, 2.4, 2.8, 3.0] * 8)
    linear = {"num_steps": 3, "num_draft_tokens": 4}
    rates = np.round(lengths / 4, 2)
    assert decide_era(lengths, rates, linear).era is None  # steps + 1 = draft tokens: both definitions
    assert decide_era(lengths, rates, {**linear, "version_low": "0.5.4", "version_high": "0.5.5"}).era == "A"
    assert decide_era(lengths, rates, {**linear, "version_low": "0.5.9", "version_high": "0.5.9"}).era == "B"
    constant = np.full(20, 2.0)
    assert decide_era(constant, np.full(20, 0.5), {}).era is None  # 4 drafts by B, or 3 by C
    mixed = np.array([2.6, 3.25, 1.0, 2.5] * 5), np.array([0.53, 0.04, 0.0, 0.5] * 5)
    assert decide_era(*mixed, {}).era is None
    assert decide_era(*mixed, {"version_low": "0.5.11", "version_high": "0.5.23"}).era == "C"
    assert decide_era(*mixed, {"version_low": "0.5.9", "version_high": "0.5.23"}).era is None
    assert decide_era(*mixed, {**linear, "version_low": "0.5.11", "version_high": "0.5.23"}).era is None
    assert decide_era(np.empty(0), np.empty(0), linear).num_draft_tokens == 4


def test_undecided_era_still_normalises_by_the_arguments(tmp_path: Path) -> None:
    rows = said(EAGLE + "".join(decode(s, accept=2.5, rate=0.62).replace("\n", ", \n") for s in range(20)), tmp_path)
    assert {row["accept_rate_era"] for row in rows} == {None}
    assert {row["accepted_per_draft_token"] for row in rows} == {0.5}


def test_sums_over_sums_not_means_of_means(tmp_path: Path) -> None:
    text = EAGLE + decode(0) + decode(1, running=1, accept=1.0, speed=10) + decode(2, running=3, accept=3.0, speed=300)
    path = tmp_path / "server.log"
    path.write_text(text)
    (server,) = summarise(read_log([path])).servers
    assert server.decode.accept_len.mean == pytest.approx((1 * 1 + 3 * 3) / 4)
    # Tokens 1 and 9 per step, times 0.1 and 0.03 s per step.
    assert server.decode.gen_throughput_tok_s.mean == pytest.approx(10 / 0.13)
    assert server.decode.step_ms.mean == pytest.approx((100 + 30) / 2)
    assert (server.decode.lines, server.decode.flagged) == (3, 1)


def test_cluster_throughput_adds_fresh_ranks(tmp_path: Path) -> None:
    text = "".join(
        decode(s, speed=50 + rank, ranks=f" DP{rank} TP{rank}") for s in range(0, 60, 4) for rank in range(4)
    )
    path = tmp_path / "server.log"
    path.write_text(text)
    (server,) = summarise(read_log([path])).servers
    assert server.decode.cluster_throughput_tok_s.p50 == 206.0
    assert server.decode.gen_throughput_tok_s.p50 == 51.5


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (EAGLE + "".join(decode(s, accept=1.0, speed=30) for s in range(14)), "accept_len_pinned_at_one"),
        ("".join(decode(s, graph=s % 2 == 0) for s in range(14)), "decode_without_graph"),
        ("".join(decode(s, usage=0.99) for s in range(14)), "kv_cache_full"),
        ("".join(decode(s, queue=7, running=32) for s in range(14)), "queueing"),
        (
            "".join(decode(s, accept=3 - s / 40, token=1000 * (1 + s)) for s in range(60)),
            "accept_len_falls_with_context",
        ),
        ("".join(decode(s, speed=60 if s < 30 else 20) for s in range(45)), "throughput_collapse"),
        ("".join(decode(s, running=9 - 8 * (s % 2), ranks=f" DP{s % 2} TP0") for s in range(40)), "dp_imbalance"),
        (EAGLE + "".join(prefill(s) + decode(s) for s in range(10)), "no_steady_line"),
        (EAGLE + "[2026-01-02 03:00:01] Load weight begin. avail mem=79.10 GB\n", "never_ready"),
    ],
)
def test_findings_point_to_lines(text: str, kind: str, tmp_path: Path) -> None:
    found = findings(text, tmp_path)
    assert kind in found
    path, _, line = found[kind].evidence[0].rpartition(":")
    assert path.endswith("server.log")
    assert 1 <= int(line) <= text.count("\n")


def test_a_good_log_has_no_finding(tmp_path: Path) -> None:
    lines = [decode(s, accept=2 + s % 5 / 10, speed=60 + 3 * (s % 5)) for s in range(60)]
    assert findings(EAGLE + "".join(lines), tmp_path) == {}


def _mixed(tmp_path: Path) -> Path:
    text = EAGLE + "".join(decode(s, rate=0.33) + (prefill(s, running=1) if s % 7 == 0 else "") for s in range(3000))
    text += PLAIN + "".join(decode(s, accept=None, speed=82) for s in range(3000))
    path = tmp_path / "server.log"
    path.write_text(text)
    return path


def test_stream_and_memory_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _mixed(tmp_path)
    whole = interpret(read_log([path])).decode.to_pylist()
    summary = dumps(summarise(read_log([path])))
    from profkit.parsers import opening

    source = opening.ByteSource.chunks
    monkeypatch.setattr("profkit.parsers.log.reading.ByteSource.chunks", lambda self: source(self, 1000))
    monkeypatch.setattr(opening, "_HEAD", 0)
    streamed = [row for name, batch in interpreted(LogStream([path])) if name == "decode" for row in batch.to_pylist()]
    assert streamed == whole
    assert dumps(summarise_stream(LogStream([path]))) == summary


def test_two_servers_of_one_file_are_told_apart(tmp_path: Path) -> None:
    first, second = summarise(read_log([_mixed(tmp_path)])).servers
    assert (first.algorithm, first.speculative, second.algorithm, second.speculative) == ("EAGLE3", True, None, False)
    assert first.decode.step_ms.p50 == pytest.approx(33.333, abs=1e-3)
    assert second.decode.step_ms.p50 == pytest.approx(12.195, abs=1e-3)
    assert first.accept_rate_era is None or first.accept_rate_era == "C"


def test_rotated_logs_go_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "server.log.2").write_text(EAGLE + "".join(decode(s) for s in range(10)))
    (run / "server.log.1").write_text("".join(decode(s) for s in range(10, 20)))
    (run / "server.log").write_text("".join(decode(s) for s in range(20, 30)))
    files = find_logs(run)
    assert [file.name for file in files] == ["server.log.2", "server.log.1", "server.log"]
    tables = read_log(files)
    rows = interpret(tables).decode.to_pylist()
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    assert [bool(row["flags"]) for row in rows] == [True] + [False] * 29
    (server,) = summarise(tables).servers
    assert (server.decode.lines, server.algorithm) == (30, "EAGLE3")


def test_dated_and_numbered_parts_come_oldest_first(tmp_path: Path) -> None:
    endings = ("-20251231.gz", "-20260101", ".10.gz", ".2", ".1", "")
    names = [f"server.log{ending}" for ending in endings]
    assert [path.name for path in in_rotation_order(tmp_path / name for name in sorted(names))] == names
    assert {rotated_base(name) for name in names} == {"server.log"}
    assert rotation_sorted(["b.log", "a.log.1", "a.log.2"]) == ["b.log", "a.log.2", "a.log.1"]


def test_names_of_logs_in_a_run_folder(tmp_path: Path) -> None:
    yes = [
        "server.log",
        "server-a.log.gz",
        "deep/server.log",
        "bench_x.jsonl",
        "nccl.log.zst",
        "server.log.1.gz",
        "server.log-20260102",
    ]
    no = ["notes.txt", "observer.log", "server.log.tmp", "bench.json"]
    for name in yes + no:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    assert {str(p.relative_to(tmp_path)) for p in find_logs(tmp_path)} == set(yes)
