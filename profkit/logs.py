"""Server logs and benchmark results as tables: what log readers yield and analysis reads."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from profkit.errors import Problem


@dataclass(frozen=True, slots=True)
class LogFile:
    """Facts about one file that was read as a log."""

    path: str
    kind: str  # sglang, vllm, bench, nccl, mixed
    lines: int
    bytes: int
    problems: tuple[Problem, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The ``inputs`` entry of the log contract."""
        return {
            "path": self.path,
            "kind": self.kind,
            "lines": self.lines,
            "bytes": self.bytes,
            "problems": list(self.problems),
        }


@dataclass(frozen=True, slots=True)
class LogTables:
    """Everything read from the logs of one run; schemas in :mod:`profkit.tables`."""

    files: tuple[LogFile, ...]
    decode: pa.Table
    prefill: pa.Table
    request: pa.Table
    event: pa.Table
    server: pa.Table
    bench: pa.Table
    nccl: pa.Table

    def table(self, name: str) -> pa.Table:
        """One table by its name in :data:`profkit.tables.LOG_TABLES`; ``KeyError`` otherwise."""
        table = getattr(self, name) if name in self.__slots__ else None
        if not isinstance(table, pa.Table):
            raise KeyError(name)
        return table
