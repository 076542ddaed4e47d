"""Facts that lie beside the traces a command was given."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profkit.run import Facts
    from profkit.trace import Trace


def facts_near(paths: Sequence[str], traces: Sequence[Trace]) -> Facts:
    """Facts from ``run.toml`` and ``server_args.json`` in the given folder or beside the given files, and the traces.

    Only when all paths share one folder: facts of one run must not be laid over another.

    Raises:
        InputError: such a file is there and cannot be read.
    """
    from profkit import facts

    places: list[dict[str, Any]] = []
    folders = {Path(p) if Path(p).is_dir() else Path(p).parent for p in paths if p != "-" and "://" not in p}
    if len(folders) == 1:
        folder = next(iter(folders))
        near = [folder, folder.parent] if not (folder / "run.toml").is_file() else [folder]
        for place in near:
            places += _from_folder(place)
            if places:
                break
    return facts.merge([*places, facts.from_traces(traces)])


def _from_folder(folder: Path) -> list[dict[str, Any]]:
    from profkit import facts
    from profkit.errors import InputError
    from profkit.jsonio import loads

    found: list[dict[str, Any]] = []
    run, arguments = folder / "run.toml", folder / "server_args.json"
    try:
        if run.is_file():
            found.append(facts.from_run_toml(tomllib.loads(run.read_text(encoding="utf-8")), run.name))
        if arguments.is_file():
            document = loads(arguments.read_text(encoding="utf-8"))
            if isinstance(document, dict):
                found.append(facts.from_server_args(document, arguments.name))
    except (ValueError, OSError, RecursionError) as error:
        raise InputError(f"{folder}: run.toml or server_args.json cannot be read ({error}); mend or move it") from error
    return found
