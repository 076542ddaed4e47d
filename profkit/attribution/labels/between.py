"""Ops outside every work span of an SGLang step, by the spans before and after them and by what their kernels tell."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.attribution.labels import ACCEPT, DECODE, DRAFT, DRAFT_EXTEND, OTHER, UNLABELLED, VERIFY, Labels
from profkit.attribution.labels.flow import PREFILL, Evidence, Flow
from profkit.attribution.spans import NONE, Spans
from profkit.words import LabelSource

Ints = npt.NDArray[np.int64]
NEVER: Final = int(np.iinfo(np.int64).max)


def label_between(
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
    if not spans.has("draft_extend"):
        _label_steps(evidence, loose, before, after, place, labels, source)
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
    if not spans.has("draft"):
        _label_choice(evidence, between & (before == DRAFT) & (after == VERIFY), place, labels, DRAFT, source)
    if not spans.has("draft_extend"):
        _label_steps(evidence, in_batch, before, after, place, labels, source)
    _label_drafting(
        evidence, in_batch, batch * (len(flow.rows) + 1) + place + 1, after, labels, source, staged=spans.has("draft")
    )
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
    first = first_moment(arrives, batch, evidence.moment)
    labels.set(before_verify & (first < NEVER) & (evidence.moment < first), OTHER, source)


def _label_drafting(
    evidence: Evidence,
    in_batch: npt.NDArray[np.bool_],
    gap: Ints,
    after: npt.NDArray[np.int64],
    labels: Labels,
    source: LabelSource,
    *,
    staged: bool,
) -> None:
    """Draft kernels that no span covers (multi-layer and block drafters), before a verify or a block draft's step.

    ``staged``: spans tell whole drafts, and what is before one is none of it.
    """
    wanted = in_batch & ((after == VERIFY) | (after == DRAFT))
    if not wanted.any():
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
    for signs in (evidence.windows, evidence.embeds) if not staged else ():
        block = wanted & signs & (after == DRAFT)
        begun = np.full(len(keys), far)
        np.minimum.at(begun, gap_of[block], evidence.moment[block])
        opened = np.where((opened == far) & (closed < 0), begun, opened)
    # Without an opening kernel the draft begins where tokens are picked, or at the tree build itself.
    begin = np.where(opened < far, opened, np.minimum(sampled, closed))
    has = (opened < far) | (closed >= 0)
    mine = wanted & has[gap_of]
    late = np.where(closed >= 0, closed, far)[gap_of]
    inside = mine & (evidence.moment >= begin[gap_of])
    labels.set(inside & (evidence.moment <= np.where(after == VERIFY, late, far)), DRAFT, source)
    labels.set(mine & (evidence.moment < begin[gap_of]), OTHER, source)


def _label_steps(
    evidence: Evidence,
    where: npt.NDArray[np.bool_],
    before: npt.NDArray[np.int64],
    after: npt.NDArray[np.int64],
    place: Ints,
    labels: Labels,
    source: LabelSource,
) -> None:
    """Around the steps of a draft_extend that no span covers as a whole: its preparation, glue, choice of tokens."""
    steps = where & (before == DRAFT_EXTEND)
    labels.set(steps & (after == DRAFT_EXTEND), DRAFT_EXTEND, source)
    _label_choice(evidence, steps & (after != DRAFT_EXTEND), place, labels, DRAFT_EXTEND, source)
    verified = where & (before == VERIFY)
    begins = verified & (after == DRAFT_EXTEND) & (evidence.extends | evidence.positions)
    # From the kernel that begins a draft_extend on: its preparation.
    prepared = evidence.moment >= first_moment(begins, place, evidence.moment)
    labels.set(verified & prepared, DRAFT_EXTEND, source)


def _label_choice(
    evidence: Evidence,
    gap: npt.NDArray[np.bool_],
    place: Ints,
    labels: Labels,
    phase: int,
    source: LabelSource,
) -> None:
    """After a step of the drafter: the choice of tokens that belongs to it, where neither graph nor span holds it."""
    computes = evidence.computes | (evidence.extends if phase == DRAFT_EXTEND else False)
    prepared = first_moment(gap & (evidence.prepares | evidence.begins), place, evidence.moment)
    works = gap & computes & labels.open() & (evidence.moment < prepared)
    last = -first_moment(works, place, -evidence.moment)
    labels.set(gap & (evidence.moment <= last), phase, source)


def first_moment(where: npt.NDArray[np.bool_], key: Ints, moment: Ints) -> Ints:
    """Per op the earliest moment of the ops of ``where`` with its key, ``NEVER`` where there is none."""
    result = np.full(len(key), NEVER, np.int64)
    if not where.any():
        return result
    keys, inverse = np.unique(key[where], return_inverse=True)
    first = np.full(len(keys), NEVER, np.int64)
    np.minimum.at(first, inverse.reshape(-1), moment[where])
    spot = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
    same = keys[spot] == key
    result[same] = first[spot[same]]
    return result
