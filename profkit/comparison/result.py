"""What a comparison yields: the document ``profkit.compare/1``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa

from profkit.comparison import statistics
from profkit.comparison.fingerprint import Difference
from profkit.comparison.kernels import KernelChange
from profkit.comparison.metrics import DEFAULT_PRIMARY, FALLBACK_PRIMARY, TARGET_FORWARD, Better
from profkit.words import ACTIVITIES, PHASES

if TYPE_CHECKING:
    import pandas as pd

Verdict: TypeAlias = Literal["better", "worse", "no_change", "cannot_say"]

_TEXT: pa.DataType = pa.string()
_INT: pa.DataType = pa.int64()
_FLOAT: pa.DataType = pa.float64()
_METRIC_TABLE = pa.schema([
    ("name", _TEXT), ("title", _TEXT), ("unit", _TEXT), ("better", _TEXT), ("role", _TEXT), ("running_req", _INT),
    ("base", _FLOAT), ("base_n", _INT), ("candidate", _FLOAT), ("candidate_n", _INT), ("change_percent", _FLOAT),
    ("interval_low_percent", _FLOAT), ("interval_high_percent", _FLOAT), ("p", _FLOAT), ("p_adjusted", _FLOAT),
    ("minimum_detectable_percent", _FLOAT), ("effect_size", _FLOAT), ("verdict", _TEXT), ("why", _TEXT),
])  # fmt: skip

# Fewer launches than this on a side cannot separate at p < 0.05 (three against three reach 0.1 at best).
MIN_LAUNCHES = 4
# A cell of the cycle budget below this share of the cycle is not tested: it would only cost the others power.
SMALL_CELL = 0.005


@dataclass(frozen=True, slots=True)
class Settings:
    """Thresholds of a comparison; effects are relative (0.03 is 3 %).

    ``fallback`` is the primary metric where no launch states ``primary`` (traces without a log), ``None`` for none.
    ``blind_above``: without a significant change, a minimum detectable effect above this is too coarse to call the
    sides equal, and the verdict is ``cannot_say``.
    """

    primary: str = DEFAULT_PRIMARY
    alpha: float = 0.05
    min_effect: float = 0.03
    blind_above: float = 0.10
    expect: tuple[str, ...] = ()
    fallback: str | None = FALLBACK_PRIMARY

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError("the significance level lies between 0 and 1")
        if self.min_effect < 0 or self.blind_above <= 0:
            raise ValueError("effects are positive shares, such as 0.03 for 3 %")


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a metric: one value per launch. ``within``: median over launches of (p10, p90) inside a launch."""

    values: tuple[float, ...]
    within: tuple[float, float] | None = None

    @property
    def n(self) -> int:
        """Number of launches."""
        return len(self.values)

    @property
    def median(self) -> float | None:
        """Median over launches, ``None`` without any."""
        return statistics.median(self.values) if self.values else None

    def to_json(self) -> dict[str, object]:
        """``{"n", "median", "values", "within_launch"}``."""
        within = {"p10": self.within[0], "p90": self.within[1]} if self.within else None
        return {"n": self.n, "median": self.median, "values": list(self.values), "within_launch": within}


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric on both sides. Relative figures are shares; the JSON form has percent."""

    name: str
    title: str
    unit: str
    better: Better
    role: Literal["primary", "secondary"]
    running_req: int | None
    base: Side
    candidate: Side
    change: float | None
    interval: statistics.Interval | None
    p: float | None
    p_adjusted: float | None
    minimum_detectable: float | None
    effect_size: float | None
    verdict: Verdict
    why: str

    def to_json(self) -> dict[str, object]:
        """The entry of ``metrics`` of ``profkit.compare/1``."""

        def percent(value: float | None) -> float | None:
            return None if value is None else 100.0 * value

        interval = self.interval
        return {
            "name": self.name,
            "title": self.title,
            "unit": self.unit,
            "better": self.better,
            "role": self.role,
            "running_req": self.running_req,
            "base": self.base,
            "candidate": self.candidate,
            "change_percent": percent(self.change),
            "interval_percent": [percent(interval.low), percent(interval.high)] if interval else None,
            "p": self.p,
            "p_adjusted": self.p_adjusted,
            "minimum_detectable_percent": percent(self.minimum_detectable),
            "effect_size": self.effect_size,
            "verdict": self.verdict,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of :func:`profkit.comparison.verdict.compare`.

    ``comparable`` is false when something differs that makes the figures answer another question than the caller's;
    then every verdict is ``cannot_say`` and the statistics remain as description.
    """

    base: tuple[str, ...]
    candidate: tuple[str, ...]
    comparable: bool
    differences: tuple[Difference, ...]
    primary: str
    metrics: tuple[MetricComparison, ...]
    kernels: tuple[KernelChange, ...]
    settings: Settings
    warnings: tuple[str, ...] = field(default=())

    def metric(self, name: str) -> MetricComparison | None:
        """One metric by name."""
        return next((m for m in self.metrics if m.name == name), None)

    @property
    def verdict(self) -> Verdict:
        """The verdict on the primary metric."""
        metric = self.metric(self.primary)
        return metric.verdict if metric else "cannot_say"

    @property
    def moved(self) -> tuple[MetricComparison, ...]:
        """Cells of the cycle budget that moved by over half a percent of the cycle, largest change first."""
        cells = [m for m in self.metrics if is_cell(m.name) and m.base.values and m.candidate.values]
        whole = max(sum(m.base.median or 0.0 for m in cells), sum(m.candidate.median or 0.0 for m in cells))
        large = [m for m in cells if abs(delta(m)) > SMALL_CELL * whole]
        return tuple(sorted(large, key=lambda m: (-abs(delta(m)), m.name)))

    def to_arrow(self) -> pa.Table:
        """One row per metric; nested figures flattened (``base_n``, ``interval_low_percent`` ...)."""
        rows = []
        for metric in self.metrics:
            row = metric.to_json()
            del row["interval_percent"]
            bounds = metric.interval
            low, high = (100 * bounds.low, 100 * bounds.high) if bounds else (None, None)
            for name, side in (("base", metric.base), ("candidate", metric.candidate)):
                row[name] = side.median
                row[f"{name}_n"] = side.n
            rows.append({**row, "interval_low_percent": low, "interval_high_percent": high})
        return pa.Table.from_pylist(rows, schema=_METRIC_TABLE)

    def to_pandas(self) -> pd.DataFrame:
        """:meth:`to_arrow` as a data frame."""
        return self.to_arrow().to_pandas()

    def to_json(self) -> dict[str, object]:
        """The document."""
        return {
            "schema": "profkit.compare/1",
            "base": list(self.base),
            "candidate": list(self.candidate),
            "comparable": self.comparable,
            "differences": list(self.differences),
            "primary": self.primary,
            "verdict": self.verdict,
            "settings": {
                "alpha": self.settings.alpha,
                "min_effect_percent": 100.0 * self.settings.min_effect,
                "blind_above_percent": 100.0 * self.settings.blind_above,
                "min_launches": MIN_LAUNCHES,
                "expect": list(self.settings.expect),
            },
            "metrics": list(self.metrics),
            "moved": [{"name": m.name, "delta": delta(m), "unit": m.unit, "verdict": m.verdict} for m in self.moved],
            "kernels": list(self.kernels),
            "warnings": list(self.warnings),
        }


def delta(metric: MetricComparison) -> float:
    """Candidate median minus base median, 0 when a side is empty."""
    base, candidate = metric.base.median, metric.candidate.median
    return 0.0 if base is None or candidate is None else candidate - base


def is_cell(name: str) -> bool:
    """Whether a metric is a cell of the cycle budget."""
    phase, _, activity = name.partition(".")
    return phase in (*PHASES, TARGET_FORWARD) and activity in ACTIVITIES
