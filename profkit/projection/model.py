"""What a change means for one arm, in three cases: expected, most favourable, least favourable."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from profkit.analysis import RunAnalysis
from profkit.collectives.cost import SizeLatency, fit_size_latency
from profkit.projection.change import Change
from profkit.speculation.roofline import forward_floor
from profkit.words import TARGET_FORWARD_PHASES, count

# Algorithms whose draft is a chain of forwards, one per drafted token after the first two rows.
CHAIN_DRAFTERS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"})
# A draft forward over the time of a draft_extend, which has more rows and its preparation in it: least and most.
FORWARD_SHARE = (0.5, 1.25)


@dataclass(frozen=True, slots=True)
class Case:
    """Factors of one case: ``allreduce`` on measured transfers, ``compute`` by phase, ``draft`` on everything in the
    draft phase, ``rows`` on the size of the target's messages (for a curve to be read at), ``comm`` on its other
    collectives, such as the gathering of logits. ``added_us`` is the time of forwards that today's cycle has none of.
    """

    allreduce: float = 1.0
    compute: Mapping[str, float] = field(default_factory=dict)
    draft: float = 1.0
    rows: float = 1.0
    added_us: float = 0.0
    comm: float = 1.0


@dataclass(frozen=True, slots=True)
class Cases:
    """Expected, most and least favourable case, and what was assumed."""

    expected: Case
    best: Case
    worst: Case
    assumptions: tuple[str, ...] = ()


def measured_points(implementations: Collection[str], *runs: RunAnalysis | None) -> list[tuple[float, float]]:
    """(bytes, microseconds) of every all-reduce of these implementations whose size and transfer are known; with ranks
    missing waiting may be in a call, which says nothing of its size."""
    points = []
    for run in runs:
        for call in run.attribution.collectives if run is not None and run.attribution else ():
            time = call.measured_transfer_us
            wanted = call.kind == "all_reduce" and call.implementation in implementations
            if wanted and call.message_bytes and time is not None:
                points.append((float(call.message_bytes), time))
    return points


def _curve_factors(curve: SizeLatency, size: float, ratio: float) -> tuple[float, float, float]:
    """(expected, best, worst) factor on a transfer whose message grows by ``ratio``.

    A line is the usual shape; protocols that switch with size bend it, so a power law through the line's values at
    the smallest and largest measured size bounds it from the other side. With three points or more the line's own 95 %
    interval is in the range as well.
    """
    line = curve.at(size * ratio) / curve.at(size)
    power = line
    low, high = curve.smallest_bytes, curve.largest_bytes
    if low and high and high > low and curve.at(low) > 0:
        power = ratio ** (math.log(curve.at(high) / curve.at(low)) / math.log(high / low))
    ends = [line, power]
    sure = curve.predict(size * ratio)
    if sure.low is not None and sure.high is not None:
        ends += [max(sure.low, 0.0) / curve.at(size), sure.high / curve.at(size)]
    return line, min(ends), max(ends)


def _message_factors(
    run: RunAnalysis, baseline: RunAnalysis | None, ratio: float, notes: list[str]
) -> tuple[float, float, float]:
    """(expected, best, worst) factor on the target's all-reduces when their messages grow by ``ratio``."""
    calls = [
        c
        for c in (run.attribution.collectives if run.attribution else ())
        if c.kind == "all_reduce" and c.phase in TARGET_FORWARD_PHASES and c.message_bytes
    ]
    points = measured_points({c.implementation for c in calls}, run, baseline)
    curve = fit_size_latency(points, "all-reduces of these runs")
    size = float(calls[0].message_bytes or 0) if calls else 0.0
    # Below its smallest sizes a line through calls of unlike protocols may reach zero: there it is no model.
    if curve is None or not size or curve.at(min(size, size * ratio)) <= 0:
        near, far = min(ratio, 1.0), max(ratio, 1.0)
        several = len({point for point, _ in points}) > 1
        why = "the measured message sizes lie on no line" if several else "no two message sizes were measured"
        notes.append(f"{why}: an all-reduce may be flat in size or proportional to it")
        return (near + far) / 2, near, far
    notes.append(
        f"an all-reduce costs {curve.alpha_us:.1f} us + {curve.beta_us_per_kib:.2f} us/KiB, fitted to "
        f"{curve.points} all-reduces of these runs, {(curve.smallest_bytes or 0) / 1024:.0f} to "
        f"{(curve.largest_bytes or 0) / 1024:.0f} KiB; range: a power law through them, and the line's 95 % interval"
    )
    return _curve_factors(curve, size, ratio)


