"""Jinja templates of the markdown documents. Text from files passes through the filter ``md``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from profkit import escape
from profkit.reports import wording


@cache
def environment() -> Environment:
    """The environment of all templates in ``reports/templates``."""
    env = Environment(
        loader=PackageLoader("profkit.reports", "templates"),
        autoescape=select_autoescape(enabled_extensions=("html.j2", "html")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters |= {
        "md": escape.markdown,
        "plain": escape.visible,
        "figure": wording.figure,
        "percent": wording.percent,
        "p": wording.p_value,
        "interval": wording.interval,
        "launches": wording.launches,
    }
    return env


def render(template: str, values: Mapping[str, Any]) -> str:
    """Fill a template; the result ends with one newline."""
    return environment().get_template(template).render(**values).rstrip() + "\n"
