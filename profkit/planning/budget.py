"""The cycle budget: where the milliseconds of one cycle go, row by row, adding up to the wall."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from profkit.analysis import RunAnalysis
from profkit.attribution.result import Attribution, BatchSummary, CycleSummary
from profkit.planning.situation import part_us
from profkit.quantity import Quantity
from profkit.speculation import arm as arms
from profkit.words import PHASES, TARGET_FORWARD_PHASES, Activity, Phase

if TYPE_CHECKING:
    import pandas as pd

_FORWARD: Final = tuple(sorted(TARGET_FORWARD_PHASES))
_OTHERS: Final[tuple[Phase, ...]] = ("draft", "accept", "draft_extend", "other", "unlabelled")
# Rows of the budget: name, phases (all when empty), activity. Together they hold every cell of the matrix once.
ROWS: Final[tuple[tuple[str, tuple[Phase, ...], Activity], ...]] = (
    ("draft compute", ("draft",), "compute"),
    ("target's forward: compute", _FORWARD, "compute"),
    ("target's forward: all-reduce", _FORWARD, "allreduce"),
    ("accept and sampling", ("accept",), "compute"),
    ("draft extend", ("draft_extend",), "compute"),
    ("other all-reduce", _OTHERS, "allreduce"),
    ("other communication", PHASES, "comm"),
    ("copies", PHASES, "memory"),
    ("idle", PHASES, "idle"),
    ("other compute", ("other", "unlabelled"), "compute"),
)


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """One row of one arm: milliseconds per cycle with their spread, and the share of the cycle."""

    name: str
    time: Quantity
    share: float | None
    transfer: Quantity | None = None  # of the row with the target's all-reduces
    wait: Quantity | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of one run; no rows without a trace, and ``why`` says so."""

    name: str
    wall: Quantity
    rows: tuple[BudgetRow, ...]
    why: str = ""


def _counted(attribution: Attribution, batch_size: int | None) -> pd.DataFrame:
    """Cells (rank, cycle, phase, activity) of the counted cycles of a batch size."""
    parts = attribution.parts.to_pandas()
    chosen = parts[parts["counted"]]
    return chosen if batch_size is None else chosen[chosen["batch_size"] == batch_size]


def _per_cycle_ms(
    counted: pd.DataFrame, phases: Iterable[Phase], activity: Activity
) -> tuple[float, float, int] | None:
    """p10 and p90 over the counted cycles of all ranks, and their number."""
    keys = counted[["rank", "cycle"]].drop_duplicates()
    if keys.empty:
        return None
    cells = counted[counted["phase"].isin(list(phases)) & (counted["activity"] == activity)]
    sums = cells.groupby(["rank", "cycle"], dropna=False)["duration_ns"].sum().to_numpy(dtype=np.float64) / 1e6
    values = np.concatenate([sums, np.zeros(len(keys) - len(sums))])
    low, high = np.percentile(values, [10, 90])
    return float(low), float(high), len(values)


def _row(
    run: RunAnalysis,
    cycles: CycleSummary | BatchSummary,
    counted: pd.DataFrame,
    name: str,
    phases: tuple[Phase, ...],
    activity: Activity,
) -> BudgetRow:
    value = part_us(cycles, phases, activity) / 1e3
    spread = _per_cycle_ms(counted, phases, activity)
    low, high, n = spread if spread is not None else (value, value, 0)
    source = f"{run.name}: trace, {' + '.join(p for p in phases if phases != PHASES) or 'all phases'}, {activity}"
    time = Quantity(value, "ms", "measured", source, low, high, "p10_p90", n)
    transfer = wait = None
    if activity == "allreduce" and phases == _FORWARD:
        calls = arms.target_allreduce(run)
        if calls and all(c.wait_us is not None for c in calls):
            waited = min(sum((c.wait_us or 0.0) * c.calls for c in calls) / 1e3, value)
            sure = all(c.transfer_is == "measured" for c in calls)
            wait = Quantity(waited, "ms", "measured", f"{run.name}: duration over the fastest rank's, per call")
            transfer = Quantity(value - waited, "ms", "derived", f"{run.name}: all-reduce less the wait")
            if not sure:  # a rank that is missing may have come last
                text = f"{run.name}: not all ranks of the group are here, the wait is at least this"
                wait = Quantity(waited, "ms", "derived", text, waited, value, "model")
                transfer = Quantity(value - waited, "ms", "derived", text, 0.0, value - waited, "model")
    return BudgetRow(name, time, value / (cycles.wall_us.mean / 1e3), transfer, wait)


def budget(run: RunAnalysis, running_req: int | None) -> Budget:
    """The budget of ``run`` at a load; its rows add up to the wall of the traced cycle."""
    cycles = arms.traced(run, running_req)
    if cycles is None:
        why = f"{run.name}: {arms.why_untraced(run, running_req)}, so the cycle cannot be split"
        return Budget(run.name, Quantity.unknown("ms", why), (), why)
    wall = cycles.wall_us
    count = cycles.count if isinstance(cycles, CycleSummary) else cycles.cycles
    total = Quantity(
        wall.mean / 1e3, "ms", "measured", f"{run.name}: trace, mean cycle over all ranks", wall.p10 / 1e3,
        wall.p90 / 1e3, "p10_p90", count,
    )  # fmt: skip
    assert run.attribution is not None
    counted = _counted(run.attribution, cycles.batch_size)
    rows = tuple(_row(run, cycles, counted, *spec) for spec in ROWS)
    return Budget(run.name, total, rows)
