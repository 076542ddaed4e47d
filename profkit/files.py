"""Files: one that has several names is one; outputs overwrite nothing by accident and are never left half written."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from profkit.errors import Problem, UsageError

_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG)
_Path = TypeVar("_Path", str, Path, str | Path)


def each_once(paths: Sequence[_Path]) -> tuple[list[_Path], list[_Path]]:
    """Paths that lead to different files or folders, in order, and those left out: other names of one that stays.

    Of several names the first stays that is no symbolic link, since names carry meaning (a rank). Names that lead
    nowhere, to a pipe or to another machine all stay.
    """
    groups: dict[object, list[_Path]] = {}
    for path in paths:
        groups.setdefault(_identity(path), []).append(path)
    kept = [next((p for p in group if not Path(p).is_symlink()), group[0]) for group in groups.values()]
    chosen = set(kept)
    return kept, [path for path in paths if path not in chosen]


def _identity(path: str | Path) -> object:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return str(path)
    kept = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return (found.st_dev, found.st_ino) if kept and found.st_ino else str(path)


def named_again(left_out: Sequence[str | Path]) -> Problem:
    """What a reader of results should know of the names that :func:`each_once` left out."""
    names = ", ".join(sorted({Path(p).name for p in left_out})[:3])
    return Problem("same_file", len(left_out), f"named twice, read once: {names}")


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the disk as a whole (full, read-only, broken) do not say what was being written: ``path``."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_THE_DISK:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


@contextlib.contextmanager
def writing(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; renamed onto it on success, removed on failure.

    A device or a pipe is no file that could be lost: it is yielded itself.

    Raises:
        UsageError: ``path`` is a folder, exists (at the end too) and ``force`` is false, or its folder cannot be
            written.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file")
    if path.exists() and not path.is_file():
        yield path
        return
    if path.exists() and not force:
        raise _exists(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    os.close(handle)
    temporary = Path(name)
    try:
        with naming(path):
            yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        _place(temporary, path, force=force)
    finally:
        temporary.unlink(missing_ok=True)


def _exists(path: Path) -> UsageError:
    return UsageError(f"{path} exists; choose another name or give --force to overwrite it")


def _place(temporary: Path, path: Path, *, force: bool) -> None:
    """Give a finished file its name; without ``force`` only if nobody else took it meanwhile."""
    if not force:
        try:
            os.link(temporary, path)  # unlike a rename it fails where the name is taken
        except FileExistsError as error:
            raise _exists(path) from error
        except OSError as error:  # a file system without hard links
            if path.exists():
                raise _exists(path) from error
        else:
            temporary.unlink()
            return
    temporary.replace(path)


@contextlib.contextmanager
def writing_together(folder: Path, possible: Sequence[str], *, force: bool = False) -> Iterator[Path]:
    """Yield a temporary folder for files that belong together; once all are written they go into ``folder``.

    ``possible`` names all that such a set may consist of. Those that ``folder`` holds of an earlier set stay as they
    are until the new ones are complete; then they are replaced, and removed where the new set has none of that name.

    Raises:
        UsageError: one of the files exists and ``force`` is false, or the folder cannot be written.
    """
    existing = [name for name in possible if (folder / name).exists()]
    if existing and not force:
        raise UsageError(f"{folder / existing[0]} exists; choose another folder or give --force to overwrite it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside = tempfile.TemporaryDirectory(prefix=".profkit-", dir=folder)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror or error}") from error
    with aside:
        with naming(folder):
            yield Path(aside.name)
        placed: list[Path] = []
        try:
            for file in sorted(Path(aside.name).iterdir()):
                _place(file, folder / file.name, force=force)
                placed.append(folder / file.name)
        except UsageError:
            for path in placed:  # none or all: another process is writing the same set
                path.unlink(missing_ok=True)
            raise
        for name in set(existing) - {path.name for path in placed}:
            (folder / name).unlink(missing_ok=True)


def write_text(path: Path, text: str, *, force: bool = False) -> None:
    """Write a text file as UTF-8 with ``\\n`` line ends, atomically."""
    with writing(path, force=force) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
