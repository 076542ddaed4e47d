"""Naming what happened: regression, improvement, environment, noise, missing; each with evidence for and against."""

from __future__ import annotations

from dataclasses import replace

from profkit.comparison.fingerprint import Difference
from profkit.comparison.result import MIN_LAUNCHES, Comparison, MetricComparison, delta
from profkit.comparison.statistics import median
from profkit.weekly.history import History
from profkit.weekly.judge import Judged
from profkit.weekly.model import Cause, Event, EventKind

MOVES = 3
KERNELS = 3


def _shown(values: tuple[str | int | float | bool | None, ...]) -> str:
    return "/".join("not stated" if v is None else str(v) for v in values)


def _difference(difference: Difference) -> str:
    return f"{difference.key} {_shown(difference.base)} → {_shown(difference.candidate)}"


def moved(metric: MetricComparison) -> str:
    """``throughput fell by 5.2 % (60.1 -> 57.0 tok/s)``."""
    base, candidate, change = metric.base.median, metric.candidate.median, metric.change
    if base is None or candidate is None or change is None:
        return f"{metric.title} is not known on both sides"
    word = "rose" if change > 0 else "fell"
    return f"{metric.title} {word} by {abs(change):.1%} ({base:.4g} → {candidate:.4g} {metric.unit})"


def _move(metric: MetricComparison) -> str:
    """A cell of the cycle budget that moved; with few traced launches it says so."""
    few = min(metric.base.n, metric.candidate.n)
    note = f" (only {few} traced launch{'es' if few > 1 else ''} on a side)" if few < MIN_LAUNCHES else ""
    return f"{metric.title} moved by {delta(metric) / 1000:+.2f} ms per cycle{note}"


def _steady(metric: MetricComparison) -> str:
    return f"{metric.title} did not change detectably ({metric.base.median:.4g} → {metric.candidate.median:.4g})"


def _stated(comparison: Comparison, cause: Cause) -> list[Difference]:
    return [d for d in comparison.differences if d.cause == cause and d.state != "unknown"]


def _cause(comparison: Comparison) -> Cause:
    """The class of what changed with it, code before configuration; ``unknown`` when nothing did."""
    order: tuple[Cause, ...] = ("workload", "environment", "code", "config")
    return next((cause for cause in order if _stated(comparison, cause)), "unknown")


def _evidence(comparison: Comparison) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What speaks for a cause, and what speaks against others."""
    pro = [_difference(d) for d in comparison.differences if d.state != "unknown"]
    contra = []
    pro += [_move(m) for m in comparison.moved[:MOVES]]
    pro += [f"{k.kernel_class} {k.change} in {k.phase}" for k in comparison.kernels[:KERNELS]]
    accept = comparison.metric("accept_len")
    if accept is not None:
        if accept.verdict in ("better", "worse"):
            pro.append(moved(accept))
        elif accept.verdict == "no_change":
            contra.append(_steady(accept))
    if not any(d.cause in ("environment", "workload") for d in comparison.differences):
        contra.append("GPU, driver, libraries and model are the same as far as the runs state them")
    if not any(d.cause in ("code", "config") and d.state != "unknown" for d in comparison.differences):
        contra.append("no flag and no engine version changed")
    if all("." not in m.name for m in comparison.metrics):
        contra.append("no trace on both sides, so which phase moved is not known")
    return tuple(pro), tuple(contra)


def _triage(history: History, event: Event) -> Event:
    note = next(
        (
            t.note
            for t in history.config.triaged
            if (t.week, t.config, t.kind) == (event.week, event.config, event.kind)
        ),
        None,
    )
    if note is None:
        return event
    return replace(event, triaged=note)


def _change(name: str, judged: Judged, kind: EventKind) -> Event:
    comparison, metric = judged.comparison, judged.primary
    assert comparison is not None
    assert metric is not None
    pro, contra = _evidence(comparison)
    interval = metric.interval
    slowly = ", in steps too small to be seen from week to week" if judged.slow else ""
    return Event(
        kind, judged.week, name, f"{moved(metric)} against {judged.reference}{slowly}", _cause(comparison),
        metric=metric.name, reference=judged.reference, change=metric.change,
        low=interval.low if interval else None, high=interval.high if interval else None,
        evidence=pro, counter_evidence=contra,
    )  # fmt: skip


def _environment(history: History, name: str, judged: Judged) -> Event:
    before = history.before(name, judged.week)[0]
    what = ", ".join(_difference(d) for d in judged.breaks)
    workload = all(d.cause == "workload" for d in judged.breaks)
    primary = history.config.thresholds.primary
    old, new = history.values(name, before, primary), history.values(name, judged.week, primary)
    evidence = []
    if old and new:
        evidence.append(
            f"{primary} {median(old):.4g} → {median(new):.4g} across the break, which is no verdict on code"
        )
    return Event(
        "environment", judged.week, name, f"{what} since {before}: earlier figures are of another system",
        "workload" if workload else "environment", reference=before, evidence=tuple(evidence),
    )  # fmt: skip


def _noise(history: History, name: str, judged: Judged) -> Event:
    spread, usual = history.spread(name, judged.week), history.usual_spread(name, judged.week)
    assert spread is not None
    assert usual is not None
    evidence: tuple[str, ...] = ()
    if (metric := judged.primary) is not None and metric.change is not None:
        evidence = (f"{moved(metric)} against {judged.reference}: inside this week's noise",)
    values = history.values(name, judged.week, history.config.thresholds.primary)
    return Event(
        "noise", judged.week, name,
        f"launches spread by {spread:.1%} (usual {usual:.1%}), from {min(values):.4g} to {max(values):.4g}",
        "noise", metric=history.config.thresholds.primary, reference=judged.reference, evidence=evidence,
    )  # fmt: skip


def _missing(history: History, name: str, week: str) -> Event | None:
    expected, n = history.expected(name, week), len(history.launches(name, week))
    if not history.before(name, week) and history.tracked(name).launches_per_week is None:
        return None
    if n == 0:
        sentence = "no run in the store" + (f", {expected} launches were expected" if expected else "")
    elif expected is not None and n < expected:
        sentence = f"{n} of {expected} launches"
    else:
        return None
    return Event("missing", week, name, sentence, "unknown")


def name_events(history: History, name: str, judged: Judged) -> tuple[Event, ...]:
    """The events of one configuration in one week.

    A change is called regression or improvement only on the same system and beyond the week's own noise; a change of
    the system is an environment event, whatever the figures did.
    """
    events = []
    missing = _missing(history, name, judged.week)
    if judged.breaks:
        events.append(_environment(history, name, judged))
    if judged.verdict == "worse":
        events.append(_change(name, judged, "regression"))
    elif judged.verdict == "better":
        events.append(_change(name, judged, "improvement"))
    if judged.noisy:
        events.append(_noise(history, name, judged))
    if missing is not None:
        events.append(missing)
    return tuple(_triage(history, e) for e in events)
