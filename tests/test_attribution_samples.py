"""The sample runs against what their simulator counted: exact, on every rank."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from profkit import facts, tables
from profkit.attribution import Attribution, attribute
from profkit.jsonio import dumps
from profkit.parsers.trace import read_traces
from profkit.words import ACTIVITIES, PHASES
from tests.paths import SAMPLES

RUNS = sorted(p.parent for p in SAMPLES.glob("*/*/expected.toml"))


@cache
def result(folder: Path) -> tuple[Attribution, dict[str, Any]]:
    known = facts.from_run_toml(tomllib.loads((folder / "run.toml").read_text(encoding="utf-8")), "run.toml")
    attribution = attribute(read_traces([folder]), facts=facts.merge([known]))
    return attribution, tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", RUNS, ids=lambda p: p.name)
def test_every_rank_and_cell(folder: Path) -> None:
    found, expected = result(folder)
    assert len(found.ranks) == len(expected["rank"])
    for mine, truth in zip(found.ranks, expected["rank"], strict=True):
        assert mine.rank == truth["rank"]
        assert (mine.cycles, mine.dropped["partial"], mine.dropped["prefill"]) == (
            truth["cycles"],
            truth["partial"],
            truth["with_prefill"],
        )
        assert sum(v or 0 for p in mine.parts_ns.values() for v in p.values()) == mine.wall_ns
        # Two of a hundred thousand: the first copy of a step may be its own or the scheduler's.
        assert mine.wall_ns == pytest.approx(truth["wall_ns"], rel=2e-4)
        for phase in PHASES:
            for activity in ACTIVITIES:
                value = mine.parts_ns[phase][activity] or 0
                wanted = truth["parts_ns"].get(phase, {}).get(activity, 0)
                assert abs(value - wanted) <= 0.005 * truth["wall_ns"], (phase, activity)
        assert mine.overlapped_comm_ns == pytest.approx(truth["overlapped_comm_ns"], abs=1000)


@pytest.mark.parametrize("folder", RUNS, ids=lambda p: p.name)
def test_clock_offsets(folder: Path) -> None:
    found, expected = result(folder)
    for mine, truth in zip(found.clock_offsets_us, expected["rank"], strict=True):
        assert mine.offset is not None
        assert mine.spread is not None
        assert mine.offset == pytest.approx(truth["clock_offset_us"], abs=max(0.2, mine.spread))


@pytest.mark.parametrize("folder", RUNS, ids=lambda p: p.name)
def test_headline_adds_up(folder: Path) -> None:
    cycle = result(folder)[0].cycle
    assert cycle is not None
    assert sum(v or 0.0 for v in cycle.headline_us.values()) == pytest.approx(cycle.wall_us.mean, rel=1e-12)
    assert sum(cycle.idle_causes_us.values()) == pytest.approx(cycle.headline_us["idle"], rel=1e-9)


@pytest.mark.parametrize("folder", RUNS, ids=lambda p: p.name)
def test_json_keeps_its_contract(folder: Path) -> None:
    document = json.loads(dumps(result(folder)[0]))
    schema = json.loads(files("profkit.schemas").joinpath("attribution.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
    for rank in document["ranks"]:
        assert set(rank["parts_ns"]) == set(PHASES)


@pytest.mark.parametrize("folder", RUNS, ids=lambda p: p.name)
def test_tables_say_the_same_as_the_summary(folder: Path) -> None:
    found = result(folder)[0]
    assert found.parts.schema == tables.PARTS
    assert found.cycles.schema == tables.CYCLES
    assert found.segments.schema == tables.SEGMENTS
    assert found.calls.schema == tables.COLLECTIVE_CALLS
    assert all(t.schema == tables.OPS for t in found.ops)
    parts = found.parts.to_pandas()
    for rank in found.ranks:
        mine = parts[(parts["rank"] == rank.rank) & parts["counted"]]
        assert int(mine["duration_ns"].sum()) == rank.wall_ns
    segments = found.segments.to_pandas()
    assert int((segments["end_ns"] - segments["start_ns"]).sum()) == int(parts["duration_ns"].sum())
