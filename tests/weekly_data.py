"""Ten weeks of two configurations with one of everything planted; figures follow from the seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import numpy as np

from profkit.analysis import RunAnalysis
from profkit.comparison.fingerprint import Scalar
from profkit.comparison.launch import Launch, launch_of
from profkit.week import monday, week_of
from profkit.words import Activity, Phase
from tests.store_data import PARTS_US, analysis

WEEKS = tuple(f"2026-W{w}" for w in range(39, 49))
REGRESSION, DRIVER, NOISE, IMPROVEMENT, MISSING = "2026-W41", "2026-W43", "2026-W44", "2026-W46", "2026-W47"
LAUNCHES = 6
PLANTED = {
    REGRESSION: "regression",
    DRIVER: "environment",
    NOISE: "noise",
    IMPROVEMENT: "improvement",
    MISSING: "missing",
}


def _state(config: str, week: str) -> tuple[float, float, dict[str, Scalar], int]:
    """(throughput, noise, facts, launches) of a configuration in a week."""
    level, noise, n = (82.0, 0.015, LAUNCHES) if config == "baseline" else (60.0, 0.015, LAUNCHES)
    facts: dict[str, Scalar] = {"driver.version": "580.95"}
    if config == "baseline":
        facts |= {"speculative.algorithm": "NONE", "speculative.num_draft_tokens": 0}
    if week >= DRIVER:
        level, facts["driver.version"] = level * 0.94, "590.10"
    if config == "eagle3":
        if week >= REGRESSION:
            level, facts["engine.version"] = level * 0.92, "0.5.7"
        if week == NOISE:
            noise = 0.12
        if week >= IMPROVEMENT:
            level, facts["speculative.num_draft_tokens"] = level * 1.12, 2
        if week == MISSING:
            n = 0
    return level, noise, facts, n


def _parts(throughput: float) -> Mapping[Phase, Mapping[Activity, float]]:
    """A cycle budget whose all-reduces make up the difference in throughput."""
    wall = 1e6 * 2.0 / throughput
    others = sum(sum(c.values()) for c in PARTS_US.values()) - PARTS_US["verify"]["allreduce"]
    return {"draft": PARTS_US["draft"], "verify": {**PARTS_US["verify"], "allreduce": wall - others}}


def week_runs(config: str, week: str, *, seed: int = 1, traced: bool = False) -> list[RunAnalysis]:
    """The launches of one configuration in one week."""
    level, noise, facts, n = _state(config, week)
    random = np.random.default_rng([seed, sum(map(ord, config)), int(week[-2:])])
    runs = []
    for index in range(n):
        throughput = float(level * (1 + noise * random.standard_normal()))
        accept = float(2.0 * (1 + 0.004 * random.standard_normal())) if config == "eagle3" else 1.0
        day = monday(week) + timedelta(days=index % 5)
        runs.append(
            analysis(
                f"{config}-{week[-3:]}-{index}", throughput, accept_len=accept, config=config, date=day.isoformat(),
                facts=facts, labels={"dataset": "gsm8k"}, parts_us=_parts(throughput) if traced else None,
            )
        )  # fmt: skip
    return runs


def history_runs(*, seed: int = 1, traced: bool = False) -> list[RunAnalysis]:
    """All runs of the history in order."""
    return [
        run
        for week in WEEKS
        for config in ("baseline", "eagle3")
        for run in week_runs(config, week, seed=seed, traced=traced and config == "eagle3")
    ]


def filed(run: RunAnalysis) -> Launch:
    """A run as it comes out of the store, filed under its configuration and date."""
    assert run.date is not None
    return replace(launch_of(run), week=week_of(run.date), id=run.name)


def history_launches(*, seed: int = 1, traced: bool = False) -> list[Launch]:
    """The history as launches."""
    return [filed(run) for run in history_runs(seed=seed, traced=traced)]
