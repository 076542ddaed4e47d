"""What every JSON document promises: its schema, and the same bytes wherever the run lies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from tests.paths import SAMPLES

STORY = SAMPLES / "kimi-k2.5-tp8"
RUNS = ("eagle3", "baseline")
DOCUMENTS = {
    "log": ["parse", "eagle3", "-f", "json"],
    "attribution": ["attribute", "eagle3", "-f", "json"],
    "doctor": ["doctor", "eagle3", "baseline", "-f", "json"],
    "whatif": ["whatif", "eagle3", "-b", "baseline", "--allreduce-us", "20", "-f", "json"],
    "compare": ["compare", "baseline", "eagle3", "-f", "json"],
    "plan": ["plan", "eagle3", "--baseline", "baseline", "-o", "OUT/plan-files"],
    "weekly": ["weekly", "-s", "store", "--json"],
    "table decode": ["parse", "eagle3", "-t", "decode", "-f", "json"],
    "table event": ["parse", "eagle3", "-t", "event", "-f", "json"],
    "table server": ["parse", "eagle3", "-t", "server", "-f", "json"],
    "table bench": ["parse", "eagle3", "-t", "bench", "-f", "json"],
}

# Each command of standard input, with its standard output in a file.
EACH = """
import json, os, sys
from profkit.cli.app import run
for name, arguments in json.load(sys.stdin).items():
    with open(name, "wb") as out:
        os.dup2(out.fileno(), 1)
    code = run(arguments)
    sys.stdout.flush()
    if code:
        sys.exit(f"{arguments} ended with {code}")
"""


def place(folder: Path) -> Path:
    for name in RUNS:
        shutil.copytree(STORY / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    here = [place(tmp_path_factory.mktemp(name)) for name in ("one", "another-place-with-a-longer-name")]
    for folder in here:
        profkit(folder, {"added": ["add", "baseline", "eagle3", "-s", "store", "-q"]})
    return here


def profkit(folder: Path, commands: Mapping[str, Sequence[str]]) -> None:
    """Run commands in one process, whose hashes are seeded anew; the output of each goes to a file of its name."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PROFKIT_CACHE_DIR": str(folder / ".cache"),
    }
    environment.pop("PYTHONHASHSEED", None)
    done = subprocess.run(
        [sys.executable, "-c", EACH], cwd=folder, env=environment, input=json.dumps(commands).encode(),
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()


def written(folder: Path, root: str) -> dict[str, bytes]:
    """All documents, with the runs named from ``root``: relative, or absolute."""
    out = f"out-{bool(root)}"
    (folder / out).mkdir()
    commands = {
        f"{out}/{what}": [f"{root}{a}" if a in (*RUNS, "store") else a.replace("OUT", out) for a in arguments]
        for what, arguments in DOCUMENTS.items()
    }
    profkit(folder, commands)
    where = {
        what: Path(arguments[arguments.index("-o") + 1], "plan.json") if "-o" in arguments else Path(name)
        for (name, arguments), what in zip(commands.items(), DOCUMENTS, strict=True)
    }
    return {what: (folder / file).read_bytes() for what, file in where.items()}


@pytest.fixture(scope="module")
def documents(places: list[Path]) -> list[dict[str, bytes]]:
    """Here and there, by relative names; then the same by absolute ones."""
    return [*(written(folder, "") for folder in places), *(written(folder, f"{folder}/") for folder in places)]


@pytest.mark.parametrize("what", DOCUMENTS)
def test_documents_keep_their_schema_and_do_not_depend_on_the_place(
    what: str, places: list[Path], documents: list[dict[str, bytes]]
) -> None:
    first, second, here, there = (made[what] for made in documents)
    found = json.loads(first, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    name = what.partition(" ")[0]
    assert found["schema"].startswith(f"profkit.{name}/")
    schema = json.loads(files("profkit.schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, schema, cls=jsonschema.Draft202012Validator)
    assert second == first
    assert here == there
    assert str(places[0]).encode() not in here
