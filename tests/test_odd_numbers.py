"""Numbers that no type can hold, text in their place, and nesting without end, in all files but traces."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profkit.cli.app import run
from profkit.parsers.bench import BenchReader
from profkit.parsers.log.engine import LogReader
from profkit.parsers.log.lines import BlockReader
from profkit.parsers.nccl import NcclReader
from profkit.parsers.vllm_log import VllmReader
from profkit.preflight.versions import version_key
from profkit.run import Fact, Facts
from profkit.serving.columns import floats
from tests.paths import SAMPLES

SAMPLE = SAMPLES / "kimi-k2.5-tp8" / "eagle3"
LONG = "9" * 400
ODD = ("1.2.3", ".", LONG, "9" * 5000, "1e400", "NaN", "-Infinity", "-1", "0", "null", "true", "[1]", '"x"', "٣", "²")
NCCL_TESTS = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        8192          2048     float     sum      -1    45.31    0.18    0.32      0    44.90    0.18    0.32      0
       57344         14336     float     sum      -1    60.31    0.95    1.66      0    59.90    0.96    1.68      0
host:1:1 [0] NCCL INFO AllReduce: 57344 Bytes -> Algo RING proto LL time 12.5
"""
PRINTED = """\
Prefill. latency: 0.12345 s, throughput:  1234.5 token/s
Decode.  Batch size: 1, median latency: 0.01234 s, median throughput:   81.0 token/s
Total. latency:  1.234 s, throughput:   200.0 token/s
acc_length: 2.13
Finish i=0: batch_size=1, steps=3, topk=1, num_draft_tokens=4, speed=60.20 token/s, step_time=33.30 ms
| Latency (s) | Tokens | Acc Length | Speed (token/s) |
| 1.234 | 100 | 2.1 | 81.0 |
"""
VLLM = (
    "INFO 11-20 12:00:00 [loggers.py:248] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
    "Avg generation throughput: 90.5 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.5%"
)
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@pytest.mark.parametrize("text", ["1.2.3", ".", LONG])
@pytest.mark.parametrize("line", PRINTED.splitlines())
def test_a_printed_figure_that_is_no_number_is_kept_as_text(line: str, text: str) -> None:
    places = [m for m in NUMBER.finditer(line) if "." in m.group() or m.group() == "100"]
    for place in places:
        reader = BenchReader("bench.log")
        for before in PRINTED.splitlines():
            if before == line:
                break
            reader.feed(1, before)
        sound = len(reader.rows)
        reader.feed(2, line[: place.start()] + text + line[place.end() :])
        reader.close()
        for row in reader.rows[sound:]:
            assert row["value"] is None or math.isfinite(row["value"])
            assert row["value"] is not None or row["text"] == text[:40]


def test_a_result_with_an_integer_of_any_length() -> None:
    reader = BenchReader("bench.jsonl")
    assert reader.feed(1, f'{{"request_throughput": {LONG}, "duration": 2.5, "completed": -1e999}}')
    assert {row["name"]: row["value"] for row in reader.rows} == {
        "request_throughput": None, "duration": 2.5, "completed": None,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["1.2.3", ".", LONG])
def test_a_row_of_nccl_tests_with_another_number_is_foreign(text: str) -> None:
    for place in NUMBER.finditer(NCCL_TESTS):
        reader = NcclReader("nccl.log")
        for number, line in enumerate((NCCL_TESTS[: place.start()] + text + NCCL_TESTS[place.end() :]).splitlines()):
            reader.feed(number, line)
        for row in reader.rows:
            assert row["size_bytes"] is None or 0 <= row["size_bytes"] < 2**63
            assert row["time_us"] is None or math.isfinite(row["time_us"])


@pytest.mark.parametrize("text", ["1.2.3", ".", LONG])
def test_a_metric_line_of_vllm_with_another_number_is_foreign(text: str) -> None:
    assert VllmReader("vllm.log").feed(1, VLLM)
    for place in NUMBER.finditer(VLLM):
        reader = VllmReader("vllm.log")
        reader.feed(1, VLLM[: place.start()] + text + VLLM[place.end() :])
        for row in reader.rows:
            assert row["gen_throughput_tok_s"] == 90.5
            assert (row["dp"], row["running_req"], row["queue_req"]) == (0, 1, 0)


@pytest.mark.parametrize("value", [int(LONG), -int(LONG), math.nan, math.inf])
def test_a_fact_that_no_float_can_hold_is_unknown(value: float) -> None:
    facts = Facts({"parallel.tp": Fact(value, "run.toml")})
    assert facts.number("parallel.tp") is None
    assert facts.integer("parallel.tp") is None


