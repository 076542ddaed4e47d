"""vLLM's metric lines."""

from __future__ import annotations

import pyarrow as pa
import pytest

from profkit import tables
from profkit.parsers.vllm_log import VllmReader

STATS = (
    "(APIServer pid=7) INFO 11-20 12:00:10 [loggers.py:248] Engine 001: Avg prompt throughput: 0.0 tokens/s, "
    "Avg generation throughput: 82.1 tokens/s, Running: 1 reqs, Waiting: 2 reqs, Preemptions: 3, "
    "GPU KV cache usage: 2.5%, Prefix cache hit rate: 12.0%"
)
SPEC = (
    "INFO 11-20 12:00:10 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.92, "
    "Accepted throughput: 16.70 tokens/s, Drafted throughput: 25.90 tokens/s, Accepted: 167 tokens, "
    "Drafted: 259 tokens, "
    "Per-position acceptance rate: 0.805, 0.632, 0.483, Avg Draft acceptance rate: 64.5%"
)


def test_a_pair_of_lines_is_one_row() -> None:
    reader = VllmReader("v.log")
    assert reader.feed(5, STATS)
    assert reader.feed(6, SPEC)
    (row,) = reader.rows
    assert (row["line"], row["dp"], row["running_req"], row["queue_req"]) == (5, 1, 1, 2)
    assert (row["gen_throughput_tok_s"], row["token_usage"], row["accept_len"]) == (82.1, 0.025, 2.92)
    assert row["accepted_per_draft_token"] == pytest.approx(0.645)
    extra = dict(row["extra"])
    assert extra["acceptance_per_position"] == "0.805,0.632,0.483"
    assert extra["Preemptions"] == "3"
    assert row["flags"] == ["interval_average"]
    # 1 + sum of the unconditional rates is the mean acceptance length.
    assert 1 + sum(map(float, extra["acceptance_per_position"].split(","))) == pytest.approx(
        row["accept_len"], abs=0.005
    )
    assert pa.Table.from_pylist(reader.rows, schema=tables.DECODE).num_rows == 1


def test_a_lone_spec_line_is_a_row_of_its_own() -> None:
    reader = VllmReader("v.log")
    reader.feed(1, SPEC)
    reader.feed(2, SPEC.replace("2.92", "nan").replace("64.5", "nan"))
    assert [row.get("accept_len") for row in reader.rows] == [2.92, None]


def test_time_counts_from_the_start_of_the_year() -> None:
    reader = VllmReader("v.log")
    reader.feed(1, STATS.replace("11-20", "01-02"))
    assert reader.rows[0]["time"] == 86400 + 12 * 3600 + 10


@pytest.mark.parametrize(
    "text", ["", "tokens/s", "INFO 13-40 99:00:00 [a] Avg prompt throughput: tokens/s", STATS[60:]]
)
def test_foreign_lines_are_refused(text: str) -> None:
    reader = VllmReader("v.log")
    assert reader.feed(1, text) is False
    assert reader.rows == []
