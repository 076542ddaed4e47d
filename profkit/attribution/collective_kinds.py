"""What a collective is, where its kernel's name does not tell (RCCL): the enclosing annotation or the arguments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profkit.attribution.kernels import ClassTable, collective_kind, of_kind
from profkit.attribution.labels.annotation import annotations_on
from profkit.attribution.labels.dialect import read_spans
from profkit.attribution.ops import Ops, int_column, text_codes
from profkit.trace import Trace


def name_collectives(trace: Trace, ops: Ops) -> Ops:
    """The ops with kinds of unnamed collectives filled in, and their activities accordingly."""
    unnamed = np.array([c.kind == "unknown" for c in ops.classes.classes] or [False], np.bool_)[ops.classes.code]
    positions = np.flatnonzero(unnamed)
    if not len(positions):
        return ops
    kinds = _from_annotations(trace, ops, positions) | _from_arguments(trace, ops)
    unique = {c: i for i, c in enumerate(ops.classes.classes)}
    codes = ops.classes.code.copy()
    for position in positions.tolist():
        kind = kinds.get(position, "unknown")
        if kind != "unknown":
            named = of_kind(ops.classes.classes[codes[position]], kind)
            codes[position] = unique.setdefault(named, len(unique))
    classes = ClassTable(tuple(unique), codes)
    return replace(ops, classes=classes, activity=classes.activity())


def _from_arguments(trace: Trace, ops: Ops) -> dict[int, str]:
    table = trace.collectives
    if not table.num_rows:
        return {}
    words, code = text_codes(table, "name")
    place = {int(row): i for i, row in enumerate(ops.row.tolist())}
    found = zip(int_column(table, "gpu_op").tolist(), code.tolist(), strict=True)
    return {place[row]: collective_kind(words[c]) for row, c in found if row in place}


def _from_annotations(trace: Trace, ops: Ops, positions: np.ndarray[tuple[int], np.dtype[np.int64]]) -> dict[int, str]:
    """torch names a collective's annotation ``nccl:all_reduce`` on NVIDIA and AMD alike."""
    spans, _, words = read_spans(annotations_on(trace, "host"), "annotation", ops.threads)
    rows = spans.outermost("collective")
    around = spans.enclosing(rows, ops.launch_ns[positions], ops.launch_thread[positions])
    return {
        int(position): collective_kind(words[spans.word[row]])
        for position, row in zip(positions.tolist(), around.tolist(), strict=True)
        if row >= 0
    }
