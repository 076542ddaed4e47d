"""What BASE, CANDIDATE and RUN stand for: run folders, folders of repeats, single files, selections of a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from profkit.analysis import RunAnalysis
from profkit.comparison.launch import Launch, launch_of
from profkit.comparison.result import Comparison, Settings
from profkit.comparison.verdict import compare
from profkit.config import DEFAULT_STORE
from profkit.errors import InputError
from profkit.files import each_once
from profkit.loading import ARGUMENT_FILES, RUN_FILE
from profkit.parsers.discovery import run_files
from profkit.parsers.log import find_logs
from profkit.parsers.trace import find_traces
from profkit.pipeline import analyse_path
from profkit.store.reader import Store, parse_selection

STORE_PREFIX = "store:"
Advance = Callable[[float], None]


@dataclass(slots=True)
class Loaded:
    """Launches behind one argument, and what a user should hear about them."""

    launches: list[Launch]
    warnings: list[str] = field(default_factory=list)


def _is_run(folder: Path) -> bool:
    """Whether a folder itself is a run: it is described, or logs or traces lie directly in it."""
    if any((folder / name).is_file() for name in (RUN_FILE, *ARGUMENT_FILES)):
        return True
    return any(p.parent == folder for p in (*find_logs(folder), *find_traces(folder)))


def _runs_below(folder: Path) -> Iterator[Path]:
    """Run folders below one, in order. A link to a folder that is met anyway is no further run, and may be a loop."""
    seen = {_identity(folder)}
    for place, names, _ in os.walk(folder):
        names[:] = [name for name in names if not name.startswith(".")]
        seen |= {_identity(path) for path in (Path(place, name) for name in names) if not path.is_symlink()}
    return _search(folder, seen)


def _search(folder: Path, seen: set[tuple[int, int] | None]) -> Iterator[Path]:
    for inner in sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")):
        if inner.is_symlink():
            if _identity(inner) in seen:
                continue
            seen.add(_identity(inner))
        if _is_run(inner):
            yield inner
        else:
            below = list(_search(inner, seen))
            # Only where nothing has a usual name are files told by their content.
            yield from below or ([inner] if run_files(inner) else [])


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:  # removed meanwhile
        return None
    return found.st_dev, found.st_ino


def run_paths(path: Path) -> list[Path]:
    """The runs at a path: itself, or every run folder below it.

    Raises:
        InputError: nothing is there.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if not path.is_dir() or _is_run(path):
        return [path]
    found, _ = each_once(list(_runs_below(path)))  # a link such as "latest" is no further launch
    if not found and not (files := run_files(path)):
        raise InputError(files.nothing(path))
    # Traces in a folder of their own, and nothing that says where one run ends: one run.
    return found or [path]


def analyse_runs(
    paths: Sequence[Path], *, jobs: int | None = None, cache: bool = True, advance: Advance | None = None
) -> Iterator[RunAnalysis]:
    """Load and analyse runs one after the other; ``advance`` hears the share of each that is done."""
    for path in paths:
        yield analyse_path(path, jobs=jobs, cache=cache)
        if advance is not None:
            advance(1.0)


def _from_store(text: str, store: Path) -> Loaded:
    opened = Store.open(store)
    launches = opened.launches(parse_selection(text))
    if not launches:
        raise InputError(f"{STORE_PREFIX}{text}: no run in {store} is selected; `profkit runs` lists what is there")
    return Loaded(launches, list(opened.problems))


def several_servers(analysis: RunAnalysis) -> str | None:
    """A warning when a log holds more than one launch: a run is one, and one folder each keeps them apart."""
    servers = [s for s in (analysis.log.servers if analysis.log else ()) if s.decode.lines > s.decode.flagged]
    if len(servers) < 2:
        return None
    return f"{analysis.name}: the log holds {len(servers)} server launches and counts as one; give each its own folder"


def load_launches(
    text: str, *, store: Path, jobs: int | None = None, cache: bool = True, advance: Advance | None = None
) -> Loaded:
    """The launches that an argument stands for: ``store:SELECTION``, or a path (see :func:`run_paths`).

    Raises:
        InputError: nothing usable there, or nothing selected.
        UsageError: a selection that makes no sense.
    """
    if text.startswith(STORE_PREFIX):
        return _from_store(text.removeprefix(STORE_PREFIX), store)
    loaded = Loaded([])
    for analysis in analyse_runs(run_paths(Path(text)), jobs=jobs, cache=cache, advance=advance):
        launch = launch_of(analysis)
        if not launch.measurements:
            loaded.warnings.append(f"{analysis.name}: no figure that could be compared")
        if warning := several_servers(analysis):
            loaded.warnings.append(warning)
        loaded.warnings += [f"{analysis.name}: {warning}" for warning in analysis.warnings]
        loaded.launches.append(replace(launch, id=None))
    return loaded


def compare_paths(
    base: str | Path,
    candidate: str | Path,
    settings: Settings | None = None,
    *,
    store: Path | str = DEFAULT_STORE,
    jobs: int | None = None,
) -> Comparison:
    """Compare what two arguments of ``profkit compare`` stand for: paths, or ``store:SELECTION`` of ``store``.

    Raises:
        InputError: nothing usable behind an argument.
        UsageError: a selection that makes no sense.
    """
    sides = [load_launches(str(text), store=Path(store), jobs=jobs) for text in (base, candidate)]
    result = compare(sides[0].launches, sides[1].launches, settings)
    return replace(result, warnings=(*sides[0].warnings, *sides[1].warnings, *result.warnings))
