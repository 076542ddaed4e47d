"""Ops whose phase is certain, in the order of the target's stream: what the structure pass holds on to."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.attribution.labels import ACCEPT, DECODE, DRAFT, DRAFT_EXTEND, OTHER, UNLABELLED, VERIFY, Labels
from profkit.attribution.labels.dialect import NOTHING
from profkit.attribution.labels.sequence import Sequence

# Kinds of landmarks and the phase each belongs to. DB, D, DE: a draft begins, goes on, ends; VP: a verify is prepared;
# A: acceptance; XB, X: a draft_extend begins, goes on; VD: vLLM's drafter; V: a target forward known from elsewhere.
LANDMARK: Final = {
    "draft_begin": ("DB", DRAFT),
    "draft": ("D", DRAFT),
    "draft_end": ("DE", DRAFT),
    "verify_prepare": ("VP", VERIFY),
    "window": ("VP", VERIFY),
    "accept": ("A", ACCEPT),
    "block_accept": ("A", ACCEPT),
    "draft_extend_begin": ("XB", DRAFT_EXTEND),
    "draft_extend": ("X", DRAFT_EXTEND),
    "vllm_accept": ("A", ACCEPT),
    "vllm_draft": ("VD", DRAFT),
}
_WINDOW: Final = "window"
# Landmarks of two cycles may follow each other.
_REPEATS: Final = ("A", "V", "DB", "X", _WINDOW)
_LABELLED: Final = {DRAFT: "D", VERIFY: "VP", ACCEPT: "A", DRAFT_EXTEND: "X"}


@dataclass(frozen=True, slots=True)
class Landmark:
    """A stretch [first, last] of positions in the sequence whose phase is certain."""

    kind: str
    first: int
    last: int


def find_landmarks(sequence: Sequence, labels: Labels, markers: npt.NDArray[np.object_]) -> list[Landmark]:
    """Landmarks in order: marker kernels outside replays, and ops that earlier passes labelled.

    ``markers`` gives the landmark's marker of each position, or ``nothing``. Places for the cache of a block drafter
    are given out when its draft begins, and for ragged blocks once more when the drafter's cache is fed.
    """
    blocks = bool((markers == "block_accept").any())
    found: list[Landmark] = []
    phase, forward = labels.phase[sequence.op], labels.forward[sequence.op]
    marked = (markers != NOTHING) & ~sequence.in_replay & (phase == UNLABELLED)
    interesting = np.flatnonzero(marked | ((phase != UNLABELLED) & (phase != OTHER)))
    if not len(interesting):
        return found
    # Neighbours that say the same are one; only the first of each run is looked at.
    same = np.append(False, np.diff(interesting) == 1)
    for column in (phase, forward):
        same[1:] &= column[interesting[1:]] == column[interesting[:-1]]
    same[1:] &= markers[interesting[1:]] == markers[interesting[:-1]]
    heads = np.flatnonzero(~same)
    tails = interesting[np.append(heads[1:] - 1, len(interesting) - 1)]
    for i, last in zip(interesting[heads].tolist(), tails.tolist(), strict=True):
        kind = _kind(int(phase[i]), int(forward[i]), str(markers[i]), blocks=blocks)
        known = found[-1] if found else None
        if known and known.kind == kind and (kind not in _REPEATS or _joins(sequence, labels, known, i)):
            found[-1] = Landmark(kind, known.first, last)
        else:
            found.append(Landmark(kind, i, last))
    return _placed(sequence, found)


def _placed(sequence: Sequence, landmarks: list[Landmark]) -> list[Landmark]:
    """Landmarks whose kernels have two uses, by those beside them.

    Windows of a block drafter begin its draft; with GEMMs and then another draft after it, one feeds its cache. What
    places a verify's tokens between acceptance and draft_extend (spec v1) still belongs to acceptance.
    """
    result: list[Landmark] = []
    for mark, after in itertools.zip_longest(landmarks, landmarks[1:]):
        kind = mark.kind
        accepted = bool(result) and result[-1].kind == "A"
        if kind == _WINDOW and after is not None and after.kind in (_WINDOW, "DB", "D"):
            kind = "XB" if sequence.gemm[mark.last + 1 : after.first].any() else "DB"
        elif kind == _WINDOW:
            # The recording may end after the window that feeds the cache: it comes where the earlier ones came.
            feeds = accepted and after is None and any(m.kind == "XB" for m in result)
            kind = "XB" if feeds else "DB"
        elif kind == "VP" and accepted and after is not None and after.kind in ("XB", "X"):
            between = sequence.model[result[-1].last + 1 : after.first]
            kind = "VP" if between.any() else "A"
        result.append(replace(mark, kind=kind))
    return result


def _kind(phase: int, forward: int, marker: str, *, blocks: bool) -> str:
    if phase == UNLABELLED:
        if blocks and marker == _WINDOW:
            return _WINDOW
        return LANDMARK[marker][0]
    if phase == DECODE or forward >= 0:
        return "V"
    if phase == DRAFT and marker in ("draft_begin", "draft_end"):
        return LANDMARK[marker][0]
    return _LABELLED[phase]


def _joins(sequence: Sequence, labels: Labels, before: Landmark, i: int) -> bool:
    """Whether a landmark goes on, or another cycle's begins."""
    if before.kind == _WINDOW:
        return False
    if before.kind == "V":
        return bool(labels.forward[sequence.op[before.last]] == labels.forward[sequence.op[i]])
    return not sequence.model[before.last + 1 : i].any()
