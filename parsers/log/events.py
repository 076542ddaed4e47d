"""Lines that explain the numbers: start, weights, memory, graphs, retractions, faults. Patterns are data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from profkit.escape import visible
from profkit.parsers.server_args import text_without_secrets
from profkit.rules import load_rules

# 0.5.9 repeats level and source line inside early messages.
_LEVEL = re.compile(r"(?:WARNING|INFO|ERROR) [\w.]+\.py:\d+: ")
_SHOWN: Final = 500


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its kind and what the line says, as text by name."""

    kind: str
    fields: dict[str, str]
    rest: str = ""


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    pattern: re.Pattern[str]


@cache
def _rules() -> tuple[_Rule, ...]:
    return tuple(_Rule(rule["kind"], re.compile(rule["pattern"])) for rule in load_rules("dialects_events")["event"])


@cache
def _first_words() -> re.Pattern[str]:
    """A quick test that rules out most lines before the rules are tried one by one."""
    return re.compile("|".join(f"(?:{_ungrouped(rule.pattern.pattern)})" for rule in _rules()))


def _ungrouped(pattern: str) -> str:
    return re.sub(r"\(\?P<\w+>", "(?:", pattern)


def read_event(message: str) -> Event | None:
    """The event that a message tells, or ``None``."""
    level = _LEVEL.match(message)
    if level:
        message = message[level.end() :]
    if not _first_words().match(message):
        return None
    for rule in _rules():
        match = rule.pattern.match(message)
        if match:
            found = {
                k: visible(text_without_secrets(v.strip()), _SHOWN)
                for k, v in match.groupdict().items()
                if v is not None
            }
            return Event(rule.kind, found, message[match.end() :])
    return None
