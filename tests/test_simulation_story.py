"""The committed reference story: its figures come out of the files, by a plain reading that shares no code."""

from __future__ import annotations

import gzip
import json
import re
import tomllib
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.paths import SAMPLES

STORY = SAMPLES / "kimi-k2.5-tp8"
# tok/s, accept length, cycle in ms
FIGURES = {
    "baseline": (82.0, None, 12.195),
    "eagle3": (60.0, 2.0, 33.33),
    "aq-medai": (52.0, 1.50, 28.85),
    "ngram": (41.0, 2.24, 54.5),
}
DECODE = re.compile(
    r"^\[[-0-9: ]+ TP0\] Decode batch, #running-req: 1, #token: \d+, token usage: \d\.\d\d, "
    r"(?:accept len: ([\d.]+), accept rate: ([\d.]+), )?cuda graph: True, "
    r"gen throughput \(token/s\): ([\d.]+), #queue-req: 0$"
)


def load(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)


def kernels(document: Any) -> list[dict[str, Any]]:
    return sorted(
        (e for e in document["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")),
        key=lambda e: e["ts"],
    )


@pytest.mark.parametrize("run", FIGURES)
def test_log_yields_the_throughput_and_the_accept_length(run: str) -> None:
    lines = [m for m in map(DECODE.match, (STORY / run / "server.log").read_text(encoding="utf-8").splitlines()) if m]
    assert len(lines) == 60
    throughput = sorted(float(m[3]) for m in lines)
    tok_s, accept, cycle_ms = FIGURES[run]
    middle = throughput[len(throughput) // 2]
    assert middle == pytest.approx(tok_s, rel=0.02)
    if accept is None:
        assert all(m[1] is None for m in lines)
        assert 1000 / middle == pytest.approx(cycle_ms, rel=0.002)
        return
    lengths = [float(m[1]) for m in lines]
    assert sum(lengths) / len(lengths) == pytest.approx(accept, abs=0.02)
    # Every line by itself gives the cycle time, whatever its acceptance was; the slow ones are flagged elsewhere.
    cycles = sorted(1000 * float(m[1]) / float(m[3]) for m in lines)
    assert cycles[len(cycles) // 2] == pytest.approx(cycle_ms, rel=0.005)


@pytest.mark.parametrize("run", FIGURES)
def test_traces_yield_the_cycle_and_its_all_reduces(run: str) -> None:
    cycle_ms = FIGURES[run][2]
    paths = sorted((STORY / run / "traces").glob("*.trace.json.gz"))
    assert [int(re.findall(r"-TP-(\d)-DECODE", p.name)[0]) for p in paths] == list(range(8))
    shortest: dict[int, list[Decimal]] = defaultdict(list)
    for path in paths[:2]:
        document = load(path)
        operations = kernels(document)
        by_launch: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for operation in operations:
            by_launch[operation["args"]["correlation"]].append(operation)
        forwards = [ops for ops in by_launch.values() if len(ops) > 700]
        assert len(forwards) == 8  # six complete cycles, one cut at each end
        for forward in forwards[1:]:
            reduces = [o for o in forward if "AllReduce" in o["name"]]
            assert len(reduces) == 122
            for index, reduce in enumerate(reduces):
                shortest[index].append(reduce["dur"])
        begins = [forward[0]["ts"] for forward in forwards[1:]]
        wall = float(begins[-1] - begins[0]) / (len(begins) - 1) / 1000
        assert wall == pytest.approx(cycle_ms, rel=0.005)
    mean = float(sum(sum(v) for v in shortest.values()) / sum(len(v) for v in shortest.values()))
    per_call = {"baseline": 79, "eagle3": 205.5, "aq-medai": 163.5, "ngram": 375}[run]
    assert mean == pytest.approx(per_call, rel=0.01)


def test_eagle_verify_takes_30_ms_of_which_25_are_all_reduces() -> None:
    expected = tomllib.loads((STORY / "eagle3" / "expected.toml").read_text(encoding="utf-8"))
    verify = expected["cycle"]["parts_us"]["verify"]
    assert sum(verify.values()) == pytest.approx(30_200, rel=0.01)
    assert verify["allreduce"] == pytest.approx(25_000, rel=0.01)
    baseline = tomllib.loads((STORY / "baseline" / "expected.toml").read_text(encoding="utf-8"))
    assert expected["log"]["cycle_ms"] / baseline["log"]["cycle_ms"] == pytest.approx(2.73, abs=0.006)


def test_truth_adds_up_and_names_what_is_assumed() -> None:
    for run in FIGURES:
        expected = tomllib.loads((STORY / run / "expected.toml").read_text(encoding="utf-8"))
        assert len(expected["assumed"]) >= 3
        assert len(expected["rank"]) == 8
        for rank in expected["rank"]:
            assert sum(v for phase in rank["parts_ns"].values() for v in phase.values()) == rank["wall_ns"]
