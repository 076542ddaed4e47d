"""How fast traces are read, beside other readers on the same files in the same run.

Usage: python benchmarks/trace_ingest.py [--sizes 100,500,1500] [--folder DIR] [--peer-python PATH] [--peer-limit 500]

The inputs are generated: laid out as Kineto writes them (host operators, then Python frames, then runtime calls and
kernels), with the mix of events of a traced decode server; `stacks` files hold Python frames, `plain` files none. Each
reading runs in a process of its own; the figures are CPU seconds after imports, and the peak resident size. Peers run
under --peer-python, since some need old versions of pandas; one that cannot be imported there is left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent

HEAD = """
  {
    "schemaVersion": 1,
    "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150110011392
    }],
    "with_stack": 1,
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1775078550000000000,
    "traceEvents": [
"""
TAIL = """
  ],
    "traceName": "/tmp/trace.json"
}
"""
OPS = [
    f"aten::{name}"
    for name in ("empty", "copy_", "to", "_to_copy", "index_select", "add", "mul", "view", "slice", "select", "mm")
] + ["aten::as_strided", "aten::linear", "sgl_kernel::rmsnorm", "sgl_kernel::silu_and_mul", "c10d::allreduce_"]
CALLS = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaEventRecord", "cudaStreamIsCapturing", "cudaMemcpyAsync")
KERNELS = [
    f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor}<{kind}>, std::array<char*, {n}ul> >"
    f"(int, at::native::{functor}<{kind}>, std::array<char*, {n}ul>)"
    for functor in ("FillFunctor", "CUDAFunctor_add", "BinaryFunctor")
    for kind in ("long", "float", "c10::BFloat16")
    for n in (1, 2, 3)
] + ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "nvjet_tst_128x64_64x6_2x1_v_bz_TNT"]


def _frame_names(rng: random.Random) -> list[str]:
    files = [
        f"sglang/srt/{folder}/{name}.py"
        for folder in ("managers", "model_executor", "layers", "speculative", "mem_cache")
        for name in ("scheduler", "runner", "linear", "worker", "pool", "common")
    ]
    functions = ("forward", "run_batch", "process", "prepare", "_call_impl")
    return [f"{rng.choice(files)}({rng.randrange(20, 3000)}): {rng.choice(functions)}_{i}" for i in range(900)]


def _time(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


class _Clock:
    def __init__(self) -> None:
        self.rng = random.Random(1)
        self.now = 4909733316007991
        self.serial = 0

    def step(self, most: int) -> tuple[str, str, int]:
        self.now += self.rng.randrange(100, most)
        self.serial += 1
        return _time(self.now), _time(self.rng.randrange(200, 60000)), self.serial


def _operators(clock: _Clock) -> Iterator[str]:
    while True:
        ts, dur, i = clock.step(9000)
        yield (
            f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "{clock.rng.choice(OPS)}", "pid": 251, "tid": 251,\n'
            f'    "ts": {ts}, "dur": {dur},\n    "args": {{\n      "External id": {i},"Record function id": 0, '
            f'"Sequence number": {i}, "Fwd thread id": 0, "Concrete Inputs": ["", "{i}"], "Input type": ["long int", '
            f'"Scalar"], "Input Strides": [[1], []], "Input Dims": [[1], []], "Ev Idx": {i}\n    }}\n  }}'
        )


def _frames(clock: _Clock) -> Iterator[str]:
    names = _frame_names(clock.rng)
    while True:
        ts, dur, i = clock.step(2000)
        yield (
            f'  {{\n    "ph": "X", "cat": "python_function", "name": "{clock.rng.choice(names)}", "pid": 251, '
            f'"tid": 251,\n    "ts": {ts}, "dur": {dur},\n    "args": {{\n      "Python parent id": {i - 1}, '
            f'"Python id": {i}, "Ev Idx": {i}\n    }}\n  }}'
        )


def _device(clock: _Clock) -> Iterator[str]:
    while True:
        ts, dur, i = clock.step(9000)
        yield (
            f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "{CALLS[i % 5]}", "pid": 251, "tid": 251,\n'
            f'    "ts": {ts}, "dur": {dur},\n    "args": {{\n      "External id": {i // 3},      "cbid": 211, '
            f'"correlation": {i}\n    }}\n  }}'
        )
        end = "" if i % 2 else ', "bp": "e"'
        yield (
            f'  {{\n    "ph": "{"sf"[i % 2]}", "id": {i}, "pid": 251, "tid": 251, "ts": {ts},\n'
            f'    "cat": "ac2g", "name": "ac2g"{end}\n  }}'
        )
        if i % 4 == 0:
            yield (
                f'  {{\n    "ph": "X", "cat": "kernel", "name": "{clock.rng.choice(KERNELS)}", "pid": 0, "tid": 7,\n'
                f'    "ts": {ts}, "dur": {dur},\n    "args": {{\n      "External id": {i // 3},      "queued": 0, '
                f'"device": 0, "context": 1,      "stream": 7, "correlation": {i},      "registers per thread": 18,'
                f'      "shared memory": 0,      "blocks per SM": 0.006757,      "warps per SM": 0.027027,      '
                f'"grid": [1, 1, 1],      "block": [128, 1, 1],      "est. achieved occupancy %": 0\n    }}\n  }}'
            )


def generate(path: Path, size: int, *, stacks: bool) -> int:
    """Write a trace of about ``size`` bytes; returns its number of events."""
    clock = _Clock()
    parts: list[tuple[Callable[[_Clock], Iterator[str]], float]] = (
        [(_operators, 0.18), (_frames, 0.69), (_device, 0.13)] if stacks else [(_operators, 0.53), (_device, 0.47)]
    )
    events, separator = 0, ""
    with path.open("w", encoding="utf-8") as out:
        out.write(HEAD)
        for make, share in parts:
            events += _write(out, make(clock), int(size * share), separator)
            separator = ",\n"
        out.write(TAIL)
    return events


def _write(out: TextIO, events: Iterator[str], size: int, separator: str) -> int:
    count = written = 0
    while written < size:
        block = [next(events) for _ in range(5000)]
        text = separator + ",\n".join(block)
        out.write(text)
        written += len(text)
        count += len(block)
        separator = ",\n"
    return count


# Each reader is a setup (imports) and a statement; `path` is the file.
OURS = {
    "profkit": (
        "from profkit.parsers.trace import read_traces",
        "read_traces([path], cache=False, jobs=1)",
    ),
    "profkit, frames kept": (
        "from profkit.parsers.trace import read_traces",
        "read_traces([path], frames=True, cache=False, jobs=1)",
    ),
}
HTA = """
import logging; logging.disable()
from hta.common.trace import parse_trace_file
from hta.configs.parser_config import ParserConfig, ParserBackend
config = ParserConfig.get_default_cfg(); config.set_parser_backend(ParserBackend.{})
"""
PEERS = {
    "HTA, default (json)": (HTA.format("JSON"), "parse_trace_file(path, config)"),
    "HTA, ijson": (HTA.format("IJSON_BATCH_AND_COMPRESS"), "parse_trace_file(path, config)"),
    "TraceLens loader": ("from TraceLens.util import DataLoader", "DataLoader.load_data(path)"),
    "torch-tb-profiler loader": (
        "import logging; logging.disable()\n"
        "from torch_tb_profiler.profiler.data import RunProfileData\n"
        "import tempfile; folder = tempfile.mkdtemp()",
        "RunProfileData('w', None, RunProfileData._preprocess_file(path, folder)[1])",
    ),
    "simdjson, parse only": (
        "import simdjson, gzip\n"
        "try:\n    from isal import igzip as gzip\nexcept ImportError: pass\n"
        "parser = simdjson.Parser()",
        "parser.parse((gzip.open(path) if path.endswith('.gz') else open(path, 'rb')).read())",
    ),
}
DRIVER = """
import json, resource, sys, time
path = sys.argv[1]
try:
{setup}
except ImportError as error:
    print(json.dumps({{"missing": str(error)}})); sys.exit()
