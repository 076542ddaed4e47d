"""Bytes of a trace, whatever it is packed in: plain, gzip, zip, zstd, bzip2, xz, a pipe or a remote object.

A damaged or cut-off container yields every byte that can be unpacked; what was wrong is kept in
:attr:`Source.problems`. A container that unpacks without end is refused.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import math
import os
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol, cast

from profkit.errors import InputError, Problem
from profkit.escape import encodable

_GZIP: Any = gzip
_ZLIB: Any = zlib
try:  # two to three times faster than zlib
    from isal import igzip, isal_zlib
except ImportError:  # a platform without wheels
    pass
else:
    _GZIP, _ZLIB = igzip, isal_zlib
_GZIP_ERRORS = (EOFError, OSError, zlib.error, _ZLIB.error)

STDIN = "-"
# Real traces unpack to 10 to 60 times their size; deflate's own limit is 1032.
MAX_RATIO = 300
RATIO_APPLIES_FROM = 1 << 30
MAX_UNPACKED_VARIABLE = "PROFKIT_MAX_UNPACKED_GB"
DEFAULT_MAX_UNPACKED_GB = 64.0
_READ = 1 << 20


class Readable(Protocol):
    """What an unpacker offers."""

    def readinto(self, view: memoryview, /) -> int:
        """Fill ``view`` as far as possible; 0 at the end."""


class _Counted(io.RawIOBase):
    """A file that knows how many of its bytes were read, for progress and for the ratio of a bomb."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.count = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def readinto(self, view: Any) -> int:
        count = cast(io.BufferedReader, self._file).readinto(view)
        self.count += count
        return count

    def peek(self, size: int) -> bytes:
        file = cast(io.BufferedReader, self._file)
        return file.peek(size)[:size]


class _TolerantGzip:
    """Gzip members one after the other; keeps what came before damage instead of failing."""

    def __init__(self, file: io.RawIOBase | io.BufferedIOBase, report: Callable[[str, str], None]) -> None:
        self._file = file
        self._report = report
        self._unpack = self._new()
        self._input = b""
        self._ended = False

    @staticmethod
    def _new() -> Any:
        return _ZLIB.decompressobj(31)

    def _next_input(self) -> bool:
        if not self._input:
            self._input = self._file.read(_READ) or b""
        return bool(self._input)

    def _next_member(self) -> bool:
        """Whether another member follows; anything else behind the last one is reported once."""
        self._input = self._unpack.unused_data
        while self._next_input():
            self._input = self._input.lstrip(b"\0")  # tape padding
            if self._input:
                break
        if not self._input:
            return False
        if len(self._input) < 2:
            self._input += self._file.read(_READ) or b""
        if not self._input.startswith(b"\x1f\x8b"):
            self._report("trailing_garbage", "bytes that are no gzip follow the compressed data and were left out")
            return False
        self._unpack = self._new()
        return True

    def readinto(self, view: memoryview) -> int:
        filled = 0
        while filled < len(view) and not self._ended:
            if not self._next_input():
                self._report("truncated", "the compressed data ends before its end mark")
                self._ended = True
                break
            try:
                data = self._unpack.decompress(self._input, len(view) - filled)
            except _GZIP_ERRORS:
                self._report("damaged_compression", "the compressed data is damaged; what comes after is lost")
                self._ended = True
                break
            view[filled : filled + len(data)] = data
            filled += len(data)
            if self._unpack.eof:
                self._ended = not self._next_member()
            else:
                self._input = getattr(self._unpack, "unconsumed_tail", b"")
        return filled


