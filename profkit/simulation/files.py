"""Puts a simulated launch into a folder: traces, log, bench result, facts, and the truth beside them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from pathlib import Path
from typing import Any

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
_SYSTEM_PIDS = 1000  # the merger renumbers only these


def profile_id(simulation: Simulation) -> str:
    """The text that SGLang makes of the time at which profiling was asked for."""
    scenario = simulation.scenario
    fraction = int(Noise(scenario.seed, 12).raw(1)[0] % np.uint64(10_000_000))
    return f"{start_seconds(scenario) + 900}.{fraction:07d}"


def trace_name(simulation: Simulation, rank: int) -> str:
    """``<profile id>-TP-<rank>[-DECODE].trace.json.gz``, or vLLM's name."""
    if simulation.scenario.serving.worker == "vllm":
        stamp = profile_id(simulation).replace(".", "") + "00"
        return f"dp0_pp0_tp{rank}_dcp0_ep0_rank{rank}.{stamp}.pt.trace.json.gz"
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


def write_merged(simulation: Simulation, path: Path, recorded_at_s: int, *, force: bool = False) -> None:
    """Write one file with all ranks as SGLang's merger does: process ids get a rank label, ids may collide."""
    merged: dict[str, Any] = {"traceEvents": []}
    devices: list[Any] = []
    for rank in range(simulation.scenario.ranks):
        writer = TraceWriter(simulation, rank, recorded_at_s, _temporary_name(simulation, rank))
        document = json.loads("".join(writer.chunks()))
        for event in document.pop("traceEvents"):
            pid = event["pid"]
            if event["name"] == "process_sort_index" and isinstance(pid, int) and pid < _SYSTEM_PIDS:
                event["args"]["sort_index"] = pid + 100 * rank
            merged["traceEvents"].append(event | {"pid": f"[TP{rank:02d}] {pid}"})
        devices.extend(document.pop("deviceProperties"))
        for key, value in document.items():
            merged.setdefault(key, value)
    merged["deviceProperties"] = devices
    with (
        writing(path, force=force) as temporary,
        temporary.open("wb") as raw,
        gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as packed,
    ):
        packed.write(json.dumps(merged).encode())


def check_target(folder: Path, *, force: bool) -> None:
    """Refuse to write into a folder that holds something.

    Raises:
        UsageError: the folder is not empty and ``force`` is false, or it is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; choose the name of a folder")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise UsageError(f"{folder} is not empty; choose another folder or give --force to overwrite its files")


def write_run(simulation: Simulation, folder: Path, *, force: bool = False, traces: bool = True) -> list[Path]:
    """Write the launch into ``folder`` and return the files.

    Raises:
        UsageError: the folder exists and is not empty, and ``force`` is false.
        ValueError: traces are wanted of a launch that was simulated without recording.
    """
    check_target(folder, force=force)
    if traces:
        simulation.truth()
    if force:
        # Traces of another seed have other names and would be read as more ranks of this run.
        for old in (folder / "traces").glob("*.trace.json.gz"):
            old.unlink(missing_ok=True)  # another process may be at it
    log = ServerLog(simulation, profile_id(simulation))
    made: list[Path] = []

    def put(name: str, text: str) -> None:
        path = folder / name
        with writing(path, force=force) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
        made.append(path)

    if simulation.scenario.serving.worker != "vllm":
        put("server.log", log.text())
        put("server_args.json", arguments_json(server_arguments(simulation.scenario, log.release), log.release))
    put("bench.jsonl", json.dumps(bench_line(simulation, log)) + "\n")
    put("run.toml", run_toml(simulation.scenario))
    if traces and simulation.scenario.recording.merged:
        path = folder / "traces" / f"merged-{profile_id(simulation)}.trace.json.gz"
        write_merged(simulation, path, int(log.profiled_at_s), force=force)
        made.append(path)
    elif traces:
        for rank in range(simulation.scenario.ranks):
            path = folder / "traces" / trace_name(simulation, rank)
            write_trace(simulation, rank, path, int(log.profiled_at_s), force=force)
            made.append(path)
    put("expected.toml", expected_toml(simulation, log, traces=traces))
    return made
