"""Replaying measured cycles with other durations.

Every op starts when the op that released it has ended, plus the gap that was measured between the two. The releasing
op is the one that ended last before it started, on whatever stream; ops of one stream keep their order. So what ran
hidden under something else stays hidden until it becomes the longer one, and a shortened op lets its successors move
up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profkit.attribution.result import Attribution

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
# Cycles of one rank beyond this many add no information to a mean and its spread.
MOST_CYCLES = 40


@dataclass(frozen=True, slots=True)
class ReplayCycle:
    """Ops of one counted cycle on one rank, in start order; times in ns from the cycle's start.

    ``phase`` and ``activity`` are codes into :attr:`phases` and :attr:`activities`; ``transfer_ns`` and
    ``message_bytes`` are -1 where unknown or no collective.
    """

    rank: int
    cycle: int
    wall_ns: int
    start: Ints
    end: Ints
    stream: Ints
    phase: npt.NDArray[np.str_]
    activity: npt.NDArray[np.str_]
    is_allreduce: npt.NDArray[np.bool_]
    transfer_ns: Ints
    message_bytes: Ints
    released: Ints  # index of the op that ended last before each op, -1 for none
    ahead: Ints  # index of the op ahead on the same stream, -1 for none
    host_ns: int  # host time to the next cycle, waits for the GPU left out; -1 where not recorded


def _texts(table: object, name: str) -> npt.NDArray[np.str_]:
    column = table.column(name).to_pylist()  # type: ignore[attr-defined]
    return np.array([value or "" for value in column], dtype=np.str_)


def _integers(table: object, name: str) -> Ints:
    column = table.column(name).combine_chunks().fill_null(-1)  # type: ignore[attr-defined]
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def cycles_of(attribution: Attribution, batch_size: int | None) -> Iterator[ReplayCycle]:
    """Counted cycles of a batch size, at most :data:`MOST_CYCLES` per rank, evenly spread."""
    cycles, calls = attribution.cycles, attribution.calls
    kind, size = _texts(cycles, "kind"), _integers(cycles, "batch_size")
    rank, number = _integers(cycles, "rank"), _integers(cycles, "cycle")
    begin, end = _integers(cycles, "start_ns"), _integers(cycles, "end_ns")
    host = _integers(cycles, "host_ns")
    wanted = kind == "counted"
    if batch_size is not None:
        wanted &= size == batch_size
    call_rank, call_op = _integers(calls, "rank"), _integers(calls, "gpu_op")
    call_kind = _texts(calls, "kind")
    # The last entry is what index -1, "no call", finds.
    call_transfer, call_bytes = (np.append(_integers(calls, n), -1) for n in ("transfer_ns", "message_bytes"))
    for position, result in enumerate(attribution.ranks):
        own_rank = -1 if result.rank is None else result.rank
        rows = np.flatnonzero(wanted & (rank == own_rank))
        if len(rows) > MOST_CYCLES:
            rows = rows[np.linspace(0, len(rows) - 1, MOST_CYCLES).round().astype(np.int64)]
        ops = attribution.ops[position]
        op_cycle, op_row = _integers(ops, "cycle"), _integers(ops, "gpu_op")
        op_start, op_end, op_stream = _integers(ops, "start_ns"), _integers(ops, "end_ns"), _integers(ops, "stream")
        op_phase, op_activity = _texts(ops, "phase"), _texts(ops, "activity")
        mine = np.flatnonzero((call_rank == own_rank) & (call_kind == "all_reduce"))
        place = {int(op): int(row) for op, row in zip(call_op[mine], mine, strict=True)}
        # One pace per rank: at the edges of a recording single cycles lack launches.
        known = host[rows][host[rows] >= 0]
        pace = int(np.median(known)) if len(known) else -1
        for row in rows:
            chosen = np.flatnonzero(op_cycle == number[row])
            chosen = chosen[np.argsort(op_start[chosen], kind="stable")]
            call = np.array([place.get(int(op), -1) for op in op_row[chosen]], np.int64)
            found = call >= 0
            start, finish = op_start[chosen] - begin[row], op_end[chosen] - begin[row]
            released, ahead = release_order(start, finish, op_stream[chosen])
            yield ReplayCycle(
                rank=own_rank,
                cycle=int(number[row]),
                wall_ns=int(end[row] - begin[row]),
                start=start,
                end=finish,
                stream=op_stream[chosen],
                phase=op_phase[chosen],
                activity=op_activity[chosen],
                is_allreduce=found,
                transfer_ns=np.where(found, call_transfer[call], -1),
                message_bytes=np.where(found, call_bytes[call], -1),
                released=released,
                ahead=ahead,
                host_ns=pace,
            )


def release_order(start: Ints, end: Ints, stream: Ints) -> tuple[Ints, Ints]:
    """For ops in start order: which op ended last before each one started, and which is ahead on its stream; -1 for
    none."""
    count = len(start)
    by_end = np.argsort(end, kind="stable")
    before = np.searchsorted(end[by_end], start, side="right") - 1
    released = np.where(before >= 0, by_end[np.maximum(before, 0)], -1)
    ahead = np.full(count, -1, np.int64)
    for one in np.unique(stream):
        members = np.flatnonzero(stream == one)
        ahead[members[1:]] = members[:-1]
    # An op of no length can "end last" at its own start; it must lie ahead in start order to release anything.
    released = np.where(released < np.arange(count), released, -1)
    return released.astype(np.int64), ahead


def replay(cycle: ReplayCycle, duration: Floats, gap_scale: Floats, held: npt.NDArray[np.bool_] | None = None) -> float:
    """Wall of the cycle in ns when op i lasts ``duration[i]`` and the gap before it is scaled by ``gap_scale[i]``.

    Ops marked in ``held`` do not start earlier than measured: their launch sets their time. ``gap_scale`` has one
    more entry than ops, for the gap between the last op and the end of the cycle.
    """
    count = len(cycle.start)
    if count == 0:
        return float(cycle.wall_ns) * float(gap_scale[-1])
    released, ahead = cycle.released, cycle.ahead
    gap = np.where(released >= 0, cycle.start - cycle.end[released], cycle.start) * gap_scale[:-1]
    # Plain lists: a loop over numpy scalars is several times slower.
    finished: list[float] = []
    earliest = [-1.0] * count if held is None else np.where(held, cycle.start, -1).tolist()
    for before, own, gap_ns, lasts, least in zip(
        released.tolist(), ahead.tolist(), gap.tolist(), duration.tolist(), earliest, strict=True
    ):
        start = (finished[before] if before >= 0 else 0.0) + gap_ns
        if own >= 0 and finished[own] > start:
            start = finished[own]
        finished.append((start if start > least else least) + lasts)
    finish = np.array(finished)
    inside = cycle.end <= cycle.wall_ns
    if not inside.any():
        return float(finish.max())
    last = int(np.argmax(np.where(inside, cycle.end, -1)))
    return float(max(finish[inside].max(), finish[last] + (cycle.wall_ns - cycle.end[last]) * gap_scale[-1]))
