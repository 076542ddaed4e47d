"""What terminal output is made of: colours and the signs of findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SIGNS: Final[Mapping[str, str]] = {"problem": "✗", "warning": "!", "info": "·"}


@dataclass(frozen=True, slots=True)
class Style:
    """ANSI codes, or nothing."""

    bold: str = ""
    dim: str = ""
    red: str = ""
    yellow: str = ""
    cyan: str = ""
    end: str = ""


PLAIN: Final = Style()
COLOUR: Final = Style("\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[36m", "\x1b[0m")
