"""The system a run was measured on: what must be equal before two runs may be compared."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal, TypeAlias

from profkit.facts import ARGUMENT_NAMES
from profkit.jsonio import dumps
from profkit.rules import load_rules
from profkit.run import Facts

Scalar: TypeAlias = str | int | float | bool
Fingerprint: TypeAlias = Mapping[str, Scalar]
CauseClass: TypeAlias = Literal["workload", "environment", "code", "config"]

# Differences of these classes make runs incomparable unless they were meant.
GATED: frozenset[CauseClass] = frozenset({"workload", "environment"})
# Facts that are paths on one machine and names on another.
_NAMED_BY_PATH = ("model.name", "speculative.draft_model")


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose values differ between (or within) the two sides; ``None`` stands for unknown.

    ``state``: ``expected`` (the caller meant it), ``blocking`` (nobody did, and it makes the sides incomparable),
    ``listed`` (a difference of code or configuration, which is what most comparisons are about), ``unknown`` (one side
    does not state it).
    """

    key: str
    cause: CauseClass
    base: tuple[Scalar | None, ...]
    candidate: tuple[Scalar | None, ...]
    state: Literal["expected", "blocking", "listed", "unknown"]

    def to_json(self) -> dict[str, object]:
        """The entry of ``differences``: a value, or a list where the launches of one side differ."""

        def side(values: tuple[Scalar | None, ...]) -> object:
            return values[0] if len(values) == 1 else list(values)

        return {
            "key": self.key,
            "class": self.cause,
            "base": side(self.base),
            "candidate": side(self.candidate),
            "state": self.state,
        }


@cache
def cause_class(key: str) -> CauseClass | None:
    """What kind of cause a change of this fact would be; ``None`` when the fact says nothing about speed."""
    rules = load_rules("fingerprint")
    if key.startswith("server_args."):
        name = key.removeprefix("server_args.")
        if name in ARGUMENT_NAMES or any(fnmatchcase(name, p) for p in rules["ignore"]["server_args"]):
            return None
    for rule in rules["key"]:
        if fnmatchcase(key, rule["pattern"]):
            found: CauseClass = rule["class"]
            return found
    return None


def _no_number(value: Scalar) -> bool:
    """NaN and infinity state nothing (and TOML can hold them)."""
    return isinstance(value, float) and not math.isfinite(value)


def fingerprint(facts: Facts, labels: Mapping[str, str]) -> dict[str, Scalar]:
    """The facts that identify the system and the task, by name; models are named by the last part of their path."""
    known: dict[str, Scalar] = {key: fact.value for key, fact in facts.items()}
    # Server arguments that were saved by the profiler name the release; the log seldom does.
    if (version := known.get("server_args.version")) is not None:
        known.setdefault("engine.version", version)
    known |= {f"labels.{key}": value for key, value in labels.items()}
    result = {k: v for k, v in sorted(known.items()) if cause_class(k) is not None and not _no_number(v)}
    for key in _NAMED_BY_PATH:
        if isinstance(value := result.get(key), str):
            result[key] = value.rstrip("/").rsplit("/", 1)[-1]
    return result


def digest(prints: Fingerprint) -> str:
    """A short name of a fingerprint."""
    return hashlib.sha256(dumps(dict(sorted(prints.items())), indent=None).encode()).hexdigest()[:12]


def _values(prints: Sequence[Fingerprint], key: str) -> tuple[Scalar | None, ...]:
    seen = {p.get(key) for p in prints}
    return tuple(sorted(seen, key=lambda v: (v is not None, str(v))))


def _state(
    key: str, cause: CauseClass, sides: tuple[tuple[Scalar | None, ...], ...], expect: Sequence[str]
) -> Literal["expected", "blocking", "listed", "unknown"]:
    if any(fnmatchcase(key, pattern) for pattern in expect):
        return "expected"
    known = {v for side in sides for v in side if v is not None}
    if len(known) < 2:
        return "unknown"
    mixed = any(len([v for v in side if v is not None]) > 1 for side in sides)
    # Whoever names what was meant to change wants to hear of everything else.
    return "blocking" if cause in GATED or mixed or expect else "listed"


def differences(
    base: Sequence[Fingerprint], candidate: Sequence[Fingerprint], expect: Sequence[str] = ()
) -> list[Difference]:
    """All keys that differ between or within the sides, by class and name.

    ``expect`` holds keys or shell patterns that the caller meant to change. Launches of one side that differ among
    themselves are no repeats: such a key blocks too.
    """
    found = []
    for key in sorted({k for p in (*base, *candidate) for k in p}):
        cause = cause_class(key)
        if cause is None:
            continue
        sides = (_values(base, key), _values(candidate, key))
        if sides[0] == sides[1] and len(sides[0]) == 1:
            continue
        found.append(Difference(key, cause, sides[0], sides[1], _state(key, cause, sides, expect)))
    order = ("workload", "environment", "code", "config")
    return sorted(found, key=lambda d: (order.index(d.cause), d.key))
