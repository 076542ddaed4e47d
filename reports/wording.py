"""How reports word verdicts and write figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from profkit.attribution.result import Attribution, CollectiveSummary, CycleSummary
from profkit.comparison.result import MetricComparison, Verdict
from profkit.quantity import Quantity, RangeKind
from profkit.reports.palette import HEADLINE_NAMES
from profkit.words import HeadlinePart
from profkit.words import count as count

VERDICTS: Final[Mapping[Verdict, str]] = {
    "better": "Better",
    "worse": "Worse",
    "no_change": "No detectable change",
    "cannot_say": "Cannot say",
}
# What the ends of a range are.
RANGES: Final[Mapping[RangeKind, str]] = {"ci95": "95% interval", "p10_p90": "p10 to p90", "model": "model"}
NOT_KNOWN = "–"
_MINUS = "\N{MINUS SIGN}"


def figure(value: float | None, unit: str = "") -> str:
    """A figure with about four significant digits; a dash for unknown."""
    if value is None:
        return NOT_KNOWN
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 10 else 2 if size >= 1 or size == 0 else 3
    text = f"{value:,.{digits}f}".replace("-", _MINUS)
    return f"{text} {unit}".rstrip()


def ranged(quantity: Quantity) -> str:
    """``53.2 to 65.3, p10 to p90``: the range and what it is; empty where there is none, or none that shows."""
    if quantity.low is None or quantity.high is None or figure(quantity.low) == figure(quantity.high):
        return ""
    kind = RANGES[quantity.range] if quantity.range is not None else ""
    return f"{figure(quantity.low)} to {figure(quantity.high)}" + (f", {kind}" if kind else "")


def at_most(text: str, row: CollectiveSummary) -> str:
    """A transfer, behind the sign that says that it is only bounded from above."""
    return f"≤ {text}" if row.transfer_is == "upper_bound" and text != NOT_KNOWN else text


def at_least(text: str, row: CollectiveSummary) -> str:
    """What goes with a bounded transfer: a wait or a bandwidth that is at least this."""
    return f"≥ {text}" if row.transfer_is == "upper_bound" and text != NOT_KNOWN else text


def part_name(part: HeadlinePart, cycle: CycleSummary, *, prefills: bool = False) -> str:
    """What a part of the headline is called; without speculation the target's compute is that of decode.

    ``prefills``: no cycle is counted and prefills were recorded, so they are what else is computed.
    """
    decodes = any(cycle.parts_us["decode"].values()) and not any(cycle.parts_us["verify"].values())
    if part == "other" and prefills:
        return "prefill, other"
    return "decode compute" if part == "verify_compute" and decodes else HEADLINE_NAMES[part]


def prefills_only(result: Attribution) -> bool:
    """Whether no cycle is counted and prefills were recorded."""
    return result.cycle is None and any(r.dropped["prefill"] for r in result.ranks)


def percent(share: float | None, *, signed: bool = True) -> str:
    """A share as percent with one decimal."""
    if share is None:
        return NOT_KNOWN
    value = round(100 * share, 1) or 0.0  # no negative zero
    text = f"{value:+.1f}%" if signed and value else f"{value:.1f}%"
    return text.replace("-", _MINUS)


def p_value(p: float | None) -> str:
    """A p value with two significant digits."""
    return NOT_KNOWN if p is None else f"{p:.2g}" if p >= 0.0001 else "< 0.0001"


def launches(number: int) -> str:
    """``6 launches``."""
    return count(number, "launch", "launches")


def interval(metric: MetricComparison) -> str:
    """The interval of a change as ``-6.3% to -3.9%``."""
    if metric.interval is None:
        return NOT_KNOWN
    return f"{percent(metric.interval.low)} to {percent(metric.interval.high)}"


def change_sentence(metric: MetricComparison) -> str:
    """What happened to one metric, in one sentence without the verdict."""
    name = metric.title
    base, candidate = metric.base.median, metric.candidate.median
    if base is None or candidate is None:
        return f"{name}: {metric.why}"
    moved = f"{figure(base)} → {figure(candidate, metric.unit)}"
    if metric.change is None:
        return f"{name} {moved}"
    if metric.verdict in ("better", "worse"):
        direction = "rose" if metric.change > 0 else "fell"
        amount = percent(abs(metric.change), signed=False)
        statistics = f"95% interval {interval(metric)}; p {p_value(metric.p_adjusted)}"
        return f"{name} {direction} by {amount} ({moved}; {statistics})"
    return f"{name} {moved} ({percent(metric.change)}); {metric.why}"
