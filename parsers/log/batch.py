"""The general reader of one decode or prefill batch line: an ordered list of ``key: value`` pairs.

It reads every dialect; :mod:`profkit.parsers.log.fast` reads the common ones faster and must agree with it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Final, TypeAlias

from profkit.escape import visible
from profkit.parsers.log.rules import Field, LineKind, fields

Value: TypeAlias = int | float | bool | str | None

START: Final[dict[bytes, LineKind]] = {b"Decode batch": "decode", b"Prefill batch": "prefill"}
_OPENING = re.compile(
    rb"(?:Decode|Prefill) batch(?: \[(?P<iteration>\d{1,18})\])?(?:\(mixed #running-req: (?P<mixed>\d{1,18})\))?"
    rb"(?P<separator>[.,]) ?"
)
_INT = re.compile(r"-?\d{1,18}\Z")
_FLOAT = re.compile(r"-?(?:\d{1,18}(?:\.\d{1,18})?(?:e[+-]?\d{1,3})?|nan|inf)\Z")
_PERCENT = re.compile(r"(-?\d{1,18}(?:\.\d{1,18})?|-?nan|-?inf)%\Z")
_TWO_POOLS = re.compile(r"full=(\S+)\Z")
_SECOND_POOL = re.compile(r"(swa|mamba)=(\S+)\Z")
_GRAPH = re.compile(r"([a-z]{2,12}) graph\Z")
# The sum of both is the longest thing that a terminal's overwriting can leave of two keys.
_FRAGMENT: Final = 5
# What the server's own bookkeeping of its memory prints; a wrong one says nothing against the rest of the line.
_BOOKKEEPING: Final = frozenset(
    {"token", "token_usage", "swa_token", "swa_token_usage", "mamba_num", "mamba_usage", "preallocated_usage"}
)
_SHOWN: Final = 300
_MOST_FIELDS: Final = 200
_LONGEST_KEY: Final = 100
_LONGEST_EXTRA: Final = 1000


@dataclass(slots=True)
class BatchLine:
    """What one batch line says; ``damage`` is a sentence when it cannot be read as printed, and then no value is given.

    ``template`` is the list of keys and the tail: equal for lines of one dialect and configuration.
    """

    kind: LineKind
    values: dict[str, Value] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)
    damage: str | None = None
    separator: str = ""
    tail: str = ""
    keys: tuple[str, ...] = ()


def line_kind(line: bytes, start: int) -> LineKind | None:
    """Whether a message that begins at ``start`` is a batch line."""
    if line.startswith(b"Decode batch", start):
        return "decode"
    return "prefill" if line.startswith(b"Prefill batch", start) else None


def read_batch(kind: LineKind, message: bytes) -> BatchLine:
    """Read a message that starts with ``Decode batch`` or ``Prefill batch``."""
    result = BatchLine(kind)
    opening = _OPENING.match(message)
    if opening is None:
        return _damaged(result, message, "the line is cut before its first field")
    result.separator = opening["separator"].decode()
    body = message[opening.end() :].decode("utf-8", "replace")
    text = body.rstrip(", ")
    result.tail = body[len(text) :]
    if opening["iteration"] is not None:
        result.values["iteration"] = int(opening["iteration"])
    if opening["mixed"] is not None:
        result.values["running_req"] = int(opening["mixed"])
    damage = _read_pairs(result, text)
    if damage is None:
        damage = _missing(result)
    return _damaged(result, message, damage) if damage else result


def _damaged(result: BatchLine, message: bytes, why: str) -> BatchLine:
    result.damage = why
    result.values = {}
    result.extra = {"damage": why, "text": visible(message[: 4 * _SHOWN].decode("utf-8", "replace"), _SHOWN)}
    return result


def _read_pairs(result: BatchLine, text: str) -> str | None:
    """Fill values and extra; returns what is wrong, or ``None``."""
    known = fields(result.kind)
    keys: dict[str, None] = {}
    parts = text.split(", ") if text else []
    if len(parts) > _MOST_FIELDS:
        return "too many fields"
    for number, part in enumerate(parts):
        key, colon, value = part.partition(": ")
        last = number == len(parts) - 1
        if not colon:
            pool = _SECOND_POOL.match(part)
            if pool is None or not keys:
                if _is_cut(part, known):
                    return f"the field {visible(part, 40)} has no value"
                note = f"{result.extra['note']}, {part}" if "note" in result.extra else part
                result.extra["note"] = note[:_LONGEST_EXTRA]
                continue
            problem = _store(result, known, f"{pool[1]} {next(reversed(keys)).lstrip('#')}", pool[2], last=last)
        elif key in keys:
            return f"the field {visible(key, 40)} appears twice"
        else:
            keys[key] = None
            pool = _TWO_POOLS.match(value)
            problem = _store(result, known, key, pool[1] if pool else value, last=last and not result.tail)
        if problem is not None:
            return problem
    result.keys = tuple(keys)
    return None


def _store(result: BatchLine, known: dict[str, Field], key: str, value: str, *, last: bool) -> str | None:
    # 0.4.9 prints the second pool as `swa=5000`; later releases call the same figure `#swa token`.
    rule = known.get(key) or known.get(f"#{key}")
    if rule is None:
        graph = _GRAPH.match(key)
        if graph and value in ("True", "False"):
            result.values["cuda_graph"] = value == "True"
            result.values["graph_kind"] = graph[1]
            return None
        if len(key) > _LONGEST_KEY:
            return f"a field with a name of {len(key)} characters"
        if _overwritten(key, result.kind):
            return f"the middle of the line is missing at {visible(key, 40)}"
        result.extra[key] = value[:_LONGEST_EXTRA]
        return None
    number = _number(rule, value)
    if number is _BAD:
        return f"{rule.key} is cut" if last else f"{rule.key} is {visible(value, 40)}"
    if last and rule.kind == "float" and not re.search(r"\.\d\d\Z|nan\Z|inf\Z", value):
        return f"{rule.key} is cut"  # SGLang prints two decimals everywhere
    if number is not None and number < 0:  # nothing that a batch line counts or measures can be
        if rule.column not in _BOOKKEEPING:
            return f"{rule.key} is below zero"
        result.extra[key] = value
        return None
    result.values[rule.column] = number
    return None


class _Bad(float):
    pass


_BAD: Final = _Bad("nan")


def _number(rule: Field, value: str) -> float | int | None:
    if rule.kind == "int":
        return int(value) if _INT.match(value) else _BAD
    if rule.kind == "percent":
        percent = _PERCENT.match(value)
        return _finite(float(percent[1])) if percent else _BAD
    return _finite(float(value)) if _FLOAT.match(value) else _BAD


def _finite(number: float) -> float | None:
    return number + 0.0 if math.isfinite(number) else None  # -0.00 is 0


def _is_cut(part: str, known: dict[str, Field]) -> bool:
    return any(key.startswith(part.rstrip(":")) for key in (*known, "cuda graph", "npu graph", "cpu graph"))


@cache
def _overwritten(key: str, kind: LineKind) -> bool:
    """Whether an unknown key is the start of one known key glued to the end of another."""
    known = [*fields(kind), "cuda graph", "npu graph"]
    for cut in range(_FRAGMENT, len(key) - _FRAGMENT + 1):
        if any(k.startswith(key[:cut]) for k in known) and any(k.endswith(key[cut:]) for k in known):
            return True
    return False


def _missing(result: BatchLine) -> str | None:
    for rule in fields(result.kind).values():
        if rule.required and rule.column not in result.values:
            return f"no {rule.key}"
    return None
