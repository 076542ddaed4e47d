"""What lies where in a store, and the record of one run. A store is a folder:

profkit-store.json        says that this is a store, and of which version
runs/<id>/run.json        what the run is; written last, the folder then renamed into place and never changed
runs/<id>/*.parquet       its results (schemas in :mod:`profkit.store.tables`)
marks/<run>-<n>-<id>.json tags and removals: small files that are only ever added
forecasts/<id>.json       forecasts of plans, only ever added
incoming/                 what writers have not finished; readers never look here
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

from profkit.comparison.fingerprint import Scalar, digest
from profkit.comparison.launch import Quality
from profkit.errors import InputError, UsageError
from profkit.jsonio import dumps
from profkit.week import monday

STORE_SCHEMA = "profkit.store/1"
RUN_SCHEMA = "profkit.run/1"
MARKER = "profkit-store.json"
RECORD = "run.json"


@dataclass(frozen=True, slots=True)
class TableFile:
    """One Parquet file of a run."""

    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The document ``profkit.run/1``: everything about a stored run except its tables."""

    id: str
    name: str
    config: str
    week: str
    date: str | None
    content_key: str
    profkit_version: str
    fingerprint: Mapping[str, Scalar]
    sources: Mapping[str, str]  # where each fact of the fingerprint was read
    labels: Mapping[str, str]
    quality: Quality
    tables: Mapping[str, TableFile]
    warnings: tuple[str, ...] = ()
    schema: str = RUN_SCHEMA

    @property
    def filed_as(self) -> tuple[str, str, dict[str, str]]:
        """What the launch is filed under: configuration, week, labels."""
        return self.config, self.week, dict(self.labels)

    def to_json(self) -> dict[str, object]:
        """The document."""
        return {
            "schema": self.schema,
            "id": self.id,
            "name": self.name,
            "config": self.config,
            "week": self.week,
            "date": self.date,
            "labels": dict(sorted(self.labels.items())),
            "content_key": self.content_key,
            "profkit_version": self.profkit_version,
            "fingerprint_digest": digest(self.fingerprint),
            "fingerprint": dict(sorted(self.fingerprint.items())),
            "sources": dict(sorted(self.sources.items())),
            "quality": self.quality,
            "tables": {name: self.tables[name] for name in sorted(self.tables)},
            "warnings": list(self.warnings),
        }


def record_from_json(data: bytes, path: Path) -> RunRecord:
    """Read ``run.json``.

    Raises:
        InputError: not JSON, not a run record, or written by a newer version.
    """
    try:
        schema = msgspec.json.decode(data, type=_Head).schema
        if schema != RUN_SCHEMA:
            raise InputError(f"{path}: schema {schema!r} is not {RUN_SCHEMA!r}; update profkit to read it")
        record = msgspec.json.decode(data, type=RunRecord)
        monday(record.week)
        counts = (getattr(record.quality, field.name) for field in fields(record.quality))
        if any(isinstance(count, int) and not 0 <= count < 2**63 for count in counts):
            raise ValueError("quality holds a count that cannot be")
    except (ValueError, RecursionError, UsageError) as error:
        raise InputError(f"{path}: damaged run record ({error}); remove its folder and add the run again") from error
    if record.id != path.parent.name:
        raise InputError(f"{path}: the record is of run {record.id}; remove its folder and add the run again")
    return record


class _Head(msgspec.Struct):
    schema: str


def run_id(content_key: str, config: str, week: str, labels: Mapping[str, str], version: str) -> str:
    """The name of a run in the store: what was measured, as what it was filed, and which profkit analysed it."""
    parts: list[Any] = [RUN_SCHEMA, content_key, config, week, dict(sorted(labels.items())), version]
    return hashlib.sha256(dumps(parts, indent=None).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of a store."""

    root: Path

    @property
    def runs(self) -> Path:
        """Complete runs."""
        return self.root / "runs"

    @property
    def marks(self) -> Path:
        """Tags and removals."""
        return self.root / "marks"

    @property
    def forecasts(self) -> Path:
        """Forecasts of plans."""
        return self.root / "forecasts"

    @property
    def incoming(self) -> Path:
        """Unfinished work of writers."""
        return self.root / "incoming"


def open_layout(root: Path) -> Layout:
    """The store at ``root``.

    Raises:
        InputError: there is none, or it is of a newer version.
    """
    marker = root / MARKER
    try:
        data = marker.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{root}: no profkit store here; `profkit add RUN --store {root}` makes one") from error
    try:
        schema = msgspec.json.decode(data, type=_Head).schema
    except (ValueError, RecursionError) as error:
        raise InputError(f'{marker}: damaged ({error}); write {{"schema": "{STORE_SCHEMA}"}} into it') from error
    if schema != STORE_SCHEMA:
        raise InputError(f"{marker}: schema {schema!r} is not {STORE_SCHEMA!r}; update profkit to read it")
    return Layout(root)


def create_layout(root: Path) -> Layout:
    """Open the store at ``root``, or make one in a folder that is new or empty.

    Raises:
        UsageError: the folder holds something else.
    """
    if (root / MARKER).exists():
        layout = open_layout(root)
    else:
        # Hidden files are the temporary markers of other writers who are at the same point.
        if root.is_dir() and any(not p.name.startswith(".") and p.name != MARKER for p in root.iterdir()):
            if not (root / MARKER).exists():
                raise UsageError(f"{root}: is not empty and no profkit store; choose another folder")
        elif root.exists() and not root.is_dir():
            raise UsageError(f"{root}: is a file; a store is a folder")
        root.mkdir(parents=True, exist_ok=True)
        put(root / MARKER, (dumps({"schema": STORE_SCHEMA}, indent=None)).encode(), root)
        layout = Layout(root)
    for folder in (layout.runs, layout.marks, layout.forecasts, layout.incoming):
        folder.mkdir(exist_ok=True)
    return layout


def put(path: Path, data: bytes, aside: Path) -> None:
    """Write a small file durably: under a hidden name in ``aside``, then renamed into place."""
    temporary = aside / f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
