"""The lines around a decode line of one scheduler: prefills, idle time and profiling before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Lines: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

# Without prefill lines (a decode server of a disaggregated pair) idle time shows only in the step time it inflates.
_IDLE_FACTOR: Final = 4.0
_ALIKE: Final = 1.5


class RankContext:
    """State of one (server, ranks) sequence of decode lines; feed it stretches of the file in order."""

    def __init__(self, start_seen: bool) -> None:
        # The clock of the first line runs since the server's start.
        self._first = start_seen
        self._last_line = 0
        self._prefill_lines: Lines = np.empty(0, np.int64)
        self._prefill_idle: Mask = np.empty(0, bool)
        self._prefill_known = False
        self._reference = np.nan
        self._suspect = np.nan

    def read(
        self,
        lines: Lines,
        steps: npt.NDArray[np.float64],
        prefills: Sequence[tuple[Lines, Mask]],
        profile: Sequence[tuple[int, bool]],
    ) -> dict[str, Mask]:
        """Flags of the decode lines ``lines``; ``prefills`` are new prefill lines and whether each found no work."""
        before = np.concatenate([[self._last_line], lines[:-1]])
        self._prefill_lines = np.concatenate([self._prefill_lines, *(p[0] for p in prefills)])
        self._prefill_idle = np.concatenate([self._prefill_idle, *(p[1] for p in prefills)])
        first, last = np.searchsorted(self._prefill_lines, before), np.searchsorted(self._prefill_lines, lines)
        prefilled = last > first
        idle_until = np.concatenate([[0], np.cumsum(self._prefill_idle)])
        idle = idle_until[last] > idle_until[first]
        if self._first:
            idle[0] = True
            self._first = False
        self._prefill_known |= bool(len(self._prefill_lines))
        if not self._prefill_known:
            idle |= self._stalled(steps, idle)
        self._last_line = int(lines[-1])
        used = int(last[-1])
        self._prefill_lines, self._prefill_idle = self._prefill_lines[used:], self._prefill_idle[used:]
        return {"after_prefill": prefilled, "after_idle": idle, "profiling": _profiled(before, lines, profile)}

    def _stalled(self, steps: npt.NDArray[np.float64], known: Mask) -> Mask:
        """Lines whose step time is several times that of the line before: the clock ran on while nothing ran."""
        stalled = np.zeros(len(steps), bool)
        reference, suspect = self._reference, self._suspect
        for number, step in enumerate(steps.tolist()):
            if known[number] or step != step:
                continue
            # Two alike in a row are a new load, not a pause.
            if step > _IDLE_FACTOR * reference and not suspect / _ALIKE < step < suspect * _ALIKE:
                stalled[number], suspect = True, step
            else:
                reference, suspect = step, np.nan
        self._reference, self._suspect = reference, suspect
        return stalled


def _profiled(before: Lines, lines: Lines, profile: Sequence[tuple[int, bool]]) -> Mask:
    """Lines whose interval, from the line before to this one, touches a window from profile start to end."""
    inside = np.zeros(len(lines), bool)
    start: int | None = None
    for line, on in profile:
        if on and start is None:
            start = line
        elif not on and start is not None:
            inside |= (lines > start) & (before < line)
            start = None
    if start is not None:
        inside |= lines > start
    return inside
