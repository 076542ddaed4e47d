"""Pass 1: the host annotation that was open when an op was launched, on the launching thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from profkit.attribution.labels.dialect import Meaning, annotation_meaning, marker_of, read_spans
from profkit.attribution.ops import Ops, copies_from_host, text_codes
from profkit.attribution.spans import NONE, Spans
from profkit.trace import Trace
from profkit.words import LabelSource

Ints = npt.NDArray[np.int64]
PREFILL: Final = -2  # a span's role beside the phase codes

_WORK: Final = (
    "draft", "draft_extend", "verify", "decode", "draft_step", "draft_extend_step", "prefill", "idle_step",
)  # fmt: skip
_VLLM: Final = ("vllm_forward", "vllm_sample", "vllm_bookkeep", "vllm_draft")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Per op the moment and the thread (or stream) that spans are asked for, and what its kernel tells.

    ``opens`` begins or continues a draft, ``closes`` is a draft's last kernel, ``samples`` picks tokens, ``prepares``
    brings the host's drafts or places them.
    """

    moment: Ints
    thread: Ints
    opens: npt.NDArray[np.bool_]
    closes: npt.NDArray[np.bool_]
    samples: npt.NDArray[np.bool_]
    prepares: npt.NDArray[np.bool_]
    duration: Ints


def evidence_of(ops: Ops, moment: Ints, thread: Ints) -> Evidence:
    """What the ops' kernels tell, for moments on threads."""
    markers = [marker_of(n) for n in ops.names]
    opens = np.array([m in ("draft_begin", "draft") for m in markers] or [False], np.bool_)[ops.name]
    closes = np.array([m == "draft_end" for m in markers] or [False], np.bool_)[ops.name]
    prepares = np.array([m == "verify_prepare" for m in markers] or [False], np.bool_)[ops.name]
    samples = ops.classes.mask("sampling")
    return Evidence(moment, thread, opens, closes, samples, prepares | copies_from_host(ops), ops.duration)


@dataclass(frozen=True, slots=True)
class Flow:
    """The top-level work spans of all threads in time order, with the role of each: a phase code or PREFILL."""

    rows: Ints
    role: npt.NDArray[np.int64]
    batch_of: Ints  # enclosing run_batch row per work span, -1 without


def label_by_annotation(trace: Trace, ops: Ops, labels: Labels) -> None:
    """Label ops through host annotations."""
    host = annotations_on(trace, "host")
    spans, meanings, words = read_spans(host, "annotation", ops.threads)
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
    return bool(used & {*_WORK, *_VLLM, "vllm_step"})


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
    if spans.has(*_WORK):
        flow = _flow(spans, words)
        _label_sglang(spans, flow, evidence, usable, labels, source)
    elif spans.has("vllm_step", *_VLLM):
        _label_vllm(spans, meanings, moment, thread, usable, labels, source)
    elif spans.has("scheduler"):
        scheduler = spans.enclosing(spans.outermost("scheduler"), moment, thread)
        labels.set(usable & (scheduler >= 0), OTHER, source)


# --- SGLang -----------------------------------------------------------------------------------------


def _flow(spans: Spans, words: list[str]) -> Flow:
    rows = spans.outermost(*_WORK)
    batches = spans.outermost("run_batch")
    batch_of = spans.enclosing(batches, spans.start[rows], spans.thread[rows])
    kind = [spans.kinds[k] for k in spans.kind[rows]]
    # In the dialect that says TARGET_VERIFY a step is named after its forward mode, and the target of a speculative
    # server never runs the mode DECODE: such a step is the draft model's.
    by_mode = any("TARGET_VERIFY" in words[w] for w in np.unique(spans.word[spans.rows("verify")]))
    role = np.full(len(rows), OTHER, np.int64)
    last_target: dict[int, int] = {}
    for i, (row, what) in enumerate(zip(rows.tolist(), kind, strict=True)):
        thread = int(spans.thread[row])
        before = last_target.get(thread, NONE)
        same_batch = before >= 0 and batch_of[i] >= 0 and batch_of[before] == batch_of[i]
        after_prefill = before >= 0 and role[before] == PREFILL
        if what in ("verify", "prefill"):
            role[i] = VERIFY if what == "verify" else PREFILL
            last_target[thread] = i
        elif what == "decode":
            role[i] = DRAFT if by_mode else DECODE
            if not by_mode:
                last_target[thread] = i
        elif what == "draft":
            role[i] = DRAFT
        elif what == "draft_step":
            role[i] = (PREFILL if after_prefill else DRAFT_EXTEND) if same_batch else DRAFT
        elif what in ("draft_extend", "draft_extend_step"):
            role[i] = PREFILL if after_prefill else DRAFT_EXTEND
    flow = Flow(rows, role, batch_of)
    _block_drafts(flow)
    return flow


