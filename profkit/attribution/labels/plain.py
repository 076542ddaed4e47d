"""Structure without speculation: forwards of the decode step, told apart by the sampling between them."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.attribution.labels import ACCEPT, DECODE, OTHER, Labels
from profkit.attribution.labels.sequence import Sequence

Ints = npt.NDArray[np.int64]
# An eager forward so many times as long as others read a prompt: a larger batch alone does not do that.
_PROMPT: Final = 4.0


def label_plain(sequence: Sequence, labels: Labels, *, target: int = DECODE) -> None:
    """Label forwards as ``target``, the sampling after each as ``accept``, its preparation as ``target``.

    Several replays without sampling between them (piecewise graphs) are one forward. Eager forwards among replays
    are prefills. Forwards that are labelled already keep their label and split the rest alike.
    """
    known = np.isin(labels.phase[sequence.op], (target, DECODE))
    anchored = bool((labels.forward[sequence.op] >= 0).any())
    model = known if anchored else sequence.model
    sampling = sequence.sampling & ~sequence.in_replay & ~known
    at = np.flatnonzero(model)
    if not len(at) or not (anchored or sequence.attention.any()):
        return
    round_of = np.cumsum(sampling)[at] if not anchored else labels.forward[sequence.op[at]]
    parts = np.split(at, np.flatnonzero(np.diff(round_of)) + 1)
    if not anchored and sequence.typical_attention:
        parts = [piece for part in parts for piece in _apart(sequence, part)]
    graphs = [bool(sequence.in_replay[p].any()) for p in parts]
    mostly_graphs = sum(graphs) > 0.5 * len(graphs)
    prefills = {int(p[0]) for p, graph in zip(parts, graphs, strict=True) if mostly_graphs and not graph}
    if not anchored and len(parts) == 1 and not any(graphs):
        return  # a lone eager forward may as well read a prompt, or train
    if not anchored and not any(graphs):
        parts, prefills = _eager_prefills(sequence, parts)
        prefills |= _long(sequence, parts)
    for i, part in enumerate(parts):
        first, stop = int(part[0]), int(part[-1]) + 1
        following = int(parts[i + 1][0]) if i + 1 < len(parts) else len(sequence.op)
        if not anchored:
            prefill = first in prefills
            _set(sequence, labels, first, stop, OTHER if prefill else target, prefill=prefill)
            if not prefill:
                labels.forward[sequence.op[first:stop]] = len(labels.batch)
                labels.batch.append(-1)
        reads = i + 1 < len(parts) and following in prefills
        _glue(sequence, labels, stop, following, target, last=i + 1 == len(parts), read=first in prefills, reads=reads)
    _head(sequence, labels, parts, target, reads=int(parts[0][0]) in prefills)


def _head(sequence: Sequence, labels: Labels, parts: list[Ints], target: int, *, reads: bool) -> None:
    """Before the first of ``parts``: the forward that ran when the recording began, and whole ones after it."""
    stop = int(parts[0][0])
    at = np.flatnonzero(sequence.model[:stop])
    rounds = np.cumsum(sequence.sampling[:stop] & ~sequence.in_replay[:stop])[at]
    found = [p for p in np.split(at, np.flatnonzero(np.diff(rounds)) + 1) if len(p)]
    usual = float(np.median([sequence.duration[p].sum() for p in parts]))
    cut = int(found[0][-1]) + 1 if found else 0
    _set(sequence, labels, 0, cut, target)
    read = False
    for part in found[1:]:
        long = bool(sequence.duration[part].sum() > _PROMPT * usual)
        _glue(sequence, labels, cut, int(part[0]), target, read=read, reads=long)
        cut, read = int(part[-1]) + 1, long
        _set(sequence, labels, int(part[0]), cut, OTHER if long else target, prefill=long)
        if not long:
            labels.forward[sequence.op[int(part[0]) : cut]] = len(labels.batch)
            labels.batch.append(-1)
    _glue(sequence, labels, cut, stop, target, read=read, reads=reads)


def _eager_prefills(sequence: Sequence, parts: list[Ints]) -> tuple[list[Ints], set[int]]:
    """Split eager stretches with more attention than others have: a prefill that no sampling sets apart from a step.

    The step is what comes last, with the usual number of attention kernels; the cut is at the glue before it.
    """
    counts = [int(sequence.attention[p].sum()) for p in parts]
    usual = int(np.median(counts))
    result: list[Ints] = []
    prefills: set[int] = set()
    for part, count in zip(parts, counts, strict=True):
        attention = part[sequence.attention[part]]
        if usual < 1 or count < 1.5 * usual:
            result.append(part)
            continue
        last, following = int(attention[count - usual - 1]), int(attention[count - usual])
        glue = last + np.flatnonzero(~sequence.model[last:following])
        cut = int(glue[-1]) if len(glue) else last
        prefills.add(int(part[0]))
        result += [part[part < cut], part[part >= cut]]
    return result, prefills


def _long(sequence: Sequence, parts: list[Ints]) -> set[int]:
    """First positions of the few forwards that take several times as long as the others: they read prompts."""
    busy = np.array([int(sequence.duration[p].sum()) for p in parts])
    long = busy > _PROMPT * np.median(busy)
    return {int(p[0]) for p, is_long in zip(parts, long, strict=True) if is_long} if long.mean() < 0.5 else set()


def _apart(sequence: Sequence, part: Ints) -> list[Ints]:
    """A stretch without sampling, split where an eager forward of its own stands beside replays.

    Eager work with as much attention as half a replay's is another forward (a prefill); less is the same forward's.
    """
    inside = sequence.in_replay[part]
    pieces = np.split(part, np.flatnonzero(np.diff(inside.astype(np.int8))) + 1)
    result: list[Ints] = []
    for piece in pieces:
        replay = bool(sequence.in_replay[piece[0]])
        own = replay or int(sequence.attention[piece].sum()) >= 0.5 * sequence.typical_attention
        joins = bool(result) and (not own or (replay and sequence.replay[piece[0]] == sequence.replay[result[-1][-1]]))
        if joins:
            result[-1] = np.concatenate([result[-1], piece])
        else:
            result.append(piece)
    return result


def _glue(
    sequence: Sequence,
    labels: Labels,
    first: int,
    stop: int,
    target: int,
    *,
    last: bool = False,
    read: bool = False,
    reads: bool = False,
) -> None:
    """Between two forwards: sampling, then the scheduler's work, then the next one's preparation.

    ``read`` and ``reads`` say that the forward before and the next one are prefills.
    """
    sampled = sequence.last_sampling(first, stop)
    cut = sampled + 1 if sampled >= 0 else first
    _set(sequence, labels, first, cut, OTHER if read else ACCEPT, prefill=read)
    prepare = stop
    if not last:
        arrived = sequence.after_prompt(cut, stop)
        found = np.flatnonzero((sequence.copy_in | sequence.meta | sequence.embedding)[arrived:stop])
        prepare = arrived + int(found[0]) if len(found) else stop
    _set(sequence, labels, cut, prepare, OTHER)
    _set(sequence, labels, prepare, stop, OTHER if reads else target, prefill=reads)


def _set(sequence: Sequence, labels: Labels, first: int, stop: int, phase: int, *, prefill: bool = False) -> None:
    if stop > first:
        labels.set_at(sequence.op[first:stop], phase, "graph", prefill=prefill)
