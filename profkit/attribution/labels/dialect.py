"""Names of annotations, Python functions and marker kernels, as engines spell them (``profkit/rules/phases.toml``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from profkit.attribution.ops import Threads, int_column, text_codes
from profkit.attribution.spans import Spans
from profkit.rules import load_rules

NOTHING: Final = "nothing"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a name means: the kind of span, requests in the batch, prompts among them (-1: not said)."""

    span: str
    batch: int = -1
    prompts: int = -1


@cache
def _rules(table: str, key: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(rule["pattern"]), rule[key]) for rule in load_rules("phases")[table])


def _number(match: re.Match[str], *groups: str) -> int:
    for group in groups:
        text = match.groupdict().get(group)
        if text:
            return int(text[:18])
    return -1


def annotation_meaning(name: str) -> Meaning:
    """What an annotation's text says."""
    for pattern, span in _rules("annotation", "span"):
        match = pattern.search(name)
        if match:
            return Meaning(span, _number(match, "raw_bs", "bs", "generation"), _number(match, "context"))
    return Meaning(NOTHING)


def frame_meaning(name: str) -> Meaning:
    """What a Python frame's text says."""
    if ".py(" in name:
        for pattern, span in _rules("frame", "span"):
            if pattern.search(name):
                return Meaning(span)
    return Meaning(NOTHING)


def marker_of(name: str) -> str:
    """The border that a kernel marks, or ``nothing``."""
    for pattern, marker in _rules("marker", "marker"):
        if pattern.search(name):
            return marker
    return NOTHING


def read_spans(
    table: pa.Table, what: Literal["annotation", "frame"], threads: Threads | None
) -> tuple[Spans, Sequence[Meaning], list[str]]:
    """Spans with a meaning, the meaning of each dictionary word, and the words.

    ``threads`` codes host threads; ``None`` takes the column ``stream`` as the thread (GPU annotations).
    """
    meaning_of = annotation_meaning if what == "annotation" else frame_meaning
    words, word = text_codes(table, "name")
    meanings = [meaning_of(w) for w in words]
    kinds = tuple(sorted({m.span for m in meanings}))
    kind = np.array([kinds.index(m.span) for m in meanings] or [0], np.int32)[word]
    start, duration = int_column(table, "start_ns"), int_column(table, "duration_ns", 0)
    keep = np.array([m.span != NOTHING for m in meanings] or [False], np.bool_)[word] & (start >= 0)
    table, word, kind = table.filter(pa.array(keep)), word[keep], kind[keep]
    start, duration = start[keep], np.maximum(duration[keep], 0)
    batch = np.array([m.batch for m in meanings] or [-1], np.int64)[word]
    thread = threads.code(table) if threads is not None else int_column(table, "stream")
    return Spans(kinds, kind, start, start + duration, thread, batch, word), meanings, words
