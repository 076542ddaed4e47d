"""The commands around the store: add, runs, compare, weekly."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from profkit.cli.app import run
from profkit.jsonio import dumps
from profkit.sources import compare_paths, run_paths
from profkit.store.reader import Store
from profkit.store.writer import add_run
from tests.paths import SAMPLES
from tests.store_data import analysis, noisy
from tests.weekly_data import history_runs, week_runs

STORY = SAMPLES / "kimi-k2.5-tp8"


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROFKIT_STORE", raising=False)
    monkeypatch.setenv("COLUMNS", "160")


def write_launch(folder: Path, throughput: float, *, name: str, attention: str = "fa3", driver: str = "580") -> None:
    """A run folder with a log alone: one server, twenty steady decode lines."""
    folder.mkdir(parents=True)
    toml = f'name = "{name}"\nconfig = "eagle3"\ndate = "2026-11-23"\n[driver]\nversion = "{driver}"\n'
    (folder / "run.toml").write_text(toml + f'[server_args]\nattention_backend = "{attention}"\n')
    head = (
        "[2026-11-23 10:00:{:02d} TP0] Decode batch, #running-req: 1, #token: {}, token usage: 0.01, accept len: 2.00, "
    )
    tail = "accept rate: 0.33, cuda graph: True, gen throughput (token/s): {:.2f}, #queue-req: 0, \n"
    lines = [head.format(i, 100 + 80 * i) + tail.format(throughput * (1 + 0.002 * (i % 5))) for i in range(20)]
    (folder / "server.log").write_text("".join(lines))


def repeats(folder: Path, level: float, seed: int, n: int = 6, **facts: str) -> Path:
    for i, value in enumerate(noisy(level, n, noise=0.01, seed=seed)):
        write_launch(folder / f"launch-{i}", value, name=f"{folder.name}-{i}", **facts)
    return folder


def test_the_sample_runs_go_in_and_tell_the_reference_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["add", str(STORY), "-s", "s"]) == 0
    added = capsys.readouterr().out.splitlines()
    assert len(added) == 4
    assert run(["add", str(STORY / "eagle3"), "-s", "s", "-q"]) == 0
    assert capsys.readouterr().out.endswith("already there\n")
    assert run(["weekly", "-s", "s", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    rows = {c["name"].rsplit("/", 1)[-1]: c for c in report["configurations"]}
    economics = rows["eagle3"]["economics"]
    assert economics["inflation"]["value"] == pytest.approx(2.73, abs=0.03)
    assert economics["speculation_pays"] is False
    throughput = {name: row["metrics"][0]["current"]["value"] for name, row in rows.items()}
    assert throughput == pytest.approx({"baseline": 82.0, "eagle3": 60.0, "aq-medai": 52.0, "ngram": 41.0}, rel=0.01)
    assert {row["verdict"] for row in rows.values()} == {"cannot_say"}


def test_two_arms_are_set_against_each_other_phase_by_phase(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(STORY / "baseline"), str(STORY / "eagle3"), "--format", "json", "-q"]) == 0
    document = json.loads(capsys.readouterr().out)
    metrics = {m["name"]: m for m in document["metrics"]}
    reduce = metrics["target_forward.allreduce"]
    assert reduce["base"]["median"] == pytest.approx(9660, rel=0.02)
    assert reduce["candidate"]["median"] == pytest.approx(25100, rel=0.02)
    assert "verify.allreduce" not in metrics
    assert document["moved"][0]["name"] == "target_forward.allreduce"
    states = {d["key"]: d["state"] for d in document["differences"]}
    assert states["speculative.algorithm"] == "listed"


def test_compare_folders_of_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    repeats(Path("before"), 60.0, 1)
    repeats(Path("after"), 56.0, 2)
    assert run(["compare", "before", "after", "-q"]) == 0
    assert capsys.readouterr().out.startswith("Worse: throughput fell by ")
    assert run(["compare", "before", "after", "-q", "--fail-on", "worse:throughput:3%"]) == 1
    assert "throughput: worse by" in capsys.readouterr().err
    assert run(["compare", "before", "after", "-q", "--fail-on", "worse:throughput:30%"]) == 0
    assert run(["compare", "after", "before", "-q", "--fail-on", "worse"]) == 0
    capsys.readouterr()
    assert run(["compare", "before", "after", "-q", "--format", "markdown", "-o", "comment.md"]) == 0
    assert Path("comment.md").read_text(encoding="utf-8").startswith("### profkit compare\n\n**Worse: throughput")
    assert run(["compare", "before", "after", "-q", "--format", "markdown", "-o", "comment.md"]) == 2


def test_no_verdict_leaves_zero_with_a_warning_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    repeats(Path("before"), 60.0, 1, 2)
    repeats(Path("after"), 40.0, 2, 2)
    assert run(["compare", "before", "after", "-q", "--fail-on", "worse:throughput:3%"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("Cannot say: throughput")
    assert "p10 to p90 inside a launch" in captured.out
    assert "warning: throughput: cannot say whether it is worse (base: 2 server launches" in captured.err
    assert run(["compare", "before", "after", "-q", "--fail-on", "cannot_say"]) == 1


def test_what_differs_must_be_meant(capsys: pytest.CaptureFixture[str]) -> None:
    repeats(Path("before"), 60.0, 1)
    repeats(Path("after"), 50.0, 2, driver="590", attention="triton")
    assert run(["compare", "before", "after", "-q", "--fail-on", "cannot_say"]) == 1
    assert "not comparable" in capsys.readouterr().out
    expected = ["--expect", "driver.version", "--expect", "server_args.*"]
    assert run(["compare", "before", "after", "-q", *expected, "--fail-on", "cannot_say"]) == 0
    assert "Worse" in capsys.readouterr().out


def test_store_selections_and_live_runs_mix(capsys: pytest.CaptureFixture[str]) -> None:
    repeats(Path("before"), 60.0, 1)
    assert run(["add", "before", "--config", "eagle3", "--week", "2026-W47", "-q"]) == 0
    repeats(Path("after"), 56.0, 2)
    capsys.readouterr()
    assert run(["compare", "store:config=eagle3,week=2026-W47", "after", "-q", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "worse"
    schema = json.loads(files("profkit.schemas").joinpath("compare.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema)
    assert run(["compare", "store:config=nobody", "after", "-q"]) == 3
    assert "`profkit runs` lists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["compare", "nowhere", "nothing"], 3, "no such file"),
        (["compare", "x", "y", "--fail-on", "faster"], 2, "--fail-on"),
        (["compare", "x", "y", "--primary", "speedyness"], 2, "no metric"),
        (["compare", "x", "y", "--alpha", "2"], 2, "significance"),
        (["compare", "x", "y", "--format", "csv"], 2, "no csv form"),
        (["compare", "store:week=W3", "y"], 3, "no profkit store"),
        (["add"], 2, "nothing to add"),
        (["add", "nowhere"], 3, "no such file"),
        (["add", "--forecast", "plan.json"], 2, "--config and --week"),
        (["add", "--forecast", "plan.json", "-c", "x", "-w", "2026-W48"], 3, "No such file"),
        (["runs", "-s", "nowhere"], 3, "no profkit store"),
        (["weekly", "-s", "nowhere"], 3, "no profkit store"),
        (["weekly", "--week", "48"], 2, "ISO week"),
        (["weekly", "--config-file", "none.toml"], 3, "none.toml"),
    ],
)
def test_errors_are_one_sentence(
    arguments: list[str], code: int, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    captured = capsys.readouterr()
    assert word in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_runs_lists_filters_tags_and_removes(capsys: pytest.CaptureFixture[str]) -> None:
    records = [add_run(Path("profkit-store"), r).record for r in week_runs("eagle3", "2026-W39")]
    assert run(["runs"]) == 0
    listing = capsys.readouterr().out
    assert listing.count("2026-W39") == 6
    assert listing.endswith("6 runs, 1 configuration, 1 week\n")
    one, two = records[0].id, records[1].id
    assert run(["runs", one[:8], two, "--add-tag", "reference"]) == 0
    assert run(["runs", "--tag", "reference", "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert {r["id"] for r in rows} == {one, two}
    assert rows[0]["tags"] == ["reference"]
    assert run(["runs", one, "--remove"]) == 0
    assert len(Store.open(Path("profkit-store")).records()) == 5
    assert run(["runs", one, "--restore"]) == 0
    assert run(["runs", "--remove"]) == 2
    assert "name the runs" in capsys.readouterr().err
    assert run(["runs", one, "--remove", "--purge", "-q"]) == 0
    assert run(["runs", one]) == 2
    for form in ("csv", "json", "parquet"):
        assert run(["runs", "--format", form, "-o", f"runs.{form}"]) == 0
        assert Path(f"runs.{form}").stat().st_size > 100
    assert run(["runs", "--verify"]) == 0
    path = next(Path("profkit-store/runs").glob("*/metrics.parquet"))
    path.write_bytes(b"x" + path.read_bytes()[1:])
    assert run(["runs", "--verify"]) == 3


def test_weekly_writes_a_folder_and_overwrites_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for r in history_runs(traced=True):
        if r.date and r.date < "2026-10-12":
            add_run(Path("perf"), r)
    Path("profkit.toml").write_text(
        'store = "perf"\n[[configuration]]\nname = "eagle3"\nowner = "dana"\n\n[[configuration]]\nname = "baseline"\n',
        encoding="utf-8",
    )
    assert run(["weekly", "-o", "out"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].startswith("  eagle3: Worse: throughput fell by ")
    assert "written: out/weekly.md" in captured.err
    assert sorted(p.name for p in Path("out").iterdir()) == ["budget.png", "throughput.png", "weekly.json", "weekly.md"]
    before = {p.name: p.read_bytes() for p in Path("out").iterdir()}
    assert b"--store perf" in before["weekly.md"]
    assert run(["weekly", "-o", "out"]) == 2
    assert run(["weekly", "-o", "out", "--force", "-q"]) == 0
    assert {p.name: p.read_bytes() for p in Path("out").iterdir()} == before
    Path("page").mkdir()
    Path("page/weekly.html").write_text("mine", encoding="utf-8")
    assert run(["weekly", "-o", "page", "--html"]) == 2
    assert [p.read_text(encoding="utf-8") for p in Path("page").iterdir()] == ["mine"]
    assert run(["weekly", "-o", "page", "--html", "--force"]) == 0
    assert {p.name for p in Path("page").iterdir()} == {*before, "weekly.html"}
    assert "<h1>Week 2026-W41</h1>" in Path("page/weekly.html").read_text(encoding="utf-8")
    document = json.loads(before["weekly.json"])
    schema = json.loads(files("profkit.schemas").joinpath("weekly.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema)
    assert document["week"] == "2026-W41"
    capsys.readouterr()
    assert run(["weekly", "--week", "2026-W40", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["week"] == "2026-W40"


PLAN = {
    "schema": "profkit.plan/1",
    "run": "eagle3",
    "economics": {"throughput": {"value": 57.5, "unit": "tok/s", "low": None, "high": None}},
    "levers": [
        {
            "id": "fewer-drafts",
            "priority": 1,
            "gates": [{"name": "sm", "state": "pass", "why": ""}],
            "gain": {"candidate_throughput": {"value": 64.0, "unit": "tok/s", "low": 61.0, "high": 67.0},
                     "baseline_throughput": {"value": None, "unit": "tok/s"}},
            "kill": "below 60 tok/s",
        }
    ],
}  # fmt: skip


def test_forecasts_are_registered_and_scored(capsys: pytest.CaptureFixture[str]) -> None:
    Path("plan.json").write_text(json.dumps(PLAN), encoding="utf-8")
    forecast = ["add", "--forecast", "plan.json", "-c", "eagle3", "-w", "2026-W47"]
    assert run(forecast) == 0
    assert capsys.readouterr().out.endswith("1 levers  registered\n")
    assert run(forecast) == 0
    assert capsys.readouterr().out.endswith("already there\n")
    repeats(Path("plain"), 57.5, 1)
    repeats(Path("tried"), 65.0, 2)
    assert run(["add", "plain", "-q"]) == 0
    assert run(["add", "tried", "--lever", "fewer-drafts", "-q"]) == 0
    capsys.readouterr()
    assert run(["weekly", "--json", "-q"]) == 0
    document = capsys.readouterr().out
    assert run(["weekly", "--format", "json", "-q"]) == 0
    assert capsys.readouterr().out == document
    assert run(["weekly", "-f", "markdown", "-q"]) == 0
    assert capsys.readouterr().out.startswith("# ")
    assert run(["weekly", "--json", "-o", "here"]) == 2
    assert run(["weekly", "--format", "parquet"]) == 2
    assert not list(Path().glob("weekly*"))
    capsys.readouterr()
    assert run(["weekly", "--json", "-q"]) == 0
    [trial] = json.loads(capsys.readouterr().out)["experiments"]
    assert (trial["lever"], trial["verdict"], trial["within_range"]) == ("fewer-drafts", "better", True)
    assert trial["forecast"]["low"] == 61.0
    assert abs(trial["error_percent"]) < 4


@pytest.mark.parametrize(
    "text", ["", "[]", '{"schema": "profkit.plan/1"}', '{"schema": "x"}', '{"schema": "profkit.plan/1", "levers": [1]}']
)
def test_what_is_no_plan_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("plan.json").write_text(text, encoding="utf-8")
    assert run(["add", "--forecast", "plan.json", "-c", "x", "-w", "2026-W47"]) == 3
    assert "plan.json" in capsys.readouterr().err
    assert not Path("profkit-store").exists()


def test_a_damaged_forecast_is_named_and_the_report_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    add_run(Path("profkit-store"), analysis())
    Path("profkit-store/forecasts/0000000000000000.json").write_text("{", encoding="utf-8")
    assert run(["weekly", "--json"]) == 0
    captured = capsys.readouterr()
    assert "forecasts/0000000000000000.json: ignored" in captured.err
    assert json.loads(captured.out)["problems"] != []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[[configuration]]\nnmae = 'x'\n", "nmae"),
        ("[thresholds]\nalpha = 3\n", "alpha"),
        ("[[configuration]]\nname = 'x'\n[[configuration]]\nname = 'x'\n", "twice"),
        ("[thresholds]\nprimary = 'speedyness'\n", "speedyness"),
        ("[[promise]]\nmade = 'soon'\ntext = 'x'\n", "soon"),
        ("x = [", "TOML"),
    ],
)
def test_a_wrong_config_file_is_named_with_its_place(text: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("profkit.toml").write_text(text, encoding="utf-8")
    assert run(["weekly"]) == 3
    error = capsys.readouterr().err
    assert "profkit.toml" in error
    assert word.lower() in error.lower()


def test_which_folders_are_runs(tmp_path: Path) -> None:
    write_launch(Path("a/week/one"), 60.0, name="one")
    write_launch(Path("a/week/two"), 60.0, name="two")
    shutil.copytree(STORY / "eagle3" / "traces", "a/traced/traces")
    Path("a/traced/run.toml").write_text("", encoding="utf-8")
    assert [str(p) for p in run_paths(Path("a"))] == ["a/traced", "a/week/one", "a/week/two"]
    assert run_paths(Path("a/week/one")) == [Path("a/week/one")]
    log = Path("a/week/one/server.log")
    assert run_paths(log) == [log]
    Path("empty").mkdir()
    assert run(["compare", "empty", "a"]) == 3


def test_one_broken_run_does_not_keep_the_others_out(capsys: pytest.CaptureFixture[str]) -> None:
    repeats(Path("many"), 60.0, 1, 3)
    (Path("many") / "launch-1" / "server.log").write_text("nothing of interest\n")
    assert run(["add", "many", "-q"]) == 3
    captured = capsys.readouterr()
    assert captured.out.count("added") == 2
    assert "1 of 3 runs could not be added" in captured.err
    assert run(["add", "many/launch-1", "-q"]) == 3
    assert len(Store.open(Path("profkit-store")).records()) == 2


def test_the_same_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    repeats(Path("before"), 60.0, 1)
    repeats(Path("after"), 56.0, 2)
    assert run(["add", "before", "-q"]) == 0
    result = compare_paths("store:config=eagle3", "after")
    assert result.verdict == "worse"
    capsys.readouterr()
    assert run(["compare", "store:config=eagle3", "after", "--format", "json", "-q"]) == 0
    assert capsys.readouterr().out == dumps(result)
