"""Following a live log: rotation, truncation, slow writers, alarms, a clean end."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from profkit.cli.app import run
from profkit.errors import InputError
from profkit.parsers.log.engine import LogReader, server_row
from profkit.parsers.log.follow import Follower
from profkit.parsers.log.lines import Block
from profkit.serving.live import Alarm, Baseline, Monitor, Status

START = (
    "[2026-01-02 03:00:00] server_args=ServerArgs(model_path='m', tp_size=1, speculative_algorithm='EAGLE3', "
    "speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4)\n"
)


def decode(
    second: int, *, running: int = 1, accept: float = 2.0, speed: float = 60.0, queue: int = 0, usage: float = 0.1,
    graph: bool = True,
) -> str:  # fmt: skip
    clock = f"03:{second // 60:02d}:{second % 60:02d}"
    return (
        f"[2026-01-02 {clock}] Decode batch, #running-req: {running}, #token: 900, token usage: {usage:.2f}, "
        f"accept len: {accept:.2f}, accept rate: {(accept - 1) / 3:.2f}, cuda graph: {graph}, "
        f"gen throughput (token/s): {speed:.2f}, #queue-req: {queue}\n"
    )


def watched(text: str, baseline: Baseline | None = None) -> tuple[Status | None, list[Alarm]]:
    reader, monitor = LogReader("f"), Monitor(baseline)
    batches = reader.feed(Block(text.encode(), 1))
    monitor.push(batches, [("f", server_row("f", server)) for server in reader.servers])
    return monitor.status(), monitor.alarms()


def test_status_and_break_even_of_the_reference_story() -> None:
    # 82 tok/s without speculation, 60 tok/s at accept length 2.0 with it: break-even is 2.73.
    status, alarms = watched(START + "".join(decode(s) for s in range(12)), Baseline(step_ms=1000 / 82))
    assert status is not None
    assert status.throughput_tok_s == 60.0
    assert status.accept_len == 2.0
    assert status.step_ms == pytest.approx(33.333, abs=1e-3)
    assert status.break_even == pytest.approx(2.733, abs=1e-3)
    assert [(a.name, a.on) for a in alarms] == [("accept_below_break_even", True)]
    assert "2.73" in alarms[0].sentence


def test_no_baseline_gives_no_break_even() -> None:
    status, alarms = watched(START + "".join(decode(s) for s in range(12)))
    assert status is not None
    assert status.break_even is None
    assert alarms == []


def test_baseline_by_load_abstains_far_from_it() -> None:
    base = Baseline(by_running={4: 10.0, 8: 12.0})
    assert base.step(4) == 10.0
    assert base.step(9) == 12.0
    assert base.step(1) is None
    assert base.step(20) is None


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        ({"accept": 1.0, "speed": 30.0}, "accept_len_one"),
        ({"speed": 20.0}, "throughput_collapse"),
        ({"queue": 3}, "queueing"),
        ({"usage": 0.97}, "kv_cache_full"),
        ({"graph": False}, "no_graph"),
    ],
)
def test_alarms_come_and_go(bad: dict[str, float], name: str) -> None:
    lines = [decode(s) for s in range(30)]
    lines += [decode(s, **bad) for s in range(30, 42)]  # type: ignore[arg-type]
    lines += [decode(s) for s in range(42, 70)]
    _, alarms = watched(START + "".join(lines))
    assert [(a.name, a.on) for a in alarms if a.name == name] == [(name, True), (name, False)]
    raised = next(a for a in alarms if a.name == name)
    assert 32 <= raised.line <= 42


def test_events_raise_alarms() -> None:
    text = START + decode(1)
    text += "[2026-01-02 03:00:02] KV cache pool is full. Retract requests. #retracted_reqs: 2, "
    text += "#new_token_ratio: 0.5000 -> 0.6000\n"
    text += "[2026-01-02 03:00:03 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    text += "  x\nValueError: bad\n"
    text += "[2026-01-02 03:00:04] Received sigquit from a child process. It usually means the child failed.\n"
    _, alarms = watched(text)
    assert [a.name for a in alarms] == ["retraction", "exception", "child_failed"]
    assert "ValueError: bad" in alarms[1].sentence


def test_sum_over_data_parallel_ranks_leaves_old_lines_out() -> None:
    lines = [decode(s).replace("]", f" DP{rank} TP{rank}]", 1) for s in range(0, 40, 10) for rank in (0, 1)]
    lines += [decode(s).replace("]", " DP0 TP0]", 1) for s in range(40, 200, 10)]
    status, _ = watched(START + "".join(lines[:8]))
    assert status is not None
    assert status.throughput_tok_s == 120.0
    status, _ = watched(START + "".join(lines))
    assert status is not None
    assert status.throughput_tok_s == 60.0


def text_of(follower: Follower) -> bytes:
    found = b""
    while (block := follower.poll()) is not None:
        found += block.data
    return found


def test_slow_writer_gives_whole_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"one\ntw")
    follower = Follower(path)
    assert text_of(follower) == b"one\n"
    with path.open("ab") as sink:
        sink.write(b"o\nth")
    block = follower.poll()
    assert block is not None
    assert (block.data, block.first_line) == (b"two\n", 2)
    assert follower.poll() is None
    follower.close()


def test_rotation_reads_the_rest_of_the_old_file_first(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"one\n")
    follower = Follower(path)
    assert text_of(follower) == b"one\n"
    with path.open("ab") as sink:
        sink.write(b"two\n")
    path.rename(tmp_path / "server.log.1")
    assert text_of(follower) == b"two\n"
    assert follower.poll() is None  # the new file is not there yet
    path.write_bytes(b"three\n")
    block = follower.poll()
    assert block is not None
    assert (block.data, block.first_line, follower.restarts) == (b"three\n", 1, 1)
    follower.close()


@pytest.mark.parametrize("fresh", [b"x\n", b"something longer than what was there before\n"])
def test_truncation_is_noticed(tmp_path: Path, fresh: bytes) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"one\ntwo\n")
    follower = Follower(path)
    assert text_of(follower) == b"one\ntwo\n"
    path.write_bytes(fresh)
    assert text_of(follower) == fresh
    assert follower.restarts == 1
    follower.close()


def test_following_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Follower(tmp_path / "none.log")


Watch: TypeAlias = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Starts ``profkit watch``; whatever becomes of the test, none outlives it."""
    started = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "profkit", "watch", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_command_follows_and_stops_when_idle(watch: Watch, tmp_path: Path) -> None:
    path, base = tmp_path / "server.log", tmp_path / "base.log"
    path.write_text(START + "".join(decode(s) for s in range(10)))
    base.write_text(
        START.replace("'EAGLE3'", "None")
        + "".join(
            decode(s, accept=1.0, speed=82.0).replace("accept len: 1.00, accept rate: 0.00, ", "") for s in range(9)
        )
    )
    running = watch(
        str(path),
        "--baseline",
        str(base),
        "--format",
        "json",
        "--interval",
        "0.05",
        "--every",
        "0",
        "--stop-after-idle",
        "5",  # a loaded machine may need a while to write the rest
    )
    assert running.stdout is not None
    first = json.loads(running.stdout.readline())
    assert first["kind"] == "status"
    assert first["break_even"] == pytest.approx(2.733, abs=1e-3)
    with path.open("a") as sink:
        sink.write("".join(decode(s) for s in range(10, 20)))
    out, errors = running.communicate(timeout=60)
    documents = [json.loads(line) for line in out.splitlines()]
    assert running.returncode == 0, errors
    assert any(d["kind"] == "alarm" and d["name"] == "accept_below_break_even" for d in documents)
    assert documents[-1]["line"] == 21


