"""Decode cycles of one rank: half-open windows of its GPU timeline, cut on the target forward's stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.attribution.kernels import MEMORY
from profkit.attribution.labels import ACCEPT, DECODE, DRAFT, DRAFT_EXTEND, TARGET, VERIFY, Labels
from profkit.attribution.ops import Ops

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

COUNTED: Final = "counted"
PARTIAL: Final = "partial"
PREFILL: Final = "prefill"
# A first cycle with fewer ops than this share of its like had already begun when recording started.
WHOLE_SHARE: Final = 0.98
# A label that only sizes and order of forwards gave counts so much in a cycle's confidence.
GUESS_WEIGHT: Final = 0.5
# Among so many ops at the begin of a first cycle those are looked for that begin all others.
_FEW: Final = 8
_BEGIN: Final = 3
# So many later cycles are held against the first one.
_LIKE: Final = 64
DECODING: Final = (DRAFT, VERIFY, ACCEPT, DRAFT_EXTEND, DECODE)


@dataclass(frozen=True, slots=True)
class Cycles:
    """Cycles in time order. ``op_cycle`` is the cycle an op starts in, -1 outside all.

    ``boundary`` says in words which op begins a cycle. ``closed_at_end`` is true where the only cycle of a trace was
    closed at its last op, since no next cycle was recorded.
    """

    start: Ints
    end: Ints
    kind: tuple[str, ...]
    batch: Ints
    confidence: npt.NDArray[np.float64]
    op_cycle: Ints
    main_stream: int
    boundary: str
    closed_at_end: bool = False

    def __len__(self) -> int:
        return len(self.start)

    def counted(self) -> Bools:
        """Which cycles enter means."""
        return np.array([k == COUNTED for k in self.kind], np.bool_)


def main_stream(ops: Ops, labels: Labels) -> int:
    """The stream on which the target forward spends most time; without one the busiest stream."""
    if not len(ops):
        return -1
    target = np.isin(labels.phase, TARGET) & (labels.forward >= 0)
    where = target if target.any() else np.ones(len(ops), np.bool_)
    busy = np.zeros(len(ops.streams), np.int64)
    np.add.at(busy, ops.stream[where], ops.duration[where])
    return int(np.argmax(busy))


def find_cycles(ops: Ops, labels: Labels, *, cut_off: bool = False) -> Cycles:
    """Cut the rank's timeline into cycles; what lies before the first boundary is a partial cycle of its own.

    ``cut_off``: the recording is known to lack GPU ops at its end, so a lone cycle cannot be taken for whole.
    """
    stream = main_stream(ops, labels)
    sequence = ops.order[ops.stream[ops.order] == stream]
    anchors = _anchors(sequence, labels.forward)
    first, forward, used = _boundaries(sequence, labels, anchors)
    if not len(first):
        return _none(ops, labels, stream)
    start = ops.start[sequence[first]]
    keep = np.append(True, start[1:] > np.maximum.accumulate(start)[:-1])
    start, forward = start[keep], forward[keep]
    used = [u for u, k in zip(used, keep, strict=True) if k]
    op_cycle = np.searchsorted(start, ops.start, side="right") - 1
    head = _head(ops, labels, sequence[: first[0]])
    begins = [ops.name[sequence[at : at + _FEW]] for at in first[keep].tolist()]
    tails = np.array([tail for _, tail, _ in anchors], np.int64)[keep[: len(anchors)]]
    begun = True if head is not None else _repeats(ops.name[sequence], labels.prefill[sequence], first[keep], tails)
    kind = _kinds(ops, labels, op_cycle, forward, used, begins, begun=begun)
    batch = np.array([labels.batch[f] if f >= 0 else -1 for f in forward], np.int64)
    closed = False
    if len(start) == 1 and kind[0] == PARTIAL and not cut_off and _looks_whole(ops, labels, op_cycle):
        kind, closed = [COUNTED], True
    if head is None and COUNTED not in kind:
        # No mean is made: what is shown is the whole recording, with what runs before the first boundary.
        start[0] = min(int(start[0]), int(ops.start.min()))
        op_cycle = np.searchsorted(start, ops.start, side="right") - 1
    if head is not None:
        start, kind, batch = np.append(head, start), [PARTIAL, *kind], np.append(-1, batch)
        op_cycle = np.searchsorted(start, ops.start, side="right") - 1
    end = np.append(start[1:], max(int(ops.end.max()), int(start[-1])))
    return Cycles(start, end, tuple(kind), batch, _confidence(ops, labels, op_cycle, len(start)), op_cycle, stream,
                  _words(used), closed)  # fmt: skip


def _head(ops: Ops, labels: Labels, before: Ints) -> int | None:
    """Where the remains of a cycle that began before the window start among the ops ``before`` the first boundary."""
    remains = before[np.isin(labels.phase[before], DECODING) & ~labels.prefill[before]]
    return int(ops.start[remains].min()) if len(remains) else None


def _none(ops: Ops, labels: Labels, stream: int) -> Cycles:
    """Without a target forward the whole recording is one window, never counted."""
    if not len(ops):
        nothing = np.zeros(0, np.int64)
        return Cycles(nothing, nothing, (), nothing, np.zeros(0), nothing, stream, "no GPU op")
    op_cycle = np.zeros(len(ops), np.int64)
    kind = PREFILL if labels.prefill.any() else PARTIAL
    start, end = np.array([ops.start.min()]), np.array([ops.end.max()])
    batch, confidence = np.array([-1], np.int64), _confidence(ops, labels, op_cycle, 1)
    return Cycles(start, end, (kind,), batch, confidence, op_cycle, stream, "no decode cycle found")


def _anchors(sequence: Ints, forward: Ints) -> list[tuple[int, int, int]]:
    """Target forwards on the main stream as (first position, last position, forward), in order of their start."""
    ids = forward[sequence]
    at = np.flatnonzero(ids >= 0)
    if not len(at):
        return []
    known, first = np.unique(ids[at], return_index=True)
    last = len(at) - 1 - np.unique(ids[at][::-1], return_index=True)[1]
    rows = sorted(zip(at[first].tolist(), at[last].tolist(), known.tolist(), strict=True))
    return [(int(a), int(b), int(f)) for a, b, f in rows]


def _boundaries(sequence: Ints, labels: Labels, anchors: list[tuple[int, int, int]]) -> tuple[Ints, Ints, list[int]]:
    """Positions in the sequence where cycles begin, the forward of each, and the phase whose op was taken.

    Work of a next cycle whose forward was not recorded closes the last one; its forward is -1.
    """
    if not anchors:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), []
    phase = np.where(labels.prefill[sequence], -1, labels.phase[sequence])
    first: list[int] = []
    used: list[int] = []
    # What closes a cycle, before the first forward, belongs to one that began before the recording.
    before = _after_closing(phase, 0, anchors[0][0])
    for head, tail, _ in anchors:
        place, chosen = _first_work(phase, before, head) or (head, int(phase[head]))
        first.append(place)
        used.append(chosen)
        before = max(before, tail + 1)
    forwards = [f for _, _, f in anchors]
    rest = _after_closing(phase, before, len(phase))
    begun = _first_work(phase, rest, len(phase)) if rest > before else None
    if begun is not None:
        first.append(begun[0])
        used.append(begun[1])
        forwards.append(-1)
    return np.array(first, np.int64), np.array(forwards, np.int64), used


def _after_closing(phase: npt.NDArray[np.int8], first: int, stop: int) -> int:
    """The position after the last op in [first, stop) of a phase that closes cycles; ``first`` if there is none."""
    found = np.flatnonzero(np.isin(phase[first:stop], (ACCEPT, DRAFT_EXTEND)))
    return first + int(found[-1]) + 1 if len(found) else first


def _first_work(phase: npt.NDArray[np.int8], first: int, stop: int) -> tuple[int, int] | None:
    """Where the draft begins in [first, stop), else the verify or the decode step, and which of them it is."""
    for wanted in (DRAFT, VERIFY, DECODE):
        found = np.flatnonzero(phase[first:stop] == wanted)
        if len(found):
            return first + int(found[0]), wanted
    return None


def _kinds(
    ops: Ops,
    labels: Labels,
    op_cycle: Ints,
    forward: Ints,
    used: list[int],
    begins: list[npt.NDArray[np.int32]],
    *,
    begun: bool | None,
) -> list[str]:
    """Which cycles are whole. A first cycle is, if its begin was seen, or where that is not known if it lacks nothing.

    ``begins`` holds the names of the ops that begin each cycle; ``begun`` says whether the first one's begin is among
    the ops.
    """
    count = len(forward)
    kind = [COUNTED] * count
    for c in np.unique(op_cycle[labels.prefill & (op_cycle >= 0)]).tolist():
        kind[c] = PREFILL
    kind[-1] = PARTIAL
    if count == 1 or kind[0] != COUNTED:
        return kind
    if begun is not None:
        return kind if begun else [PARTIAL, *kind[1:]]
    batch = [labels.batch[f] if f >= 0 else -1 for f in forward]
    like = [i for i in range(1, count - 1) if batch[i] == batch[0] and kind[i] == COUNTED]
    few = bool(like) and _lacks(ops, labels, op_cycle, count, like, begins)
    draft_missing = used[0] != DRAFT and DRAFT in used[1:]
    # Ops whose launch is not in the window, in a trace that links all others, were launched before it.
    first = op_cycle == 0
    if draft_missing or few or (_unlinked(ops, first) and not _unlinked(ops, op_cycle > 0)):
        kind[0] = PARTIAL
    return kind


def _repeats(name: npt.NDArray[np.int32], prefill: Bools, first: Ints, tails: Ints) -> bool | None:
    """Whether the recording holds the begin of its first cycle, by later cycles that repeat it kernel by kernel.

    ``first`` and ``tails`` are positions of the first op of each cycle and of the last of its forward. ``None`` where
    no cycle repeats it back to its begin or to that of the recording.
    """
    recorded = name[: tails[0] + 1] if len(tails) else name[:0]
    best: list[tuple[int, int]] = []
    for begin, tail in zip(first[1 : len(tails)].tolist()[:_LIKE], tails[1:].tolist(), strict=False):
        if prefill[begin : tail + 1].any():
            continue
        theirs = name[max(tail + 1 - len(recorded), 0) : tail + 1]
        other = np.flatnonzero(theirs[::-1] != recorded[::-1][: len(theirs)])
        alike = int(other[0]) if len(other) else len(theirs)
        best.append((alike, tail + 1 - begin))
    most = max((alike for alike, _ in best), default=0)
    wanted = [whole for alike, whole in best if alike == most]
    if wanted and most >= max(wanted):
        return True
    return False if wanted and most == len(recorded) else None


def _lacks(
    ops: Ops, labels: Labels, op_cycle: Ints, count: int, like: list[int], begins: list[npt.NDArray[np.int32]]
) -> bool:
    """Whether the first cycle lacks kernels of forwards that those like it have: any, where those all agree.

    Where they differ in number, a cycle that begins with other ops than all others do lacks its first ones.
    """
    working = (op_cycle >= 0) & np.isin(labels.phase, (DRAFT, VERIFY, DRAFT_EXTEND, DECODE)) & (ops.activity != MEMORY)
    number = np.bincount(op_cycle[working], minlength=count)
    if len(like) > 1 and len(set(number[like].tolist())) == 1:
        return bool(number[0] < number[like[0]])
    usual = {tuple(names[:_BEGIN].tolist()) for names in begins[1:]}
    odd = len(usual) == 1 and len(begins) > 2 and not _holds(begins[0].tolist(), *usual)
    return odd or bool(number[0] < WHOLE_SHARE * float(np.median(number[like])))


def _holds(names: list[int], wanted: tuple[int, ...]) -> bool:
    return any(tuple(names[i : i + len(wanted)]) == wanted for i in range(len(names)))


def _unlinked(ops: Ops, where: Bools) -> bool:
    return bool(((ops.launch_ns[where] < 0) & (ops.activity[where] == 0)).any())


def _looks_whole(ops: Ops, labels: Labels, op_cycle: Ints) -> bool:
    """Whether the only cycle lacks nothing that can be missed: a verify is followed by what accepts its tokens."""
    inside = op_cycle == 0
    seen = set(np.unique(labels.phase[inside]).tolist())
    if VERIFY in seen and not seen & {ACCEPT, DRAFT_EXTEND}:
        return False
    lasts = bool((ops.end[inside] > ops.start[inside].min()).any())
    return lasts and not labels.prefill[inside].any() and not _unlinked(ops, inside)


def _confidence(ops: Ops, labels: Labels, op_cycle: Ints, count: int) -> npt.NDArray[np.float64]:
    inside = op_cycle >= 0
    total, known = np.zeros(count), np.zeros(count)
    np.add.at(total, op_cycle[inside], ops.duration[inside])
    labelled = inside & ~labels.open()
    weight = np.where(labels.guessed, GUESS_WEIGHT, 1.0) * ops.duration
    np.add.at(known, op_cycle[labelled], weight[labelled])
    return np.divide(known, total, out=np.zeros(count), where=total > 0)


def _words(used: list[int]) -> str:
    common = max(set(used), key=used.count)
    names = {
        DRAFT: "first GPU op of draft",
        VERIFY: "first GPU op of verify (draft has none)",
        DECODE: "first GPU op of the decode step",
    }
    return names.get(common, "first GPU op of the target forward")
