"""What the paths on a command line stand for."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from profkit.errors import InputError, UsageError


def shown_names(files: Sequence[str]) -> dict[str, str]:
    """What files named by absolute paths are called in results: their paths below the folder that holds them all.

    So a result does not depend on where a run lies. Relative paths stay as they were given.
    """
    if not files or not all(Path(file).is_absolute() for file in files):
        return {}
    common = Path(os.path.commonpath([Path(file).parent for file in files]))
    return {file: Path(file).relative_to(common).as_posix() for file in files}


def expand(paths: Sequence[str], note: Callable[[str], None] | None = None) -> list[str]:
    """Files behind the arguments: folders give their logs, quoted globs their matches, ``-`` is standard input.

    Parts of one rotated log come oldest first. ``note`` hears which files of a folder were told by their content.

    Raises:
        InputError: nothing is there.
        UsageError: standard input is named twice.
    """
    from profkit.parsers.discovery import run_files
    from profkit.parsers.log.files import rotation_sorted

    if paths.count("-") > 1:
        raise UsageError("standard input can be read once; name - only once")
    files: list[str] = []
    for path in paths:
        if path == "-":
            files.append(path)
        elif Path(path).is_dir():
            inside = run_files(path)
            if not inside.logs:
                seen = f" (seen: {'; '.join(inside.seen)})" if inside.seen else ""
                raise InputError(
                    f"{path}: no server*.log, bench*.jsonl or nccl*.log in this folder{seen}; name the files"
                )
            files += map(str, inside.logs)
            if note is not None:
                for sentence in inside.notes:
                    note(sentence)
        elif not Path(path).exists() and glob.has_magic(path):
            found = sorted(p for p in glob.iglob(path, recursive=True) if Path(p).is_file())  # noqa: PTH207 (absolute too)
            if not found:
                raise InputError(f"{path}: nothing matches; check the path")
            files += found
        else:
            files.append(path)
    return rotation_sorted(dict.fromkeys(files))
