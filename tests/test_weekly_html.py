"""The weekly page as a document: self-contained, escaped, small, repeatable, with the numbers of weekly.json."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from profkit.jsonio import dumps
from profkit.reports.html.history import MOST_WEEKS, chart
from profkit.reports.html.weekly import MOST_CHARTS, _chart_notes, _subtitle, render
from profkit.reports.palette import EVENT_COLOURS, EVENT_MARKS, THEMES, css_variables, event_colour
from profkit.reports.weekly import event_line
from profkit.reports.wording import VERDICTS, figure, percent
from profkit.weekly.model import Event, Point
from profkit.weekly.report import weekly
from tests.html_pages import HOSTILE
from tests.test_html_page import assert_loads_nothing, assert_names_are_text, read
from tests.test_weekly_document import CONFIG
from tests.test_weekly_events import experiment, plan
from tests.weekly_data import PLANTED, REGRESSION, WEEKS, history_launches
from tests.weekly_pages import attacked, large, report

NUMBER = re.compile(r"[-−+]?\d[\d,]*\.?\d*")


@pytest.mark.parametrize("which", [*PLANTED, WEEKS[-1], "hostile", "large"])
def test_one_small_file_that_loads_nothing(which: str) -> None:
    made = {"hostile": attacked, "large": large}.get(which, lambda r: r)
    text = render(made(report(which if which in WEEKS else REGRESSION)), store=HOSTILE[0])
    assert_loads_nothing(text)


def test_one_of_a_kind_is_singular() -> None:
    whole = report()
    one = replace(whole, configurations=whole.configurations[:1])
    assert _subtitle(one).endswith(" launches of 1 of 1 configuration")
    two = replace(whole, configurations=whole.configurations[:1] * 2)
    assert list(_chart_notes(two, 1)) == ["1 more configuration is in the tables only."]


def test_hostile_names_are_text() -> None:
    text = render(attacked(report(REGRESSION)), store=HOSTILE[1])
    assert_names_are_text(text)


def test_same_report_same_bytes() -> None:
    launches = [*reversed(history_launches(traced=True)), *experiment(65.0)]
    again = weekly(launches, CONFIG, WEEKS[-1], plans=[plan(), plan(WEEKS[-1], priority=2)])
    assert render(again) == render(report())


@pytest.mark.parametrize("week", [*PLANTED, WEEKS[-1]])
def test_the_numbers_are_weekly_json_s(week: str) -> None:
    found = report(week)
    document = json.loads(dumps(found))
    reader = read(render(found))
    shown = " ".join("".join(reader.text).split())
    charts = json.loads(reader.scripts[0])["charts"]
    for row, told in zip(document["configurations"], charts, strict=True):
        sentence = row["sentence"]
        assert f"{VERDICTS[row['verdict']]}. {sentence[0].upper()}{sentence[1:]}" in shown
        primary = row["metrics"][0]
        if primary["change_percent"] is not None:
            assert percent(primary["change_percent"] / 100) in shown
        assert [w for w, _ in told] == [p["week"] for p in row["series"]]
        for point, (_, lines) in zip(row["series"], told, strict=True):
            if point["median"] is None:
                assert lines[0] == "not measured"
                continue
            assert lines[0] == f"median {figure(point['median'], primary['unit'])}"
            assert lines[1] == f"95% interval {figure(point['low'])} to {figure(point['high'])}"
            assert NUMBER.findall(lines[2])[0] == str(point["n"])
            assert lines[2].partition(": ")[2].split(", ") == [figure(v) for v in point["values"]]
        for name in ("inflation", "break_even_accept_len"):
            if row["economics"]:
                assert figure(row["economics"][name]["value"]) in shown
        for evidence in [e for event in row["events"] for e in event["evidence"]]:
            assert f"for it: {evidence}" in shown
        for drift in row["acceptance"]:
            assert f"{figure(drift['accept_len'])} ({drift['n']})" in shown
    for action in document["next_week"]:
        assert action["text"] in shown
    for event in (e for r in found.configurations for e in (*r.events, *r.history)):
        assert event_line(event) in shown


def test_a_chart_draws_every_launch_at_its_value() -> None:
    for row in report().configurations:
        svg = chart(row, report().weeks, "tok/s").svg
        places = [
            [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)h0", d)] for d in re.findall(r'launches" d="(.*?)"', svg)
        ]
        measured = [p.values for p in row.series if p.values]
        assert [len(p) for p in places] == [len(v) for v in measured]
        pairs = sorted((v, y) for vs, ys in zip(measured, places, strict=True) for v, y in zip(vs, ys, strict=True))
        (low, bottom), (high, top) = pairs[0], pairs[-1]
        for value, y in pairs:
            assert y == pytest.approx(bottom + (top - bottom) * (value - low) / (high - low), abs=0.11)
        events = (*row.history, *row.events)
        assert svg.count('class="event"') == len(events)
        for event in events:
            assert f'fill="var(--{EVENT_COLOURS[event.kind]})"' in svg
        breaks = sum(e.kind == "environment" for e in events)
        assert svg.count('class="break"') == breaks
        assert svg.count('class="median"') == breaks + 1


def test_event_labels_do_not_run_into_each_other() -> None:
    row = report().configurations[0]
    events = [Event("regression", w, "eagle3", "s", "unknown", change=-0.055) for w in report().weeks]
    svg = chart(replace(row, history=tuple(events), events=()), report().weeks, "tok/s").svg
    width = int(re.findall(r'viewBox="0 0 (\d+) ', svg)[0])
    labels = re.findall(r'event-label" x="([\d.]+)" y="(\d+)" text-anchor="(\w+)">(.*?)<', svg)
    assert len(labels) == len(WEEKS)
    spans = []
    for x, y, anchor, text in labels:
        start = float(x) - (6.6 * len(text) if anchor == "end" else 0)
        spans.append((int(y), start, start + 6.6 * len(text)))
    assert all(a >= 0 and b <= width for _, a, b in spans)
    for i, (y, a, b) in enumerate(spans):
        assert not [s for s in spans[i + 1 :] if s[0] == y and s[1] < b and a < s[2]]


def test_what_does_not_fit_is_told() -> None:
    found = large(report())
    text = render(found)
    drawn = text.count('<figure class="history">')
    assert 0 < drawn <= MOST_CHARTS
    assert text.count('class="week"') == drawn * MOST_WEEKS
    assert f"{60 - drawn} more configurations are in the tables only." in text
    assert f"The charts show the last {MOST_WEEKS} of 144 weeks" in text
    rows = re.findall(r"<details>.*?</details>", text, re.DOTALL)
    assert len(rows) == 60
    listed = {row.count('<th scope="row">') for row in rows}
    assert len(listed) == 1
    assert f"Tables and earlier events reach {listed.pop()} weeks back; weekly.json has all." in text
    assert "weekly.json has all" not in render(report())


def test_a_week_without_any_figure_has_a_page() -> None:
    row = report().configurations[0]
    empty = tuple(Point(p.week, 0, None, None, None, ()) for p in row.series)
    bare = replace(row, metrics=(), series=empty, events=(), history=(), moved=(), budget=(), drift=(), economics=None)
    text = render(replace(report(), configurations=(bare,), actions=()))
    assert "not measured" in text
    assert "No accept length was measured." in text
    assert "Nothing urgent." in text
    assert "nan" not in "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))


def test_events_look_the_same_in_plots_and_pages() -> None:
    assert set(EVENT_MARKS) == set(EVENT_COLOURS)
    assert len(set(EVENT_MARKS.values())) == len(EVENT_MARKS)
    for theme in THEMES.values():
        variables = css_variables(theme)
        for kind, name in EVENT_COLOURS.items():
            assert f"--{name}: {event_colour(theme, kind)};" in variables
