"""What kind of file it is, by its content: names lie."""

from __future__ import annotations

from pathlib import Path

from profkit.parsers.opening import ByteSource


def is_trace(path: Path | str) -> bool:
    """Whether a file's content begins like a torch-profiler trace (plain or compressed)."""
    source = ByteSource(str(path))
    head = source.head()
    source.close()
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")) and (
        b'"traceEvents"' in head or b'"deviceProperties"' in head or b'"ph"' in head[:4096]
    )
