"""Files as bytes: plain, gzip, zstd, zip and standard input, with bounded memory.

Damage (a cut archive, garbage behind it, a bomb) never raises once bytes came out: it is counted as a
:class:`~profkit.errors.Problem` and what could be read stays usable.
"""

from __future__ import annotations

import select
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from profkit.errors import InputError, Problem

CHUNK: Final = 4 << 20  # larger chunks leave the caches and take more memory
_INPUT_CHUNK: Final = 256 << 10
_HEAD: Final = 64 << 10
_ZSTD_STEP: Final = 64 << 10
# Text logs shrink 5 to 50 times; gzip cannot exceed 1032 and only degenerate input comes near it.
BOMB_RATIO: Final = 500
BOMB_FLOOR: Final = 256 << 20

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZIP = b"PK\x03\x04"


class ByteSource:
    """One input as a stream of byte chunks; ``-`` is standard input.

    ``name`` is the path as given; ``problems`` is complete when the stream has ended. ``raw_read`` counts bytes
    taken from the file, ``size`` is the file's size or ``None`` for streams: together they make a progress bar.

    Raises:
        InputError: the file cannot be opened or its compression cannot be read at all.
    """

    def __init__(self, path: Path | str, *, stream: IO[bytes] | None = None) -> None:
        self.name = str(path)
        self.problems: list[Problem] = []
        self.raw_read = 0
        self.size: int | None = None
        self._out = 0
        self._file: IO[bytes]
        if stream is not None:
            self._file = stream
        elif self.name == "-":
            self._file = sys.stdin.buffer
        else:
            try:
                self.size = Path(path).stat().st_size
                self._file = Path(path).open("rb")  # noqa: SIM115 (closed with the stream)
            except OSError as error:
                raise InputError(f"{self.name}: {error.strerror or error}; check the path") from error
        self._first = self._read_raw(_INPUT_CHUNK)
        self._chunks = self._guarded(self._open())
        self._head = b""

    def head(self) -> bytes:
        """The first bytes (up to 64 KiB) after decompression; the stream still starts at its beginning."""
        while len(self._head) < _HEAD:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self._head += chunk
        return self._head[:_HEAD]

    def chunks(self, size: int = CHUNK) -> Iterator[bytes]:
        """Decompressed chunks of about ``size`` bytes, smaller from a slow pipe; the file is closed at the end."""
        parts, held = [self._head], len(self._head)
        self._head = b""
        try:
            for chunk in self._chunks:
                parts.append(chunk)
                held += len(chunk)
                if held >= size or (self.size is None and not self._more_waits()):
                    yield b"".join(parts)
                    parts, held = [], 0
            if held:
                yield b"".join(parts)
        finally:
            self.close()

    def _more_waits(self) -> bool:
        """Whether a pipe has more to read at once; a slow writer must not keep what it wrote from its reader."""
        try:
            return bool(select.select([self._file], [], [], 0)[0])
        except (OSError, ValueError, TypeError):
            return True

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self._file is not sys.stdin.buffer:
            self._file.close()

    def _problem(self, kind: str, detail: str) -> None:
        self.problems.append(Problem(kind, 1, detail, f"byte {self._out}"))

    def _read_raw(self, size: int) -> bytes:
        try:
            data = self._file.read1(size) if hasattr(self._file, "read1") else self._file.read(size)
        except OSError as error:
            raise InputError(f"{self.name}: {error.strerror or error}; check that it is a readable file") from error
        self.raw_read += len(data)
        return bytes(data)

    def _raw(self, size: int = _INPUT_CHUNK) -> Iterator[bytes]:
        data, self._first = self._first, b""
        while data:
            yield data
            data = self._read_raw(size)

    def _open(self) -> Iterator[bytes]:
        while len(self._first) < 4:
            more = self._read_raw(4)
            if not more:
                break
            self._first += more
        if self._first.startswith(_GZIP):
            return self._gzip()
        if self._first.startswith(_ZSTD):
            return self._zstd()
        if self._first.startswith(_ZIP):
            return self._zip()
        return self._raw(4 << 20)

    def _guarded(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        packed = self._first[:2] == _GZIP or self._first.startswith((_ZSTD, _ZIP))
        for chunk in chunks:
            yield chunk
            self._out += len(chunk)
            if packed and self._out > BOMB_FLOOR and self._out > BOMB_RATIO * max(self.raw_read, 1):
                self._problem(
                    "decompression_bomb",
                    f"unpacks to more than {BOMB_RATIO} times its size; reading stopped here",
                )
                return

    def _gzip(self) -> Iterator[bytes]:
        from isal import isal_zlib

        broken: Any = isal_zlib.error

        def fresh() -> Any:
            return isal_zlib.decompressobj(wbits=31)

        member, pending, finished = fresh(), b"", False
        for block in self._raw():
            pending += block
            while pending:
                if finished:
                    pending = pending.lstrip(b"\0")
                    if len(pending) < 2:
                        break
                    if not pending.startswith(_GZIP):
                        self._problem("trailing_garbage", "bytes after the end of the compressed data were ignored")
                        return
                    member, finished = fresh(), False
                try:
                    data = member.decompress(pending, CHUNK)
                except broken as error:
                    self._damaged("gzip", error)
                    return
                pending = member.unconsumed_tail or member.unused_data
                finished = member.eof
                if data:
                    yield data
                elif not finished:
                    break
        if not finished:
            self._problem("truncated", "the compressed data end before their end mark")

    def _damaged(self, form: str, error: Exception) -> None:
        if not self._out:
            raise InputError(f"{self.name}: broken {form} data ({error}); compress or copy the file again") from error
        self._problem("corrupt", f"broken {form} data ({error}); the rest was not read")

    def _zstd(self) -> Iterator[bytes]:
        import pyarrow as pa

        raw: Any = _Tee(self)
        with pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd") as stream:
            while True:
                try:
                    data = stream.read(_ZSTD_STEP)  # what a broken end takes with it
                except OSError as error:
                    if "ended" in str(error) or "truncated" in str(error).lower():
                        self._problem("truncated", "the compressed data end before their end mark")
                    else:
                        self._damaged("zstd", error)
                    return
                if not data:
                    return
                yield data

    def _zip(self) -> Iterator[bytes]:
        if self.size is None:
            raise InputError(f"{self.name}: a zip archive cannot be read from a pipe; give its file name")
        self.close()
        try:
            with zipfile.ZipFile(self.name) as archive:
                for member in archive.infolist():
                    if member.is_dir():
                        continue
                    with archive.open(member) as file:
                        self.raw_read += member.compress_size
                        while data := file.read(1 << 20):
                            yield data
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, OSError) as error:
            self._damaged("zip", error)


class _Tee:
    """The raw bytes of a source as a file object, for readers that want one."""

    closed = False

    def __init__(self, source: ByteSource) -> None:
        self._blocks = source._raw()
        self._left = b""

    def read(self, size: int = -1) -> bytes:
        while not self._left:
            block = next(self._blocks, b"")
            if not block:
                return b""
            self._left = block
        data, self._left = (self._left, b"") if size < 0 else (self._left[:size], self._left[size:])
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
