"""One configuration in one week: against which week it is measured, and what is to be made of the difference."""

from __future__ import annotations

from dataclasses import dataclass

from profkit.comparison.fingerprint import GATED, Difference, differences
from profkit.comparison.result import Comparison, MetricComparison, Verdict
from profkit.comparison.verdict import compare
from profkit.week import monday
from profkit.weekly.history import History

# For earlier weeks only what names an event is computed.
BRIEF = ("accept_len",)
# Nearer weeks are what the ordinary comparison is for.
DRIFT_WEEKS = 3


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
    slow: bool = False  # against the start of the stretch: no single week stepped far enough to be seen

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


def slow_drift(history: History, name: str, judged: Judged, since: str) -> Judged | None:
    """The week against the first good one from ``since`` on, when it differs though no step between weeks showed it.

    ``since`` is the week of the last named change, so that a change is not named again week after week; the first good
    week and not the best one is taken, since the best of many is partly luck. ``None`` without such a drift.
    """
    if judged.verdict != "no_change" or judged.reference is None:
        return None
    start = next(
        (
            week
            for week in history.weeks
            if monday(since) <= monday(week) < monday(judged.week)
            and history.enough(name, week)
            and not history.noisy(name, week)
            and not breaks(history, name, week, judged.week)
        ),
        None,
    )
    if start is None or (monday(judged.week) - monday(start)).days < 7 * DRIFT_WEEKS:
        return None
    launches = history.launches(name, judged.week)
    comparison = compare(history.launches(name, start), launches, history.config.thresholds.settings())
    verdict, why = _verdict(comparison, judged.noisy)
    if verdict not in ("better", "worse"):
        return None
    return Judged(judged.week, start, comparison, judged.breaks, judged.noisy, verdict, why, slow=True)
