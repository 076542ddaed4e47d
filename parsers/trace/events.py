"""One trace event as a typed record, decoded fast when it is sound and leniently when it is not."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import Raw, Struct

Number: TypeAlias = int | float | str | None
ABSENT = Raw(b"")
FRAME = "python_function"


class Args(Struct, gc=False, frozen=True):
    """The arguments that some table keeps. Integers may be written as text or as a float."""

    external_id: Number = msgspec.field(name="External id", default=None)
    old_external_id: Number = msgspec.field(name="external id", default=None)
    correlation: Number = None
    stream: Number = None
    device: Number = None
    graph_id: Number = msgspec.field(name="graph id", default=None)
    graph_node_id: Number = msgspec.field(name="graph node id", default=None)
    python_id: Number = msgspec.field(name="Python id", default=None)
    python_parent_id: Number = msgspec.field(name="Python parent id", default=None)
    collective: str | None = msgspec.field(name="Collective name", default=None)
    dtype: str | None = None
    in_elements: Number = msgspec.field(name="In msg nelems", default=None)
    out_elements: Number = msgspec.field(name="Out msg nelems", default=None)
    group_size: Number = msgspec.field(name="Group size", default=None)
    group: str | None = msgspec.field(name="Process Group Name", default=None)
    # Arguments of metadata events.
    name: Number = None
    labels: Number = None
    sort_index: Number = None


NO_ARGS = Args()


class Event(Struct, gc=False):
    """One event of the trace-event format; times are kept as their text so that no digit is lost.

    ``without_collectives``: no event that was decoded together with this one names a collective.
    """

    without_collectives: ClassVar[bool] = False
    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Raw = ABSENT
    dur: Raw = ABSENT
    args: Args = NO_ARGS


_EVENT = msgspec.json.Decoder(Event)
_EVENTS = msgspec.json.Decoder(list[Event])


def decode_events(text: bytes | bytearray | memoryview) -> list[Event]:
    """Decode a JSON array of events.

    Raises:
        msgspec.DecodeError: it is no array, an event is malformed, or a field has an unusual type.
    """
    return _EVENTS.decode(text)


def decode_event(text: bytes) -> Event | None:
    """Decode one event strictly; ``None`` when that fails."""
    try:
        return _EVENT.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def decode_leniently(text: bytes) -> Event | None:
    """Decode one event that a strict reader refuses: NaN, control characters, broken UTF-8, unusual types.

    ``None`` when it is no JSON object even so.
    """
    try:
        found = json.loads(text.decode("utf-8", "replace"), parse_float=Decimal, strict=False)
    except (ValueError, RecursionError, ArithmeticError):
        return None
    return _from_dict(found) if isinstance(found, dict) else None


def _text(value: Any) -> str | None:
    # A lone surrogate is legal in JSON's escapes and in no Arrow string.
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None


def _number(value: Any) -> Number:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == int(value) else None
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value == int(value) else None
    return value if isinstance(value, int) else _text(value)


def _time(value: Any) -> Raw:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return ABSENT
    return Raw(str(value).encode("utf-8", "replace").replace(b"\n", b" "))


def _from_dict(found: dict[str, Any]) -> Event:
    pid, tid = _number(found.get("pid")), _number(found.get("tid"))
    args = found.get("args")
    return Event(
        ph=_text(found.get("ph")),
        cat=_text(found.get("cat")),
        name=_text(found.get("name")),
        pid=pid if isinstance(pid, int | str) else None,
        tid=tid if isinstance(tid, int | str) else None,
        ts=_time(found.get("ts")),
        dur=_time(found.get("dur")),
        args=_args_from_dict(args) if isinstance(args, dict) and args else NO_ARGS,
    )


_TEXT_FIELDS = frozenset({"collective", "dtype", "group"})
_ARGS_FIELDS = tuple((f.name, f.encode_name) for f in msgspec.structs.fields(Args))


def _args_from_dict(args: dict[str, Any]) -> Args:
    values: dict[str, Any] = {
        field: (_text if field in _TEXT_FIELDS else _number)(args[key]) for field, key in _ARGS_FIELDS if key in args
    }
    return Args(**values)
