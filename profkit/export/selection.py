"""Choosing cycles to show: the median, the worst, the n-th, all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from profkit.attribution.result import Attribution
from profkit.errors import UsageError

WORDS = ("median", "worst", "all")


@dataclass(frozen=True, slots=True)
class ChosenCycle:
    """One cycle on every rank of a group that has it; ranks of other groups run cycles of their own.

    ``number`` is the ordinal that the ranks share (each rank's own where they could not be aligned); ``members`` maps
    the position of an input to its row of the cycles table (``cycle``, ``start_ns``, ``end_ns``, ``batch_size``,
    ``kind``).
    """

    number: int
    members: dict[int, dict[str, Any]]

    @property
    def wall_ns(self) -> int:
        """The longest wall over the ranks."""
        return max(int(m["end_ns"]) - int(m["start_ns"]) for m in self.members.values())

    @property
    def counted(self) -> bool:
        """Whether every rank counts it in its means."""
        return all(m["kind"] == "counted" for m in self.members.values())

    @property
    def batch_size(self) -> int | None:
        """The batch size, where the ranks agree on one."""
        sizes = {m["batch_size"] for m in self.members.values()}
        size = sizes.pop() if len(sizes) == 1 else None
        return None if size is None else int(size)


def rank_positions(result: Attribution) -> dict[int, int]:
    """The position of the input that rows of the tables call by this rank number."""
    numbers = [c.rank for c in result.clock_offsets_us]
    return {n: i for i, n in enumerate(numbers)}


def cycles_over_ranks(result: Attribution) -> list[ChosenCycle]:
    """All cycles in order, each with its member on every rank of its group."""
    where = rank_positions(result)
    table: pd.DataFrame = result.cycles.to_pandas()
    aligned = bool(len(table)) and bool(table["aligned_cycle"].notna().all())
    found: dict[tuple[int, int], dict[int, dict[str, Any]]] = {}
    for row in result.cycles.to_pylist():
        number, place = row["aligned_cycle"] if aligned else row["cycle"], where[row["rank"]]
        found.setdefault((int(number), result.ranks[place].group), {})[place] = row
    return [ChosenCycle(number, dict(sorted(found[number, group].items()))) for number, group in sorted(found)]


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
    return (_typical(result, cycles, worst=which == "worst"),) if cycles else ()


def _typical(result: Attribution, cycles: list[ChosenCycle], *, worst: bool) -> ChosenCycle:
    size = result.cycle.batch_size if result.cycle else None
    most = max(len(c.members) for c in cycles)
    usual = [c for c in cycles if c.counted and c.batch_size == size and len(c.members) == most]
    usual = usual or [c for c in cycles if c.counted] or cycles
    by_wall = sorted(usual, key=lambda c: (c.wall_ns, c.number))
    return by_wall[-1] if worst else by_wall[(len(by_wall) - 1) // 2]
