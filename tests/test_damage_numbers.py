"""Damage that still parses: no wrong number comes of it, and it costs no more time than the file is long."""

from __future__ import annotations

import gzip
import json
import math
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from profkit.analysis import RunAnalysis
from profkit.attribution import Attribution, attribute
from profkit.comparison.launch import launch_of
from profkit.parsers.trace import cache, read_traces
from profkit.parsers.trace.scan import Buffer, value_end
from profkit.reports.attribution import as_markdown, terminal
from profkit.run import Facts
from profkit.speculation.arm import target_allreduce
from tests.paths import SAMPLES

TRACE = sorted((SAMPLES / "kimi-k2.5-tp8" / "eagle3" / "traces").glob("*.gz"))[0]


def events_of(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    return document


def attributed(document: dict[str, Any], place: Path) -> Attribution:
    place.write_text(json.dumps(document, default=str), encoding="utf-8")
    return attribute(read_traces([place]))


@pytest.mark.parametrize(
    ("key", "value"),
    [("ts", "9876543210987654.321"), ("ts", "-9223372036854775.0"), ("ts", "1.5"), ("dur", "9223372036854775.0")],
)
def test_one_damaged_digit_moves_no_figure(key: str, value: str, tmp_path: Path) -> None:
    document = events_of(TRACE)
    sound = attributed(document, tmp_path / "sound-TP-0.trace.json")
    kernels = [e for e in document["traceEvents"] if e.get("cat") == "kernel"]
    kernels[len(kernels) // 2][key] = value
    hurt = attributed(document, tmp_path / "hurt-TP-0.trace.json")
    assert sound.cycle is not None
    assert hurt.cycle is not None
    assert hurt.cycle.wall_us.p90 == pytest.approx(sound.cycle.wall_us.p90, rel=0.01)
    assert hurt.cycle.headline_us["idle"] == pytest.approx(sound.cycle.headline_us["idle"] or 0.0, rel=0.5)
    (lost,) = [f for f in hurt.findings if f.kind == "ops_without_start"]
    assert lost.numbers == {"ops": 1}


@pytest.mark.parametrize("window", [True, False], ids=["window", "no window"])
@pytest.mark.parametrize("duration", [None, "-5.0", math.nan, "0", "1000000", "9223372036854775.0"])
@pytest.mark.parametrize("name", ["draft", "step[TARGET_VERIFY", "draft_extend", "scheduler.run_batch"])
def test_a_damaged_annotation_merges_no_cycles_and_is_named(
    name: str, duration: str | float | None, window: bool, tmp_path: Path
) -> None:
    document = events_of(TRACE)
    if not window:
        document["traceEvents"] = [e for e in document["traceEvents"] if e.get("cat") != "Trace"]
    sound = attributed(document, tmp_path / "sound-TP-0.trace.json")
    assert sound.cycle is not None
    assert not [f for f in sound.findings if f.kind == "annotations_damaged"]
    steps = [e for e in document["traceEvents"] if e.get("cat") == "user_annotation" and e["name"].startswith(name)]
    steps = [e for e in steps if name != "draft" or e["name"] == name]
    if duration is None:
        del steps[len(steps) // 2]["dur"]
    else:
        steps[len(steps) // 2]["dur"] = duration
    hurt = attributed(document, tmp_path / "hurt-TP-0.trace.json")
    assert hurt.cycle is not None
    assert (hurt.cycle.count, hurt.cycle.wall_us) == (sound.cycle.count, sound.cycle.wall_us)
    for part, value in sound.cycle.headline_us.items():
        assert hurt.cycle.headline_us[part] == pytest.approx(value, abs=1.0), part
    (said,) = [f for f in hurt.findings if f.kind == "annotations_damaged"]
    assert said.numbers == {"annotations": 1, "mended": 1}
    assert said.sentence in hurt.warnings


def test_steps_of_which_none_has_a_duration_are_named(tmp_path: Path) -> None:
    document = events_of(TRACE)
    steps = [e for e in document["traceEvents"] if e.get("cat") == "user_annotation" and "TARGET_VERIFY" in e["name"]]
    for step in steps:
        del step["dur"]
    hurt = attributed(document, tmp_path / "hurt-TP-0.trace.json")
    (said,) = [f for f in hurt.findings if f.kind == "annotations_damaged"]
    assert said.numbers == {"annotations": len(steps), "mended": 0}


def test_no_calls_per_cycle_without_a_cycle(tmp_path: Path) -> None:
    text = gzip.decompress(TRACE.read_bytes())
    place = tmp_path / "cut-TP-0.trace.json"
    place.write_bytes(text[: len(text) // 6])
    result = attribute(read_traces([place]))
    assert result.cycle is None
    assert result.collectives
    analysis = RunAnalysis("cut", "cut", None, None, Facts({}), None, result)
    assert target_allreduce(analysis) == ()
    assert not [m for m in launch_of(analysis).measurements if m.name.startswith("allreduce")]
    row = next(line for line in terminal(result).splitlines() if line.startswith("  verify all_reduce"))
    assert row.split()[2] == "–"
    assert "| verify all\\_reduce | – |" in as_markdown(result)


def test_nested_garbage_costs_linear_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = 0

    def counted(text: Buffer, position: int, end: int) -> int:
        nonlocal scanned
        stop = value_end(text, position, end)
        scanned += (end if stop < 0 else stop) - position
        return stop

    monkeypatch.setattr("profkit.parsers.trace.walk.value_end", counted)
    depth = 12_000
    garbage = ', {"a": [1' * depth + "]}" * depth
    sound = '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1.0, "dur": 1.0, "pid": 0, "tid": 7, "args": {}}'
    place = tmp_path / "t.json"
    place.write_text('{"traceEvents": [' + f'{sound}, {{"name": "odd " quote"}} {garbage}, {sound}' + "]}")
    (trace,) = read_traces([place])
    assert trace.info.problems
    assert scanned < 40 * place.stat().st_size + (30 << 20)


def test_a_user_without_a_home_and_odd_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for variable in ("PROFKIT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert cache.folder().name.startswith("profkit-cache-")
    monkeypatch.setenv("PROFKIT_CACHE_GB", "inf")
    assert cache.size_limit() == int(cache.DEFAULT_GB * 1e9)
    monkeypatch.setenv("PROFKIT_MAX_UNPACKED_GB", "inf")
    monkeypatch.setenv("PROFKIT_CACHE_DIR", os.devnull)
    assert read_traces([TRACE])[0].info.gpu_ops > 0
