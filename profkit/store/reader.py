"""Reading a store: which runs it holds, what they are, and their results."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from profkit.comparison.launch import Launch
from profkit.errors import InputError, UsageError
from profkit.store import marks
from profkit.store.layout import RECORD, Layout, RunRecord, open_layout, record_from_json
from profkit.store.tables import TABLES, kernels, measurements
from profkit.week import monday

STALE_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class Selection:
    """Which runs: every given criterion must hold, ``None`` holds always."""

    config: str | None = None
    week: str | None = None
    tag: str | None = None
    label: tuple[tuple[str, str], ...] = ()

    def holds(self, record: RunRecord, tags: Iterable[str]) -> bool:
        """Whether a run is selected."""
        return (
            (self.config is None or record.config == self.config)
            and (self.week is None or record.week == self.week)
            and (self.tag is None or self.tag in tags)
            and all(record.labels.get(key) == value for key, value in self.label)
        )


def parse_selection(text: str) -> Selection:
    """``config=eagle3,week=2026-W47,tag=good,label.dataset=gsm8k`` as a selection.

    Raises:
        UsageError: an unknown key, a key twice, or a part without ``=``.
    """
    known: dict[str, str] = {}
    labels: list[tuple[str, str]] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise UsageError(f"selection {part!r}: write KEY=VALUE with config, week, tag or label.NAME")
        if key.startswith("label."):
            labels.append((key.removeprefix("label."), value))
        elif key in ("config", "week", "tag") and key not in known:
            known[key] = value
        else:
            raise UsageError(f"selection {part!r}: the keys are config, week, tag and label.NAME, each once")
    if "week" in known:
        monday(known["week"])
    return Selection(known.get("config"), known.get("week"), known.get("tag"), tuple(labels))


def _version(text: str) -> tuple[tuple[int, ...], str]:
    numbers = tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in text.split(".")[:3])
    return numbers, text


class Store:
    """A store as it is now. Records and marks are read once per instance; make a new one to look again."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._records: dict[str, RunRecord] | None = None
        self._marks: marks.Marks | None = None
        self.problems: list[str] = []

    @classmethod
    def open(cls, root: Path) -> Store:
        """Open the store at ``root``; ``InputError`` when there is none."""
        return cls(open_layout(root))

    def _all(self) -> dict[str, RunRecord]:
        if self._records is None:
            self._records = {}
            folders = sorted(self.layout.runs.iterdir()) if self.layout.runs.is_dir() else []
            for folder in folders:
                path = folder / RECORD
                try:
                    self._records[folder.name] = record_from_json(path.read_bytes(), path)
                except InputError as error:
                    self.problems.append(str(error))
                except OSError as error:
                    self.problems.append(f"{path}: {error.strerror}; not a run of this store")
        return self._records

    def _read_marks(self) -> marks.Marks:
        if self._marks is None:
            self._marks = marks.read_marks(self.layout)
            damaged = [f"marks/{name}: damaged, ignored" for name in self._marks.damaged]
            self.problems = list(dict.fromkeys([*self.problems, *damaged]))
        return self._marks

    def removed(self) -> set[str]:
        """Ids of removed runs that are still in the folder."""
        return self._read_marks().removed & self._all().keys()

    def marked_removed(self) -> set[str]:
        """Ids of all runs that were ever removed and not restored, deleted ones included."""
        return set(self._read_marks().removed)

    def tags(self, run: str) -> tuple[str, ...]:
        """Tags of a run, sorted."""
        return tuple(sorted(self._read_marks().tags.get(run, ())))

    def records(self, selection: Selection | None = None) -> list[RunRecord]:
        """Runs by week, configuration, date, name and id.

        Removed runs are left out, and of one run analysed by several versions of profkit all but the newest.
        """
        selection = selection or Selection()
        removed = self.removed()
        newest: dict[tuple[str, str, str], RunRecord] = {}
        for record in self._all().values():
            if record.id in removed:
                continue
            key = (record.content_key, record.config, record.week)
            other = newest.get(key)
            if other is None or (_version(other.profkit_version), other.id) < (
                _version(record.profkit_version),
                record.id,
            ):
                newest[key] = record
        chosen = [r for r in newest.values() if selection.holds(r, self._read_marks().tags.get(r.id, ()))]
        return sorted(chosen, key=lambda r: (r.week, r.config, r.date or "", r.name, r.id))

    def record(self, run: str) -> RunRecord:
        """One run by its id, or by a beginning of it that is unique.

        Raises:
            UsageError: no run or several runs.
        """
        found = [r for name, r in self._all().items() if name.startswith(run)] if run else []
        if len(found) != 1:
            what = "no run" if not found else f"{len(found)} runs"
            raise UsageError(f"{run!r}: {what} of that id in the store; `profkit runs` lists them")
        return found[0]

    def table(self, record: RunRecord, name: str) -> pa.Table | None:
        """One table of a run, ``None`` when the run has none of that name.

        Raises:
            InputError: the file is not the one that was written.
        """
        if name not in record.tables:
            return None
        path = self.layout.runs / record.id / f"{name}.parquet"
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; remove the run and add it again") from error
        if hashlib.sha256(data).hexdigest() != record.tables[name].sha256:
            raise InputError(f"{path}: its content is not what was written; remove the run and add it again")
        return pq.ParquetFile(pa.BufferReader(data)).read()

    def launch(self, record: RunRecord) -> Launch:
        """A stored run as comparisons see it."""
        metrics = self.table(record, "metrics")
        classes = self.table(record, "kernels")
        return Launch(
            name=record.name,
            measurements=measurements(metrics) if metrics is not None else (),
            fingerprint=record.fingerprint,
            kernels=kernels(classes) if classes is not None else (),
            quality=record.quality,
            id=record.id,
            config=record.config,
            week=record.week,
            date=record.date,
            labels=record.labels,
            content_key=record.content_key,
        )

    def launches(self, selection: Selection | None = None) -> list[Launch]:
        """All selected runs; a damaged one is left out and named in ``problems``."""
        found = []
        for record in self.records(selection):
            try:
                found.append(self.launch(record))
            except InputError as error:
                self.problems.append(f"run {record.id}: {error}")
        return found

    def mark(self, runs: Sequence[str], action: marks.Action, tag: str | None = None) -> None:
        """Tag, untag, remove or restore runs by id."""
        marks.add_marks(self.layout, runs, action, tag)
        self._marks = None

    def restore(self, run: str) -> None:
        """Undo the removal of a run."""
        self.mark([run], "restore")

    def verify(self) -> list[str]:
        """Compare every table with the checksum in its record; one sentence per defect."""
        self._all()
        self._read_marks()
        defects = list(self.problems)
        for record in self._all().values():
            for name in record.tables:
                # A name from a file never becomes a path unless profkit knows it.
                if name not in TABLES:
                    defects.append(f"{record.id}: unknown table {name!r}")
                    continue
                try:
                    self.table(record, name)
                except InputError as error:
                    defects.append(str(error))
        return defects

    def purge(self) -> int:
        """Delete removed runs for good; returns how many.

        What writers left unfinished is deleted too, once it is a day old: before, it may still be at work.
        """
        doomed = sorted(self.removed())
        self.layout.incoming.mkdir(exist_ok=True)
        for run in doomed:
            # Out of sight first, in one step: a reader never sees half a run.
            trash = self.layout.incoming / f"{run}.trash.{os.getpid()}.{os.urandom(4).hex()}"
            (self.layout.runs / run).rename(trash)
            shutil.rmtree(trash, ignore_errors=True)
        for left in self.layout.incoming.iterdir():
            if time.time() - left.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
        self._records = None
        return len(doomed)
