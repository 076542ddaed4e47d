"""Findings about the attribution itself: what to distrust, what stands out, what was left out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from profkit.attribution.calls import KINDS, Group, RankCalls
from profkit.attribution.cycles import COUNTED, PARTIAL, PREFILL
from profkit.attribution.idle import CAUSES, WORDS
from profkit.attribution.kernels import UNKNOWN_CLASS, KernelClass
from profkit.attribution.labels import TARGET, UNLABELLED
from profkit.attribution.rank import RankAnalysis
from profkit.attribution.result import CycleSummary
from profkit.attribution.summary import rank_number
from profkit.finding import Finding
from profkit.run import Facts

UNKNOWN_LIMIT: Final = 0.02
UNLABELLED_LIMIT: Final = 0.05
STRAGGLER_SHARE: Final = 0.5
LOG_TOLERANCE: Final = 0.10


def place(rank: RankAnalysis) -> str:
    """How a rank is named as evidence."""
    return rank.info.path


def rank_findings(ranks: Sequence[RankAnalysis]) -> Iterator[Finding]:
    """Findings about each rank alone, equal ones of several ranks joined."""
    yield from _left_out(ranks)
    yield from _unknown_kernels(ranks)
    yield from _unlabelled(ranks)
    yield from _profiler(ranks)
    closed = [place(r) for r in ranks if r.cycles.closed_at_end]
    if closed:
        yield Finding(
            "single_cycle",
            "warning",
            "The trace holds a single cycle: it ends at its last GPU op, so the idle time before the next cycle "
            "is not in it.",
            tuple(closed),
        )
    damaged = [place(r) for r in ranks if r.info.truncated]
    if damaged:
        yield Finding(
            "trace_truncated",
            "warning",
            f"{len(damaged)} of {len(ranks)} traces are cut off: what could be read is attributed.",
            tuple(damaged),
        )
    lost = sum(r.ops.unusable for r in ranks)
    if lost:
        yield Finding(
            "ops_without_start", "warning", f"{lost} GPU ops have no start time and are left out.", (), {"ops": lost}
        )


def _left_out(ranks: Sequence[RankAnalysis]) -> Iterator[Finding]:
    empty = [place(r) for r in ranks if COUNTED not in r.cycles.kind]
    if empty:
        prefill = sum(int(r.labels.prefill.any()) for r in ranks)
        why = "only prefill batches" if prefill else "no complete decode cycle"
        who = "The trace holds" if len(ranks) == 1 else f"{len(empty)} of {len(ranks)} traces hold"
        yield Finding(
            "no_cycles",
            "problem",
            f"{who} {why}: record more decode steps (num_steps 10 or more).",
            tuple(empty),
            {"traces": len(empty)},
        )
    kinds: Counter[str] = Counter()
    for rank in ranks:
        kinds.update(rank.cycles.kind)
    if kinds[COUNTED] and (kinds[PARTIAL] or kinds[PREFILL]):
        yield Finding(
            "cycles_left_out",
            "info",
            f"{kinds[PARTIAL]} partial cycles and {kinds[PREFILL]} with a prefill inside are left out of all means; "
            f"{kinds[COUNTED]} are counted.",
            (),
            {"partial": kinds[PARTIAL], "prefill": kinds[PREFILL], "counted": kinds[COUNTED]},
        )


def _unknown_kernels(ranks: Sequence[RankAnalysis]) -> Iterator[Finding]:
    time: Counter[str] = Counter()
    total = 0
    for rank in ranks:
        ops = rank.ops
        if rank.time_source == "cpu":
            continue
        total += int(ops.duration.sum())
        unknown = ops.classes.mask(UNKNOWN_CLASS)
        sums = np.bincount(ops.name[unknown], weights=ops.duration[unknown], minlength=len(ops.names))
        time.update({ops.names[i]: int(sums[i]) for i in np.flatnonzero(sums)})
    share = sum(time.values()) / total if total else 0.0
    if share > UNKNOWN_LIMIT:
        names = ", ".join(n[:60] for n, _ in sorted(time.items(), key=lambda x: (-x[1], x[0]))[:5])
        yield Finding(
            "unknown_kernels",
            "warning",
            f"{share:.1%} of GPU time is in kernels of unknown kind, counted as compute: {names}. "
            "If one of them communicates, add a rule to profkit/rules/kernels.toml.",
            (),
            {"share": share},
        )
    unclear: Counter[str] = Counter()
    for rank in ranks:
        unclear.update(c.implementation or "" for c in _present(rank) if c.kind == "unknown")
    if unclear:
        yield Finding(
            "collective_kind_unknown",
            "warning",
            f"Collectives of {', '.join(sorted(unclear))} do not say in their kernel name what they are, nor do "
            "arguments: they count as 'comm', not as all-reduce.",
        )


def _present(rank: RankAnalysis) -> list[KernelClass]:
    return [rank.ops.classes.classes[i] for i in np.unique(rank.ops.classes.code).tolist()]


def _unlabelled(ranks: Sequence[RankAnalysis]) -> Iterator[Finding]:
    for rank in ranks:
        counted = rank.cycles.counted()
        parts = rank.parts[counted]
        wall = int(parts.sum())
        share = int(parts[:, UNLABELLED].sum()) / wall if wall else 0.0
        if share > UNLABELLED_LIMIT:
            yield Finding(
                "low_confidence",
                "warning",
                f"{share:.1%} of the cycle time could not be given to a phase; phases without time are reported as "
                "unknown. Record with SGLang 0.5.14 or newer, or with_stack=True.",
                (place(rank),),
                {"unlabelled_share": share, "confidence": float(rank.cycles.confidence[counted].mean())},
            )


def _profiler(ranks: Sequence[RankAnalysis]) -> Iterator[Finding]:
    with_stacks = [r for r in ranks if r.info.python_frames and r.time_source == "gpu"]
    wall = sum(int(r.parts[r.cycles.counted()].sum()) for r in with_stacks)
    host = [CAUSES.index(c) for c in ("host_bound", "scheduler", "host_sync", "cpu_draft")]
    waiting = sum(int(r.idle[r.cycles.counted()][:, host].sum()) for r in with_stacks)
    if wall and waiting > 0.1 * wall:
        yield Finding(
            "profiler_idle",
            "warning",
            f"{waiting / wall:.0%} of the cycle is the GPU waiting for the host, in a recording with Python stacks, "
            "which slow the host: do not trust this idle time; record again with SGLANG_PROFILE_WITH_STACK=false.",
            tuple(place(r) for r in with_stacks),
            {"host_idle_share": waiting / wall},
        )


# --- counts -----------------------------------------------------------------------------------------


def count_findings(
    ranks: Sequence[RankAnalysis], calls: Sequence[RankCalls], facts: Facts, cycle: CycleSummary | None
) -> Iterator[Finding]:
    """All-reduces per target forward against the model's layers (rule 12)."""
    if cycle is None:
        return
    per_cycle = []
    for rank, mine in zip(ranks, calls, strict=True):
        wanted = np.isin(mine.phase, TARGET) & (mine.kind == KINDS.index("all_reduce"))
        counts = np.bincount(mine.cycle[wanted], minlength=len(rank.cycles))
        per_cycle.append(counts[rank.cycles.counted()])
    flat = np.concatenate(per_cycle) if per_cycle else np.zeros(0, np.int64)
    if not len(flat) or not flat.any():
        return
    common = int(np.bincount(flat).argmax())
    odd = int((flat != common).sum())
    if odd:
        yield Finding(
            "allreduce_count_varies",
            "warning",
            f"The target forward has {common} all-reduces in most cycles but another number in {odd} of {len(flat)}.",
            (),
            {"allreduces": common, "odd_cycles": odd},
        )
    layers = facts.integer("model.layers")
    spread = facts.flag("parallel.dp_attention"), facts.integer("parallel.ep")
    if layers is None or spread[0] or (spread[1] or 1) > 1:
        return
    numbers: dict[str, float | int | None] = {"allreduces": common, "layers": layers}
    if common in (2 * layers, 2 * layers + 1):
        yield Finding(
            "allreduce_count_fits",
            "info",
            f"{common} all-reduces per target forward fit 2 per layer of {layers} layers"
            f"{', plus one for the embedding' if common % 2 else ''}.",
            (),
            numbers,
        )
    else:
        yield Finding(
            "allreduce_count_odd",
            "warning",
            f"{common} all-reduces per target forward do not fit {layers} layers (2 per layer, or one more): some "
            "are not recognised, or the model does not reduce twice per layer.",
            (),
            numbers,
        )


