"""Ops beside the target's stream: graph branches, planning, the scheduler."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profkit.attribution.labels import ACCEPT, DECODE, DRAFT, DRAFT_EXTEND, OTHER, UNLABELLED, VERIFY, Labels
from profkit.attribution.labels.dialect import marker_of
from profkit.attribution.labels.sequence import Sequence
from profkit.attribution.ops import Ops


def label_other_streams(ops: Ops, labels: Labels, sequence: Sequence) -> None:
    """Ops on other streams: those of a replay go with it, planning with what it plans, the rest is the scheduler's.

    A stream on which cache places are given out is there for planning.
    """
    known = labels.phase[sequence.op] != UNLABELLED
    if not known.any():
        return
    elsewhere = ops.stream != sequence.stream
    mine = sequence.op[sequence.in_replay & known]
    replayed = np.zeros(len(ops), np.bool_)
    if len(mine):
        keys, first = np.unique(ops.correlation[mine], return_index=True)
        place = np.minimum(np.searchsorted(keys, ops.correlation), len(keys) - 1)
        replayed = elsewhere & (ops.correlation >= 0) & (keys[place] == ops.correlation)
        _label_like(labels, replayed, labels.phase[mine[first[place]]])
    planning = elsewhere & np.array([marker_of(n) == "window" for n in ops.names] or [False], np.bool_)[ops.name]
    plans = elsewhere & (ops.classes.mask("attn.meta") | np.isin(ops.stream, ops.stream[planning])) & ~replayed
    if plans.any():
        following = np.searchsorted(sequence.start, ops.start)
        beside = following < len(sequence.op)
        like = labels.phase[sequence.op[np.minimum(following, len(sequence.op) - 1)]]
        _label_like(labels, plans & beside & np.isin(like, (DRAFT, VERIFY, DRAFT_EXTEND, DECODE)), like)
    labels.set(elsewhere & ~ops.graph_launch & ~replayed, OTHER, "graph")


def _label_like(labels: Labels, where: npt.NDArray[np.bool_], like: npt.NDArray[np.int8]) -> None:
    for phase in (DRAFT, VERIFY, ACCEPT, DRAFT_EXTEND, DECODE, OTHER):
        labels.set(where & (like == phase), phase, "graph")
