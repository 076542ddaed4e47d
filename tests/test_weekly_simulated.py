"""The simulated history, from log files to the report: each planted event is called by its right name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profkit.cli.app import run
from profkit.simulation.history import History, PlantedEvent, history, write_history

LAUNCHES = 4
# Of each configuration the weeks around what is planted in it, counted from 0; the other weeks would only cost time.
KEPT = {"eagle3": range(1, 8), "ngram": range(3, 8), "baseline": range(6, 10)}


@pytest.fixture(scope="module")
def past() -> History:
    """Seven weeks of EAGLE-3, five of NGRAM, four of the baseline."""
    full = history(10, launches=LAUNCHES)
    weeks = sorted({x.week for x in full.launches})
    kept = {name: {weeks[i] for i in indices} for name, indices in KEPT.items()}
    return History(
        tuple(x for x in full.launches if x.week in kept[x.config.rsplit("/", 1)[-1]]),
        tuple(e for e in full.events if e.week in kept[e.config.rsplit("/", 1)[-1]]),
    )


@pytest.fixture(scope="module")
def store(past: History, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The history as files, then in a store."""
    folder = tmp_path_factory.mktemp("history")
    write_history(past, folder / "runs", traces=False)
    assert run(["add", str(folder / "runs"), "-s", str(folder / "store"), "-q"]) == 0
    return folder / "store"


def report(store: Path, week: str, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    capsys.readouterr()
    assert run(["weekly", "-s", str(store), "--week", week, "--json", "-q"]) == 0
    return {c["name"]: c for c in json.loads(capsys.readouterr().out)["configurations"]}


def kinds(row: dict[str, object], part: str) -> list[tuple[str, str]]:
    events = row[part]
    assert isinstance(events, list)
    return [(e["week"], e["kind"]) for e in events]


def test_every_kind_of_event_is_planted(past: History) -> None:
    assert {e.kind for e in past.events} == {"regression", "improvement", "environment", "noise", "missing"}


def test_the_last_report_names_all_that_was_planted_and_nothing_else(
    past: History, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = max(x.week for x in past.launches)
    for name, row in report(store, last, capsys).items():
        of_config: list[PlantedEvent] = [e for e in past.events if e.config == name]
        ran = {x.week for x in past.launches if x.config == name}
        found = [e for e in kinds(row, "history") + kinds(row, "events") if e[0] <= max(ran)]
        assert found == [(e.week, e.kind) for e in of_config], name


def test_each_planted_week_says_so_itself(past: History, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = {"regression": "worse", "improvement": "better"}
    for event in past.events:
        row = report(store, event.week, capsys)[event.config]
        assert kinds(row, "events") == [(event.week, event.kind)]
        assert row["verdict"] == verdicts.get(event.kind, "cannot_say")
        if event.change_percent is not None and event.kind in verdicts:
            events = row["events"]
            assert isinstance(events, list)
            assert events[0]["change_percent"] == pytest.approx(event.change_percent, abs=2.5)
