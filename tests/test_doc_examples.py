"""The console examples of the documentation: commands that exist, and output that is the program's own."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from profkit.cli.app import build_app, run
from profkit.simulation.history import History, history, write_history
from tests.doc_examples import PAGES, Example, examples, mismatch
from tests.paths import SAMPLES

EXAMPLES = [example for page in PAGES for example in examples(page)]
# Where examples run, `runs` holds the runs of the story and launches of simulated weeks; `perf` is a store of those.
STORY = SAMPLES / "kimi-k2.5-tp8"
RUNS = {"eagle3", "baseline", "ngram", "aq-medai", "before", "after", "2026-11-23"}
BEFORE, AFTER, LATER = "2026-W40", "2026-W41", "2026-W47"


def runnable(example: Example) -> bool:
    """Whether all that it reads is there; the rest needs a live log, a cache or runs of one's own."""
    known = [
        (SAMPLES.parent / path).exists() or (path.startswith("runs/") and path.split("/")[1] in RUNS)
        for path in example.paths()
    ]
    if "--store" in example.arguments:
        return bool(example.shown) and all(known)
    return all(known) and (bool(known) or example.arguments[0] == "demo")


RUNNABLE = [e for e in EXAMPLES if runnable(e)]


def test_most_commands_of_the_pages_can_be_run() -> None:
    assert {e.arguments[0] for e in RUNNABLE} >= {
        "add", "attribute", "compare", "demo", "doctor", "export", "parse", "plan", "weekly", "whatif",
    }  # fmt: skip
    assert len([e for e in RUNNABLE if e.shown]) >= 9


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_options_of_every_example_exist(example: Example) -> None:
    command: Any = typer.main.get_command(build_app())
    words = example.arguments
    while commands := getattr(command, "commands", None):
        command = commands[words.pop(0)]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = {word.partition("=")[0] for word in words if word.startswith("-") and len(word) > 1}
    assert given <= known | {"-h", "--help"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what examples read: two weeks around a planted regression, and two launches of a later one."""
    folder = tmp_path_factory.mktemp("examples")
    full = history(10)
    later = [x for x in full.launches if x.week == LATER and x.config.endswith("/ngram")][3:5]
    weeks = tuple(x for x in full.launches if x.week in (BEFORE, AFTER))
    write_history(History(weeks, ()), folder / "weeks")
    write_history(History(tuple(later), ()), folder / "later")
    assert run(["add", str(folder / "weeks"), "--store", str(folder / "perf"), "-q"]) == 0
    (folder / "runs").mkdir()
    for name in ("eagle3", "baseline", "ngram", "aq-medai"):
        (folder / "runs" / name).symlink_to(STORY / name)
    for name, found in (
        ("before", f"weeks/{BEFORE}/eagle3"),
        ("after", f"weeks/{AFTER}/eagle3"),
        ("2026-11-23", "later"),
    ):
        (folder / "runs" / name).symlink_to(folder / found)
    return folder


@pytest.mark.parametrize("example", RUNNABLE, ids=lambda e: e.name)
def test_examples_show_what_the_program_prints(
    example: Example, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sample_logs").symlink_to(SAMPLES)
    (tmp_path / "runs").symlink_to(place / "runs")
    shutil.copytree(place / "perf", tmp_path / "perf")
    monkeypatch.chdir(tmp_path)
    # As in a terminal: both streams in one place.
    screen = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    code = run(example.arguments)
    assert isinstance(screen.buffer, io.BytesIO)
    real = screen.buffer.getvalue().decode("utf-8").splitlines()
    assert code == 0, real
    wrong = mismatch(example.shown, real) if example.shown else None
    assert wrong is None, f"{example.name}: {wrong!r} is not what {example.command} prints:\n" + "\n".join(real)


@pytest.mark.parametrize(
    ("shown", "right"),
    [
        (["a", "b", "c"], True),
        (["a", "..."], True),
        (["...", "c"], True),
        (["a", "…", "c"], True),
        (["a", "b"], False),
        (["a", "c"], False),
        (["b", "..."], False),
        (["...", "b", "a", "..."], False),
        (["...", "b"], False),
        (["a", "x", "..."], False),
    ],
)
def test_ellipses_hide_lines_and_nothing_else(shown: list[str], right: bool) -> None:
    assert (mismatch(shown, ["a", "b", "c", ""]) is None) is right
