"""Adding to a store: no locks, safe with several writers, and whole or absent after a kill at any moment."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from profkit._version import __version__
from profkit.analysis import RunAnalysis
from profkit.comparison.launch import launch_of
from profkit.errors import InputError, UsageError
from profkit.files import naming
from profkit.jsonio import dumps
from profkit.store.layout import (
    RECORD,
    Layout,
    RunRecord,
    TableFile,
    create_layout,
    put,
    record_from_json,
    run_id,
    sync_folder,
)
from profkit.store.reader import Store
from profkit.store.tables import result_tables, with_head
from profkit.week import monday, week_of

LONGEST_NAME = 120
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Added:
    """What adding a run did; ``new`` is false when the store held it already."""

    record: RunRecord
    new: bool


def _filed_as(analysis: RunAnalysis, config: str | None, week: str | None) -> tuple[str, str]:
    config = config or analysis.config
    if not config:
        raise UsageError(f'{analysis.name}: no configuration name; give --config, or config = "..." in run.toml')
    if len(config) > LONGEST_NAME or any(c in ",=" or not c.isprintable() for c in config):
        raise UsageError(f"configuration {config!r}: use up to {LONGEST_NAME} printable characters without , and =")
    if week is None:
        week = week_of(analysis.date) if analysis.date else None
        if week is None:
            raise UsageError(f"{analysis.name}: no date in the run; give --week such as 2026-W48, or date in run.toml")
    monday(week)
    return config, week


def _content_key(analysis: RunAnalysis, tables: Mapping[str, pa.Table]) -> str:
    """The key of the run's files; of its results when the analysis does not know its files."""
    if analysis.content_key:
        return analysis.content_key
    hashed = hashlib.sha256()
    for name in sorted(tables):
        hashed.update(dumps([name, tables[name].to_pylist()], indent=None).encode())
    return "results:" + hashed.hexdigest()


def _second_filing(store: Store, record: RunRecord) -> RunRecord | None:
    """Another run of the same launch that is filed otherwise."""
    return next((r for r in store.filings(record.content_key) if r.filed_as != record.filed_as), None)


def _refuse_second_filing(store: Store, record: RunRecord) -> None:
    """One run is one launch: filed twice it would count as two."""
    if (other := _second_filing(store, record)) is not None:
        raise UsageError(
            f"{record.name}: already in the store as {other.config} {other.week} (run {other.id}); "
            f"`profkit runs {other.id} --remove` first if it was filed wrongly"
        )


def _write_tables(folder: Path, tables: Mapping[str, pa.Table], record: RunRecord) -> dict[str, TableFile]:
    written = {}
    for name, table in sorted(tables.items()):
        path = folder / f"{name}.parquet"
        pq.write_table(with_head(table, record.id, record.config, record.week), path, compression="zstd")
        data = path.read_bytes()
        written[name] = TableFile(table.num_rows, len(data), hashlib.sha256(data).hexdigest())
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return written


def _publish(layout: Layout, record: RunRecord, tables: Mapping[str, pa.Table]) -> bool:
    """Write aside, ``run.json`` last, then rename; whoever renames first wins and the other's copy is dropped.

    Returns:
        Whether this copy is the one in the store.
    """
    target = layout.runs / record.id
    aside = layout.incoming / f"{record.id}.{os.getpid()}.{os.urandom(4).hex()}"
    aside.mkdir()
    try:
        record = replace(record, tables=_write_tables(aside, tables, record))
        put(aside / RECORD, dumps(record).encode(), aside)
        try:
            aside.rename(target)
        except OSError:
            if not (target / RECORD).exists():
                raise
            return False
        sync_folder(layout.runs)
        return True
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _withdraw(layout: Layout, record: RunRecord) -> None:
    """Take back what :func:`_publish` put into the store."""
    away = layout.incoming / f"{record.id}.{os.getpid()}.{os.urandom(4).hex()}"
    with contextlib.suppress(FileNotFoundError):
        (layout.runs / record.id).rename(away)
    shutil.rmtree(away, ignore_errors=True)


def _refuse_damaged(layout: Layout, record: RunRecord) -> None:
    """A folder of the run's name that is there and holds something else stays so, however often one looks."""
    path = layout.runs / record.id / RECORD
    with contextlib.suppress(FileNotFoundError):
        found = record_from_json(path.read_bytes(), path)
        if found.content_key != record.content_key:
            raise InputError(f"{path}: the record is of other files; remove its folder and add the run again")


def _put_in(layout: Layout, record: RunRecord, tables: Mapping[str, pa.Table]) -> Added | None:
    """Put a run into the store unless it is there; ``None`` when other writers got in between: then look again.

    Each writer looks once more after writing. Of two that file one launch under two names at once at least one
    sees the other's run then, and takes its own back; so nobody reports a run as added that counts as a second launch.
    """
    _refuse_second_filing(Store(layout), record)
    published = not (layout.runs / record.id / RECORD).exists() and _publish(layout, record, tables)
    store = Store(layout)  # as it is now
    restored = record.id in store.marked_removed()
    if restored:
        store.restore(record.id)
        store = Store(layout)
    stored = next((r for r in store.filings(record.content_key) if r.id == record.id), None)
    if stored is None:  # removed or deleted for good by somebody at this moment
        _refuse_damaged(layout, record)
        return None
    if published and _second_filing(store, record) is not None:
        _withdraw(layout, record)
        return None
    return Added(stored, published or restored)


def add_run(
    root: Path,
    analysis: RunAnalysis,
    *,
    config: str | None = None,
    week: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Added:
    """Keep the results of a run in the store at ``root``, which is made if it is not there.

    ``config`` and ``week`` default to what the run says of itself. Adding the same run again changes nothing.

    Raises:
        UsageError: the run has no configuration or week, or is already filed under another one.
        InputError: the run holds no figure that could be compared.
    """
    config, week = _filed_as(analysis, config, week)
    launch = launch_of(analysis)
    if not launch.measurements:
        raise InputError(f"{analysis.name}: no throughput, no cycles, no benchmark figures: nothing to keep")
    with naming(root):
        layout = create_layout(root)
    tables = result_tables(analysis, launch)
    key = _content_key(analysis, tables)
    every_label = {**analysis.labels, **(labels or {})}
    record = RunRecord(
        id=run_id(key, config, week, every_label, __version__),
        name=analysis.name.encode("utf-8", "replace").decode(),  # folder names need not be UTF-8
        config=config,
        week=week,
        date=analysis.date,
        content_key=key,
        profkit_version=__version__,
        fingerprint=launch.fingerprint,
        sources={k: analysis.facts[k].source for k in launch.fingerprint if k in analysis.facts},
        labels=every_label,
        quality=launch.quality,
        tables={},
        warnings=analysis.warnings,
    )
    with naming(root):
        while (added := _put_in(layout, record, tables)) is None:
            time.sleep(random.uniform(0.0, _PAUSE_S))  # noqa: S311 - so that two writers do not meet again and again
    return added
