"""The documents that people and programs read: comparison comment, weekly report, their contracts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from matplotlib.colors import to_hex
from syrupy.assertion import SnapshotAssertion

from profkit.comparison.launch import Launch, launch_of
from profkit.comparison.metrics import Measurement
from profkit.comparison.result import Settings
from profkit.comparison.verdict import compare
from profkit.config import Config, Goal, Promise, Tracked
from profkit.jsonio import dumps
from profkit.reports.compare import markdown_comment, terminal
from profkit.reports.weekly import document
from profkit.reports.weekly import terminal as weekly_terminal
from profkit.reports.weekly_plots import budget_plot, throughput_plot
from profkit.weekly.report import weekly
from tests.store_data import PARTS_US, analysis, noisy
from tests.test_compare_verdict import SLOWER, side
from tests.test_weekly_events import experiment, plan
from tests.weekly_data import DRIVER, MISSING, NOISE, PLANTED, REGRESSION, WEEKS, history_launches

BARE_TAG = re.compile(r"(?<!\\)<img")
CONFIG = Config(
    configuration=(
        Tracked("eagle3", title="EAGLE-3, own drafter", owner="dana", goals=(Goal("throughput", 82.0),)),
        Tracked("baseline", title="No speculation"),
    ),
    promise=(
        Promise("2026-W47", "EAGLE-3 at 60 tok/s", owner="dana", config="eagle3", metric="throughput", target=60.0),
    ),
)


def test_comment_for_a_pull_request(snapshot: SnapshotAssertion) -> None:
    base = side(60, 1, parts_us=PARTS_US)
    facts = {"server_args.attention_backend": "fa3", "driver.version": "590.1"}
    candidate = side(57, 2, facts=facts, parts_us=SLOWER)
    result = compare(base, candidate, Settings(expect=("driver.version", "server_args.*")))
    assert markdown_comment(result) == snapshot
    assert "\n".join(terminal(result)[0]) == snapshot


def test_first_line_of_each_verdict(snapshot: SnapshotAssertion) -> None:
    pairs = {
        "better": compare(side(60, 1), side(66, 2)),
        "no change": compare(side(60, 1), side(60, 2)),
        "too few": compare(side(60, 1, 2), side(60, 2, 2)),
        "not comparable": compare(side(60, 1), side(60, 2, facts={"gpu.name": "H200"})),
    }
    assert {name: terminal(result)[0] for name, result in pairs.items()} == snapshot


@pytest.mark.parametrize("week", [REGRESSION, WEEKS[-1]])
def test_weekly_document(week: str, snapshot: SnapshotAssertion) -> None:
    launches = [*history_launches(traced=True), *experiment(65.0)]
    report = weekly(launches, CONFIG, week, plans=[plan(), plan(WEEKS[-1], priority=2)])
    assert document(report, plots=("throughput.png",)) == snapshot
    assert "\n".join(weekly_terminal(report)) == snapshot


def test_first_screens(snapshot: SnapshotAssertion) -> None:
    launches = history_launches()
    assert {w: weekly_terminal(weekly(launches, week=w)) for w in (DRIVER, NOISE, MISSING)} == snapshot


@pytest.mark.parametrize("week", [WEEKS[0], *PLANTED, WEEKS[-1]])
def test_the_weekly_json_keeps_its_contract(week: str) -> None:
    schema = json.loads(files("profkit.schemas").joinpath("weekly.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    launches = [*history_launches(), *experiment(65.0)]
    report = weekly(launches, CONFIG, week, plans=[plan()])
    text = dumps(report)
    jsonschema.validate(json.loads(text), schema)
    assert text == dumps(weekly(list(reversed(launches)), CONFIG, week, plans=[plan()])), "the order of reading matters"


def test_a_latency_that_rises_while_throughput_stays_is_on_the_first_screen() -> None:
    launches = []
    for week, latency in (("2026-W47", 100.0), ("2026-W48", 140.0)):
        rates, times = noisy(60.0, 6, noise=0.01, seed=1), noisy(latency, 6, noise=0.01, seed=2)
        for i, (rate, time) in enumerate(zip(rates, times, strict=True)):
            measured = (
                Measurement("throughput", rate + i / 100, "tok/s", 1, 40),
                Measurement("bench.median_ttft", time, "ms", 1, 1),
            )
            launches.append(Launch(f"{week}-{i}", measured, {}, id=f"{week}-{i}", config="a", week=week))
    report = weekly(launches)
    assert report.configurations[0].verdict == "no_change"
    assert any("also worse: benchmark: median ttft rose by 40" in line for line in weekly_terminal(report))
    assert "- worse: benchmark: median ttft rose by 40" in document(report)


def test_plots_are_drawn_and_the_same_twice(tmp_path: Path) -> None:
    report = weekly(history_launches(traced=True), week=REGRESSION)
    for name in ("a.png", "b.png"):
        throughput_plot(report, tmp_path / name)
        assert budget_plot(report, tmp_path / f"budget-{name}")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "budget-a.png").read_bytes() == (tmp_path / "budget-b.png").read_bytes()
    untraced = weekly(history_launches(), week=REGRESSION)
    assert not budget_plot(untraced, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_names_from_files_cannot_break_out() -> None:
    evil = "x|y\n# <img src=x> $\\frac$ \u202e"
    run = analysis(evil, 60.0, config=evil, facts={"gpu.name": evil}, labels={"dataset": evil})
    launches = [launch_of(run)]
    text = markdown_comment(compare(launches, side(60, 1, 1)), title=evil)
    assert not BARE_TAG.search(text)
    assert "\n# " not in text

    report = weekly([replace(launches[0], week="2026-W48")])
    text = document(report)
    assert not BARE_TAG.search(text)
    assert all(not line.startswith("# <") for line in text.splitlines())
    assert "\u202e" not in text + "".join(weekly_terminal(report))


def test_the_budget_names_every_colour(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr("profkit.reports.style.save", lambda figure, *_, **__: drawn.append(figure))
    assert budget_plot(weekly(history_launches(traced=True), week=REGRESSION), tmp_path / "budget.png")
    (figure,) = drawn
    (legend,) = figure.legends
    named = {to_hex(h.get_facecolor()) for h in legend.legend_handles}
    assert {to_hex(bar.get_facecolor()) for bar in figure.axes[0].patches} == named
    assert figure.axes[0].get_title(loc="left") == "Where a cycle goes, by what the GPU does"
