"""Benchmark results: printed tables and JSON lines of every tool and release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from profkit import tables
from profkit.parsers.bench import BenchReader
from profkit.rules import load_rules
from tests.paths import SHARED, needs_shared


def read(text: str) -> BenchReader:
    reader = BenchReader("f")
    for number, line in enumerate(text.splitlines(), 1):
        reader.feed(number, line)
    reader.close()
    return reader


def figures(text: str, row: int = 0) -> dict[str, float | None]:
    return {r["name"]: r["value"] for r in read(text).rows if r["row"] == row}


SERVING = """
noise before
============ Serving Benchmark Result ============
Backend:                                 sglang    
Traffic request rate:                    inf       
Max reqeuest concurrency:                16        
Successful requests:                     64        
Benchmark duration (s):                  42.50     
Output token throughput (tok/s):         901.12    
Accept length:                           2.75      
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          289.12    
==================================================
noise after: 3
"""  # noqa: W291 - the client pads its values


def test_serving_table_with_the_old_misspelling() -> None:
    reader = read(SERVING)
    found = {r["name"]: (r["value"], r["unit"], r["text"]) for r in reader.rows}
    assert found == {
        "Backend": (None, None, "sglang"),
        "request_rate": (None, "req/s", "inf"),
        "max_concurrency": (16, None, None),
        "completed": (64, None, None),
        "duration": (42.5, "s", None),
        "output_throughput": (901.12, "tok/s", None),
        "accept_len": (2.75, "tokens", None),
        "mean_tpot": (289.12, "ms", None),
    }
    assert {r["row"] for r in reader.rows} == {0}


def test_rows_fit_the_table() -> None:
    table = pa.Table.from_pylist(read(SERVING).rows, schema=tables.BENCH)
    assert table.num_rows == 8


def test_a_cut_table_keeps_its_figures_and_is_reported() -> None:
    reader = BenchReader("f")
    for number, line in enumerate(SERVING.splitlines()[2:6], 1):
        reader.feed(number, line)
    assert reader.close() is True
    assert [r["name"] for r in reader.rows] == ["Backend", "request_rate", "max_concurrency"]
    assert reader.close() is False


def test_foreign_lines_are_refused() -> None:
    reader = BenchReader("f")
    for line in ("", "hello: 3", '{"a": 1}', "{broken", "[1]", "| a | b |", "2026 Decode batch", "{" * 5000):
        assert reader.feed(1, line) is False
    assert reader.rows == []


def test_one_batch() -> None:
    text = """Prefill. latency: 0.12345 s, throughput:   1234.56 token/s
Decode 3. Batch size: 8, latency: 0.01 s, throughput: 800.00 token/s
Decode.  median latency: 0.02000 s, median throughput:     50.00 token/s
Total. latency:  1.000 s, throughput:   2000.00 token/s
acc_length: 2.75 """
    assert figures(text) == {
        "prefill_latency": 0.12345,
        "prefill_throughput": 1234.56,
        "median_decode_latency": 0.02,
        "median_decode_throughput": 50,
        "total_latency": 1,
        "overall_throughput": 2000,
    }
    assert figures(text, 1) == {"accept_len": 2.75}


def test_speculative_line_and_json_agree_in_units() -> None:
    line = "Finish i=0: batch_size=1, steps=3, topk=1, num_draft_tokens=4, speed=123.45 token/s, step_time=12.34 ms"
    document = {"batch_size": 1, "steps": 3, "topk": 1, "num_draft_tokens": 4, "step_time": 0.01234, "speed": 123.45}
    assert figures(line) == pytest.approx(figures(json.dumps(document)))


def test_send_one() -> None:
    text = """+-------------+--------+------------+-----------------+
| Latency (s) | Tokens | Acc Length | Speed (token/s) |
+-------------+--------+------------+-----------------+
|    2.500    |  512   |   2.840    |     204.80      |
+-------------+--------+------------+-----------------+"""
    assert figures(text) == {"latency": 2.5, "output_tokens": 512, "accept_len": 2.84, "speed": 204.8}


def test_json_infinity_null_and_no_speculation() -> None:
    serving = (
        '{"backend": "sglang", "request_rate": Infinity, "request_throughput": 2.5, "duration": NaN, '
        '"accept_length": null}'
    )
    rows = {r["name"]: (r["value"], r["text"]) for r in read(serving).rows}
    assert rows == {
        "backend": (None, "sglang"),
        "request_rate": (None, "inf"),
        "request_throughput": (2.5, None),
        "duration": (None, "nan"),
    }
    assert "accept_len" not in figures('{"run_name": "a", "batch_size": 1, "acc_length": -1.0}')


def test_names_are_unique_in_the_rules() -> None:
    for entries in load_rules("bench").values():
        names = [entry["name"] for entry in entries]
        assert len(names) == len(set(names))


@needs_shared
@pytest.mark.parametrize("path", sorted((SHARED / "logs/generated/bench").glob("*.txt")), ids=lambda p: p.stem)
def test_tables_of_every_release_have_no_unknown_label(path: Path) -> None:
    rows = read(path.read_text(encoding="utf-8")).rows
    known = {entry["name"] for entry in load_rules("bench")["serving"]} | {"Backend"}
    assert {r["name"] for r in rows} <= known
    assert len(rows) >= 15


@needs_shared
@pytest.mark.parametrize("path", sorted((SHARED / "sglang-cpu").glob("*/bench.jsonl")), ids=lambda p: p.parent.name)
def test_real_json_lines_agree_with_the_printed_tables(path: Path) -> None:
    by_json = read(path.read_text(encoding="utf-8")).rows
    by_table = read((path.parent / "bench_stdout.txt").read_text(encoding="utf-8")).rows
    assert by_json
    last: dict[str, Any] = {r["name"]: r["value"] for r in by_json if r["row"] == by_json[-1]["row"]}
    documents = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert last["output_throughput"] == documents[-1]["output_throughput"]
    printed = [
        {r["name"]: r["value"] for r in by_table if r["row"] == row} for row in sorted({r["row"] for r in by_table})
    ]
    # Each printed table is one of the JSON results, rounded to two decimals.
    for table in printed:
        matches = [
            d
            for d in documents
            if abs(d["output_throughput"] - table["output_throughput"]) < 0.006 and d["completed"] == table["completed"]
        ]
        assert len(matches) == 1