def test_interrupt_ends_cleanly(watch: Watch, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(START + decode(1))
    running = watch(str(path), "--interval", "0.05")
    assert running.stdout is not None
    assert running.stderr is not None
    assert "60.0 tok/s" in running.stdout.readline()
    assert "following" in running.stderr.readline()
    time.sleep(0.1)
    os.kill(running.pid, signal.SIGINT)
    out, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in out + errors


def test_wrong_baseline_is_wrong_usage(watch: Watch, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(START)
    running = watch(str(path), "--baseline", "no-such")
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 2
    assert run(["watch", str(path), "--format", "csv"]) == 2
    assert "neither a positive number" in errors


def test_what_can_never_be_followed_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, packed = tmp_path / "a.trace.json.gz", tmp_path / "server.log.gz"
    trace.write_bytes(gzip.compress(b'{"traceEvents": [{"ph": "X"}]}'))
    packed.write_bytes(gzip.compress((START + decode(1)).encode()))
    for path, why in ((trace, "a trace, which cannot be followed"), (packed, "packed, so no server is writing it")):
        assert run(["watch", str(path), "--stop-after-idle", "0"]) == 3
        assert capsys.readouterr().err.startswith(f"profkit: {path}: {why}")


@pytest.mark.parametrize(("text", "said"), [("", True), ("no such line\n", True), (START + decode(1), False)])
def test_a_log_without_decode_lines_is_followed_and_said(
    text: str, said: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "server.log"
    log.write_text(text)
    assert run(["watch", str(log), "--stop-after-idle", "0"]) == 0
    assert ("no decode line yet" in capsys.readouterr().err) == said
