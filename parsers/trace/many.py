"""Reads the traces of a run: files, folders, globs, archives."""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from profkit.errors import InputError, Problem
from profkit.parsers.trace.single import ReadOptions, read_file
from profkit.parsers.trace.source import STDIN
from profkit.trace import Trace

SUFFIXES = (
    ".trace.json",
    ".trace.json.gz",
    ".trace.json.zst",
    ".trace.json.bz2",
    ".trace.json.xz",
    ".trace.json.zip",
)


def find_traces(path: Path | str) -> list[Path]:
    """Trace files below a folder, sorted by path: everything named ``*.trace.json[.gz|.zst|...]``.

    Hidden files and folders are left out. A file is returned as it is.
    """
    root = Path(path)
    if root.is_file():
        return [root]
    found = []
    for file in root.rglob("*.trace.json*"):
        hidden = any(part.startswith(".") for part in file.relative_to(root).parts)
        if not hidden and file.name.endswith(SUFFIXES) and file.is_file():
            found.append(file)
    return sorted(found)


def expand(paths: Sequence[Path | str]) -> list[Path | str]:
    """Files that ``paths`` mean: folders are searched, patterns filled in, names taken as they are.

    Raises:
        InputError: a folder or a pattern yields nothing.
    """
    found: list[Path | str] = []
    for path in paths:
        text = str(path)
        if text == STDIN or "://" in text:
            found.append(text)
        elif Path(path).is_dir():
            inside = find_traces(path) or _json_files(Path(path))
            if not inside:
                raise InputError(f"{text}: no *.trace.json or *.trace.json.gz below this folder; name the files")
            found += inside
        elif not Path(path).exists() and any(c in text for c in "*?["):
            matches = sorted(glob.glob(text, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
            if not matches:
                raise InputError(f"{text}: no file matches; check the pattern and the folder")
            found += expand([Path(m) for m in matches])
        else:
            found.append(Path(path))
    return list(dict.fromkeys(found))


def _json_files(folder: Path) -> list[Path]:
    """Traces under names of one's own: JSON files directly in the folder that begin like one."""
    return sorted(f for f in folder.iterdir() if f.is_file() and f.name.endswith((".json", ".json.gz")))


def read_traces(
    paths: Sequence[Path | str],
    *,
    frames: bool = False,
    cpu_ops: str = "all",
    jobs: int | None = None,
    cache: bool = True,
    progress: Callable[[float], None] | None = None,
) -> tuple[Trace, ...]:
    """Read traces of one or several ranks.

    ``paths`` are files, folders, patterns, ``-`` for standard input or URLs that fsspec knows; merged files are split
    into ranks. The result is sorted by rank. Ranks that occur twice are kept, and named in ``info.problems``.
    ``frames`` keeps Python frames. ``progress`` is called with fractions of the work.

    Raises:
        InputError: nothing is found, or a file is no trace.
    """
    del jobs, cache
    options = ReadOptions(frames=frames, cpu_ops="collectives" if cpu_ops == "collectives" else "all")
    files = expand(paths)
    traces: list[Trace] = []
    for file in files:
        traces += read_file(file, options)
        if progress:
            progress(1 / len(files))
    return arrange(traces)


def arrange(traces: Sequence[Trace]) -> tuple[Trace, ...]:
    """Sort by rank and name ranks that occur more than once."""

    def order(trace: Trace) -> tuple[object, ...]:
        info = trace.info
        unknown = info.rank is None
        return (unknown, info.rank or 0, info.dp or 0, info.pp or 0, info.tp or 0, info.ep or 0, info.path)

    seen: dict[tuple[object, ...], int] = {}
    for trace in traces:
        info = trace.info
        key = (info.rank, info.dp, info.pp, info.stage, info.profile_id)
        seen[key] = seen.get(key, 0) + 1
    result = []
    for trace in sorted(traces, key=order):
        info = trace.info
        count = seen[info.rank, info.dp, info.pp, info.stage, info.profile_id]
        if count > 1 and info.rank is not None:
            problem = Problem("duplicate_rank", count, f"rank {info.rank} occurs {count} times among the files")
            trace = replace(trace, info=replace(info, problems=(*info.problems, problem)))
        result.append(trace)
    return tuple(result)


def read_trace(path: Path | str, *, frames: bool = False, cpu_ops: str = "all", cache: bool = True) -> Trace:
    """Read one file that holds one rank.

    Raises:
        InputError: it is no trace, or a merged one with several ranks.
    """
    traces = read_traces([path], frames=frames, cpu_ops=cpu_ops, cache=cache)
    if len(traces) != 1:
        raise InputError(f"{path}: holds {len(traces)} ranks; read it with read_traces")
    return traces[0]
