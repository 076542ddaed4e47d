"""From a change to new durations of measured ops, in three cases: expected, most favourable, least favourable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from profkit.analysis import RunAnalysis
from profkit.collectives.cost import fit_size_latency
from profkit.projection.change import Change
from profkit.projection.replay import ReplayCycle, replay
from profkit.speculation.roofline import forward_floor
from profkit.words import TARGET_FORWARD_PHASES

Floats = npt.NDArray[np.float64]

# All-reduces that a cheaper all-reduce makes cheaper: the target's and the draft's.
SCALED_PHASES = (*sorted(TARGET_FORWARD_PHASES), "draft", "draft_extend")
# A gap this long before an op is not the distance between two kernels of one stream: something was waited for.
WAITED_NS = 10_000
# Below this share of the cycle, host-bound idle cannot hold back a projection noticeably.
HOST_BOUND_SHARE = 0.01
# A cycle at the host's pace is a little longer than the host's own work: launch latency, waits too short to see.
HOST_MARGIN = 1.02
# Algorithms whose draft is a chain of forwards, one per drafted token after the first two rows.
CHAIN_DRAFTERS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"})


@dataclass(frozen=True, slots=True)
class Case:
    """Factors of one case. ``allreduce`` scales transfers (1 when the change sets them), by verified rows; ``held``
    keeps late ops."""

    allreduce: float = 1.0
    compute: Mapping[str, float] = field(default_factory=dict)
    draft: float = 1.0
    held: bool = False
    is_worst: bool = False


@dataclass(frozen=True, slots=True)
class Cases:
    """Expected, most and least favourable case, and what was assumed."""

    expected: Case
    best: Case
    worst: Case
    assumptions: tuple[str, ...] = ()


def measured_points(*runs: RunAnalysis | None) -> list[tuple[float, float]]:
    """(bytes, microseconds) of every all-reduce whose size is known: transfer, or the mean with one rank."""
    points = []
    for run in runs:
        for call in run.attribution.collectives if run is not None and run.attribution else ():
            if call.kind == "all_reduce" and call.message_bytes:
                time = call.transfer_us if call.transfer_us is not None else call.mean_us
                points.append((float(call.message_bytes), time))
    return points


def _host_bound(run: RunAnalysis) -> bool:
    attribution = run.attribution
    if attribution is None or attribution.cycle is None:
        return False
    late = sum(attribution.cycle.idle_causes_us.get(cause, 0.0) for cause in ("host_bound", "scheduler"))
    return late > HOST_BOUND_SHARE * attribution.cycle.wall_us.mean


def _row_factors(
    run: RunAnalysis, baseline: RunAnalysis | None, old: int, new: int, notes: list[str]
) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """(expected, best, worst) factors on all-reduce transfer and on the target's compute for other verified rows."""
    ratio = new / old
    near, far = min(ratio, 1.0), max(ratio, 1.0)
    curve = fit_size_latency(measured_points(run, baseline), "all-reduces of these runs")
    sizes = [
        c.message_bytes
        for c in (run.attribution.collectives if run.attribution else ())
        if c.kind == "all_reduce" and c.phase in TARGET_FORWARD_PHASES and c.message_bytes
    ]
    if curve is not None and sizes:
        size = float(sizes[0])
        factor = curve.at(size * ratio) / curve.at(size)
        allreduce = (factor, factor, factor)
        notes.append(
            f"an all-reduce costs {curve.alpha_us:.1f} us + {curve.beta_us_per_kib:.2f} us/KiB, fitted to "
            f"{curve.points} sizes of these runs"
        )
    else:
        allreduce = ((near + far) / 2, near, far)
        notes.append("no two message sizes were measured: an all-reduce may be flat in size or proportional to it")
    floors = [forward_floor(run.facts, rows).value for rows in (old, new)]
    if floors[0] and floors[1]:
        factor = floors[1] / floors[0]
        compute = (factor, min(factor, near), max(factor, far) if ratio > 1 else 1.0)
        notes.append("compute of the target's forward follows the bytes that it must read (roofline)")
    else:
        compute = ((near + far) / 2, near, far)
        notes.append("what a verified row costs in compute is not known: free or proportional")
    return allreduce, compute


def _draft_factors(run: RunAnalysis, old: int, new: int, notes: list[str]) -> tuple[float, float, float]:
    algorithm = (run.facts.text("speculative.algorithm") or "").upper()
    if algorithm not in CHAIN_DRAFTERS or run.facts.integer("speculative.topk") not in (1, None):
        notes.append(f"the cost of drafting is kept: {algorithm or 'the drafter'} does not draft a chain")
        return 1.0, 1.0, 1.0
    if old <= 2:
        return 1.0, 1.0, 1.0 if new <= 2 else float(new - 1)
    factor = max(new - 2, 0) / (old - 2)
    notes.append(f"a chain of {new} rows drafts with {max(new - 2, 0)} forwards instead of {old - 2}")
    # Metadata and the tree build come once, however many forwards there are.
    return factor, factor, (factor + 1) / 2 if factor < 1 else factor


