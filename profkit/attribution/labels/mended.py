"""Annotations whose duration can be and is wrong: told by what follows them and what they hold, mended by their like.

A span that lasts too long swallows the spans after it, one that is too short does not hold its launches: either loses
a step or its work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.attribution.spans import Spans

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_STEPS: Final = ("verify", "decode", "prefill", "draft_step", "draft_extend_step", "idle_step")
_STAGES: Final = ("draft", "draft_extend")
# What never begins inside a span of each kind, on its thread.
_FORBIDDEN: Final = {
    **dict.fromkeys(_STEPS, (*_STEPS, *_STAGES, "run_batch", "scheduler")),
    **dict.fromkeys(_STAGES, (*_STAGES, "verify", "run_batch")),
    "scheduler": (*_STEPS, *_STAGES, "run_batch"),
    "run_batch": ("run_batch",),
}
# A target's step that holds so small a share of its like's ops and lasts so small a share of their time is too short.
_FORWARDS: Final = ("verify", "decode")
_FEW_OPS: Final = 0.1
_SHORT: Final = 1 / 3
_LEAST: Final = 4
# Where more of a kind's spans hold what they should not, the engine nests them so, and none is damaged.
_RARE: Final = 0.2


def mended(spans: Spans, moment: Ints, thread: Ints) -> tuple[Spans, int]:
    """The spans with damaged durations mended, and how many were; ``moment`` and ``thread`` are the ops' launches.

    A damaged span is taken to last as long as the median of its kind, and to end where the first span begins that
    cannot be inside.
    """
    end = spans.end.copy()
    count = 0
    for kind, forbidden in _FORBIDDEN.items():
        mine = spans.rows(kind)
        if len(mine) < 2:
            continue
        follower = _following(spans, mine, spans.rows(*forbidden))
        damaged = spans.end[mine] > follower
        if kind in _FORWARDS and len(mine) >= _LEAST:
            damaged |= _too_short(spans, mine, moment, thread)
        if not damaged.any() or (damaged.mean() > _RARE and damaged.sum() > 1):
            continue
        lasts = int(np.median((spans.end - spans.start)[mine[~damaged]]))
        rows = mine[damaged]
        end[rows] = np.minimum(spans.start[rows] + lasts, follower[damaged])
        count += len(rows)
    return (replace(spans, end=end) if count else spans), count


def _too_short(spans: Spans, mine: Ints, moment: Ints, thread: Ints) -> Bools:
    lasts = spans.end[mine] - spans.start[mine]
    holds = np.zeros(len(mine), np.int64)
    for code in np.unique(spans.thread[mine]).tolist():
        here = spans.thread[mine] == code
        launches = np.sort(moment[thread == code], kind="stable")
        first, stop = np.searchsorted(launches, [spans.start[mine[here]], spans.end[mine[here]]])
        holds[here] = stop - first
    return np.asarray((holds < _FEW_OPS * np.median(holds)) & (lasts < _SHORT * np.median(lasts)), np.bool_)


def _following(spans: Spans, mine: Ints, others: Ints) -> Ints:
    """For each span the start of the first of ``others`` that begins after it does, on its thread."""
    result = np.full(len(mine), np.iinfo(np.int64).max)
    for thread in np.unique(spans.thread[mine]).tolist():
        here = spans.thread[mine] == thread
        starts = np.unique(spans.start[others[spans.thread[others] == thread]])
        place = np.searchsorted(starts, spans.start[mine[here]], side="right")
        result[here] = np.append(starts, np.iinfo(np.int64).max)[place]
    return result
