"""From analysed ranks to the result: tables, means, and the headline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profkit import tables
from profkit.attribution.calls import KINDS, RankCalls
from profkit.attribution.cycles import PARTIAL, PREFILL
from profkit.attribution.groups import Group
from profkit.attribution.idle import CAUSES
from profkit.attribution.labels import UNLABELLED
from profkit.attribution.naming import rank_number
from profkit.attribution.rank import RankAnalysis
from profkit.attribution.result import (
    BatchSummary,
    ClockOffset,
    CollectiveSummary,
    CycleSummary,
    PartsNs,
    PartsUs,
    RankResult,
    WallUs,
)
from profkit.words import ACTIVITIES, HEADLINE_PARTS, LABEL_SOURCES, PHASES, HeadlinePart, headline_part

Ints = npt.NDArray[np.int64]
# With more unlabelled time than this, a phase without time may only be unseen.
UNSEEN_SHARE = 0.02


# --- tables -----------------------------------------------------------------------------------------


def _words(codes: npt.NDArray[Any], words: Sequence[str], silent: npt.NDArray[np.bool_] | None = None) -> pa.Array[Any]:
    """A dictionary column; ``silent`` rows are null. Readers such as pandas want each word once."""
    unique = {w: i for i, w in enumerate(dict.fromkeys(words))}
    place = np.array([unique[w] for w in words] or [0], np.int32)
    return pa.DictionaryArray.from_arrays(place[codes], pa.array(list(unique), pa.string()), mask=silent)


def _nullable(values: Ints, missing: int = -1) -> pa.Array[Any]:
    return pa.array(values, pa.int64(), mask=values == missing)


def _table(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    return pa.table([pa.array(columns[f.name], f.type) if not isinstance(columns[f.name], pa.Array) else
                     columns[f.name].cast(f.type) for f in schema], schema=schema)  # fmt: skip


def parts_table(number: int, rank: RankAnalysis) -> pa.Table:
    """PARTS of one rank: cells with time in them."""
    cycle, phase, activity = np.nonzero(rank.parts)
    return _table(
        tables.PARTS,
        {
            "rank": np.full(len(cycle), number),
            "cycle": cycle,
            "batch_size": _nullable(rank.cycles.batch[cycle]),
            "counted": rank.cycles.counted()[cycle],
            "phase": _words(phase, PHASES),
            "activity": _words(activity, ACTIVITIES),
            "duration_ns": rank.parts[cycle, phase, activity],
        },
    )


def cycles_table(number: int, rank: RankAnalysis, shift: int | None) -> pa.Table:
    """CYCLES of one rank; ``shift`` leads to the ordinal shared by all ranks."""
    cycles = rank.cycles
    count = len(cycles)
    ordinal = np.arange(count, dtype=np.int64)
    return _table(
        tables.CYCLES,
        {
            "rank": np.full(count, number),
            "cycle": ordinal,
            "aligned_cycle": pa.nulls(count, pa.int64()) if shift is None else pa.array(ordinal + shift),
            "start_ns": cycles.start,
            "end_ns": cycles.end,
            "batch_size": _nullable(cycles.batch),
            "kind": pa.array(list(cycles.kind), pa.string()),
            "confidence": cycles.confidence,
            "overlapped_comm_ns": rank.timeline.overlapped,
            "host_ns": _nullable(rank.host_ns),
        },
    )


def segments_table(number: int, rank: RankAnalysis) -> pa.Table:
    """SEGMENTS of one rank."""
    line = rank.timeline
    return _table(
        tables.SEGMENTS,
        {
            "rank": np.full(len(line.start), number),
            "cycle": line.window,
            "start_ns": line.start,
            "end_ns": line.end,
            "phase": _words(line.phase, PHASES),
            "activity": _words(line.activity, ACTIVITIES),
        },
    )


def ops_table(rank: RankAnalysis, calls: RankCalls) -> pa.Table:
    """OPS of one rank, in file order."""
    ops = rank.ops
    classes = [c.name for c in ops.classes.classes]
    makers = [c.implementation or "" for c in ops.classes.classes]
    silent = np.array([m == "" for m in makers] or [True])[ops.classes.code]
    ordinal = np.full(len(ops), -1, np.int64)
    ordinal[calls.op] = calls.ordinal
    stream = np.array([s for _, s in ops.streams] or [0], np.int64)[ops.stream]
    return _table(
        tables.OPS,
        {
            "gpu_op": ops.row,
            "cycle": _nullable(rank.cycles.op_cycle),
            "start_ns": ops.start,
            "end_ns": ops.end,
            "stream": stream,
            "phase": _words(rank.labels.phase, PHASES),
            "activity": _words(ops.activity, ACTIVITIES),
            "label_source": _words(rank.labels.source, LABEL_SOURCES),
            "kernel_class": _words(ops.classes.code, classes),
            "implementation": _words(ops.classes.code, makers, silent),
            "collective": _nullable(ordinal),
            "launch_ns": _nullable(ops.launch_ns),
            "launch_end_ns": _nullable(ops.launch_end_ns),
        },
    )


def calls_table(number: int, rank: RankAnalysis, calls: RankCalls, place: int, group: Group) -> pa.Table:
    """COLLECTIVE_CALLS of one rank, which is member ``place`` of ``group``."""
    shift = group.shared_shift(place)
    ops = rank.ops
    return _table(
        tables.COLLECTIVE_CALLS,
        {
            "rank": np.full(len(calls), number),
            "cycle": calls.cycle,
            "aligned_cycle": pa.nulls(len(calls), pa.int64()) if shift is None else pa.array(calls.cycle + shift),
            "phase": _words(calls.phase, PHASES),
            "kind": _words(calls.kind, KINDS),
            "ordinal": calls.ordinal,
            "gpu_op": ops.row[calls.op],
            "start_ns": ops.start[calls.op],
            "duration_ns": ops.duration[calls.op],
            "transfer_ns": _nullable(group.matched.transfer[place]),
            "wait_ns": _nullable(group.matched.wait[place]),
            "message_bytes": _nullable(calls.bytes),
        },
    )


# --- summaries --------------------------------------------------------------------------------------


def _unseen(parts: Ints) -> bool:
    """Whether phases without time may have run unseen in these cycles, shape (..., phases, activities)."""
    total = int(parts.sum())
    return total > 0 and int(parts[..., UNLABELLED, :].sum()) > UNSEEN_SHARE * total


def _parts_ns(total: Ints) -> PartsNs:
    unseen = _unseen(total)
    return {
        phase: {
            activity: None if unseen and not total[p].any() else int(total[p, a])
            for a, activity in enumerate(ACTIVITIES)
        }
        for p, phase in enumerate(PHASES)
    }


def _parts_us(parts: Ints) -> PartsUs:
    """Means over cycles in us; ``None`` for phases that may have run unseen."""
    total, count = parts.sum(axis=0), len(parts)
    unseen = _unseen(total)
    return {
        phase: {
            activity: None if unseen and not total[p].any() else float(total[p, a]) / count / 1000.0
            for a, activity in enumerate(ACTIVITIES)
        }
        for p, phase in enumerate(PHASES)
    }


def wall_us(wall: Ints) -> WallUs:
    """Distribution of cycle walls given in ns."""
    p10, p50, p90, p99 = (float(x) / 1000.0 for x in np.percentile(wall, [10, 50, 90, 99]))
    return WallUs(float(wall.sum()) / len(wall) / 1000.0, p10, p50, p90, p99)


def rank_result(rank: RankAnalysis, number: int, name: str, place: int, group: Group) -> RankResult:
    """Sums over the rank's counted cycles; ``place`` is that of its group among the groups."""
    counted = rank.cycles.counted()
    kinds = Counter(rank.cycles.kind)
    info = rank.info
    return RankResult(
        rank=info.rank,
        dp=info.dp,
        tp=info.tp,
        pp=info.pp,
        ep=info.ep,
        cycles=int(counted.sum()),
        dropped={"partial": kinds[PARTIAL], "prefill": kinds[PREFILL]},
        wall_ns=int((rank.cycles.end - rank.cycles.start)[counted].sum()),
        parts_ns=_parts_ns(rank.parts[counted].sum(axis=0)),
        overlapped_comm_ns=int(rank.timeline.overlapped[counted].sum()),
        labelled_by=rank.labelled_by(),
        # Without a GPU host ops stand for GPU ops.
        boundary=rank.cycles.boundary.replace("GPU op", "host op")
        if rank.time_source == "cpu"
        else rank.cycles.boundary,
        time_source=rank.time_source,
        number=number,
        name=name,
        group=place,
        group_size=group.world,
        transfer_is=group.transfer_is,
    )