# --- several ranks ------------------------------------------------------------------------------------


def group_findings(ranks: Sequence[RankAnalysis], groups: Sequence[Group]) -> Iterator[Finding]:
    """Alignment, unequal ranks, stragglers, arrival skew, absent ranks."""
    for group in groups:
        yield from _absent(ranks, group)
        if len(group.ranks) < 2:
            continue
        yield from _alignment(ranks, group)
        yield from _straggler(ranks, group)


def _absent(ranks: Sequence[RankAnalysis], group: Group) -> Iterator[Finding]:
    sizes = {(ranks[i].info.distributed or {}).get("world_size") for i in group.ranks}
    world = next(iter(sizes)) if len(sizes) == 1 else None
    if isinstance(world, int) and world > len(group.ranks) and all(ranks[i].time_source == "gpu" for i in group.ranks):
        have = {ranks[i].info.rank for i in group.ranks}
        gone = [r for r in range(world) if r not in have] if None not in have else []
        named = f" (missing: {', '.join(map(str, gone[:8]))}{', ...' * (len(gone) > 8)})" if gone else ""
        yield Finding(
            "ranks_missing",
            "warning",
            f"{len(group.ranks)} of {world} ranks are here{named}; waiting times need all of them.",
            tuple(place(ranks[i]) for i in group.ranks[:8]),
            {"present": len(group.ranks), "world": world},
        )


