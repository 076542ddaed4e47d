"""Other numbers of draft tokens: what changes with the verified rows, and what is not known of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.pipeline import analyse_path
from profkit.projection import Change, project
from profkit.projection.model import make_cases
from profkit.run import Fact, Facts
from profkit.simulation import Drafter
from profkit.speculation.roofline import forward_floor
from tests.test_projection import ACCEPTANCE, EAGLE, FAST, STORY, analysed, scenario


@pytest.mark.parametrize("alpha_us", [8.0, FAST.allreduce_alpha_us])
@pytest.mark.parametrize("rows", [3, 4])
def test_more_draft_tokens_than_two_need_draft_forwards(alpha_us: float, rows: int) -> None:
    hardware = replace(FAST, allreduce_alpha_us=alpha_us)
    two, more = (replace(EAGLE, num_steps=n - 1, num_draft_tokens=n) for n in (2, rows))
    unconditional = (0.62, 0.31, 0.1395)[: rows - 1]
    change = Change(draft_tokens=rows, acceptance=unconditional)
    found = project(analysed(scenario(hardware, two, 1)), None, change)
    truth = project(analysed(scenario(hardware, more, 2)), None, Change(accept_len=1.5)).candidate
    after = found.candidate.cycle_after
    assert after.low is not None
    assert after.high is not None
    assert after.low <= truth.cycle_before.require() <= after.high
    assert after.require() == pytest.approx(truth.cycle_before.require(), rel=0.08)
    assert any(note.startswith("draft forwards, of which there is none today") for note in found.assumptions)


def test_gathers_of_the_logits_shrink_with_the_rows() -> None:
    hardware = replace(FAST, allreduce_alpha_us=20.0, allreduce_us_per_kib=0.1)
    many, few = (replace(EAGLE, num_steps=n - 1, num_draft_tokens=n, batch_sizes=(4,)) for n in (6, 2))
    longer = Drafter(conditional_acceptance=(*ACCEPTANCE, 0.4, 0.4))
    made = [replace(scenario(hardware, serving, seed), drafter=longer) for seed, serving in ((1, many), (2, few))]
    after = project(analysed(made[0]), None, Change(draft_tokens=2)).candidate.cycle_after
    truth = project(analysed(made[1]), None, Change(accept_len=1.5)).candidate.cycle_before.require()
    assert after.low is not None
    assert after.high is not None
    assert after.low <= truth <= after.high
    assert after.require() == pytest.approx(truth, rel=0.2)


@pytest.mark.parametrize("requests", [1, 4])
def test_compute_follows_the_rows_of_all_requests(requests: int) -> None:
    candidate = analyse_path(STORY / "eagle3")
    cases = make_cases(candidate, None, Change(draft_tokens=2), True, requests)
    floors = [forward_floor(candidate.facts, rows * requests).require() for rows in (4, 2)]
    assert cases.expected.compute["verify"] == pytest.approx(floors[1] / floors[0])


def test_without_a_draft_extend_new_draft_forwards_are_said_to_be_unknown() -> None:
    candidate = analyse_path(STORY / "eagle3")
    facts = Facts(dict(candidate.facts) | {"speculative.num_draft_tokens": Fact(2, "test")})
    cases = make_cases(replace(candidate, attribution=None, facts=facts), None, Change(draft_tokens=4), True)
    assert {case.added_us for case in (cases.expected, cases.best, cases.worst)} == {0.0}
    assert any("what a draft forward costs is not known" in note for note in cases.assumptions)


@pytest.mark.parametrize(
    ("draft", "why"),
    [(("custom_one_shot", 14, 5.0), "no two message sizes were measured"),  # another implementation has another line
     (("nccl", 28, 5.0), "the measured message sizes lie on no line"),  # 5 us at 28 KiB, 60 at 56: none at 14
     (("nccl", 28, 80.0), "the measured message sizes lie on no line")],
)  # fmt: skip
def test_without_a_line_through_the_sizes_an_all_reduce_may_be_flat_or_proportional(
    draft: tuple[str, int, float], why: str
) -> None:
    candidate = analyse_path(STORY / "eagle3")
    assert candidate.attribution is not None
    verify = next(c for c in candidate.attribution.collectives if c.phase == "verify" and c.kind == "all_reduce")
    by, kib, us = draft
    calls = (
        replace(verify, message_bytes=56 << 10, transfer_us=60.0),
        replace(verify, phase="draft", implementation=by, message_bytes=kib << 10, transfer_us=us),
    )
    mixed = replace(candidate, attribution=replace(candidate.attribution, collectives=calls))
    cases = make_cases(mixed, None, Change(draft_tokens=1), speculative=True)
    assert [c.allreduce for c in (cases.expected, cases.best, cases.worst)] == [0.625, 0.25, 1.0]
    assert any(note.startswith(why) for note in cases.assumptions)
