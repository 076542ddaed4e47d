"""Documentation stays true: commands, links, and the README's own command lines."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from profkit.cli.app import build_app, run
from tests.paths import ROOT
from tests.readme_excerpt import README, refreshed

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
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    for mark, environment in (("try", ".venv"), ("tests", ".venv-tests")):
        words = shlex.split(readme_block(mark))
        assert words[:4] == ["python3", "-m", "venv", environment]
        assert f"{environment}/" in ignored
        assert all(word.split("/")[0] == environment for word in words if "/bin/" in word)
    for word in shlex.split(readme_block("try")):
        if word.startswith("sample_logs/"):
            assert (ROOT / word).exists(), word


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_readme_shows_real_output() -> None:
    text = README.read_text(encoding="utf-8")
    assert refreshed(text) == text, "run python -m tests.readme_excerpt"
