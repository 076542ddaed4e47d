"""Eight ranks attributed side by side: wall time, CPU time and memory, by number of processes.

Usage: ``python benchmarks/ranks.py [--ranks 8] [--cycles 150] [--folder DIR] [--jobs 1,2]``. The traces are simulated:
EAGLE-3 on a 61-layer model with host operators, Python frames and flow events, one gzip file per rank. ``profkit
attribute`` runs as a whole process, without the cache, with a cold and with a warm one; memory is what all of its
processes hold together (proportional set size where the system tells it), looked at twenty times a second.
"""

from __future__ import annotations

import argparse
import gzip
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def generate(folder: Path, ranks: int, cycles: int) -> None:
    """Write the traces of all ranks."""
    from profkit.simulation import reference_story, simulate
    from profkit.simulation.files import trace_name, write_trace

    story = reference_story()["eagle3"]
    recording = replace(story.recording, cycles=cycles, python_stacks=True, flows=True)
    made = simulate(replace(story, ranks=ranks, recording=recording))
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        write_trace(made, rank, folder / trace_name(made, rank), 1_794_830_131, force=True)


def memory_of(root: int) -> float:
    """MB that a process and its children hold together; 0 where the system does not tell."""
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text(encoding="ascii").split())
        except (OSError, ValueError):
            continue
    return total / 1024


def measure(command: list[str], cache: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds of all processes, peak MB of all together."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PROFKIT_CACHE_DIR": str(cache)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    peak = 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        while process.poll() is None:
            peak = max(peak, memory_of(process.pid))
            time.sleep(0.05)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak


def main() -> None:
    """Generate, measure, print markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--cycles", type=int, default=150, help="decode cycles per trace")
    parser.add_argument("--folder", type=Path, help="where the traces are kept; default: a temporary folder")
    parser.add_argument("--jobs", default="1,2", help="numbers of processes to try")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="ranks."))
    folder = options.folder or base / "traces"
    try:
        if not any(folder.glob("*.gz")):
            generate(folder, options.ranks, options.cycles)
        files = sorted(folder.glob("*.gz"))
        with gzip.open(files[0]) as first:
            unpacked = sum(len(block) for block in iter(lambda: first.read(1 << 20), b""))
        packed = sum(f.stat().st_size for f in files)
        print(f"{len(files)} ranks of {unpacked / 1e6:.0f} MB each, {packed / 1e6:.0f} MB packed together\n")
        print("| processes | cache | wall s | CPU s | peak MB, all processes |\n|---|---|---|---|---|")
        for jobs in options.jobs.split(","):
            command = [sys.executable, "-m", "profkit", "attribute", str(folder), "--format", "json", "-q"]
            command += ["--jobs", jobs]
            for name, more in (("none", ["--no-cache"]), ("cold", []), ("warm", [])):
                wall, cpu, peak = measure([*command, *more], base / f"cache{jobs}")
                print(f"| {jobs} | {name} | {wall:.2f} | {cpu:.2f} | {peak:.0f} |", flush=True)
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
