"""Experiments scored against the forecasts of plans, and what newer plans changed."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.comparison.launch import Launch
from profkit.comparison.result import MIN_LAUNCHES, Settings, Verdict
from profkit.comparison.verdict import compare
from profkit.forecast import LeverForecast, PlanForecast, Range
from profkit.quantity import Quantity
from profkit.week import monday
from profkit.weekly.history import History
from profkit.weekly.model import Experiment, PlanChange
from profkit.weekly.scoreboard import quantity


def _forecast(plans: Sequence[PlanForecast], config: str, lever: str, week: str) -> tuple[PlanForecast, Range] | None:
    """The latest forecast made for a lever up to a week, of this configuration if there is one."""
    made: list[tuple[PlanForecast, Range]] = []
    for plan in plans:
        found = plan.lever(lever) if monday(plan.week) <= monday(week) else None
        if found is not None and found.candidate is not None:
            made.append((plan, found.candidate))
    own = [(plan, of) for plan, of in made if plan.config == config]
    usable = own or made
    return usable[-1] if usable else None


def _outcome(launches: Sequence[Launch], load: int | None) -> list[float]:
    return [m.value for x in launches for m in x.measurements if m.name == "throughput" and m.running_req == load]


def _control(history: History, name: str, week: str) -> tuple[str, list[Launch]] | None:
    """The configuration without the lever: this week's launches, else the latest earlier ones."""
    for candidate in [week, *history.before(name, week)]:
        if launches := history.launches(name, candidate):
            return candidate, launches
    return None


def _experiment(
    history: History, plans: Sequence[PlanForecast], config: str, lever: str, launches: list[Launch]
) -> Experiment:
    week = history.week
    outcome = quantity(
        _outcome(launches, history.load(config, "throughput")), "tok/s", f"{config} with {lever}, {week}"
    )
    promised = _forecast(plans, config, lever, week)
    if promised is None:
        forecast = Quantity.unknown("tok/s", f"no plan forecast {lever}")
    else:
        plan, of = promised
        source = f"plan {plan.plan} of {plan.week}"
        forecast = Quantity(of.value, of.unit, "modelled", source, of.low, of.high, None if of.low is None else "model")
    error = within = None
    if outcome.value is not None and forecast.value and forecast.unit == outcome.unit:
        error = outcome.value / forecast.value - 1
        if forecast.low is not None and forecast.high is not None:
            within = forecast.low <= outcome.value <= forecast.high
    control = _control(history, config, week)
    verdict: Verdict
    if control is None:
        verdict, why = "cannot_say", f"{config} never ran without the lever"
    else:
        thresholds = history.config.thresholds.settings(
            expect=("server_args.*", "speculative.*", "engine.*", "flashinfer.*")
        )
        settings = Settings(
            "throughput", thresholds.alpha, thresholds.min_effect, thresholds.blind_above, thresholds.expect
        )
        compared = compare(control[1], launches, settings, only=())
        metric = compared.metric("throughput")
        verdict = compared.verdict
        why = f"against {control[0]}: {metric.why}" if metric else "no throughput"
    return Experiment(lever, config, week, len(launches), forecast, outcome, error, within, verdict, why)


def experiments(history: History, plans: Sequence[PlanForecast]) -> tuple[Experiment, ...]:
    """The experiments of the report's week, null results included."""
    return tuple(_experiment(history, plans, *trial) for trial in history.experiments(history.week))


def _lever_changes(config: str, old: LeverForecast | None, new: LeverForecast | None) -> PlanChange | None:
    if new is None:
        assert old is not None
        return PlanChange(config, old.id, "closed", f"{old.title}: no longer in the plan")
    if old is None:
        gates = f" (blocked: {', '.join(new.failed_gates)})" if new.blocked else ""
        return PlanChange(config, new.id, "opened", f"{new.title}{gates}")
    if new.blocked != old.blocked:
        if new.blocked:
            return PlanChange(config, new.id, "blocked", f"{new.title}: {', '.join(new.failed_gates)} failed")
        return PlanChange(config, new.id, "unblocked", f"{new.title}: every gate passes or is unknown")
    if new.priority != old.priority:
        return PlanChange(config, new.id, "reranked", f"{new.title}: priority {old.priority} → {new.priority}")
    return None


def plan_changes(history: History, plans: Sequence[PlanForecast]) -> tuple[PlanChange, ...]:
    """What the plans registered this week changed against the plan before them."""
    found: list[PlanChange] = []
    for config in history.names:
        of_config = [p for p in plans if p.config == config and monday(p.week) <= monday(history.week)]
        if not of_config or of_config[-1].week != history.week:
            continue
        new = of_config[-1]
        old = of_config[-2] if len(of_config) > 1 else None
        ids = dict.fromkeys([lever.id for p in (new, old) if p is not None for lever in p.levers])
        changes = (_lever_changes(config, old.lever(i) if old else None, new.lever(i)) for i in ids)
        found += [c for c in changes if c is not None]
    return tuple(found)


def first_open_lever(history: History, plans: Sequence[PlanForecast], config: str) -> LeverForecast | None:
    """The plan's first lever that no gate blocks and that nobody has tried yet."""
    current = [p for p in plans if p.config == config and monday(p.week) <= monday(history.week)]
    if not current:
        return None
    tried = {lever for w in history.weeks for c, lever, xs in history.experiments(w) if len(xs) >= MIN_LAUNCHES}
    free = [lever for lever in current[-1].levers if not lever.blocked and lever.id not in tried]
    return min(free, key=lambda x: (x.priority is None, x.priority or 0), default=None)
