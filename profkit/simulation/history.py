"""Weeks of repeated launches of tracked configurations, with planted changes that a weekly report must name.

Every launch is simulated physically; launches of one week differ as real ones do, by a small factor on the link and
on compute that is drawn once per launch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Literal, TypeAlias

from profkit.files import writing
from profkit.simulation.files import write_run
from profkit.simulation.noise import Noise
from profkit.simulation.scenario import Scenario
from profkit.simulation.simulate import simulate
from profkit.simulation.story import reference_story

EventKind: TypeAlias = Literal["regression", "improvement", "environment", "noise", "missing"]
LAST_MONDAY = date(2026, 11, 16)
CONFIGURATIONS = ("baseline", "eagle3", "ngram")
_REGRESSION, _DRIVER, _NOISE, _IMPROVEMENT, _MISSING = 3, 5, 6, 7, 8  # weeks, counted from 0
_LAUNCH_DEVIATION = 0.012  # relative deviation of a launch's link; compute a third of it
_SWINGS = (0.06, 0.15, 0.10)  # of the launches of the noisy week
_OLD_DRIVER, _NEW_DRIVER = "580.95.05", "590.44.01"
_HOURS = {"baseline": 9, "eagle3": 9, "ngram": 10}


@dataclass(frozen=True, slots=True)
class PlantedEvent:
    """Something that happened in a week. ``change_percent`` is of the throughput's physics, before launch noise."""

    week: str
    config: str
    kind: EventKind
    cause: str
    change_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a configuration in a week; ``number`` counts from 1."""

    week: str
    config: str
    number: int
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class History:
    """All launches in order of time, and what was planted."""

    launches: tuple[Launch, ...]
    events: tuple[PlantedEvent, ...]


def week_name(monday: date) -> str:
    """ISO week, as ``2026-W47``."""
    year, week, _ = monday.isocalendar()
    return f"{year}-W{week:02d}"


def _physics(config: str, index: int, scenario: Scenario) -> Scenario:
    """The scenario as it was in the week with this index, without launch noise."""
    hardware, drafter = scenario.hardware, scenario.drafter
    if config == "eagle3" and index >= _REGRESSION:
        drafter = replace(drafter, forward_compute_us=drafter.forward_compute_us + 1250.0)
    if config == "eagle3" and index >= _IMPROVEMENT:
        drafter = replace(drafter, forward_compute_us=drafter.forward_compute_us - 1900.0 + 750.0)
    if index >= _DRIVER:
        hardware = replace(hardware, driver=_NEW_DRIVER, allreduce_alpha_us=hardware.allreduce_alpha_us * 1.05)
    return replace(scenario, hardware=hardware, drafter=drafter)


def _launch(config: str, index: int, number: int, monday: date, story: Scenario, seed: int) -> Scenario:
    scenario = _physics(config, index, story)
    place = CONFIGURATIONS.index(config)
    noise = Noise(seed, 77, index, place, number)
    link = 1.0 + _LAUNCH_DEVIATION * float(noise.normal(1)[0])
    if config == "ngram" and index == _NOISE:
        # Up and down in turn, so that only the spread of the week changes.
        link += _SWINGS[(number - 1) // 2 % len(_SWINGS)] * (1 if number % 2 else -1)
    compute = 1.0 + _LAUNCH_DEVIATION / 3 * float(noise.normal(1)[0])
    hardware = scenario.hardware
    hardware = replace(
        hardware,
        allreduce_alpha_us=hardware.allreduce_alpha_us * link,
        allreduce_us_per_kib=hardware.allreduce_us_per_kib * link,
        dense_compute_us=hardware.dense_compute_us * compute,
        expert_compute_us=hardware.expert_compute_us * compute,
    )
    # Three launches of each configuration in the morning and three in the afternoon, in turn.
    day = monday + timedelta(days=(number - 1) % 3)
    clock = f"{_HOURS[config] + 3 * ((number - 1) // 3 % 4):02d}:{7 + 19 * place:02d}:{number * 3 % 60:02d}"
    recording = replace(scenario.recording, date=day.isoformat(), time=clock, cycles=3, log_lines=24, log_cycles=12)
    return replace(
        scenario, name=f"{config} {week_name(monday)} launch {number}", seed=seed + 1000 * index + 100 * place + number,
        hardware=hardware, recording=recording, labels=(("launch", str(number)), ("week", week_name(monday))),
    )  # fmt: skip


def history(weeks: int = 10, *, seed: int = 20261116, launches: int = 6) -> History:
    """``weeks`` weeks that end with the week of 2026-11-16, each configuration launched ``launches`` times a week.

    Planted, in the weeks that exist: the fourth, a regression of EAGLE-3 (its draft forwards got slower); the sixth, a
    driver change on the machine (every configuration, about 2 % slower); the seventh, a noisy week of NGRAM whose
    middle did not move; the eighth, an improvement of EAGLE-3; the ninth, no run of the baseline.
    """
    story = reference_story(seed=seed)
    mondays = [LAST_MONDAY - timedelta(weeks=weeks - 1 - index) for index in range(weeks)]
    made: list[Launch] = []
    for index, monday in enumerate(mondays):
        for number in range(1, launches + 1):
            for config in CONFIGURATIONS:
                if config == "baseline" and index == _MISSING:
                    continue
                scenario = _launch(config, index, number, monday, story[config], seed)
                made.append(Launch(week_name(monday), scenario.config, number, scenario))
    return History(tuple(made), _events(mondays, story))


def _events(mondays: list[date], story: dict[str, Scenario]) -> tuple[PlantedEvent, ...]:
    eagle = story["eagle3"].config
    rows: list[tuple[int, str, EventKind, str, float | None]] = [
        (_REGRESSION, eagle, "regression", "draft forwards slower", -6.9),
        *(
            (_DRIVER, story[c].config, "environment", f"driver {_OLD_DRIVER} -> {_NEW_DRIVER}", change)
            for c, change in (("baseline", -1.8), ("eagle3", -0.6), ("ngram", -0.4))
        ),
        (_NOISE, story["ngram"].config, "noise", "launches scatter, the middle did not move", None),
        (_IMPROVEMENT, eagle, "improvement", "draft forwards faster", 6.8),
        (_MISSING, story["baseline"].config, "missing", "no launch", None),
    ]  # fmt: skip
    return tuple(
        PlantedEvent(week_name(mondays[index]), config, kind, cause, change)
        for index, config, kind, cause, change in rows
        if index < len(mondays)
    )


def truth_toml(past: History) -> str:
    """The planted events as a file."""
    text = "# What was planted in these weeks.\n"
    text += 'schema = "profkit.history/1"\n'
    for event in past.events:
        text += f'\n[[event]]\nweek = "{event.week}"\nconfig = "{event.config}"\nkind = "{event.kind}"\n'
        text += f'cause = "{event.cause}"\n'
        if event.change_percent is not None:
            text += f"change_percent = {event.change_percent}\n"
    return text


def write_history(
    past: History,
    folder: Path,
    *,
    force: bool = False,
    traces: bool = True,
    each: Callable[[], None] = lambda: None,
) -> list[Path]:
    """Write ``<week>/<config>/launch-<n>/`` for every launch; the first of a week and configuration has traces.

    ``each`` is called after every launch.
    """
    made: list[Path] = []
    for launch in past.launches:
        place = folder / launch.week / launch.config.rsplit("/", 1)[-1] / f"launch-{launch.number}"
        recorded = traces and launch.number == 1
        made += write_run(simulate(launch.scenario, record=recorded), place, force=force, traces=recorded)
        each()
    path = folder / "planted.toml"
    with writing(path, force=force) as temporary:
        temporary.write_text(truth_toml(past), encoding="utf-8", newline="\n")
    return [*made, path]
