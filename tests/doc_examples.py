"""Console examples of the documentation: blocks with ``$ profkit ...`` and the output that they claim."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.paths import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
ELLIPSES = ("...", "…")
_FENCED = re.compile(r"^```[a-z]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:^    .*\n|^\n(?=    ))+", re.MULTILINE)
# What a compressed file weighs depends on the library that packs it.
_SIZE = re.compile(r"\d+(?:\.\d+)? [kMG]B\b")


@dataclass(frozen=True)
class Example:
    """One command as a reader would type it, and the lines below it; ``page`` and ``line`` say where it stands."""

    page: str
    line: int
    command: str
    shown: tuple[str, ...]

    @property
    def arguments(self) -> list[str]:
        """The words behind ``profkit``."""
        return shlex.split(self.command, comments=True)[1:]

    @property
    def name(self) -> str:
        """For the name of a test."""
        return f"{self.page}:{self.line}"

    def paths(self) -> list[str]:
        """The words that name something to read; what follows ``-o`` is written."""
        words = self.arguments
        return [w for n, w in enumerate(words) if "/" in w and words[n - 1] not in ("-o", "--output")]


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """(line in the page, lines) of every code block, fenced or indented."""
    for match in _FENCED.finditer(text):
        yield text.count("\n", 0, match.start(1)) + 1, match[1].splitlines()
    for match in _INDENTED.finditer(_FENCED.sub(lambda m: "\n" * m[0].count("\n"), text)):
        yield text.count("\n", 0, match.start()) + 1, [line[4:] for line in match[0].splitlines()]


def examples(page: Path) -> list[Example]:
    """All commands of a page, a command over several lines as one."""
    found = []
    for first, lines in _blocks(page.read_text(encoding="utf-8")):
        at = 0
        while at < len(lines):
            start = at
            command = lines[at]
            while command.endswith("\\") and command.startswith("$ "):
                at += 1
                command = command[:-1] + lines[at].strip()
            at += 1
            shown = []
            while at < len(lines) and not lines[at].startswith("$ "):
                shown.append(lines[at].rstrip())
                at += 1
            if command.startswith("$ profkit "):
                while shown and not shown[-1]:
                    shown.pop()
                found.append(Example(page.name, first + start, command[2:], tuple(shown)))
    return found


def mismatch(shown: Sequence[str], real: Sequence[str]) -> str | None:
    """The first shown line that the real output does not have at its place; ``None`` when all is true.

    Lines follow one another as in the output; an ellipsis stands for any number of lines.
    """
    shown = [_SIZE.sub("N MB", line) for line in shown]
    lines = [_SIZE.sub("N MB", line.rstrip()) for line in real]
    at, skipping = 0, False
    for line in shown:
        if line.strip() in ELLIPSES:
            skipping = True
            continue
        if skipping:
            at = next((n for n in range(at, len(lines)) if lines[n] == line), len(lines))
        if at >= len(lines) or lines[at] != line:
            return line
        at, skipping = at + 1, False
    rest = [line for line in lines[at:] if line]
    return None if skipping or not rest else f"not shown, and no ellipsis: {rest[0]}"
