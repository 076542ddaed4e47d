"""The HTML page as a document: self-contained, escaped, small, repeatable, and with profkit's numbers."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from profkit.cli.app import build_app
from profkit.escape import visible
from profkit.export import timeline as timelines
from profkit.pipeline import analyse_path
from profkit.projection import Change, Projector
from profkit.reports.html import sections
from profkit.reports.html.plot import Measured, allreduce_plot
from profkit.reports.html.shell import embedded
from profkit.words import ACTIVITIES, HEADLINE_PARTS
from tests.html_pages import HOSTILE, SAMPLES, hostile_page, html_of, loaded, page, remembered_whatif


@pytest.fixture(autouse=True)
def _replay_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.export.page.whatif_table", remembered_whatif)


VOID = {"meta", "input", "br", "hr", "img", "link"}


class Reader(HTMLParser):
    """Elements, attributes, text, and whether tags are balanced."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if dict(attrs).get("id"):
            self.ids.append(str(dict(attrs)["id"]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif not self.open or self.open[-1] != "style":
            self.text.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def data_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read(text).scripts[0])
    return found


def assert_loads_nothing(text: str) -> None:
    """A small page whose only script is its own, and that asks for nothing from anywhere."""
    reader = read(text)
    assert len(text.encode()) < 1_500_000
    assert len(set(reader.ids)) == len(reader.ids)
    for tag, attributes in reader.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "img")
        assert not [a for a in attributes if a.startswith("on")]
        for name in ("src", "href", "action", "formaction"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "@import" not in text
    assert "url(" not in text
    policy = next(str(a["content"]) for _, a in reader.elements if a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(reader.scripts[1].encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy
    assert len(reader.scripts) == 2


def assert_names_are_text(text: str) -> None:
    """Hostile names are shown, and do nothing."""
    reader = read(text)
    assert "window.hacked" not in "".join(reader.scripts[1:])
    assert not [t for t, a in reader.elements if t == "img" or "onload" in a]
    shown = "".join(reader.text)
    for name in HOSTILE[:3]:
        assert name in shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", text)


@pytest.mark.parametrize("which", ["pair", "alone", "hostile"])
def test_one_file_that_loads_nothing(which: str) -> None:
    text = hostile_page() if which == "hostile" else page() if which == "pair" else page("baseline", None)
    assert_loads_nothing(text)


def test_hostile_names_are_text() -> None:
    text = hostile_page()
    assert_names_are_text(text)
    assert "{{" not in text.replace(HOSTILE[2], "").replace("{{ 7*7 }}", "")
    names = data_of(text)["timeline"]["names"]
    assert {visible(h, timelines.NAME_LENGTH) for h in HOSTILE} <= set(names)


@given(st.recursive(st.text() | st.integers() | st.none(), lambda c: st.lists(c, max_size=3), max_leaves=8))
def test_embedded_json_cannot_leave_its_element(value: Any) -> None:
    text = embedded(value)
    assert not set("<>&") & set(text)
    assert text.isascii()
    assert json.loads(text) == value


def test_same_input_same_bytes() -> None:
    analysis, traces = loaded("eagle3")
    assert html_of(analysis, traces=traces, baseline=loaded("baseline")[0]) == page()
    assert str(SAMPLES) not in page()


def test_the_numbers_are_the_attribution_s() -> None:
    analysis, _ = loaded("eagle3")
    result = analysis.attribution
    assert result is not None
    assert result.cycle is not None
    data = data_of(page())
    shown = data["timeline"]["cycles"][0]
    by_activity = dict.fromkeys(ACTIVITIES, 0)
    for rank in shown["ranks"]:
        lengths, codes = rank["segments"][::2], rank["segments"][1::2]
        assert sum(lengths) == rank["end"] - rank["start"]
        for length, code in zip(lengths, codes, strict=True):
            by_activity[ACTIVITIES[code & 7]] += length
    parts = result.parts.to_pandas()
    mine = parts[parts["cycle"] == 3].groupby("activity", observed=True)["duration_ns"].sum()
    assert {a: v for a, v in by_activity.items() if v} == {str(a): int(v) for a, v in mine.items() if v}
    text = " ".join("".join(read(page()).text).split())
    for part in HEADLINE_PARTS:
        value = result.cycle.headline_us[part]
        if value and value > 100:
            assert f"{value / 1000:.3g} ms" in text
    verify = f"{result.cycle.parts_us['verify']['allreduce']:,.1f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    assert verify in "".join(read(page()).text)
    assert "Speculation does not pay here" in text


def test_ops_tile_their_streams_and_carry_waits() -> None:
    data = data_of(page())["timeline"]
    for rank in data["cycles"][0]["ranks"]:
        flat, at, waits = rank["ops"], 0, 0
        for i in range(0, len(flat), 7):
            at += flat[i]
            assert rank["start"] <= at < rank["end"]
            assert 0 <= flat[i + 2] < len(data["names"])
            assert 0 <= flat[i + 3] < len(data["classes"])
            assert flat[i + 5] <= flat[i + 1]
            waits += flat[i + 5] >= 0
        assert waits == 132
    late = data["cycles"][0]["stragglers"]
    assert [c["wait"] for c in late] == sorted((c["wait"] for c in late), reverse=True)


def lines(knots: list[list[float]], at: float) -> list[float]:
    for low, high in pairwise(knots):
        if at <= high[0]:
            share = (at - low[0]) / (high[0] - low[0])
            return [a + share * (b - a) for a, b in zip(low[1:], high[1:], strict=True)]
    return knots[-1][1:]


@settings(max_examples=8, deadline=None)
@given(st.floats(0, 300), st.integers(2, 6))
def test_the_table_answers_as_whatif_does(us: float, tokens: int) -> None:
    analysis, baseline = loaded("eagle3")[0], loaded("baseline")[0]
    table = remembered_whatif(analysis, baseline)
    projector = PROJECTORS.setdefault("eagle3", Projector(analysis, baseline))
    found = projector.project(Change(allreduce_us=us, draft_tokens=tokens))
    cycle = lines(table["by_draft_tokens"][str(tokens)]["knots"], us)
    assert cycle[0] == pytest.approx(found.candidate.cycle_after.value, rel=1e-3)
    accept = table["by_draft_tokens"][str(tokens)]["accept_len"][0]
    assert 1000 * accept / cycle[0] == pytest.approx(found.candidate.throughput_after.value, rel=1e-3)
    assert found.baseline is not None
    base = lines(table["baseline"]["knots"], us)
    assert 1000 * table["baseline"]["tokens_per_cycle"] / base[0] == pytest.approx(
        found.baseline.throughput_after.value, rel=1e-3
    )


PROJECTORS: dict[str, Projector] = {}


def test_without_names_or_log_or_trace() -> None:
    analysis, _ = loaded("eagle3")
    bare = html_of(analysis, baseline=loaded("baseline")[0])
    assert data_of(bare)["timeline"]["names"] == [""]
    assert "Speculation" in bare
    no_log = html_of(replace(analysis, log=None))
    assert data_of(no_log)["whatif"] is None
    no_trace = html_of(replace(analysis, attribution=None))
    assert data_of(no_trace)["timeline"] is None
    read(no_trace)


def test_evidence_leads_to_the_file() -> None:
    """The rows and times that the page names are those of the cycle's ops in the trace."""
    analysis, traces = loaded("eagle3")
    text = page()
    for rank, trace in zip(data_of(text)["timeline"]["cycles"][0]["ranks"], traces, strict=True):
        first, last, begin, end = rank["source"]
        starts = [int(s or 0) for s in trace.gpu_ops.column("start_ns").to_pylist()]
        assert min(starts[first : last + 1]) == begin
        assert max(starts[first : last + 1]) < end
        assert f"ts {begin // 1000}.{begin % 1000:03d} to" in text
    assert analysis.attribution is not None
    links = {a["href"] for t, a in read(text).elements if t == "a"}
    assert "#rank-3" in links
    assert {str(h)[1:] for h in links} <= set(read(text).ids)


def test_large_cycles_are_thinned_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    analysis, traces = loaded("eagle3")
    assert analysis.attribution is not None
    monkeypatch.setattr(timelines, "MOST_OPS", 1000)
    shown = timelines.timeline(analysis.attribution, traces, ["median"])["cycles"][0]
    kept = sum(len(r["ops"]) // 7 for r in shown["ranks"])
    assert 1000 <= kept < 1100
    assert shown["hidden_ops"] > 5000


def test_plot_is_escaped_and_labels_do_not_collide() -> None:
    svg = allreduce_plot([Measured(14336, 79, HOSTILE[0], "activity-compute")], [], (20.6, HOSTILE[1]))
    assert "<script" not in svg
    assert "<img" not in svg
    labels = [float(y) for y in re.findall(r'<text x="613" y="([\d.]+)">', page())]
    assert len(labels) == 6
    assert all(b - a >= 14.9 for a, b in pairwise(sorted(labels)))
    assert allreduce_plot([], [], None) == ""


@pytest.mark.parametrize("time", [0.05, 1.0, 7.0, 100.0])
def test_a_single_measured_time_can_be_drawn(time: float) -> None:
    svg = allreduce_plot([Measured(14336, time, "verify", "activity-compute")], [], None)
    (height,) = re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', svg)
    assert 20 <= float(height) <= 298


def test_what_was_not_observed_is_no_zero_and_the_target_s_compute_has_its_name() -> None:
    analysis, _ = loaded("baseline")
    assert analysis.attribution is not None
    cycle = analysis.attribution.cycle
    assert cycle is not None
    unseen = dict.fromkeys(ACTIVITIES, None)
    dark = replace(cycle, parts_us={**cycle.parts_us, "draft": unseen}, headline_us={"verify_compute": 900.0})
    result = replace(analysis.attribution, cycle=dark)
    matrix = sections._matrix(result, "")
    assert matrix is not None
    row = next(r for r in matrix["rows"] if r["key"] == "draft")
    assert {row["sum"], *(cell["text"] for cell in row["cells"])} == {"–"}
    assert "of it is decode compute." in "".join(read(html_of(replace(analysis, attribution=result))).text)


def test_a_recording_without_length_has_a_page(tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 100, "dur": 0,
              "args": {"device": 0, "stream": 7, "correlation": 1}}  # fmt: skip
    (tmp_path / "a.trace.json").write_text(json.dumps({"traceEvents": [kernel]}))
    text = html_of(analyse_path(tmp_path, cache=False))
    assert "holds no complete decode cycle" in text
    read(text)


def test_command(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    arguments = ["export", "html", str(SAMPLES / "eagle3"), "-b", str(SAMPLES / "baseline"), "-o", str(target)]
    done = CliRunner().invoke(build_app(), arguments)
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(target)
    read(target.read_text(encoding="utf-8"))
    again = CliRunner().invoke(build_app(), arguments)
    assert again.exit_code != 0


def test_attribute_writes_the_page_too(tmp_path: Path) -> None:
    traces = sorted((SAMPLES / "baseline" / "traces").iterdir())[:2]
    target = tmp_path / "page.html"
    arguments = ["attribute", *map(str, traces), "--html", str(target), "--format", "json"]
    done = CliRunner().invoke(build_app(), arguments)
    assert done.exit_code == 0, done.output
    text = target.read_text(encoding="utf-8")
    assert [r["label"] for r in data_of(text)["timeline"]["cycles"][0]["ranks"]] == ["tp0", "tp1"]
    assert str(tmp_path) not in text
    assert CliRunner().invoke(build_app(), arguments).exit_code != 0


def test_plan_writes_the_page_with_its_levers(tmp_path: Path) -> None:
    arguments = ["plan", str(SAMPLES / "eagle3"), "-b", str(SAMPLES / "baseline"), "-o", str(tmp_path), "--html"]
    done = CliRunner().invoke(build_app(), arguments)
    assert done.exit_code == 0, done.output
    plan = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    shown = " ".join("".join(read((tmp_path / "plan.html").read_text(encoding="utf-8")).text).split())
    for sentence in plan["verdict"]["sentences"]:
        assert " ".join(sentence.split()) in shown
    for lever in plan["levers"]:
        assert lever["title"] in shown
    assert f"{sum(1 for v in plan['levers'] if not v['priority'])} more that are not open" in shown


@pytest.mark.parametrize(
    "points",
    [
        [(2048, 27.1, "tp2 draft"), (8192, 31.2, "tp2 verify"), (8192, 31.6, "tp2 draft extend")],
        [(14336, 78.6, "draft"), (57344, 205.1, "verify"), (57344, 205.0, "a draft extend"), (14336, 78.8, "decode")],
        [(400_000, 900.0, "a run with a long name, of a large batch"), (400_000, 905.0, "and its other arm")],
    ],
)
def test_words_of_points_cover_no_dot_and_stay_off_the_names_of_lines(points: list[tuple[int, float, str]]) -> None:
    svg = allreduce_plot([Measured(s, t, n, "activity-compute") for s, t, n in points], [], None)
    dots = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)]
    found = re.findall(r'<text class="strong" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">([^<]+)<', svg)
    boxes = []
    for x, y, anchor, words in found:
        left = float(x) - 7 * len(words) * (anchor == "end")
        boxes.append((left, left + 7 * len(words), float(y)))
    assert len(boxes) == len(points)
    for left, right, y in boxes:
        assert left >= 58
        assert right <= 600
        assert not [d for d in dots if left - 6 < d[0] < right + 6 and y - 15 < d[1] < y + 6]
    for a, b in combinations(boxes, 2):
        assert a[0] >= b[1] or b[0] >= a[1] or abs(a[2] - b[2]) >= 14
