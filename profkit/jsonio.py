"""JSON documents: strict, and the same bytes for the same input."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from profkit.escape import encodable

# A float is printed with this many significant digits: more than any clock resolves,
# fewer than the last-bit noise of a sum over threads or library versions.
SIGNIFICANT_DIGITS = 12
_PLAIN = frozenset({bool, int, str, type(None)})


def plain(value: Any) -> Any:
    """Turn results into plain JSON values.

    Dataclasses become objects (``to_json`` is used where there is one), tuples lists, non-finite
    floats ``None``; floats are rounded to 12 significant digits. Keys keep their order.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if math.isfinite(value) else None
    if hasattr(value, "to_json"):
        return plain(value.to_json())
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        if _PLAIN.issuperset(map(type, value)):  # long lists of numbers and names
            return list(value)
        return [plain(v) for v in value]
    if hasattr(value, "item"):  # numpy scalars
        return plain(value.item())
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def loads(text: str, *, strict: bool = True) -> Any:
    """Parse JSON; half a surrogate pair, which no UTF-8 can hold, is replaced.
    Control characters in strings are an error if ``strict``.

    Raises:
        ValueError: the text is no JSON.
        RecursionError: it is nested too deeply.
    """
    document = json.loads(text, strict=strict)
    return _encodable(document) if "\\ud" in text or "\\uD" in text else document


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable(k): _encodable(v) for k, v in value.items()}
    return [_encodable(v) for v in value] if isinstance(value, list) else value


def dumps(document: Any, *, indent: int | None = 2) -> str:
    """Serialise a document; strict JSON with a final newline."""
    return json.dumps(plain(document), ensure_ascii=False, allow_nan=False, indent=indent) + "\n"
