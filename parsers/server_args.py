"""SGLang's server arguments: both printed forms and the JSON files, as typed values without secrets."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from profkit.errors import InputError
from profkit.jsonio import loads
from profkit.rules import load_rules

REMOVED: Final = "[removed]"
_SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:(?:api|admin|access|secret|private|encryption|watermark)_?key(?:_[a-z])?|password|passwd|passphrase|"
    r"secret|credentials?|(?:auth|access|hf|bearer|session)_?token|authorization)$|^token$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|Bearer\s+\S{8,}|AKIA[0-9A-Z]{16})")
# A server's own command line is among its arguments.
_OPTION_SECRET = re.compile(
    r"(--[a-z-]{0,40}(?:(?:api|access|secret)[_-]key|password|secret|(?:auth|access|hf|bearer|session)[_-]token)"
    r"(?:=|\s+))(?:\"[^\"]*\"|'[^']*'|\S+)",
    re.IGNORECASE,
)
_QUERY_SECRET = re.compile(
    r"([?&](?:sig|signature|key|api[_-]?key|(?:access_)?token|x-amz-(?:signature|credential|security-token))=)[^&\s'\"]+",
    re.IGNORECASE,
)
_URL_LOGIN = re.compile(r"(?<=://)[^/@\s'\"]+@")
_NESTED_SECRET = re.compile(
    r"""((?:api[_-]?key|password|passwd|secret|token|access_key)["']?\s*[:=]\s*)(["']?)[^"',}\s]+\2""", re.IGNORECASE
)
_NAMED_KEY = re.compile(r"""((?:api[_-]?key|password|passwd)["']?\s*[:=]\s*)(["']?)[^"',}\s]+\2""", re.IGNORECASE)
_MAX_VALUE: Final = 100_000
_OBJECT = re.compile(r"[A-Z]\w*\((?=\w+=)")  # the repr of a nested configuration
_DEEPEST: Final = 8
_OPENERS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Releases that fit a set of argument names; ``match`` is 1.0 when they fit exactly (Jaccard index)."""

    low: str
    high: str
    match: float


def parse_server_args(text: str) -> dict[str, Any] | None:
    """Arguments from the text after ``server_args=``: ``ServerArgs(name=value, ...)`` or ``{'name': value, ...}``.

    Values become None, bool, int, float, str, list or dict; what is none of these stays text. Secrets are replaced by
    ``[removed]``. A cut text gives the whole arguments before the cut. ``None`` if it is neither form.
    """
    text = text.strip()
    if text.startswith("ServerArgs("):
        pairs = _pairs(text[len("ServerArgs(") :], "=")
    elif text.startswith("{"):
        pairs = _pairs(text[1:], ":")
    else:
        return None
    return without_secrets({name: _value(value) for name, value in pairs})


def read_server_args_json(path: Path | str) -> dict[str, Any]:
    """Server arguments from ``server_args.json`` or ``server_info.json`` (what the server's ``/server_info`` returns).

    The arguments may lie at the top or below ``server_args``; other facts at the top (``version``) are kept.

    Raises:
        InputError: the file cannot be read or is no JSON object.
    """
    try:
        document = loads(Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); save the server's /server_info answer there") from error
    if not isinstance(document, dict):
        raise InputError(f"{path}: a JSON object is needed; save the server's /server_info answer there")
    nested = document.get("server_args")
    if isinstance(nested, str):
        nested = parse_server_args(nested)
    if isinstance(nested, dict):
        document = {**{k: v for k, v in document.items() if k != "server_args"}, **nested}
    document.pop("internal_states", None)
    return without_secrets(document)


def without_secrets(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments with keys, passwords, tokens and logins in addresses replaced."""
    return {
        name: REMOVED if _SECRET_NAME.search(name) and value not in (None, "", False) else _cleaned(value)
        for name, value in arguments.items()
    }


@lru_cache(maxsize=64)
def infer_version(names: frozenset[str]) -> VersionRange | None:
    """The releases whose argument names fit best; ``None`` below 80 % agreement or with fewer than 20 names."""
    if len(names) < 20:
        return None
    best, fitting = 0.0, list[str]()
    for release, known in _release_keys().items():
        score = len(names & known) / len(names | known)
        if score > best:
            best, fitting = score, [release]
        elif score == best:
            fitting.append(release)
    return VersionRange(fitting[0], fitting[-1], best) if best >= 0.8 else None


@cache
def releases() -> tuple[str, ...]:
    """All known releases, oldest first."""
    return tuple(load_rules("server_args")["releases"])


@cache
def _release_keys() -> dict[str, frozenset[str]]:
    order = {release: number for number, release in enumerate(releases())}
    names: dict[str, set[str]] = {release: set() for release in order}
    for name, ranges in load_rules("server_args")["keys"].items():
        for span in ranges.split():
            first, _, last = span.partition("..")
            for release in releases()[order[first] : order[last] + 1 if last else len(order)]:
                names[release].add(name)
    return {release: frozenset(found) for release, found in names.items()}


def _pairs(text: str, separator: str) -> Iterator[tuple[str, str]]:
    for item in _items(text):
        name, found, value = item.partition(separator)
        name = name.strip().strip("'\"")
        if found and re.fullmatch(r"[A-Za-z_]\w*", name):
            yield name, value.strip()


def _items(text: str) -> Iterator[str]:
    """Split at top-level commas up to the closing bracket; an unfinished last item is dropped."""
    depth: list[str] = []
    quote = ""
    start = position = 0
    while position < len(text):
        char = text[position]
        if quote:
            if char == "\\":
                position += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in _OPENERS:
            depth.append(_OPENERS[char])
        elif depth and char == depth[-1]:
            depth.pop()
        elif not depth and char in ",)}":
            yield text[start:position]
            start = position + 1
            if char != ",":
                return
        position += 1


def _value(text: str, depth: int = 0) -> Any:
    if len(text) <= _MAX_VALUE:
        try:
            return _plain(ast.literal_eval(text))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            pass
        nested = _OBJECT.match(text)
        if nested and depth < _DEEPEST:
            return {name: _value(value, depth + 1) for name, value in _pairs(text[nested.end() :], "=")}
    return text[:_MAX_VALUE]


def text_without_secrets(text: str) -> str:
    """The text with what is surely a key, a password or a login in it replaced."""
    text = _SECRET_VALUE.sub(REMOVED, _URL_LOGIN.sub(f"{REMOVED}@", text))
    text = _QUERY_SECRET.sub(rf"\1{REMOVED}", _OPTION_SECRET.sub(rf"\1{REMOVED}", text))
    return _NAMED_KEY.sub(rf"\1\2{REMOVED}\2", text)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in (sorted(value, key=repr) if isinstance(value, set | frozenset) else value)]
    return repr(value)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        value = text_without_secrets(value)
        return _NESTED_SECRET.sub(rf"\1\2{REMOVED}\2", value)
    if isinstance(value, dict):
        return without_secrets({str(k): v for k, v in value.items()})
    if isinstance(value, list):
        return [_cleaned(v) for v in value]
    return value
