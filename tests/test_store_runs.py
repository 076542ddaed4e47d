"""Adding to a store and reading it back: nothing lost, nothing twice, nothing changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import jsonschema
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profkit.comparison.fingerprint import Scalar
from profkit.comparison.launch import launch_of
from profkit.errors import InputError, UsageError
from profkit.forecast import PlanForecast
from profkit.store.forecasts import add_forecast, read_forecasts
from profkit.store.layout import MARKER
from profkit.store.reader import Selection, Store, parse_selection
from profkit.store.tables import TABLES
from profkit.store.writer import add_run
from profkit.week import between, monday, shift, week_of
from profkit.weekly.report import weekly
from tests.store_data import analysis


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_a_run_comes_back_as_it_went_in(tmp_path: Path) -> None:
    run = analysis("a", 60.0, traced=True, labels={"dataset": "gsm8k"})
    added = add_run(tmp_path / "s", run)
    assert added.new
    assert (added.record.config, added.record.week) == ("eagle3", "2026-W48")
    store = Store.open(tmp_path / "s")
    [record] = store.records()
    stored, fresh = store.launch(record), launch_of(run)
    assert stored.measurements == fresh.measurements
    assert stored.kernels == fresh.kernels
    assert dict(stored.fingerprint) == dict(fresh.fingerprint)
    assert stored.quality == fresh.quality
    assert stored.labels == {"dataset": "gsm8k"}
    assert set(record.tables) == set(TABLES)
    assert store.verify() == []


def test_names_and_units_of_the_stored_figures(tmp_path: Path) -> None:
    add_run(tmp_path / "s", analysis("a", 60.0, traced=True))
    frame = pd.read_parquet(next((tmp_path / "s" / "runs").glob("*/metrics.parquet")))
    figures = {row["metric"]: row for row in frame.to_dict("records")}
    throughput = figures["throughput"]
    assert (throughput["value"], throughput["unit"], throughput["running_req"]) == (60.0, "tok/s", 1)
    assert figures["step_time"]["value"] == pytest.approx(1000 * 2 / 60)
    assert figures["allreduce_per_call"]["value"] == pytest.approx(25000 / 122)
    assert figures["wait"]["value"] == pytest.approx(2500.0)
    assert (figures["verify.allreduce"]["value"], figures["verify.allreduce"]["unit"]) == (25000.0, "us")
    parts = pd.read_parquet(next((tmp_path / "s" / "runs").glob("*/parts.parquet")))
    assert parts["duration_ns"].sum() == 3 * 32_910_000
    assert set(parts["config"]) == {"eagle3"}


def test_adding_again_changes_nothing(tmp_path: Path) -> None:
    run = analysis("a", 60.0, traced=True)
    first = add_run(tmp_path / "s", run)
    before = tree(tmp_path / "s")
    again = add_run(tmp_path / "s", run)
    assert (again.new, again.record.id) == (False, first.record.id)
    assert tree(tmp_path / "s") == before


def test_the_same_run_gives_the_same_bytes_in_two_stores(tmp_path: Path) -> None:
    for name in ("s", "t"):
        add_run(tmp_path / name, analysis("a", 60.0, traced=True))
    assert tree(tmp_path / "s") == tree(tmp_path / "t")


def test_a_run_is_not_counted_under_two_names(tmp_path: Path) -> None:
    run = analysis("a", 60.0)
    first = add_run(tmp_path / "s", run)
    for filed in ({"config": "other"}, {"week": "2026-W47"}, {"labels": {"lever": "x"}}):
        with pytest.raises(UsageError, match=r"already in the store as eagle3 2026-W48"):
            add_run(tmp_path / "s", run, **filed)
    Store.open(tmp_path / "s").mark([first.record.id], "remove")
    moved = add_run(tmp_path / "s", run, config="other")
    assert [r.id for r in Store.open(tmp_path / "s").records()] == [moved.record.id]


def test_remove_restore_purge_and_add_again(tmp_path: Path) -> None:
    root = tmp_path / "s"
    kept, gone = add_run(root, analysis("a", 60.0)).record, add_run(root, analysis("b", 61.0)).record
    Store.open(root).mark([gone.id], "remove")
    assert [r.id for r in Store.open(root).records()] == [kept.id]
    Store.open(root).restore(gone.id)
    assert len(Store.open(root).records()) == 2
    Store.open(root).mark([gone.id], "remove")
    assert Store.open(root).purge() == 1
    assert not (root / "runs" / gone.id).exists()
    assert list((root / "incoming").iterdir()) == []
    assert add_run(root, analysis("b", 61.0)).new
    assert {r.id for r in Store.open(root).records()} == {kept.id, gone.id}


def test_tags_select_runs(tmp_path: Path) -> None:
    root = tmp_path / "s"
    a, b = add_run(root, analysis("a", 60.0)).record, add_run(root, analysis("b", 61.0)).record
    store = Store.open(root)
    store.mark([a.id, b.id], "tag", "good")
    store.mark([b.id], "untag", "good")
    store.mark([b.id], "tag", "odd")
    fresh = Store.open(root)
    assert (fresh.tags(a.id), fresh.tags(b.id)) == (("good",), ("odd",))
    assert [r.id for r in fresh.records(parse_selection("config=eagle3,tag=odd"))] == [b.id]
    assert fresh.records(Selection(week="2026-W01")) == []
    with pytest.raises(UsageError, match="tag 'a b'"):
        store.mark([a.id], "tag", "a b")


@given(st.lists(st.sampled_from(["remove", "restore"]), max_size=6))
@settings(max_examples=15, deadline=None)
def test_the_last_mark_decides(actions: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        run = add_run(Path(folder) / "s", analysis("a", 60.0)).record
        for action in actions:
            Store.open(Path(folder) / "s").mark([run.id], action)  # type: ignore[arg-type]
        shown = bool(Store.open(Path(folder) / "s").records())
        assert shown == (not actions or actions[-1] == "restore")


def test_a_run_without_config_week_or_figures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--config"):
        add_run(tmp_path / "s", analysis(config=None))
    with pytest.raises(UsageError, match="--week"):
        add_run(tmp_path / "s", analysis(date=None))
    with pytest.raises(UsageError, match="ISO week"):
        add_run(tmp_path / "s", analysis(), week="2026-W60")
    bare = analysis()
    object.__setattr__(bare, "log", None)
    with pytest.raises(InputError, match="nothing to keep"):
        add_run(tmp_path / "s", bare)
    assert not (tmp_path / "s").exists()


def test_a_folder_with_other_things_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        add_run(tmp_path, analysis())
    with pytest.raises(InputError, match="no profkit store"):
        Store.open(tmp_path)


def test_a_newer_store_and_a_newer_run_are_named(tmp_path: Path) -> None:
    root = tmp_path / "s"
    run = add_run(root, analysis()).record
    path = root / "runs" / run.id / "run.json"
    path.write_text(json.dumps({"schema": "profkit.run/2", "id": run.id}))
    store = Store.open(root)
    assert store.records() == []
    assert "update profkit" in store.problems[0]
    (root / MARKER).write_text('{"schema": "profkit.store/9"}')
    with pytest.raises(InputError, match="update profkit"):
        Store.open(root)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"schema": "profkit.run/1"}', b"\x00\xff" * 50])
def test_a_damaged_record_is_named_and_the_rest_is_read(tmp_path: Path, damage: bytes) -> None:
    root = tmp_path / "s"
    bad, good = add_run(root, analysis("a", 60.0)).record, add_run(root, analysis("b", 61.0)).record
    (root / "runs" / bad.id / "run.json").write_bytes(damage)
    (root / "runs" / "stranger").mkdir()
    store = Store.open(root)
    assert [r.id for r in store.records()] == [good.id]
    assert len(store.problems) == 2
    assert bad.id in store.problems[0]


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("damage", ["{", "", "other files", "other run"])
def test_adding_a_run_whose_record_is_damaged_says_so(tmp_path: Path, damage: str, removed: bool) -> None:
    run = analysis("a", 60.0)
    record = add_run(tmp_path, run).record
    if removed:
        Store.open(tmp_path).mark([record.id], "remove")
    path = tmp_path / "runs" / record.id / "run.json"
    document = json.loads(path.read_text())
    if damage == "other files":
        damage = json.dumps(document | {"content_key": "b"})
    elif damage == "other run":
        damage = json.dumps(document | {"id": "0" * 16})
    path.write_text(damage)
    with pytest.raises(InputError, match=r"run\.json: .*; remove its folder and add the run again"):
        add_run(tmp_path, run)
    shutil.rmtree(path.parent)
    assert add_run(tmp_path, run).new


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    root = tmp_path / "s"
    run = add_run(root, analysis("a", 60.0)).record
    path = root / "runs" / run.id / "metrics.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    store = Store.open(root)
    assert store.launches() == []
    assert "metrics.parquet" in store.problems[0]
    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    assert any("metrics.parquet" in d for d in Store.open(root).verify())


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_anywhere_is_a_named_problem_and_never_a_crash(tmp_path: Path, data: st.DataObject) -> None:
    root = tmp_path / "s"
    good = add_run(root, analysis("b", 61.0)).record
    bad = add_run(root, analysis("a", 60.0)).record
    add_forecast(root, PlanForecast("eagle3", "2026-W48", "p", None, ()))
    if not Store.open(root).tags(bad.id):
        Store.open(root).mark([bad.id], "tag", "x")
    files = sorted([*(root / "runs" / bad.id).iterdir(), *(root / "marks").iterdir(), *(root / "forecasts").iterdir()])
    path = data.draw(st.sampled_from(files))
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = data.draw(st.sampled_from([b"", b"\x00", b"\xff", b'"', b"9", b"}"]))
    cut = data.draw(st.booleans())
    path.write_bytes(whole[:at] + changed + (b"" if cut else whole[at + 1 :]))
    try:
        store = Store.open(root)
        launches = store.launches()
        assert good.id in {x.id for x in launches}
        plans, _ = read_forecasts(store.layout)
        weekly(launches, plans=plans)
        store.verify()
    finally:
        path.write_bytes(whole)


def test_table_names_from_a_record_are_no_paths(tmp_path: Path) -> None:
    root = tmp_path / "s"
    run = add_run(root, analysis()).record
    path = root / "runs" / run.id / "run.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["tables"]["../../../secret"] = {"rows": 0, "bytes": 1, "sha256": "0"}
    path.write_text(json.dumps(document))
    assert Store.open(root).verify() == [f"{run.id}: unknown table '../../../secret'"]


def test_two_analyses_of_one_run_by_two_versions_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "s"
    for version in ("0.9.0", "0.10.0", "0.2.0"):
        monkeypatch.setattr("profkit.store.writer.__version__", version)
        assert add_run(root, analysis("a", 60.0)).new
    assert [r.profkit_version for r in Store.open(root).records()] == ["0.10.0"]


def test_unfinished_work_is_never_seen_and_goes_with_purge_after_a_day(tmp_path: Path) -> None:
    root = tmp_path / "s"
    add_run(root, analysis("a", 60.0))
    left = root / "incoming" / "0123456789abcdef.1.00"
    left.mkdir()
    (left / "metrics.parquet").write_bytes(b"half")
    assert len(Store.open(root).records()) == 1
    Store.open(root).purge()
    assert left.exists()
    old = time.time() - 2 * 86400
    os.utime(left, (old, old))
    Store.open(root).purge()
    assert not left.exists()


def rewrite(root: Path, run: str, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Replace a stored table as another version of profkit might have written it."""
    folder = root / "runs" / run
    path = folder / f"{name}.parquet"
    pq.write_table(change(pq.ParquetFile(path).read()), path)
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    record["tables"][name] |= {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "bytes": path.stat().st_size}
    (folder / "run.json").write_text(json.dumps(record | {"field_of_a_later_version": 1}))


