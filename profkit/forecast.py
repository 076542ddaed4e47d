"""Forecasts of a plan, kept so that later runs can score them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from profkit.errors import InputError

FORECAST_SCHEMA = "profkit.forecast/1"
PLAN_SCHEMA = "profkit.plan/1"


class Range(msgspec.Struct, frozen=True):
    """A forecast figure; ``low`` and ``high`` are ``None`` when the plan gave none."""

    value: float
    unit: str
    low: float | None = None
    high: float | None = None


class LeverForecast(msgspec.Struct, frozen=True):
    """One lever as the plan saw it: expected throughput of both arms if it is pulled."""

    id: str
    priority: int | None
    title: str
    candidate: Range | None
    baseline: Range | None
    failed_gates: tuple[str, ...] = ()
    acceptance: str = ""
    kill: str = ""

    @property
    def blocked(self) -> bool:
        """Whether a gate of the lever failed."""
        return bool(self.failed_gates)


class PlanForecast(msgspec.Struct, frozen=True):
    """The forecasts of one plan, registered for a configuration in a week.

    ``before`` is the throughput it starts from.
    """

    config: str
    week: str
    plan: str
    before: Range | None
    levers: tuple[LeverForecast, ...]
    id: str = ""
    schema: str = FORECAST_SCHEMA

    def lever(self, lever_id: str) -> LeverForecast | None:
        """One lever by id."""
        return next((lever for lever in self.levers if lever.id == lever_id), None)


def _range(quantity: Any) -> Range | None:
    """A quantity object as a range; ``None`` for an unknown one."""
    if not isinstance(quantity, Mapping) or not isinstance(quantity.get("value"), int | float):
        return None
    low, high = quantity.get("low"), quantity.get("high")
    known = isinstance(low, int | float) and isinstance(high, int | float)
    return Range(
        float(quantity["value"]),
        str(quantity.get("unit", "")),
        float(low) if known and low is not None else None,
        float(high) if known and high is not None else None,
    )


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "; ".join(_text(v) for v in value)
    if isinstance(value, Mapping):
        return str(value.get("text") or value.get("sentence") or "")
    return ""


def _lever(entry: Mapping[str, Any]) -> LeverForecast:
    gain = entry.get("gain") or {}
    priority = entry.get("priority")
    failed = [
        str(g.get("name")) for g in entry.get("gates") or () if isinstance(g, Mapping) and g.get("state") == "fail"
    ]
    return LeverForecast(
        id=str(entry["id"]),
        priority=priority if isinstance(priority, int) else None,
        title=_text(entry.get("title") or entry.get("name")) or str(entry["id"]),
        candidate=_range(gain.get("candidate_throughput")),
        baseline=_range(gain.get("baseline_throughput")),
        failed_gates=tuple(failed),
        acceptance=_text(entry.get("acceptance")),
        kill=_text(entry.get("kill")),
    )


def forecasts_of_plan(data: bytes, path: str, config: str, week: str) -> PlanForecast:
    """The forecasts in a ``plan.json``.

    Raises:
        InputError: not JSON, not a plan, or a plan without levers.
    """
    try:
        plan = msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: no JSON ({error}); give the plan.json that `profkit plan` wrote") from error
    if not isinstance(plan, dict) or plan.get("schema") != PLAN_SCHEMA:
        raise InputError(f"{path}: not a {PLAN_SCHEMA} document; give the plan.json that `profkit plan` wrote")
    levers = plan.get("levers")
    if not isinstance(levers, list) or not levers or not all(isinstance(x, dict) and "id" in x for x in levers):
        raise InputError(f"{path}: the plan has no levers, so it forecasts nothing")
    economics = plan.get("economics")
    before = economics.get("throughput") if isinstance(economics, dict) else None
    run = plan.get("run")
    name = run if isinstance(run, str) else run.get("name") if isinstance(run, dict) else None
    return PlanForecast(config, week, str(name or "plan"), _range(before), tuple(_lever(x) for x in levers))
