"""Any mix of files and folders as runs: the input of commands that look at several runs at once."""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.errors import InputError
from profkit.files import each_once, named_again

if TYPE_CHECKING:
    from profkit.logs import LogTables
    from profkit.run import Run
    from profkit.trace import Trace


def run_folders(folder: Path) -> list[Path]:
    """The runs below a folder, or the folder itself: loading it says what is wrong with it."""
    from profkit.sources import run_paths

    try:
        return run_paths(folder)
    except InputError:
        return [folder]


def load_runs(
    paths: Sequence[str], *, jobs: int | None, cache: bool, progress: Callable[[float], None] | None
) -> tuple[list[Run], list[str]]:
    """Load every run among the arguments, and say which could not be used.

    A folder with a log or traces is a run, its sub-folders are runs otherwise; all bare files together are one.

    Raises:
        InputError: a path does not exist.
    """
    from profkit.loading import load_run

    folders: list[Path] = []
    files: list[str] = []
    for path in paths:
        if Path(path).is_dir():
            folders += run_folders(Path(path))
        elif Path(path).exists():
            files.append(path)
        elif matches := sorted(glob.glob(path, recursive=True)):  # noqa: PTH207 - absolute patterns too
            for match in matches:
                if Path(match).is_dir():
                    folders += run_folders(Path(match))
                else:
                    files.append(match)
        else:
            raise InputError(f"{path}: no such file or folder; check the path")
    (folders, again), (files, files_again) = each_once(folders), each_once(files)
    share = 1 / (len(folders) + bool(files) or 1)
    advance = (lambda part: progress(part * share)) if progress else None
    runs: list[Run] = []
    problems = [str(named_again(left_out)) for left_out in (again, files_again) if left_out]
    for folder in folders:
        try:
            runs.append(load_run(folder, jobs=jobs, cache=cache, progress=advance))
        except InputError as error:
            problems.append(str(error))
    if files:
        run, said = _of_files(files, jobs=jobs, cache=cache, progress=advance)
        problems += said
        if run is not None:
            runs.append(run)
    return runs, problems


def _of_files(
    files: Sequence[str], *, jobs: int | None, cache: bool, progress: Callable[[float], None] | None
) -> tuple[Run | None, list[str]]:
    """One run from single files: traces and logs, told apart by their content."""
    from profkit import facts
    from profkit.cli.run_facts import facts_near
    from profkit.parsers.log import read_log
    from profkit.parsers.sniff import is_trace
    from profkit.parsers.trace import read_traces
    from profkit.run import Run

    problems: list[str] = []
    traces = [f for f in files if is_trace(Path(f))]
    logs = [f for f in files if f not in traces]
    found: tuple[Trace, ...] = ()
    log: LogTables | None = None
    try:
        found = read_traces(traces, jobs=jobs, cache=cache, progress=progress) if traces else ()
    except InputError as error:
        problems.append(str(error))
    try:
        log = read_log([Path(f) for f in logs]) if logs else None
    except InputError as error:
        problems.append(str(error))
    if log is None and not found:
        return None, problems
    known = facts_near(list(files), found)
    if log is not None and log.server.num_rows:
        rows = facts.from_server_row(log.server.slice(log.server.num_rows - 1).to_pylist()[0])
        known = facts.merge([dict(known), rows])
    name = Path(files[0]).name if len(files) == 1 else "files"
    return Run(name=name, path=", ".join(files), facts=known, log=log, traces=found), problems
