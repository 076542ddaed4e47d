"""Collective calls of the ranks: ordinals, message sizes, and what matching them over ranks says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.attribution.cycles import COUNTED, PREFILL
from profkit.attribution.kernels import SYMMETRIC_KINDS
from profkit.attribution.labels import DECODE, VERIFY
from profkit.attribution.ops import int_column, text_codes
from profkit.attribution.rank import RankAnalysis
from profkit.collectives.matching import Calls, Matched, match
from profkit.run import Facts
from profkit.trace import Trace, TraceInfo
from profkit.words import PHASES

Ints = npt.NDArray[np.int64]

KINDS: Final = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv", "barrier",
    "unknown",
)  # fmt: skip
# A broadcast's source and a send leave before the others: their ends say nothing about clocks.
_JOINT_ENDS: Final = SYMMETRIC_KINDS | {"barrier"}
_DTYPE_BYTES: Final = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "bfloat16": 2, "byte": 1, "char": 1,
    "int8": 1, "uint8": 1, "short": 2, "int": 4, "int32": 4, "long": 8, "int64": 8, "bool": 1, "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RankCalls:
    """Collective calls of one rank, by start. ``op`` is the position in the rank's ops; -1 stands for unknown."""

    op: Ints
    cycle: Ints
    phase: Ints
    kind: Ints
    ordinal: Ints
    bytes: Ints
    group_size: Ints

    def __len__(self) -> int:
        return len(self.op)


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks (indices into the inputs) whose collectives meet, and the result of matching them."""

    ranks: tuple[int, ...]
    matched: Matched
    same_clock: bool

    def shared_shift(self, place: int) -> int | None:
        """What leads from a member's cycle ordinals to those shared by the group, which begin at 0 or later."""
        mine = self.matched.alignment[place].shift
        known = [a.shift for a in self.matched.alignment if a.shift is not None]
        return None if mine is None or len(known) < len(self.ranks) else mine - min(known)


def read_calls(trace: Trace, rank: RankAnalysis, facts: Facts) -> RankCalls:
    """Calls inside cycles, numbered within (cycle, phase, kind) in order of their start."""
    ops, cycles = rank.ops, rank.cycles
    kinds, kind_of = ops.classes.kinds()
    code = np.array([KINDS.index(k) for k in kinds] or [0], np.int64)
    position = ops.order[(kind_of[ops.order] >= 0) & (cycles.op_cycle[ops.order] >= 0)]
    kind = code[kind_of[position]]
    cycle, phase = cycles.op_cycle[position], rank.labels.phase[position].astype(np.int64)
    group = (cycle * len(PHASES) + phase) * len(KINDS) + kind
    size, members = _sizes_from_arguments(trace, rank, position)
    missing = size < 0
    size[missing] = _sizes_from_facts(facts, rank, cycle, phase, kind)[missing]
    return RankCalls(position, cycle, phase, kind, _ordinals(group), size, members)


def _ordinals(group: Ints) -> Ints:
    """Ordinal of each row among the rows of its group, in the order given."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(group) else np.zeros(0, np.int64)
    lengths = np.diff(np.append(first, len(group)))
    result = np.zeros(len(group), np.int64)
    result[order] = np.arange(len(group)) - np.repeat(first, lengths)
    return result


def _sizes_from_arguments(trace: Trace, rank: RankAnalysis, position: Ints) -> tuple[Ints, Ints]:
    size, members = np.full(len(position), -1, np.int64), np.full(len(position), -1, np.int64)
    table = trace.collectives
    column = "cpu_op" if rank.time_source == "cpu" else "gpu_op"
    if not table.num_rows or not len(position):
        return size, members
    words, dtype = text_codes(table, "dtype")
    width = np.array([_DTYPE_BYTES.get(w.lower().removeprefix("torch."), -1) for w in words] or [-1])[dtype]
    elements = np.maximum(int_column(table, "in_elements"), int_column(table, "out_elements"))
    known = (width > 0) & (elements >= 0)
    row_of = {int(r): i for i, r in enumerate(int_column(table, column).tolist()) if r >= 0}
    for i, row in enumerate(rank.ops.row[position].tolist()):
        found = row_of.get(row)
        if found is not None:
            size[i] = elements[found] * width[found] if known[found] else -1
            members[i] = int_column(table, "group_size")[found]
    return size, members


def _sizes_from_facts(facts: Facts, rank: RankAnalysis, cycle: Ints, phase: Ints, kind: Ints) -> Ints:
    """Rows x hidden size x bytes of an activation, for all-reduces of the target forward; -1 if a factor is unknown."""
    result = np.full(len(cycle), -1, np.int64)
    hidden, width = facts.integer("model.hidden_size"), facts.integer("model.activation_bytes")
    if hidden is None or width is None or facts.flag("parallel.dp_attention"):
        return result
    batch = rank.cycles.batch[cycle]
    rows = {DECODE: 1, VERIFY: facts.integer("speculative.num_draft_tokens")}
    for code, per_request in rows.items():
        if per_request is not None:
            hit = (phase == code) & (kind == KINDS.index("all_reduce")) & (batch > 0)
            result[hit] = batch[hit] * per_request * hidden * width
    return result


def groups_of(infos: Sequence[TraceInfo]) -> list[tuple[int, ...]]:
    """Which ranks share collectives: pipeline stages never do; DP replicas only under DP attention.

    SGLang numbers tensor-parallel ranks through all DP ranks under DP attention, and anew in each replica without.
    """
    by_stage: dict[int | None, list[int]] = {}
    for i, info in enumerate(infos):
        by_stage.setdefault(info.pp, []).append(i)
    result: list[tuple[int, ...]] = []
    for members in by_stage.values():
        tensor = [infos[i].tp for i in members]
        if len(set(tensor)) == len(tensor):
            result.append(tuple(members))
            continue
        by_replica: dict[int | None, list[int]] = {}
        for i in members:
            by_replica.setdefault(infos[i].dp, []).append(i)
        result.extend(tuple(m) for m in by_replica.values())
    return result


def _same_clock(infos: Sequence[TraceInfo]) -> bool:
    hosts = {i.host_name for i in infos}
    return len(hosts) == 1 and len({i.base_ns > 0 for i in infos}) == 1


def match_groups(ranks: Sequence[RankAnalysis], calls: Sequence[RankCalls]) -> list[Group]:
    """Match every group of ranks."""
    infos = [r.info for r in ranks]
    result = []
    for members in groups_of(infos):
        same = _same_clock([infos[i] for i in members])
        result.append(Group(members, match([_plain(ranks[i], calls[i]) for i in members], same_clock=same), same))
    return result


def _plain(rank: RankAnalysis, calls: RankCalls) -> Calls:
    whole = [i for i, k in enumerate(rank.cycles.kind) if k in (COUNTED, PREFILL)]
    length = (rank.cycles.end - rank.cycles.start)[whole]
    symmetric = np.array([k in SYMMETRIC_KINDS for k in KINDS])[calls.kind]
    joint = np.array([k in _JOINT_ENDS for k in KINDS])[calls.kind]
    return Calls(
        cycle=calls.cycle,
        key=calls.phase * len(KINDS) + calls.kind,
        ordinal=calls.ordinal,
        start=rank.ops.start[calls.op] + rank.info.base_ns,
        end=rank.ops.end[calls.op] + rank.info.base_ns,
        symmetric=symmetric,
        joint_end=joint,
        usable=np.array(whole, np.int64),
        cycle_ns=float(np.median(length)) if len(length) else 0.0,
    )
