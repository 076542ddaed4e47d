"""The weekly report from a store's launches: :func:`weekly`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from profkit.comparison.launch import Launch
from profkit.config import Config
from profkit.forecast import PlanForecast
from profkit.weekly.actions import actions, promises
from profkit.weekly.events import moved, name_events
from profkit.weekly.history import History
from profkit.weekly.judge import Judged, judge, slow_drift
from profkit.weekly.model import ConfigurationWeek, Event, Weekly
from profkit.weekly.scoreboard import (
    budget,
    drift,
    economics,
    on_this_system,
    quality,
    series,
    series_changes,
    standings,
)
from profkit.weekly.trials import experiments, plan_changes


def _sentence(judged: Judged, events: Sequence[Event]) -> str:
    """The headline of a configuration, without the verdict's word."""
    metric = judged.primary
    if judged.verdict in ("better", "worse") and metric is not None:
        slowly = ", in steps too small to be seen from week to week" if judged.slow else ""
        return f"{moved(metric)} against {judged.reference}{slowly}"
    for kind in ("missing", "environment", "noise"):
        for event in events:
            if event.kind == kind and judged.verdict == "cannot_say":
                return f"{kind}: {event.sentence}"
    if metric is not None and metric.base.median is not None and metric.candidate.median is not None:
        figures = f"{metric.base.median:.4g} → {metric.candidate.median:.4g} {metric.unit}"
        return f"{metric.title} {figures} against {judged.reference}; {judged.why}"
    return judged.why


def _warnings(history: History, name: str, judged: Judged) -> tuple[str, ...]:
    found = list(judged.comparison.warnings) if judged.comparison else []
    for difference in judged.comparison.differences if judged.comparison else ():
        if len([v for v in difference.candidate if v is not None]) > 1:
            found.append(f"launches of {judged.week} differ among themselves in {difference.key}: they are no repeats")
    limit = history.config.thresholds.unlabelled_percent / 100
    shares = [x.quality.unlabelled_share or 0.0 for x in history.launches(name, judged.week)]
    if shares and max(shares) > limit:
        found.append(f"up to {max(shares):.1%} of the GPU time is labelled by nothing (limit {limit:.0%})")
    others = len(history.every(name, judged.week)) - len(history.launches(name, judged.week))
    if others:
        found.append(
            f"{others} launches on other datasets than {history.dataset(name)} are in the acceptance table only"
        )
    return tuple(found)


def _assess(
    history: History, name: str, week: str, earlier: Sequence[Event], *, full: bool
) -> tuple[Judged, tuple[Event, ...]]:
    """A week judged and its events named, knowing what was named before; in full where something changed."""
    judged = judge(history, name, week, full=full)
    named = [e.week for e in earlier if e.kind in ("regression", "improvement", "environment")]
    since = named[-1] if named else history.weeks[0]
    drift = slow_drift(history, name, judged, since)
    if drift is not None:
        judged = drift
    elif judged.verdict in ("better", "worse") and not full:
        judged = judge(history, name, week, full=True)
    return judged, name_events(history, name, judged)


def _configuration(history: History, name: str) -> ConfigurationWeek:
    tracked = history.tracked(name)
    earlier: list[Event] = []
    for week in history.weeks[:-1]:
        earlier += _assess(history, name, week, earlier, full=False)[1]
    judged, events = _assess(history, name, history.week, earlier, full=True)
    comparison = judged.comparison
    points = series(history, name)
    same_system = on_this_system(history, name, points)
    return ConfigurationWeek(
        name=name,
        title=tracked.title or name,
        owner=tracked.owner,
        verdict=judged.verdict,
        sentence=_sentence(judged, events),
        reference=judged.reference,
        comparable=comparison.comparable if comparison else None,
        metrics=standings(history, name, judged),
        events=events,
        history=tuple(earlier),
        moved=comparison.moved if comparison else (),
        budget=budget(comparison),
        kernels=comparison.kernels if comparison else (),
        differences=comparison.differences if comparison else (),
        drift=drift(history, name, judged),
        economics=economics(history, name),
        quality=quality(history, name),
        series=points,
        weeks_on_system=len(same_system),
        change_points=series_changes(history, points, same_system),
        warnings=_warnings(history, name, judged),
    )


def weekly(
    launches: Sequence[Launch],
    config: Config | None = None,
    week: str | None = None,
    *,
    plans: Sequence[PlanForecast] = (),
    problems: Sequence[str] = (),
) -> Weekly:
    """The report of ``week`` (default: the latest with a launch), from all launches up to it.

    ``plans`` are the registered forecasts in order of week; ``problems`` sentences about the store that belong into
    the report.

    Raises:
        InputError: no launch up to that week.
    """
    history = History(launches, config or Config(), week)
    rows = tuple(_configuration(history, name) for name in history.names)
    trials = experiments(history, plans)
    return Weekly(
        week=history.week,
        weeks=history.weeks,
        configurations=rows,
        promises=promises(history),
        experiments=trials,
        plan_changes=plan_changes(history, plans),
        actions=actions(history, rows, plans, trials),
        thresholds=msgspec.to_builtins(history.config.thresholds),
        problems=tuple(problems),
    )
