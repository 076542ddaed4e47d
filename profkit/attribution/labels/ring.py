"""Speculation without any name to hold on to: forwards of the target and of the drafter form a ring.

The target's replay holds no choice of tokens (it follows outside), the drafter's do; else the target's single forward
is the longest. Between two target forwards the first other one is the draft_extend, the rest draft; eager forwards of
a kind that cycles do not have read prompts. Nothing is concluded where forwards do not fall into such a ring.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from profkit.attribution.labels import ACCEPT, DRAFT, DRAFT_EXTEND, OTHER, VERIFY, Labels
from profkit.attribution.labels.sequence import Sequence, Unit

# On the host a forward with at least this share of the largest one's GEMMs is the target's.
_LARGE: Final = 0.6
# So many of the stretches between target forwards must look alike.
_ALIKE: Final = 0.6
# A kind of forward that occurs less often than this share of the commonest is none of the ring's.
_RARE: Final = 0.1
# The target's forward takes at least so much longer than any other kind that could be it.
_APART: Final = 1.2
# A forward with so much more work than its like read a prompt.
_PROMPT: Final = 1.6
# An eager forward with so much of a replay's attention is the same model's: kernels differ with the tokens per request.
_DEEP: Final = 0.5
Kind: TypeAlias = tuple[bool, int, bool]


@dataclass(frozen=True, slots=True)
class Forward:
    """Positions [first, stop) of one forward, or of several in one replay.

    ``size`` counts attention kernels (on the host GEMMs), ``busy`` is the summed duration in ns, ``picks`` says that
    tokens are chosen inside a replay, ``gemms`` counts GEMMs.
    """

    first: int
    stop: int
    size: int
    replay: bool = False
    picks: bool = False
    busy: int = 0
    gemms: int = 0

    @property
    def kind(self) -> Kind:
        """Forwards of one kind have the same captured form and the same size."""
        return self.replay, self.size, self.picks


def forwards(sequence: Sequence, *, on_host: bool) -> list[Forward]:
    """All forwards of the sequence: on a GPU replays and eager stretches, on the host from embedding to embedding."""
    if not on_host:
        return [
            Forward(
                u.first, u.stop, u.attention, u.replay, u.replay and bool(sequence.sampling[u.first : u.stop].any()),
                int(sequence.duration[u.first : u.stop].sum()), int(sequence.gemm[u.first : u.stop].sum()),
            )
            for u in whole(sequence, sequence.units(0, len(sequence.op)))
            if u.attention
        ]  # fmt: skip
    borders = [*np.flatnonzero(sequence.embedding).tolist(), len(sequence.op)]
    result = []
    for first, limit in itertools.pairwise(borders):
        gemms = int(sequence.gemm[first:limit].sum())
        if gemms:
            result.append(Forward(first, sequence.model_extent(first, limit)[1], gemms))
    return result


def whole(sequence: Sequence, units: list[Unit]) -> list[Unit]:
    """Replays between which no token is chosen are pieces of one forward."""
    result: list[Unit] = []
    for unit in units:
        before = next((i for i in reversed(range(len(result))) if result[i].replay), None)
        if unit.replay and before is not None and not sequence.sampling[result[before].first : unit.first].any():
            pieces = [*result[before:], unit]
            result[before:] = [Unit(pieces[0].first, unit.stop, sum(p.attention for p in pieces), replay=True)]
        else:
            result.append(unit)
    return result


@dataclass(frozen=True, slots=True)
class Ring:
    """Places of the target's forwards, and of those that read prompts; how many others usually lie between two."""

    targets: list[int]
    prompts: set[int]
    between: list[int]
    usual: int


def label_ring(sequence: Sequence, labels: Labels, found: list[Forward], *, on_host: bool) -> bool | None:
    """Label a ring of target and other forwards; false if there is none, ``None`` if its target is in doubt."""
    if len(found) < 3:
        return False
    ring = _host_ring(found) if on_host else _gpu_ring(found)
    if not isinstance(ring, Ring):
        return ring
    painter = _Painter(sequence, labels)
    for run in _runs(sorted(ring.prompts)):
        painter.prompt(found[run[0]], found[run[-1]])
    # A target forward that no draft precedes, where drafts usually do, read a prompt.
    counts = [ring.usual, *ring.between]
    prefill = {i for i, count in zip(ring.targets, counts, strict=True) if ring.usual > 1 and count <= 1}
    for n, i in enumerate(ring.targets):
        follower = ring.targets[n + 1] if n + 1 < len(ring.targets) else len(found)
        painter.target(found[i], prefill=i in prefill)
        small = [found[j] for j in range(i + 1, follower) if j not in ring.prompts]
        stop = found[follower].first if follower < len(found) else len(sequence.op)
        painter.after_target(found[i], small, stop, prefill=i in prefill, last=follower == len(found))
    head = [found[j] for j in range(ring.targets[0]) if j not in ring.prompts]
    painter.head(head, found[ring.targets[0]], ring.usual)
    return True


def _host_ring(found: Several[Forward]) -> Ring | Literal[False]:
    largest = max(f.size for f in found)
    return _shape(found, [i for i, f in enumerate(found) if f.size >= _LARGE * largest], set())


