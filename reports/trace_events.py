"""Writing Chrome trace JSON: streamed, ``traceEvents`` last, the same bytes for the same events."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from profkit import escape, files

_FLUSH_AT = 1 << 20


def microseconds(nanoseconds: int) -> str:
    """Integer nanoseconds as the decimal microseconds that trace files hold, exactly."""
    sign, value = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    return f"{sign}{value // 1000}.{value % 1000:03d}"


def quoted(text: str) -> str:
    """A name from a file as a JSON string, without characters that a page or a terminal would act on."""
    return json.dumps(escape.visible(text), ensure_ascii=True).replace("</", "<\\/")


def members(values: Mapping[str, Any]) -> str:
    """The members of a JSON object without its braces; ``None`` is left out, order is kept."""
    parts = [f"{json.dumps(k)}: {_value(v)}" for k, v in values.items() if v is not None]
    return ", ".join(parts)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


class EventSink:
    """Takes events as JSON text and writes them in order."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._parts: list[str] = []
        self._size = 0
        self.count = 0

    def raw(self, event: str) -> None:
        """One event as the text of its JSON object."""
        self._parts.append(f",\n{event}" if self.count else event)
        self.count += 1
        self._size += len(event)
        if self._size > _FLUSH_AT:
            self.flush()

    def complete(
        self, name: str, category: str, pid: int | str, tid: int | str, start_ns: int, duration_ns: int,
        args: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """A complete event (``X``); times in ns from the origin."""
        tail = f', "args": {{{members(args)}}}' if args else ""
        self.raw(
            f'{{"ph": "X", "cat": "{category}", "name": {quoted(name)}, "pid": {json.dumps(pid)}, "tid": '
            f'{json.dumps(tid)}, "ts": {microseconds(start_ns)}, "dur": {microseconds(duration_ns)}{tail}}}'
        )

    def flow(self, step: str, name: str, number: int, pid: int | str, tid: int | str, at_ns: int) -> None:
        """A flow event: ``step`` is ``s`` (start), ``t`` (step) or ``f`` (end)."""
        bind = ', "bp": "e"' if step == "f" else ""
        self.raw(
            f'{{"ph": "{step}", "cat": "collective", "name": {quoted(name)}, "id": {number}, "pid": {json.dumps(pid)}, '
            f'"tid": {json.dumps(tid)}, "ts": {microseconds(at_ns)}{bind}}}'
        )

    def name(self, key: str, pid: int | str, tid: int | str | None, value: str | int) -> None:
        """Metadata: ``process_name``, ``thread_name``, ``process_sort_index``, ``thread_sort_index`` ..."""
        what = {"process_labels": "labels"}.get(key, "sort_index" if key.endswith("sort_index") else "name")
        thread = "" if tid is None else f', "tid": {json.dumps(tid)}'
        self.raw(
            f'{{"ph": "M", "name": "{key}", "pid": {json.dumps(pid)}{thread}, "ts": 0, '
            f'"args": {{{members({what: value})}}}}}'
        )

    def flush(self) -> None:
        """Hand what is gathered to the stream."""
        self._stream.write("".join(self._parts).encode("ascii"))
        self._parts.clear()
        self._size = 0


@contextlib.contextmanager
def writing_trace(path: Path, head: Mapping[str, Any], *, force: bool = False) -> Iterator[EventSink]:
    """Write ``path`` (gzip when it ends in ``.gz``) atomically; ``head`` are the document's other members.

    Raises:
        UsageError: the file exists and ``force`` is false, or cannot be written.
    """
    with files.writing(path, force=force) as temporary, temporary.open("wb") as file:
        packed = path.suffix == ".gz"
        stream: Any = gzip.GzipFile("", "wb", 6, file, mtime=0) if packed else file
        try:
            stream.write(f'{{{members(head)}{", " if head else ""}"traceEvents": [\n'.encode("ascii"))
            sink = EventSink(stream)
            yield sink
            sink.flush()
            stream.write(b"\n]}\n")
        finally:
            if packed:
                stream.close()
