"""Rules as data: kernels, dialects, levers, hardware. Read with :func:`load_rules`."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def load_rules(name: str) -> dict[str, Any]:
    """Parse ``profkit/rules/<name>.toml``. The result is shared: do not change it."""
    text = files("profkit.rules").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
