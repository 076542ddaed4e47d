"""Kernel classes per cycle, and what about them differs between two sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from profkit.attribution.result import Attribution
from profkit.comparison.statistics import median

if TYPE_CHECKING:
    import pandas as pd

# Below this share of the cycle a kernel class is not worth a line.
SMALL_SHARE = 0.005
# A class counts as changed when its calls or its time move by more than this.
CHANGED_BY = 0.10

Change: TypeAlias = Literal["appeared", "vanished", "changed"]


@dataclass(frozen=True, slots=True)
class KernelRow:
    """GPU ops of one class in one phase: mean over counted cycles of the headline batch size, all ranks pooled.

    ``us_per_cycle`` adds up durations, so overlapping kernels count twice here; the cycle budget does not.
    """

    phase: str
    kernel_class: str
    implementation: str | None
    calls_per_cycle: float
    us_per_cycle: float
    batch_size: int | None = None


@dataclass(frozen=True, slots=True)
class KernelChange:
    """A kernel class that appeared, vanished or changed; medians over launches, ``None`` where it did not run."""

    phase: str
    kernel_class: str
    implementation: str | None
    change: Change
    base_calls: float | None
    candidate_calls: float | None
    base_us: float | None
    candidate_us: float | None

    def to_json(self) -> dict[str, object]:
        """The entry of ``kernels``."""
        return {
            "phase": self.phase,
            "kernel_class": self.kernel_class,
            "implementation": self.implementation,
            "change": self.change,
            "base": {"calls_per_cycle": self.base_calls, "us_per_cycle": self.base_us},
            "candidate": {"calls_per_cycle": self.candidate_calls, "us_per_cycle": self.candidate_us},
        }


def _counted(cycles: pa.Table, batch_size: int | None) -> pd.DataFrame:
    frame = cycles.select(["rank", "cycle", "batch_size", "kind"]).to_pandas()
    frame = frame[frame["kind"] == "counted"]
    same = frame["batch_size"].isna() if batch_size is None else frame["batch_size"] == batch_size
    return frame[same]


def kernel_rows(attribution: Attribution) -> tuple[KernelRow, ...]:
    """Kernel classes of the headline cycles, largest first; empty without counted cycles."""
    if attribution.cycle is None:
        return ()
    import pandas as pd  # reading a store needs none of this

    load = attribution.cycle.batch_size
    counted = _counted(attribution.cycles, load)
    if counted.empty:
        return ()
    frames = []
    for rank, ops in zip(attribution.ranks, attribution.ops, strict=True):
        wanted = set(counted.loc[counted["rank"] == rank.number, "cycle"])
        frame = pd.DataFrame(
            {
                "cycle": ops["cycle"].to_pandas(),
                "us": (ops["end_ns"].to_numpy() - ops["start_ns"].to_numpy()) / 1e3,
                "phase": ops["phase"].cast(pa.string()).to_pandas(),
                "kernel_class": ops["kernel_class"].cast(pa.string()).to_pandas(),
                "implementation": ops["implementation"].cast(pa.string()).to_pandas(),
            }
        )
        frames.append(frame[frame["cycle"].isin(wanted)])
    ops_frame = pd.concat(frames)
    ops_frame = ops_frame.fillna({"kernel_class": "unknown", "implementation": ""})
    groups = ops_frame.groupby(["phase", "kernel_class", "implementation"], sort=True)["us"].agg(["size", "sum"])
    rows = [
        KernelRow(str(phase), str(name), str(how) or None, size / len(counted), us / len(counted), load)
        for (phase, name, how), (size, us) in zip(groups.index, groups.to_numpy(float).tolist(), strict=True)
    ]
    return tuple(sorted(rows, key=lambda r: (-r.us_per_cycle, r.phase, r.kernel_class, r.implementation or "")))


def same_load(launches: Sequence[Sequence[KernelRow]]) -> bool:
    """Whether the traces of all launches are headed by the same batch size; others cannot be compared."""
    return len({row.batch_size for rows in launches for row in rows}) <= 1


Key: TypeAlias = tuple[str, str, str | None]


def _side(launches: Sequence[Sequence[KernelRow]]) -> dict[Key, tuple[int, float, float]]:
    """Per class: in how many launches it ran, median calls and median time over those."""
    seen: dict[Key, list[KernelRow]] = {}
    for rows in launches:
        for row in rows:
            seen.setdefault((row.phase, row.kernel_class, row.implementation), []).append(row)
    return {
        key: (len(rows), median([r.calls_per_cycle for r in rows]), median([r.us_per_cycle for r in rows]))
        for key, rows in seen.items()
    }


def _total(launches: Sequence[Sequence[KernelRow]]) -> float:
    return float(np.median([sum(r.us_per_cycle for r in rows) for rows in launches]))


def kernel_changes(
    base: Sequence[Sequence[KernelRow]], candidate: Sequence[Sequence[KernelRow]]
) -> tuple[KernelChange, ...]:
    """Classes that run in every launch of one side and none of the other, or whose medians moved by over 10 %.

    A description, not a test: small classes are left out, and launches without a trace must not be passed in.
    Traces of different batch sizes are not compared.
    """
    if not base or not candidate or not same_load([*base, *candidate]):
        return ()
    before, after = _side(base), _side(candidate)
    floor = SMALL_SHARE * max(_total(base), _total(candidate))
    found: list[KernelChange] = []
    for key in before.keys() | after.keys():
        old_n, old_calls, old_us = before.get(key, (0, 0.0, 0.0))
        new_n, new_calls, new_us = after.get(key, (0, 0.0, 0.0))
        if max(old_us, new_us) < floor:
            continue
        change: Change | None = None
        if old_n == 0 and new_n == len(candidate):
            change = "appeared"
        elif new_n == 0 and old_n == len(base):
            change = "vanished"
        elif old_n and new_n and _moved(old_calls, new_calls, old_us, new_us, floor):
            change = "changed"
        if change:
            found.append(
                KernelChange(
                    *key,
                    change,
                    old_calls if old_n else None,
                    new_calls if new_n else None,
                    old_us if old_n else None,
                    new_us if new_n else None,
                )
            )

    def size(row: KernelChange) -> float:
        return -abs((row.candidate_us or 0.0) - (row.base_us or 0.0))

    return tuple(sorted(found, key=lambda r: (size(r), r.phase, r.kernel_class, r.implementation or "")))


def _moved(old_calls: float, new_calls: float, old_us: float, new_us: float, floor: float) -> bool:
    calls = abs(new_calls - old_calls) > CHANGED_BY * max(old_calls, new_calls)
    time = abs(new_us - old_us) > max(CHANGED_BY * max(old_us, new_us), floor)
    return calls or time
