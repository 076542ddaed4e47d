"""Pass 3: what the order of kernels tells: graph replays, marker kernels, and the ring that phases form.

On the stream of the target forward the phases follow each other in a ring (draft, verify, accept, draft_extend). Marker
kernels and ops that earlier passes labelled are landmarks on it; what lies between two landmarks is split by what it
holds: model work (attention, GEMMs, communication, a whole graph replay), sampling, or glue.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.attribution.labels import (
    ACCEPT,
    DECODE,
    DRAFT,
    DRAFT_EXTEND,
    NO_SOURCE,
    OTHER,
    VERIFY,
    Labels,
)
from profkit.attribution.labels.dialect import NOTHING, marker_of
from profkit.attribution.labels.landmarks import LANDMARK, Landmark, find_landmarks
from profkit.attribution.labels.plain import label_plain
from profkit.attribution.labels.repeat import label_repeated
from profkit.attribution.labels.ring import whole
from profkit.attribution.labels.sequence import PAUSE_NS, Sequence, read_sequence
from profkit.attribution.labels.streams import label_other_streams
from profkit.attribution.ops import Ops
from profkit.words import LABEL_SOURCES

Ints = npt.NDArray[np.int64]

_NAMED: Final = tuple(LABEL_SOURCES.index(s) for s in ("annotation", "frame", "gpu_annotation"))
_AFTER_ACCEPT: Final = ("A", "XB", "X")
# An eager forward with at least this share of the verify's attention kernels between two cycles is a prefill.
_PREFILL_SHARE: Final = 0.5
# Models with fewer layers than this are too small to tell a prefill by its attention.
_LEAST_LAYERS: Final = 4


def label_by_landmarks(ops: Ops, labels: Labels) -> None:
    """Label what is still open between landmarks; does nothing where there is none."""
    if not len(ops) or not labels.open().any():
        return
    sequence = read_sequence(ops, labels)
    if not len(sequence.op):
        return
    of_name = [marker_of(n) for n in ops.names]
    markers = np.array([m if m in LANDMARK else NOTHING for m in of_name], object)[sequence.name]
    ring = (markers != NOTHING).any() or np.isin(labels.phase, (DRAFT, VERIFY, DRAFT_EXTEND)).any()
    named = np.flatnonzero(np.isin(labels.source[sequence.op], _NAMED))
    if len(named):
        label_repeated(sequence, labels, int(named[0]), all_known=bool(ring))
    if ring:
        _Ring(sequence, labels, find_landmarks(sequence, labels, markers)).run()
        label_other_streams(ops, labels, sequence)
    elif (labels.forward >= 0).any():
        label_plain(sequence, labels, target=DECODE)
        label_other_streams(ops, labels, sequence)


class _Ring:
    """Labels the stretches between landmarks."""

    def __init__(self, sequence: Sequence, labels: Labels, landmarks: list[Landmark]) -> None:
        self.sequence, self.labels, self.landmarks = sequence, labels, landmarks
        self.vllm = any(m.kind == "VD" for m in landmarks)
        labels.verify_first |= self.vllm
        self.usual = self._usual_attention()
        self.landmarks = self._mark_prompts(landmarks)
        self.drafts = any(m.kind in ("DB", "D", "DE") for m in self.landmarks)
        self.paused = False  # whether the GPU waits for the scheduler between cycles

    def run(self) -> None:
        """Label landmarks, then what lies between, before and after them."""
        phases = dict(LANDMARK.values())
        for mark in self.landmarks:
            if mark.kind == "P":
                self._set(mark.first, mark.last + 1, OTHER, prefill=True)
            elif mark.kind in phases:
                self._set(mark.first, mark.last + 1, phases[mark.kind])
        edges = [Landmark("start", -1, -1), *self.landmarks, Landmark("end", len(self.sequence.op), -1)]
        # What was cut by the window's start is judged last, by what the whole cycles showed.
        pairs = list(itertools.pairwise(edges))
        for before, after in [*pairs[1:], pairs[0]]:
            if before.kind == "start" and after.kind != "end":
                label_repeated(self.sequence, self.labels, after.first)
            if after.first > before.last + 1:
                self._between(before, after, before.last + 1, after.first)

    def _set(self, first: int, stop: int, phase: int, *, prefill: bool = False) -> None:
        if stop > first:
            self.labels.set_at(self.sequence.op[first:stop], phase, "graph", prefill=prefill)

    def _forward(self, first: int, stop: int) -> None:
        """The target forward in [first, stop): a new instance, unless it had begun before the recording."""
        mine = self.sequence.op[first:stop]
        fresh = mine[self.labels.source[mine] == NO_SOURCE]
        self._set(first, stop, VERIFY)
        if first == 0:
            return
        self.labels.forward[fresh] = len(self.labels.batch)
        self.labels.batch.append(-1)

    def _between(self, before: Landmark, after: Landmark, first: int, stop: int) -> None:
        left, right = before.kind, after.kind
        if left == "DB" and right in ("DB", "A", "end"):
            self._block(first, stop, right)
        elif left in ("DB", "D") and right in ("DB", "D", "DE"):
            self._set(first, stop, DRAFT)
        elif left in ("DB", "D", "DE", "VP") and right in ("VP", "V"):
            if left in ("DB", "D") and not self.labels.verify_first:
                # A drafter without a tree: its forward is the model work before the verify is prepared.
                end = max(self.sequence.model_extent(first, stop)[1], self.sequence.last_sampling(first, stop) + 1)
                self._set(first, end, DRAFT)
            self._set(first, stop, OTHER if self.labels.verify_first else VERIFY)
        elif left in ("DE", "VP", "D") and right in ("A", "end", "X", "XB"):
            self._target(first, stop)
        elif left == "V" and right in ("A", "XB", "X"):
            self._set(first, stop, ACCEPT)
        elif left == "V":
            self._after_target(first, stop, right)
        elif left in _AFTER_ACCEPT and self.vllm:
            self._set(first, stop, DRAFT if right == "VD" else ACCEPT)
        elif left == "VD":
            self._vllm(first, stop, right)
        elif left == "P":
            self._prompt(first, stop, right)
        elif left in _AFTER_ACCEPT and right in _AFTER_ACCEPT:
            self._inside_accept(first, stop, left, right)
        elif left in _AFTER_ACCEPT:
            self._extend(first, stop, left, right)
        elif left == "start":
            self._head(first, stop, right)

    def _mark_prompts(self, landmarks: list[Landmark]) -> list[Landmark]:
        """Landmarks of draft_extends behind an eager target forward belong to a prefill."""
        result: list[Landmark] = []
        least = max(float(_LEAST_LAYERS), _PREFILL_SHARE * self.usual[0])
        for mark in landmarks:
            before = result[-1] if result else None
            if mark.kind in ("XB", "X") and before is not None:
                units = self.sequence.units(before.last + 1, mark.first)
                reads = before.kind in _AFTER_ACCEPT and any(not u.replay and u.attention >= least for u in units)
                if reads or before.kind == "P":
                    mark = replace(mark, kind="P")
            result.append(mark)
        return result

    def _prompt(self, first: int, stop: int, right: str) -> None:
        """After a landmark of a prefill: the rest of its model work, then glue or a draft that no landmark opens."""
        if right == "P":
            self._set(first, stop, OTHER, prefill=True)
            return
        end = self.sequence.model_extent(first, stop)[1]
        self._set(first, end, OTHER, prefill=True)
        if right == "DE":
            self._set(self.sequence.first_sampling(end, stop), stop, DRAFT)
        self._set(end, stop, OTHER)

    # Stretches -------------------------------------------------------------------------------------------------

    def _target(self, first: int, stop: int) -> None:
        """Preparation, the target forward, sampling."""
        begin, end = self.sequence.model_extent(first, stop)
        if end <= begin:
            self._set(first, stop, VERIFY)
            return
        self._set(first, begin, VERIFY)
        self._forward(begin, end)
        self._set(end, stop, ACCEPT)

    def _block(self, first: int, stop: int, right: str) -> None:
        """A draft without an end that is marked, then perhaps the target's forward and what follows it."""
        units = self.sequence.units(first, stop)
        least = max(1.0, _PREFILL_SHARE * self.usual[0])
        # Nothing that can be a target's forward: in an odd recording acceptance may follow at once.
        if not units or (right == "DB" and not any(u.attention >= least for u in units[1:])):
            self._set(first, stop, DRAFT)
            return
        if right == "DB":
            target = max(range(1, len(units)), key=lambda i: units[i].attention)
        else:
            target = len(units) - 1 if right == "A" or len(units) > 1 else len(units)
        before = units[target].first if target < len(units) else stop
        # The drafted tokens are chosen before the target's forward, which may be in pieces, begins.
        picked = np.flatnonzero(self.sequence.sampling[first:before])
        drafted = first + int(picked[-1]) + 1 if len(picked) else units[target - 1].stop if target > 0 else first
        drafted = max(drafted, *(u.stop for u in units if u.replay and u.first < drafted), first)
        self._set(first, drafted, DRAFT)
        if target == len(units):
            return
        after = units[target].stop if right == "DB" else stop
        self._target(drafted, after)
        if right == "DB":
            self._after_target(after, stop, right)

    def _after_target(self, first: int, stop: int, right: str) -> None:
        """After a labelled forward without an accept marker: sampling, then perhaps a draft_extend."""
        begin, end = self.sequence.model_extent(first, stop)
        sampled = self.sequence.last_sampling(first, begin if end > begin else stop)
        cut = sampled + 1 if sampled >= 0 else first
        if end <= begin and sampled < 0:
            # No kernel is known to sample: what follows the forward in its batch is acceptance.
            copies = np.flatnonzero(self.sequence.copy_in[first:stop])
            cut = first + int(copies[0]) if len(copies) else stop
        self._set(first, cut, ACCEPT)
        self._extend(cut, stop, "A", right)

    def _inside_accept(self, first: int, stop: int, left: str, right: str) -> None:
        begin, end = self.sequence.model_extent(first, stop)
        if right == "A" and end > begin and (left == "A" or self._holds_target(first, stop, left)):
            self._unmarked_cycle(first, stop)
        elif left == "A":
            self._set(first, stop, ACCEPT if end <= begin else DRAFT_EXTEND)
        else:
            self._set(first, stop, DRAFT_EXTEND)

    def _holds_target(self, first: int, stop: int, left: str) -> bool:
        """Whether a target's forward comes after a draft_extend that a landmark tells, with its own forward to come."""
        least = max(1.0, _PREFILL_SHARE * self.usual[0])
        return any(u.attention >= least for u in self.sequence.units(first, stop)[1 if left == "XB" else 0 :])

    def _unmarked_cycle(self, first: int, stop: int) -> None:
        """From one acceptance to the next with no landmark between: the heaviest forward is the target's.

        Where other cycles' drafts are marked this one has none (adaptive steps), or it reads a prompt: no draft_extend
        is before it either.
        """
        units = self.sequence.units(first, stop)
        heaviest = max(range(len(units)), key=lambda i: (units[i].attention, i), default=0)
        before = units[:heaviest]
        at = first
        if self.drafts and not before:
            self._set(first, stop, OTHER, prefill=True)
            return
        if self.drafts:
            at = max(before[-1].stop, self.sequence.last_sampling(before[-1].stop, units[heaviest].first) + 1)
            self._set(first, at, DRAFT_EXTEND)
            begun = self._batch(at, units[heaviest].first)
            if begun < units[heaviest].first:
                self._set(at, begun, OTHER)
                at = begun
        elif before:
            if len(before) > 1:
                self._set(at, before[0].stop, DRAFT_EXTEND)
                at = before[0].stop
            self._set(at, before[-1].stop, DRAFT)
            at = before[-1].stop
        self._target(at, stop)

    def _extend(self, first: int, stop: int, left: str, right: str) -> None:
        """From acceptance to the next draft or verify: draft_extend, scheduler glue, and an unmarked draft."""
        begun = self._batch(first, stop) if right == "DE" else stop
        self._set(begun, stop, DRAFT)
        at = self._cut_prefill(first, begun)
        draft_from = self._unmarked_draft(first, at, left) if right == "DE" and begun == stop else at
        end = self.sequence.model_extent(first, draft_from)[1] if draft_from > first else first
        if right != "DE" and (end > first or left == "X"):
            # The tokens that the draft_extend picks for the first draft step are its own.
            end = max(end, self.sequence.last_sampling(first, at) + 1)
        units = whole(self.sequence, self.sequence.units(first, end)) if right == "V" and not self.drafts else []
        if len(units) > 1:
            # Nothing marks a draft in this recording: the order of forwards alone tells it from the draft_extend.
            guessed = self.sequence.op[first:end]
            self.labels.guessed[guessed[self.labels.source[guessed] == NO_SOURCE]] = True
            cut = max(units[0].stop, self.sequence.first_sampling(units[0].stop, units[1].first) + 1)
            self._set(first, min(cut, units[1].first), DRAFT_EXTEND)
            self._set(units[1].first, end, DRAFT)
        self._set(first, end, DRAFT_EXTEND)
        if right == "DE":
            self._set(draft_from, at, DRAFT)
        elif right == "DB" and at == stop:
            # What follows the scheduler's pause is the draft's own, before the kernel that marks it.
            resumed = self.sequence.after_pause(end, stop, PAUSE_NS)
            self.paused |= resumed < stop
            self._set(resumed, stop, DRAFT)
        elif right in ("VP", "V"):
            # The host's drafts arrive as copies: they and what follows prepare the verify.
            arrived = self.sequence.after_prompt(end, at)
            copies = np.flatnonzero(self.sequence.copy_in[arrived:at])
            if len(copies):
                self._set(arrived + int(copies[0]), at, VERIFY)
        self._set(end, stop, OTHER)

    def _batch(self, first: int, stop: int) -> int:
        """Where the last batch begins that resolves what the one before left, ``stop`` if none does."""
        resolves = np.flatnonzero(self.sequence.resolves[first:stop])
        return first + int(resolves[-1]) + 1 if len(resolves) else stop

    def _unmarked_draft(self, first: int, stop: int, left: str) -> int:
        """Where draft forwards begin that no landmark opens, before a tree build: the last forwards of the stretch.

        A multi-layer drafter does all its forwards in the draft_extend: then the draft is the picking of tokens.
        """
        units = self.sequence.units(first, stop)
        if len(units) > 1 and left != "X":
            return units[0].stop
        if len(units) == 1 and left == "A":
            return first
        return self.sequence.first_sampling(self.sequence.model_extent(first, stop)[1], stop)

    def _usual_attention(self) -> tuple[float, float]:
        """Attention kernels of a target forward, and eager ones between acceptance and the next draft: medians."""
        target: list[int] = []
        between: list[int] = []
        accepted: int | None = None
        for before, after in itertools.pairwise(self.landmarks):
            if before.kind in ("DE", "VP") and after.kind == "A":
                target.append(int(self.sequence.attention[before.last + 1 : after.first].sum()))
            elif before.kind == "DB" and after.kind == "A":
                units = self.sequence.units(before.last + 1, after.first)
                # The draft comes first; the target's forward may be in pieces.
                rest = sum(u.attention for u in units[1:])
                target.append(max(rest, *(u.attention for u in units), 0))
            if before.kind == "A":
                accepted = before.last + 1
            # A draft_extend that is labelled already lies between as well.
            if accepted is not None and after.kind in ("DB", "DE", "VP", "V"):
                begun = self._batch(accepted, after.first) if after.kind == "DE" else after.first
                between.append(len(self.sequence.eager_attention(accepted, begun)))
                accepted = None
        usual = float(np.median(target)) if target else float(self.sequence.typical_attention)
        # Prefills may lie between most cycles of a recording: the lower quarter is that of cycles without one.
        return usual, float(np.percentile(between, 25, method="lower")) if between else 0.0

    def _cut_prefill(self, first: int, stop: int) -> int:
        """Mark a prefill between two cycles; returns where the ring's own ops end."""
        eager = self.sequence.eager_attention(first, stop)
        target, usual = self.usual
        if target < _LEAST_LAYERS or len(eager) - usual < _PREFILL_SHARE * target:
            return stop
        # The cycle's own draft_extend comes first: a replay, or as much eager attention as other cycles have there.
        begin, seen = first, 0
        for unit in self.sequence.units(first, stop):
            if not unit.replay and seen >= usual:
                break
            begin, seen = unit.stop, seen + (0 if unit.replay else unit.attention)
        self._set(begin, stop, OTHER, prefill=True)
        return begin

    def _vllm(self, first: int, stop: int, right: str) -> None:
        """vLLM: draft forwards, then the next round's preparation, forward and sampling."""
        if right == "VD":
            self._set(first, stop, DRAFT)
            return
        units = self.sequence.units(first, stop)
        if right == "V" or not units:
            cut = units[-1].stop if units else first
            self._set(first, cut, DRAFT)
            self._set(cut, stop, VERIFY)
            return
        if right == "end":
            self._set(first, units[0].stop, DRAFT)
            if len(units) > 1:
                self._target(units[0].stop, stop)
            return
        cut = units[-2].stop if len(units) > 1 else first
        self._set(first, cut, DRAFT)
        self._target(cut, stop)

    def _head(self, first: int, stop: int, right: str) -> None:
        """What was running when the recording began."""
        # What ran before a prompt is not of the draft or verify that comes after it.
        begun = self.sequence.after_prompt(first, stop) if right in ("DB", "D", "DE", "VP") else first
        self._set(first, begun, OTHER)
        first = begun
        if right == "A":
            self._target(first, stop)
        elif right in ("DB", "XB", "X"):
            if right == "DB" and self.paused:
                work = self.sequence.model_extent(first, stop)[1]
                resumed = self.sequence.after_pause(work, stop, PAUSE_NS) if work > first else first
                self._set(resumed, stop, DRAFT)
            stop = self._cut_prefill(first, stop) if right == "DB" else stop
            end = self.sequence.model_extent(first, stop)[1]
            self._set(first, end, DRAFT_EXTEND)
            self._set(end, stop, OTHER if right == "DB" else DRAFT_EXTEND)
        elif right in ("D", "DE") or (right == "VP" and any(m.kind in ("D", "DE") for m in self.landmarks)):
            units = self.sequence.units(first, stop)
            self._set(units[-1].first if units else first, stop, DRAFT)
        elif right == "VP":
            # A verify's remains would be followed by acceptance: a forward before the first preparation read a prompt.
            end = self.sequence.model_extent(first, stop)[1]
            if self.sequence.attention[first:end].any():
                end = max(end, self.sequence.last_sampling(first, stop) + 1)
                self._set(first, end, OTHER, prefill=True)
                first = end
            copies = np.flatnonzero(self.sequence.copy_in[first:stop])
            self._set(first + int(copies[0]) if len(copies) else stop, stop, VERIFY)
