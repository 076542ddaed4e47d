"""One rank's trace as tables: what every trace reader yields and analysis reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from profkit.errors import Problem

TraceKind: TypeAlias = Literal["gpu", "cpu_only", "capture", "no_kernels"]
# Why a trace of such a kind has no timeline of a GPU; goes on after "being".
NO_TIMELINE: Final[Mapping[str, str]] = {
    "capture": "the recording of a CUDA graph's capture, whose kernels did not run",
    "cpu_only": "recorded without GPU activity",
    "no_kernels": "recorded with a GPU but without a kernel (was GPU among the activities?)",
}


@dataclass(frozen=True, slots=True)
class TraceInfo:
    """Facts about one rank's trace file.

    ``kind``: ``gpu`` has a timeline of GPU ops; ``cpu_only`` was recorded without a GPU; ``capture`` is the recording
    of a graph capture, whose kernels did not run; ``no_kernels`` had a GPU but shows no op of it.
    Parallel coordinates are ``None`` when neither the file name nor the file says them.
    """

    path: str
    kind: TraceKind
    rank: int | None = None
    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    stage: Literal["prefill", "decode"] | None = None
    engine: str | None = None
    engine_version: str | None = None
    events: int = 0
    gpu_ops: int = 0
    bytes: int = 0
    truncated: bool = False
    base_ns: int = 0
    window_start_ns: int | None = None
    window_duration_ns: int | None = None
    python_frames: bool = False
    profile_id: str | None = None
    host_name: str | None = None
    distributed: Mapping[str, Any] | None = None
    devices: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[Problem, ...] = ()
    content_key: str | None = None

    def to_json(self) -> dict[str, object]:
        """The ``inputs`` entry of the attribution contract."""
        return {
            "path": self.path,
            "kind": self.kind,
            "rank": self.rank,
            "dp": self.dp,
            "tp": self.tp,
            "pp": self.pp,
            "ep": self.ep,
            "stage": self.stage,
            "engine": self.engine,
            "engine_version": self.engine_version,
            "events": self.events,
            "gpu_ops": self.gpu_ops,
            "bytes": self.bytes,
            "truncated": self.truncated,
            "problems": list(self.problems),
        }


@dataclass(frozen=True, slots=True)
class Trace:
    """Tables of one rank; schemas in :mod:`profkit.tables`, rows in file order.

    ``frames`` is ``None`` when Python frames were not asked for.
    """

    info: TraceInfo
    gpu_ops: pa.Table
    launches: pa.Table
    annotations: pa.Table
    cpu_ops: pa.Table
    collectives: pa.Table
    processes: pa.Table
    frames: pa.Table | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def table(self, name: str) -> pa.Table:
        """One table by its name in :data:`profkit.tables.TRACE_TABLES`; ``KeyError`` otherwise."""
        table = getattr(self, name) if name in self.__slots__ else None
        if not isinstance(table, pa.Table):
            raise KeyError(name)
        return table