def _gpu_ring(found: Several[Forward]) -> Ring | Literal[False] | None:
    """The ring around the kind of forward that can be the target's; ``None`` where two kinds can."""
    counts = Counter(f.kind for f in found)
    frequent = [k for k, n in counts.items() if n >= max(2, _RARE * max(counts.values()))]
    silent = [k for k in frequent if not k[2]] or frequent
    # Where some captured kind holds no choice of tokens, eager ones read prompts.
    silent = [k for k in silent if k[0]] or silent
    busy = {k: float(np.median([f.busy for f in found if f.kind == k])) for k in frequent}
    gemms = {k: float(np.median([f.gemms for f in found if f.kind == k])) for k in frequent}
    # A model that runs eagerly with two lengths reads prompts in the longer one.
    long = {k for k in frequent if not k[0] and any(gemms[o] == gemms[k] and busy[o] < busy[k] for o in frequent)}
    silent = [k for k in silent if k not in long]
    rings: list[tuple[float, Ring]] = []
    for kind in sorted(silent, key=lambda k: busy[k], reverse=True):
        shape = _shape(found, [i for i, f in enumerate(found) if f.kind == kind], _prompts(found, kind, long))
        if shape:
            rings.append((busy[kind], shape))
    if not rings:
        return None if len(frequent) > 1 else False
    if len(rings) > 1 and rings[0][0] < _APART * rings[1][0]:
        return None
    return rings[0][1]


def _shape(found: Several[Forward], targets: list[int], prompts: set[int]) -> Ring | Literal[False]:
    """The ring if stretches between target forwards look alike, and are not all empty."""
    place = {i: n for n, i in enumerate(i for i in range(len(found)) if i not in prompts)}
    targets = [i for i in targets if i not in prompts]
    between = [place[b] - place[a] - 1 for a, b in itertools.pairwise(targets)]
    if not any(between):
        return False
    usual, alike = Counter(b for b in between if b).most_common(1)[0]
    return Ring(targets, prompts, between, usual) if alike >= _ALIKE * len(between) else False


def _prompts(found: Several[Forward], target: Kind, long: set[Kind]) -> set[int]:
    """Forwards that read prompts: eager ones, rare, and either of another form than the target's replays, or at least
    as deep as the target's own and with far more work. Beside replays they are deep and at least as busy, or rare."""
    counts = Counter(f.kind for f in found)
    rare = {i for i, f in enumerate(found) if not f.replay and counts[f.kind] < 0.5 * counts[target]}
    known = {i for i, f in enumerate(found) if f.kind in long}
    usual = float(np.median([f.busy for f in found if f.kind == target]))
    if target[0]:
        return rare | {
            i for i, f in enumerate(found) if not f.replay and f.size >= _DEEP * target[1] and f.busy >= usual
        }
    return known | {i for i in rare if found[i].size >= target[1] and found[i].busy > _PROMPT * usual}


def _runs(places: list[int]) -> list[list[int]]:
    """Neighbours together."""
    result: list[list[int]] = []
    for place in places:
        if result and place == result[-1][-1] + 1:
            result[-1].append(place)
        else:
            result.append([place])
    return result


class _Painter:
    def __init__(self, sequence: Sequence, labels: Labels) -> None:
        self.sequence, self.labels = sequence, labels

    def _set(self, first: int, stop: int, phase: int, *, prefill: bool = False) -> None:
        if stop > first:
            self.labels.set_at(self.sequence.op[first:stop], phase, "graph", prefill=prefill)

    def prompt(self, first: Forward, last: Forward) -> None:
        """Forwards that read prompts, with what lies between them."""
        self._set(first.first, last.stop, OTHER, prefill=True)

    def target(self, forward: Forward, *, prefill: bool) -> None:
        """One forward of the target model."""
        self._set(forward.first, forward.stop, OTHER if prefill else VERIFY, prefill=prefill)
        if not prefill:
            self.labels.forward[self.sequence.op[forward.first : forward.stop]] = len(self.labels.batch)
            self.labels.batch.append(-1)

    def after_target(self, target: Forward, small: list[Forward], stop: int, *, prefill: bool, last: bool) -> None:
        """What follows a target forward, up to the next one."""
        if not small:
            sampled = self.sequence.last_sampling(target.stop, stop)
            self._set(target.stop, sampled + 1, OTHER if prefill else ACCEPT, prefill=prefill)
            self._set(target.stop, stop, OTHER)
            return
        extend = small[0]
        self._set(target.stop, extend.first, OTHER if prefill else ACCEPT, prefill=prefill)
        following = small[1].first if len(small) > 1 else stop
        picked = self.sequence.first_sampling(extend.stop, following)
        extend_stop = picked + 1 if picked < following and len(small) > 1 else extend.stop
        self._set(extend.first, extend_stop, OTHER if prefill else DRAFT_EXTEND, prefill=prefill)
        drafts = small[1:]
        if not drafts:
            self._set(extend_stop, stop, OTHER)
            return
        self._set(extend_stop, drafts[0].first, OTHER)
        self._drafts(drafts, stop, last=last)

    def _drafts(self, drafts: list[Forward], stop: int, *, last: bool) -> None:
        sampled = self.sequence.last_sampling(drafts[-1].stop, stop)
        end = max(drafts[-1].stop, sampled + 1)
        self._set(drafts[0].first, end, DRAFT)
        self._set(end, stop, OTHER if last else VERIFY)

    def head(self, small: list[Forward], target: Forward, usual: int) -> None:
        """Before the first target forward: what is left of an earlier cycle, then drafts.

        ``usual`` forwards lie between two of the target's, the first of them a draft_extend.
        """
        if len(small) >= usual:
            extend, small = small[-usual], small[len(small) - usual + 1 :]
            following = small[0].first if small else target.first
            picked = self.sequence.first_sampling(extend.stop, following)
            stop = picked + 1 if picked < following else extend.stop
            self._set(0, stop, DRAFT_EXTEND)
            self._set(stop, following, OTHER)
        if small:
            self._drafts(small, target.first, last=False)
