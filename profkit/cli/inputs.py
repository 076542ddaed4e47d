"""What the paths on a command line stand for."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from profkit.errors import InputError, UsageError


def expand(paths: Sequence[str]) -> list[str]:
    """Files behind the arguments: folders give their logs, quoted globs their matches, ``-`` is standard input.

    Parts of one rotated log come oldest first.

    Raises:
        InputError: nothing is there.
        UsageError: standard input is named twice.
    """
    from profkit.parsers.log.files import find_logs, rotation_sorted

    if paths.count("-") > 1:
        raise UsageError("standard input can be read once; name - only once")
    files: list[str] = []
    for path in paths:
        if path == "-":
            files.append(path)
        elif Path(path).is_dir():
            found = [str(p) for p in find_logs(path)]
            if not found:
                raise InputError(f"{path}: no server*.log, bench*.jsonl or nccl*.log in this folder; name the files")
            files += found
        elif not Path(path).exists() and glob.has_magic(path):
            found = sorted(p for p in glob.iglob(path, recursive=True) if Path(p).is_file())  # noqa: PTH207 (absolute too)
            if not found:
                raise InputError(f"{path}: nothing matches; check the path")
            files += found
        else:
            files.append(path)
    return rotation_sorted(dict.fromkeys(files))
