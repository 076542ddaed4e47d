"""The list of a store's runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from profkit.escape import visible
from profkit.reports.wording import count
from profkit.store.layout import RunRecord

Row = Mapping[str, object]
SCHEMA = pa.schema([
    ("id", pa.string()), ("config", pa.string()), ("week", pa.string()), ("date", pa.string()), ("name", pa.string()),
    ("labels", pa.map_(pa.string(), pa.string())), ("tags", pa.list_(pa.string())), ("fingerprint", pa.string()),
    ("engine_version", pa.string()), ("driver_version", pa.string()), ("gpu", pa.string()),
    ("decode_lines", pa.int64()), ("cycles", pa.int64()), ("warnings", pa.int64()), ("profkit_version", pa.string()),
])  # fmt: skip
SHOWN = ("id", "config", "week", "date", "name", "engine_version", "cycles", "tags")
TITLES = {"engine_version": "engine", "cycles": "traced cycles"}
WIDEST = 44


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def listing(records: Sequence[RunRecord], tags: Mapping[str, Sequence[str]]) -> list[Row]:
    """One row per run, in the order given."""
    from profkit.comparison.fingerprint import digest

    return [
        {
            "id": r.id,
            "config": r.config,
            "week": r.week,
            "date": r.date,
            "name": r.name,
            "labels": dict(sorted(r.labels.items())),
            "tags": list(tags.get(r.id, ())),
            "fingerprint": digest(r.fingerprint),
            "engine_version": _text(r.fingerprint.get("engine.version")),
            "driver_version": _text(r.fingerprint.get("driver.version")),
            "gpu": _text(r.fingerprint.get("gpu.name")),
            "decode_lines": r.quality.decode_lines,
            "cycles": r.quality.cycles,
            "warnings": r.quality.warnings,
            "profkit_version": r.profkit_version,
        }
        for r in records
    ]


def as_table(rows: Sequence[Row]) -> pa.Table:
    """The rows as an Arrow table."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=SCHEMA)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, list):
        return visible(", ".join(str(v) for v in value), WIDEST)
    return visible(str(value), WIDEST)


def terminal(rows: Sequence[Row]) -> str:
    """Aligned columns and a last line that counts."""
    cells = [[TITLES.get(name, name) for name in SHOWN], *([_cell(row[name]) for name in SHOWN] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(SHOWN))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    configs, weeks = {str(r["config"]) for r in rows}, {str(r["week"]) for r in rows}
    counts = (count(len(rows), "run"), count(len(configs), "configuration"), count(len(weeks), "week"))
    lines.append(", ".join(counts))
    return "\n".join(lines) + "\n"
