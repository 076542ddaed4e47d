"""Conditions under which a comparison shall fail a build, such as ``worse:throughput:3%``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from profkit.comparison.metrics import metric_kind
from profkit.comparison.result import Comparison, MetricComparison
from profkit.errors import UsageError

_FORM = re.compile(r"(?P<kind>worse|cannot_say)(:(?P<metric>[^:%]+))?(:(?P<limit>\d+(\.\d+)?)%)?\Z")


@dataclass(frozen=True, slots=True)
class FailOn:
    """``worse``: the metric is significantly worse, by at least ``limit`` (a share); ``cannot_say``: no verdict.

    ``metric`` is ``None`` for the primary metric, ``limit`` for the comparison's own threshold.
    """

    kind: Literal["worse", "cannot_say"]
    metric: str | None = None
    limit: float | None = None


def parse_fail_on(text: str) -> FailOn:
    """Read ``worse``, ``worse:METRIC``, ``worse:METRIC:3%``, ``cannot_say`` or ``cannot_say:METRIC``.

    Raises:
        UsageError: any other form, or a metric that no rule knows.
    """
    match = _FORM.match(text.strip())
    if match is None or (match["kind"] == "cannot_say" and match["limit"]):
        raise UsageError(
            f"--fail-on {text!r}: write worse:METRIC:3%, worse:METRIC, worse, cannot_say or cannot_say:METRIC"
        )
    if match["metric"] and metric_kind(match["metric"]) is None:
        raise UsageError(f"--fail-on {text!r}: {match['metric']!r} is no metric; the JSON output lists their names")
    limit = float(match["limit"]) / 100 if match["limit"] else None
    return FailOn("worse" if match["kind"] == "worse" else "cannot_say", match["metric"], limit)


def _worse(metric: MetricComparison, limit: float, alpha: float) -> bool:
    if metric.change is None or metric.p_adjusted is None or metric.p_adjusted >= alpha:
        return False
    loss = -metric.change if metric.better == "higher" else metric.change
    return loss >= limit


def failures(comparison: Comparison, conditions: Sequence[FailOn]) -> list[str]:
    """One sentence per condition that holds.

    A condition ``worse`` does not hold where the comparison cannot say: ask for ``cannot_say`` to fail then too.
    """
    found = []
    for condition in conditions:
        name = condition.metric or comparison.primary
        metric = comparison.metric(name)
        if condition.kind == "cannot_say":
            if metric is None or metric.verdict == "cannot_say":
                found.append(f"{name}: cannot say ({metric.why if metric else 'no launch states it'})")
            continue
        limit = comparison.settings.min_effect if condition.limit is None else condition.limit
        if metric is None or metric.verdict == "cannot_say":
            continue
        if _worse(metric, limit, comparison.settings.alpha):
            found.append(f"{name}: worse by {abs(metric.change or 0.0):.1%}, the limit is {limit:.1%}")
    return found


def undecided(comparison: Comparison, conditions: Sequence[FailOn]) -> list[str]:
    """Metrics that a condition ``worse`` asks about and that have no verdict, with the reason."""
    names = dict.fromkeys(c.metric or comparison.primary for c in conditions if c.kind == "worse")
    found = []
    for name in names:
        metric = comparison.metric(name)
        if metric is None or metric.verdict == "cannot_say":
            found.append(f"{name}: cannot say whether it is worse ({metric.why if metric else 'no launch states it'})")
    return found