def test_columns_that_another_version_did_or_did_not_write(tmp_path: Path) -> None:
    root = tmp_path / "s"
    run = add_run(root, analysis("a", 60.0, traced=True)).record.id
    rewrite(root, run, "kernels", lambda t: t.drop_columns(["batch_size"]))
    rewrite(root, run, "metrics", lambda t: t.append_column("more", pa.array([1] * t.num_rows)).drop_columns(["p10"]))
    store = Store.open(root)
    [launch] = store.launches()
    assert store.problems == []
    assert launch.kernels[0].batch_size is None
    assert all(m.p10 is None for m in launch.measurements)
    rewrite(root, run, "metrics", lambda t: t.drop_columns(["value"]))
    store = Store.open(root)
    assert store.launches() == []
    assert "no column 'value'" in store.problems[0]


def test_tables_can_be_read_together_without_profkit(tmp_path: Path) -> None:
    for index in range(3):
        add_run(tmp_path / "s", analysis(f"r{index}", 60.0 + index, traced=index == 0))
    files = sorted((tmp_path / "s" / "runs").glob("*/metrics.parquet"))
    frame = pd.concat([pd.read_parquet(f) for f in files])
    throughput = frame[frame["metric"] == "throughput"].groupby(["config", "week"])["value"].median()
    assert throughput.to_dict() == {("eagle3", "2026-W48"): 61.0}
    for path in (tmp_path / "s" / "runs").rglob("*.parquet"):
        kinds = {str(f.type) for f in pq.read_schema(path)}
        assert kinds <= {"string", "int64", "double", "bool"}, path


