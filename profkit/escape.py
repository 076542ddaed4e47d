"""Text from files is untrusted: make it harmless where it is shown."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~$])")
FORMULA_START = ("=", "+", "-", "@", "\t", "\r")


def encodable(text: str) -> str:
    """Text that UTF-8 can hold: file names in other encodings and JSON escapes bring lone surrogates."""
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def visible(text: str, limit: int | None = None) -> str:
    """One line without control, bidi or zero-width characters; cut to ``limit`` with an ellipsis."""
    clean = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text).replace("\n", " ").replace("\t", " ")
    if limit is not None and len(clean) > limit:
        return clean[: max(limit - 1, 0)] + "…"
    return clean


def markdown(text: str, limit: int | None = None) -> str:
    """Text that renders as itself inside a markdown paragraph or table cell."""
    return _MARKDOWN.sub(r"\\\1", visible(text, limit)).replace("&", "&amp;")


def csv_cell(text: str) -> str:
    """A cell that no spreadsheet runs as a formula and no terminal obeys; tabs and line breaks stay."""
    clean = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
    return "'" + clean if text.startswith(FORMULA_START) else clean
