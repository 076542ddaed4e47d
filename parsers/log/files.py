"""Which files of a folder are logs, and in which order rotated ones belong together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_LOG_NAME = re.compile(
    r"(?:server[^/]*\.log|bench[^/]*\.jsonl|nccl[^/]*\.log)(?:\.\d+|[-.]\d{4}-?\d\d-?\d\d(?:[T_-]?\d\d[\d:-]*)?)?(?:\.gz|\.zst|\.zip)?\Z",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(?P<base>.+?)\.(?P<number>\d{1,5})(?P<packed>\.gz|\.zst|\.zip)?\Z")
_DATED = re.compile(r"(?P<base>.+?)[-.]\d{4}-?\d\d-?\d\d(?:[T_-]?\d\d[\d:-]*)?(?:\.gz|\.zst|\.zip)?\Z", re.IGNORECASE)
_PACKED = re.compile(r"(?:\.gz|\.zst|\.zip)\Z", re.IGNORECASE)
_FEW: Final = 100_000


def find_logs(folder: Path | str) -> list[Path]:
    """The logs of a run folder: ``server*.log``, ``bench*.jsonl`` and ``nccl*.log``, packed and rotated ones too.

    Files may lie anywhere below; the result is sorted by name, the parts of a rotated log oldest first.
    """
    root = Path(folder)
    found = [p for p in root.rglob("*") if _LOG_NAME.match(p.name) and p.is_file() and ".profkit" not in p.parts]
    return in_rotation_order(found[:_FEW])


def in_rotation_order(paths: Iterable[Path]) -> list[Path]:
    """Sort paths by name, with ``server.log.2`` (or ``server.log-20260102``) before ``server.log``."""
    return sorted(paths, key=_order)


def _order(path: Path) -> tuple[str, str, int, int, str]:
    name = path.name
    if numbered := _NUMBERED.match(name):
        return str(path.parent), numbered["base"], 1, -int(numbered["number"]), name
    if dated := _DATED.match(name):
        return str(path.parent), dated["base"], 0, 0, name
    return str(path.parent), _PACKED.sub("", name), 2, 0, name


def rotation_sorted(paths: Iterable[str]) -> list[str]:
    """The same paths in their order, but the parts of one rotated log oldest first, where its first part stands."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(rotated_base(path), []).append(path)
    return [str(p) for group in groups.values() for p in (in_rotation_order(map(Path, group)) if group[1:] else group)]


def rotated_base(path: str) -> str:
    """The name that the parts of one rotated log share."""
    match = _NUMBERED.match(path) or _DATED.match(path)
    return match["base"] if match else _PACKED.sub("", path)
