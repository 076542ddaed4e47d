"""From a run to its results."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from profkit.attribution import attribute
from profkit.errors import InputError
from profkit.loading import load_run
from profkit.pipeline import analyse, analyse_path
from profkit.speculation.arm import make_arm
from tests.paths import SAMPLES

EAGLE3 = SAMPLES / "kimi-k2.5-tp8" / "eagle3"


def inflation(findings: object) -> list[float]:
    assert isinstance(findings, tuple)
    return [f.numbers["inflation"] for f in findings if "inflation" in f.numbers]


def test_the_log_and_the_trace_of_a_run_check_each_other() -> None:
    result = analyse_path(EAGLE3, cache=False)
    assert result.attribution is not None
    assert inflation(result.attribution.findings) == [pytest.approx(1.0, abs=0.01)]
    assert result.labels["story"] == "eagle-fast-verify"


def test_the_step_is_taken_at_the_traced_load() -> None:
    run = load_run(EAGLE3, cache=False)
    at_two = attribute(run.traces[:1], facts=run.facts, log_step_ms={2: 30.0})
    assert inflation(at_two.findings) == []
    both = attribute(run.traces[:1], facts=run.facts, log_step_ms={2: 30.0, 1: 66.0})
    assert inflation(both.findings) == [pytest.approx(0.505, abs=0.01)]


def test_traces_that_cannot_be_used_leave_the_log(tmp_path: Path) -> None:
    shutil.copy(EAGLE3 / "server.log", tmp_path)
    (tmp_path / "1-TP-0.trace.json").write_text('{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1}]}')
    result = analyse_path(tmp_path, cache=False)
    assert result.attribution is None
    assert result.log is not None
    assert any("no timeline" in warning for warning in result.warnings)
    (tmp_path / "server.log").unlink()
    with pytest.raises(InputError, match="no timeline"):
        analyse(load_run(tmp_path, cache=False))


@pytest.mark.parametrize("sample", ["kimi-k2.5-tp8/eagle3", "kimi-k2.5-tp8/baseline", "sglang-cpu-eagle-tp2"])
def test_attribution_and_economics_compare_with_one_cycle_of_the_log(sample: str) -> None:
    analysis = analyse_path(SAMPLES / sample)
    assert analysis.attribution is not None
    (said,) = [f for f in analysis.attribution.findings if f.kind == "trace_to_log"]
    server = analysis.server()
    assert server is not None
    load = analysis.attribution.cycle.batch_size if analysis.attribution.cycle else None
    arm = make_arm(analysis, next(r for r in server.by_batch if r.running_req == load))
    assert said.numbers["inflation"] == pytest.approx(arm.trace_over_log.value, rel=1e-9)
    assert f"{arm.cycle.require():.2f} ms in the server log" in said.sentence
