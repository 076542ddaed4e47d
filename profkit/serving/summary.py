"""From the tables of a log to its summary: streaming, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from profkit.logs import LogFile, LogTables
from profkit.serving.columns import codes, groups_of, integers
from profkit.serving.decode_stats import DecodeStats
from profkit.serving.findings import find
from profkit.serving.interpret import Interpreter, ServerKey
from profkit.serving.prefill_stats import PrefillStats
from profkit.serving.request_stats import RequestStats
from profkit.serving.result import LogSummary, ServerSummary
from profkit.serving.series import series

_KEPT_EVENTS = 2000


class _Server:
    """What is collected for one server."""

    def __init__(self) -> None:
        self.facts: Mapping[str, Any] = {}
        self.decode = DecodeStats()
        self.prefill = PrefillStats()
        self.requests = RequestStats()
        self.events: Counter[str] = Counter()
        self.kept_events: list[dict[str, Any]] = []


class Summariser:
    """Give it batches in file order, then ask for the summary.

    Within one stretch of a file: server facts first, then events and prefill lines, then decode lines. Percentiles of
    very long logs come from evenly spaced stretches of lines; counts and means from all of them.
    """

    def __init__(self) -> None:
        self._interpreter = Interpreter()
        self._servers: dict[ServerKey, _Server] = {}
        self._bench: list[dict[str, Any]] = []
        self._root: dict[ServerKey, ServerKey] = {}

    def server(self, file: str, row: Mapping[str, Any]) -> None:
        """Facts of a server; the last that are given count."""
        self._interpreter.server(file, row)
        key = (file, int(row["server"]))
        if row.get("continues"):
            earlier, _, number = str(row["continues"]).rpartition(":")
            self._root[key] = self._root.get((earlier, int(number)), (earlier, int(number)))
        else:
            self._of(key).facts = row

    def push(self, table: str, batch: pa.RecordBatch) -> None:
        """A batch of one of the log tables."""
        if table == "decode":
            for done in self._interpreter.decode(batch):
                self._decoded(done)
        elif table == "prefill":
            self._interpreter.prefill(batch)
            for key, part in _split(batch):
                self._of(key).prefill.add(part)
        elif table == "event":
            self._interpreter.event(batch)
            self._events(batch)
        elif table == "request":
            for key, part in _split(batch):
                self._of(key).requests.add(part)
        elif table == "bench":
            self._bench.extend(batch.to_pylist())
        elif table == "server":
            for row in batch.to_pylist():
                self.server(row["file"], row)

    def summary(self, files: Sequence[LogFile]) -> LogSummary:
        """The summary of everything given so far; call it once, at the end."""
        for done in self._interpreter.finish():
            self._decoded(done)
        servers = tuple(_server_summary(key, self._servers[key]) for key in self._servers)
        warnings = [f"{file.path}: {problem}" for file in files for problem in file.problems]
        return LogSummary(tuple(files), servers, _bench_rows(self._bench), tuple(warnings))

    def _decoded(self, batch: pa.RecordBatch) -> None:
        for key, part in _split(batch):
            self._of(key).decode.add(part)

    def _events(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            server = self._of((row["file"], row["server"]))
            server.events[row["kind"]] += 1
            if len(server.kept_events) < _KEPT_EVENTS:
                server.kept_events.append(row)

    def _of(self, key: ServerKey) -> _Server:
        key = self._root.get(key, key)
        if key not in self._servers:
            self._servers[key] = _Server()
        return self._servers[key]


def summarise(tables: LogTables) -> LogSummary:
    """Summarise the logs of one run: who served what, how fast, and what went wrong."""
    reader = Summariser()
    for row in tables.server.to_pylist():
        reader.server(row["file"], row)
    for name in ("event", "prefill", "request", "bench", "decode"):
        for batch in tables.table(name).unify_dictionaries().combine_chunks().to_batches():
            reader.push(name, batch)
    return reader.summary(tables.files)


def _split(batch: pa.RecordBatch) -> list[tuple[ServerKey, pa.RecordBatch]]:
    files, names = codes(batch, "file")
    parts: list[tuple[ServerKey, pa.RecordBatch]] = []
    for (file, server), rows in groups_of([files, integers(batch, "server", -1)]):
        part = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows, pa.int64()))
        parts.append(((names[file], server), part))
    return parts


def _server_summary(key: ServerKey, found: _Server) -> ServerSummary:
    facts = found.facts
    decode = found.decode
    speculative = facts.get("speculative")
    if speculative is None and decode.speculation_seen():
        speculative = True
    summary = ServerSummary(
        server=key[1],
        engine=facts.get("engine"),
        engine_version=facts.get("engine_version"),
        version_range=(facts.get("version_low"), facts.get("version_high")),
        model=facts.get("model"),
        algorithm=facts.get("algorithm"),
        speculative=speculative,
        num_steps=facts.get("num_steps"),
        topk=facts.get("topk"),
        num_draft_tokens=facts.get("num_draft_tokens"),
        tp=facts.get("tp"),
        dp=facts.get("dp"),
        pp=facts.get("pp"),
        ep=facts.get("ep"),
        decode=decode.summary(),
        by_batch=decode.by_batch(),
        prefill=found.prefill.summary(),
        requests=found.requests.summary(),
        events=dict(sorted(found.events.items())),
        start_line=f"{key[0]}:{facts['line']}" if facts.get("line") else None,
        accept_rate_era=decode.era(),
        accepted_per_draft_token=decode.accepted_share(),
        version_evidence=facts.get("version_evidence"),
        series=series(decode.steady()),
    )
    return replace(summary, findings=find(summary, key[0], decode.sample(), found.kept_events, facts))


def _bench_rows(rows: list[dict[str, Any]]) -> tuple[dict[str, object], ...]:
    """One object per benchmark result, its figures by name."""
    results: dict[tuple[Any, ...], dict[str, object]] = {}
    for row in rows:
        key = (row["file"], row["tool"], row["row"])
        result = results.setdefault(key, {"file": row["file"], "line": row["line"], "tool": row["tool"], "figures": {}})
        figures = result["figures"]
        assert isinstance(figures, dict)
        figures[row["name"]] = row["value"] if row["value"] is not None else row["text"]
    return tuple(results.values())
