"""Loading runs: which files make up a run, what is known about it, and that nothing depends on where it lies."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from profkit.errors import InputError
from profkit.jsonio import dumps
from profkit.loading import load_run
from profkit.run import Fact
from tests.paths import SAMPLES, SHARED, needs_shared

EAGLE3 = SAMPLES / "kimi-k2.5-tp8" / "eagle3"


def test_a_complete_run() -> None:
    run = load_run(EAGLE3, cache=False)
    assert run.name == "kimi-k2.5-tp8 eagle3"
    assert run.config == "kimi-k2.5-tp8/eagle3"
    assert run.date == "2026-11-16"
    assert run.labels["story"] == "eagle-fast-verify"
    assert [trace.info.rank for trace in run.traces] == list(range(8))
    assert run.facts.integer("model.layers") == 61
    assert run.facts.text("speculative.algorithm") == "EAGLE3"
    assert run.facts["speculative.algorithm"].source == "run.toml"
    assert run.log is not None
    assert run.log.decode.num_rows > 40


def test_nothing_depends_on_where_the_run_lies(tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(EAGLE3, copy)
    here, there = load_run(EAGLE3, cache=False), load_run(copy, cache=False)
    assert here.content_key == there.content_key
    assert here.log is not None
    assert there.log is not None
    assert here.log.decode.equals(there.log.decode)
    assert set(there.log.decode.column("file").to_pylist()) == {"server.log"}
    assert [t.info.path for t in here.traces] == [t.info.path for t in there.traces]
    (copy / "server.log").write_bytes((copy / "server.log").read_bytes() + b"\n")
    assert load_run(copy, cache=False).content_key != here.content_key


def test_server_args_beside_the_log_win_over_its_own_and_run_toml_over_both(tmp_path: Path) -> None:
    shutil.copy(EAGLE3 / "server.log", tmp_path)
    assert load_run(tmp_path).facts["parallel.tp"].value == 8
    (tmp_path / "server_args.json").write_text(json.dumps({"tp_size": 4, "api_key": "secret"}))
    run = load_run(tmp_path)
    assert run.facts["parallel.tp"] == Fact(4, "server_args.json")
    assert "secret" not in repr(run.facts)
    (tmp_path / "run.toml").write_text('name = "mine"\n[parallel]\ntp = 2\n')
    assert load_run(tmp_path).facts["parallel.tp"] == Fact(2, "run.toml")
    assert load_run(tmp_path).name == "mine"
    # Without a date in run.toml the first dated line counts, never the clock.
    assert load_run(tmp_path).date == "2026-11-16"


def test_a_single_log_and_a_single_trace_are_runs() -> None:
    log = load_run(EAGLE3 / "server.log")
    assert log.traces == ()
    assert log.log is not None
    trace = load_run(sorted((EAGLE3 / "traces").glob("*.json.gz"))[0], cache=False)
    assert trace.log is None
    assert len(trace.traces) == 1


def test_model_shape_from_config_json(tmp_path: Path) -> None:
    shutil.copy(EAGLE3 / "server.log", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": 36, "hidden_size": 4096}))
    assert load_run(tmp_path).facts["model.layers"] == Fact(36, "config.json")


def test_unusable_places_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_run(tmp_path / "missing")
    with pytest.raises(InputError, match="neither a server log"):
        load_run(tmp_path)
    (tmp_path / "server.log").write_text("hello\n")
    with pytest.raises(InputError):
        load_run(tmp_path)
    (tmp_path / "run.toml").write_text("name = [")
    shutil.copy(EAGLE3 / "server.log", tmp_path)
    with pytest.raises(InputError, match=r"run\.toml: not valid TOML"):
        load_run(tmp_path)


@needs_shared
@pytest.mark.parametrize("path", sorted((SHARED / "sglang-cpu").glob("*/")), ids=lambda p: p.name)
def test_real_runs_load(path: Path) -> None:
    run = load_run(path, cache=False)
    assert run.facts.text("engine.name") == "sglang"
    version = path.name.split("_")[0]
    low, high = run.facts.text("engine.version_low"), run.facts.text("engine.version_high")
    if "crash" not in path.name:
        assert low is not None
        assert high is not None
        assert version in (low, high, run.facts.text("engine.version"))


@pytest.mark.parametrize("described", [True, False])
def test_several_runs_are_not_read_as_one(described: bool, tmp_path: Path) -> None:
    for name in ("baseline", "eagle3"):
        shutil.copytree(SAMPLES / "kimi-k2.5-tp8" / name, tmp_path / name)
        if not described:
            (tmp_path / name / "run.toml").unlink()
    with pytest.raises(InputError, match=r"holds 2 runs \(baseline, eagle3\)"):
        load_run(tmp_path)
    (tmp_path / "run.toml").write_text('name = "two nodes"\n')
    assert load_run(tmp_path).name == "two nodes"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such file names")
def test_names_and_texts_that_utf8_cannot_hold(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"odd \xff run")
    (folder / "traces").mkdir(parents=True)
    trace = next((EAGLE3 / "traces").glob("*TP-0*"))
    shutil.copy(trace, folder / "traces" / os.fsdecode(b"\xe9-TP-0.trace.json.gz"))
    shutil.copy(EAGLE3 / "server.log", folder / os.fsdecode(b"server-\xff.log"))
    bench = json.loads((EAGLE3 / "bench.jsonl").read_text(encoding="utf-8").splitlines()[0]) | {"backend": "\ud800"}
    (folder / "bench.jsonl").write_text(json.dumps(bench))
    (folder / "server_args.json").write_text(json.dumps({"model_path": "\udcffmodel", "tp_size": 8}))
    for _ in range(2):  # read, and from the cache
        run = load_run(folder)
        assert run.name == "odd \ufffd run"
        assert run.traces[0].info.path == "traces/\ufffd-TP-0.trace.json.gz"
        assert run.log is not None
        assert "server-\ufffd.log" in run.log.decode.column("file").unique().to_pylist()
        model = run.facts.get("server_args.model_path")
        assert model is not None
        assert model.value == "\ufffdmodel"
        dumps(run.facts)
