"""Every number of draft tokens in turn: against single projections, the marginal rule, and as the command shows it."""

from __future__ import annotations

import itertools
import json
import operator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import validate

from profkit.cli.app import run as profkit
from profkit.errors import UsageError
from profkit.projection import Change, DepthSweep, Projector, project, sweep_depth
from profkit.projection.sweep import required_gain
from profkit.reports.whatif import sweep_verdict
from profkit.speculation.acceptance import from_first
from tests.paths import ROOT, SAMPLES
from tests.plan_data import log_only, sample, with_facts

STORY = SAMPLES / "kimi-k2.5-tp8"
RATES = (0.6, 0.3, 0.1, 0.05, 0.02)


def sweep(change: Change = Change(), most: int = 6) -> DepthSweep:  # noqa: B008 - frozen
    return sweep_depth(Projector(sample("eagle3"), sample("baseline")), change, most)


@pytest.mark.parametrize("change", [Change(), Change(allreduce_us=20.0), Change(acceptance=RATES)])
def test_a_row_is_the_projection_of_its_number(change: Change) -> None:
    found = sweep(change)
    assert [row.draft_tokens for row in found.rows] == [2, 3, 4, 5, 6]
    assert found.today == 4
    for row in found.rows:
        alone = project(sample("eagle3"), sample("baseline"), replace(change, draft_tokens=row.draft_tokens))
        assert row.projection.candidate == alone.candidate
        assert row.projection.baseline == alone.baseline
        assert row.projection.accept_len_after == alone.accept_len_after
    speeds = {row.draft_tokens: row.projection.candidate.throughput_after for row in found.rows}
    best = max(speeds, key=lambda n: speeds[n].require())
    assert found.best == best
    low = speeds[best].low
    assert low is not None
    assert set(found.rivals) == {n for n, q in speeds.items() if n != best and (q.high or 0.0) >= low}


def test_one_more_draft_pays_where_it_gains_more_than_it_must() -> None:
    for change in (Change(acceptance=RATES), Change(acceptance=RATES, allreduce_us=5.0), Change(allreduce_us=1.0)):
        rows = sweep(change).rows
        assert (rows[0].gained, rows[0].needed) == (None, None)
        for before, row in itertools.pairwise(rows):
            assert row.gained is not None
            assert row.needed is not None
            faster = (
                row.projection.candidate.throughput_after.require()
                > before.projection.candidate.throughput_after.require()
            )
            assert (row.gained > row.needed) == faster
            assert row.needed > 0


@given(st.floats(1, 8), st.floats(1, 100), st.floats(0.01, 50), st.floats(0, 1))
def test_the_marginal_rule(accept_len: float, cycle: float, cost: float, gain: float) -> None:
    needed = required_gain(accept_len, cycle, cost)
    assume(abs(gain - needed) > 1e-9)
    assert (gain > needed) == ((accept_len + gain) / (cycle + cost) > accept_len / cycle)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(0, 6))
def test_what_is_given_of_the_acceptance_bounds_the_rest(conditional: list[float], given_of: int) -> None:
    rates = list(itertools.accumulate(conditional, operator.mul))
    found = from_first(rates[: max(given_of, 1)], len(rates))
    low, high = (found.low, found.high) if found.low is not None else (found.value, found.value)
    assert low is not None
    assert high is not None
    assert low - 1e-9 <= found.require() <= high + 1e-9
    assert low - 1e-9 <= 1.0 + sum(rates) <= high + 1e-9
    assert from_first([0.6, 0.3], 4).require() == pytest.approx(1.0 + 0.6 + 0.3 + 0.15 + 0.075)


def test_acceptance_of_some_drafts_is_not_ignored() -> None:
    found = project(sample("eagle3"), sample("baseline"), Change(acceptance=(0.6, 0.2))).accept_len_after
    assert found.low == pytest.approx(1.8)
    assert found.high == pytest.approx(2.0)
    assert found.require() == pytest.approx(1.8 + 0.2 / 3)
    silent = with_facts(sample("eagle3"), speculative__num_draft_tokens=None)
    assert project(silent, None, Change(acceptance=(0.6, 0.2))).accept_len_after.value is None


