"""Pass 1: the host annotation that was open when an op was launched, on the launching thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profkit.attribution.labels import (
    ACCEPT,
    DECODE,
    DRAFT,
    DRAFT_EXTEND,
    OTHER,
    TARGET,
    UNLABELLED,
    VERIFY,
    Labels,
)
from profkit.attribution.labels.between import label_between
from profkit.attribution.labels.dialect import Meaning, annotation_meaning, read_spans
from profkit.attribution.labels.flow import (
    PREFILL,
    WORK,
    Evidence,
    Flow,
    block_drafts_by_size,
    evidence_of,
    read_flow,
)  # fmt: skip
from profkit.attribution.labels.mended import mended
from profkit.attribution.ops import Ops, text_codes
from profkit.attribution.spans import NONE, Spans
from profkit.trace import Trace
from profkit.words import LabelSource

Ints = npt.NDArray[np.int64]
_VLLM: Final = ("vllm_forward", "vllm_sample", "vllm_bookkeep", "vllm_draft")


def label_by_annotation(trace: Trace, ops: Ops, labels: Labels) -> None:
    """Label ops through host annotations."""
    host = annotations_on(trace, "host")
    spans, meanings, words = read_spans(host, "annotation", ops.threads)
    spans, labels.damaged = mended(spans, ops.launch_ns, ops.launch_thread)
    if len(spans):
        evidence = evidence_of(ops, ops.launch_ns, ops.launch_thread)
        label_with_spans(spans, meanings, words, evidence, labels, "annotation")


def annotations_on(trace: Trace, side: str) -> pa.Table:
    """The annotations of one side, ``host`` or ``gpu``."""
    words, word = text_codes(trace.annotations, "side")
    return trace.annotations.take(np.flatnonzero(np.array([w == side for w in words] or [False])[word]))


def annotates_work(trace: Trace) -> bool:
    """Whether host annotations name the work of steps, so that Python frames are not needed."""
    if not trace.annotations.num_rows:
        return False
    words, word = text_codes(trace.annotations, "name")
    used = {annotation_meaning(words[w]).span for w in np.unique(word).tolist()}
    return bool(used & {*WORK, *_VLLM, "vllm_step"})


def label_with_spans(
    spans: Spans,
    meanings: Sequence[Meaning],
    words: list[str],
    evidence: Evidence,
    labels: Labels,
    source: LabelSource,
) -> None:
    """Label ops whose moment lies in a span of its thread; shared by host and GPU annotations."""
    moment, thread = evidence.moment, evidence.thread
    usable = labels.open() & (thread >= 0) if source == "annotation" else labels.open()
    if spans.has(*WORK):
        flow = read_flow(spans, words)
        _label_sglang(spans, flow, evidence, usable, labels, source)
    elif spans.has("vllm_step", *_VLLM):
        _label_vllm(spans, meanings, moment, thread, usable, labels, source)
    elif spans.has("scheduler"):
        scheduler = spans.enclosing(spans.outermost("scheduler"), moment, thread)
        labels.set(usable & (scheduler >= 0), OTHER, source)


# --- SGLang -----------------------------------------------------------------------------------------


def _label_sglang(
    spans: Spans,
    flow: Flow,
    evidence: Evidence,
    usable: npt.NDArray[np.bool_],
    labels: Labels,
    source: LabelSource,
) -> None:
    moment, thread = evidence.moment, evidence.thread
    work = spans.enclosing(flow.rows, moment, thread)
    block_drafts_by_size(spans, flow, work, evidence)
    role_of_row = dict(zip(flow.rows.tolist(), flow.role.tolist(), strict=True))
    table = np.full(len(spans), OTHER, np.int64)
    for row, role in role_of_row.items():
        table[row] = role
    inside = usable & (work >= 0)
    role = np.where(inside, table[np.maximum(work, 0)], UNLABELLED)
    for phase in (DRAFT, VERIFY, DRAFT_EXTEND, DECODE, OTHER):
        hit = inside & (role == phase)
        labels.set(hit, phase, source)
        if phase in TARGET:
            labels.add_forwards(hit, work, {r: int(spans.batch[r]) for r in flow.rows.tolist()})
    labels.set(inside & (role == PREFILL), OTHER, source, prefill=True)
    scheduler = spans.enclosing(spans.outermost("scheduler"), moment, thread)
    labels.set(usable & (scheduler >= 0), OTHER, source)
    batches = spans.outermost("run_batch")
    batch = spans.enclosing(batches, moment, thread)
    between = usable & (work < 0) & (scheduler < 0)
    label_between(spans, flow, evidence, batch, between, labels, source)


# --- vLLM -------------------------------------------------------------------------------------------


def _label_vllm(
    spans: Spans,
    meanings: Sequence[Meaning],
    moment: Ints,
    thread: Ints,
    usable: npt.NDArray[np.bool_],
    labels: Labels,
    source: LabelSource,
) -> None:
    steps = spans.outermost("vllm_step")
    step = spans.enclosing(steps, moment, thread)
    labels.verify_first = spans.has("vllm_draft")
    target = VERIFY if labels.verify_first else DECODE
    inner = {k: spans.enclosing(spans.outermost(k), moment, thread) for k in _VLLM}
    prompts = np.array([meanings[w].prompts for w in spans.word] or [-1], np.int64)
    # Ops after a step belong to the same scheduling round as the step before them.
    place = spans.preceding(steps, moment, thread)
    round_row = np.where(place >= 0, steps[np.maximum(place, 0)] if len(steps) else NONE, NONE)
    prefill = usable & (round_row >= 0) & (prompts[np.maximum(round_row, 0)] > 0)
    covered = (step >= 0) | np.logical_or.reduce([v >= 0 for v in inner.values()])
    labels.set(prefill & covered, OTHER, source, prefill=True)
    labels.set(usable & (inner["vllm_draft"] >= 0), DRAFT, source)
    labels.set(usable & (inner["vllm_sample"] >= 0), ACCEPT, source)
    labels.set(usable & (inner["vllm_bookkeep"] >= 0), OTHER, source)
    forward = usable & labels.open() & ((inner["vllm_forward"] >= 0) | (step >= 0))
    labels.set(forward, target, source)
    instance = np.where(round_row >= 0, round_row, inner["vllm_forward"])
    batch = {int(r): int(spans.batch[r]) for r in steps.tolist()}
    labels.add_forwards(forward, instance, batch)