def _batches(ranks: Sequence[RankAnalysis]) -> list[int]:
    """Batch sizes of counted cycles, the commonest first (the larger of equals), unknown (-1) last."""
    seen: Counter[int] = Counter()
    for rank in ranks:
        seen.update(rank.cycles.batch[rank.cycles.counted()].tolist())
    return sorted(seen, key=lambda b: (b < 0, -seen[b], -b))


def _pooled(ranks: Sequence[RankAnalysis], batch: int) -> list[npt.NDArray[np.bool_]]:
    return [r.cycles.counted() & (r.cycles.batch == batch) for r in ranks]


def by_batch(ranks: Sequence[RankAnalysis]) -> tuple[BatchSummary, ...]:
    """One row per batch size, in ascending order, unknown last."""
    rows = []
    for batch in sorted(_batches(ranks), key=lambda b: (b < 0, b)):
        where = _pooled(ranks, batch)
        parts = np.concatenate([r.parts[w] for r, w in zip(ranks, where, strict=True)])
        rows.append(BatchSummary(None if batch < 0 else batch, len(parts), wall_us(parts.sum(axis=(1, 2))),
                                 _parts_us(parts)))  # fmt: skip
    return tuple(rows)


def cycle_summary(ranks: Sequence[RankAnalysis]) -> CycleSummary | None:
    """The headline: counted cycles of the commonest batch size over all ranks; ``None`` without a counted cycle."""
    batches = _batches(ranks)
    if not batches:
        return None
    where = _pooled(ranks, batches[0])
    parts = np.concatenate([r.parts[w] for r, w in zip(ranks, where, strict=True)])
    idle = np.concatenate([r.idle[w] for r, w in zip(ranks, where, strict=True)])
    return _summary(parts, idle, None if batches[0] < 0 else batches[0])


