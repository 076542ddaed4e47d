"""What kind of file it is, by its content: names lie."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final, Literal, TypeAlias

from profkit.parsers.opening import ByteSource

Content: TypeAlias = Literal["trace", "server", "bench", "nccl", "unknown", "unreadable"]
# Of a log, this much of its beginning and, where it is not packed, of its end is looked at.
_LOOKED_AT: Final = 256 << 10


def is_trace(path: Path | str) -> bool:
    """Whether a file's content begins like a torch-profiler trace (plain or compressed)."""
    with closing(ByteSource(str(path))) as source:
        return _begins_like_a_trace(source.head())


def _begins_like_a_trace(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")) and (
        b'"traceEvents"' in head or b'"deviceProperties"' in head or b'"ph"' in head[:4096]
    )


def content_of(path: Path | str) -> Content:
    """What a file holds, judged by a few hundred KiB of it: a trace, a server's log, benchmark or NCCL output.

    Raises:
        InputError: it cannot be opened or unpacked.
    """
    head = b""
    with closing(ByteSource(str(path))) as source:
        if _begins_like_a_trace(source.head()):
            return "trace"
        for chunk in source.chunks(_LOOKED_AT):
            head += chunk
            if len(head) >= _LOOKED_AT:
                break
    found = _of_lines(head[:_LOOKED_AT])
    size = Path(path).stat().st_size
    if found == "unknown" and size > _LOOKED_AT:
        with Path(path).open("rb") as file:
            file.seek(size - _LOOKED_AT)
            found = _of_lines(file.read(_LOOKED_AT).partition(b"\n")[2])  # nothing known if the file is packed
    return found


def _of_lines(text: bytes) -> Content:
    """What lines of a log tell: a server's by its arguments or batch lines, which nothing else prints."""
    from profkit.parsers.log.engine import LogReader
    from profkit.parsers.log.lines import BlockReader

    reader = LogReader("")
    tables: set[str] = set()
    for block in BlockReader(iter([text])).blocks():
        tables |= set(reader.feed(block))
    tables |= set(reader.finish())
    if tables & {"decode", "prefill"} or any(server.arguments for server in reader.servers):
        return "server"
    return "nccl" if "nccl" in tables else "bench" if "bench" in tables else "unknown"