def test_depth_pays_only_where_a_call_is_cheap() -> None:
    dear, cheap = sweep(Change(acceptance=RATES)), sweep(Change(acceptance=RATES, allreduce_us=1.0))
    assert dear.best == 2
    assert cheap.best is not None
    assert cheap.best >= dear.best
    needed = [(a.needed, b.needed) for a, b in zip(dear.rows[1:], cheap.rows[1:], strict=True)]
    assert all(a is not None and b is not None and b < a for a, b in needed)


def test_without_a_trace_or_the_number_of_today_nothing_is_best() -> None:
    bare = sweep_depth(Projector(log_only(sample("eagle3")), None), Change(), 4)
    assert (bare.best, bare.rivals) == (None, ())
    assert {(row.gained is None) or row.needed is None for row in bare.rows} == {True}
    silent = with_facts(sample("eagle3"), speculative__num_draft_tokens=None)
    assert sweep_depth(Projector(silent, None), Change(), 4).best is None


def test_the_sentence_says_where_today_may_be_as_good_and_what_is_not_known() -> None:
    found = sweep(Change(acceptance=RATES))
    assert (found.today, found.best) == (4, 2)
    alone = "no other number's range overlaps with its own."
    assert sweep_verdict(replace(found, rivals=())).endswith(alone)
    assert sweep_verdict(replace(found, rivals=(4,))).endswith(
        "today's range overlaps with its own, so that it may bring nothing."
    )
    assert sweep_verdict(replace(found, rivals=(3, 4))).endswith(
        "the range of 3 overlaps with its own, so measure that one too."
    )
    tree = sweep_depth(Projector(with_facts(sample("eagle3"), speculative__topk=4), sample("baseline")), Change(), 6)
    assert [r.draft_tokens for r in tree.rows if r.projection.candidate.throughput_after.value is None] == [5, 6]
    assert sweep_verdict(tree).endswith("; nothing can be said of 5, 6.")


@pytest.mark.parametrize(
    ("change", "most"),
    [(Change(), 1), (Change(), 0), (Change(), 1000), (Change(draft_tokens=3), 4), (Change(accept_len=1.5), 4)],
)
def test_what_is_no_sweep_is_wrong_usage(change: Change, most: int) -> None:
    with pytest.raises(UsageError, match="--sweep-depth"):
        sweep(change, most)


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["whatif", str(STORY / "eagle3"), "--baseline", str(STORY / "baseline"), "--sweep-depth", "5", "-q"]
    assert profkit([*arguments, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate(document, json.loads((ROOT / "profkit/schemas/whatif.schema.json").read_text(encoding="utf-8")))
    assert document["change"] == {}
    assert document["sweep"]["best"] == 2
    assert [row["draft_tokens"] for row in document["sweep"]["rows"]] == [2, 3, 4, 5]
    assert document["sweep"]["rows"][0]["speculation_pays"] is None
    assert profkit(arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("2 draft tokens are expected to be best: ")
    assert "today 4: 60.2" in text
    assert "without speculation 82.0" in text
    assert "before" not in text
    assert "  4 (today) " in text
    assert profkit([*arguments, "--allreduce-us", "20"]) == 0
    both = capsys.readouterr().out
    assert both.startswith("Speculation ")
    assert "draft tokens are expected to be best" in both
    assert profkit([*arguments, "--format", "markdown", "-o", str(tmp_path / "sweep.md")]) == 0
    page = (tmp_path / "sweep.md").read_text(encoding="utf-8")
    assert "| draft tokens | accept length |" in page
    assert page.count("|\n| ") >= 3
    assert profkit([*arguments[:-1], "--draft-tokens", "3"]) == 2
    assert profkit([*arguments[:4], "--sweep-depth", "1"]) == 2
