"""What kind of trace a file is, and the facts around its events."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from profkit.errors import Problem
from profkit.parsers.trace.columns import Columns
from profkit.parsers.trace.exact import to_integer
from profkit.parsers.trace.names import Coordinates, coordinates_of_name
from profkit.trace import TraceInfo, TraceKind

# In the recording of a graph capture, launches are noted and hardly any kernel runs.
_CAPTURE_SHARE = 0.01
_CAPTURE_CALLS = r"(StreamBeginCapture|StreamEndCapture|GraphInstantiate)"
_KERNEL_LAUNCH = r"Launch.*Kernel|LaunchKernel"


def kind_of(gpu_ops: pa.Table, launches: pa.Table, annotations: pa.Table, *, has_devices: bool) -> TraceKind:
    """Recognise captures, CPU-only traces and traces whose GPU shows no kernels."""
    kernel_launches = _matches(launches["name"], _KERNEL_LAUNCH)
    if gpu_ops.num_rows < _CAPTURE_SHARE * kernel_launches and (
        _matches(launches["name"], _CAPTURE_CALLS) or _matches(annotations["name"], r"^capture[_ ]")
    ):
        return "capture"
    if gpu_ops.num_rows:
        return "gpu"
    return "no_kernels" if launches.num_rows or has_devices else "cpu_only"


def _matches(column: pa.ChunkedArray[Any], pattern: str) -> int:
    """Rows of a dictionary-encoded column whose text matches."""
    regex = re.compile(pattern)
    counts: Any = pc.value_counts(column)
    return sum(c["counts"] for c in counts.to_pylist() if c["values"] is not None and regex.search(c["values"]))


# What only one engine writes: the names of its processes, and of its annotations.
_ENGINES = (
    ("sglang", r"^sglang::", r"^step\[(DECODE|EXTEND|MIXED|IDLE|DRAFT|VERIFY|TARGET_VERIFY)|^scheduler\.run_batch$"),
    ("vllm", r"^(VLLM|vllm)\b", r"^execute_(\d+_)?context_|^gpu_model_runner: "),
)


def engine_of(processes: pa.Table, annotations: pa.Table) -> str | None:
    """The engine that was recorded, if something that only it writes is there."""
    named = [
        str(value)
        for key, value in zip(processes["key"].to_pylist(), processes["value"].to_pylist(), strict=True)
        if key == "process_name"
    ]
    for engine, process, annotation in _ENGINES:
        if any(re.search(process, name) for name in named) or _matches(annotations["name"], annotation):
            return engine
    return None


def coordinates(name: str, label: Coordinates | None, metadata: Mapping[str, Any]) -> Coordinates:
    """Coordinates of one rank: a merged trace's label first, then the file's name, then its distributedInfo."""
    of_name = coordinates_of_name(name)
    base = label or of_name
    distributed = metadata.get("distributedInfo")
    told = to_integer(distributed.get("rank")) if isinstance(distributed, Mapping) and label is None else None
    rank = base.rank
    if rank is None:
        # With pipeline stages the tensor-parallel rank alone is not unique.
        rank = told if base.pp is not None and told is not None else base.tp if base.tp is not None else told
    return Coordinates(
        rank, base.dp, base.tp, base.pp, base.ep, base.stage or of_name.stage, of_name.profile, of_name.engine
    )


def make_info(
    path: str,
    columns: Columns,
    metadata: Mapping[str, Any],
    made: Mapping[str, pa.Table],
    where: Coordinates,
    *,
    size: int,
    truncated: bool,
    problems: tuple[Problem, ...],
    content_key: str | None,
) -> TraceInfo:
    """Everything that is known about one rank's trace."""
    devices = metadata.get("deviceProperties")
    devices = tuple(d for d in devices if isinstance(d, dict)) if isinstance(devices, list) else ()
    distributed = metadata.get("distributedInfo")
    host = metadata.get("host_name")
    window_start, window_duration = columns.window
    return TraceInfo(
        path=path,
        kind=kind_of(made["gpu_ops"], made["launches"], made["annotations"], has_devices=bool(devices)),
        rank=where.rank,
        dp=where.dp,
        tp=where.tp,
        pp=where.pp,
        ep=where.ep,
        stage=where.stage,
        engine=where.engine or engine_of(made["processes"], made["annotations"]),
        events=columns.events,
        gpu_ops=made["gpu_ops"].num_rows,
        bytes=size,
        truncated=truncated,
        base_ns=to_integer(metadata.get("baseTimeNanoseconds")) or 0,
        window_start_ns=window_start,
        window_duration_ns=window_duration,
        python_frames=columns.has_frames,
        profile_id=where.profile,
        host_name=host if isinstance(host, str) else None,
        distributed=distributed if isinstance(distributed, dict) else None,
        devices=devices,
        problems=problems + window_problems(columns) + table_problems(made),
        content_key=content_key,
    )


def window_problems(columns: Columns) -> tuple[Problem, ...]:
    """Several recordings in one rank, which happens when a merging tool found the files of several stages."""
    if columns.windows <= 1:
        return ()
    detail = "recordings lie behind each other in this rank and their ids may collide; read the files they came from"
    return (Problem("several_recordings", columns.windows, detail),)


def table_problems(made: Mapping[str, pa.Table]) -> tuple[Problem, ...]:
    """Events that are kept although something is missing or odd in them."""
    found = []
    gpu = made["gpu_ops"]
    for column, kind in (("start_ns", "missing_start"), ("duration_ns", "missing_duration")):
        count = gpu[column].null_count
        if count:
            found.append(Problem(kind, count, "GPU operations without a usable time cannot be placed"))
    for table in ("gpu_ops", "launches", "annotations"):
        durations = made[table]["duration_ns"]
        least = pc.min(durations).as_py()
        if least is not None and least < 0:
            negative = int((durations.to_numpy() < 0).sum())
            found.append(Problem("negative_duration", negative, f"{table} with a negative duration"))
    return tuple(found)


def file_name(path: str) -> str:
    """The name of a path, a URL or a member of an archive."""
    return PurePath(path.replace("!", "/").rstrip("/")).name
