"""Byte chunks to blocks of whole lines, and one physical line to the logical lines in it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profkit.errors import Problem

MAX_LINE: Final = 4 << 20
KEPT_OF_LONG_LINE: Final = 64 << 10
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


@dataclass(slots=True)
class Block:
    """Whole lines: ``data`` ends with a newline unless it is the file's last block."""

    data: bytes
    first_line: int  # 1 for the first line of the file
    last: bool = False


class BlockReader:
    """Cuts a stream of chunks at line ends; lines beyond 4 MiB keep their first 64 KiB and are counted."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.lines = 0
        self.bytes = 0
        self.long_lines: list[int] = []
        self.encoding: str | None = None

    def problems(self) -> list[Problem]:
        """What was wrong with the lines; complete after the last block."""
        found = []
        if self.long_lines:
            where = f"line {self.long_lines[0]}"
            found.append(Problem("long_line", len(self.long_lines), "lines over 4 MiB were cut to 64 KiB", where))
        if self.encoding:
            found.append(Problem("encoding", 1, f"the text is {self.encoding}; it was converted to UTF-8", "line 1"))
        return found

    def blocks(self) -> Iterator[Block]:
        """All lines of the stream, in order."""
        held: list[bytes] = []
        length = 0
        skipping = False
        for chunk in self._decoded():
            self.bytes += len(chunk)
            start = 0
            if skipping:
                start = chunk.find(b"\n")
                if start < 0:
                    continue
                skipping = False
            cut = chunk.rfind(b"\n") + 1
            if cut > start:
                held.append(chunk[start:cut])
                yield self._block(b"".join(held))
                held, length, start = [], 0, cut
            if start < len(chunk):
                held.append(chunk[start:])
                length += len(chunk) - start
                if length > MAX_LINE:
                    held, skipping = [b"".join(held)[:KEPT_OF_LONG_LINE]], True
                    length = KEPT_OF_LONG_LINE
                    self.long_lines.append(self.lines + 1)
        if held:
            block = Block(b"".join(held), self.lines + 1, last=True)
            self.lines += 1
            yield block

    def _block(self, data: bytes) -> Block:
        block = Block(data, self.lines + 1)
        self.lines += data.count(b"\n")
        return block

    def _decoded(self) -> Iterator[bytes]:
        first = next(self._chunks, b"")
        if first.startswith(codecs.BOM_UTF8):
            yield first[3:]
        elif first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            # What a Windows shell's redirection writes.
            self.encoding = "UTF-16"
            decoder = codecs.getincrementaldecoder("utf-16")("replace")
            yield decoder.decode(first).encode("utf-8", "replace")
            for chunk in self._chunks:
                yield decoder.decode(chunk).encode("utf-8", "replace")
            return
        elif first:
            yield first
        yield from self._chunks


def logical_lines(raw: bytes) -> list[bytes]:
    """The parts of one physical line: without colour codes, split where a progress bar returned the carriage."""
    if b"\x1b" in raw:
        raw = _ANSI.sub(b"", raw)
    if b"\r" not in raw:
        return [raw]
    return [part for part in raw.split(b"\r") if part]
