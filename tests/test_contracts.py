"""What every JSON document promises: its schema, and the same bytes wherever the run lies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
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
    "plan": ["plan", "eagle3", "--baseline", "baseline", "-o", "OUT/plan"],
    "weekly": ["weekly", "-s", "store", "--json"],
    "table decode": ["parse", "eagle3", "-t", "decode", "-f", "json"],
    "table event": ["parse", "eagle3", "-t", "event", "-f", "json"],
    "table server": ["parse", "eagle3", "-t", "server", "-f", "json"],
    "table bench": ["parse", "eagle3", "-t", "bench", "-f", "json"],
}


def place(folder: Path) -> Path:
    for name in RUNS:
        shutil.copytree(STORY / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    here = [place(tmp_path_factory.mktemp(name)) for name in ("one", "another-place-with-a-longer-name")]
    for folder in here:
        done = profkit(folder, "add", "baseline", "eagle3", "-s", "store", "-q")
        assert done.returncode == 0, done.stderr
    return here


def profkit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PROFKIT_CACHE_DIR": str(folder / ".cache"),
    }
    return subprocess.run(
        [sys.executable, "-m", "profkit", *arguments], cwd=folder, env=environment, capture_output=True, check=False
    )


def document(folder: Path, arguments: list[str], root: str) -> bytes:
    """One document, with the runs named from ``root``: relative, or absolute."""
    named = [f"{root}{a}" if a in (*RUNS, "store") else a.replace("OUT", f"out-{bool(root)}") for a in arguments]
    done = profkit(folder, *named)
    assert done.returncode == 0, done.stderr
    if "-o" in named:
        return (folder / named[named.index("-o") + 1] / "plan.json").read_bytes()
    return done.stdout


@pytest.mark.parametrize("what", DOCUMENTS)
def test_documents_keep_their_schema_and_do_not_depend_on_the_place(what: str, places: list[Path]) -> None:
    first = document(places[0], DOCUMENTS[what], "")
    found = json.loads(first, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    name = what.partition(" ")[0]
    assert found["schema"].startswith(f"profkit.{name}/")
    schema = json.loads(files("profkit.schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, schema, cls=jsonschema.Draft202012Validator)
    assert document(places[1], DOCUMENTS[what], "") == first
    here, there = (document(place, DOCUMENTS[what], f"{place}/") for place in places)
    assert here == there
    assert str(places[0]).encode() not in here
