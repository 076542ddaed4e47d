"""``profkit demo``, the weekly history and the documented example."""

from __future__ import annotations

import gzip
import re
import statistics
import tomllib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from profkit.cli.app import run
from profkit.simulation import simulate
from profkit.simulation.history import history, truth_toml, write_history
from profkit.simulation.scenario import Scenario
from tests.paths import ROOT, SAMPLES
from tests.simulated import MODES

STORY = SAMPLES / "kimi-k2.5-tp8"


def test_demo_writes_the_committed_samples_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "demo"
    assert run(["demo", str(target)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "profkit attribute" in said.err
    assert "--baseline" in said.err
    made = sorted(p.relative_to(target) for p in target.rglob("*") if p.is_file())
    assert made == sorted(p.relative_to(STORY) for p in STORY.rglob("*") if p.is_file())
    for name in made:
        one, two = (target / name).read_bytes(), (STORY / name).read_bytes()
        if name.suffix == ".gz":  # the compressed bytes depend on the zlib at hand
            one, two = gzip.decompress(one), gzip.decompress(two)
        assert one == two, name
    assert run(["demo", str(target)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_demo_overwrites_only_when_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def story(*, seed: int, cycles: int) -> dict[str, Scenario]:
        small = MODES["eagle3_v2"]
        return {"eagle3": replace(small, seed=seed, recording=replace(small.recording, cycles=cycles))}

    monkeypatch.setattr("profkit.simulation.reference_story", story)
    target = tmp_path / "demo"
    assert run(["demo", str(target)]) == 0
    before = (target / "eagle3" / "server.log").read_bytes()
    (target / "eagle3" / "run.toml").write_text("changed")
    (target / "eagle3" / "notes.txt").write_text("mine")
    assert run(["demo", str(target)]) == 2
    assert (target / "eagle3" / "run.toml").read_text(encoding="utf-8") == "changed"
    capsys.readouterr()
    assert run(["demo", str(target), "--force", "--seed", "7", "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert len(list((target / "eagle3" / "traces").iterdir())) == 4, "traces of the other seed are gone"
    assert (target / "eagle3" / "server.log").read_bytes() != before
    assert (target / "eagle3" / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert run(["demo", str(tmp_path / "large"), "--scale", "full"]) == 0
    assert (
        tomllib.loads((tmp_path / "large/eagle3/expected.toml").read_text(encoding="utf-8"))["rank"][0]["cycles"] == 60
    )


def test_documented_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(compile(code, "docs/simulation.md", "exec"), {})
    assert (tmp_path / "cheaper" / "expected.toml").is_file()
    assert len(list((tmp_path / "cheaper" / "traces").iterdir())) == 8
    facts = re.search(r"```toml\n(.*?)```", text, re.S)
    assert facts
    # The format shown is the format written.
    shown = tomllib.loads(facts[1])
    written = tomllib.loads((STORY / "eagle3" / "run.toml").read_text(encoding="utf-8"))
    assert shown | {"labels": None} == written | {"labels": None}


def test_demo_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    assert run(["demo", str(tmp_path / "file")]) == 2
    assert "is a file" in capsys.readouterr().err
    assert (tmp_path / "file").read_text(encoding="utf-8") == "x"


def test_history_holds_what_it_says(tmp_path: Path) -> None:
    past = history(10)
    planted = tomllib.loads(truth_toml(past))["event"]
    assert [e["kind"] for e in planted] == ["regression", *["environment"] * 3, "noise", "improvement", "missing"]
    by_week: dict[tuple[str, str], list[float]] = defaultdict(list)
    weeks = sorted({launch.week for launch in past.launches})
    assert len(weeks) == 10
    wanted = {weeks[i] for i in (2, 3, 6, 7)}
    for launch in past.launches:
        if launch.week in wanted and not launch.config.endswith("baseline"):
            wall = np.mean(next(iter(simulate(launch.scenario, record=False).walls_ns.values())))
            by_week[launch.config.rsplit("/", 1)[1], launch.week].append(float(wall))
    assert all(len(walls) == 6 for walls in by_week.values())

    def middle(config: str, week: int) -> float:
        return statistics.median(by_week[config, weeks[week]])

    assert middle("eagle3", 2) / middle("eagle3", 3) == pytest.approx(0.93, abs=0.012)
    assert middle("eagle3", 6) / middle("eagle3", 7) == pytest.approx(1.068, abs=0.012)
    ngram = by_week["ngram", weeks[6]]
    assert statistics.stdev(ngram) / statistics.mean(ngram) > 0.07
    assert statistics.median(ngram) / middle("ngram", 2) == pytest.approx(1.0, abs=0.02)
    assert not any(x.week == weeks[8] and x.config.endswith("baseline") for x in past.launches)
    drivers = {(x.week >= weeks[5]): x.scenario.hardware.driver for x in past.launches}
    assert drivers[False] != drivers[True]
    one = replace(past, launches=past.launches[:4])
    paths = write_history(one, tmp_path / "weeks")
    assert (tmp_path / "weeks" / "planted.toml") in paths
    assert len(list((tmp_path / "weeks").glob("*/*/launch-*/server.log"))) == 4
    assert len(list((tmp_path / "weeks").glob("*/eagle3/launch-1/traces/*.gz"))) == 8
    assert not list((tmp_path / "weeks").glob("*/*/launch-2/traces"))
