"""The attribution as it is read: narrow terminals, and pages that say all that the terminal says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from profkit.attribution import Attribution, attribute
from profkit.attribution.views import median_cycle
from profkit.cli.app import run
from profkit.export.selection import choose
from profkit.parsers.trace import read_traces
from profkit.reports.attribution import as_markdown, terminal
from profkit.reports.columns import Column, table
from profkit.reports.wording import part_name
from tests.attribution_modes import record, scenario
from tests.attribution_tables import decode_steps, trace
from tests.paths import SAMPLES

EAGLE3 = SAMPLES / "kimi-k2.5-tp8" / "eagle3"


@pytest.fixture(scope="module")
def found() -> Attribution:
    return attribute(read_traces([str(EAGLE3 / "traces")]))


@pytest.mark.parametrize(("width", "hides"), [(54, True), (60, True), (80, True), (100, False), (118, False)])
def test_no_line_is_wider_than_the_terminal(found: Attribution, width: int, hides: bool) -> None:
    lines = terminal(found, width=width).splitlines()
    assert [line for line in lines if len(line) > width] == []
    assert any("no room for" in line for line in lines) == hides
    # The figures that matter most are never among what goes.
    for head in (("us per cycle", "allreduce", "sum"), ("us per call", "transfer", "wait"), ("rank", "cycle us")):
        assert any(all(word in line for word in head) for line in lines)


def test_a_wide_terminal_shows_what_a_file_does(found: Attribution) -> None:
    wide, file = terminal(found, width=300), terminal(found)
    assert wide == file
    assert "no room for" not in file


def test_columns_go_by_their_weight() -> None:
    columns = [Column("name", 8, left=True), Column("a", 10, 2), Column("b", 10, 1), Column("kept", 10)]
    rows = [["x", "1", "22", "333"], ["long name", "4", "5", "6"]]
    lines, gone = table(columns, rows, None)
    assert (lines[1], gone) == ("  x                1        22       333", [])
    assert table(columns, rows, 30) == (
        ["  name       a   b  kept", "  x          1  22   333", "  long name  4   5     6"],
        [],
    )
    assert table(columns, rows, 22)[1] == ["a"]
    assert table(columns, rows, 5)[1] == ["a", "b"]


def test_the_page_says_what_the_terminal_says(found: Attribution) -> None:
    page = as_markdown(found)
    ranks = page[page.index("## Ranks") :].splitlines()
    assert "| hidden comm us | clock us |" in ranks[2]
    assert len({line.count("|") for line in ranks[2:12]}) == 1
    assert "| verify | 4 755.2 | 25 118.1 | 175.6 | 1.3 | 129.5 | 30 179.8 |" in page
    twice = attribute(read_traces([str(EAGLE3 / "traces"), str(EAGLE3 / "traces")]))
    assert "## Files" not in page
    assert len(twice.ranks) == 8
    # Files that were left out are named on the page too.
    other, _ = record(scenario())
    both = attribute([*other, *(read_traces([str(EAGLE3 / "traces")]))])
    assert re.search(r"## Files\n\n- the traces come from 2 profiles", as_markdown(both))


def test_what_was_not_observed_is_said_on_the_page() -> None:
    unnamed = attribute([trace([("sm90_gemm", 100, 50, 10), ("flash_fwd_kernel", 160, 50, 12)])])
    assert "Not observed: draft, verify, accept, draft\\_extend, decode, other." in as_markdown(unnamed)
    assert "the whole recording lasts 0.0001 ms" in terminal(unnamed)


def test_prefills_are_called_so() -> None:
    only = attribute([trace([("sm90_gemm", 200, 900, 60)], [("step[EXTEND bs=1 toks=9]", 55, 20)])])
    assert "prefill, other" in terminal(only)
    assert "prefill, other" in as_markdown(only)
    steps = attribute([trace(**decode_steps(4, [("sm90_gemm", 0, 100), ("sample_kernel", 120, 20)], period=300))])
    assert steps.cycle is not None
    assert part_name("other", steps.cycle) == "other compute"


def test_plot_and_page_mean_the_same_median_cycle(found: Attribution) -> None:
    chosen = choose(found, "median")[0]
    lanes = median_cycle(found)
    assert {lane.cycle for lane in lanes} == {chosen.number}
    assert [lane.name for lane in lanes] == [f"tp{i}" for i in range(8)]
    assert max(lane.wall_us for lane in lanes) == pytest.approx(chosen.wall_ns / 1000)
    assert sum(length for _, length, _, _ in lanes[0].segments) == pytest.approx(lanes[0].wall_us)


def test_widths_come_from_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(["attribute", str(EAGLE3), "-q"]) == 0
    assert "no room for" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["attribute", str(EAGLE3)], ["parse", str(EAGLE3 / "server.log"), "-t", "decode"]])
def test_no_terminal_gets_parquet(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run([*command, "-f", "parquet"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, "name a file with --output" in shown.err) == ("", True)
    assert run([*command, "-f", "parquet", "-q", "-o", str(tmp_path / "x.parquet")]) == 0
    assert (tmp_path / "x.parquet").read_bytes()[:4] == b"PAR1"
