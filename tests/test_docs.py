"""Documentation stays true: commands, links, and the README's own command lines."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from profkit.cli.app import build_app, run
from tests.paths import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


def command_names() -> list[str]:
    group = typer.main.get_command(build_app())
    return sorted(getattr(group, "commands", {}))


def readme_block(mark: str) -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"<!-- {mark} -->\n```\n(.*?)\n```", text, flags=re.DOTALL)
    assert "\n" not in block, "one line, so that it can be pasted"
    return str(block)


def test_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [name for name in command_names() if f"`profkit {name}" not in text]
    assert missing == []


@pytest.mark.parametrize("name", command_names())
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert len(capsys.readouterr().out.split()) > 20


def test_readme_commands_make_their_own_environment() -> None:
    for mark in ("try", "tests"):
        words = shlex.split(readme_block(mark))
        assert words[:4] == ["python3", "-m", "venv", ".venv"]
    for word in shlex.split(readme_block("try")):
        if word.startswith("sample_logs/"):
            assert (ROOT / word).exists(), word


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_readme_excerpt_is_what_the_plan_says(tmp_path: Path) -> None:
    story = ROOT / "sample_logs" / "kimi-k2.5-tp8"
    arguments = ["plan", str(story / "eagle3"), "--baseline", str(story / "baseline"), "--also", str(story / "ngram")]
    assert run([*arguments, "-o", str(tmp_path / "plan"), "-q"]) == 0
    plan = (tmp_path / "plan" / "plan.md").read_text(encoding="utf-8").splitlines()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (excerpt,) = re.findall(r"<!-- excerpt -->\n(.*?)\n<!-- end -->", readme, flags=re.DOTALL)
    lines = [line.removeprefix("> ").rstrip() for line in excerpt.splitlines() if line.strip("> ")]
    assert len(lines) > 10
    assert [line for line in lines if line not in plan] == []


def test_readme_attribution_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["attribute", str(ROOT / "sample_logs" / "kimi-k2.5-tp8" / "eagle3"), "-q"]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```\n(Decode cycle of batch.*?)\n```", readme, flags=re.DOTALL)
    assert [line for line in block.splitlines() if line.rstrip() not in printed] == []
