"""Puts a simulated launch into a folder: traces, log, bench result, facts, and the truth beside them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
from pathlib import Path

import numpy as np

from profkit.errors import UsageError
from profkit.files import writing
from profkit.simulation.arguments import arguments_json, server_arguments
from profkit.simulation.bench import bench_line
from profkit.simulation.expected import expected_toml, run_toml
from profkit.simulation.kineto import TraceWriter, start_seconds
from profkit.simulation.noise import Noise
from profkit.simulation.serverlog import ServerLog
from profkit.simulation.simulate import Simulation

_GZIP_LEVEL = 9


def profile_id(simulation: Simulation) -> str:
    """The text that SGLang makes of the time at which profiling was asked for."""
    scenario = simulation.scenario
    fraction = int(Noise(scenario.seed, 12).raw(1)[0] % np.uint64(10_000_000))
    return f"{start_seconds(scenario) + 900}.{fraction:07d}"


def trace_name(simulation: Simulation, rank: int) -> str:
    """``<profile id>-TP-<rank>[-DECODE].trace.json.gz``."""
    stage = "-DECODE" if simulation.scenario.recording.by_stage else ""
    return f"{profile_id(simulation)}-TP-{rank}{stage}.trace.json.gz"


def _temporary_name(simulation: Simulation, rank: int) -> str:
    digest = hashlib.sha256(f"{simulation.scenario.seed}/{rank}".encode()).hexdigest()
    return f"/tmp/tmp{digest[:8]}.json"  # noqa: S108 - the name that PyTorch's exporter leaves inside the file


def write_trace(simulation: Simulation, rank: int, path: Path, recorded_at_s: int, *, force: bool = False) -> None:
    """Write one rank's trace, compressed; the same simulation gives the same bytes with the same zlib."""
    writer = TraceWriter(simulation, rank, recorded_at_s, _temporary_name(simulation, rank))
    with (
        writing(path, force=force) as temporary,
        temporary.open("wb") as raw,
        gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as packed,
        io.TextIOWrapper(packed, "utf-8") as text,
    ):
        text.writelines(writer.chunks())


def write_run(simulation: Simulation, folder: Path, *, force: bool = False, traces: bool = True) -> list[Path]:
    """Write the launch into ``folder`` and return the files.

    Raises:
        UsageError: the folder exists and is not empty, and ``force`` is false.
    """
    if folder.exists() and any(folder.iterdir()):
        if not force:
            raise UsageError(f"{folder} exists; choose another folder or give --force to overwrite it")
        shutil.rmtree(folder / "traces", ignore_errors=True)
    log = ServerLog(simulation, profile_id(simulation))
    made: list[Path] = []

    def put(name: str, text: str) -> None:
        path = folder / name
        with writing(path, force=force) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
        made.append(path)

    put("server.log", log.text())
    put("server_args.json", arguments_json(server_arguments(simulation.scenario)))
    put("bench.jsonl", json.dumps(bench_line(simulation, log)) + "\n")
    put("run.toml", run_toml(simulation.scenario))
    if traces:
        for rank in range(simulation.scenario.ranks):
            path = folder / "traces" / trace_name(simulation, rank)
            write_trace(simulation, rank, path, int(log.profiled_at_s), force=force)
            made.append(path)
    put("expected.toml", expected_toml(simulation, log, traces=traces))
    return made
