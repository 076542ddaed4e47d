"""Reading a store: which runs it holds, what they are, and their results."""

from __future__ import annotations

import contextlib
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
_TRASH = ".trash."


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
    numbers = tuple(int("".join(c for c in part if c.isdigit())[:18] or 0) for part in text.split(".")[:3])
    return numbers, text


def _is_stale(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > STALE_SECONDS
    except FileNotFoundError:  # its writer has just finished
        return False


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
                    if folder.exists():  # else it was deleted for good since the folder was listed
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

    def filings(self, content_key: str) -> list[RunRecord]:
        """Runs that hold the results of the same files and are not removed: by right all are filed alike."""
        removed = self.removed()
        return [r for r in self._all().values() if r.content_key == content_key and r.id not in removed]

    def records(self, selection: Selection | None = None) -> list[RunRecord]:
        """Runs by week, configuration, date, name and id.

        Removed runs are left out, and of one launch all but the newest version's analysis. One that stands in the store
        under two names (a writer was killed as it noticed another one, or two stores were copied together) counts once
        too, and is named in ``problems``.
        """
        selection = selection or Selection()
        removed = self.removed()
        launches: dict[str, list[RunRecord]] = {}
        for record in self._all().values():
            if record.id not in removed:
                launches.setdefault(record.content_key, []).append(record)
        chosen = []
        for same in launches.values():
            newest = max(same, key=lambda r: (_version(r.profkit_version), r.id))
            self._tell_of_second_filings(newest, same)
            if selection.holds(newest, self._read_marks().tags.get(newest.id, ())):
                chosen.append(newest)
        return sorted(chosen, key=lambda r: (r.week, r.config, r.date or "", r.name, r.id))

    def _tell_of_second_filings(self, counted: RunRecord, same: Iterable[RunRecord]) -> None:
        for other in same:
            if other.filed_as != counted.filed_as:
                said = (
                    f"run {other.id} ({other.config} {other.week}) is the same launch as run {counted.id} "
                    f"({counted.config} {counted.week}), which counts; remove the one that is filed wrongly"
                )
                if said not in self.problems:
                    self.problems.append(said)

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
        """Tag, untag, remove or restore runs by id.

        Raises:
            UsageError: a tag that is no plain word, or a run to restore that was filed anew meanwhile.
        """
        if action == "restore":
            self._restore(runs)
            return
        marks.add_marks(self.layout, runs, action, tag)
        self._marks = None

    def restore(self, run: str) -> None:
        """Undo the removal of a run; ``UsageError`` when its launch is filed under another name by now."""
        self._restore([run])

    def _restore(self, runs: Sequence[str]) -> None:
        self._refuse_second_filing(runs, meant=runs)
        marks.add_marks(self.layout, runs, "restore")
        now = Store(self.layout)
        self._marks = None
        try:
            now._refuse_second_filing(runs)
        except UsageError:
            # Another writer filed the launch in between; it sees this restoration, or this sees its run.
            marks.add_marks(self.layout, runs, "remove")
            raise

    def _refuse_second_filing(self, runs: Sequence[str], meant: Sequence[str] = ()) -> None:
        """A launch counts once: ``runs`` must not stand beside other filings of theirs; ``meant`` will be there too."""
        known = self._all()
        for run in (known[name] for name in runs if name in known):
            for other in [*self.filings(run.content_key), *(known[m] for m in meant if m in known)]:
                if other.content_key == run.content_key and other.filed_as != run.filed_as:
                    raise UsageError(
                        f"run {run.id}: the same launch is in the store as {other.config} {other.week} (run {other.id})"
                        f" and would count twice; `profkit runs {other.id} --remove` first if that is wrong"
                    )

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
                    if (self.layout.runs / record.id).exists():  # else it was deleted for good meanwhile
                        defects.append(str(error))
        return defects

    def purge(self) -> int:
        """Delete removed runs for good; returns how many.

        What writers left unfinished is deleted too, once it is a day old: before, it may still be at work.
        """
        self.layout.incoming.mkdir(exist_ok=True)
        trash = []
        for run in sorted(self.removed()):
            # Out of sight first, in one step: a reader never sees half a run.
            away = self.layout.incoming / f"{run}{_TRASH}{os.getpid()}.{os.urandom(4).hex()}"
            with contextlib.suppress(FileNotFoundError):  # another purge was first
                os.utime(self.layout.runs / run)  # young, whatever the age of the run
                (self.layout.runs / run).rename(away)
                trash.append(away)
        deleted = sum(self._delete(trash))
        self._delete(left for left in self.layout.incoming.iterdir() if _is_stale(left))
        self._records = None
        return deleted

    def _delete(self, trash: Iterable[Path]) -> list[bool]:
        """Delete what lies in ``incoming``, except runs that somebody has restored meanwhile: those return."""
        trash = list(trash)
        removed = marks.read_marks(self.layout).removed if trash else set()
        deleted = []
        for path in trash:
            run, is_run, _ = path.name.partition(_TRASH)
            back = bool(is_run) and run not in removed
            if back:
                # Where the run was added again at the same time, its new copy stays.
                with contextlib.suppress(OSError):
                    path.rename(self.layout.runs / run)
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
            deleted.append(not back)
        return deleted