def test_large_integers_are_rounded_where_figures_are_floats() -> None:
    rows = pa.table({"n": pa.array([999_999_999_999_999_999, None], pa.int64())})
    assert floats(rows, "n")[0] == 1e18


def damaged(draw: st.DrawFn, text: str) -> str:
    for _ in range(draw(st.integers(0, 3))):
        places = list(NUMBER.finditer(text))
        place = places[draw(st.integers(0, len(places) - 1))]
        text = text[: place.start()] + draw(st.sampled_from(ODD)) + text[place.end() :]
    return text


@st.composite
def files(draw: st.DrawFn) -> dict[str, str]:
    """The files of a run without traces, with numbers replaced."""
    log = "".join((SAMPLE / "server.log").read_text(encoding="utf-8").splitlines(keepends=True)[:60])
    texts = {"server.log": log, "nccl.log": NCCL_TESTS, "bench_printed.jsonl": PRINTED}
    texts |= {n: (SAMPLE / n).read_text(encoding="utf-8") for n in ("bench.jsonl", "run.toml", "server_args.json")}
    return {name: damaged(draw, text) for name, text in texts.items()}


@given(files())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_number_in_the_files_of_a_run_is_an_internal_error(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], texts: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    for arguments in (["parse", str(folder)], ["doctor", str(folder)], ["whatif", str(folder), "--format", "json"]):
        code = run([*arguments, "--accept-len", "3"] if arguments[0] == "whatif" else arguments)
        out, err = capsys.readouterr()
        assert code in (0, 2, 3)
        assert "internal error" not in err
        if arguments[0] == "whatif" and code == 0:
            json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "text", "arguments"),
    [
        ("run/config.json", f'{{"a": {DEEP}', ["plan", "run", "-o", "plan"]),
        ("run/server_args.json", f'{{"a": {DEEP}', ["plan", "run", "-o", "plan"]),
        ("run/run.toml", f"a = {DEEP}", ["plan", "run", "-o", "plan"]),
        ("profkit.toml", f"a = {DEEP}", ["weekly", "--store", "store"]),
        ("plan.json", f'{{"levers": {DEEP}', ["add", "--forecast", "plan.json", "--config", "c", "--week", "2026-W47"]),
        ("store/profkit-store.json", f'{{"a": {DEEP}', ["runs", "--store", "store"]),
    ],
)
def test_nesting_without_end_is_said_of_the_file(
    name: str, text: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for folder in ("run", "store"):
        Path(folder).mkdir()
    Path("run/server.log").write_bytes((SAMPLE / "server.log").read_bytes())
    Path(name).write_text(text)
    assert run(arguments) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"profkit: {name}: ")
    assert "internal error" not in said


@pytest.mark.parametrize(
    "name", ["runs/0123456789abcdef/run.json", "marks/0123456789abcdef-000001-01234567.json", "forecasts/x.json"]
)
def test_nesting_without_end_in_a_store_is_a_named_problem(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    added = ["add", str(SAMPLE / "server.log"), "--store", str(store), "--config", "c", "--week", "2026-W47"]
    assert run(added) == 0
    (store / name).parent.mkdir(exist_ok=True)
    (store / name).write_text(f'{{"schema": "profkit.run/1", "a": {DEEP}')
    capsys.readouterr()
    assert run(["weekly", "--store", str(store), "-o", str(tmp_path / "weekly")]) == 0
    assert Path(name).name in capsys.readouterr().err


@pytest.mark.parametrize("before", ["x", "x.", "x-", "1", "1:", "x ", "a=", "_", "é"])
def test_a_long_word_in_a_line_costs_linear_time(before: str) -> None:
    """200 000 characters: squared, that would be minutes."""
    word = before * (200_000 // len(before))
    for line in (
        f"{word} NCCL INFO text", f"NCCL {word}", f"#{word}", f"Req Time Stats(rid=a): {word}",
        f"[2026-01-02 03:00:00] Decode batch, {word}", f"[2026-01-02 03:00:00] {word}", word,
        f"[2026-01-02 03:00:00] server_args=ServerArgs({word}", f"INFO 11-20 12:00:00 [a] {word} tokens/s",
        f"Finish i=0: {word}", f"acc_length: {word}", f"Obj: {word}", f"Traceback {word}",
    ):  # fmt: skip
        started = time.process_time()
        reader = LogReader("server.log")
        for block in BlockReader(iter([line.encode() + b"\n"])).blocks():
            reader.feed(block)
        reader.finish()
        assert time.process_time() - started < 20, line[:60]


def test_a_version_of_any_length_sorts() -> None:
    assert version_key(f"0.5.{'9' * 5000}") > version_key("0.5.16.post1")