def _alignment(ranks: Sequence[RankAnalysis], group: Group) -> Iterator[Finding]:
    matched = group.matched
    numbers = [rank_number(ranks, i) for i in group.ranks]
    unclear = [n for n, a in zip(numbers, matched.alignment, strict=True) if a.shift is None]
    if unclear:
        yield Finding(
            "alignment_ambiguous",
            "warning",
            f"Cycles of rank {', '.join(map(str, unclear))} cannot be matched to the other ranks' with certainty: no "
            "transfer and waiting times are given.",
            tuple(place(ranks[i]) for i in group.ranks),
        )
    else:
        moved = [(n, a.shift) for n, a in zip(numbers, matched.alignment, strict=True) if a.shift]
        shifts = ", ".join(f"rank {n}: {s:+d}" for n, s in moved)
        worst = max((a.spread_ns or 0.0) for a in matched.alignment)
        clock = any(a.how == "clock" for a in matched.alignment)
        means = "with the help of the host clock" if clock else "by their ends"
        yield Finding(
            "ranks_aligned",
            "info",
            f"Cycles of {len(numbers)} ranks matched through their collectives, {means} ({shifts or 'no shift'}).",
            (),
            {"worst_spread_us": worst / 1000.0, "calls_matched": matched.calls},
        )
    if len(matched.unequal):
        yield Finding(
            "collectives_unequal",
            "warning",
            f"In {len(matched.unequal)} cycles the ranks' numbers of collectives differ: these cycles are not matched.",
            tuple(place(ranks[i]) for i in group.ranks),
            {"cycles": len(matched.unequal)},
        )
    counts = {len(ranks[i].cycles) for i in group.ranks}
    if len(counts) > 1:
        each = ", ".join(f"rank {n}: {len(ranks[i].cycles)}" for n, i in zip(numbers, group.ranks, strict=True))
        yield Finding("cycle_counts_differ", "info", f"The ranks recorded different numbers of cycles ({each}).")


