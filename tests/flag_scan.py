"""Which server flags and environment variables SGLang releases know, read from their wheels: makes ``flags.toml``.

    python -m tests.flag_scan WHEEL... > profkit/rules/flags.toml

Only names that the levers use are kept. Nothing is imported or run from the wheels.
"""

from __future__ import annotations

import ast
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

ARGUMENT_PLACES = ("sglang/srt/server_args.py", "sglang/srt/arg_groups/")
QUOTED_FLAG = re.compile(r"""["'](--[a-z0-9][a-z0-9-]*)["']""")
DECLARED = re.compile(r"^ {4}([A-Z][A-Z0-9_]+)\s*=\s*Env", re.MULTILINE)
# Read by name: os.getenv, os.environ and SGLang's own helpers.
READ = re.compile(
    r"""(?:getenv|environ\.get|get_bool_env_var|get_int_env_var)\(\s*["']([A-Z][A-Z0-9_]+)["']|environ\[["']([A-Z][A-Z0-9_]+)["']\]"""
)
REMOVED = re.compile(r"([A-Z][A-Z0-9_]+) has been removed")


def sources(wheel: Path) -> dict[str, str]:
    """Python sources of the serving runtime, by path."""
    with zipfile.ZipFile(wheel) as opened:
        return {
            name: opened.read(name).decode(errors="replace")
            for name in sorted(opened.namelist())
            if name.startswith("sglang/srt/") and name.endswith(".py") and "/models/" not in name
        }


def _annotated_fields(text: str) -> Iterator[str]:
    """Fields ``name: A[type, ...]`` become ``--name`` unless they say that they have no command line form."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        annotation = node.annotation
        if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.value) != "A":
            continue
        said = ast.unparse(annotation)
        if "no_cli=True" not in said:
            yield "--" + node.target.id.replace("_", "-")


def flags(files: Mapping[str, str]) -> set[str]:
    """Command line flags of the server."""
    found: set[str] = set()
    for name, text in files.items():
        if name.startswith(ARGUMENT_PLACES):
            found |= set(QUOTED_FLAG.findall(text))
            found |= set(_annotated_fields(text))
    return found


def variables(files: Mapping[str, str]) -> set[str]:
    """Environment variables that the runtime reads, without those it only warns about."""
    found: set[str] = set()
    removed: set[str] = set()
    for name, text in files.items():
        removed |= set(REMOVED.findall(text))
        if name.endswith("/environ.py"):
            found |= set(DECLARED.findall(text))
        found |= {one or other for one, other in READ.findall(text)}
    return found - removed


def version_of(wheel: Path) -> str:
    """The release in a wheel's file name."""
    return wheel.name.split("-")[1]


def version_key(version: str) -> tuple[int, ...]:
    """Order of releases; a post-release follows its release."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def spans(known: Sequence[tuple[str, set[str]]], names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """First and last sampled release that knows each name.

    Raises:
        ValueError: a name that no release knows, or that vanished and came back.
    """
    found = {}
    for name in sorted(names):
        having = [i for i, (_, has) in enumerate(known) if name in has]
        if not having or having[-1] - having[0] + 1 != len(having):
            raise ValueError(f"{name}: {'not in any release' if not having else 'not in a row of releases'}")
        found[name] = (known[having[0]][0], known[having[-1]][0])
    return found


def table(wheels: Sequence[Path], wanted_flags: Iterable[str], wanted_variables: Iterable[str]) -> str:
    """The sampled part of ``flags.toml``."""
    read = [(version_of(wheel), sources(wheel)) for wheel in sorted(wheels, key=lambda w: version_key(version_of(w)))]
    known_flags = spans([(v, flags(files)) for v, files in read], wanted_flags)
    known_variables = spans([(v, variables(files)) for v, files in read], wanted_variables)
    lines = [f"sampled = [{', '.join(f'{v!r}' for v, _ in read)}]".replace("'", '"'), "", "[flag]"]
    lines += [f'{name} = ["{first}", "{last}"]' for name, (first, last) in known_flags.items()]
    lines += ["", "[variable]"]
    lines += [f'{name} = ["{first}", "{last}"]' for name, (first, last) in known_variables.items()]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Print the table for the wheels given."""
    from profkit.planning.levers import load_levers, named_flags, named_variables

    levers = load_levers()
    sys.stdout.write(
        table(
            [Path(a) for a in arguments],
            {flag for lever in levers for flag in named_flags(lever)},
            {v for lever in levers for v in named_variables(lever) if not v.startswith("NCCL_")},
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
