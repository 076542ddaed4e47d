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
MORE_DRAFT_TOKENS: Final = 2

Point = tuple[float, list[float]]


def _ends(quantity: Quantity) -> list[float] | None:
    """Value, low and high of a modelled figure; the value three times where it has no modelled range."""
    if quantity.value is None:
        return None
    if quantity.range != "model" or quantity.low is None or quantity.high is None:
        return [quantity.value] * 3
    return [quantity.value, quantity.low, quantity.high]


def _knots(at: Callable[[float], list[float] | None], begin: float, most: float) -> list[list[float]] | None:
    """[us, value, low, high] such that straight lines between them follow ``at``."""
    first, last = at(begin), at(most)
    if first is None or last is None:
        return None
    found: list[list[float]] = [[begin, *first]]

    def fill(low: Point, high: Point, depth: int) -> None:
        middle = (low[0] + high[0]) / 2
        value = at(middle)
        if value is None:
            return
        straight = [(a + b) / 2 for a, b in zip(low[1], high[1], strict=True)]
        # Against the least of the interval: an error counts where the cycle is short.
        least = min(low[1])
        exact = all(abs(v - s) <= TOLERANCE * least for v, s in zip(value, straight, strict=True))
        if exact or depth >= _DEEPEST:
            if not exact:
                found.append([middle, *value])
            return
        fill(low, (middle, value), depth + 1)
        found.append([middle, *value])
        fill((middle, value), high, depth + 1)

    fill((begin, first), (most, last), 0)
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
    numbers of verified tokens. ``running`` is the number of running requests, ``tokens_per_cycle`` that times the
    accept length. ``now`` is the throughput [value, low, high] without a change; ``scatter`` corrects low and high
    after a change of the cycle alone, where accept length and cycle vary together.
    """
    projector = Projector(candidate, baseline)
    now = projector.project(Change())
    measured = _measured_us(candidate)
    per_cycle = _per_cycle(now.candidate)
    if per_cycle is None or now.accept_len_before.value is None or candidate.attribution is None:
        return None
    most = None if measured is None else max(50.0, 1.5 * measured)
    most = None if most is None else float(round(most / 10) * 10)
    alone = Projector(
        candidate, None, prepared=projector
    )  # what the baseline does is asked for once, not for every number of tokens
    old = candidate.facts.integer("speculative.num_draft_tokens")
    rows: dict[str, Any] = {}
    choices = _choices(old)
    if most is not None:
        alone.prepare([Change(allreduce_us=us, draft_tokens=n) for n in choices for us in (0.0, most / 2, most)])
    for tokens in choices:
        # The costs of rows are fitted over both runs, so the baseline is needed where only the rows change.
        own = tokens is None or tokens == old
        found = now if own else projector.project(Change(draft_tokens=tokens))
        rows[str(tokens or 0)] = {
            "accept_len": _ends(found.accept_len_after),
            "cycle": _ends(found.candidate.cycle_after),
            "knots": None if most is None else _knots(_candidate_at(alone, tokens), 0.0, most),
        }
    probe = None if most is None else projector.project(Change(allreduce_us=most))
    return {
        "running": per_cycle / now.accept_len_before.value,
        "accept_len": now.accept_len_before.value,
        "draft_tokens": old,
        "allreduce_us": measured,
        "most_us": most,
        "by_draft_tokens": rows,
        "throughput": now.candidate.throughput_before.value,
        "now": _ends(now.candidate.throughput_after),
        "scatter": _scatter(probe.candidate if probe else None),
        "baseline": _baseline(now, probe, _baseline_at(baseline, projector), most),
        "assumptions": list(now.assumptions),
    }


def _scatter(arm: ArmProjection | None) -> list[float]:
    """What low and high of the throughput are beyond tokens over cycle, as factors."""
    cycle = _ends(arm.cycle_after) if arm else None
    speed = _ends(arm.throughput_after) if arm else None
    if cycle is None or speed is None:
        return [1.0, 1.0]
    tokens = speed[0] * cycle[0]
    return [speed[1] * cycle[2] / tokens, speed[2] * cycle[1] / tokens]


def _choices(old: int | None) -> list[int | None]:
    return [None] if old is None else list(range(min(2, old), old + MORE_DRAFT_TOKENS + 1))


def _candidate_at(projector: Projector, tokens: int | None) -> Callable[[float], list[float] | None]:
    return lambda us: _ends(
        projector.project(Change(allreduce_us=us, draft_tokens=tokens), parts=False).candidate.cycle_after
    )


def _baseline_at(baseline: RunAnalysis | None, prepared: Projector) -> Callable[[float], list[float] | None]:
    """The baseline's cycle after a change of the all-reduce; projected as a run of its own."""
    if baseline is None:
        return lambda _us: None
    alone = Projector(baseline, None, prepared=prepared)
    return lambda us: _ends(alone.project(Change(allreduce_us=us)).candidate.cycle_after)


def _baseline(
    now: Projection, probe: Projection | None, at: Callable[[float], list[float] | None], most: float | None
) -> dict[str, Any] | None:
    if now.baseline is None:
        return None
    tokens, cycle = _per_cycle(now.baseline), now.baseline.cycle_before.value
    if tokens is None or cycle is None:
        return None
    return {
        "tokens_per_cycle": tokens,
        "throughput": now.baseline.throughput_before.value,
        "now": _ends(now.baseline.throughput_after),
        "scatter": _scatter(probe.baseline if probe else None),
        "cycle": [cycle] * 3,
        "knots": None if most is None else _knots(at, 0.0, most),
    }
