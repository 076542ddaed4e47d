"""What the weekly report says: the document ``profkit.weekly/1``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from profkit.comparison.changepoints import ChangePoint
from profkit.comparison.fingerprint import Difference
from profkit.comparison.kernels import KernelChange
from profkit.comparison.metrics import Better
from profkit.comparison.result import MetricComparison, Verdict
from profkit.quantity import Quantity

EventKind: TypeAlias = Literal["regression", "improvement", "environment", "noise", "missing"]
Cause: TypeAlias = Literal["code", "config", "environment", "workload", "noise", "unknown"]
Kept: TypeAlias = Literal["done", "not_done", "blocked", "cannot_say"]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a configuration in a week.

    ``cause`` is the class of what changed with it, ``unknown`` when nothing that the runs state did. ``triaged`` is the
    note of whoever looked into it.
    """

    kind: EventKind
    week: str
    config: str
    sentence: str
    cause: Cause
    metric: str | None = None
    reference: str | None = None  # the week it is measured against
    change: float | None = None
    low: float | None = None
    high: float | None = None
    evidence: tuple[str, ...] = ()
    counter_evidence: tuple[str, ...] = ()
    triaged: str | None = None

    def to_json(self) -> dict[str, object]:
        """The entry of ``events``."""
        interval = None if self.low is None or self.high is None else [_percent(self.low), _percent(self.high)]
        return {
            "kind": self.kind,
            "week": self.week,
            "config": self.config,
            "sentence": self.sentence,
            "cause": self.cause,
            "metric": self.metric,
            "reference_week": self.reference,
            "change_percent": _percent(self.change),
            "interval_percent": interval,
            "evidence": list(self.evidence),
            "counter_evidence": list(self.counter_evidence),
            "state": "triaged" if self.triaged else "open",
            "note": self.triaged,
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """One metric of a configuration this week, against the reference week, the best week and the goal."""

    name: str
    title: str
    better: Better
    current: Quantity
    reference_week: str | None
    comparison: MetricComparison | None
    best_week: str | None
    best: Quantity
    against_best: float | None
    goal: float | None = None

    def to_json(self) -> dict[str, object]:
        """The entry of ``metrics``."""
        c = self.comparison
        interval = [_percent(c.interval.low), _percent(c.interval.high)] if c and c.interval else None
        return {
            "name": self.name,
            "title": self.title,
            "unit": self.current.unit,
            "better": self.better,
            "current": self.current,
            "reference_week": self.reference_week,
            "base": c.base if c else None,
            "candidate": c.candidate if c else None,
            "change_percent": _percent(c.change) if c else None,
            "interval_percent": interval,
            "p": c.p if c else None,
            "p_adjusted": c.p_adjusted if c else None,
            "minimum_detectable_percent": _percent(c.minimum_detectable) if c else None,
            "verdict": c.verdict if c else "cannot_say",
            "why": c.why if c else "there is no earlier week to compare with",
            "best_week": self.best_week,
            "best": self.best,
            "against_best_percent": _percent(self.against_best),
            "goal": self.goal,
        }


@dataclass(frozen=True, slots=True)
class Point:
    """One week of a configuration's series of the primary metric."""

    week: str
    n: int
    median: float | None
    low: float | None
    high: float | None
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Drift:
    """Accept length on one dataset, this week and in the reference week; ``None``: not measured."""

    dataset: str
    n: int
    accept_len: float | None
    reference_n: int
    reference: float | None


@dataclass(frozen=True, slots=True)
class Economics:
    """A configuration against its baseline configuration at the same load."""

    baseline: str
    inflation: Quantity
    break_even_accept_len: Quantity
    accept_len: Quantity

    @property
    def pays(self) -> bool | None:
        """Whether speculation pays: accept length above its break-even; ``None`` when unknown."""
        if self.accept_len.value is None or self.break_even_accept_len.value is None:
            return None
        return self.accept_len.value > self.break_even_accept_len.value


@dataclass(frozen=True, slots=True)
class QualityWeek:
    """How much of the week's data was usable, all launches of a configuration together."""

    launches: int
    expected: int | None
    decode_lines: int | None
    damaged_lines: int | None
    flagged_lines: int | None
    cycles: int | None
    dropped_cycles: int | None
    unlabelled_share: float | None
    warnings: int


@dataclass(frozen=True, slots=True)
class ConfigurationWeek:
    """One configuration in the report's week."""

    name: str
    title: str
    owner: str | None
    verdict: Verdict
    sentence: str
    reference: str | None
    comparable: bool | None
    metrics: tuple[Standing, ...]
    events: tuple[Event, ...]
    history: tuple[Event, ...]
    moved: tuple[MetricComparison, ...]
    budget: tuple[MetricComparison, ...]
    kernels: tuple[KernelChange, ...]
    differences: tuple[Difference, ...]
    drift: tuple[Drift, ...]
    economics: Economics | None
    quality: QualityWeek
    series: tuple[Point, ...]
    weeks_on_system: int  # weeks with launches since the system last changed
    change_points: tuple[ChangePoint, ...] | None  # None: too few points to look for any
    warnings: tuple[str, ...] = ()

    def standing(self, name: str) -> Standing | None:
        """One metric by name."""
        return next((m for m in self.metrics if m.name == name), None)

    def to_json(self) -> dict[str, object]:
        """The entry of ``configurations``."""
        return {
            "name": self.name,
            "title": self.title,
            "owner": self.owner,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "reference_week": self.reference,
            "comparable": self.comparable,
            "metrics": list(self.metrics),
            "events": list(self.events),
            "history": list(self.history),
            "budget": list(self.budget),
            "kernels": list(self.kernels),
            "differences": list(self.differences),
            "acceptance": list(self.drift),
            "economics": {
                "baseline": self.economics.baseline,
                "inflation": self.economics.inflation,
                "break_even_accept_len": self.economics.break_even_accept_len,
                "accept_len": self.economics.accept_len,
                "speculation_pays": self.economics.pays,
            }
            if self.economics
            else None,
            "quality": self.quality,
            "series": list(self.series),
            "weeks_on_system": self.weeks_on_system,
            "change_points": None if self.change_points is None else list(self.change_points),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class PromiseKept:
    """A promise of last week and what became of it."""

    text: str
    owner: str | None
    kept: Kept
    why: str


@dataclass(frozen=True, slots=True)
class Experiment:
    """Launches that tried a lever: what the plan forecast and what came out."""

    lever: str
    config: str
    week: str
    n: int
    forecast: Quantity
    outcome: Quantity
    error: float | None  # outcome / forecast - 1
    within: bool | None  # inside the forecast's range
    verdict: Verdict
    why: str

    def to_json(self) -> dict[str, object]:
        """The entry of ``experiments``."""
        return {
            "lever": self.lever,
            "config": self.config,
            "week": self.week,
            "n": self.n,
            "forecast": self.forecast,
            "outcome": self.outcome,
            "error_percent": _percent(self.error),
            "within_range": self.within,
            "verdict": self.verdict,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A lever that a newer plan opened, closed or ranked anew."""

    config: str
    lever: str
    change: Literal["opened", "closed", "blocked", "unblocked", "reranked"]
    sentence: str


@dataclass(frozen=True, slots=True)
class Action:
    """One of at most three things to do next week."""

    text: str
    owner: str | None
    stop: str
    config: str


@dataclass(frozen=True, slots=True)
class Weekly:
    """The report of one week."""

    week: str
    weeks: tuple[str, ...]
    configurations: tuple[ConfigurationWeek, ...]
    promises: tuple[PromiseKept, ...]
    experiments: tuple[Experiment, ...]
    plan_changes: tuple[PlanChange, ...]
    actions: tuple[Action, ...]
    thresholds: Mapping[str, object]
    problems: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, object]:
        """The document ``profkit.weekly/1``."""
        return {
            "schema": "profkit.weekly/1",
            "week": self.week,
            "weeks": list(self.weeks),
            "configurations": list(self.configurations),
            "promises": list(self.promises),
            "experiments": list(self.experiments),
            "plan_changes": list(self.plan_changes),
            "next_week": list(self.actions),
            "thresholds": dict(self.thresholds),
            "problems": list(self.problems),
        }
