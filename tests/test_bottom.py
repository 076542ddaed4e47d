"""The bottom of the house: quantities, escaping, JSON, files, tables out."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit import escape, jsonio, tableio, words
from profkit.errors import Problem, UsageError
from profkit.files import write_text, writing, writing_together
from profkit.quantity import Quantity
from tests.paths import ROOT

# --- words ---------------------------------------------------------------------------------------


def test_every_cell_of_the_matrix_has_one_headline_part() -> None:
    parts = {words.headline_part(p, a) for p in words.PHASES for a in words.ACTIVITIES}
    assert parts == set(words.HEADLINE_PARTS)
    assert words.headline_part("accept", "compute") == "verify_compute"
    assert words.headline_part("draft_extend", "compute") == "draft"
    assert words.headline_part("draft", "allreduce") == "allreduce"


# --- quantities ----------------------------------------------------------------------------------


def test_unknown_has_no_value_and_says_why() -> None:
    unknown = Quantity.unknown("ms", "no baseline run")
    assert unknown.to_json()["value"] is None
    with pytest.raises(ValueError, match="no baseline run"):
        unknown.require()


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": math.nan, "kind": "measured"},
        {"value": None, "kind": "measured"},
        {"value": 1.0, "kind": "unknown"},
        {"value": 1.0, "kind": "measured", "low": 0.5},
        {"value": 1.0, "kind": "measured", "low": 0.5, "high": math.inf},
    ],
)
def test_a_quantity_that_lies_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="s"):
        Quantity(unit="ms", source="s", **wrong)


# --- escaping ------------------------------------------------------------------------------------


@given(st.text())
def test_visible_text_is_one_line_and_moves_no_cursor(text: str) -> None:
    shown = escape.visible(text)
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0x202A <= ord(c) <= 0x202E for c in shown)
    assert len(escape.visible(text, 10)) <= 10


def test_markdown_shows_markup_as_text() -> None:
    assert escape.markdown("a|b<script>*_`") == r"a\|b\<script\>\*\_\`"


def test_formulas_are_defused() -> None:
    assert escape.csv_cell("=1+1") == "'=1+1"
    assert escape.csv_cell("plain") == "plain"
    assert escape.csv_cell("a\x1b[31m\tb\nc") == "a\ufffd[31m\tb\nc"


# --- JSON ----------------------------------------------------------------------------------------


def test_documents_are_strict_and_stable() -> None:
    document = {"b": math.nan, "a": (1, 0.1 + 0.2), "p": Problem("cut", 2, "a line was cut")}
    text = jsonio.dumps(document)
    assert text == jsonio.dumps(document)
    assert json.loads(text) == {
        "b": None,
        "a": [1, 0.3],
        "p": {"kind": "cut", "count": 2, "detail": "a line was cut", "where": None},
    }
    with pytest.raises(TypeError):
        jsonio.dumps({"x": object()})


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_keep_twelve_digits(value: float) -> None:
    assert json.loads(jsonio.dumps(value)) == pytest.approx(value, rel=1e-11)


# --- files ---------------------------------------------------------------------------------------


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    target = tmp_path / "new" / "a.md"
    write_text(target, "one\n")
    with pytest.raises(UsageError, match="--force"):
        write_text(target, "two\n")
    assert target.read_bytes() == b"one\n"
    write_text(target, "two\n", force=True)
    assert target.read_bytes() == b"two\n"


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "a"

    def fail() -> None:
        with writing(target) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_place_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="cannot write"):
        write_text(tmp_path / "file" / "below", "y")


def no_links(_: object, __: object) -> None:
    raise PermissionError("this file system has no hard links")


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_of_two_writers_of_one_name_the_second_overwrites_nothing(
    links: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    target = tmp_path / "a.md"

    def slower() -> None:
        with writing(target) as temporary:
            temporary.write_text("slower")
            write_text(target, "faster")

    with pytest.raises(UsageError, match="--force"):
        slower()
    assert [(p, p.read_text(encoding="utf-8")) for p in tmp_path.iterdir()] == [(target, "faster")]


def test_files_that_belong_together_replace_the_earlier_ones_only_when_all_are_written(tmp_path: Path) -> None:
    def write(*names: str, force: bool = True) -> None:
        with writing_together(tmp_path, ["a", "b", "c"], force=force) as aside:
            for name in names:
                if name == "fails":
                    raise OSError(28, "No space left on device")
                write_text(aside / name, "new")

    (tmp_path / "mine").write_text("mine")
    for name in ("a", "b"):
        (tmp_path / name).write_text("old")
    with pytest.raises(UsageError, match="--force"):
        write("a", force=False)
    with pytest.raises(OSError, match="No space"):
        write("b", "c", "fails")
    assert {p.name: p.read_text(encoding="utf-8") for p in tmp_path.iterdir()} == {
        "a": "old",
        "b": "old",
        "mine": "mine",
    }
    write("b", "c")
    assert {p.name: p.read_text(encoding="utf-8") for p in tmp_path.iterdir()} == {
        "b": "new",
        "c": "new",
        "mine": "mine",
    }


def test_a_full_disk_is_said_of_the_file_that_was_meant(tmp_path: Path) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "Error writing bytes to file", "/somewhere/.tmp")

    def one() -> None:
        with writing(tmp_path / "a.md"):
            full()

    def several() -> None:
        with writing_together(tmp_path / "plan", ["a"]) as aside, writing(aside / "a"):
            full()

    for write, path in ((one, tmp_path / "a.md"), (several, tmp_path / "plan")):
        with pytest.raises(OSError, match="No space left on device") as raised:
            write()
        assert raised.value.filename == str(path)
    if Path("/dev/full").exists():
        log = "sample_logs/kimi-k2.5-tp8/eagle3/server.log"
        command = f"exec {shlex.quote(sys.executable)} -m profkit parse {log} --table decode --format csv > /dev/full"
        done = subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (3, "profkit: standard output: No space left on device\n")


def test_of_two_writers_of_one_folder_the_second_leaves_the_firsts_files_alone(tmp_path: Path) -> None:
    def write(text: str, meanwhile: Callable[[], None]) -> None:
        with writing_together(tmp_path, ["a", "b"]) as aside:
            write_text(aside / "a", text)
            write_text(aside / "b", text)
            meanwhile()

    with pytest.raises(UsageError, match="--force"):
        write("slower", lambda: write_text(tmp_path / "b", "faster"))
    assert {p.name: p.read_text(encoding="utf-8") for p in tmp_path.iterdir()} == {"b": "faster"}


# --- tables --------------------------------------------------------------------------------------

COLUMNS: list[tuple[str, pa.DataType]] = [
    ("name", pa.string()),
    ("n", pa.int64()),
    ("x", pa.float64()),
    ("tags", pa.list_(pa.string())),
    ("more", pa.map_(pa.string(), pa.string())),
]
SCHEMA = pa.schema(COLUMNS)
ROWS: list[dict[str, Any]] = [
    {"name": "=cmd", "n": 1, "x": 0.5, "tags": ["a", "b"], "more": [("k", "v,1")]},
    {"name": 'q"uote\nline', "n": None, "x": math.nan, "tags": None, "more": None},
]


def written(form: str) -> bytes:
    sink = io.BytesIO()
    batches = [pa.RecordBatch.from_pylist([row], schema=SCHEMA) for row in ROWS]
    assert tableio.write_table(SCHEMA, batches, sink, form, name="demo") == 2
    return sink.getvalue()


def test_csv_can_be_read_back_and_runs_no_formula() -> None:
    header, first, second = csv.reader(io.StringIO(written("csv").decode()))
    assert header == SCHEMA.names
    assert first == ["'=cmd", "1", "0.5", "a;b", '{"k": "v,1"}']
    assert second == ['q"uote\nline', "", "", "", ""]


def test_json_forms_agree_and_unknown_is_null() -> None:
    document = json.loads(written("json"))
    lines = [json.loads(line) for line in written("jsonl").splitlines()]
    assert document["schema"] == "profkit.table/1"
    assert document["table"] == "demo"
    assert document["rows"] == lines
    assert lines[0]["more"] == {"k": "v,1"}
    assert lines[1] == {"name": 'q"uote\nline', "n": None, "x": None, "tags": None, "more": None}


def test_parquet_keeps_the_schema() -> None:
    table = pq.read_table(io.BytesIO(written("parquet")))
    assert table.schema.names == SCHEMA.names
    assert table.num_rows == 2


def test_empty_tables_are_valid_documents() -> None:
    sink = io.BytesIO()
    assert tableio.write_table(SCHEMA, [], sink, "json", name="demo") == 0
    assert json.loads(sink.getvalue())["rows"] == []
    with pytest.raises(ValueError, match="unknown table format"):
        tableio.write_table(SCHEMA, [], io.BytesIO(), "xml", name="demo")