class _FastGzip:
    """igzip while the file is sound; from the first error on the tolerant reader, from the same place."""

    def __init__(
        self, path: Path, file: io.RawIOBase, report: Callable[[str, str], None], opened: contextlib.ExitStack
    ) -> None:
        self._path = path
        self._report = report
        self._opened = opened
        self._fast: Any = _GZIP.GzipFile(fileobj=cast(IO[bytes], file), mode="rb")
        self._slow: _TolerantGzip | None = None
        self._done = 0

    def readinto(self, view: memoryview) -> int:
        if self._slow is None:
            try:
                count = int(self._fast.readinto(view))
            except _GZIP_ERRORS:
                again = self._opened.enter_context(self._path.open("rb"))
                self._slow = _TolerantGzip(again, self._report)
                self._skip(self._slow)
            else:
                self._done += count
                return count
        return self._slow.readinto(view)

    def _skip(self, reader: _TolerantGzip) -> None:
        scratch = memoryview(bytearray(_READ))
        left = self._done
        while left:
            count = reader.readinto(scratch[: min(left, _READ)])
            if not count:
                break
            left -= count


class _Tolerant:
    """Any other decompressor: an error ends the data and is reported."""

    def __init__(self, file: Any, report: Callable[[str, str], None]) -> None:
        self._file = file
        self._report = report
        self._ended = False

    def readinto(self, view: memoryview) -> int:
        if self._ended:
            return 0
        # In small steps, so that what was unpacked before the damage is not lost with it.
        filled = 0
        while filled < len(view):
            try:
                data = self._file.read(min(len(view) - filled, 1 << 16))
            except Exception as error:
                truncated = isinstance(error, EOFError) or "end" in str(error).lower()
                kind = "truncated" if truncated else "damaged_compression"
                self._report(kind, f"the compressed data is damaged ({type(error).__name__}); what comes after is lost")
                self._ended = True
                break
            if not data:
                break
            view[filled : filled + len(data)] = data
            filled += len(data)
        return filled


def _max_unpacked() -> int:
    text = os.environ.get(MAX_UNPACKED_VARIABLE, "")
    try:
        limit = float(text) if text else DEFAULT_MAX_UNPACKED_GB
    except ValueError:
        limit = DEFAULT_MAX_UNPACKED_GB
    return int(limit * 1e9) if math.isfinite(limit) else sys.maxsize


class Source:
    """An opened trace: unpacked bytes in order, with counters.

    Attributes:
        label: the name for messages.
        packed: whether the bytes come out of a compressed container.
        unpacked: bytes handed out so far.
        problems: damage of the container, at most one of each kind.
        truncated: whether the container ended too early.
    """

    def __init__(self, label: str, file: IO[bytes], path: Path | None = None, member: str | None = None) -> None:
        self.label = label
        self.problems: list[Problem] = []
        self.truncated = False
        self.unpacked = 0
        self._limit = _max_unpacked()
        self._file = file
        self._counted = _Counted(file)
        # Closed together, in whatever state of damage.
        self._opened = contextlib.ExitStack()
        if file is not sys.stdin.buffer:
            self._opened.callback(file.close)
        try:
            self._reader, self.packed = self._unpacker(path, member)
        except BaseException:
            self._opened.close()
            raise

    def _report(self, kind: str, detail: str) -> None:
        if kind in ("truncated", "damaged_compression"):
            self.truncated = True
        if all(p.kind != kind for p in self.problems):
            self.problems.append(Problem(kind, 1, detail, f"byte {self.unpacked} unpacked"))

    def _unpacker(self, path: Path | None, member: str | None) -> tuple[Readable, bool]:
        head = self._counted.peek(6)
        if not head:
            raise InputError(f"{self.label}: the file is empty")
        if head[:2] == b"\x1f\x8b":
            if path is None:
                return _TolerantGzip(self._counted, self._report), True
            return _FastGzip(path, self._counted, self._report, self._opened), True
        if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
            opened = self._opened.enter_context(_open_member(self.label, self._file, member))
            return _Tolerant(opened, self._report), True
        if head[:4] == b"\x28\xb5\x2f\xfd":
            return _Tolerant(_open_zstd(self.label, self._counted), self._report), True
        if head[:3] == b"BZh":
            return _Tolerant(bz2.BZ2File(cast(IO[bytes], self._counted)), self._report), True
        if head == b"\xfd7zXZ\0":
            return _Tolerant(lzma.LZMAFile(cast(IO[bytes], self._counted)), self._report), True
        return self._counted, False

    @property
    def consumed(self) -> int:
        """Bytes of the file itself that were read so far."""
        return self._counted.count

    def readinto(self, view: memoryview) -> int:
        """Fill ``view`` completely unless the data ends; returns the number of bytes, 0 at the end.

        Raises:
            InputError: the container unpacks to an absurd size.
        """
        filled = 0
        while filled < len(view):
            count = self._reader.readinto(view[filled:])
            if not count:
                break
            filled += count
        self.unpacked += filled
        if self.packed:
            self._check_size()
        return filled

    def _check_size(self) -> None:
        if self.unpacked > self._limit:
            raise InputError(
                f"{self.label}: unpacks to more than {self._limit / 1e9:g} GB; "
                f"if that is meant, raise {MAX_UNPACKED_VARIABLE}"
            )
        if self.unpacked > RATIO_APPLIES_FROM and self.unpacked > MAX_RATIO * max(self.consumed, 1):
            raise InputError(
                f"{self.label}: unpacks to over {MAX_RATIO} times its size, which no trace does; "
                "unpack it by hand if it is sound"
            )

    def close(self) -> None:
        """Close everything that was opened."""
        self._opened.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open_zstd(label: str, file: io.RawIOBase) -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise InputError(f"{label}: is zstd-compressed; pip install 'profkit[zstd]' to read it") from error
    return zstandard.ZstdDecompressor().stream_reader(cast(IO[bytes], file), read_across_frames=True)


