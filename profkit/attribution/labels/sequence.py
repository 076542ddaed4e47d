"""The ops of the target forward's stream in order, with what each one does: material of the structure pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.attribution.labels import Labels
from profkit.attribution.labels.dialect import marker_of
from profkit.attribution.ops import Ops, copies_from_host

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_MODEL: Final = ("gemm", "attn", "moe", "norm", "rope", "kv_write", "comm", "activation")
# The scheduler broadcasts requests; a barrier moves nothing.
_GLUE: Final = ("attn.meta", "comm.barrier", "comm.broadcast")
# Ops that share a correlation although their launch is not recorded came from one replay, if there are this many.
_LEAST_REPLAY: Final = 4
# The GPU waits at least so long for a scheduler that does not run ahead.
PAUSE_NS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Unit:
    """A forward, or a part of one: positions [first, stop), its attention kernels, and whether it is one replay."""

    first: int
    stop: int
    attention: int
    replay: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """Positions count ops of one stream in order of their start; prefill ops that are known are left out."""

    op: Ints
    name: Ints  # code of the op's name
    stream: int
    model: Bools  # model work: GEMMs, attention, communication ..., and everything in a replay
    sampling: Bools
    attention: Bools
    copy_in: Bools  # copies from the host
    meta: Bools  # planning of attention
    embedding: Bools
    gemm: Bools
    prompted: Bools  # a prefill that is known and left out ran just before
    resolves: Bools  # the scheduler reads what the batch before left: a batch begins after it
    in_replay: Bools
    replay: Ints  # number of the replay, -1 outside
    start: Ints
    duration: Ints
    typical_attention: int  # attention kernels of the heaviest replay

    def model_extent(self, first: int, stop: int) -> tuple[int, int]:
        """From the first to after the last model op in [first, stop); empty at ``first`` if there is none."""
        found = np.flatnonzero(self.model[first:stop])
        return (first + int(found[0]), first + int(found[-1]) + 1) if len(found) else (first, first)

    def last_sampling(self, first: int, stop: int) -> int:
        """Position of the last eager sampling op in [first, stop), -1 if none."""
        found = np.flatnonzero(self.sampling[first:stop] & ~self.in_replay[first:stop])
        return first + int(found[-1]) if len(found) else -1

    def first_sampling(self, first: int, stop: int) -> int:
        """Position of the first eager sampling op in [first, stop), ``stop`` if none."""
        found = np.flatnonzero(self.sampling[first:stop] & ~self.in_replay[first:stop])
        return first + int(found[0]) if len(found) else stop

    def after_pause(self, first: int, stop: int, pause_ns: int) -> int:
        """Position in [first, stop) after the last pause of at least ``pause_ns`` before an op; ``stop`` if none."""
        if first <= 0 or stop <= first:
            return stop
        end = self.start[first - 1 : stop - 1] + self.duration[first - 1 : stop - 1]
        found = np.flatnonzero(self.start[first:stop] - end >= pause_ns)
        return first + int(found[-1]) if len(found) else stop

    def after_prompt(self, first: int, stop: int) -> int:
        """Position of the last op in [first, stop] before which a known prefill ran, ``first`` if there is none."""
        found = np.flatnonzero(self.prompted[first : stop + 1])
        return first + int(found[-1]) if len(found) else first

    def eager_attention(self, first: int, stop: int) -> Ints:
        """Positions of attention ops in [first, stop) outside replays."""
        return first + np.flatnonzero(self.attention[first:stop] & ~self.in_replay[first:stop])

    def units(self, first: int, stop: int) -> list[Unit]:
        """Forwards in [first, stop): each replay, and each stretch of eager model work between sampling ops."""
        result: list[Unit] = []
        model = self.model[first:stop]
        key = np.where(self.in_replay[first:stop], self.replay[first:stop] + 1, 0)
        # Eager stretches are told apart by the sampling ops between them.
        stretch = np.cumsum(self.sampling[first:stop] & ~self.in_replay[first:stop])
        code = np.where(key > 0, -key, stretch)
        at = np.flatnonzero(model)
        if not len(at):
            return result
        change = np.flatnonzero(np.diff(code[at])) + 1
        for part in np.split(at, change):
            begin, end = first + int(part[0]), first + int(part[-1]) + 1
            attention = int(self.attention[begin:end].sum())
            result.append(Unit(begin, end, attention, bool(self.in_replay[begin])))
        return result


def read_sequence(ops: Ops, labels: Labels) -> Sequence:
    """The sequence on the stream that does most model work."""
    model = ops.classes.mask(*_MODEL) & ~ops.classes.mask(*_GLUE)
    stream = _busiest(ops, model, labels)
    everything = ops.order[ops.stream[ops.order] == stream]
    kept = np.flatnonzero(~labels.prefill[everything])
    order = everything[kept]
    replay = _replays(ops, order)
    inside = replay >= 0
    attention = (ops.classes.mask("attn") & ~ops.classes.mask("attn.meta"))[order]
    heaviest = np.bincount(replay[inside & attention]).max(initial=0) if (inside & attention).any() else 0
    return Sequence(
        op=order,
        name=ops.name[order].astype(np.int64),
        stream=stream,
        model=model[order] | inside,
        sampling=ops.classes.mask("sampling")[order],
        attention=attention,
        copy_in=copies_from_host(ops)[order],
        meta=ops.classes.mask("attn.meta")[order],
        embedding=ops.classes.mask("embedding")[order],
        gemm=ops.classes.mask("gemm")[order],
        resolves=np.array([marker_of(n) == "resolve" for n in ops.names] or [False], np.bool_)[ops.name[order]],
        prompted=np.diff(kept, prepend=-1) > 1,
        in_replay=inside,
        replay=replay,
        start=ops.start[order],
        duration=ops.duration[order],
        typical_attention=int(heaviest),
    )


def _busiest(ops: Ops, model: Bools, labels: Labels) -> int:
    where = labels.forward >= 0
    if not where.any():
        where = model & ~labels.prefill
    busy = np.zeros(max(len(ops.streams), 1), np.int64)
    np.add.at(busy, ops.stream[where], ops.duration[where])
    return int(np.argmax(busy))


def _replays(ops: Ops, order: Ints) -> Ints:
    """Number of the graph replay that each op of the sequence belongs to, in order of correlation; -1 if none."""
    correlation = ops.correlation[order]
    keys, inverse, counts = np.unique(correlation, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    many = (counts >= _LEAST_REPLAY) & (keys >= 0)
    # Graph id 0 is what CUPTI writes for eager kernels.
    graph = ops.graph_launch[order] | (ops.graph[order] > 0) | ((ops.launch_ns[order] < 0) & many[inverse])
    return np.where(graph & (correlation >= 0), inverse, -1).astype(np.int64)
