"""Findings about the attribution itself: what to distrust, what stands out, what was left out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from profkit.attribution.calls import KINDS, RankCalls
from profkit.attribution.cycles import COUNTED, DECODING, PARTIAL, PREFILL
from profkit.attribution.idle import CAUSES, WORDS
from profkit.attribution.kernels import UNKNOWN_CLASS, KernelClass
from profkit.attribution.labels import TARGET, UNLABELLED
from profkit.attribution.labels.dialect import marker_of
from profkit.attribution.rank import RankAnalysis
from profkit.attribution.result import CycleSummary
from profkit.finding import Finding
from profkit.run import Facts

UNKNOWN_LIMIT: Final = 0.02
UNLABELLED_LIMIT: Final = 0.05
LOG_TOLERANCE: Final = 0.10


def place(rank: RankAnalysis) -> str:
    """How a rank is named as evidence."""
    return rank.info.path


def _op(ranks: Sequence[RankAnalysis]) -> str:
    """Whose ops these are."""
    return "host" if all(r.time_source == "cpu" for r in ranks) else "GPU"


def rank_findings(ranks: Sequence[RankAnalysis]) -> Iterator[Finding]:
    """Findings about each rank alone, equal ones of several ranks joined."""
    yield from _left_out(ranks)
    yield from _unknown_kernels(ranks)
    yield from _unlabelled(ranks)
    yield from _guessed(ranks)
    yield from _profiler(ranks)
    yield from _markers(ranks)
    closed = [place(r) for r in ranks if r.cycles.closed_at_end]
    if closed:
        yield Finding(
            "single_cycle",
            "warning",
            f"The trace holds a single cycle: it ends at its last {_op(ranks)} op, so the idle time before the next "
            "cycle is not in it.",
            tuple(closed),
        )
    damaged = [place(r) for r in ranks if r.info.truncated]
    if damaged:
        yield Finding(
            "trace_truncated",
            "warning",
            f"{f'{len(damaged)} of {len(ranks)} traces are' if len(ranks) > 1 else 'The trace is'} cut off: what could "
            "be read is attributed.",
            tuple(damaged),
        )
    cut = [r for r in ranks if r.ops.shortened]
    if cut:
        claimed = max(r.ops.longest_ns for r in cut) / 1e9
        yield Finding(
            "durations_damaged",
            "warning",
            f"{sum(r.ops.shortened for r in cut)} GPU ops claim to last longer than they can (up to {claimed:.3g} s): "
            "each is taken to end where the next op of its stream begins, or where the recording ends.",
            tuple(place(r) for r in cut),
            {"ops": sum(r.ops.shortened for r in cut), "claimed_s": claimed},
        )
    hurt = [r for r in ranks if r.damaged_spans.found or r.labels.damaged]
    if hurt:
        found = sum(r.damaged_spans.found + r.labels.damaged for r in hurt)
        mended = sum(r.damaged_spans.mended + r.labels.damaged for r in hurt)
        yield Finding(
            "annotations_damaged",
            "warning",
            f"{found} annotations or frames of steps have no duration that can be: "
            + (f"{mended} of them are" if mended < found else "each is")
            + " taken to last as long as others of that name, and cycles around them are less certain.",
            tuple(place(r) for r in hurt),
            {"annotations": found, "mended": mended},
        )
    lost = sum(r.ops.unusable for r in ranks)
    if lost:
        yield Finding(
            "ops_without_start",
            "warning",
            f"{lost} {_op(ranks)} ops have no credible start time or duration and are left out.",
            (),
            {"ops": lost},
        )


def _left_out(ranks: Sequence[RankAnalysis]) -> Iterator[Finding]:
    empty = [place(r) for r in ranks if COUNTED not in r.cycles.kind]
    if empty:
        bare = [r for r in ranks if COUNTED not in r.cycles.kind]
        prefill = any(r.labels.prefill.any() for r in bare)
        decodes = any((np.isin(r.labels.phase, DECODING) & ~r.labels.prefill).any() for r in bare)
        why = "no complete decode cycle"
        if prefill:
            why = f"{why} without a prefill inside" if decodes else "only prefill batches"
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
            f"Left out of all means: {kinds[PARTIAL]} partial, {kinds[PREFILL]} with a prefill inside; "
            f"counted: {kinds[COUNTED]}.",
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
        names = "; ".join(
            n if len(n) <= 60 else f"{n[:59]}…" for n, _ in sorted(time.items(), key=lambda x: (-x[1], x[0]))[:5]
        )
        yield Finding(
            "unknown_kernels",
            "warning",
            f"{share:.1%} of GPU time is in kernels of unknown kind, counted as compute: {names}. "
            "If one of them communicates, add a rule to profkit/rules/kernels.toml. Where phases meet at such kernels "
            "the border may be wrong.",
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


def _guessed(ranks: Sequence[RankAnalysis]) -> Iterator[Finding]:
    """Phases that no name told, only the length and the order of forwards."""
    shares = {}
    for rank in ranks:
        inside = np.append(rank.cycles.counted(), False)[rank.cycles.op_cycle]
        total = int(rank.ops.duration[inside].sum())
        guessed = int(rank.ops.duration[inside & rank.labels.guessed].sum())
        if total and guessed > 0.5 * total:
            shares[place(rank)] = guessed / total
    if shares:
        yield Finding(
            "phases_by_order",
            "warning",
            f"No annotation, Python function or known kernel tells the phases ({min(shares.values()):.0%} of the "
            f"{'CPU' if all(r.time_source == 'cpu' for r in ranks) else 'GPU'} time): they were told by the length and "
            "the order of forwards alone, and may be wrong. Record with SGLang 0.5.14 or newer, or with_stack=True.",
            tuple(shares),
            {"guessed_share": min(shares.values())},
        )


def _markers(ranks: Sequence[RankAnalysis]) -> Iterator[Finding]:
    """A tree is built once per cycle: cycles with another number of tree builds were cut wrongly."""
    odd, total = 0, 0
    for rank in ranks:
        builds = np.array([marker_of(n) == "draft_end" for n in rank.ops.names] or [False], np.bool_)[rank.ops.name]
        inside = builds & (rank.cycles.op_cycle >= 0)
        if not inside.any():
            continue
        counts = np.bincount(rank.cycles.op_cycle[inside], minlength=len(rank.cycles))[rank.cycles.counted()]
        if len(counts):
            odd += int((counts != np.bincount(counts).argmax()).sum())
            total += len(counts)
    if odd:
        yield Finding(
            "tree_builds_vary",
            "warning",
            f"In {odd} of {total} cycles the number of tree builds differs from the others': these cycles may be "
            "cut wrongly.",
            (),
            {"cycles": odd},
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
    """All-reduces per target forward against the model's layers.

    Silent under DP attention and expert parallelism, which change the count, and where the layers are unknown.
    """
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


# --- the cycle as a whole -----------------------------------------------------------------------------


def cycle_findings(cycle: CycleSummary, log_step_ms: float | None, source: str) -> Iterator[Finding]:
    """Idle causes, the cross-check with the log, and the source of time."""
    if source == "cpu":
        yield Finding(
            "cpu_time",
            "warning",
            "This trace was recorded without a GPU: host ops of the scheduler's thread stand for GPU ops, and all "
            "times are CPU times; idle is what this thread spends outside them, in Python and the scheduler.",
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
        why = "profiling costs time" if ratio > 1 else "the log's steps hold more than these cycles do"
        mend = f"; {why}: take the shares from the trace, the time from the log" if off else ""
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
