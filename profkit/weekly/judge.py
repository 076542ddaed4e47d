"""One configuration in one week: against which week it is measured, and what is to be made of the difference."""

from __future__ import annotations

from dataclasses import dataclass

from profkit.comparison.fingerprint import GATED, Difference, differences
from profkit.comparison.result import Comparison, MetricComparison, Verdict
from profkit.comparison.verdict import compare
from profkit.weekly.history import History

# For earlier weeks only what names an event is computed.
BRIEF = ("accept_len",)


@dataclass(frozen=True, slots=True)
class Judged:
    """``comparison`` is ``None`` when there is no launch this week or no earlier week."""

    week: str
    reference: str | None
    comparison: Comparison | None
    breaks: tuple[Difference, ...]  # environment or workload against the week before
    noisy: bool
    verdict: Verdict
    why: str

    @property
    def primary(self) -> MetricComparison | None:
        """The primary metric's comparison."""
        return self.comparison.metric(self.comparison.primary) if self.comparison else None


def _prints(history: History, name: str, week: str) -> list[dict[str, str | int | float | bool]]:
    return [dict(x.fingerprint) for x in history.launches(name, week)]


def breaks(history: History, name: str, base: str, week: str) -> tuple[Difference, ...]:
    """Differences of environment or workload between two weeks that both state the key."""
    found = differences(_prints(history, name, base), _prints(history, name, week))
    return tuple(d for d in found if d.cause in GATED and d.state == "blocking")


def reference_week(history: History, name: str, week: str) -> str | None:
    """The latest earlier week with enough launches, quiet, and on the same system.

    When there is none: the latest earlier week with launches at all, and the comparison will say what is wrong with it.
    """
    earlier = history.before(name, week)
    for candidate in earlier:
        quiet = history.enough(name, candidate) and not history.noisy(name, candidate)
        if quiet and not breaks(history, name, candidate, week):
            return candidate
    return earlier[0] if earlier else None


def _verdict(comparison: Comparison, noisy: bool) -> tuple[Verdict, str]:
    """The primary verdict, taken back in a noisy week unless the change exceeds even that week's noise."""
    metric = comparison.metric(comparison.primary)
    if metric is None:
        return "cannot_say", "no launch states the primary metric"
    detectable = metric.minimum_detectable
    if noisy and (metric.change is None or detectable is None or abs(metric.change) < detectable):
        return "cannot_say", "the launches of this week scatter too much to tell a change from noise"
    return metric.verdict, metric.why


def judge(history: History, name: str, week: str, *, full: bool) -> Judged:
    """Judge a configuration's week; ``full`` compares all metrics, else the primary one and accept length."""
    launches = history.launches(name, week)
    earlier = history.before(name, week)
    if not launches:
        return Judged(week, None, None, (), False, "cannot_say", "there is no run in this week")
    noisy = history.noisy(name, week)
    reference = reference_week(history, name, week)
    if reference is None:
        return Judged(week, None, None, (), noisy, "cannot_say", "there is no earlier week to compare with")
    comparison = compare(
        history.launches(name, reference),
        launches,
        history.config.thresholds.settings(),
        only=None if full else BRIEF,
    )
    verdict, why = _verdict(comparison, noisy)
    return Judged(week, reference, comparison, breaks(history, name, earlier[0], week), noisy, verdict, why)
