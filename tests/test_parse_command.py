"""``profkit parse`` as a user calls it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import subprocess
import sys
import threading
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

import jsonschema
import pyarrow.parquet as pq
import pytest
from syrupy.assertion import SnapshotAssertion

from profkit.cli.app import run
from profkit.reports.log_plots import _broken
from tests.paths import ROOT, SAMPLES

STORY = SAMPLES / "kimi-k2.5-tp8"
LOG = STORY / "eagle3" / "server.log"


def schema(name: str) -> Any:
    return json.loads(files("profkit.schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8"))


def call(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "profkit", "parse", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, cwd=ROOT)


@pytest.fixture(autouse=True)
def _in_story(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(STORY)


def stdout(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["parse", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("arm", ["baseline", "eagle3", "ngram"])
def test_summary_for_a_person(arm: str, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    assert stdout(capsys, arm) == snapshot


def test_markdown(capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    assert stdout(capsys, "eagle3", "--format", "markdown") == snapshot


def test_json_follows_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    text = stdout(capsys, "eagle3", "--format", "json")
    document = json.loads(text)
    jsonschema.validate(document, schema("log"))
    (server,) = document["servers"]
    assert (server["algorithm"], server["num_draft_tokens"], server["accept_rate_era"]) == ("EAGLE3", 4, "C")
    assert server["decode"]["step_ms"]["p50"] == pytest.approx(33.3, abs=0.1)
    assert stdout(capsys, "eagle3", "--format", "json") == text


@pytest.mark.parametrize("table", ["decode", "prefill", "request", "event", "server", "bench", "nccl"])
def test_tables_in_every_form_have_the_same_rows(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(stdout(capsys, "eagle3", "-t", table, "-f", "json"))
    jsonschema.validate(document, schema("table"))
    rows = document["rows"]
    assert document["table"] == table
    assert [json.loads(line) for line in stdout(capsys, "eagle3", "-t", table, "-f", "jsonl").splitlines()] == rows
    read = list(csv.DictReader(io.StringIO(stdout(capsys, "eagle3", "-t", table, "-f", "csv"))))
    assert len(read) == len(rows)
    path = tmp_path / "t.parquet"
    assert stdout(capsys, "eagle3", "-t", table, "-f", "parquet", "-o", str(path)) == ""
    assert pq.read_table(path).num_rows == len(rows)
    if rows:
        assert list(read[0]) == list(rows[0]) == pq.read_table(path).column_names


def test_first_columns_are_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    head = stdout(capsys, "eagle3", "-t", "decode").splitlines()[0]
    assert head.startswith("file,line,time,timestamp,server,dp,pp,tp,ep,attn_cp,moe_dp,running_req,token,token_usage,")
    (first, *_) = json.loads(stdout(capsys, "eagle3", "-t", "decode", "-f", "json"))["rows"]
    assert first["flags"]
    assert first["step_ms"] > 0


def test_stdin_gz_and_globs_give_the_same(tmp_path: Path) -> None:
    plain = LOG.read_bytes()
    packed = tmp_path / "server.log.gz"
    packed.write_bytes(gzip.compress(plain))
    wanted = ["-t", "decode", "-f", "jsonl", "-q"]

    def rows(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
        assert done.returncode == 0, done.stderr
        return [{k: v for k, v in json.loads(line).items() if k != "file"} for line in done.stdout.splitlines()]

    first = rows(call(str(LOG), *wanted))
    assert len(first) == 60
    assert rows(call("-", *wanted, stdin=plain)) == first
    assert rows(call("-", *wanted, stdin=packed.read_bytes())) == first
    assert rows(call(str(packed), *wanted)) == first
    assert rows(call(str(tmp_path / "*.gz"), *wanted)) == first


def feed(pipe: IO[bytes], text: bytes) -> None:
    pipe.write(text)
    pipe.flush()


def test_first_rows_come_before_the_end_of_the_input() -> None:
    command = [sys.executable, "-m", "profkit", "parse", "-", "-t", "decode", "-f", "jsonl", "-q"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        # Behind 2000 lines the definition of the accept rate is settled, and rows flow.
        text = b"\n".join(LOG.read_bytes().split(b"\n")[-40:-1] * 80) + b"\n"
        # From a thread: rows come while the text goes in, and two full pipes would wait for each other for ever.
        feeder = threading.Thread(target=feed, args=(running.stdin, text))
        feeder.start()
        assert b'"running_req"' in running.stdout.readline()
        rest = threading.Thread(target=running.stdout.read)
        rest.start()
        feeder.join()
        running.stdin.close()
        rest.join()


def test_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["parse", "eagle3", "--plots", str(tmp_path)]) == 0
    assert "log_over_time.png" in capsys.readouterr().err
    assert {p.name for p in tmp_path.iterdir()} == {"log_over_time.png", "step_time.png"}
    before = (tmp_path / "step_time.png").read_bytes()
    assert run(["parse", "eagle3", "--plots", str(tmp_path)]) == 2
    assert run(["parse", "eagle3", "--plots", str(tmp_path), "--force"]) == 0
    assert (tmp_path / "step_time.png").read_bytes() == before


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.csv"
    path.write_text("mine")
    assert run(["parse", "eagle3", "-t", "decode", "-o", str(path)]) == 2
    assert path.read_text(encoding="utf-8") == "mine"
    assert "--force" in capsys.readouterr().err
    assert run(["parse", "eagle3", "-t", "decode", "-o", str(path), "--force"]) == 0
    assert path.read_text(encoding="utf-8").startswith("file,line")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"hello\nworld\n", "no line of an SGLang server"),
        (b"\x00\xff" * 1000, "no line of an SGLang server"),
        (b'{"traceEvents": 1', ""),
    ],
)
@pytest.mark.parametrize("options", [[], ["-t", "decode"], ["-f", "json"]])
def test_no_log_is_exit_3_and_one_sentence(content: bytes, words: str, options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    done = call(str(path), *options)
    error = done.stderr.decode()
    assert done.returncode == (2 if content.startswith(b"{") and options else 3), error
    assert words in error
    assert error.count("\n") == 1
    assert "Traceback" not in error
    assert done.stdout == b""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["none.log"], 3),
        (["no*.log"], 3),
        ([str(STORY / "eagle3" / "traces"), "-q"], 3),
        (["eagle3", "-t", "nope"], 2),
        (["eagle3", "-f", "csv"], 2),
        (["eagle3", "-t", "decode", "-f", "markdown"], 2),
        (["eagle3", "-t", "decode", "--plots", "x"], 2),
        (["-", "-"], 2),
        ([], 2),
    ],
)
def test_wrong_calls(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["parse", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_terminal_text_carries_no_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "server.log"
    evil = "\\x1b]0;owned\\x07\\x1b[31m\\u202e"
    text = LOG.read_text(encoding="utf-8").replace("model_path='", f"model_path='{evil}")
    assert evil in text
    path.write_text(text)
    out = stdout(capsys, str(path))
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_a_trace_gives_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    (trace, *_) = sorted(str(p) for p in (STORY / "eagle3" / "traces").iterdir())
    assert "gpu_ops" in stdout(capsys, trace)
    head, first, *_ = stdout(capsys, trace, "--table", "gpu_ops").splitlines()
    assert head.startswith("name,category,start_ns,duration_ns,stream")
    assert first
    assert run(["parse", trace, "--table", "decode"]) == 2
    assert run(["parse", trace, "-f", "json"]) == 2
    assert "choose a table with --table" in capsys.readouterr().err


def test_options_that_do_not_fit_are_said_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (trace, *_) = sorted(str(p) for p in (STORY / "eagle3" / "traces").iterdir())
    plots = ["--plots", str(tmp_path / "plots")]
    for call in (
        ["parse", "no-such.log", "--table", "decode", *plots],
        ["parse", "no-such.log", "--table", "decode", "-f", "markdown"],
        ["parse", trace, *plots],
    ):
        assert run(call) == 2, call
        assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_log_without_a_figure_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "server.log"
    path.write_text("[2026-01-29 13:12:36 PP1 TP0] Scheduler debug info:\n[2026-01-29 13:12:36 PP2 TP0] More of it\n")
    for form in ("table", "markdown"):
        assert run(["parse", str(path), "--format", form]) == 0
        *_, last = capsys.readouterr().out.splitlines()
        assert last.startswith("Nothing to summarise: ")


def said_of(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    log = tmp_path / "server.log"
    log.write_text(text)
    assert run(["parse", str(log)]) == 0
    return capsys.readouterr().out


BATCH = "[2026-01-02 03:00:0{0}] {1} batch, "
PREFILL = BATCH + "#new-seq: 1, #new-token: 90, #cached-token: 0, token usage: 0.10, #running-req: 0, #queue-req: 0\n"
DECODE = BATCH + (
    "#running-req: 1, #token: 900, token usage: 0.10, accept len: 2.00, accept rate: 0.33, cuda graph: True, "
    "gen throughput (token/s): 60.00, #queue-req: 0\n"
)


def test_a_log_of_prefills_is_not_said_to_have_answered_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = said_of("".join(PREFILL.format(i, "Prefill") for i in range(2)), tmp_path, capsys)
    assert "No decode line, but 2 prefill lines: a prefill server's log, or an excerpt of one." in out


def test_one_line_is_spoken_of_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said_of(PREFILL.format(1, "Prefill") + DECODE.format(2, "Decode"), tmp_path, capsys)
    assert "The only decode line follows a prefill or an idle time, or lies in a profiling window" in out
    assert out.startswith("unknown model, speculation of a kind not stated\n")
    broken = DECODE.format(3, "Decode").replace("60.00", "-60.00")
    out = said_of("".join(DECODE.format(i, "Decode") for i in range(3)) + broken, tmp_path, capsys)
    assert "batch lines not read: gen throughput (token/s) is below zero (1, first at line 4)" in out


def test_whole_numbers_of_a_benchmark_are_written_as_others_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = json.loads((SAMPLES / "kimi-k2.5-tp8" / "eagle3" / "bench.jsonl").read_text().splitlines()[0])
    (tmp_path / "bench.jsonl").write_text(json.dumps(sample | {"output_throughput": 1116.0, "mean_ttft_ms": 6316.04}))
    assert run(["parse", str(tmp_path / "bench.jsonl")]) == 0
    shown = capsys.readouterr().out.replace("\N{NARROW NO-BREAK SPACE}", "_")
    assert "output tok/s 1_116 ·" in shown
    assert "mean TTFT ms 6_316 ·" in shown


def test_running_requests_have_whole_ticks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr("profkit.reports.log_plots.save", lambda figure, *_, **__: drawn.append(figure))
    assert run(["parse", "eagle3", "--plots", str(tmp_path / "plots"), "-q"]) == 0
    (axes,) = drawn[-1].axes
    low, high = axes.get_xlim()
    assert [t for t in axes.get_xticks() if low <= t <= high] == [0.0, 1.0]


def test_lines_of_a_plot_stop_where_the_server_was_silent() -> None:
    busy = [(float(t), 50.0 + t) for t in (*range(10), *range(40, 50))]
    drawn = _broken(busy)
    assert [p for p in drawn if not math.isnan(p[1])] == busy
    assert [p[0] for p in drawn if math.isnan(p[1])] == [40.0]
    assert _broken(busy[:10]) == busy[:10]
    assert _broken(busy[:1]) == busy[:1]
