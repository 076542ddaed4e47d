"""Tables of a terminal: fixed columns where there is room, the most important ones where there is not."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

INDENT: Final = "  "
_GAP: Final = 2


@dataclass(frozen=True, slots=True)
class Column:
    """A column, ``width`` characters wide where there is room; a ``left`` one stands left in its cell.

    Where the table is too wide, columns become as narrow as their cells, then those with the largest ``drop`` go; one
    with 0 stays.
    """

    head: str
    width: int
    drop: int = 0
    left: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> tuple[list[str], list[str]]:
    """Lines of a table, the header first, and the heads of the columns that ``width`` left no room for."""
    places = list(range(len(columns)))
    chosen = list(columns)
    if width is not None and _total(chosen) > width:
        chosen = [replace(c, width=_needed(c, [r[i] for r in rows], first=i == 0)) for i, c in enumerate(columns)]
        while _total([chosen[i] for i in places]) > width and any(chosen[i].drop for i in places):
            places.remove(max(places, key=lambda i: chosen[i].drop))
    lines = [_line([chosen[i] for i in places], [r[i] for i in places]) for r in ([c.head for c in columns], *rows)]
    return lines, [columns[i].head for i in range(len(columns)) if i not in places]


def wrapped(text: str, width: int | None, indent: str = "  ") -> list[str]:
    """Lines of a sentence, as one where ``width`` is not given; all but the first are indented."""
    if width is None:
        return [text]
    return textwrap.wrap(text, max(width, 20), subsequent_indent=indent, break_on_hyphens=False) or [""]


def _total(columns: Sequence[Column]) -> int:
    return len(INDENT) + sum(c.width for c in columns)


def _needed(column: Column, cells: Sequence[str], *, first: bool) -> int:
    return max(len(c) for c in (column.head, *cells)) + (0 if first else _GAP)


def _line(columns: Sequence[Column], cells: Sequence[str]) -> str:
    parts = []
    for i, (column, cell) in enumerate(zip(columns, cells, strict=True)):
        left = f"{' ' * _GAP if i else ''}{cell}".ljust(column.width)
        parts.append(left if column.left else cell.rjust(column.width))
    return (INDENT + "".join(parts)).rstrip()
