"""``profkit plan`` as a person calls it: files, refusals, hostile names."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from profkit.cli.app import run
from profkit.planning.plan import make_plan
from profkit.reports.plan import document, terminal
from profkit.reports.plan_plots import PLOTS
from tests.plan_data import STORY, sample, with_facts
from tests.test_plan_story import tables_are_whole

HOSTILE = "<script>alert(1)</script>|`x`\n# heading\u202e[a](javascript:b) $x$ {{ 7*7 }}"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two arms without traces: quick to read."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("eagle3", "baseline"):
        (folder / name).mkdir()
        for file in ("server.log", "run.toml", "server_args.json"):
            shutil.copy(STORY / name / file, folder / name / file)
    return folder


def test_it_writes_a_folder_and_never_over_an_old_plan(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "plan"
    call = ["plan", str(logs / "eagle3"), "--baseline", str(logs / "baseline"), "-o", str(out)]
    assert run(call) == 0
    said = capsys.readouterr()
    assert "does not pay" in said.out
    assert "plan.md" in said.err
    text = (out / "plan.md").read_text(encoding="utf-8")
    assert {p.name for p in out.iterdir()} >= {"plan.md", "plan.json", "economics.svg"}
    for picture in out.glob("*.svg"):
        assert f"({picture.name})" in text
    assert not (out / "budget.svg").exists()
    assert str(logs) not in text + (out / "plan.json").read_text(encoding="utf-8")
    kept = {p.name: p.read_bytes() for p in out.iterdir()}
    assert run(call) == 2
    assert "exists; choose another folder or give --force" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in out.iterdir()} == kept
    (out / "budget.svg").write_text("from an older plan with traces")
    assert run([*call, "--force", "--quiet"]) == 0
    assert {p.name: p.read_bytes() for p in out.iterdir()} == kept


def test_json_goes_to_standard_output(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(logs / "eagle3"), "-b", str(logs / "baseline"), "--goal", "90", "--json"]) == 0
    parsed = json.loads(capsys.readouterr().out)
    assert parsed["schema"] == "profkit.plan/1"
    assert parsed["goal"]["throughput"] == 90
    assert parsed["verdict"]["bottleneck"] is None


def test_format_prints_one_document_and_writes_nothing(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call = ["plan", str(logs / "eagle3"), "-b", str(logs / "baseline"), "-q"]
    said = {}
    for form in (["--json"], ["--format", "json"], ["--format", "markdown"], ["--json", "-f", "json"]):
        assert run([*call, *form]) == 0
        said[" ".join(form)] = capsys.readouterr().out
    assert said["--json"] == said["--format json"] == said["--json -f json"]
    assert run([*call, "-o", str(logs / "plan")]) == 0
    assert (
        said["--format markdown"].splitlines()[0]
        == (logs / "plan" / "plan.md").read_text(encoding="utf-8").splitlines()[0]
    )
    assert ".svg" not in said["--format markdown"]
    for form in (["-f", "csv"], ["-f", "json", "-o", "x"], ["--json", "--html"], ["--json", "-f", "markdown"]):
        assert run([*call, *form]) == 2, form
    assert not list(tmp_path.glob("plan*"))


def test_an_earlier_plan_is_superseded(logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["plan", str(logs / "eagle3"), "-b", str(logs / "baseline"), "--json"]
    assert run(call) == 0
    old = tmp_path / "plan.json"
    old.write_text(capsys.readouterr().out)
    assert run([*call, "--previous", str(old)]) == 0
    assert json.loads(capsys.readouterr().out)["supersedes"] == json.loads(old.read_text(encoding="utf-8"))["id"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["plan", "nowhere"], 3, "nowhere"),
        (["plan", str(STORY)], 2, "holds 4 runs"),
        (["plan"], 2, ""),
        (["plan", str(STORY / "eagle3"), "--previous", str(STORY / "eagle3" / "run.toml")], 3, "no JSON"),
        (["plan", str(STORY / "eagle3"), "--previous", "nowhere.json"], 3, "nowhere.json"),
    ],
)
def test_wrong_use_is_one_sentence(
    arguments: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert sentence in said


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    eagle = with_facts(
        replace(sample("eagle3"), name=HOSTILE, warnings=(HOSTILE,)),
        model__name=HOSTILE,
        gpu__name=HOSTILE,
        engine__version=HOSTILE,
        speculative__algorithm=HOSTILE,
        link__kind=HOSTILE,
    )
    plan = make_plan(eagle, sample("baseline"), [replace(sample("ngram"), name=HOSTILE)])
    text = document(plan, names=(HOSTILE, "base", HOSTILE))
    outside_code = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    assert "<script>" not in outside_code.replace("\\<script", "")
    assert "\n# heading" not in text
    assert "\u202e" not in text
    assert "49" not in [word for line in text.splitlines() if "heading" in line for word in line.split()]
    tables_are_whole(text)
    assert all("\n" not in line and "\u202e" not in line for line in terminal(plan))
    for name, _, draw in PLOTS:
        if draw(plan, tmp_path / name):
            drawn = (tmp_path / name).read_text(encoding="utf-8")
            assert "<script" not in drawn


def test_plots_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    plan = make_plan(sample("eagle3"), sample("baseline"))
    for name, _, draw in PLOTS:
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir(exist_ok=True)
            assert draw(plan, tmp_path / folder / name)
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
