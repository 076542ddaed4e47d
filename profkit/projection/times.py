"""From a change to the new times of measured ops."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from profkit.projection.change import Change
from profkit.projection.course import Course, NewTimes
from profkit.projection.model import Case
from profkit.projection.replay import Bools, Floats, Ints
from profkit.words import TARGET_FORWARD_PHASES

# All-reduces that a cheaper all-reduce makes cheaper: the target's and the draft's.
SCALED_PHASES = (*sorted(TARGET_FORWARD_PHASES), "draft", "draft_extend")
# Phases whose messages grow with the verified rows.
ROW_PHASES = (*sorted(TARGET_FORWARD_PHASES), "draft_extend")


@dataclass(frozen=True, slots=True)
class Setting:
    """How gaps are treated. ``gaps`` scales all of them (what profiling added); ``queued``: the host runs ahead, so a
    gap in which the GPU waited for a launch shrinks to the usual distance of two kernels. ``transfer`` is how much of
    an all-reduce counts as its transfer where ranks are missing: the likely part, the most that it can be, or the
    least, with which a cheaper all-reduce gains nothing."""

    gaps: float = 1.0
    queued: bool = False
    transfer: Literal["likely", "most", "least"] = "likely"


class Times:
    """What was measured of a course's ops, prepared once for any number of changes."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._cycles, self._lane = course.cycles, course.lane
        self._phases, of = np.unique(_texts(course, "phase"), return_inverse=True)
        self._phase: Ints = of.reshape(-1)
        activity = _texts(course, "activity")
        self._compute: Bools = activity == "compute"
        self._start, end = course.flat("start"), course.flat("end")
        self._duration: Floats = (end - self._start).astype(np.float64)
        known: Ints = course.flat("transfer_ns")
        # A call that was not compared with all ranks' is transfer at most.
        self._most: Floats = np.where(known >= 0, np.minimum(known, self._duration), self._duration)
        self._size: Ints = course.flat("message_bytes")
        allreduce = course.flat("is_allreduce").astype(np.bool_)
        self._scaled = allreduce & self._of(SCALED_PHASES)
        self._forward = self._of(TARGET_FORWARD_PHASES)
        self._rows = self._of(ROW_PHASES)
        self._gathers = self._rows & (activity == "comm")
        self._allreduce = allreduce
        likely: Ints = course.flat("likely_ns")
        self._bounded = allreduce & (likely >= 0)
        self._likely: Floats = np.where(self._bounded, np.minimum(self._most, likely), self._most)
        self._meets = course.meeting >= 0
        self._rest = self._beyond(end, known)
        self._gap: Floats = course.flat("gap").astype(np.float64)
        self._queued: Floats | None = None
        self._tail = np.array([float(cycle.tail) for cycle in self._cycles])

    def _of(self, phases: Collection[str]) -> Bools:
        return np.isin(self._phases, sorted(phases))[self._phase]

    def _beyond(self, end: Ints, transfer: Ints) -> Floats:
        """What a meeting took beyond its transfer after the last rank had arrived: jitter of the ranks' ends."""
        origin = np.array([cycle.origin_ns for cycle in self._cycles])[self._lane]
        ops = np.flatnonzero(self._meets)
        meeting = self._course.meeting[ops]
        arrivals = np.full(int(meeting.max(initial=-1)) + 1, -np.inf)
        np.maximum.at(arrivals, meeting, (self._start + origin)[ops])
        rest = np.zeros(len(end))
        rest[ops] = (end + origin)[ops] - arrivals[meeting] - transfer[ops]
        return rest

    @property
    def curve_applies(self) -> bool:
        """Whether every all-reduce of the target's forward has a size that a curve can be read at."""
        return bool((self._size[self._allreduce & self._forward] > 0).all())

    def after(self, change: Change, case: Case, setting: Setting) -> NewTimes:
        """Times to replay the course with after ``change``."""
        before = self._before(change, case, setting)
        transfer = self._new_transfer(before, change, case)
        transfer = np.where(self._gathers, transfer * case.comm, transfer)
        wait = self._duration - before
        if change.wait_us is not None:
            wait = np.where(self._scaled, change.wait_us * 1e3, wait)
        scale = np.ones(len(transfer))
        for phase, factor in case.compute.items():
            scale = np.where(self._of([phase]) & self._compute, factor, scale)
        draft = self._of(["draft"])
        scale = np.where(draft, scale * case.draft, scale)
        rate = setting.gaps * (1.0 if change.idle is None else change.idle)
        gap = self._queued_gaps() if setting.queued else self._gap
        return NewTimes(
            gap=gap * np.where(draft, rate * case.draft, rate),
            duration=np.where(
                self._meets, np.maximum(transfer + self._most - before + self._rest, 0.0), transfer + wait
            )
            * scale,
            tail=self._tail * rate,
        )

    def _before(self, change: Change, case: Case, setting: Setting) -> Floats:
        """How much of every op is transfer today, in ns; the rest of an all-reduce is waiting."""
        if setting.transfer == "least":
            # What a new price leaves of a call is waiting already; a factor finds nothing to work on.
            left = self._new_transfer(np.zeros(len(self._most)), change, case)
            least: Floats = np.where(self._bounded, np.minimum(self._most, left), self._most)
            return least
        return self._most if setting.transfer == "most" else self._likely

    def _new_transfer(self, measured: Floats, change: Change, case: Case) -> Floats:
        """New transfer of every op in ns, as measured where it is no all-reduce that changes."""
        curve = change.allreduce_curve
        if change.allreduce_us is not None:
            return np.where(self._scaled, change.allreduce_us * 1e3, measured)
        if curve is None:
            return np.where(self._scaled & self._rows, measured * case.allreduce, measured)
        size = np.where(self._size > 0, self._size * np.where(self._rows, case.rows, 1.0), -1.0)
        sizes, of = np.unique(size, return_inverse=True)
        priced = np.array([curve.at(max(s, 0.0)) * 1e3 for s in sizes.tolist()])[of.reshape(-1)]
        # The draft's messages are no larger than the target's; how large is not always known.
        largest: Floats = np.full(len(self._cycles), -np.inf)
        forward = np.flatnonzero(self._forward & (size > 0))
        np.maximum.at(largest, self._lane[forward], size[forward])
        most: Floats = np.array([curve.at(s) * 1e3 if s > 0 else np.inf for s in largest.tolist()])
        guess = np.minimum(measured, most[self._lane])
        return np.where(self._scaled, np.where(size > 0, priced, guess), measured)

    def _queued_gaps(self) -> Floats:
        """Gaps of a host that runs ahead, lane by lane."""
        if self._queued is None:
            self._queued = self._gap.copy()
            for lane, cycle in enumerate(self._cycles):
                if cycle.late.any():
                    ops = slice(int(self._course.first[lane]), int(self._course.first[lane + 1]))
                    gap = self._gap[ops]
                    usual = gap[~cycle.late & (cycle.released >= 0)]
                    least = np.minimum(gap, np.median(usual) if len(usual) else 0.0)
                    self._queued[ops] = np.where(cycle.late, least, gap)
        return self._queued


def _texts(course: Course, name: str) -> npt.NDArray[np.str_]:
    parts = [getattr(cycle, name) for cycle in course.cycles if len(cycle.start)]
    return np.concatenate(parts) if parts else np.empty(0, np.str_)