def _row_factors(run: RunAnalysis, old: int, new: int, requests: int, notes: list[str]) -> tuple[float, float, float]:
    """(expected, best, worst) factor on the target's compute for other verified rows of each of the requests."""
    ratio = new / old
    near, far = min(ratio, 1.0), max(ratio, 1.0)
    floors = [forward_floor(run.facts, rows * requests).value for rows in (old, new)]
    if floors[0] and floors[1]:
        factor = floors[1] / floors[0]
        notes.append("compute of the target's forward follows the bytes that it must read (roofline)")
        return factor, min(factor, near), max(factor, far) if ratio > 1 else 1.0
    notes.append("what a verified row costs in compute is not known: free or proportional")
    return (near + far) / 2, near, far


def _draft_factors(run: RunAnalysis, old: int, new: int, notes: list[str]) -> tuple[float, float, float]:
    algorithm = (run.facts.text("speculative.algorithm") or "").upper()
    if not _drafts_chain(run):
        notes.append(f"the cost of drafting is kept: {algorithm or 'the drafter'} does not draft a chain")
        return 1.0, 1.0, 1.0
    if old <= 2:
        return 1.0, 1.0, 1.0
    factor = max(new - 2, 0) / (old - 2)
    notes.append(f"a chain of {new} rows drafts with {count(max(new - 2, 0), 'forward')} instead of {old - 2}")
    # Metadata and the tree build come once, however many forwards there are.
    return factor, factor, (factor + 1) / 2 if factor < 1 else factor


def _drafts_chain(run: RunAnalysis) -> bool:
    algorithm = (run.facts.text("speculative.algorithm") or "").upper()
    return algorithm in CHAIN_DRAFTERS and run.facts.integer("speculative.topk") in (1, None)


def _first_drafts(run: RunAnalysis, old: int, new: int, notes: list[str]) -> tuple[float, float, float]:
    """(expected, best, worst) us of draft forwards where today's chain has none: its only draft comes from
    draft_extend, which is the one forward of the drafter whose time was measured."""
    if old > 2 or new <= 2 or not _drafts_chain(run):
        return 0.0, 0.0, 0.0
    cycle = run.attribution.cycle if run.attribution else None
    each = sum(value or 0.0 for value in cycle.parts_us["draft_extend"].values()) if cycle else 0.0
    if each:
        notes.append("draft forwards, of which there is none today, are taken to last as long as draft_extend")
    else:
        notes.append("what a draft forward costs is not known, as there is none today: taken as free")
    return (new - 2) * each, (new - 2) * each * FORWARD_SHARE[0], (new - 2) * each * FORWARD_SHARE[1]


def make_cases(
    run: RunAnalysis, baseline: RunAnalysis | None, change: Change, speculative: bool, requests: int | None = None
) -> Cases:
    """The three cases of ``change`` on one arm that runs so many ``requests`` at once; only the speculative arm has
    draft tokens to change."""
    notes: list[str] = []
    compute: dict[str, float] = {str(phase): factor for phase, factor in change.compute_scale.items()}
    old = run.facts.integer("speculative.num_draft_tokens")
    if not speculative or change.draft_tokens is None or old is None or change.draft_tokens == old:
        same = Case(compute=compute)
        return Cases(same, same, same, tuple(notes))
    new_tokens = change.draft_tokens
    of_messages: list[str] = []
    allreduce = _message_factors(run, baseline, new_tokens / old, of_messages)
    if change.allreduce_us is None and change.allreduce_curve is None:
        notes += of_messages
    forward = _row_factors(run, old, new_tokens, requests or 1, notes)
    draft = _draft_factors(run, old, new_tokens, notes)
    added = _first_drafts(run, old, new_tokens, notes)

    ratio = new_tokens / old
    gathers = ((ratio + 1.0) / 2, min(ratio, 1.0), max(ratio, 1.0))
    notes.append("other collectives of the target may be flat in their size or proportional to it")

    def case(i: int) -> Case:
        scaled = dict(compute)
        for phase in TARGET_FORWARD_PHASES:
            scaled[phase] = scaled.get(phase, 1.0) * forward[i]
        return Case(allreduce[i], scaled, draft[i], ratio, added[i], gathers[i])

    return Cases(case(0), case(1), case(2), tuple(notes))