def window_summary(ranks: Sequence[RankAnalysis]) -> CycleSummary | None:
    """Everything recorded, mean over ranks: for traces without a counted cycle."""
    recorded = [r for r in ranks if len(r.cycles)]
    if not recorded:
        return None
    return _summary(np.stack([r.parts.sum(axis=0) for r in recorded]), np.stack([r.idle.sum(axis=0) for r in recorded]),
                    None)  # fmt: skip


def _summary(parts: Ints, idle: Ints, batch: int | None) -> CycleSummary:
    """Means over cycles (or recordings): ``parts`` (cycles, phases, activities) and ``idle`` (cycles, causes) in ns."""
    count = len(parts)
    sums: dict[HeadlinePart, int] = dict.fromkeys(HEADLINE_PARTS, 0)
    total = parts.sum(axis=0)
    # A part is unknown when every phase it sums may have run unseen.
    known: set[HeadlinePart] = set()
    unseen = _unseen(total)
    for p, phase in enumerate(PHASES):
        for a, activity in enumerate(ACTIVITIES):
            sums[headline_part(phase, activity)] += int(total[p, a])
            if not unseen or total[p].any():
                known.add(headline_part(phase, activity))
    return CycleSummary(
        count=count,
        batch_size=batch,
        wall_us=wall_us(parts.sum(axis=(1, 2))),
        parts_us=_parts_us(parts),
        headline_us={k: v / count / 1000.0 if k in known else None for k, v in sums.items()},
        idle_causes_us={c: float(idle[:, i].sum()) / count / 1000.0 for i, c in enumerate(CAUSES)},
    )


def collective_summaries(
    ranks: Sequence[RankAnalysis], calls: Sequence[RankCalls], groups: Sequence[Group]
) -> tuple[CollectiveSummary, ...]:
    """One row per (phase, kernel) over the headline's cycles; over all cycles where none is counted."""
    batches = _batches(ranks)
    where = _pooled(ranks, batches[0]) if batches else [np.ones(len(r.cycles), np.bool_) for r in ranks]
    cycles = sum(int(w.sum()) for w in where)
    if not cycles:
        return ()
    place = {i: (g, p) for g in groups for p, i in enumerate(g.ranks)}
    found: dict[tuple[int, str], list[tuple[int, Ints]]] = {}
    for i, (rank, mine) in enumerate(zip(ranks, calls, strict=True)):
        kept = np.flatnonzero(where[i][mine.cycle])
        name = rank.ops.name[mine.op[kept]]
        for p, n in sorted(set(zip(mine.phase[kept].tolist(), name.tolist(), strict=True))):
            chosen = kept[(mine.phase[kept] == p) & (name == n)]
            found.setdefault((p, rank.ops.names[n]), []).append((i, chosen))
    rows = [
        (sum(len(chosen) for _, chosen in hits), _collective(key, hits, ranks, calls, place, cycles, bool(batches)))
        for key, hits in found.items()
    ]
    rows.sort(key=lambda row: (PHASES.index(row[1].phase), KINDS.index(row[1].kind), -row[0], row[1].kernel))
    return tuple(row for _, row in rows)


