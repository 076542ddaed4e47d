"""Choosing cycles to show: the median, the worst, the n-th, all."""

from __future__ import annotations

from profkit.attribution.result import Attribution
from profkit.attribution.views import ChosenCycle, cycles_over_ranks, typical_cycle
from profkit.errors import UsageError

WORDS = ("median", "worst", "all")


def choose(result: Attribution, which: str) -> tuple[ChosenCycle, ...]:
    """Cycles to show: ``median`` and ``worst`` by wall among the headline's cycles, a number, or ``all``.

    Raises:
        UsageError: another word, or no cycle of this number.
    """
    cycles = cycles_over_ranks(result)
    if which == "all":
        return tuple(cycles)
    if which not in WORDS:
        if not which.isdecimal():
            raise UsageError(f"--cycle {which}: give median, worst, all or the number of a cycle")
        chosen = [c for c in cycles if c.number == int(which)]
        if not chosen:
            numbers = f"cycles {cycles[0].number} to {cycles[-1].number}" if cycles else "no cycle"
            raise UsageError(f"--cycle {which}: there is no such cycle, these traces hold {numbers}")
        return tuple(chosen)
    return (typical_cycle(result, cycles, worst=which == "worst"),) if cycles else ()