cpu, wall = time.process_time(), time.perf_counter()
{statement}
print(json.dumps({{"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall,
                  "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}}))
"""


def measure(python: str, setup: str, statement: str, path: Path, repeats: int) -> dict[str, float] | str:
    """The run with the least CPU time of ``repeats``, or why there is none."""
    code = DRIVER.format(setup="\n".join("    " + line for line in setup.splitlines()), statement=statement)
    best: dict[str, float] | None = None
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    for _ in range(repeats):
        done = subprocess.run(
            [python, "-W", "ignore", "-c", code, str(path)],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            return "failed: " + (done.stderr.strip().splitlines() or ["killed"])[-1][:80]
        found = json.loads(lines[-1])
        if "missing" in found:
            return "not installed"
        if best is None or found["cpu"] < best["cpu"]:
            best = found
    return best or "not run"


def _report(path: Path, size: float, readers: dict[str, dict[str, float] | str]) -> None:
    print(f"\n### {path.name}: {size:.0f} MB of JSON, {path.stat().st_size / 1e6:.0f} MB on disk\n")
    print("| reader | CPU s | MB/s | peak MB | profkit is faster by |\n|---|---|---|---|---|")
    own = readers["profkit"]
    for name, figures in readers.items():
        if isinstance(figures, str) or isinstance(own, str):
            print(f"| {name} | {figures} | | | |")
        else:
            ratio = "" if name in OURS else f"{figures['cpu'] / own['cpu']:.1f}x"
            print(f"| {name} | {figures['cpu']:.2f} | {size / figures['cpu']:.0f} | {figures['rss']:.0f} | {ratio} |")
    sys.stdout.flush()


def main() -> None:
    """Generate, measure, print markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="100,500,1500", help="sizes of the JSON text in MB")
    parser.add_argument("--folder", type=Path, help="where the inputs are kept; default: a temporary folder")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has the peers")
    parser.add_argument("--peer-limit", type=float, default=500, help="peers read files up to this size in MB")
    parser.add_argument("--repeats", type=int, default=3, help="readings of profkit; peers are read once")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="trace_ingest."))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for megabytes in (float(s) for s in options.sizes.split(",")):
            for stacks in (True, False):
                plain = folder / f"{'stacks' if stacks else 'plain'}_{megabytes:g}.trace.json"
                packed = plain.with_name(plain.name + ".gz")
                if not packed.exists():
                    generate(plain, int(megabytes * 1e6), stacks=stacks)
                    with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as sink:
                        shutil.copyfileobj(source, sink, 1 << 20)
                size = plain.stat().st_size / 1e6
                for path in (plain, packed):
                    found = {
                        name: measure(sys.executable, *reader, path, options.repeats) for name, reader in OURS.items()
                    }
                    if megabytes <= options.peer_limit:
                        found |= {
                            name: measure(options.peer_python, *reader, path, 1) for name, reader in PEERS.items()
                        }
                    _report(path, size, found)
    finally:
        if options.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
