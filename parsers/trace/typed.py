"""Chunks of events, decoded with one record type per category: only the arguments that its tables keep are looked at.

Every key of the arguments is compared with every field of their record, so a record for all categories costs up to
half of a reading. Where a chunk holds anything that these records do not know (a category, an event without one, an
unusual type) it is decoded with :func:`decode_events`; what both yield has the same attributes and the same values.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, Final, cast

import msgspec

from profkit.parsers.trace.events import FRAME, Args, Event, decode_events

_IDS: Final = ("external_id", "old_external_id")
_ON_GPU: Final = ("external_id", "device", "stream", "correlation", "graph_id", "graph_node_id", "old_external_id")
_COLLECTIVE: Final = ("collective", "dtype", "in_elements", "out_elements", "group_size", "group")
# Categories of today's profilers, and the arguments that the tables of each keep.
_ARGUMENTS: Final[dict[str, tuple[str, ...]]] = {
    "cpu_op": _IDS,
    "cuda_runtime": ("external_id", "correlation", "old_external_id"),
    "cuda_driver": ("external_id", "correlation", "old_external_id"),
    "hip_runtime": ("external_id", "correlation", "old_external_id"),
    "hip_driver": ("external_id", "correlation", "old_external_id"),
    "kernel": _ON_GPU,
    "gpu_memcpy": _ON_GPU,
    "gpu_memset": _ON_GPU,
    "user_annotation": _ON_GPU,
    "gpu_user_annotation": _ON_GPU,
    "Trace": _IDS,
    FRAME: ("python_parent_id", "python_id"),
}
# Arrows between events, marks and the profiler's own work: only their number is kept.
_UNKEPT: Final = ("ac2g", "fwdbwd", "overhead", "cpu_instant_event")
_KEYS: Final = {f.name: f.encode_name for f in msgspec.structs.fields(Args)}
_TYPES: Final = {f.name: f.type for f in msgspec.structs.fields(Args)}
_EVENT: Final = {f.name: f for f in msgspec.structs.fields(Event)}
# Trials that may fail before a file is taken to be of another kind; a success earns one back.
_PATIENCE: Final = 4
_MOST_PATIENCE: Final = 16


def _arguments(names: tuple[str, ...], *, collectives: bool) -> Any:
    """A record of some arguments. Without ``collectives`` an event that names one is refused."""
    types = {name: _TYPES[name] for name in names}
    types |= {name: _TYPES[name] for name in _COLLECTIVE} if collectives else {"collective": type(None)}
    fields = [(n, kind, msgspec.field(name=_KEYS[n], default=None)) for n, kind in types.items()]
    absent = {name: None for name in _KEYS if name not in types}
    return msgspec.defstruct("Arguments", fields, namespace=absent, gc=False, frozen=True)


def _record(category: str, arguments: tuple[str, ...] | None, *, collectives: bool) -> Any:
    """A record of the events of a category; without ``arguments`` of one that is only counted."""
    names = ("ph", "pid") if arguments is None else ("ph", "name", "pid", "tid", "ts", "dur")
    kept = _arguments(arguments or (), collectives=collectives)
    fields = [(n, _EVENT[n].type, msgspec.field(default=_EVENT[n].default)) for n in names]
    fields.append(("args", kept, msgspec.field(default=kept())))
    constant = {"cat": category, "without_collectives": not collectives}
    constant |= dict.fromkeys(("name", "tid")) if arguments is None else {}
    return msgspec.defstruct("Event", fields, namespace=constant, gc=False, tag_field="cat", tag=category)


def _decoder(*, collectives: bool) -> msgspec.json.Decoder[Any]:
    categories = dict.fromkeys(_UNKEPT) | _ARGUMENTS
    records = [_record(category, names, collectives=collectives) for category, names in categories.items()]
    union: Any = reduce(or_, records)
    return msgspec.json.Decoder(list[union])


_PLAIN, _WITH_COLLECTIVES = _decoder(collectives=False), _decoder(collectives=True)


class ChunkDecoder:
    """Decodes the chunks of one file, and learns what is in it."""

    def __init__(self) -> None:
        self._collectives = False
        self._patience = _PATIENCE

    def decode(self, text: bytes | bytearray | memoryview) -> list[Event]:
        """The events of a JSON array.

        Raises:
            msgspec.DecodeError: it is no array, an event is malformed, or a field has an unusual type.
            RecursionError: it is nested too deeply.
        """
        found = self._typed(text) if self._patience > 0 else None
        if found is not None:
            self._patience = min(self._patience + 1, _MOST_PATIENCE)
            return found
        self._patience -= 2
        return decode_events(text)

    def _typed(self, text: bytes | bytearray | memoryview) -> list[Event] | None:
        for _ in range(2):
            try:
                found = (_WITH_COLLECTIVES if self._collectives else _PLAIN).decode(text)
            except msgspec.ValidationError as error:
                if self._collectives or _KEYS["collective"] not in str(error):
                    return None
                self._collectives = True  # the first in this file
            else:
                return cast(list[Event], found)  # records with the attributes of an Event
        return None
