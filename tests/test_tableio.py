"""Tables as text: the same bytes as a writer that goes cell by cell, at any size of batch."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from profkit import tableio, tabletext
from profkit.jsonio import plain
from tests import oracle_table

WORDS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    [
        "=1+1",
        "+a",
        "-",
        "@x",
        "\tx",
        'a"b',
        "a,b",
        "a\nb",
        "back\\slash",
        "\x00",
        "\x1f",
        "\x7f",
        "\u2028",
        "'",
        " ",
        "",
    ]
)
NUMBERS = st.floats() | st.decimals(min_value=0, max_value=10**6, places=2).map(float) | st.integers().map(float)
TIMES = st.datetimes() | st.datetimes().map(lambda t: t.replace(microsecond=0))
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "words": (pa.string(), WORDS),
    "names": (pa.dictionary(pa.int32(), pa.string()), WORDS),
    "large": (pa.large_string(), WORDS),
    "n": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2)),
    "small": (pa.uint8(), st.integers(0, 255)),
    "yes": (pa.bool_(), st.booleans()),
    "x": (pa.float64(), NUMBERS),
    "half": (pa.float32(), st.floats(width=32)),
    "at": (pa.timestamp("us"), TIMES),
    "second": (pa.timestamp("s"), TIMES.map(lambda t: t.replace(microsecond=0))),
    "tags": (pa.list_(pa.string()), st.lists(WORDS | st.none(), max_size=3)),
    "counts": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=3)),
    "more": (
        pa.map_(pa.string(), pa.string()),
        st.dictionaries(WORDS, WORDS | st.none(), max_size=2).map(lambda d: [*d.items()]),
    ),
}


@st.composite
def batches(draw: st.DrawFn) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=6, unique=True))
    columns: list[tuple[str, pa.DataType]] = [(name, KINDS[name][0]) for name in names]
    schema = pa.schema(columns)
    made = []
    for rows in draw(st.lists(st.integers(0, 5), max_size=3)):
        arrays = [
            pa.array(draw(st.lists(st.none() | KINDS[name][1], min_size=rows, max_size=rows)), KINDS[name][0])
            for name in names
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        made.append(batch.slice(draw(st.integers(0, rows))) if draw(st.booleans()) else batch)
    return schema, made


def text_of(writer: Any, schema: pa.Schema, parts: list[pa.RecordBatch], form: str) -> str:
    sink = io.BytesIO()
    writer.write_table(schema, parts, sink, form, name="demo")
    return sink.getvalue().decode()


@settings(max_examples=150, deadline=None)
@given(batches())
def test_every_form_is_what_the_plain_writer_writes(made: tuple[pa.Schema, list[pa.RecordBatch]]) -> None:
    for form in ("csv", "jsonl", "json"):
        assert text_of(tableio, *made, form) == text_of(oracle_table, *made, form)


@settings(max_examples=300, deadline=None)
@given(st.lists(NUMBERS | st.floats(1e-12, 1e34) | st.floats(1e-5, 1e11), min_size=1, max_size=40))
@example(
    [999.9999999999999, 999999999999.5, 1e12, 1e16, 9999999999.99999, 1e-4, 0.00009999999999999, -0.0, 5e-324, 1.7e308]
)
@example([1.000000000005, 2.5000000000005, 123456.7890125, 0.1 + 0.2, 100000000000.5, 1767323045.4, 1e22, 1e23])
def test_floats_are_rounded_and_written_like_in_every_document(values: list[float]) -> None:
    expected = ["null" if plain(v) is None else repr(plain(v)) for v in values]
    found = tabletext.JsonText().column(pa.array(values).dictionary_encode().cast(pa.float64()))
    assert ([found] * len(values) if isinstance(found, str) else found.to_pylist()) == expected


def test_many_rows_of_one_batch_are_written_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 1_000
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(range(rows)),
            pa.array(["x" * 100] * rows).dictionary_encode(),
            pa.array([[]] * rows, pa.list_(pa.string())),
        ],
        names=["n", "name", "tags"],
    )
    sizes: list[int] = []

    def lines(columns: list[Any], between: list[str], count: int) -> Any:
        sizes.append(count)
        return tabletext.lines(columns, between, count)

    monkeypatch.setattr(tableio, "_ROOM", 2_000)
    monkeypatch.setattr(tableio, "lines", lines)
    read = list(csv.reader(io.StringIO(text_of(tableio, batch.schema, [batch], "csv"))))
    assert max(sizes) < 20, "one long name in all rows makes the slices short"
    assert [int(row[0]) for row in read[1:]] == list(range(rows))
    assert {row[1] for row in read[1:]} == {"x" * 100}


def test_a_cell_with_line_breaks_stays_one_cell() -> None:
    values = ["a\rb", "\rc", "d\ne", "f"]
    batch = pa.RecordBatch.from_arrays([pa.array(values), pa.array(range(4))], names=["name", "n"])
    text = text_of(tableio, batch.schema, [batch], "csv")
    cells = [row[0] for row in csv.reader(io.StringIO(text, newline=""))]
    assert cells == ["name", "a\ufffdb", "'\ufffdc", "d\ne", "f"]
    lines = [json.loads(line) for line in text_of(tableio, batch.schema, [batch], "jsonl").split("\n")[:-1]]
    assert [line["name"] for line in lines] == values


def test_times_keep_their_microseconds_and_any_year() -> None:
    times = ["0001-01-01T00:00:00", "2026-01-02T03:04:05", "2026-01-02T03:04:05.000060", "9999-12-31T00:00:00"]
    for some in (times, times[1:3]):
        found = tabletext.JsonText().column(pa.array(map(datetime.fromisoformat, some), pa.timestamp("us")))
        assert found.to_pylist() == [f'"{time}"' for time in some]
