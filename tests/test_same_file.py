"""One file under several names is one file: servers, ranks and launches are not counted twice, and it is said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from profkit.cli.app import run as profkit
from profkit.files import each_once
from profkit.loading import load_run
from profkit.parsers.log import read_log
from profkit.parsers.trace import read_traces
from profkit.sources import run_paths
from tests.paths import SAMPLES
from tests.trace_makers import decode_events, document

EAGLE3 = SAMPLES / "kimi-k2.5-tp8" / "eagle3"
LOG = (EAGLE3 / "server.log").read_bytes()


def names_of(path: Path) -> list[str]:
    """One file by its name, by a detour, a symbolic link and a hard link."""
    soft, hard = path.with_name(f"soft-{path.name}"), path.with_name(f"hard-{path.name}")
    soft.symlink_to(path)
    hard.hardlink_to(path)
    return [os.path.relpath(path), str(path), f"{path.parent}/../{path.parent.name}/{path.name}", str(soft), str(hard)]


def test_each_once_prefers_what_is_no_link(tmp_path: Path) -> None:
    real, other = tmp_path / "real", tmp_path / "other"
    real.write_text("same")
    other.write_text("same")
    link = tmp_path / "a-link"
    link.symlink_to(real)
    gone = tmp_path / "gone"
    assert each_once([link, other, real, gone, gone]) == ([real, other, gone], [link])
    assert each_once(["-", "-", "s3://bucket/x", str(tmp_path)]) == (["-", "s3://bucket/x", str(tmp_path)], [])
    assert each_once([str(tmp_path), os.path.relpath(tmp_path)]) == ([str(tmp_path)], [os.path.relpath(tmp_path)])


def test_a_log_by_many_names_is_one_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(LOG)
    once, many = read_log([log]), read_log(names_of(log))
    assert many.decode.num_rows == once.decode.num_rows
    assert many.server.num_rows == once.server.num_rows == 1
    (file,) = many.files
    (problem,) = [p for p in file.problems if p.kind == "same_file"]
    assert problem.count == 4
    assert profkit(["parse", str(log), str(tmp_path / "soft-server.log"), "-f", "json"]) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["servers"]) == 1
    assert "named twice, read once: soft-server.log (1)" in captured.err


def test_two_logs_of_equal_content_stay_two(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(LOG)
    assert read_log([tmp_path / "a.log", tmp_path / "b.log"]).server.num_rows == 2


def test_a_trace_by_many_names_is_one_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "1.5-TP-3.trace.json"
    trace.write_bytes(document(decode_events(9)))
    link = tmp_path / "latest.trace.json"
    link.symlink_to(trace)
    (found,) = read_traces([link, *names_of(trace)])
    assert found.info.rank == 3  # the file's own name says so, not the link's
    assert [(p.kind, p.count) for p in found.info.problems] == [("same_file", 5)]
    assert profkit(["attribute", str(link), str(trace), "-f", "json"]) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["ranks"]) == 1
    assert "named twice, read once: latest.trace.json (1)" in captured.err


def test_links_in_a_run_folder_change_nothing_but_a_note(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "server.log").write_bytes(LOG)
    (tmp_path / "1.5-TP-0.trace.json").write_bytes(document(decode_events(9)))
    plain = load_run(tmp_path)
    (tmp_path / "server-latest.log").symlink_to(tmp_path / "logs" / "server.log")
    (tmp_path / "0.trace.json").symlink_to(tmp_path / "1.5-TP-0.trace.json")
    linked = load_run(tmp_path)
    assert linked.content_key == plain.content_key
    assert linked.log is not None
    assert linked.log.server.num_rows == 1
    assert len(linked.traces) == 1
    assert plain.warnings == ()
    assert linked.warnings == (
        "named twice, read once: server-latest.log (1)", "named twice, read once: 0.trace.json (1)",
    )  # fmt: skip


def test_a_link_to_a_launch_is_no_further_launch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.log").write_bytes(LOG)
    (tmp_path / "latest").symlink_to(tmp_path / "2")
    assert run_paths(tmp_path) == [tmp_path / "1", tmp_path / "2"]
    call = ["doctor", str(tmp_path / "1"), os.path.relpath(tmp_path / "1"), "-f", "json"]
    assert profkit(call) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 1


def test_a_plan_against_itself_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = tmp_path / "base"
    link.symlink_to(EAGLE3)
    for arguments in (["--baseline", str(link)], ["--also", str(EAGLE3)]):
        assert profkit(["plan", str(EAGLE3), *arguments, "-o", str(tmp_path / "plan")]) == 2
        assert "this run is named twice" in capsys.readouterr().err
    assert not (tmp_path / "plan").exists()


def test_links_that_lead_in_circles_end(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    for name in ("a", "b/deep", ".kept/there"):
        (root / name).mkdir(parents=True)
    (tmp_path / "outside" / "c").mkdir(parents=True)
    for run in ("runs/b/deep", "outside/c", "runs/.kept/there"):
        (tmp_path / run / "server.log").write_bytes(LOG)
    for number, target in enumerate(("..", "..", "../a", "../b", "../../outside", "../../outside", "../.kept")):
        (root / "a" / f"link{number}").symlink_to(target)
    (tmp_path / "outside" / "back").symlink_to("../runs/b")
    (tmp_path / "outside" / "round").symlink_to(".")
    found = [p.relative_to(root).as_posix() for p in run_paths(root)]
    assert found == ["a/link4/c", "a/link6/there", "b/deep"]
