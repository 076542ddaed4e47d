"""Pass 0: what the graph of a verify does after the target's forward.

Block drafters with ragged blocks pick the accepted tokens at the end of the verify's own graph, and may write the
drafter's cache there too. All of it has one launch, so only the kernels tell it apart.
"""

from __future__ import annotations

import numpy as np

from profkit.attribution.labels import ACCEPT, DRAFT_EXTEND, Labels
from profkit.attribution.labels.dialect import marker_of
from profkit.attribution.labels.sequence import read_sequence
from profkit.attribution.ops import Ops

_ACCEPTS = ("accept", "block_accept")


def label_tails(ops: Ops, labels: Labels) -> None:
    """Label acceptance and draft_extend inside replays of the target's graph."""
    markers = [marker_of(n) for n in ops.names]
    accepts = np.array([m in _ACCEPTS for m in markers] or [False], np.bool_)
    where = accepts[ops.name]
    if not (where & (ops.graph_launch | (ops.graph > 0) | (ops.launch_ns < 0))).any():
        return
    sequence = read_sequence(ops, labels)
    inside = np.flatnonzero(where[sequence.op] & sequence.in_replay)
    if not len(inside):
        return
    begins = np.array([m == "draft_extend_begin" for m in markers], np.bool_)[ops.name[sequence.op]]
    for replay in np.unique(sequence.replay[inside]).tolist():
        mine = np.flatnonzero(sequence.replay == replay)
        first = int(np.flatnonzero(where[sequence.op[mine]])[0])
        if sequence.attention[mine[first:]].any():
            continue
        while first and sequence.sampling[mine[first - 1]]:
            first -= 1
        extends = np.flatnonzero(begins[mine[first:]])
        cut = first + int(extends[0]) if len(extends) else len(mine)
        labels.set_at(sequence.op[mine[first:cut]], ACCEPT, "graph")
        labels.set_at(sequence.op[mine[cut:]], DRAFT_EXTEND, "graph")
