"""Plans' forecasts in the store: one small file each, named by content, only ever added."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from profkit.errors import InputError, UsageError
from profkit.forecast import FORECAST_SCHEMA, PlanForecast
from profkit.store.layout import Layout, create_layout, put
from profkit.week import monday


def add_forecast(root: Path, forecast: PlanForecast) -> tuple[PlanForecast, bool]:
    """Register a plan's forecasts; the second value is false when they were there already."""
    layout = create_layout(root)
    bare = msgspec.structs.replace(forecast, id="")
    name = hashlib.sha256(msgspec.json.encode(bare)).hexdigest()[:16]
    named = msgspec.structs.replace(bare, id=name)
    path = layout.forecasts / f"{name}.json"
    if path.exists():
        return named, False
    put(path, msgspec.json.format(msgspec.json.encode(named), indent=2) + b"\n", layout.incoming)
    return named, True


def read_forecasts(layout: Layout) -> tuple[list[PlanForecast], list[str]]:
    """All forecasts by week, configuration and id; and one sentence per file that cannot be read."""
    found: list[PlanForecast] = []
    problems: list[str] = []
    for path in sorted(layout.forecasts.glob("*.json")) if layout.forecasts.is_dir() else []:
        try:
            forecast = msgspec.json.decode(path.read_bytes(), type=PlanForecast)
            if forecast.schema != FORECAST_SCHEMA:
                raise InputError(f"schema {forecast.schema!r}; update profkit to read it")
            monday(forecast.week)
            found.append(forecast)
        except (ValueError, RecursionError, OSError, InputError, UsageError) as error:
            problems.append(f"forecasts/{path.name}: ignored ({error})")
    return sorted(found, key=lambda f: (f.week, f.config, f.id)), problems