def make_cases(run: RunAnalysis, baseline: RunAnalysis | None, change: Change, speculative: bool) -> Cases:
    """The three cases of ``change`` on one arm; only the speculative arm has draft tokens to change."""
    notes: list[str] = []
    compute: dict[str, float] = {str(phase): factor for phase, factor in change.compute_scale.items()}
    held = _host_bound(run)
    if held:
        notes.append("part of the idle time is the host launching late; the least favourable case keeps those launches")
    old = run.facts.integer("speculative.num_draft_tokens")
    if not speculative or change.draft_tokens is None or old is None or change.draft_tokens == old:
        same = Case(compute=compute)
        return Cases(same, same, Case(compute=compute, held=held, is_worst=True), tuple(notes))
    allreduce, forward = _row_factors(run, baseline, old, change.draft_tokens, notes)
    draft = _draft_factors(run, old, change.draft_tokens, notes)

    def case(i: int, held: bool) -> Case:
        scaled = dict(compute)
        for phase in TARGET_FORWARD_PHASES:
            scaled[phase] = scaled.get(phase, 1.0) * forward[i]
        return Case(allreduce[i], scaled, draft[i], held, is_worst=i == 2)

    return Cases(case(0, False), case(1, False), case(2, held), tuple(notes))


def curve_applies(cycle: ReplayCycle) -> bool:
    """Whether every all-reduce of the target's forward has a size that a curve can be read at."""
    forward = cycle.is_allreduce & np.isin(cycle.phase, sorted(TARGET_FORWARD_PHASES))
    return bool((cycle.message_bytes[forward] > 0).all())


def _allreduce_ns(cycle: ReplayCycle, duration: Floats, change: Change, case: Case) -> Floats:
    curve = change.allreduce_curve
    scaled = cycle.is_allreduce & np.isin(cycle.phase, SCALED_PHASES)
    # With one rank the wait is not known, and the whole call counts as transfer.
    transfer = np.where(cycle.transfer_ns >= 0, np.minimum(cycle.transfer_ns, duration), duration)
    wait = duration - transfer
    if change.allreduce_us is not None:
        transfer = np.where(scaled, change.allreduce_us * 1e3, transfer)
    elif curve is not None:
        size = cycle.message_bytes
        priced = np.array([curve.at(float(max(s, 0))) * 1e3 for s in size.tolist()])
        # The draft's messages are no larger than the target's; how large is not always known.
        forward = size[np.isin(cycle.phase, sorted(TARGET_FORWARD_PHASES)) & (size > 0)]
        guess = transfer if not len(forward) else np.minimum(transfer, curve.at(float(forward.max())) * 1e3)
        transfer = np.where(scaled, np.where(size > 0, priced, guess), transfer)
    else:
        rows = scaled & np.isin(cycle.phase, [*TARGET_FORWARD_PHASES, "draft_extend"])
        transfer = np.where(rows, transfer * case.allreduce, transfer)
    if change.wait_us is not None:
        wait = np.where(scaled, change.wait_us * 1e3, wait)
    return np.where(cycle.is_allreduce, transfer + wait, duration)


def replayed_wall(cycle: ReplayCycle, change: Change, case: Case) -> float:
    """Wall of one cycle in ns after the change, in one case."""
    duration = (cycle.end - cycle.start).astype(np.float64)
    duration = _allreduce_ns(cycle, duration, change, case)
    for phase, factor in case.compute.items():
        chosen = (cycle.phase == phase) & (cycle.activity == "compute")
        duration = np.where(chosen, duration * factor, duration)
    drafting = cycle.phase == "draft"
    duration = np.where(drafting, duration * case.draft, duration)
    gap_scale = np.full(len(duration) + 1, 1.0 if change.idle is None else change.idle)
    gap_scale[:-1] = np.where(drafting, gap_scale[:-1] * case.draft, gap_scale[:-1])
    held = None
    if case.held and change.idle is None:
        latest_end = np.maximum.accumulate(np.concatenate([[0], cycle.end[:-1]])) if len(cycle.end) else cycle.end
        held = cycle.start - latest_end > WAITED_NS
    wall = replay(cycle, duration, gap_scale, held)
    # However fast the GPU gets, the host must still launch its work.
    return max(wall, cycle.host_ns * HOST_MARGIN) if case.is_worst else wall
