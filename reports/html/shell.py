"""What every page shares: templates, look, the one script that may run, data that cannot leave its element."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from profkit._version import __version__
from profkit.escape import visible
from profkit.jsonio import plain
from profkit.reports.palette import DARK, LIGHT, css_variables
from profkit.reports.wording import figure


def _shown(value: Any) -> Any:
    """Text without control or bidi characters; markup is made by templates and stays."""
    return visible(value) if type(value) is str else value


@cache
def _environment() -> Environment:
    env = Environment(
        loader=PackageLoader("profkit.reports.html", "."),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters["figure"] = figure
    return env


def _read(name: str) -> str:
    return files("profkit.reports.html").joinpath(name).read_text(encoding="utf-8")


def _css(names: Sequence[str]) -> str:
    light, dark = css_variables(LIGHT), css_variables(DARK)
    rules = [
        (None, ":root", f"color-scheme: light;\n{light}"),
        ("screen and (prefers-color-scheme: dark)", ':root:not([data-theme="light"])', f"color-scheme: dark;\n{dark}"),
        ("screen", ':root[data-theme="dark"]', f"color-scheme: dark;\n{dark}"),
    ]
    texts = [f"{selector} {{\n{body}\n}}" for _, selector, body in rules]
    texts = [f"@media {m} {{\n{t}\n}}" if m else t for (m, _, _), t in zip(rules, texts, strict=True)]
    return "\n".join([*texts, *(_read(name) for name in names)])


def embedded(document: Any) -> Markup:
    """JSON that is safe inside a ``script`` element, whatever its strings hold."""
    text = json.dumps(plain(document), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - no character that HTML acts on is left


def fill(
    template: str,
    values: Mapping[str, Any],
    document: Any,
    *,
    scripts: Sequence[str],
    styles: Sequence[str] = ("page.css",),
) -> str:
    """A page as HTML text: a template that extends ``shell.html.j2``, ``document`` as its data.

    Strings in ``values`` are escaped; ``scripts`` and ``styles`` name files of this package. The page's policy lets
    exactly these scripts run.
    """
    script = "\n".join(_read(name) for name in scripts)
    shared = {
        "css": Markup(_css(styles)),  # noqa: S704 - package data
        "script": Markup(script),  # noqa: S704 - package data
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "data": embedded(document),
        "version": __version__,
    }
    return _environment().get_template(template).render({**values, **shared}).rstrip() + "\n"
