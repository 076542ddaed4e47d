"""Reads one file into one trace, or into one per rank if it is a merged one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from profkit import tables
from profkit.errors import InputError, Problem
from profkit.parsers.trace.columns import Columns, CpuOps
from profkit.parsers.trace.events import Event
from profkit.parsers.trace.info import coordinates, file_name, make_info
from profkit.parsers.trace.names import coordinates_of_label, split_label
from profkit.parsers.trace.reader import CHUNK, Reader
from profkit.parsers.trace.source import open_source
from profkit.trace import Trace

_PID = attrgetter("pid")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to keep of a trace."""

    frames: bool = False
    cpu_ops: CpuOps = "all"


class _Ranks:
    """Sends events to the tables of their rank; one without a label goes to the only, unlabelled one."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._columns: dict[str | None, Columns] = {}
        self._labels: dict[str, tuple[str | None, str]] = {}

    def _of(self, label: str | None) -> Columns:
        if label not in self._columns:
            self._columns[label] = Columns(keep_frames=self._options.frames, cpu_ops=self._options.cpu_ops)
        return self._columns[label]

    def add(self, events: list[Event]) -> None:
        """Take a chunk of events."""
        pids = set(map(_PID, events))
        if not any(isinstance(pid, str) and split_label(pid) for pid in pids):
            self._of(None).add(events)
            return
        groups: dict[str | None, list[Event]] = {}
        for event in events:
            label = None
            if isinstance(event.pid, str):
                label, event.pid = self._split(event.pid)
            groups.setdefault(label, []).append(event)
        for label, group in groups.items():
            self._of(label).add(group)

    def may_skip_frames(self) -> bool:
        """Frames of a merged file are decoded all the same, since only then their rank is known."""
        return not self._options.frames and not self._labels

    def skip_frames(self, count: int) -> None:
        """Count frames that were not decoded."""
        self._of(None).skip_frames(count)

    def _split(self, pid: str) -> tuple[str | None, str]:
        found = self._labels.get(pid)
        if found is None:
            found = self._labels[pid] = split_label(pid) or (None, pid)
        return found

    def finished(self) -> dict[str | None, Columns]:
        """The ranks in the order of their labels; events without a label are kept only where nothing has one."""
        labelled = {k: v for k, v in self._columns.items() if k is not None}
        if labelled:
            return {label: labelled[label] for label in sorted(labelled)}
        return {None: self._of(None)}


def read_file(
    path: Path | str,
    options: ReadOptions,
    *,
    member: str | None = None,
    content_key: str | None = None,
    progress: Callable[[int], None] | None = None,
    chunk: int = CHUNK,
) -> tuple[Trace, ...]:
    """Read a file; one trace per rank in it.

    Raises:
        InputError: it cannot be opened, is no trace or holds no events.
    """
    ranks = _Ranks(options)
    with open_source(path, member) as source:
        document = Reader(source, ranks, chunk=chunk, progress=progress).read()
        label, size = source.label, source.consumed
    found = ranks.finished()
    if not any(c.events for c in found.values()):
        what = "all of its events are damaged" if document.problems else "its traceEvents is empty"
        raise InputError(_log_instead(path, label) or f"{label}: {what}; record the trace again")
    problems = tuple(document.problems)
    return tuple(
        _trace(label, rank, columns, document.metadata, problems, document.truncated, size, content_key, options)
        for rank, columns in found.items()
    )


def _log_instead(path: Path | str, label: str) -> str | None:
    """What to say of a log that was given as a trace: lines of a server's log begin with a bracket as JSON does."""
    from profkit.parsers.discovery import WORDS
    from profkit.parsers.sniff import content_of

    try:
        content = content_of(path)
    except (InputError, OSError):
        return None
    if content not in ("server", "bench", "nccl"):
        return None
    return f"{label}: holds {WORDS[content]} and no trace; `profkit parse` reads it"


def _trace(
    path: str,
    rank: str | None,
    columns: Columns,
    metadata: dict[str, object],
    problems: tuple[Problem, ...],
    truncated: bool,
    size: int,
    content_key: str | None,
    options: ReadOptions,
) -> Trace:
    made = {name: columns.table(name) for name in tables.TRACE_TABLES}
    where = coordinates(file_name(path), coordinates_of_label(rank) if rank else None, metadata)
    info = make_info(
        path,
        columns,
        metadata,
        made,
        where,
        size=size,
        truncated=truncated,
        problems=problems,
        content_key=content_key,
    )
    return Trace(
        info=info,
        gpu_ops=made["gpu_ops"],
        launches=made["launches"],
        annotations=made["annotations"],
        cpu_ops=made["cpu_ops"],
        collectives=made["collectives"],
        processes=made["processes"],
        frames=made["frames"] if options.frames else None,
        extra={"label": rank} if rank else {},
    )
