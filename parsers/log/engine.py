"""The reader of one server log: blocks of lines in, record batches of the log tables out, in file order."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pyarrow as pa

from profkit import tables
from profkit.errors import Problem
from profkit.escape import encodable
from profkit.parsers.log.batch import BatchLine, line_kind, read_batch
from profkit.parsers.log.events import read_event
from profkit.parsers.log.fast_rows import FastRows, merged
from profkit.parsers.log.lines import Block, logical_lines
from profkit.parsers.log.others import OtherReaders
from profkit.parsers.log.prefix import RANK_NAMES, Prefix, PrefixReader, read_standard
from profkit.parsers.log.requests import read_request
from profkit.parsers.log.rows import Rows
from profkit.parsers.log.segments import Segmenter, ServerStart
from profkit.parsers.log.tracebacks import TracebackReader
from profkit.parsers.log.versions import line_features, version_range
from profkit.parsers.server_args import parse_server_args

STREAMED: Final = ("decode", "prefill", "request", "event", "bench", "nccl")
_MESSAGE_LIMIT: Final = 2000
_CONTAINER_JSON: Final = b'{"log":"'
_BARE_STARTS: Final = (b"Finish: obj=", b"server_args=", b'{"timestamp"', b"Traceback (most recent call last):")
_GLUED: Final = re.compile(rb"\[[^\[\]]{2,120}\] ((?:Decode|Prefill) batch)")


class LogReader:
    """Reads one file; feed it blocks in order, then call :meth:`finish`.

    ``servers`` grows while lines are read: the arguments of a server are known before its batch lines. ``damaged``
    counts batch lines that are listed but not read, ``recognised`` all lines that SGLang wrote.
    """

    def __init__(self, name: str, follows: LogReader | None = None) -> None:
        """``follows`` is the reader of the part before, when a rotated log goes on in this file."""
        self.name = name = encodable(name)
        self.recognised = 0
        self.damaged: dict[str, int] = {}
        self._first_damaged = 0
        self._prefixes = PrefixReader()
        self._fast = FastRows(name)
        self._segments = Segmenter(self._fast.settle)
        self._rows = {table: Rows(tables.LOG_TABLES[table]) for table in STREAMED}
        self._traceback = TracebackReader()
        self._others = OtherReaders(name)
        self._line = 0
        if follows is not None:
            self._prefixes = follows._prefixes
            self._segments.follow(follows._segments, follows.name)

    @property
    def servers(self) -> list[ServerStart]:
        """The servers found so far."""
        return self._segments.servers

    def feed(self, block: Block) -> dict[str, pa.RecordBatch]:
        """Read the lines of a block; the rows they gave, by table."""
        found = self._fast.read(block, self._segments)
        self.recognised += found.skipped + self._fast.rows
        for number, line in found.rest:
            self.read_line(block.first_line + number, line)
        return self.take()

    @property
    def kind(self) -> str:
        """What the file holds: sglang, bench, nccl, vllm, mixed, or unknown."""
        kinds = self._others.kinds | ({"sglang"} if self.recognised else set())
        return "mixed" if len(kinds) > 1 else next(iter(kinds), "unknown")

    def take(self, *, end: bool = False) -> dict[str, pa.RecordBatch]:
        """Rows since the last call, by table; tables without rows are left out."""
        for table, others in self._others.take(end=end).items():
            for row in others:
                self._rows[table].add({**row, "server": self._vllm_server(row)} if table == "decode" else row)
        fast = self._fast.take()
        taken = {}
        for name, rows in self._rows.items():
            parts = [*([rows.take()] if len(rows) else []), *fast.get(name, [])]
            if parts:
                taken[name] = merged(parts)
        return taken

    def finish(self) -> dict[str, pa.RecordBatch]:
        """The rows that waited for the end of the file."""
        self._end_traceback()
        return self.take(end=True)

    def _vllm_server(self, row: dict[str, Any]) -> int:
        server = self._segments.of_line("vllm", row["line"], row["time"], dated=False)
        server.engine, server.batches = "vllm", True
        return server.number

    def problems(self) -> list[Problem]:
        """Counted defects of the lines read."""
        found = []
        if self._others.cut:
            found.append(Problem("cut_benchmark", 1, "the last benchmark result is cut", None))
        if not self.damaged:
            return found
        count, kinds = sum(self.damaged.values()), sorted(self.damaged.items(), key=lambda x: (-x[1], x[0]))
        reasons = ", ".join(f"{why} ({n})" if len(kinds) > 1 else why for why, n in kinds[:5])
        detail = f"batch lines not read: {reasons}"
        return [*found, Problem("damaged_batch_line", count, detail, f"line {self._first_damaged}")]

    def read_line(self, number: int, raw: bytes) -> None:
        """Read one physical line."""
        if number != self._line + 1:
            self._end_traceback()  # the lines between have prefixes
        self._line = number
        if raw.startswith(_CONTAINER_JSON):
            raw = _of_container(raw)
        for part in logical_lines(raw.strip(b"\0") if b"\0" in raw else raw):
            self._read_part(part)

    def _read_part(self, line: bytes) -> None:
        prefix = self._prefixes.read(line)
        start = prefix.length if prefix else 0
        kind = line_kind(line, start)
        if kind is not None and prefix is not None:
            self._end_traceback()
            end = self._end_of_batch(line, start)
            self._batch(read_batch(kind, line[start:end]), prefix)
            if end < len(line):
                self._read_part(line[end:])
            return
        if prefix is None and not line.startswith(_BARE_STARTS):
            if not self._others.feed(self._line, line):
                self._traceback.add(line)
            return
        self._message(line, start, prefix)

    def _end_of_batch(self, line: bytes, start: int) -> int:
        """Where the message ends: another process may have written its line into the same physical line."""
        for glued in _GLUED.finditer(line, start + 12):
            inner = read_standard(glued[0])
            if inner is not None and glued.start() + inner.length == glued.end() - len(glued[1]):
                return glued.start()
        return len(line)

    def _message(self, line: bytes, start: int, prefix: Prefix | None) -> None:
        if line.startswith((b"INFO:  ", b"Receive: ", b"Receive OpenAI: "), start):
            self.recognised += 1
            self._end_traceback()
            return
        message = line[start : start + _MESSAGE_LIMIT].decode("utf-8", "replace")
        if message.startswith("server_args="):
            self._server_start(line[start:].decode("utf-8", "replace"), prefix)
            return
        if message.startswith(("Finish: ", "{", "Req")):
            request = read_request(line[start:].decode("utf-8", "replace"))
            if request is not None:
                self._end_traceback()
                self.recognised += 1
                self._rows["request"].add({**self._place(prefix, self._of_line(prefix)), **request})
                return
        self._end_traceback()
        event = read_event(message)
        if prefix is not None and prefix.rank_names:
            self.recognised += 1
        if event is not None:
            self.recognised += 1
            if event.kind == "ready":
                self._of_line(prefix).ready = True
            fields = event.fields
            if event.kind == "exception":
                self._traceback.begin(self._event_row(prefix, event.kind, fields), self._line)
                return
            self._rows["event"].add(self._event_row(prefix, event.kind, fields))
        elif message.startswith("Traceback (most recent call last):"):
            row = self._event_row(prefix, "traceback", {}) if prefix else self._event_row(None, "traceback", {})
            self._traceback.begin(row, self._line)

    def _server_start(self, message: str, prefix: Prefix | None) -> None:
        arguments = parse_server_args(message[len("server_args=") :])
        if arguments is None:
            return
        self._end_traceback()
        self.recognised += 1
        source, time, dated = _where(prefix)
        server = self._segments.start(source, self._line, time, dated, arguments)
        if message.startswith("server_args={"):
            server.features.add("arguments_as_dict")
        fields = {k: str(arguments[k]) for k in ("model_path", "tp_size", "speculative_algorithm") if k in arguments}
        row = {**self._place(prefix, server), **_ranks(prefix), "kind": "server_start", "fields": fields}
        self._rows["event"].add(row)

    def _batch(self, found: BatchLine, prefix: Prefix) -> None:
        self.recognised += 1
        source, time, dated = _where(prefix)
        server = self._segments.of_batch(source, prefix.rank_names, self._line, time, dated)
        row = {**self._place(prefix, server), **_ranks(prefix), **found.values, "extra": found.extra, "flags": []}
        if found.damage is not None:
            row["flags"] = ["damaged"]
            self._first_damaged = self._first_damaged or self._line
            self.damaged[found.damage] = self.damaged.get(found.damage, 0) + 1
        else:
            server.features |= line_features(prefix, found)
        self._rows[found.kind].add(row)

    def _of_line(self, prefix: Prefix | None) -> ServerStart:
        source, time, dated = _where(prefix)
        return self._segments.of_line(source, self._line, time, dated)

    def _event_row(self, prefix: Prefix | None, kind: str, fields: dict[str, str]) -> dict[str, Any]:
        return {**self._place(prefix, self._of_line(prefix)), **_ranks(prefix), "kind": kind, "fields": fields}

    def _end_traceback(self) -> None:
        row = self._traceback.end()
        if row is not None:
            self._rows["event"].add(row)

    def _place(self, prefix: Prefix | None, server: ServerStart) -> dict[str, Any]:
        _, time, dated = _where(prefix)
        return {
            "file": self.name,
            "line": self._line,
            "time": time,
            "timestamp": time if dated else None,
            "server": server.number,
        }


def _of_container(line: bytes) -> bytes:
    """The server's line inside a line of docker's JSON log files."""
    try:
        text = json.loads(line)["log"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return line
    return text.encode("utf-8", "replace").rstrip(b"\n") if isinstance(text, str) else line


def _where(prefix: Prefix | None) -> tuple[str, float | None, bool]:
    return ("", None, False) if prefix is None else (prefix.source, prefix.time, prefix.dated)


def _ranks(prefix: Prefix | None) -> dict[str, int | None]:
    return {} if prefix is None else dict(zip(RANK_NAMES, prefix.ranks, strict=True))


def server_row(name: str, server: ServerStart) -> dict[str, Any]:
    """The row of the server table for one server."""
    known = server.arguments or {}
    low, high, evidence = version_range(server)
    algorithm = known.get("speculative_algorithm")
    return {
        "file": name,
        "line": server.line,
        "time": server.time,
        "timestamp": server.time if server.dated else None,
        "server": server.number,
        "engine": server.engine,
        "engine_version": server.version,
        "version_low": low,
        "version_high": high,
        "version_evidence": evidence,
        "algorithm": str(algorithm) if algorithm else None,
        "speculative": None if server.arguments is None else bool(algorithm),
        "num_steps": _integer(known.get("speculative_num_steps")),
        "topk": _integer(known.get("speculative_eagle_topk")),
        "num_draft_tokens": _integer(known.get("speculative_num_draft_tokens")),
        "tp": _integer(known.get("tp_size")),
        "dp": _integer(known.get("dp_size")),
        "pp": _integer(known.get("pp_size")),
        "ep": _integer(known.get("ep_size")),
        "model": _text(known.get("model_path")),
        "draft_model": _text(known.get("speculative_draft_model_path")),
        "quantization": _text(known.get("quantization")),
        "decode_log_interval": _integer(known.get("decode_log_interval")),
        "continues": server.continues,
        "server_args": None if server.arguments is None else json.dumps(known, ensure_ascii=False, default=str),
    }


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