def _block_drafts(flow: Flow) -> None:
    """Block drafters (DFLASH, DSPARK) run two TARGET_VERIFY steps per batch: the first one drafts."""
    if (flow.role == DRAFT).any():
        return
    verify = np.flatnonzero(flow.role == VERIFY)
    # A batch that began before the window has no span of its own: its steps come before all others.
    batches = flow.batch_of[verify]
    if not (batches >= 0).any():
        return
    _, first, count = np.unique(batches, return_index=True, return_counts=True)
    if np.mean(count == 2) > 0.5:
        flow.role[verify[first[count == 2]]] = DRAFT


def _block_drafts_by_size(flow: Flow, work: Ints, evidence: Evidence) -> None:
    """Block drafters in releases without batch spans: steps alternate between little and much GPU work."""
    verify = np.flatnonzero(flow.role == VERIFY)
    if len(verify) < 4 or len(verify) < len(flow.role) - (flow.role == PREFILL).sum():
        return
    order = np.argsort(flow.rows)
    place = order[np.minimum(np.searchsorted(flow.rows[order], work), len(order) - 1)]
    busy = np.zeros(len(flow.rows), np.int64)
    inside = work >= 0
    np.add.at(busy, place[inside], evidence.duration[inside])
    large = busy[verify] > 0.5 * busy[verify].max()
    if np.mean(large[1:] != large[:-1]) > 0.8:
        flow.role[verify[~large]] = DRAFT


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
    _block_drafts_by_size(flow, work, evidence)
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
    _label_between(spans, flow, evidence, batch, between, labels, source)


def _label_between(
    spans: Spans,
    flow: Flow,
    evidence: Evidence,
    batch: Ints,
    between: npt.NDArray[np.bool_],
    labels: Labels,
    source: LabelSource,
) -> None:
    """Ops outside every work span, by the spans before and after them in the same batch."""
    moment, thread = evidence.moment, evidence.thread
    place = spans.preceding(flow.rows, moment, thread)
    last = len(flow.rows) - 1
    before = np.where(place >= 0, flow.role[np.maximum(place, 0)], UNLABELLED)
    follower = np.minimum(place + 1, last)
    # preceding() is -1 before the first span of a thread: its follower is that thread's first span.
    for t in np.unique(thread[between & (place < 0)]).tolist():
        mine = np.flatnonzero(spans.thread[flow.rows] == t)
        follower[between & (place < 0) & (thread == t)] = mine[0] if len(mine) else last
    exists = (spans.thread[flow.rows[follower]] == thread) & (follower > place)
    after = np.where(exists, flow.role[follower], UNLABELLED)
    # Without a run_batch span (old releases; a batch begun before the window) only some stretches are certain.
    loose = between & (batch < 0)
    labels.set(loose & (before == VERIFY) & (after == DRAFT_EXTEND), ACCEPT, source)
    if spans.has("draft"):
        labels.set(loose & (before == DRAFT) & (after == VERIFY), VERIFY, source)
    if spans.has("scheduler"):
        labels.set(loose & np.isin(before, (DRAFT_EXTEND, OTHER)), OTHER, source)
    in_batch = between & (batch >= 0)
    same_before = in_batch & (place >= 0) & (flow.batch_of[np.maximum(place, 0)] == batch)
    same_after = in_batch & exists & (flow.batch_of[follower] == batch)
    before = np.where(same_before, before, UNLABELLED)
    after = np.where(same_after, after, UNLABELLED)
    prefill_batch = np.unique(flow.batch_of[flow.role == PREFILL])
    labels.set(in_batch & np.isin(batch, prefill_batch[prefill_batch >= 0]), OTHER, source, prefill=True)
    _label_drafting(evidence, in_batch, batch * (len(flow.rows) + 1) + place + 1, after, labels, source)
    if not (flow.role == DRAFT).any():
        _label_host_drafts(evidence, in_batch & (after == VERIFY), batch, labels, source)
    labels.set(in_batch & (after == VERIFY), VERIFY, source)
    # The step's own preparation is inside its span: before it the batch resolves what the one before left.
    labels.set(in_batch & (after == DECODE) & evidence.prepares, DECODE, source)
    labels.set(in_batch & (after == DECODE), OTHER, source)
    labels.set(in_batch & (before == DECODE), ACCEPT, source)
    labels.set(in_batch & (before == DRAFT) & (after == DRAFT), DRAFT, source)
    if (flow.role == DRAFT_EXTEND).any():
        labels.set(in_batch & (before == VERIFY), ACCEPT, source)
    # Where no span tells a draft_extend, acceptance may be followed by an unmarked one: the kernels' order decides.
    # A batch whose work spans were all cut off (the window ended inside it) says nothing.
    unclear = ~np.isin(batch, flow.batch_of[flow.batch_of >= 0]) | (before == VERIFY)
    labels.set(in_batch & ~unclear, OTHER, source)