@pytest.mark.parametrize("text", ["week", "week=", "color=red", "config=a,config=b", "week=2026-W99"])
def test_selections_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError):
        parse_selection(text)


def test_run_ids_may_be_shortened(tmp_path: Path) -> None:
    root = tmp_path / "s"
    run = add_run(root, analysis("a", 60.0)).record
    assert Store.open(root).record(run.id[:6]).id == run.id
    for bad in ("", "zz"):
        with pytest.raises(UsageError, match="no run"):
            Store.open(root).record(bad)


def test_weeks_turn_over_with_the_iso_year() -> None:
    assert week_of("2026-12-31") == "2026-W53"
    assert week_of("2027-01-03T10:00:00") == "2026-W53"
    assert week_of("someday") is None
    assert shift("2026-W53", 1) == "2027-W01"
    assert between("2026-W52", "2027-W02") == ["2026-W52", "2026-W53", "2027-W01", "2027-W02"]
    for bad in ("2025-W53", "2026-48", "2026-W00", "W48", "2026-W48 "):
        with pytest.raises(UsageError):
            monday(bad)


def test_odd_facts_and_names_come_back(tmp_path: Path) -> None:
    facts: dict[str, Scalar] = {"gpu.power_cap_w": float("nan"), "gpu.name": "\u202e\x00 \"'", "server_args.big": 2**70}
    added = add_run(tmp_path / "s", analysis("caf\udce9 \n", 60.0, facts=facts))
    store = Store.open(tmp_path / "s")
    [record] = store.records()
    assert store.problems == []
    assert record == added.record
    assert "gpu.power_cap_w" not in record.fingerprint
    assert record.fingerprint["server_args.big"] == 2**70


@pytest.mark.parametrize("config", ["a,b", "a=b", "a\nb", "x" * 121])
def test_configurations_have_names_that_can_be_selected(tmp_path: Path, config: str) -> None:
    with pytest.raises(UsageError, match="printable"):
        add_run(tmp_path / "s", analysis(), config=config)


def test_the_record_keeps_its_contract(tmp_path: Path) -> None:
    schema = json.loads(files("profkit.schemas").joinpath("run.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    for traced in (False, True):
        record = add_run(tmp_path / "s", analysis("a", 60.0, traced=traced)).record
        document = json.loads((tmp_path / "s" / "runs" / record.id / "run.json").read_text(encoding="utf-8"))
        jsonschema.validate(document, schema)


def test_a_record_with_a_count_that_cannot_be_is_damaged(tmp_path: Path) -> None:
    root = tmp_path / "s"
    run = add_run(root, analysis("a", 60.0)).record.id
    path = root / "runs" / run / "run.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["quality"]["cycles"] = 10**30
    path.write_text(json.dumps(document))
    store = Store.open(root)
    assert store.records() == []
    assert "damaged run record" in store.problems[0]
