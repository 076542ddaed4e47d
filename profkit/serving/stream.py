"""Log batches as they are read, interpreted on the way: nothing is held but what a decision needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from profkit.logs import LogFile
from profkit.serving.interpret import Interpreter
from profkit.serving.result import LogSummary
from profkit.serving.summary import Summariser

# Within one stretch of a file the decode lines are looked at last: what stands around them is known then.
_ORDER = ("server", "event", "prefill", "request", "bench", "nccl", "decode")


class LogSource(Protocol):
    """What a reader of logs offers: stretches of a file as batches by table, and facts of the servers so far."""

    files: list[LogFile]

    def stretches(self) -> Iterator[dict[str, pa.RecordBatch]]:
        """The batches of one stretch of a file after the other."""
        ...

    def known_servers(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """(file, row of the server table) of every server whose facts are new since the last call."""
        ...


def interpreted(source: LogSource) -> Iterator[tuple[str, pa.RecordBatch]]:
    """All batches with their table's name, decode rows interpreted; rows of a table in file order."""
    reader = Interpreter()
    for stretch in source.stretches():
        for file, row in source.known_servers():
            reader.server(file, row)
        for name in _ORDER:
            batch = stretch.get(name)
            if batch is None:
                continue
            if name == "event":
                reader.event(batch)
            elif name == "prefill":
                reader.prefill(batch)
            if name == "decode":
                yield from (("decode", done) for done in reader.decode(batch))
            else:
                yield name, batch
    yield from (("decode", done) for done in reader.finish())


def summarise_stream(source: LogSource) -> LogSummary:
    """The summary of a log while it is read, in bounded memory."""
    reader = Summariser()
    for stretch in source.stretches():
        for file, row in source.known_servers():
            reader.server(file, row)
        for name in _ORDER:
            if name in stretch:
                reader.push(name, stretch[name])
    return reader.summary(source.files)
