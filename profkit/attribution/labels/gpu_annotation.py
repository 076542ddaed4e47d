"""Pass 4: GPU annotations, for traces without host events.

Kineto draws one as the hull, per stream, of the ops whose innermost annotation at launch it was: its ends are blurred
by up to a microsecond and it may cover foreign ops, so it is asked last, at the middle of each op.
"""

from __future__ import annotations

import numpy as np

from profkit.attribution.labels import Labels
from profkit.attribution.labels.annotation import annotations_on, label_with_spans
from profkit.attribution.labels.dialect import read_spans
from profkit.attribution.labels.flow import evidence_of
from profkit.attribution.ops import Ops
from profkit.trace import Trace


def label_by_gpu_annotation(trace: Trace, ops: Ops, labels: Labels) -> bool:
    """Label what is still open through GPU annotations on the op's own stream; whether any op was labelled."""
    before = int(labels.open().sum())
    if not before:
        return False
    spans, meanings, words = read_spans(annotations_on(trace, "gpu"), "annotation", None)
    if not len(spans):
        return False
    stream = np.array([s for _, s in ops.streams], np.int64)[ops.stream]
    evidence = evidence_of(ops, (ops.start + ops.end) // 2, stream)
    label_with_spans(spans, meanings, words, evidence, labels, "gpu_annotation")
    return int(labels.open().sum()) < before
