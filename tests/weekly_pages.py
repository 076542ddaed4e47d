"""Weekly reports for the tests of their page: an honest one, one whose every name attacks, and a very large one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from profkit.weekly.model import Event, Point, Weekly
from profkit.weekly.report import weekly
from tests.html_pages import HOSTILE
from tests.test_weekly_document import CONFIG
from tests.test_weekly_events import experiment, plan
from tests.weekly_data import WEEKS, history_launches


@cache
def report(week: str = WEEKS[-1]) -> Weekly:
    launches = [*history_launches(traced=True), *experiment(65.0)]
    return weekly(launches, CONFIG, week, plans=[plan(), plan(WEEKS[-1], priority=2)])


def attacked(found: Weekly) -> Weekly:
    """Every name and sentence tries to do something."""
    first, second, third, fourth = HOSTILE

    def event(e: Event) -> Event:
        return replace(e, config=first, sentence=second, evidence=HOSTILE, counter_evidence=HOSTILE, triaged=third)

    rows = tuple(
        replace(
            row, name=first, title=second, owner=third, sentence=fourth, reference=first,
            metrics=tuple(replace(m, title=first, current=replace(m.current, unit=second)) for m in row.metrics),
            events=tuple(event(e) for e in row.events), history=tuple(event(e) for e in row.history),
            drift=tuple(replace(d, dataset=second) for d in row.drift), warnings=HOSTILE,
            moved=tuple(replace(m, title=second) for m in row.moved),
        )
        for row in found.configurations
    )  # fmt: skip
    actions = tuple(replace(a, text=first, owner=second, stop=third) for a in found.actions)
    promises = tuple(replace(p, text=first, owner=second, why=third) for p in found.promises)
    return replace(found, configurations=rows, actions=actions, promises=promises, problems=HOSTILE)


def large(found: Weekly) -> Weekly:
    """Sixty configurations, over two years of weeks."""
    weeks = tuple(f"{year}-W{week:02}" for year in (2024, 2025, 2026) for week in range(1, 49))
    row = found.configurations[0]
    values = tuple(60.0 + i / 7 for i in range(12))
    series = tuple(Point(w, len(values), 61.0, 60.5, 61.5, values) for w in weeks)
    events = tuple(replace(e, week=w) for w in weeks[::3] for e in row.history[:1])
    rows = [replace(row, name=f"{row.name}-{i}", series=series, history=events) for i in range(60)]
    return replace(found, weeks=weeks, configurations=tuple(rows))
