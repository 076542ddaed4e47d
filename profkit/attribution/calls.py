"""Collective calls of a rank: ordinals and message sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.attribution.cycles import COUNTED, PREFILL
from profkit.attribution.kernels import SYMMETRIC_KINDS
from profkit.attribution.message_sizes import sizes_from_facts
from profkit.attribution.ops import int_column, text_codes
from profkit.attribution.rank import RankAnalysis
from profkit.collectives.matching import Calls
from profkit.run import Facts
from profkit.trace import Trace
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
    size[missing] = sizes_from_facts(trace, rank, facts, position, cycle, phase, kind == KINDS.index("all_reduce"))[
        missing
    ]
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


def plain_calls(rank: RankAnalysis, calls: RankCalls) -> Calls:
    """The calls as matching over ranks wants them: absolute times, and the cycles that are whole."""
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
