"""Logs to tables: as a stream of record batches in bounded memory, or all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from profkit import tables
from profkit.errors import InputError
from profkit.files import each_once, named_again
from profkit.logs import LogFile, LogTables
from profkit.parsers.log.engine import LogReader, server_row
from profkit.parsers.log.files import rotated_base
from profkit.parsers.log.lines import BlockReader
from profkit.parsers.log.rows import Rows
from profkit.parsers.opening import ByteSource

Progress: TypeAlias = Callable[[float], None]
TABLE_ORDER: Final = ("decode", "prefill", "request", "event", "server", "bench", "nccl")


class LogStream:
    """Reads logs file by file, in stretches of some megabytes.

    ``files`` fills as files end. The facts of a server are known before its batch lines come; its row of the server
    table comes at the end of its file.

    Raises:
        InputError: from the iteration, when a file cannot be read.
    """

    def __init__(
        self, paths: Sequence[Path | str], *, names: Mapping[str, str] | None = None, progress: Progress | None = None
    ) -> None:
        """``names`` says what files are called in the tables where that is not their path."""
        self._paths, self._again = each_once([str(p) for p in paths])
        self._names = {"-": "stdin"} | dict(names or {})
        self._progress = progress
        self.files: list[LogFile] = []
        self._reader: LogReader | None = None
        self._told: dict[tuple[str, int], int] = {}

    def __iter__(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        for stretch in self.stretches():
            for name in TABLE_ORDER:
                if name in stretch:
                    yield name, stretch[name]

    def stretches(self) -> Iterator[dict[str, pa.RecordBatch]]:
        """Batches by table, one stretch of a file after the other."""
        last: tuple[str, LogReader] | None = None
        for path in self._paths:
            base = rotated_base(path)
            reader = LogReader(self._names.get(path, path), last[1] if last is not None and last[0] == base else None)
            yield from self._file(path, reader)
            last = (base, reader)

    def known_servers(self) -> list[tuple[str, dict[str, Any]]]:
        """(file, server row) of the servers of which something new is known since the last call."""
        if self._reader is None:
            return []
        fresh = []
        for server in self._reader.servers:
            key, news = (self._reader.name, server.number), len(server.features) + bool(server.arguments) * 1000
            if self._told.get(key) != news:
                self._told[key] = news
                fresh.append((self._reader.name, server_row(self._reader.name, server)))
        return fresh

    def _file(self, path: str, reader: LogReader) -> Iterator[dict[str, pa.RecordBatch]]:
        source = ByteSource(path)
        blocks = BlockReader(source.chunks())
        self._reader, read = reader, 0
        for block in blocks.blocks():
            batches = reader.feed(block)
            yield batches
            if self._progress is not None:
                self._progress(float(source.raw_read - read))
                read = source.raw_read
        batches = reader.finish()
        if reader.servers:
            rows = Rows(tables.SERVER)
            for server in reader.servers:
                rows.add(server_row(reader.name, server))
            batches["server"] = rows.take()
        yield batches
        problems = [*source.problems, *blocks.problems(), *reader.problems()]
        if self._again:
            problems.append(named_again(self._again))
            self._again = []
        self.files.append(LogFile(reader.name, reader.kind, blocks.lines, blocks.bytes, tuple(problems)))


def read_log(paths: Sequence[Path | str], *, progress: Progress | None = None) -> LogTables:
    """Read server logs, benchmark results and NCCL output into tables held in memory.

    ``progress`` is called with the number of bytes read since its last call.

    Raises:
        InputError: a file cannot be read, or nothing in any of them is known.
    """
    if not paths:
        raise InputError("no log given; name at least one file")
    stream = LogStream(paths, progress=progress)
    parts: dict[str, list[pa.RecordBatch]] = {name: [] for name in TABLE_ORDER}
    for name, batch in stream:
        parts[name].append(batch)
    if all(file.kind == "unknown" for file in stream.files):
        raise InputError(nothing_known(stream.files))
    found = {n: pa.Table.from_batches(p, schema=tables.LOG_TABLES[n]).unify_dictionaries() for n, p in parts.items()}
    return LogTables(files=tuple(stream.files), **found)


def nothing_known(files: Sequence[LogFile]) -> str:
    """One sentence for input without a single known line."""
    names = ", ".join(file.path for file in files[:3]) + (" ..." if len(files) > 3 else "")
    if all(file.bytes == 0 for file in files):
        return f"{names}: empty; give the log of a server that has served requests"
    return f"{names}: no line of an SGLang server, a benchmark or NCCL in it; check that it is the server's log"
