"""Reads the traces of a run: files, folders, globs, archives."""

from __future__ import annotations

import contextlib
import glob
import os
import stat
import tempfile
import threading
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from profkit.errors import InputError, Problem
from profkit.files import each_once, named_again
from profkit.parsers.sniff import is_trace
from profkit.parsers.trace.cache import UNREADABLE, TraceCache, hash_file, read_entry
from profkit.parsers.trace.columns import CpuOps
from profkit.parsers.trace.single import ReadOptions, read_file
from profkit.parsers.trace.source import STDIN, zip_members
from profkit.parsers.trace.worker import Workers
from profkit.trace import Trace

SUFFIXES = (
    ".trace.json",
    ".trace.json.gz",
    ".trace.json.zst",
    ".trace.json.bz2",
    ".trace.json.xz",
    ".trace.json.zip",
)
# A packed trace unpacks to about this many times its size.
_TYPICAL_RATIO = 14
# Starting a process costs a third of a second, which is what reading this many bytes costs.
_WORTH_WORKERS = 300 << 20
_PER_WORKER = 600 << 20


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
            inside = find_traces(path) or _json_traces(Path(path))
            if not inside:
                raise InputError(
                    f"{text}: no *.trace.json or *.trace.json.gz below this folder, and no other JSON file directly in "
                    "it begins like a trace; name the files"
                )
            found += inside
        elif not Path(path).exists() and any(c in text for c in "*?["):
            matches = sorted(glob.glob(text, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
            if not matches:
                raise InputError(f"{text}: no file matches; check the pattern and the folder")
            found += expand([Path(m) for m in matches])
        else:
            found.append(Path(path))
    return list(dict.fromkeys(found))


def _json_traces(folder: Path) -> list[Path]:
    """Traces under names of one's own: JSON files directly in the folder that begin like one."""
    found = sorted(f for f in folder.iterdir() if f.is_file() and f.name.endswith((".json", ".json.gz", ".json.zst")))
    return [f for f in found if _begins_like_one(f)]


def _begins_like_one(file: Path) -> bool:
    with contextlib.suppress(InputError):
        return is_trace(file)
    return False


@dataclass(frozen=True, slots=True)
class _Task:
    """One file, or one member of an archive."""

    path: Path | str
    member: str | None
    size: int

    @property
    def label(self) -> str:
        return f"{self.path}!{self.member}" if self.member else str(self.path)

    @property
    def local(self) -> Path | None:
        """The file, if it is one that can be read twice: a pipe must not be looked into before it is read."""
        return self.path if isinstance(self.path, Path) and self.path.is_file() else None


def _tasks(files: Sequence[Path | str]) -> list[_Task]:
    tasks = []
    for file in files:
        size = file.stat().st_size if isinstance(file, Path) and file.is_file() else 0
        members: list[str | None] = [None]
        if isinstance(file, Path) and file.is_file() and zipfile.is_zipfile(file) and (inside := zip_members(file)):
            members = list(inside)
        tasks += [_Task(file, member, size // len(members)) for member in members]
    return tasks


def _available_memory(otherwise: int) -> int:
    """Memory that processes may take without swapping; ``otherwise`` where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return otherwise


def _default_jobs(tasks: Sequence[_Task]) -> int:
    """As many processes as there are cores, files and memory for; one where starting them would take longer."""
    unpacked = sum(t.size * (1 if t.label.endswith(".json") else _TYPICAL_RATIO) for t in tasks)
    if unpacked < _WORTH_WORKERS:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(len(tasks), cores, _available_memory(cores * _PER_WORKER) // _PER_WORKER))


class _Meter:
    """Turns bytes read of several files, told by several threads, into fractions of the whole work."""

    def __init__(self, tasks: Sequence[_Task], tell: Callable[[float], None] | None) -> None:
        self._total = sum(t.size for t in tasks) or 1
        self._tell = tell
        self._lock = threading.Lock()

    def of(self, task: _Task) -> Callable[[int], None]:
        """What to call with the bytes read so far of one file."""
        done = 0

        def progress(read: int) -> None:
            nonlocal done
            with self._lock:
                amount, done = min(read, task.size) - done, min(read, task.size)
                if self._tell and amount > 0:
                    self._tell(amount / self._total)

        return progress


class _Many:
    """Reads tasks, from the cache where it holds them."""

    def __init__(self, options: ReadOptions, cache: TraceCache | None, meter: _Meter) -> None:
        self._options = options
        self._cache = cache
        self._meter = meter

    def key(self, task: _Task) -> str | None:
        """The content hash of a local file."""
        if task.local is None:
            return None
        with contextlib.suppress(OSError):
            return self._cache.content_key(task.local) if self._cache else hash_file(task.local)
        return None

    def kept(self, task: _Task, key: str | None) -> tuple[Trace, ...] | None:
        """What the cache holds of a task."""
        if self._cache is None or key is None:
            return None
        found = self._cache.load(task.label, key, self._options, task.member)
        if found is not None:
            self._meter.of(task)(task.size)
        return found

    def here(self, task: _Task, key: str | None, sound: Callable[[], bool]) -> tuple[Trace, ...]:
        """Read in this process."""
        traces = read_file(task.path, self._options, member=task.member, content_key=key, progress=self._meter.of(task))
        if self._cache is not None and key is not None:
            self._cache.store(key, self._options, task.member, traces, sound)
        return traces

    def aside(self, task: _Task, key: str | None, sound: Callable[[], bool], workers: Workers) -> tuple[Trace, ...]:
        """Read in another process, which hands the tables back as files."""
        staging: AbstractContextManager[Path | str]
        kept = self._cache is not None and key is not None
        if self._cache is None or key is None:
            staging = tempfile.TemporaryDirectory(prefix="profkit-")
        else:
            staging = self._cache.staging(key, self._options, task.member, sound)
        with staging as out:
            workers.run(
                {
                    "path": str(task.path),
                    "member": task.member,
                    "frames": self._options.frames,
                    "cpu_ops": self._options.cpu_ops,
                    "key": key,
                    "out": str(out),
                    "compressed": kept,
                },
                self._meter.of(task),
            )
            return read_entry(Path(out), task.label)

    def read(self, task: _Task, workers: Workers | None = None) -> tuple[Trace, ...] | InputError:
        """Read one task, by ``workers`` or in this process; an unusable file is handed back as its error."""
        before = _state(task.local)

        def sound() -> bool:
            return _state(task.local) == before

        key = self.key(task)
        try:
            found = self.kept(task, key)
            if found is not None:
                return found
            if workers and task.local is not None:
                # What cannot be handed back (the disk is full, the cache was cleared) is read here.
                with contextlib.suppress(*UNREADABLE):
                    return _told_of_change(self.aside(task, key, sound, workers), sound())
            return _told_of_change(self.here(task, key, sound), sound())
        except InputError as error:
            return error


def _state(path: Path | None) -> tuple[int, int, int] | None:
    """What changes when a file does; nothing is known of a pipe."""
    with contextlib.suppress(OSError):
        if path is not None and stat.S_ISREG((found := path.stat()).st_mode):
            return found.st_size, found.st_mtime_ns, found.st_ino
    return None


def _told_of_change(traces: tuple[Trace, ...], unchanged: bool) -> tuple[Trace, ...]:
    if unchanged:
        return traces
    detail = "the file changed while it was read: a recording may still be written; read it again when it is complete"
    return _with_problems(traces, [Problem("changed_file", 1, detail)])


def read_traces(
    paths: Sequence[Path | str],
    *,
    frames: bool = False,
    cpu_ops: CpuOps = "all",
    jobs: int | None = None,
    cache: bool = True,
    progress: Callable[[float], None] | None = None,
) -> tuple[Trace, ...]:
    """Read traces of one or several ranks.

    ``paths`` are files, folders, patterns, ``-`` for standard input or URLs that fsspec knows; merged files are split
    into ranks. The result is sorted by rank. Ranks that occur twice are kept, and named in ``info.problems``; so are
    files that cannot be used while others can. ``frames`` keeps Python frames; ``cpu_ops="collectives"`` keeps only
    host operators that stand for communication. ``jobs`` processes read side by side (default: as many as there are
    cores and memory for). ``progress`` is called with fractions of the work.

    Raises:
        InputError: nothing is found, or no file is a trace.
    """
    files, again = each_once(expand(paths))
    tasks = _tasks(files)
    options = ReadOptions(frames=frames, cpu_ops=cpu_ops)
    many = _Many(options, TraceCache() if cache else None, _Meter(tasks, progress))
    wanted = min(_default_jobs(tasks) if jobs is None else jobs, len(tasks))
    if wanted <= 1:
        found = [many.read(task) for task in tasks]
    else:
        with Workers() as workers, ThreadPoolExecutor(wanted) as pool:
            found = list(pool.map(lambda task: many.read(task, workers), tasks))
    traces = [trace for each in found if not isinstance(each, InputError) for trace in each]
    errors = [each for each in found if isinstance(each, InputError)]
    if errors and not traces:
        raise errors[0]
    said = [Problem("unreadable_file", len(errors), str(errors[0]))] if errors else []
    said += [named_again(again)] if again else []
    return _with_problems(arrange(traces), said)


def _with_problems(traces: tuple[Trace, ...], problems: Sequence[Problem]) -> tuple[Trace, ...]:
    """Problems of the files as a whole are kept with the first trace."""
    if not traces or not problems:
        return traces
    first, *rest = traces
    return (replace(first, info=replace(first.info, problems=(*first.info.problems, *problems))), *rest)


def arrange(traces: Sequence[Trace]) -> tuple[Trace, ...]:
    """Sort by rank and name ranks that occur more than once."""

    def order(trace: Trace) -> tuple[object, ...]:
        info = trace.info
        unknown = info.rank is None
        return (unknown, info.rank or 0, info.dp or 0, info.pp or 0, info.tp or 0, info.ep or 0, info.path)

    seen: dict[tuple[object, ...], int] = {}
    for trace in traces:
        info = trace.info
        key = (info.rank, info.dp, info.pp, info.ep, info.stage, info.profile_id)
        seen[key] = seen.get(key, 0) + 1
    result = []
    for trace in sorted(traces, key=order):
        info = trace.info
        count = seen[info.rank, info.dp, info.pp, info.ep, info.stage, info.profile_id]
        if count > 1 and info.rank is not None:
            problem = Problem("duplicate_rank", count, f"rank {info.rank} occurs {count} times among the files")
            trace = replace(trace, info=replace(info, problems=(*info.problems, problem)))
        result.append(trace)
    return tuple(result)


def read_trace(path: Path | str, *, frames: bool = False, cpu_ops: CpuOps = "all", cache: bool = True) -> Trace:
    """Read one file that holds one rank.

    Raises:
        InputError: it is no trace, or a merged one with several ranks.
    """
    traces = read_traces([path], frames=frames, cpu_ops=cpu_ops, cache=cache)
    if len(traces) != 1:
        raise InputError(f"{path}: holds {len(traces)} ranks; read it with read_traces")
    return traces[0]
