"""Slices of an attribution that plots and viewers show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from profkit.attribution.result import Attribution
from profkit.words import Activity, Phase

# More ranks than this make lanes too thin to read.
MOST_RANKS = 16


@dataclass(frozen=True, slots=True)
class Lane:
    """One rank's share of a cycle: segments as (start us, length us, phase, activity), from the cycle's start."""

    rank: int
    name: str
    cycle: int
    wall_us: float
    segments: tuple[tuple[float, float, Phase, Activity], ...]


def median_cycle(result: Attribution) -> tuple[Lane, ...]:
    """The cycle whose wall is nearest to the median of the headline's cycles, on every rank of its group that has it.

    Ranks are lined up at the cycle's start on each of them. Without aligned cycles only the first rank is shown.
    """
    if result.cycle is None:
        return ()
    cycles = result.cycles.to_pandas()
    size = result.cycle.batch_size
    same = cycles["batch_size"].isna() if size is None else cycles["batch_size"] == size
    counted = cycles[(cycles["kind"] == "counted") & same].copy()
    counted["wall"] = counted["end_ns"] - counted["start_ns"]
    first = counted[counted["rank"] == counted["rank"].iloc[0]]
    chosen = first.iloc[int((first["wall"] - np.median(counted["wall"])).abs().argmin())]
    if pd.isna(chosen["aligned_cycle"]):
        rows = first[first["cycle"] == chosen["cycle"]]
    else:
        # Ordinals are shared within a group: another group's cycle of the same number is another cycle.
        group = {r.number: r.group for r in result.ranks}
        same_group = counted["rank"].map(group) == group[int(chosen["rank"])]
        rows = counted[(counted["aligned_cycle"] == chosen["aligned_cycle"]) & same_group].head(MOST_RANKS)
    segments = result.segments.to_pandas()
    names = {r.number: r.name for r in result.ranks}
    return tuple(_lane(row, segments, names[int(row["rank"])]) for _, row in rows.iterrows())


def _lane(row: Any, segments: pd.DataFrame, name: str) -> Lane:
    mine = segments[(segments["rank"] == row["rank"]) & (segments["cycle"] == row["cycle"])]
    start = int(row["start_ns"])
    return Lane(
        rank=int(row["rank"]),
        name=name,
        cycle=int(row["cycle"]),
        wall_us=float(row["wall"]) / 1000.0,
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
