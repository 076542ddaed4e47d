"""What the annotations of SGLang say about a step: work spans in order with their roles, and the ops' own evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.attribution.labels import DECODE, DRAFT, DRAFT_EXTEND, OTHER, VERIFY
from profkit.attribution.labels.dialect import marker_of
from profkit.attribution.ops import Ops, copies_from_host
from profkit.attribution.spans import NONE, Spans

Ints = npt.NDArray[np.int64]
PREFILL: Final = -2  # a span's role beside the phase codes

WORK: Final = (
    "draft", "draft_extend", "verify", "decode", "draft_step", "draft_extend_step", "prefill", "idle_step",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Evidence:
    """Per op the moment and the thread (or stream) that spans are asked for, and what its kernel tells.

    ``opens`` begins or continues a draft, ``closes`` is a draft's last kernel, ``samples`` picks tokens, ``prepares``
    brings the host's drafts or places them. ``windows`` and else ``embeds`` begin the draft of a block drafter,
    ``computes`` is model work or a choice of tokens, ``extends`` begins or continues a draft_extend,
    ``begins`` begins a draft. ``positions`` gives the tokens of a prompt or a draft_extend their places.
    """

    moment: Ints
    thread: Ints
    opens: npt.NDArray[np.bool_]
    closes: npt.NDArray[np.bool_]
    samples: npt.NDArray[np.bool_]
    prepares: npt.NDArray[np.bool_]
    duration: Ints
    windows: npt.NDArray[np.bool_]
    embeds: npt.NDArray[np.bool_]
    computes: npt.NDArray[np.bool_]
    extends: npt.NDArray[np.bool_]
    begins: npt.NDArray[np.bool_]
    positions: npt.NDArray[np.bool_]


def evidence_of(ops: Ops, moment: Ints, thread: Ints) -> Evidence:
    """What the ops' kernels tell, for moments on threads."""
    markers = [marker_of(n) for n in ops.names]
    opens = np.array([m in ("draft_begin", "draft") for m in markers] or [False], np.bool_)[ops.name]
    closes = np.array([m == "draft_end" for m in markers] or [False], np.bool_)[ops.name]
    prepares = np.array([m in ("verify_prepare", "window") for m in markers] or [False], np.bool_)[ops.name]
    samples = ops.classes.mask("sampling")
    windows = np.array([m == "window" for m in markers] or [False], np.bool_)[ops.name]
    return Evidence(
        moment, thread, opens, closes, samples, prepares | copies_from_host(ops), ops.duration,
        windows, ops.classes.mask("embedding"), ops.classes.mask("gemm", "comm", "sampling") & ~prepares,
        np.array([m in ("draft_extend_begin", "draft_extend") for m in markers] or [False], np.bool_)[ops.name],
        np.array([m == "draft_begin" for m in markers] or [False], np.bool_)[ops.name],
        np.array([m == "positions" for m in markers] or [False], np.bool_)[ops.name],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Flow:
    """The top-level work spans of all threads in time order, with the role of each: a phase code or PREFILL."""

    rows: Ints
    role: npt.NDArray[np.int64]
    batch_of: Ints  # enclosing run_batch row per work span, -1 without


def read_flow(spans: Spans, words: list[str]) -> Flow:
    rows = spans.outermost(*WORK)
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
        # The batch in which the recording began has no span of its own: all before the first one is that batch's.
        same_batch = before >= 0 and len(batches) > 0 and batch_of[before] == batch_of[i]
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
        elif what == "draft_step" and before < 0 and len(batches):
            # The batch in which the recording began: no target comes after its draft_extend.
            rest = [k for k, b in zip(kind[i:], batch_of[i:].tolist(), strict=True) if b == batch_of[i]]
            role[i] = DRAFT if "verify" in rest else DRAFT_EXTEND
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
    known, first, count = np.unique(batches, return_index=True, return_counts=True)
    pairs = first[(count == 2) & (known >= 0)]
    if len(pairs) <= 0.5 * (known >= 0).sum():
        return
    # Steps outside a pair (of a batch that the window cut) take turns with those beside them.
    drafts = np.zeros(len(verify), np.bool_)
    drafts[pairs] = True
    settled = drafts | np.roll(drafts, 1)
    for i in range(int(pairs[0]) - 1, -1, -1):
        drafts[i] = not drafts[i + 1]
    for i in range(int(pairs[0]) + 2, len(verify)):
        if not settled[i]:
            drafts[i] = not drafts[i - 1]
    flow.role[verify[drafts]] = DRAFT


def block_drafts_by_size(spans: Spans, flow: Flow, work: Ints, evidence: Evidence) -> None:
    """Block drafters in releases without batch spans: steps alternate between little and much GPU work."""
    verify = np.flatnonzero(flow.role == VERIFY)
    if len(verify) < 4 or len(verify) < len(flow.role) - (flow.role == PREFILL).sum():
        return
    order = np.argsort(flow.rows)
    place = order[np.minimum(np.searchsorted(flow.rows[order], work), len(order) - 1)]
    busy = np.zeros(len(flow.rows), np.int64)
    inside = work >= 0
    np.add.at(busy, place[inside], evidence.duration[inside])
    # On the GPU's side a step has a span on each stream that it uses: the one with most work tells the steps apart.
    threads = spans.thread[flow.rows[verify]]
    main = max(np.unique(threads).tolist(), key=lambda t: int(busy[verify[threads == t]].sum()))
    verify = verify[threads == main]
    if len(verify) < 4:
        return
    large = busy[verify] > 0.5 * busy[verify].max()
    if np.mean(large[1:] != large[:-1]) > 0.8:
        flow.role[verify[~large]] = DRAFT
