"""Time of listing a store and of writing its weekly report, by number of runs.

Usage: ``python benchmarks/store.py [RUNS] [--keep FOLDER]``. The runs are made from the result contracts: ten weeks of
as many configurations as it takes, six launches a week, every launch with a log summary and one traced rank. Each
command is timed from outside, start of the interpreter included; beside it the time to read all metrics with pandas.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PANDAS = """
import sys, glob, pandas
frame = pandas.concat([pandas.read_parquet(f) for f in sorted(glob.glob(sys.argv[1] + '/runs/*/metrics.parquet'))])
assert frame['run'].nunique() > 0
"""


def fill(store: Path, runs: int) -> None:
    """Add ``runs`` runs."""
    from profkit.store.writer import add_run
    from tests.weekly_data import WEEKS, week_runs

    added, family = 0, 0
    while added < runs:
        for week in WEEKS:
            for run in week_runs("eagle3", week, seed=family, traced=True)[: runs - added]:
                named = replace(run, config=f"config-{family}", content_key=f"{family}-{run.content_key}")
                add_run(store, named)
                added += 1
        family += 1


def seconds(*command: str) -> float:
    """Wall time of a command that must succeed."""
    started = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    """Fill a store, time the commands, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="?", type=int, default=500)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = arguments.keep or Path(folder) / "store"
        started = time.perf_counter()
        fill(store, arguments.runs)
        print(f"{arguments.runs} runs added in {time.perf_counter() - started:.1f} s")
        size = sum(p.stat().st_size for p in store.rglob("*") if p.is_file())
        print(f"size of the store: {size / 1e6:.1f} MB")
        profkit = (sys.executable, "-m", "profkit")
        out = str(Path(folder) / "out")
        rows = {
            "profkit --version": seconds(*profkit, "--version"),
            "profkit runs": seconds(*profkit, "runs", "-s", str(store)),
            "profkit weekly": seconds(*profkit, "weekly", "-s", str(store), "-o", out),
            "profkit runs --verify": seconds(*profkit, "runs", "-s", str(store), "--verify"),
            "pandas reads all metrics": seconds(sys.executable, "-c", PANDAS, str(store)),
        }
        for name, wall in rows.items():
            print(f"{name:28} {wall:6.2f} s")


if __name__ == "__main__":
    main()
