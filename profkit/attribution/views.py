"""Slices of an attribution that plots and viewers show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from profkit.attribution.result import Attribution
from profkit.words import Activity, Phase

# More ranks than this make lanes too thin to read.
MOST_RANKS = 16


@dataclass(frozen=True, slots=True)
class Lane:
    """One rank's share of a cycle: segments as (start us, length us, phase, activity), from the cycle's start.

    ``cycle`` is the ordinal that the ranks share (the rank's own where they could not be aligned).
    """

    rank: int
    name: str
    cycle: int
    wall_us: float
    segments: tuple[tuple[float, float, Phase, Activity], ...]


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
    found: dict[tuple[int, int], dict[int, dict[str, Any]]] = {}
    for row in result.cycles.to_pylist():
        # The ranks of a group were aligned all or none.
        number = row["cycle"] if row["aligned_cycle"] is None else row["aligned_cycle"]
        place = where[row["rank"]]
        found.setdefault((int(number), result.ranks[place].group), {})[place] = row
    return [ChosenCycle(number, dict(sorted(found[number, group].items()))) for number, group in sorted(found)]


def typical_cycle(result: Attribution, cycles: list[ChosenCycle], *, worst: bool = False) -> ChosenCycle:
    """The cycle in the middle by wall among the headline's cycles that most ranks have, or the slowest of them."""
    size = result.cycle.batch_size if result.cycle else None
    most = max(len(c.members) for c in cycles)
    usual = [c for c in cycles if c.counted and c.batch_size == size and len(c.members) == most]
    usual = usual or [c for c in cycles if c.counted] or cycles
    by_wall = sorted(usual, key=lambda c: (c.wall_ns, c.number))
    return by_wall[-1] if worst else by_wall[(len(by_wall) - 1) // 2]


def median_cycle(result: Attribution) -> tuple[Lane, ...]:
    """The median cycle of the headline on every rank of its group that has it, as pages and other viewers show it.

    Ranks are lined up at the cycle's start on each of them. Without aligned cycles only the first rank is shown.
    """
    if result.cycle is None:
        return ()
    chosen = typical_cycle(result, cycles_over_ranks(result))
    members = list(chosen.members.items())
    if any(row["aligned_cycle"] is None for _, row in members):
        members = members[:1]
    segments = result.segments.to_pandas()
    return tuple(_lane(chosen.number, row, segments, result.ranks[place].name) for place, row in members[:MOST_RANKS])


def _lane(number: int, row: dict[str, Any], segments: pd.DataFrame, name: str) -> Lane:
    mine = segments[(segments["rank"] == row["rank"]) & (segments["cycle"] == row["cycle"])]
    start = int(row["start_ns"])
    return Lane(
        rank=int(row["rank"]),
        name=name,
        cycle=number,
        wall_us=(int(row["end_ns"]) - start) / 1000.0,
        segments=tuple(
            ((s - start) / 1000.0, (e - s) / 1000.0, p, a)
            for s, e, p, a in zip(mine["start_ns"], mine["end_ns"], mine["phase"], mine["activity"], strict=True)
        ),
    )


def walls_by_batch(result: Attribution) -> dict[int | None, list[float]]:
    """Walls of counted cycles in ms by batch size, all ranks, in order of rank and time."""
    walls: dict[int | None, list[float]] = {}
    for row in result.cycles.to_pylist():
        if row["kind"] == "counted":
            walls.setdefault(row["batch_size"], []).append((row["end_ns"] - row["start_ns"]) / 1e6)
    return walls
