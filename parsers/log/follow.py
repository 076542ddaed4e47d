"""The lines of a file that is still being written: rotation, truncation, slow writers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Final

from profkit.errors import InputError
from profkit.parsers.log.lines import KEPT_OF_LONG_LINE, MAX_LINE, Block

_STEP: Final = 8 << 20
_HEAD: Final = 256


class Follower:
    """Call :meth:`poll` from time to time; it returns only whole lines.

    A file that was replaced under its name is read to its end before the new one is opened; a file that became shorter,
    or begins otherwise than before, is read again from its start. ``restarts`` counts both.

    Raises:
        InputError: the file is not there when following begins.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.restarts = 0
        self._file: IO[bytes] | None = None
        self._line = 1
        self._rest = b""
        self._head = b""
        self._dropping = False
        if not self._open():
            raise InputError(f"{path}: no such file; start the server first, or check the path")

    def poll(self) -> Block | None:
        """The next lines, at most 8 MiB of them, or ``None`` if there are none yet."""
        if self._file is None and not self._open():
            return None
        data = self._read()
        if not data and self._replaced():
            self._restart()
            data = self._read()
        return self._lines(data) if data else None

    def close(self) -> None:
        """Stop following."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> bool:
        try:
            self._file = self.path.open("rb")
        except FileNotFoundError:
            return False
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror or error}; check that it is a readable file") from error
        self._head = b""
        return True

    def _read(self) -> bytes:
        if self._file is None:
            return b""
        position = self._file.tell()
        size = os.fstat(self._file.fileno()).st_size
        self._file.seek(0)
        head = self._file.read(min(_HEAD, size))
        if size < position or not head.startswith(self._head):
            # Truncated in place, and perhaps filled again since the last look.
            self._forget()
            position = 0
        self._head = head
        self._file.seek(position)
        return self._file.read(_STEP)

    def _replaced(self) -> bool:
        if self._file is None:
            return True
        try:
            now = self.path.stat()
        except OSError:
            return False  # between two files of a rotation
        mine = os.fstat(self._file.fileno())
        return (now.st_ino, now.st_dev) != (mine.st_ino, mine.st_dev)

    def _restart(self) -> None:
        self.close()
        self._forget()
        self._open()

    def _forget(self) -> None:
        self.restarts += 1
        self._line, self._rest, self._head, self._dropping = 1, b"", b"", False

    def _lines(self, data: bytes) -> Block | None:
        if self._dropping:
            end = data.find(b"\n")
            if end < 0:
                return None
            data, self._dropping = data[end:], False
        whole = self._rest + data
        cut = whole.rfind(b"\n") + 1
        self._rest = whole[cut:]
        if len(self._rest) > MAX_LINE:
            self._rest, self._dropping = self._rest[:KEPT_OF_LONG_LINE], True
        if not cut:
            return None
        block = Block(whole[:cut], self._line)
        self._line += block.data.count(b"\n")
        return block