def _straggler(ranks: Sequence[RankAnalysis], group: Group) -> Iterator[Finding]:
    matched = group.matched
    if not matched.calls:
        return
    spread = max((o.spread for o in matched.offset if o is not None), default=0.0)
    numbers = [rank_number(ranks, i) for i in group.ranks]
    skew = matched.arrival_skew
    figures: dict[str, float | int | None] = {
        "arrival_skew_us": None if skew is None else skew / 1000.0,
        "uncertainty_us": spread / 1000.0,
        "calls": matched.calls,
    }
    waits = [w[w >= 0] for w in matched.wait]
    mean = float(np.concatenate(waits).mean())
    last = int(np.argmax(matched.last_share))
    share = matched.last_share[last]
    others = [float(w.mean()) for r, w in enumerate(waits) if r != last and len(w)]
    # An even race is won by each rank equally often: one that is last in most calls is slow, not unlucky.
    if share > max(STRAGGLER_SHARE, 1.5 / len(numbers)) and others and min(others) > 500.0:
        lost = np.mean(others) * matched.calls / max(_cycles_of(ranks, group), 1)
        # A lag that costs the others a fraction of a percent is worth knowing, not worth hunting.
        severe = lost > 0.02 * max(_typical_wall(ranks, group), 1.0)
        yield Finding(
            "straggler",
            "warning" if severe else "info",
            f"Rank {numbers[last]} arrives last in {share:.0%} of the collectives; the others wait "
            f"{np.mean(others) / 1000.0:.1f} us per call for it.",
            (place(ranks[group.ranks[last]]),),
            {"rank": numbers[last], "share": share, "wait_us": float(np.mean(others)) / 1000.0, **figures},
        )
    elif skew is not None and skew > spread:
        yield Finding(
            "arrival_skew",
            "info",
            f"Ranks arrive at collectives {skew / 1000.0:.1f} us apart (median; clocks are known to "
            f"{spread / 1000.0:.1f} us); no rank is always the last.",
            (),
            {"mean_wait_us": mean / 1000.0, **figures},
        )


def _cycles_of(ranks: Sequence[RankAnalysis], group: Group) -> int:
    return min(int((np.array(ranks[i].cycles.kind) != PARTIAL).sum()) for i in group.ranks)


def _typical_wall(ranks: Sequence[RankAnalysis], group: Group) -> float:
    members = [ranks[i].cycles for i in group.ranks]
    walls = np.concatenate([(c.end - c.start)[c.counted()] for c in members])
    return float(np.median(walls)) if len(walls) else 0.0


# --- the cycle as a whole -----------------------------------------------------------------------------


def cycle_findings(cycle: CycleSummary, log_step_ms: float | None, source: str) -> Iterator[Finding]:
    """Idle causes, the cross-check with the log, and the source of time."""
    if source == "cpu":
        yield Finding(
            "cpu_time",
            "warning",
            "This trace was recorded without a GPU: host ops of the scheduler's thread stand for GPU ops, and all "
            "times are CPU times.",
        )
    idle = sum(cycle.idle_causes_us.values())
    if source == "gpu" and idle > 0.05 * cycle.wall_us.mean:
        order = sorted(cycle.idle_causes_us.items(), key=lambda x: -x[1])
        said = "; ".join(f"{v / 1000:.2f} ms {WORDS[k]}" for k, v in order[:3] if v > 0.1 * idle)
        numbers: dict[str, float | int | None] = {f"{k}_us": v for k, v in order}
        yield Finding(
            "idle",
            "info",
            f"The GPU is idle for {idle / cycle.wall_us.mean:.0%} of the cycle: {said}.",
            (),
            numbers,
        )
    if log_step_ms is not None and log_step_ms > 0:
        ratio = cycle.wall_us.mean / 1000.0 / log_step_ms
        off = abs(ratio - 1.0) > LOG_TOLERANCE
        mend = "; profiling costs time: take the shares from the trace, the time from the log" if off else ""
        yield Finding(
            "trace_to_log",
            "warning" if off else "info",
            f"The cycle lasts {cycle.wall_us.mean / 1000.0:.2f} ms in the trace and {log_step_ms:.2f} ms in the server "
            f"log ({ratio:.2f} x){mend}.",
            (),
            {"trace_ms": cycle.wall_us.mean / 1000.0, "log_ms": log_step_ms, "inflation": ratio},
        )
    if cycle.count >= 5 and cycle.wall_us.p99 > 3 * cycle.wall_us.p50:
        yield Finding(
            "cycle_outliers",
            "info",
            f"Some cycles are far longer than the median ({cycle.wall_us.p99 / 1000:.1f} ms at p99, "
            f"{cycle.wall_us.p50 / 1000:.1f} ms at p50): the mean is theirs too.",
            (),
            {"p50_us": cycle.wall_us.p50, "p99_us": cycle.wall_us.p99},
        )


def boundary_words(ranks: Sequence[RankAnalysis]) -> str:
    """Which op begins a cycle, over all ranks."""
    return "; ".join(sorted({r.cycles.boundary for r in ranks if len(r.cycles)})) or "no cycle found"
