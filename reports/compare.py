"""A comparison as a markdown comment and as terminal text."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.comparison.fingerprint import Difference, Scalar
from profkit.comparison.kernels import KernelChange
from profkit.comparison.result import Comparison, MetricComparison, delta
from profkit.escape import visible
from profkit.reports.templating import render
from profkit.reports.wording import (
    NOT_KNOWN,
    VERDICTS,
    change_sentence,
    count,
    figure,
    interval,
    launches,
    p_value,
    percent,
)

LISTED_DIFFERENCES = 12
LISTED_MOVES = 4
LISTED_KERNELS = 12
_STATES = {
    "expected": "expected",
    "blocking": "not expected: makes the sides incomparable",
    "listed": "is it what you meant to change?",
    "unknown": "one side does not state it",
}


def headline(comparison: Comparison) -> str:
    """The verdict in one sentence."""
    metric = comparison.metric(comparison.primary)
    word = VERDICTS[comparison.verdict]
    return word + (f": {change_sentence(metric)}." if metric else ".")


def _value(values: tuple[Scalar | None, ...]) -> str:
    return " / ".join("not stated" if v is None else visible(str(v), 60) for v in values)


def difference_line(difference: Difference) -> str:
    """``driver.version: 580.95 → 585.10 (environment; expected)``."""
    if set(difference.base) == set(difference.candidate):
        # The sides agree: what differs are the launches within each.
        why = "not every launch states it" if difference.state == "unknown" else "launches of one side are no repeats"
        return (
            f"{visible(difference.key)}: {_value(difference.base)} within each side "
            f"({difference.cause}; {'expected' if difference.state == 'expected' else why})"
        )
    return (
        f"{visible(difference.key)}: {_value(difference.base)} → {_value(difference.candidate)} "
        f"({difference.cause}; {_STATES[difference.state]})"
    )


def _milliseconds(us: float) -> str:
    return f"{us / 1000:+.2f} ms".replace("-", "\N{MINUS SIGN}")


def move_line(metric: MetricComparison) -> str:
    """``verify: all-reduce +1.90 ms per cycle (25.00 -> 26.90 ms)``."""
    base, candidate = metric.base.median or 0.0, metric.candidate.median or 0.0
    return (
        f"{metric.title} {_milliseconds(delta(metric))} per cycle "
        f"({base / 1000:.2f} → {candidate / 1000:.2f} ms; {VERDICTS[metric.verdict].lower()}; "
        f"{metric.base.n} and {metric.candidate.n} traced launches)"
    )


def kernel_line(change: KernelChange) -> str:
    """What happened to one kernel class."""
    how = f" ({visible(change.implementation)})" if change.implementation else ""
    name = f"{visible(change.kernel_class)}{how} in {change.phase}"
    if change.change == "appeared":
        return f"{name} appeared: {figure(change.candidate_calls)} calls, {figure(change.candidate_us, 'us')} per cycle"
    if change.change == "vanished":
        return f"{name} vanished: was {figure(change.base_calls)} calls, {figure(change.base_us, 'us')} per cycle"
    return (
        f"{name}: {figure(change.base_calls)} → {figure(change.candidate_calls)} calls, "
        f"{figure(change.base_us)} → {figure(change.candidate_us, 'us')} per cycle"
    )


def _shown(differences: Sequence[Difference]) -> tuple[list[Difference], int, int]:
    """Differences worth a line, blocking ones first; how many more there are; how many one side does not state.

    What one side does not state is listed only where it leaves room: two releases differ in the flags they know.
    """
    order = ("blocking", "expected", "listed")
    stated = sorted((d for d in differences if d.state in order), key=lambda d: order.index(d.state))
    unstated = [d for d in differences if d.state == "unknown"]
    shown = stated[:LISTED_DIFFERENCES]
    if len(stated) + len(unstated) <= LISTED_DIFFERENCES:
        return [*shown, *unstated], 0, 0
    return shown, len(stated) - len(shown), len(unstated)


def _more_differences(more: int, unstated: int) -> list[str]:
    lines = [f"{count(more, 'more key')} (see --format json)"] if more else []
    if unstated:
        lines.append(f"{count(unstated, 'key')} that one side does not state (see --format json)")
    return lines


def _split(comparison: Comparison) -> tuple[list[MetricComparison], list[str]]:
    """Metrics with a figure on some side, and one sentence per reason why the others have none."""
    silent: dict[str, int] = {}
    for metric in comparison.metrics:
        if not metric.base.n and not metric.candidate.n and metric.role != "primary":
            silent[metric.why] = silent.get(metric.why, 0) + 1
    told = [m for m in comparison.metrics if m.base.n or m.candidate.n or m.role == "primary"]
    return told, [f"{count(n, 'metric')} left out: {why}" for why, n in silent.items()]


def within_line(metric: MetricComparison) -> str | None:
    """The spread inside launches, which describes and proves nothing."""
    sides = [
        f"{name} {figure(side.within[0])} to {figure(side.within[1], metric.unit)}"
        for name, side in (("base", metric.base), ("candidate", metric.candidate))
        if side.within is not None
    ]
    return "p10 to p90 inside a launch: " + ", ".join(sides) if sides else None


def _row(metric: MetricComparison) -> list[str]:
    return [
        metric.title + (" (primary)" if metric.role == "primary" else ""),
        NOT_KNOWN if metric.running_req is None else str(metric.running_req),
        f"{figure(metric.base.median)} ({metric.base.n})",
        f"{figure(metric.candidate.median, metric.unit)} ({metric.candidate.n})",
        percent(metric.change),
        interval(metric),
        p_value(metric.p_adjusted),
        percent(metric.minimum_detectable, signed=False),
        VERDICTS[metric.verdict].lower(),
    ]


COLUMNS = ("metric", "load", "base (n)", "candidate (n)", "change", "95% interval", "p", "smallest seen", "verdict")


def markdown_comment(comparison: Comparison, title: str = "profkit compare") -> str:
    """The comparison as a comment for a pull request."""
    shown, more, unstated = _shown(comparison.differences)
    primary = comparison.metric(comparison.primary)
    told, silent = _split(comparison)
    return render(
        "compare.md.j2",
        {
            "title": title,
            "headline": headline(comparison),
            "comparison": comparison,
            "bases": launches(len(comparison.base)),
            "candidates": launches(len(comparison.candidate)),
            "moves": [move_line(m) for m in comparison.moved[:LISTED_MOVES]],
            "differences": [*(difference_line(d) for d in shown), *_more_differences(more, unstated)],
            "kernels": [kernel_line(k) for k in comparison.kernels[:LISTED_KERNELS]],
            "more_kernels": max(0, len(comparison.kernels) - LISTED_KERNELS),
            "within": within_line(primary) if primary and primary.verdict == "cannot_say" else None,
            "columns": COLUMNS,
            "rows": [_row(m) for m in told],
            "silent": silent,
        },
    )


TERMINAL_COLUMNS = ("metric", "base", "candidate", "unit", "change", "95% interval", "p", "seen from", "n", "verdict")


def _terminal_row(metric: MetricComparison) -> list[str]:
    bounds = metric.interval
    return [
        visible(metric.title) + (" *" if metric.role == "primary" else ""),
        figure(metric.base.median),
        figure(metric.candidate.median),
        visible(metric.unit),
        percent(metric.change),
        NOT_KNOWN if bounds is None else f"{percent(bounds.low)} to {percent(bounds.high)}",
        p_value(metric.p_adjusted),
        percent(metric.minimum_detectable, signed=False),
        f"{metric.base.n}, {metric.candidate.n}",
        metric.verdict.replace("_", " "),
    ]


def _aligned(rows: list[list[str]]) -> list[str]:
    """Columns under each other, without those that say nothing in any row."""
    telling = [i for i in range(len(rows[0])) if any(row[i] not in (NOT_KNOWN, "") for row in rows[1:])]
    widths = {i: max(len(row[i]) for row in rows) for i in telling}
    left = {0, TERMINAL_COLUMNS.index("unit"), len(TERMINAL_COLUMNS) - 1}
    return [
        "  ".join(row[i].ljust(widths[i]) if i in left else row[i].rjust(widths[i]) for i in telling).rstrip()
        for row in rows
    ]


def terminal(comparison: Comparison) -> tuple[list[str], list[str]]:
    """Sentences for the first screen, and the lines of the table below."""
    lines = [headline(comparison)]
    primary = comparison.metric(comparison.primary)
    if primary and primary.verdict == "cannot_say" and (within := within_line(primary)):
        lines.append(f"  {within}")
    load = "" if primary is None or primary.running_req is None else f", at {primary.running_req} running per DP rank"
    base, candidate = launches(len(comparison.base)), launches(len(comparison.candidate))
    lines.append(f"  {base} of the base, {candidate} of the candidate{load}")
    lines += [f"  moved: {move_line(m)}" for m in comparison.moved[:LISTED_MOVES]]
    shown, more, unstated = _shown(comparison.differences)
    lines += [f"  differs: {difference_line(d)}" for d in shown]
    lines += [f"  differs: {line}" for line in _more_differences(more, unstated)]
    lines += [f"  kernels: {kernel_line(k)}" for k in comparison.kernels[:LISTED_MOVES]]
    told, silent = _split(comparison)
    table = _aligned([list(TERMINAL_COLUMNS), *(_terminal_row(m) for m in told)])
    notes = "* primary; p of the others is adjusted for their number; seen from: the change found with 80% probability"
    return [visible(line) for line in lines], [*table, notes, *silent]
