"""Measured cycles, prepared for replay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profkit.attribution.result import Attribution
from profkit.projection.replay import Bools, Ints, ReplayCycle, ReplayGroup, release_order

# Cycles beyond this many add no information to a mean and its spread.
MOST_CYCLES = 40
# Ends of one collective on two ranks, clocks aligned, further apart than this share of its duration (or this long) do
# not belong to one blocking collective.
END_SPREAD_SHARE, END_SPREAD_NS = 0.15, 3_000
# Percentile of a rank's calls at which they hold hardly any waiting.
SHORTEST = 10


def _texts(table: pa.Table, name: str) -> npt.NDArray[np.str_]:
    column: Any = table.column(name).combine_chunks()
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    words: npt.NDArray[np.str_] = np.array(["", *(word or "" for word in coded.dictionary.to_pylist())], dtype=np.str_)
    codes: Ints = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return words[codes + 1]


def _integers(table: pa.Table, name: str) -> Ints:
    if name not in table.column_names:
        return np.full(table.num_rows, -1, np.int64)
    column = table.column(name).combine_chunks().fill_null(-1)
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


@dataclass(frozen=True, slots=True)
class _Calls:
    """COLLECTIVE_CALLS as arrays with one entry more, which means "no call"; ``key`` numbers (phase, kind, ordinal)."""

    rank: Ints
    op: Ints
    allreduce: npt.NDArray[np.bool_]
    duration: Ints
    transfer: Ints
    size: Ints
    key: Ints
    alike: Ints  # numbers (phase, kind, message size)


def _calls(table: pa.Table) -> _Calls:
    phase, kind = _texts(table, "phase"), _texts(table, "kind")
    ordinal = _integers(table, "ordinal")
    names = np.char.add(np.char.add(phase, "/"), kind) if len(phase) else phase
    _, code = np.unique(names, return_inverse=True)
    size = _integers(table, "message_bytes")
    _, alike = np.unique(np.stack([code.reshape(-1), size]), axis=1, return_inverse=True)
    key = code.reshape(-1).astype(np.int64) * 1_000_000 + ordinal
    absent = np.array([-1], np.int64)

    def column(name: str) -> Ints:
        return np.append(_integers(table, name), absent)

    # The last entry is what index -1, "no call", finds.
    return _Calls(
        np.append(_integers(table, "rank"), np.array([-2], np.int64)), column("gpu_op"),
        np.append(kind == "all_reduce", np.zeros(1, np.bool_)), column("duration_ns"), column("transfer_ns"),
        column("message_bytes"), np.append(key, absent), np.append(alike.reshape(-1).astype(np.int64), absent),
    )  # fmt: skip


def _last_of(keys: Ints, values: Ints, wanted: Ints) -> Ints:
    """The value of the last of the sorted ``keys`` that equals each of ``wanted``; -1 where none does."""
    place = np.searchsorted(keys, wanted, side="right") - 1
    found = np.append(values, -1)[place]
    return np.where(np.append(keys, -1)[place] == wanted, found, -1)


def _likely(calls: _Calls, mine: Ints, *, measured: bool) -> Ints:
    """What the transfer of each call likely is where it is not measured; -1 elsewhere, and for no call.

    A rank's shortest calls of a kind are those it came last to, or nearly: a tenth of them is taken to be such.
    """
    known = np.where(calls.transfer >= 0, calls.transfer, calls.duration)
    likely = np.full(len(known), -1, np.int64)
    for one in np.unique(calls.alike[mine]):
        rows = mine[calls.alike[mine] == one]
        likely[rows] = int(np.percentile(known[rows], SHORTEST))
    return np.where((calls.transfer >= 0) & measured, -1, likely)


def _own_cycles(attribution: Attribution, position: int, calls: _Calls, rows: Ints) -> Iterator[ReplayCycle]:
    """Cycles of one rank; ``meets`` holds the key of every call with a known transfer, matched or not yet."""
    cycles, ops = attribution.cycles, attribution.ops[position]
    number, begin, end = (_integers(cycles, name) for name in ("cycle", "start_ns", "end_ns"))
    host = _integers(cycles, "host_ns")
    result = attribution.ranks[position]
    own = result.number
    op_cycle, op_row, launch = (_integers(ops, name) for name in ("cycle", "gpu_op", "launch_ns"))
    launch_end = _integers(ops, "launch_end_ns")
    op_start, op_end, op_stream = (_integers(ops, name) for name in ("start_ns", "end_ns", "stream"))
    op_phase, op_activity = _texts(ops, "phase"), _texts(ops, "activity")
    mine = np.flatnonzero(calls.rank == own)
    mine = mine[np.argsort(calls.op[mine], kind="stable")]
    likely = _likely(calls, mine, measured=result.transfer_is == "measured")
    # One pace per rank: at the edges of a recording single cycles lack launches.
    known = host[rows][host[rows] >= 0]
    pace = int(np.median(known)) if len(known) else -1
    for row in rows:
        chosen = np.flatnonzero(op_cycle == number[row])
        chosen = chosen[np.argsort(op_start[chosen], kind="stable")]
        call = _last_of(calls.op[mine], mine, op_row[chosen])
        start, finish = op_start[chosen] - begin[row], op_end[chosen] - begin[row]
        released, ahead = release_order(start, finish, op_stream[chosen])
        launched = launch[chosen]
        dry = np.where(released >= 0, op_end[chosen][released], begin[row])
        transfer = calls.transfer[call]
        yield ReplayCycle(
            rank=own,
            cycle=int(number[row]),
            wall_ns=int(end[row] - begin[row]),
            origin_ns=0.0,
            start=start,
            end=finish,
            stream=op_stream[chosen],
            phase=op_phase[chosen],
            activity=op_activity[chosen],
            is_allreduce=calls.allreduce[call],
            transfer_ns=transfer,
            message_bytes=calls.size[call],
            released=released,
            ahead=ahead,
            late=(launched >= 0) & (launch_end[chosen] > dry) & (start > finish[released] if len(start) else start > 0),
            launched=launched,
            meets=np.where(transfer >= 0, calls.key[call], -1),
            host_ns=pace,
            likely_ns=likely[call],
        )


def _joined(ranks: list[ReplayCycle]) -> list[ReplayCycle]:
    """Put the ranks of one cycle on one clock, and keep as meetings what ends together on all of them."""
    ends = [dict(zip(c.meets[c.meets >= 0].tolist(), c.end[c.meets >= 0].tolist(), strict=True)) for c in ranks]
    common = sorted(set.intersection(*(set(e) for e in ends)))
    if len(ranks) < 2 or not common:
        return [replace(c, meets=np.full(len(c.meets), -1, np.int64)) for c in ranks]
    table = np.array([[e[key] for key in common] for e in ends], np.float64)
    origin = -np.median(table - table[0], axis=1)
    spread = np.ptp(table + origin[:, None], axis=0)
    least = np.array([c.transfer_ns[c.meets == key][0] for c in ranks[:1] for key in common], np.float64)
    good = np.array(common)[spread <= np.maximum(END_SPREAD_NS, END_SPREAD_SHARE * least)]
    return [
        replace(c, origin_ns=float(o), meets=np.where(np.isin(c.meets, good), c.meets, -1))
        for c, o in zip(ranks, origin, strict=True)
    ]


def _spread(rows: Ints) -> Ints:
    """At most :data:`MOST_CYCLES` of them, evenly spread."""
    if len(rows) <= MOST_CYCLES:
        return rows
    return rows[np.linspace(0, len(rows) - 1, MOST_CYCLES).round().astype(np.int64)]


def _chosen(attribution: Attribution, wanted: Bools, rank: Ints, aligned: Ints) -> list[Ints]:
    """Rows of CYCLES to replay, of each rank: of long recordings the same cycles on all ranks of a group, since only
    those can meet."""
    rows = [np.flatnonzero(wanted & (rank == result.number)) for result in attribution.ranks]
    groups: dict[int, list[int]] = {}
    for position, result in enumerate(attribution.ranks):
        groups.setdefault(result.group, []).append(position)
    for members in groups.values():
        if max(len(rows[i]) for i in members) <= MOST_CYCLES:
            continue
        common: Ints = reduce(np.intersect1d, (aligned[rows[i]] for i in members))
        shared = _spread(common[common >= 0])
        for i in members:
            rows[i] = rows[i][np.isin(aligned[rows[i]], shared)] if len(shared) else _spread(rows[i])
    return rows


def groups_of(attribution: Attribution, batch_size: int | None) -> tuple[ReplayGroup, ...]:
    """Counted cycles of a batch size, the ranks of one cycle together; at most :data:`MOST_CYCLES` per rank, evenly
    spread."""
    table = attribution.cycles
    wanted = _texts(table, "kind") == "counted"
    if batch_size is not None:
        wanted &= _integers(table, "batch_size") == batch_size
    # An ordinal that the ranks of a group share is 0 or more.
    rank, number, aligned = (_integers(table, name) for name in ("rank", "cycle", "aligned_cycle"))
    calls = _calls(attribution.calls)
    shared: dict[tuple[object, ...], list[ReplayCycle]] = {}
    for position, rows in enumerate(_chosen(attribution, wanted, rank, aligned)):
        group = attribution.ranks[position].group
        where = {int(number[row]): int(aligned[row]) for row in rows}
        for cycle in _own_cycles(attribution, position, calls, rows):
            common = where[cycle.cycle]
            # Ranks of one tensor-parallel group meet; other groups have their own collectives.
            key = (group, common) if common >= 0 else (group, position, cycle.cycle, "alone")
            shared.setdefault(key, []).append(cycle)
    return tuple(ReplayGroup(tuple(_joined(ranks))) for ranks in shared.values())
