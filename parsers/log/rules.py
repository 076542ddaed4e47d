"""The dialect rules, compiled once: foreign prefixes, fields of batch lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias, cast

from profkit.rules import load_rules

LineKind: TypeAlias = Literal["decode", "prefill"]
ValueKind: TypeAlias = Literal["int", "float", "percent"]


@dataclass(frozen=True, slots=True)
class Field:
    """One known key of a batch line."""

    key: str
    column: str
    kind: ValueKind
    required: bool


@dataclass(frozen=True, slots=True)
class ForeignPrefix:
    """What another program writes in front of a server's line."""

    name: str
    after: str | None
    pattern: re.Pattern[bytes]


@cache
def fields(line: LineKind) -> dict[str, Field]:
    """Known keys of decode or prefill lines."""
    return {
        rule["key"]: Field(rule["key"], rule["column"], cast(ValueKind, rule["kind"]), rule.get("required", False))
        for rule in load_rules("dialects")["field"]
        if rule["line"] == line
    }


@cache
def foreign_prefixes() -> tuple[ForeignPrefix, ...]:
    """Known foreign prefixes in the order in which they are tried."""
    return tuple(
        ForeignPrefix(rule["name"], rule.get("after"), re.compile(rule["pattern"].encode()))
        for rule in load_rules("dialects")["foreign_prefix"]
    )
