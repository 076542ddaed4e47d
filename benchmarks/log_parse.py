"""Speed and memory of reading a decode-heavy server log, against a line-by-line ``re`` loop and ``grep -c``.

Usage: ``python benchmarks/log_parse.py [MEGABYTES] [--keep FILE]``. The log is made, with a fixed seed: 72 % decode
lines, 12 % prefill lines, the rest access lines. Each measurement runs in a process of its own; CPU seconds count.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

READ = """
from profkit.parsers.log import LogStream
rows = 0
for name, batch in LogStream([sys.argv[1]]):
    rows += batch.num_rows
"""
SUMMARY = """
from profkit.parsers.log import LogStream
from profkit.serving.stream import summarise_stream
summary = summarise_stream(LogStream([sys.argv[1]]))
rows = sum(s.decode.lines + s.prefill["lines"] for s in summary.servers)
"""
TABLE = """
import io
from profkit import tables
from profkit.parsers.log import LogStream
from profkit.serving.stream import interpreted
from profkit.tableio import write_table
batches = (b for n, b in interpreted(LogStream([sys.argv[1]])) if n == "decode")
rows = write_table(tables.DECODE, batches, open("/dev/null", "wb"), FORM, name="decode")
"""
LOOP = """
import re
pattern = re.compile(
    r"\\[(\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d)((?: [A-Z_]+\\d+)*)\\] Decode batch[,.] #running-req: (\\d+), "
    r"#token: (\\d+), token usage: ([\\d.]+)(?:, accept len: ([\\d.]+), accept rate: ([\\d.]+))?, "
    r"cuda graph: (True|False), gen throughput \\(token/s\\): ([\\d.]+), #queue-req: (\\d+)"
)
rows = 0
columns = [[] for _ in range(9)]
for line in open(sys.argv[1], encoding="utf-8", errors="replace"):
    m = pattern.match(line)
    if m:
        rows += 1
        for column, value in zip(columns, (
            m[1], int(m[3]), int(m[4]), float(m[5]), float(m[6] or "nan"), float(m[7] or "nan"), m[8] == "True",
            float(m[9]), int(m[10]),
        )):
            column.append(value)
        if len(columns[0]) >= 100_000:
            columns = [[] for _ in range(9)]
"""
STAMP = "%Y-%m-%d %H:%M:%S"
START = (
    "[2026-01-02 03:04:00] server_args=ServerArgs(model_path='m', tp_size=8, speculative_algorithm='EAGLE3', "
    "speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4)\n"
)


def line(dice: random.Random, clock: float, token: int) -> str:
    """One line of the log."""
    stamp = time.strftime(STAMP, time.gmtime(clock))
    kind, running, usage = dice.random(), dice.randint(1, 64), f"{token / 200_000:.2f}"
    if kind < 0.72:
        length = dice.randint(140, 320) / 100
        speed = f"{running * length / 0.033:.2f}"
        return (
            f"[{stamp} TP0] Decode batch, #running-req: {running}, #token: {token}, token usage: {usage}, accept len: "
            f"{length:.2f}, accept rate: {(length - 1) / 3:.2f}, cuda graph: True, gen throughput (token/s): {speed}, "
            f"#queue-req: {dice.randint(0, 9)}\n"
        )
    if kind < 0.84:
        return (
            f"[{stamp} TP0] Prefill batch, #new-seq: 1, #new-token: {dice.randint(10, 8000)}, #cached-token: "
            f"{dice.randint(0, 900)}, token usage: {usage}, #running-req: {running}, #queue-req: 0, #pending-token: 0, "
            f"cuda graph: False, input throughput (token/s): {dice.random() * 9e4:.2f}\n"
        )
    return f'[{stamp}] INFO:     127.0.0.1:{dice.randint(1024, 65000)} - "POST /generate HTTP/1.1" 200 OK\n'


def make(path: Path, megabytes: int) -> None:
    """Write the log."""
    dice = random.Random(7)
    clock, token = 1_767_323_045.0, 9_000
    with path.open("w", encoding="utf-8") as sink:
        sink.write(START)
        while sink.tell() < megabytes << 20:
            lines = []
            for _ in range(20_000):
                clock += 0.4
                token = max(1_000, min(190_000, token + dice.randint(-500, 520)))
                lines.append(line(dice, clock, token))
            sink.write("".join(lines))


def measure(code: str, path: Path) -> tuple[float, float, str]:
    """CPU seconds, peak memory in MB and what the process printed."""
    program = (
        f"import sys\n{code}\nprint(rows)\nimport resource\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    rows, memory = done.stdout.split()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, int(memory) / 1024, rows


def grep(path: Path) -> float:
    """CPU seconds of ``grep -c``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Into a pipe: with its output thrown away grep stops at the first match.
    subprocess.run(["grep", "-c", "Decode batch", str(path)], stdout=subprocess.PIPE, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("megabytes", type=int, nargs="?", default=200)
    options.add_argument("--keep", type=Path)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = chosen.keep or Path(folder) / "server.log"
        if not path.exists():
            make(path, chosen.megabytes)
        size = path.stat().st_size / 1e6
        loop, loop_memory, loop_rows = measure(LOOP, path)
        found = grep(path)
        print(f"{size:.0f} MB")
        print(f"{'':<28}{'cpu s':>8}{'MB/s':>8}{'peak MB':>9}{'x re loop':>11}{'x grep -c':>11}{'rows':>12}")
        show("re, line by line (decode)", loop, loop, found, size, loop_memory, loop_rows)
        cases = [("profkit, all tables", READ), ("profkit, summary", SUMMARY)]
        cases += [
            (f"profkit, decode to {form}", TABLE.replace("FORM", repr(form))) for form in ("csv", "jsonl", "parquet")
        ]
        for name, code in cases:
            seconds, memory, rows = measure(code, path)
            show(name, seconds, loop, found, size, memory, rows)


def show(name: str, seconds: float, loop: float, found: float, size: float, memory: float, rows: str) -> None:
    """One line of the table."""
    ratios = f"{loop / seconds:11.1f}{seconds / max(found, 1e-3):11.0f}"
    print(f"{name:<28}{seconds:8.2f}{size / seconds:8.0f}{memory:9.0f}{ratios}{rows:>12}")


if __name__ == "__main__":
    main()
