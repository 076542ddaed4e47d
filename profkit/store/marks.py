"""Tags and removals: runs never change, so what is said about them later stands in small files beside them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from profkit.errors import UsageError
from profkit.jsonio import dumps
from profkit.store.layout import Layout, put

Action: TypeAlias = Literal["tag", "untag", "remove", "restore"]
SCHEMA = "profkit.mark/1"
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+-]{0,63}\Z")
_NAME = re.compile(r"([0-9a-f]{16})-(\d{6})-[0-9a-f]{8}\.json\Z")


class Mark(msgspec.Struct, frozen=True):
    """One statement about a run."""

    schema: str
    run: str
    action: Action
    tag: str | None = None


@dataclass(slots=True)
class Marks:
    """What all marks together say."""

    tags: dict[str, set[str]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    damaged: list[str] = field(default_factory=list)

    def apply(self, mark: Mark) -> None:
        """Take one more mark into account."""
        if mark.action == "remove":
            self.removed.add(mark.run)
        elif mark.action == "restore":
            self.removed.discard(mark.run)
        elif mark.tag is not None:
            tags = self.tags.setdefault(mark.run, set())
            (tags.add if mark.action == "tag" else tags.discard)(mark.tag)


def _files(layout: Layout) -> list[tuple[str, int, Path]]:
    """Marks by run and number; two of the same number (two writers at once) go by name."""
    if not layout.marks.is_dir():
        return []
    matched = ((_NAME.match(p.name), p) for p in layout.marks.iterdir())
    return sorted((m[1], int(m[2]), p) for m, p in matched if m)


def read_marks(layout: Layout) -> Marks:
    """All marks of a store; damaged files are named, not fatal."""
    marks = Marks()
    for run, _, path in _files(layout):
        try:
            mark = msgspec.json.decode(path.read_bytes(), type=Mark)
        except (ValueError, RecursionError, OSError):
            marks.damaged.append(path.name)
            continue
        if mark.run == run and mark.schema == SCHEMA:
            marks.apply(mark)
        else:
            marks.damaged.append(path.name)
    return marks


def add_marks(layout: Layout, runs: Iterable[str], action: Action, tag: str | None = None) -> None:
    """Say something about runs.

    Raises:
        UsageError: a tag that is no plain word.
    """
    if tag is not None and not _TAG.match(tag):
        raise UsageError(f"tag {tag!r}: use up to 64 letters, digits and . _ : / + -")
    layout.marks.mkdir(exist_ok=True)
    layout.incoming.mkdir(exist_ok=True)
    last = {run: number for run, number, _ in _files(layout)}
    for run in runs:
        number = last.get(run, 0) + 1
        data = dumps({"schema": SCHEMA, "run": run, "action": action, "tag": tag}, indent=None)
        name = f"{run}-{number:06d}-{hashlib.sha256(data.encode()).hexdigest()[:8]}.json"
        put(layout.marks / name, data.encode(), layout.incoming)