def zip_members(path: Path) -> list[str]:
    """Names of the members of a zip archive that may be traces, in archive order.

    Raises:
        InputError: the archive cannot be listed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return [m.filename for m in archive.infolist() if ".json" in m.filename and not m.is_dir()]
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{path}: the zip archive cannot be read ({error}); unpack it with a repair tool") from error


def _open_member(label: str, file: IO[bytes], member: str | None) -> Any:
    if not file.seekable():
        file = io.BytesIO(file.read())
    try:
        archive = zipfile.ZipFile(file)
        if member is None:
            names = [m.filename for m in archive.infolist() if ".json" in m.filename and not m.is_dir()]
            if len(names) != 1:
                raise InputError(f"{label}: the zip archive holds {len(names)} JSON files; read it with read_traces")
            member = names[0]
        opened: Any = archive.open(member)
    except (zipfile.BadZipFile, KeyError, RuntimeError, NotImplementedError) as error:
        raise InputError(f"{label}: the zip archive cannot be read ({error}); unpack it by hand") from error
    if member.endswith(".gz"):
        return _GZIP.GzipFile(fileobj=opened, mode="rb")
    return opened


def open_source(path: Path | str, member: str | None = None) -> Source:
    """Open a file, ``-`` (standard input) or a URL that fsspec knows; ``member`` picks one of a zip archive.

    Raises:
        InputError: it does not exist, is a folder, is empty, or needs a package that is not installed.
    """
    text = str(path)
    if text == STDIN:
        return Source("standard input", cast(IO[bytes], sys.stdin.buffer))
    if "://" in text:
        return Source(text, _open_remote(text))
    where = Path(path)
    label = encodable(f"{text}!{member}" if member else text)
    try:
        file = where.open("rb")
    except IsADirectoryError as error:
        raise InputError(f"{text}: is a folder; read_traces reads folders") from error
    except OSError as error:
        raise InputError(f"{text}: {error.strerror or error}; check the path") from error
    return Source(label, file, where if where.is_file() else None, member)


def _open_remote(url: str) -> IO[bytes]:
    try:
        import fsspec
    except ImportError as error:
        raise InputError(f"{url}: is remote; pip install 'profkit[remote]' and the filesystem's package") from error
    try:
        return io.BufferedReader(fsspec.open(url, "rb").open())
    except Exception as error:
        raise InputError(f"{url}: cannot be opened ({type(error).__name__}: {error})") from error
