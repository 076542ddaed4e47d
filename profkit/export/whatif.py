"""What ``profkit whatif`` would answer, as a table that a page can look up.

The replayed wall of a cycle is a maximum of sums of op durations, hence convex in the time of an all-reduce, and so is
the mean over cycles. Between two times whose middle lies on the straight line the line is exact; intervals are halved
until the middle is within :data:`TOLERANCE` of it, which bounds the error everywhere by twice that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from profkit.analysis import RunAnalysis
from profkit.projection import Change, Projector
from profkit.projection.result import ArmProjection, Projection
from profkit.quantity import Quantity

TOLERANCE: Final = 0.0005
_DEEPEST: Final = 5
MOST_DRAFT_TOKENS: Final = 8

Point = tuple[float, list[float]]


def _ends(quantity: Quantity) -> list[float] | None:
    """Value, low and high of a modelled figure; the value three times where it has no modelled range."""
    if quantity.value is None:
        return None
    if quantity.range != "model" or quantity.low is None or quantity.high is None:
        return [quantity.value] * 3
    return [quantity.value, quantity.low, quantity.high]


def _knots(at: Callable[[float], list[float] | None], least: float, most: float) -> list[list[float]] | None:
    """[us, value, low, high] such that straight lines between them follow ``at``."""
    first, last = at(least), at(most)
    if first is None or last is None:
        return None
    found: list[list[float]] = [[least, *first]]

    def fill(low: Point, high: Point, depth: int) -> None:
        middle = (low[0] + high[0]) / 2
        value = at(middle)
        if value is None:
            return
        straight = [(a + b) / 2 for a, b in zip(low[1], high[1], strict=True)]
        exact = all(abs(v - s) <= TOLERANCE * v for v, s in zip(value, straight, strict=True))
        if exact or depth >= _DEEPEST:
            if not exact:
                found.append([middle, *value])
            return
        fill(low, (middle, value), depth + 1)
        found.append([middle, *value])
        fill((middle, value), high, depth + 1)

    fill((least, first), (most, last), 0)
    found.append([most, *last])
    return found


def _measured_us(run: RunAnalysis) -> float | None:
    """The dearest all-reduce of the run per call, mean, which sets how far a slider reaches."""
    calls = run.attribution.collectives if run.attribution else ()
    times = [c.transfer_us if c.transfer_us is not None else c.mean_us for c in calls if c.kind == "all_reduce"]
    return max(times, default=None)


def _per_cycle(arm: ArmProjection) -> float | None:
    """Tokens per cycle: throughput x cycle."""
    speed, cycle = arm.throughput_before.value, arm.cycle_before.value
    return None if speed is None or cycle is None else speed * cycle / 1000.0


def whatif_table(candidate: RunAnalysis, baseline: RunAnalysis | None) -> dict[str, Any] | None:
    """The ``whatif`` object of the page; ``None`` where the candidate's throughput or its trace is missing.

    ``cycle`` figures are [value, low, high] in ms, ``knots`` [us, value, low, high]; keys of ``by_draft_tokens`` are
    numbers of verified tokens. ``tokens_per_cycle`` is running requests x accept length.
    """
    projector = Projector(candidate, baseline)
    now = projector.project(Change())
    measured = _measured_us(candidate)
    per_cycle = _per_cycle(now.candidate)
    if per_cycle is None or now.accept_len_before.value is None or candidate.attribution is None:
        return None
    most = None if measured is None else max(50.0, 1.5 * measured)
    most = None if most is None else float(round(most / 10) * 10)
    old = candidate.facts.integer("speculative.num_draft_tokens")
    rows: dict[str, Any] = {}
    for tokens in _choices(old):
        change = Change(draft_tokens=tokens)
        found = projector.project(change)
        rows[str(tokens or 0)] = {
            "accept_len": _ends(found.accept_len_after),
            "cycle": _ends(found.candidate.cycle_after),
            "knots": None if most is None else _knots(_candidate_at(projector, tokens), 0.0, most),
        }
    return {
        "running": per_cycle / now.accept_len_before.value,
        "accept_len": now.accept_len_before.value,
        "draft_tokens": old,
        "speculative": old is not None,
        "allreduce_us": measured,
        "most_us": most,
        "by_draft_tokens": rows,
        "throughput": now.candidate.throughput_before.value,
        "baseline": _baseline(projector, now, most),
        "assumptions": list(now.assumptions),
    }


def _choices(old: int | None) -> list[int | None]:
    return [None] if old is None else list(range(min(2, old), max(MOST_DRAFT_TOKENS, old) + 1))


def _candidate_at(projector: Projector, tokens: int | None) -> Callable[[float], list[float] | None]:
    return lambda us: _ends(projector.project(Change(allreduce_us=us, draft_tokens=tokens)).candidate.cycle_after)


def _baseline(projector: Projector, now: Projection, most: float | None) -> dict[str, Any] | None:
    if now.baseline is None:
        return None
    tokens = _per_cycle(now.baseline)
    cycle = _ends(now.baseline.cycle_before)
    if tokens is None or cycle is None:
        return None

    def at(us: float) -> list[float] | None:
        arm = projector.project(Change(allreduce_us=us)).baseline
        return None if arm is None else _ends(arm.cycle_after)

    return {
        "tokens_per_cycle": tokens,
        "throughput": now.baseline.throughput_before.value,
        "cycle": [cycle[0]] * 3,
        "knots": None if most is None else _knots(at, 0.0, most),
    }
