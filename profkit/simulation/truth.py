"""What really happened, counted from the simulated timeline by the accounting rules; knows nothing of attribution.

A slow, plain sweep over time: between two neighbouring instants where something begins or ends, it looks which
operations run, decides phase and activity, and adds the nanoseconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from profkit.simulation.engine import MAIN_STREAM, Block, Times
from profkit.words import ACTIVITIES, Activity, Phase

Cell = tuple[Phase, Activity]


@dataclass(frozen=True, slots=True)
class Entry:
    """One operation on one rank, times in true ns; ``order`` is its place in the file."""

    begin: int
    end: int
    phase: Phase
    activity: Activity
    main: bool
    order: int


@dataclass(slots=True)
class CycleTruth:
    """One complete cycle on one rank."""

    cycle: int
    batch: int
    prefill: bool
    start_ns: int
    end_ns: int
    parts_ns: dict[Cell, int] = field(default_factory=dict)
    overlapped_comm_ns: int = 0

    @property
    def wall_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(slots=True)
class CollectiveTruth:
    """Collectives of one kind in one phase, over the cycles that are complete on all ranks."""

    phase: Phase
    kind: str
    kernel: str
    fused: bool
    message_bytes: int
    calls: int = 0
    cycles: int = 0
    duration_ns: float = 0.0  # sum over calls of the mean over ranks
    shortest_ns: float = 0.0  # sum over calls of the minimum over ranks
    transfer_ns: float = 0.0  # sum over calls of the true transfer
    wait_by_rank_ns: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Truth:
    """Everything that a reader of the files should find out."""

    ranks: list[list[CycleTruth]]  # complete cycles of each rank, those with a prefill inside included
    partial: list[int]  # cycles of each rank that are cut off by the recording
    gpu_ops: list[int]
    collectives: list[CollectiveTruth]
    clock_offset_us: list[float]


def sweep(entries: Sequence[Entry], windows: Sequence[CycleTruth]) -> None:
    """Fill the parts of the windows, which are in order and touch or lie apart."""
    if not windows:
        return
    stamps: list[tuple[int, int, int]] = []
    for index, entry in enumerate(entries):
        if entry.end > entry.begin:
            stamps.append((entry.begin, 1, index))
            stamps.append((entry.end, 0, index))
    for index, one in enumerate(windows):
        stamps.append((one.start_ns, 2, index))
        stamps.append((one.end_ns, 3, index))
    stamps.sort()
    following = _next_phases(entries)
    active: set[int] = set()
    window: CycleTruth | None = None
    at = stamps[0][0]
    waiting = 0
    for time, what, index in stamps:
        if time > at and window is not None:
            span = time - at
            if active:
                cell, hidden = _decide(entries, active)
            else:
                while waiting < len(following) and following[waiting][0] < time:
                    waiting += 1
                phase: Phase = following[waiting][1] if waiting < len(following) else "other"
                cell, hidden = (phase, "idle"), False
            window.parts_ns[cell] = window.parts_ns.get(cell, 0) + span
            if hidden:
                window.overlapped_comm_ns += span
        at = time
        if what == 1:
            active.add(index)
        elif what == 0:
            active.discard(index)
        elif what == 2:
            window = windows[index]
        elif window is windows[index]:
            window = None


def _next_phases(entries: Sequence[Entry]) -> list[tuple[int, Phase]]:
    ordered = sorted(entries, key=lambda e: (e.begin, not e.main, e.order))
    return [(e.begin, e.phase) for e in ordered]


def _decide(entries: Sequence[Entry], active: set[int]) -> tuple[Cell, bool]:
    running = [entries[i] for i in active]
    for activity in ACTIVITIES:
        same = [e for e in running if e.activity == activity]
        if same:
            best = min(same, key=lambda e: (not e.main, e.begin, e.order))
            hidden = activity == "compute" and any(e.activity in ("allreduce", "comm") for e in running)
            return (best.phase, activity), hidden
    raise AssertionError("an active operation without an activity")


def windows_of(
    starts: Mapping[int, Times], rank: int, first_ns: int, batches: Mapping[int, int], prefills: set[int]
) -> list[CycleTruth]:
    """Complete cycles of a rank whose recording begins at ``first_ns``: both borders recorded."""
    numbers = sorted(n for n in starts if int(starts[n][rank]) >= first_ns)
    return [
        CycleTruth(n, batches[n], m in prefills, int(starts[n][rank]), int(starts[m][rank]))
        for n, m in itertools.pairwise(numbers)
    ]


def collectives_of(blocks: Sequence[Block], cycles: set[int]) -> list[CollectiveTruth]:
    """Counts and times of the collectives in the given cycles (by the batch that launched them)."""
    found: dict[tuple[Phase, str], CollectiveTruth] = {}
    for block in blocks:
        if block.cycle not in cycles or block.phase == "other":
            continue
        duration = block.end - block.begin
        for index, op in enumerate(block.ops):
            if op.collective is None:
                continue
            row = found.setdefault(
                (block.phase, op.collective),
                CollectiveTruth(block.phase, op.collective, op.name, op.fused, op.message_bytes, cycles=len(cycles)),
            )
            if not row.wait_by_rank_ns:
                row.wait_by_rank_ns = [0.0] * duration.shape[1]
            row.calls += 1
            row.duration_ns += float(duration[index].mean())
            row.shortest_ns += float(duration[index].min())
            row.transfer_ns += float(block.transfer[index])
            waits = duration[index] - duration[index].min()
            row.wait_by_rank_ns = [a + float(b) for a, b in zip(row.wait_by_rank_ns, waits, strict=True)]
    return list(found.values())


def entries_of(blocks: Sequence[Block], rank: int, first_ns: int) -> list[Entry]:
    """The recorded operations of a rank in file order (by recorded begin)."""
    made: list[tuple[int, int, Entry]] = []
    sequence = 0
    for block in blocks:
        main = block.stream == MAIN_STREAM
        for index, op in enumerate(block.ops):
            recorded = int(block.recorded[index, rank])
            sequence += 1
            if recorded < first_ns:
                continue
            entry = Entry(
                int(block.begin[index, rank]), int(block.end[index, rank]), block.phase, op.activity, main, sequence
            )
            made.append((recorded, sequence, entry))
    made.sort(key=lambda item: item[:2])
    return [
        Entry(e.begin, e.end, e.phase, e.activity, e.main, place) for place, (_, _, e) in enumerate(made)
    ]  # fmt: skip


def mean_parts(cycles: Sequence[CycleTruth]) -> dict[Cell, float]:
    """Mean ns per cycle of each cell."""
    total: dict[Cell, int] = {}
    for cycle in cycles:
        for cell, value in cycle.parts_ns.items():
            total[cell] = total.get(cell, 0) + value
    return {cell: value / len(cycles) for cell, value in total.items()}
