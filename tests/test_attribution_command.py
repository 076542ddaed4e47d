"""``profkit attribute`` as people and programs use it."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pyarrow.parquet as pq
import pytest
from syrupy.assertion import SnapshotAssertion

from profkit import tables
from profkit.attribution import attribute
from profkit.cli.app import run
from profkit.parsers.trace import read_traces
from profkit.reports.attribution import as_markdown, bar, terminal
from tests.paths import SAMPLES

EAGLE3 = SAMPLES / "kimi-k2.5-tp8" / "eagle3"
TRACES = sorted((EAGLE3 / "traces").glob("*.gz"))


def said(capfdbinary: pytest.CaptureFixture[bytes]) -> tuple[str, str]:
    captured = capfdbinary.readouterr()
    return captured.out.decode(), captured.err.decode()


def test_a_person_sees_the_split_first(capfdbinary: pytest.CaptureFixture[bytes], snapshot: SnapshotAssertion) -> None:
    assert run(["attribute", str(EAGLE3)]) == 0
    out, err = said(capfdbinary)
    assert out == snapshot
    assert err == ""
    assert out.splitlines()[0] == "Decode cycle of batch 1: 33.34 ms"
    assert max(len(line) for line in out.splitlines()[:30]) <= 120


def test_markdown_page(capfdbinary: pytest.CaptureFixture[bytes], snapshot: SnapshotAssertion) -> None:
    assert run(["attribute", str(EAGLE3), "--format", "markdown"]) == 0
    assert said(capfdbinary)[0] == snapshot


def test_json_is_the_contract_and_repeats(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["attribute", str(EAGLE3), "--format", "json"]) == 0
    first = said(capfdbinary)[0]
    assert run(["attribute", str(EAGLE3), "--format", "json", "--jobs", "1"]) == 0
    assert said(capfdbinary)[0] == first
    document = json.loads(first)
    schema = json.loads(files("profkit.schemas").joinpath("attribution.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
    assert document["inputs"][0]["path"].startswith("traces/")
    by_name = {f["kind"]: f for f in document["findings"]}
    # The folder's server log and run.toml are used: sizes, counts, cycle time.
    assert by_name["allreduce_count_fits"]["numbers"] == {"allreduces": 122, "layers": 61}
    assert by_name["trace_to_log"]["numbers"]["inflation"] == pytest.approx(1.0, abs=0.01)
    verify = next(c for c in document["collectives"] if c["phase"] == "verify" and c["kind"] == "all_reduce")
    assert verify["message_bytes"] == 4 * 7168 * 2


def test_parquet_has_a_row_per_rank_cycle_phase_and_activity(tmp_path: Path) -> None:
    target = tmp_path / "parts.parquet"
    assert run(["attribute", str(EAGLE3), "-f", "parquet", "-o", str(target), "-q"]) == 0
    table = pq.read_table(target)
    assert table.column_names == tables.PARTS.names
    keys = table.select(["rank", "cycle", "phase", "activity"]).to_pandas()
    assert not keys.duplicated().any()
    # Nothing is overwritten by accident.
    assert run(["attribute", str(EAGLE3), "-f", "parquet", "-o", str(target), "-q"]) == 2
    assert run(["attribute", str(EAGLE3), "-f", "parquet", "-o", str(target), "-q", "--force"]) == 0


@pytest.mark.parametrize("table", ["cycles", "segments", "calls"])
def test_other_tables(table: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["attribute", *map(str, TRACES[:2]), "-f", "csv", "--table", table, "-q"]) == 0
    out, _ = said(capfdbinary)
    schema = {"cycles": tables.CYCLES, "segments": tables.SEGMENTS, "calls": tables.COLLECTIVE_CALLS}[table]
    assert out.splitlines()[0] == ",".join(schema.names)
    assert len(out.splitlines()) > 10


@pytest.mark.parametrize("form", ["table", "csv", "json", "markdown"])
def test_a_wrong_table_is_said_before_anything_is_read_or_written(
    form: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    plots, page = tmp_path / "plots", tmp_path / "page.html"
    call = ["attribute", str(tmp_path / "no-such-trace"), "-f", form, "--plots", str(plots), "--html", str(page)]
    assert run([*call, "--table", "nonsense"]) == 2
    assert "parts, cycles, segments, calls" in said(capfdbinary)[1]
    assert list(tmp_path.iterdir()) == []


def test_a_named_table_is_written_whatever_the_form(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    call = ["attribute", *map(str, TRACES[:2]), "--table", "cycles", "-q"]
    assert run([*call, "-f", "csv"]) == 0
    csv, _ = said(capfdbinary)
    assert run(call) == 0
    assert said(capfdbinary)[0] == csv
    assert run([*call, "-f", "json"]) == 0
    document = json.loads(said(capfdbinary)[0])
    assert (document["schema"], document["table"]) == ("profkit.table/1", "cycles")
    assert len(document["rows"]) == len(csv.splitlines()) - 1
    assert run([*call, "-f", "markdown"]) == 2


def test_plots_are_drawn_and_shown(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    page, folder = tmp_path / "page.md", tmp_path / "plots"
    assert run(["attribute", *map(str, TRACES[:2]), "-f", "markdown", "-o", str(page), "--plots", str(folder)]) == 0
    text = page.read_text(encoding="utf-8")
    assert {p.name for p in folder.iterdir()} == {"split.svg", "median_cycle.svg", "cycles.svg"}
    assert "](plots/split.svg)" in text
    drawn = {p.name: p.read_bytes() for p in folder.iterdir()}
    again = ["attribute", *map(str, TRACES[:2]), "-f", "markdown", "-o", str(page), "--plots", str(folder), "--force"]
    assert run(again) == 0
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == drawn
    said(capfdbinary)


def test_single_files_without_a_run(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    lone = tmp_path / TRACES[3].name
    lone.write_bytes(TRACES[3].read_bytes())
    assert run(["attribute", str(lone)]) == 0
    out, _ = said(capfdbinary)
    assert "1 of 8 ranks is here (missing: 0, 1, 2, 4, 5, 6, 7)" in out


def test_missing_ranks_are_named_and_the_rest_is_computed() -> None:
    found = attribute(read_traces([TRACES[0], TRACES[5]]))
    finding = next(f for f in found.findings if f.kind == "ranks_missing")
    assert finding.numbers == {"present": 2, "world": 8}
    assert found.cycle is not None
    assert [c.rank for c in found.clock_offsets_us] == [0, 5]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"traceEvents": []}', b"\x1f\x8b\x08garbage", b"[1, 2"])
def test_bad_files_are_one_sentence(content: bytes, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "x.trace.json"
    path.write_bytes(content)
    assert run(["attribute", str(path)]) == 3
    out, err = said(capfdbinary)
    assert out == ""
    assert err.startswith("profkit: ")
    assert "Traceback" not in err


def test_a_folder_with_logs_only_says_what_is_missing(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "server.log").write_bytes((EAGLE3 / "server.log").read_bytes())
    assert run(["attribute", str(tmp_path)]) == 3
    assert "no trace" in said(capfdbinary)[1]


@pytest.mark.parametrize(("share", "text"), [(0.0, ""), (1.0, "█" * 8), (0.5, "█" * 4), (1e-9, "▏"), (7.0, "█" * 8)])
def test_bars(share: float, text: str) -> None:
    assert bar(share, 8) == text


def test_names_from_files_are_harmless() -> None:
    found = attribute(read_traces([TRACES[0]]))
    assert "\x1b" not in terminal(found)
    assert "<" not in as_markdown(found).replace("\\<", "")