def _label_host_drafts(
    evidence: Evidence, before_verify: npt.NDArray[np.bool_], batch: Ints, labels: Labels, source: LabelSource
) -> None:
    """Drafts from the host arrive as copies; what ran before them in the batch is the scheduler's."""
    arrives = before_verify & evidence.prepares & labels.open()
    if not arrives.any():
        return
    keys, inverse = np.unique(batch[arrives], return_inverse=True)
    first = np.full(len(keys), np.iinfo(np.int64).max)
    np.minimum.at(first, inverse.reshape(-1), evidence.moment[arrives])
    place = np.minimum(np.searchsorted(keys, batch), len(keys) - 1)
    early = before_verify & (keys[place] == batch) & (evidence.moment < first[place])
    labels.set(early, OTHER, source)


def _label_drafting(
    evidence: Evidence,
    in_batch: npt.NDArray[np.bool_],
    gap: Ints,
    after: npt.NDArray[np.int64],
    labels: Labels,
    source: LabelSource,
) -> None:
    """Draft kernels that no span covers (multi-layer and block drafters), before a verify or a block draft's step."""
    wanted = in_batch & ((after == VERIFY) | (after == DRAFT))
    kernels = wanted & (evidence.opens | evidence.closes)
    if not kernels.any():
        return
    keys, inverse = np.unique(gap[wanted], return_inverse=True)
    gap_of = np.full(len(gap), NONE, np.int64)
    gap_of[wanted] = inverse.reshape(-1)
    far = np.iinfo(np.int64).max
    opened, sampled = np.full(len(keys), far), np.full(len(keys), far)
    closed = np.full(len(keys), -1, np.int64)
    for target, where in ((opened, wanted & evidence.opens), (sampled, wanted & evidence.samples)):
        np.minimum.at(target, gap_of[where], evidence.moment[where])
    ends = wanted & evidence.closes
    np.maximum.at(closed, gap_of[ends], evidence.moment[ends])
    # Without an opening kernel the draft begins where tokens are picked, or at the tree build itself.
    begin = np.where(opened < far, opened, np.minimum(sampled, closed))
    has = (opened < far) | (closed >= 0)
    mine = wanted & has[gap_of]
    late = np.where(closed >= 0, closed, far)[gap_of]
    inside = mine & (evidence.moment >= begin[gap_of])
    labels.set(inside & (evidence.moment <= np.where(after == VERIFY, late, far)), DRAFT, source)
    labels.set(mine & (evidence.moment < begin[gap_of]), OTHER, source)


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
