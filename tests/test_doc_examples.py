"""The console examples of the documentation: commands that exist, and output that is the program's own."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from profkit.cli.app import build_app, run
from tests.doc_examples import PAGES, Example, examples, mismatch
from tests.paths import SAMPLES

EXAMPLES = [example for page in PAGES for example in examples(page)]
# In the place where examples run, `runs` holds the runs of the story, as on the pages.
RUNS = SAMPLES / "kimi-k2.5-tp8"


def runnable(example: Example) -> bool:
    """Whether all that it reads is in the repository; the rest needs a store, a live log or launches of one's own."""
    there = {"sample_logs": SAMPLES, "runs": RUNS}
    if not example.paths():
        return example.arguments[0] == "demo"
    return all((there.get(p.partition("/")[0], Path("/none")) / p.partition("/")[2]).exists() for p in example.paths())


RUNNABLE = [e for e in EXAMPLES if runnable(e)]


def test_most_commands_of_the_pages_can_be_run() -> None:
    assert {e.arguments[0] for e in RUNNABLE} >= {"attribute", "demo", "doctor", "export", "parse", "plan", "whatif"}
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


@pytest.mark.parametrize("example", RUNNABLE, ids=lambda e: e.name)
def test_examples_show_what_the_program_prints(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sample_logs").symlink_to(SAMPLES)
    (tmp_path / "runs").symlink_to(RUNS)
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
