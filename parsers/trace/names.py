"""What names say: rank, parallel coordinates and stage from file names and from the labels of merged traces."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from profkit.rules import load_rules

Stage: TypeAlias = Literal["prefill", "decode"]

# A merging tool writes every process id as text behind the rank it came from: "[TP00-EP00] 123".
_LABELLED_PID = re.compile(r"\[((?:[A-Z]{2}\d+)(?:-[A-Z]{2}\d+)*|Unknown)\] ?(.*)", re.DOTALL)
_COORDINATE = re.compile(r"([A-Z]{2})(\d+)")


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where a file stands in the parallel layout; ``None`` is unknown."""

    rank: int | None = None
    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    stage: Stage | None = None
    profile: str | None = None
    engine: str | None = None


@cache
def _schemes() -> tuple[tuple[re.Pattern[str], str | None], ...]:
    return tuple((re.compile(s["pattern"]), s.get("engine")) for s in load_rules("trace_names")["scheme"])


def coordinates_of_name(name: str) -> Coordinates:
    """Read a file's name (without folder); unknown schemes yield nothing."""
    stages: dict[str, Stage] = load_rules("trace_names")["stages"]
    for pattern, engine in _schemes():
        match = pattern.search(name)
        if match is None:
            continue
        found = match.groupdict()
        numbers = {k: int(found[k]) if found.get(k) else None for k in ("rank", "dp", "tp", "pp", "ep")}
        return Coordinates(
            **numbers, stage=stages.get(found.get("stage") or ""), profile=found.get("profile"), engine=engine
        )
    return Coordinates()


def split_label(pid: str) -> tuple[str, str] | None:
    """``("TP00-EP00", "123")`` from a merged trace's process id; ``None`` if it is no such id."""
    match = _LABELLED_PID.fullmatch(pid)
    return (match.group(1), match.group(2)) if match else None


def coordinates_of_label(label: str) -> Coordinates:
    """Coordinates from a merged trace's rank label."""
    found = {key.lower(): int(value) for key, value in _COORDINATE.findall(label)}
    return Coordinates(dp=found.get("dp"), tp=found.get("tp"), pp=found.get("pp"), ep=found.get("ep"))
