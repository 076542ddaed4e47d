"""Promises of last week checked, and at most three things to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profkit.comparison.metrics import metric_kind
from profkit.comparison.result import MIN_LAUNCHES
from profkit.comparison.statistics import median
from profkit.config import Promise
from profkit.forecast import PlanForecast
from profkit.week import shift
from profkit.weekly.history import History
from profkit.weekly.model import Action, ConfigurationWeek, Event, Experiment, PromiseKept
from profkit.weekly.trials import first_open_lever

MOST = 3


def _measured(history: History, promise: Promise) -> PromiseKept:
    """A promise with a target, by the figures."""
    assert promise.config is not None
    assert promise.metric is not None
    assert promise.target is not None
    kind = metric_kind(promise.metric)
    assert kind is not None
    values = history.values(promise.config, history.week, promise.metric)
    target = f"{kind.title} of {promise.config}, target {promise.target:g} {kind.unit or ''}".rstrip()
    if len(values) < MIN_LAUNCHES:
        why = f"{target}: {len(values)} launches this week, {MIN_LAUNCHES} are needed"
        return PromiseKept(promise.text, promise.owner, "cannot_say", why)
    reached = median(values)
    kept = reached >= promise.target if kind.better == "higher" else reached <= promise.target
    return PromiseKept(promise.text, promise.owner, "done" if kept else "not_done", f"{target}: {reached:.4g} measured")


def promises(history: History) -> tuple[PromiseKept, ...]:
    """Promises made in the report of the week before; what their owner says of them goes before the figures."""
    found = []
    for promise in history.config.promise:
        if promise.made != shift(history.week, -1):
            continue
        if promise.status is not None:
            found.append(PromiseKept(promise.text, promise.owner, promise.status, promise.note or "said by its owner"))
        elif promise.config and promise.metric and promise.target is not None:
            found.append(_measured(history, promise))
        else:
            why = "no status in profkit.toml, and no target to check"
            found.append(PromiseKept(promise.text, promise.owner, "cannot_say", why))
    return tuple(found)


def _for_event(row: ConfigurationWeek, event: Event) -> Action | None:
    """What follows from an event that nobody has looked into; ``None`` when nothing does."""
    if event.triaged:
        return None
    if event.kind == "regression":
        where = f", starting at {row.moved[0].title}" if row.moved else ""
        known = f"; first suspect: {event.cause}" if event.cause != "unknown" else ""
        text = f"Bisect the regression of {row.name} between {event.reference} and {event.week}{where}{known}"
        return Action(text, row.owner, "the change that caused it is named, or two days are spent", row.name)
    if event.kind == "environment":
        text = f"Measure {row.name} again on the new system, {MIN_LAUNCHES} launches or more, as its new reference"
        if event.cause == "workload" or row.quality.launches < MIN_LAUNCHES:
            return Action(text, row.owner, f"{MIN_LAUNCHES} launches are in the store", row.name)
        return Action(
            f"Confirm that the change of system of {row.name} was meant ({event.sentence.split(' since ')[0]})",
            row.owner, "it is confirmed or undone", row.name,
        )  # fmt: skip
    if event.kind == "noise":
        return Action(
            f"Repeat the launches of {row.name} on a quiet machine and look for what disturbed them",
            row.owner, "the spread is back at its usual size", row.name,
        )  # fmt: skip
    if event.kind == "missing":
        lacking = f" ({event.sentence})"
        return Action(
            f"Run what is missing of {row.name}{lacking}", row.owner, "the launches are in the store", row.name
        )
    return None


def _more_launches(rows: Sequence[ConfigurationWeek]) -> Action | None:
    """One action for all configurations that ran, but too seldom for a verdict."""
    small = [
        r for r in rows if 0 < r.quality.launches < MIN_LAUNCHES and not any(e.kind == "missing" for e in r.events)
    ]
    if not small:
        return None
    names = ", ".join(r.name for r in small)
    owners = ", ".join(dict.fromkeys(r.owner for r in small if r.owner)) or None
    text = f"Launch {names} at least {MIN_LAUNCHES} times; fewer launches allow no verdict"
    return Action(text, owners, f"{MIN_LAUNCHES} launches of each are in the store", small[0].name)


_ORDER = ("regression", "missing", "noise", "environment", "improvement")


def _candidates(
    history: History,
    rows: Sequence[ConfigurationWeek],
    plans: Sequence[PlanForecast],
    experiments: Sequence[Experiment],
) -> Iterator[tuple[int, Action]]:
    for trial in experiments:
        if trial.verdict == "better":
            owner = history.tracked(trial.config).owner
            text = f"Adopt {trial.lever} in {trial.config}: {trial.why}"
            yield 1, Action(text, owner, "its correctness gates pass and it is in the configuration", trial.config)
    if (small := _more_launches(rows)) is not None:
        yield 2, small
    for row in rows:
        for event in row.events:
            action = _for_event(row, event)
            if action is not None:
                yield _ORDER.index(event.kind), action
        lever = first_open_lever(history, plans, row.name)
        if lever is not None:
            stop = lever.kill or f"{MIN_LAUNCHES} launches decide it"
            yield len(_ORDER), Action(f"Try {lever.title} on {row.name}", row.owner, stop, row.name)


def actions(
    history: History,
    rows: Sequence[ConfigurationWeek],
    plans: Sequence[PlanForecast],
    experiments: Sequence[Experiment],
) -> tuple[Action, ...]:
    """At most three, the most urgent first; what several configurations need alike is one action."""
    ranked = sorted(_candidates(history, rows, plans, experiments), key=lambda c: c[0])
    alike: dict[tuple[int, str, str | None, str], list[Action]] = {}
    for urgency, action in ranked:
        pattern = action.text.replace(action.config, "{}", 1)
        alike.setdefault((urgency, pattern, action.owner, action.stop), []).append(action)
    merged = []
    for (_, pattern, owner, stop), group in alike.items():
        names = ", ".join(a.config for a in group)
        merged.append(group[0] if len(group) == 1 else Action(pattern.replace("{}", names, 1), owner, stop, names))
    return tuple(merged[:MOST])
