"""The public Python API: what the documentation promises."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import profkit
from profkit.jsonio import dumps
from tests.paths import SAMPLES

STORY = SAMPLES / "kimi-k2.5-tp8"


def test_importing_the_package_is_light() -> None:
    code = "import sys, profkit; print(sorted({'pandas', 'pyarrow', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_name_is_there_and_documented() -> None:
    for name in profkit.__all__:
        value = getattr(profkit, name)
        assert value.__doc__ or name == "__version__"
    with pytest.raises(AttributeError):
        _ = profkit.no_such_name


def test_from_files_to_results() -> None:
    tables = profkit.read_log([STORY / "eagle3" / "server.log"])
    assert profkit.summarise(tables).servers[0].decode.lines == tables.decode.num_rows
    traces = profkit.read_traces([STORY / "eagle3" / "traces"], cache=False)
    result = profkit.attribute(traces)
    frame = result.to_pandas()
    assert result.to_arrow().num_rows == len(frame)
    assert frame.loc[frame.counted, "duration_ns"].sum() == sum(rank.wall_ns for rank in result.ranks)
    assert json.loads(dumps(result))["schema"] == "profkit.attribution/1"
    for table in (tables.decode, traces[0].gpu_ops, result.cycles, result.calls, result.segments, *result.ops):
        assert len(table.to_pandas()) == table.num_rows


def test_two_runs_together() -> None:
    candidate = profkit.analyse_path(STORY / "eagle3", cache=False)
    baseline = profkit.analyse(profkit.load_run(STORY / "baseline", cache=False))
    assert profkit.economics(candidate, baseline).break_even_accept_len.require() == pytest.approx(2.73, abs=0.01)
    projected = profkit.project(candidate, baseline, profkit.Change(accept_len=3.0))
    assert projected.candidate.gain is not None
    compared = profkit.compare([baseline], [candidate])
    assert json.loads(dumps(compared))["schema"] == "profkit.compare/1"
    by_path = profkit.compare(STORY / "baseline", STORY / "eagle3")
    assert [m.name for m in by_path.metrics] == [m.name for m in compared.metrics]
    assert profkit.compare(STORY / "baseline", [candidate]).primary == compared.primary
