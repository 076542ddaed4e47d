"""From a change to the new times of measured ops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.projection.change import Change
from profkit.projection.model import Case
from profkit.projection.replay import Bools, Floats, NewTimes, ReplayCycle, ReplayGroup
from profkit.words import TARGET_FORWARD_PHASES

# All-reduces that a cheaper all-reduce makes cheaper: the target's and the draft's.
SCALED_PHASES = (*sorted(TARGET_FORWARD_PHASES), "draft", "draft_extend")
# Phases whose messages grow with the verified rows.
ROW_PHASES = (*sorted(TARGET_FORWARD_PHASES), "draft_extend")


@dataclass(frozen=True, slots=True)
class Setting:
    """How gaps are treated. ``gaps`` scales all of them (what profiling added); ``queued``: the host runs ahead, so a
    gap in which the GPU waited for a launch shrinks to the usual distance of two kernels."""

    gaps: float = 1.0
    queued: bool = False


def curve_applies(cycle: ReplayCycle) -> bool:
    """Whether every all-reduce of the target's forward has a size that a curve can be read at."""
    forward = cycle.is_allreduce & np.isin(cycle.phase, sorted(TARGET_FORWARD_PHASES))
    return bool((cycle.message_bytes[forward] > 0).all())


def _transfer(cycle: ReplayCycle, measured: Floats, change: Change, case: Case) -> Floats:
    """New transfer of every op in ns; ``measured`` where it is no all-reduce that changes."""
    scaled = cycle.is_allreduce & np.isin(cycle.phase, SCALED_PHASES)
    curve = change.allreduce_curve
    if change.allreduce_us is not None:
        return np.where(scaled, change.allreduce_us * 1e3, measured)
    if curve is not None:
        grown = np.where(np.isin(cycle.phase, ROW_PHASES), case.rows, 1.0)
        size = np.where(cycle.message_bytes > 0, cycle.message_bytes * grown, -1.0)
        priced = np.array([curve.at(max(s, 0.0)) * 1e3 for s in size.tolist()])
        # The draft's messages are no larger than the target's; how large is not always known.
        forward = size[np.isin(cycle.phase, sorted(TARGET_FORWARD_PHASES)) & (size > 0)]
        guess = measured if not len(forward) else np.minimum(measured, curve.at(float(forward.max())) * 1e3)
        return np.where(scaled, np.where(size > 0, priced, guess), measured)
    return np.where(scaled & np.isin(cycle.phase, ROW_PHASES), measured * case.allreduce, measured)


def _gaps(cycle: ReplayCycle, change: Change, case: Case, setting: Setting) -> tuple[Floats, float]:
    gap = cycle.gap.astype(np.float64)
    if setting.queued and cycle.late.any():
        usual = gap[~cycle.late & (cycle.released >= 0)]
        gap = np.where(cycle.late, np.minimum(gap, np.median(usual) if len(usual) else 0.0), gap)
    scale = setting.gaps * (1.0 if change.idle is None else change.idle)
    gap = gap * np.where(cycle.phase == "draft", scale * case.draft, scale)
    return gap, cycle.tail * scale


def _arrivals(group: ReplayGroup) -> dict[int, float]:
    """When the last rank arrived at each meeting, on the group's clock."""
    found: dict[int, float] = {}
    for cycle in group.ranks:
        for op in np.flatnonzero(cycle.meets >= 0).tolist():
            meeting, start = int(cycle.meets[op]), float(cycle.start[op] + cycle.origin_ns)
            found[meeting] = max(found.get(meeting, start), start)
    return found


def _rest(cycle: ReplayCycle, arrivals: dict[int, float], meets: Bools) -> Floats:
    """What a meeting took beyond its transfer after the last rank had arrived: jitter of the ranks' ends."""
    rest = np.zeros(len(cycle.start))
    for op in np.flatnonzero(meets).tolist():
        began = arrivals[int(cycle.meets[op])]
        rest[op] = cycle.end[op] + cycle.origin_ns - began - cycle.transfer_ns[op]
    return rest


def new_times(group: ReplayGroup, change: Change, case: Case, setting: Setting) -> list[NewTimes]:
    """Times to replay ``group`` with after ``change``, one per rank."""
    arrivals = _arrivals(group)
    result = []
    for cycle in group.ranks:
        duration = (cycle.end - cycle.start).astype(np.float64)
        meets = cycle.meets >= 0
        known = cycle.transfer_ns >= 0
        # With one rank the wait is not known, and the whole call counts as transfer.
        before = np.where(known, np.minimum(cycle.transfer_ns, duration), duration)
        after = _transfer(cycle, before, change, case)
        wait = duration - before
        if change.wait_us is not None:
            given = cycle.is_allreduce & np.isin(cycle.phase, SCALED_PHASES)
            wait = np.where(given, change.wait_us * 1e3, wait)
        scale = np.ones(len(duration))
        for phase, factor in case.compute.items():
            scale = np.where((cycle.phase == phase) & (cycle.activity == "compute"), factor, scale)
        scale = np.where(cycle.phase == "draft", scale * case.draft, scale)
        gap, tail = _gaps(cycle, change, case, setting)
        result.append(
            NewTimes(
                duration=(after + wait) * scale,
                transfer=np.maximum(after + _rest(cycle, arrivals, meets), 0.0) * scale,
                gap=gap,
                tail=tail,
            )
        )
    return result
