"""Planted weeks are called by their right names; promises are checked, forecasts scored, small samples named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profkit.comparison.fingerprint import Scalar
from profkit.comparison.launch import Launch
from profkit.comparison.metrics import Measurement
from profkit.config import Config, Goal, Promise, Thresholds, Tracked, Triaged
from profkit.errors import InputError
from profkit.forecast import LeverForecast, PlanForecast, Range
from profkit.weekly.model import ConfigurationWeek, Weekly
from profkit.weekly.report import weekly
from tests.store_data import analysis, noisy
from tests.weekly_data import (
    DRIVER,
    IMPROVEMENT,
    MISSING,
    NOISE,
    PLANTED,
    REGRESSION,
    WEEKS,
    filed,
    history_launches,
)


def row(report: Weekly, name: str = "eagle3") -> ConfigurationWeek:
    return next(r for r in report.configurations if r.name == name)


@pytest.fixture(scope="module")
def launches() -> list[Launch]:
    return history_launches(traced=True)


@pytest.mark.parametrize("week", WEEKS)
def test_each_week_has_its_planted_event_and_no_other(launches: list[Launch], week: str) -> None:
    report = weekly(launches, week=week)
    assert report.week == week
    expected = [PLANTED[week]] if week in PLANTED else []
    assert [e.kind for e in row(report).events] == expected
    assert [e.kind for e in row(report, "baseline").events] == (["environment"] if week == DRIVER else [])


def test_the_last_report_knows_the_whole_history(launches: list[Launch]) -> None:
    report = weekly(launches)
    assert report.week == WEEKS[-1]
    assert {e.week: e.kind for e in row(report).history} == PLANTED
    assert {e.week: e.kind for e in row(report, "baseline").history} == {DRIVER: "environment"}


@pytest.mark.parametrize("seed", range(2, 10))
def test_other_draws_of_the_noise_are_named_the_same(seed: int) -> None:
    report = weekly(history_launches(seed=seed))
    assert {e.week: e.kind for e in (*row(report).history, *row(report).events)} == PLANTED


def test_verdicts_by_week(launches: list[Launch]) -> None:
    verdicts = {week: row(weekly(launches, week=week)).verdict for week in (*PLANTED, WEEKS[0], WEEKS[-1])}
    assert verdicts == {
        REGRESSION: "worse",
        DRIVER: "cannot_say",
        NOISE: "cannot_say",
        IMPROVEMENT: "better",
        MISSING: "cannot_say",
        WEEKS[0]: "cannot_say",
        WEEKS[-1]: "no_change",
    }


def test_a_regression_comes_with_cause_evidence_and_counter_evidence(launches: list[Launch]) -> None:
    [event] = row(weekly(launches, week=REGRESSION)).events
    assert (event.cause, event.reference, event.metric) == ("code", "2026-W40", "throughput")
    assert event.change == pytest.approx(-0.08, abs=0.02)
    assert event.low is not None
    assert event.change is not None
    assert event.high is not None
    assert event.low < event.change < event.high < 0
    assert event.evidence[0] == "engine.version 0.5.6 → 0.5.7"
    assert any(e.startswith("verify: all-reduce moved by +") for e in event.evidence)
    assert any(e.startswith("accept length did not change") for e in event.counter_evidence)
    assert any("GPU, driver" in e for e in event.counter_evidence)
    # The last report still knows the phase, though it looks back over seven weeks.
    old = next(e for e in row(weekly(launches)).history if e.kind == "regression")
    assert old.evidence == event.evidence


def test_after_a_noisy_or_missing_week_the_last_good_one_is_the_reference(launches: list[Launch]) -> None:
    assert row(weekly(launches, week="2026-W45")).reference == DRIVER
    assert row(weekly(launches, week=WEEKS[-1])).reference == IMPROVEMENT
    assert row(weekly(launches, week=MISSING)).reference is None


def test_no_figure_is_compared_across_a_driver_change(launches: list[Launch]) -> None:
    report = row(weekly(launches, week=DRIVER))
    assert report.comparable is False
    assert {m.comparison.verdict for m in report.metrics if m.comparison} == {"cannot_say"}
    after = row(weekly(launches, week="2026-W45"))
    assert after.comparable is True


def test_a_large_drop_in_a_noisy_week_is_both() -> None:
    quiet = [x for x in history_launches() if x.config == "eagle3" and x.week in ("2026-W39", "2026-W40")]
    values = noisy(35.0, 6, noise=0.1, seed=5)
    noisy_week = [filed(analysis(f"n{i}", v, date="2026-10-05", facts={"driver.version": "580.95"},
                                 labels={"dataset": "gsm8k"})) for i, v in enumerate(values)]  # fmt: skip
    report = row(weekly([*quiet, *noisy_week]))
    assert [e.kind for e in report.events] == ["regression", "noise"]


def test_too_few_launches_are_no_verdict_but_an_event(launches: list[Launch]) -> None:
    kept = [x for x in launches if x.week != WEEKS[-1] or not x.name.endswith(("-2", "-3", "-4", "-5"))]
    report = row(weekly(kept))
    assert report.verdict == "cannot_say"
    assert [(e.kind, e.sentence) for e in report.events] == [("missing", "2 of 6 launches")]


def test_economics_against_the_baseline(launches: list[Launch]) -> None:
    report = row(weekly(launches, week=WEEKS[1]))
    assert report.economics is not None
    inflation = report.economics.inflation
    assert inflation.value == pytest.approx((2.0 / 60) / (1.0 / 82), rel=0.03)
    assert report.economics.break_even_accept_len.value == inflation.value
    assert report.economics.pays is False
    assert row(weekly(launches), "baseline").economics is None
    lone = row(weekly([x for x in launches if x.config == "eagle3"]))
    assert lone.economics is None


def test_change_points_need_ten_weeks_on_one_system() -> None:
    def week(number: int, level: float) -> list[Launch]:
        values = noisy(level, 4, noise=0.01, seed=number)
        return [replace(filed(analysis(f"{number}-{i}", v)), week=f"2026-W{number:02d}") for i, v in enumerate(values)]

    steady = [x for n in range(20, 27) for x in week(n, 60.0)]
    assert row(weekly(steady)).change_points is None
    stepped = steady + [x for n in range(27, 34) for x in week(n, 54.0)]
    found = row(weekly(stepped)).change_points
    assert found is not None
    assert [row(weekly(stepped)).series[c.index].week for c in found] == ["2026-W27"]


def test_datasets_do_not_mix() -> None:
    main = [x for x in history_launches() if x.config == "eagle3" and x.week in ("2026-W39", "2026-W40")]
    other = [
        replace(filed(analysis(f"o{i}", 30.0, accept_len=1.2, labels={"dataset": "mtbench"},
                               facts={"driver.version": "580.95"})), week="2026-W40")
        for i in range(3)
    ]  # fmt: skip
    report = row(weekly([*main, *other]))
    assert report.verdict == "no_change"
    assert {d.dataset: (d.n, d.reference_n) for d in report.drift} == {"gsm8k": (6, 6), "mtbench": (3, 0)}
    assert any("3 launches on other datasets" in w for w in report.warnings)


def experiment(level: float, seed: int = 9, n: int = 6) -> list[Launch]:
    values = noisy(level, n, noise=0.01, seed=seed)
    facts: dict[str, Scalar] = {
        "driver.version": "590.10",
        "engine.version": "0.5.7",
        "speculative.num_draft_tokens": 3,
    }
    return [
        filed(
            analysis(f"x{i}", v, date="2026-11-24", facts=facts, labels={"dataset": "gsm8k", "lever": "fewer-drafts"})
        )
        for i, v in enumerate(values)
    ]


def plan(week: str = "2026-W46", *, priority: int = 1, extra: tuple[LeverForecast, ...] = ()) -> PlanForecast:
    lever = LeverForecast("fewer-drafts", priority, "Fewer draft tokens", Range(64.0, "tok/s", 61.0, 67.0), None)
    return PlanForecast("eagle3", week, "eagle3 run", Range(57.5, "tok/s"), (lever, *extra), id=week)


def test_an_experiment_is_scored_and_stays_out_of_the_series(launches: list[Launch]) -> None:
    report = weekly([*launches, *experiment(65.0)], plans=[plan()])
    [trial] = report.experiments
    assert (trial.lever, trial.n, trial.within, trial.verdict) == ("fewer-drafts", 6, True, "better")
    assert trial.error == pytest.approx(65 / 64 - 1, abs=0.01)
    assert trial.forecast.source == "plan eagle3 run of 2026-W46"
    assert row(report).quality.launches == 6
    assert row(report).verdict == "no_change"


def test_a_null_result_is_shown_as_one(launches: list[Launch]) -> None:
    [trial] = weekly([*launches, *experiment(57.7)], plans=[plan()]).experiments
    assert (trial.verdict, trial.within) == ("no_change", False)
    assert trial.error is not None
    assert trial.error < -0.05
    [alone] = weekly([*launches, *experiment(57.7)]).experiments
    assert alone.forecast.value is None
    assert alone.within is None


def test_what_a_newer_plan_changed(launches: list[Launch]) -> None:
    blocked = LeverForecast("custom-ar", 1, "Custom all-reduce", None, None, failed_gates=("sm",))
    opened = LeverForecast("nccl-tune", 3, "NCCL tuning", Range(60.0, "tok/s"), None)
    old = plan("2026-W47", extra=(LeverForecast("custom-ar", 2, "Custom all-reduce", None, None), opened))
    new = plan("2026-W48", priority=2, extra=(blocked, LeverForecast("topk", 4, "Wider tree", None, None)))
    changes = {c.lever: c.change for c in weekly(launches, plans=[old, new]).plan_changes}
    assert changes == {"fewer-drafts": "reranked", "custom-ar": "blocked", "topk": "opened", "nccl-tune": "closed"}
    assert weekly(launches, plans=[old]).plan_changes == ()


def test_promises_are_checked(launches: list[Launch]) -> None:
    promises = (
        Promise("2026-W47", "reach 55", config="eagle3", metric="throughput", target=55.0),
        Promise("2026-W47", "reach 80", owner="dana", config="eagle3", metric="throughput", target=80.0),
        Promise("2026-W47", "ask the vendor", status="blocked", note="no answer"),
        Promise("2026-W47", "think"),
        Promise("2026-W40", "long ago"),
    )
    report = weekly(launches, Config(promise=promises))
    assert [(p.text, p.kept) for p in report.promises] == [
        ("reach 55", "done"),
        ("reach 80", "not_done"),
        ("ask the vendor", "blocked"),
        ("think", "cannot_say"),
    ]


def test_goals_owners_and_triage(launches: list[Launch]) -> None:
    config = Config(
        configuration=(Tracked("eagle3", title="EAGLE-3", owner="dana", goals=(Goal("throughput", 82.0),)),),
        triaged=(Triaged(REGRESSION, "eagle3", "regression", "reverted in 0.5.8"),),
    )
    report = weekly(launches, config, REGRESSION)
    assert [r.name for r in report.configurations] == ["eagle3"]
    [event] = row(report).events
    assert event.triaged == "reverted in 0.5.8"
    assert all("Bisect" not in a.text for a in report.actions)
    standing = row(report).standing("throughput")
    assert standing is not None
    assert standing.goal == 82.0
    untriaged = weekly(launches, Config(configuration=config.configuration), REGRESSION)
    assert (untriaged.actions[0].owner, untriaged.actions[0].config) == ("dana", "eagle3")


def test_at_most_three_actions_the_most_urgent_first(launches: list[Launch]) -> None:
    config = Config(configuration=tuple(Tracked(n, launches_per_week=9) for n in ("eagle3", "baseline", "x", "y")))
    report = weekly(launches, config, REGRESSION)
    assert len(report.actions) == 3
    assert report.actions[0].text.startswith("Bisect the regression of eagle3")
    assert all(a.stop for a in report.actions)


def test_an_open_lever_is_proposed_until_it_was_tried(launches: list[Launch]) -> None:
    assert "Fewer draft tokens" in weekly(launches, plans=[plan()]).actions[0].text
    [adopt] = weekly([*launches, *experiment(65.0)], plans=[plan()]).actions
    assert adopt.text.startswith("Adopt fewer-drafts in eagle3")
    assert weekly([*launches, *experiment(57.7)], plans=[plan()]).actions == ()


def test_thresholds_decide(launches: list[Launch]) -> None:
    lax = Config(thresholds=Thresholds(min_effect_percent=20.0, blind_above_percent=40.0))
    assert row(weekly(launches, lax, REGRESSION)).verdict == "no_change"


def test_weeks_without_runs_are_refused_with_a_sentence(launches: list[Launch]) -> None:
    with pytest.raises(InputError, match="no runs up to 2020-W01"):
        weekly(launches, week="2020-W01")
    with pytest.raises(InputError, match="holds no runs"):
        weekly([])


def test_a_week_after_the_last_run_is_missing_for_all(launches: list[Launch]) -> None:
    report = weekly(launches, week="2026-W49")
    assert [[e.kind for e in r.events] for r in report.configurations] == [["missing"], ["missing"]]


def flat_history(seed: int, noise: float) -> list[Launch]:
    """Ten weeks of six launches in which nothing happens."""
    random = np.random.default_rng(seed)
    launches = []
    for week in WEEKS:
        for i in range(6):
            value = float(60 * (1 + noise * random.standard_normal()))
            measured = (Measurement("throughput", value, "tok/s", 1, 40),)
            name = f"{week}-{i}"
            launches.append(Launch(name, measured, {"gpu.name": "x"}, id=name, config="eagle3", week=week))
    return launches


@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_nothing_is_made_of_weeks_in_which_nothing_happens(noise: float) -> None:
    events = 0
    for seed in range(40):
        report = row(weekly(flat_history(seed, noise)))
        events += len(report.events) + len(report.history)
    assert events / (40 * (len(WEEKS) - 1)) <= 0.05


def test_a_slow_drift_is_found_once_it_is_large_and_named_once() -> None:
    launches = []
    for index, week in enumerate(WEEKS):
        for i, value in enumerate(noisy(60.0 * 0.99**index, 6, noise=0.008, seed=index)):
            measured = (Measurement("throughput", value, "tok/s", 1, 40),)
            launches.append(
                Launch(f"{week}-{i}", measured, {"gpu.name": "x"}, id=f"{week}-{i}", config="eagle3", week=week)
            )
    found = [(w, row(weekly(launches, week=w))) for w in WEEKS]
    drifts = [(w, r) for w, r in found if r.events]
    assert 1 <= len(drifts) <= 3
    week, first = drifts[0]
    assert WEEKS.index(week) >= 3
    [event] = first.events
    assert (event.kind, first.verdict, event.reference) == ("regression", "worse", WEEKS[0])
    assert "in steps too small to be seen from week to week" in event.sentence
    if len(drifts) > 1:
        assert drifts[1][1].events[0].reference == week
