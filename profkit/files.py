"""Writing output files: nothing is overwritten by accident, nothing is left half written."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from profkit.errors import UsageError


@contextlib.contextmanager
def writing(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; renamed onto it on success, removed on failure.

    A device or a pipe is no file that could be lost: it is yielded itself.

    Raises:
        UsageError: ``path`` is a folder, exists and ``force`` is false, or its folder cannot be written.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file")
    if path.exists() and not path.is_file():
        yield path
        return
    if path.exists() and not force:
        raise UsageError(f"{path} exists; choose another name or give --force to overwrite it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, force: bool = False) -> None:
    """Write a text file as UTF-8 with ``\\n`` line ends, atomically."""
    with writing(path, force=force) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
