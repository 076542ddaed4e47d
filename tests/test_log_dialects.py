"""Every dialect: values -> line -> values; examples of the rules; both readers agree on anything."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from profkit import tables
from profkit.parsers.log.engine import LogReader
from profkit.parsers.log.events import read_event
from profkit.parsers.log.lines import BlockReader
from profkit.parsers.log.prefix import PrefixReader
from profkit.parsers.log.rules import foreign_prefixes
from profkit.rules import load_rules
from tests.log_lines import Printed, batch_lines
from tests.paths import SAMPLES, SHARED, needs_shared

Tables = dict[str, list[dict[str, Any]]]


def by_blocks(data: bytes, sizes: Iterable[int] = ()) -> tuple[Tables, LogReader]:
    """Read as the program does: in blocks, with array operations where they apply."""
    reader = LogReader("f")
    found: dict[str, list[pa.RecordBatch]] = {}
    blocks = BlockReader(iter(_cut(data, sizes)))
    for block in blocks.blocks():
        _collect(found, reader.feed(block))
    _collect(found, reader.finish())
    return _rows(found), reader


def by_lines(data: bytes) -> tuple[Tables, LogReader]:
    """Read every line with the general reader."""
    reader = LogReader("f")
    lines = data.split(b"\n")
    for number, line in enumerate(lines if lines[-1] else lines[:-1], 1):
        reader.read_line(number, line)
    found: dict[str, list[pa.RecordBatch]] = {}
    _collect(found, reader.finish())
    return _rows(found), reader


def _cut(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    parts, start = [], 0
    for size in sizes:
        parts.append(data[start : start + size])
        start += size
    return [*parts, data[start:]]


def _collect(found: dict[str, list[pa.RecordBatch]], batches: dict[str, pa.RecordBatch]) -> None:
    for name, batch in batches.items():
        assert batch.schema == tables.LOG_TABLES[name]
        found.setdefault(name, []).append(batch)


def _rows(found: dict[str, list[pa.RecordBatch]]) -> Tables:
    return {name: [row for batch in batches for row in batch.to_pylist()] for name, batches in found.items()}


def assert_same(data: bytes, sizes: Iterable[int] = ()) -> None:
    """Both readers give the same rows and the same servers."""
    fast, fast_reader = by_blocks(data, sizes)
    general, general_reader = by_lines(data)
    assert fast == general
    assert fast_reader.servers == general_reader.servers
    assert fast_reader.problems() == general_reader.problems()


@given(batch_lines())
@settings(max_examples=150, deadline=None)
def test_round_trip(printed: Printed) -> None:
    found, _ = by_blocks(printed.line.encode() + b"\n")
    (row,) = found[printed.kind]
    assert row["flags"] == []
    assert dict(row["extra"]) == printed.values["extra"]
    for name, value in printed.values.items():
        if name != "extra":
            assert row[name] == value, (name, printed.line)
    unset = set(row) - set(printed.values) - {"file", "line", "timestamp", "server", "flags", "extra"}
    assert all(row[name] is None for name in unset), printed.line


@given(
    st.lists(batch_lines(), min_size=1, max_size=12),
    st.integers(0, 2**32),
    st.lists(st.integers(1, 400), max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_both_readers_agree_on_damaged_text(lines: list[Printed], seed: int, sizes: list[int]) -> None:
    dice = random.Random(seed)
    text = bytearray()
    for printed in lines:
        for _ in range(dice.randint(1, 4)):
            text += printed.line.encode() + dice.choice((b"\n", b"\n", b"\n", b"\r\n", b"", b"\r"))
        if dice.random() < 0.3:
            text += dice.choice(NOISE)
    for _ in range(dice.randint(0, 4)):
        at = dice.randrange(len(text) + 1)
        text[at : at + dice.randint(0, 3)] = dice.choice((b"", b"\n", b", ", b"9", b".", b"\x00", b"]", b"\xff", b" "))
    assert_same(bytes(text), sizes)


NOISE = (
    b'[2026-01-02 03:04:05] INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK\n',
    b"[2026-01-02 03:04:05] server_args=ServerArgs(model_path='m', tp_size=8)\n",
    b"[2026-01-02 03:04:05] The server is fired up and ready to roll!\n",
    b"Traceback (most recent call last):\n  File x\nValueError: no\n",
    b"[2026-01-02 03:04:05 TP0] Scheduler hit an exception: Traceback (most recent call last):\n  a\nKeyError: 'b'\n",
    b"Capturing batches: 2%|##| 1/58 [01:54<1:00]\r",
)


@given(st.binary(max_size=2000))
@settings(max_examples=100, deadline=None)
def test_any_bytes_give_no_row_and_no_error(data: bytes) -> None:
    found, _ = by_blocks(data, (700,))
    assert "decode" not in found
    assert_same(data)


@needs_shared
@pytest.mark.parametrize(
    "path", sorted((SHARED / "logs").glob("*/*.log")) + sorted((SHARED / "sglang-cpu").glob("*/server.log")), ids=str
)
def test_both_readers_agree_on_files(path: Path) -> None:
    data = path.read_bytes()
    assert_same(data)
    assert_same(data, (len(data) // 3, len(data) // 5))


@pytest.mark.parametrize("rule", load_rules("dialects")["foreign_prefix"], ids=lambda rule: rule["name"])
def test_foreign_prefix_examples(rule: dict[str, Any]) -> None:
    for example in rule["examples"]:
        prefix = PrefixReader().read(example.encode())
        assert prefix is not None, example
        assert example[prefix.length :].startswith(("Decode", "Watchdog")), example
        assert prefix.time is not None


def test_prefix_rules_compile_once() -> None:
    assert len({rule.name for rule in foreign_prefixes()}) == len(load_rules("dialects")["foreign_prefix"])


@pytest.mark.parametrize("rule", load_rules("dialects_events")["event"], ids=lambda rule: rule["kind"])
def test_event_examples(rule: dict[str, Any]) -> None:
    assert rule["examples"]
    for example in rule["examples"]:
        event = read_event(example)
        assert event is not None, example
        assert event.kind == rule["kind"], example


DECODE_START = "Decode batch, #running-req: 45, #token: 4"
SPEED = "gen throughput (token/s): 863.65"
DAMAGED = (
    (f"Decode batch, #running-req: 45, #token: 44672, token usaccept rate: 0.32, {SPEED}, #queue-req: 0", "middle"),
    (f"{DECODE_START}, {SPEED}, #queue-req", "no value"),
    (f"{DECODE_START}, gen throughput (token/s): 863.", "throughput"),
    (f"{DECODE_START}, {SPEED}", "#queue-req"),
    ("Decode batch, spec tokens: 12, accept len: 2.00, accept rate: 0.33,", "#running-req"),
    (f"Decode batch, #running-req: x, {SPEED}, #queue-req: 0", "#running-req"),
    (f"Decode batch, #running-req: 1, #running-req: 2, {SPEED}, #queue-req: 0", "twice"),
    (f"{DECODE_START}, gen throughput (token/s): -5.00, #queue-req: 0", "throughput (token/s) is below zero"),
    (f"{DECODE_START}, accept len: -1.50, {SPEED}, #queue-req: 0", "accept len is below zero"),
    (f"Decode batch, #running-req: -1, {SPEED}, #queue-req: 0", "#running-req is below zero"),
    ("Prefill batch, #new-seq: 1, #new-token: -896, #cached-token: 0, #queue-req: 0", "#new-token is below zero"),
    ("Decode batch", "cut"),
    ("Prefill batch, #new-seq: 1, #new-token: 896, #cached-tounning-req: 46, #queue-req: 82", "middle"),
    ("Prefill batch, #new-seq: 1, #new-token: 896, #queue-req: 82, input th", "no value"),
)


@pytest.mark.parametrize(("line", "reason"), DAMAGED)
def test_damaged_lines_keep_no_value(line: str, reason: str) -> None:
    found, reader = by_blocks(f"[2026-01-02 03:04:05 TP0] {line}\n".encode())
    ((row,),) = found.values()
    assert row["flags"] == ["damaged"]
    assert reason in dict(row["extra"])["damage"]
    kept = {k for k, v in row.items() if v is not None} - {
        "file",
        "line",
        "time",
        "timestamp",
        "server",
        "tp",
        "flags",
        "extra",
    }
    assert not kept
    assert reader.problems()[0].count == 1


def test_a_negative_throughput_is_counted_and_enters_no_average() -> None:
    speeds = ("100.00", "-300.00", "100.00", "-7.00", "-0.00")
    lines = [
        f"[2026-01-02 03:04:0{n}] Decode batch, #running-req: 1, #token: 4, token usage: 0.00, "
        f"gen throughput (token/s): {speed}, #queue-req: 0\n"
        for n, speed in enumerate(speeds)
    ]
    found, reader = by_blocks("".join(lines).encode())
    rows = [row for (_, row) in zip(lines, found["decode"], strict=True)]
    assert [row["gen_throughput_tok_s"] for row in rows] == [100.0, None, 100.0, None, 0.0]
    assert str(rows[4]["gen_throughput_tok_s"]) == "0.0"
    (problem,) = reader.problems()
    assert problem.count == 2
    assert problem.detail.endswith("not read: gen throughput (token/s) is below zero")


def test_wrong_bookkeeping_of_memory_takes_nothing_else_away() -> None:
    line = f"Decode batch, #running-req: 45, #token: -4, token usage: -0.01, {SPEED}, #queue-req: 0"
    found, reader = by_blocks(f"[2026-01-02 03:04:05] {line}\n".encode())
    (row,) = found["decode"]
    assert (row["token"], row["token_usage"], row["gen_throughput_tok_s"]) == (None, None, 863.65)
    assert dict(row["extra"]) == {"#token": "-4", "token usage": "-0.01"}
    assert (row["flags"], reader.problems()) == ([], [])


def test_two_lines_written_into_one_are_two_rows() -> None:
    line = b"[2026-01-02 03:04:05 TP0] Decode batch, #running-req: 1, gen throughput (token/s): 1.00, #queue-req: 0"
    found, _ = by_blocks(line + line.replace(b"TP0", b"TP1") + b"\n")
    assert [(row["tp"], row["line"]) for row in found["decode"]] == [(0, 1), (1, 1)]


def test_progress_bars_and_colours_hide_no_line() -> None:
    line = b"[2026-01-02 03:04:05] Decode batch, #running-req: 1, gen throughput (token/s): 1.00, #queue-req: 0"
    text = b"Capturing: 2%|\xe2\x96\x8f| 1/58 [01:54<1:00]\r" + line + b"\n\x1b[1;33m" + line + b"\x1b[0m\n"
    text += b"Loading: 100% Completed | 1/1 [00:00<00:00, 20.3it/s]" + line + b"\n"
    found, _ = by_blocks(text)
    assert [row["line"] for row in found["decode"]] == [1, 2, 3]


def test_time_only_logs_roll_over_at_midnight() -> None:
    body = " TP0] Decode batch. #running-req: 1, gen throughput (token/s): 1.00, #queue-req: 0\n"
    clocks = ("23:59:59", "00:00:01", "23:59:58", "00:00:02", "12:00:00", "23:00:00", "01:00:00")
    text = "".join(f"[{clock}{body}" for clock in clocks)
    found, _ = by_blocks(text.encode())
    assert [row["time"] for row in found["decode"]] == [86399, 86401, 86398, 86402, 129600, 169200, 176400]
    assert all(row["timestamp"] is None for row in found["decode"])


def test_lost_first_characters_and_impossible_dates() -> None:
    body = "Decode batch. #running-req: 1, gen throughput (token/s): 1.00, #queue-req: 0\n"
    heads = (
        "2026-05-24 03:51:44 TP0] ",
        "026-05-24 03:51:44 TP0] ",
        "26-05-24 03:51:44 TP0] ",
        "6-05-24 03:51:44 TP0] ",
        "TP0] ",
    )
    found, _ = by_blocks("".join(head + body for head in heads).encode())
    assert [row["time"] for row in found["decode"]] == [1779594704.0] * 3 + [None] * 2
    found, _ = by_blocks(("[2026-13-41 03:51:44 TP0] " + body + "[2026-01-02 25:00:00 TP0] " + body).encode())
    assert "decode" not in found


def test_a_prompt_that_quotes_a_whole_line_gives_no_row() -> None:
    quoted = "[2026-01-02 03:04:05 TP0] Decode batch, #running-req: 1, gen throughput (token/s): 1.00, #queue-req: 0"
    for before in (
        "[2026-01-02 03:04:05] Receive: obj=GenerateReqInput(text='",
        '{"text": "',
        "he said: ",
        "> ",
        "server.log:3:",
    ):
        found, _ = by_blocks((before + quoted + "\n").encode())
        assert "decode" not in found, before


def test_utf16_and_nul_and_long_lines() -> None:
    line = "[2026-01-02 03:04:05] Decode batch, #running-req: 1, gen throughput (token/s): 1.00, #queue-req: 0\n"
    found, _ = by_blocks((line * 2).encode("utf-16"), (5, 7))
    assert [row["line"] for row in found["decode"]] == [1, 2]
    found, _ = by_blocks(b"\0" * 100 + line.encode())
    assert len(found["decode"]) == 1
    blocks = BlockReader(iter([b"x" * (3 << 20), b"y" * (3 << 20), b"z\n" + line.encode()]))
    kept = list(blocks.blocks())
    assert sum(len(block.data) for block in kept) < 100_000
    assert blocks.problems()[0].kind == "long_line"
    assert kept[-1].data.endswith(line.encode())
    assert blocks.lines == 2


HOSTILE = (
    b"[2026-01-02 03:04:05 TP0] Decode batch, " + b"[" * 3_000_000,
    b"[2026-01-02 03:04:05 TP0] Decode batch, " + b"a: 1, " * 500_000,
    b"[2026-01-02 03:04:05 TP0] Decode batch, " + b"x" * 3_000_000 + b": 1",
    b"2026-01-02 03:04:05 " + b"-1:1" * 700_000,
    b"[2026-01-02 03:04:05 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    + b"Error" * 600_000
    + b" !",
    b"[2026-01-02 03:04:05] Finish: obj=GenerateReqInput(rid='r', out={'meta_info': " + b"{" * 2_000_000 + b"}" * 10,
    b"[2026-01-02 03:04:05] server_args=ServerArgs(a=" + b"(" * 500_000,
    b'{"log":"' + b"[" * 100_000,
    b"a" * 3_000_000 + b" |",
    b"1%" * 1_000_000 + b"[",
)


@pytest.mark.parametrize("line", HOSTILE, ids=lambda line: repr(line[-12:]))
def test_hostile_lines_take_no_quadratic_time(line: bytes) -> None:
    found, _ = by_blocks(line + b"\n")
    assert all("damaged" in row["flags"] for row in found.get("decode", []))


def test_container_json_lines_are_unpacked() -> None:
    line = "[2026-01-02 03:04:05 TP0] Decode batch, #running-req: 1, gen throughput (token/s): 1.00, #queue-req: 0"
    found, _ = by_blocks((json.dumps({"log": line + "\n", "stream": "stderr"}, separators=(",", ":")) + "\n").encode())
    assert [row["tp"] for row in found["decode"]] == [0]


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_a_damaged_real_log_gives_no_wrong_row(seed: int) -> None:
    whole = (SAMPLES / "sglang-cpu-eagle-tp2" / "server.log").read_bytes()
    data = bytearray(b"\n".join(whole.split(b"\n")[100:260]))
    true = {row["line"]: row for row in by_blocks(bytes(data))[0]["decode"]}
    dice = random.Random(seed)
    for _ in range(dice.randint(1, 60)):
        at = dice.randrange(len(data))
        if data[at] != 10:
            data[at] = dice.choice(b"x[]#:,\x00\xff\x1b ")  # no digit: a changed digit cannot be noticed
    found, _ = by_blocks(bytes(data))
    assert_same(bytes(data))
    free = {"time", "timestamp", "tp", "extra", "file", "server", "graph_kind"}
    for row in found.get("decode", []):
        for name in set(row) - free if row["flags"] == [] else ():
            assert row[name] is None or row[name] == true[row["line"]][name], name