def _collective(
    key: tuple[int, str],
    hits: list[tuple[int, Ints]],
    ranks: Sequence[RankAnalysis],
    calls: Sequence[RankCalls],
    place: Mapping[int, tuple[Group, int]],
    cycles: int,
    counted: bool,
) -> CollectiveSummary:
    phase, kernel = key
    first, at = hits[0]
    classes = ranks[first].ops.classes
    what = classes.classes[classes.code[calls[first].op[at[0]]]]
    duration = np.concatenate([ranks[i].ops.duration[calls[i].op[c]] for i, c in hits])
    transfer = np.concatenate([place[i][0].matched.transfer[place[i][1]][c] for i, c in hits])
    wait = np.concatenate([place[i][0].matched.wait[place[i][1]][c] for i, c in hits])
    size = np.concatenate([calls[i].bytes[c] for i, c in hits])
    members = np.concatenate([calls[i].group_size[c] for i, c in hits])
    known = transfer >= 0
    sure = all(place[i][0].transfer_is != "upper_bound" for i, _ in hits)
    transfer_us = float(transfer[known].mean()) / 1000.0 if known.any() else None
    message = int(size[0]) if len(size) and size[0] > 0 and (size == size[0]).all() else None
    world = int(members[0]) if (members == members[0]).all() and members[0] > 0 else place[first][0].world
    return CollectiveSummary(
        phase=PHASES[phase],
        kind=what.kind or "unknown",
        implementation=what.implementation or "unknown",
        kernel=kernel,
        fused=what.fused,
        calls_per_cycle=len(duration) / cycles if counted else None,
        mean_us=float(duration.mean()) / 1000.0,
        transfer_us=transfer_us,
        wait_us=float(wait[known].mean()) / 1000.0 if known.any() else None,
        message_bytes=message,
        bus_bandwidth_gb_s=bus_bandwidth(what.kind or "unknown", message, transfer_us, world),
        transfer_is=None if transfer_us is None else "measured" if sure else "upper_bound",
    )


def bus_bandwidth(kind: str, message: int | None, transfer_us: float | None, ranks: int | None) -> float | None:
    """Bus bandwidth in GB/s as nccl-tests define it; ``None`` where a factor is unknown.

    all_reduce: size / time x 2 (n-1)/n; all_gather, reduce_scatter and all_to_all: size / time x (n-1)/n, where the
    size is that of the whole buffer.
    """
    if message is None or transfer_us is None or transfer_us <= 0 or ranks is None or ranks < 2:
        return None
    factor = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}.get(kind)
    return None if factor is None else message / transfer_us / 1000.0 * factor * (ranks - 1) / ranks


def clock_offsets(ranks: Sequence[RankAnalysis], groups: Sequence[Group]) -> tuple[ClockOffset, ...]:
    """Offsets against the first rank of each group, in us."""
    rows: dict[int, ClockOffset] = {}
    infos = [r.info for r in ranks]
    numbers = [rank_number(infos, i) for i in range(len(infos))]
    for group in groups:
        first = group.matched.offset[0] if len(group.ranks) > 1 else None
        for place, i in enumerate(group.ranks):
            mine = group.matched.offset[place]
            if mine is None or first is None:
                rows[i] = ClockOffset(numbers[i], None, None)
            elif not place:
                rows[i] = ClockOffset(numbers[i], 0.0, 0.0)
            else:
                offset, spread = mine.offset - first.offset, max(mine.spread, first.spread)
                rows[i] = ClockOffset(numbers[i], offset / 1000.0, spread / 1000.0)
    return tuple(rows[i] for i in sorted(rows))
