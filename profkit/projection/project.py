"""What if: both arms, before and after a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from profkit.analysis import RunAnalysis
from profkit.errors import UsageError
from profkit.projection.change import Change
from profkit.projection.measured import groups_of
from profkit.projection.measured_arm import MeasuredArm
from profkit.projection.model import Cases, make_cases
from profkit.projection.result import Alone, ArmProjection, Projection, bounds
from profkit.quantity import Quantity
from profkit.speculation import arm as arms
from profkit.speculation.acceptance import at_other_depth, from_first
from profkit.speculation.arm import Arm

EXACT = "everything that the change does not name stays as measured"


def _speculative(run: RunAnalysis) -> bool:
    server = run.server()
    if server is not None and server.speculative is not None:
        return server.speculative
    return run.facts.text("speculative.algorithm") is not None


def _measured(run: RunAnalysis, arm: Arm) -> MeasuredArm | str:
    """The traced cycles at the arm's load, or why there are none."""
    traced = arms.traced(run, arm.running_req)
    if run.attribution is None or traced is None:
        return f"{run.name}: replaying a cycle needs a trace at this load"
    groups = groups_of(run.attribution, traced.batch_size)
    if not any(cycle.wall_ns for group in groups for cycle in group.ranks):
        return f"{run.name}: no whole cycle in the trace"
    ratio = arm.trace_over_log.value
    return MeasuredArm(groups, 1.0 / ratio if ratio else None)


def _replayed(run: RunAnalysis, measured: MeasuredArm | str, change: Change, cases: Cases) -> Quantity:
    """Cycle after over cycle before, with the range of the cases."""
    if isinstance(measured, str):
        return Quantity.unknown("ratio", measured)
    if change.allreduce_curve is not None and not measured.curve_applies:
        return Quantity.unknown("ratio", f"{run.name}: message sizes are not known, so no curve can be read")
    expected, low, high = measured.factors(change, cases)
    source = f"replay of {measured.count} traced cycles of {run.name}"
    return Quantity(expected, "ratio", "modelled", source, low, high, "model", measured.count)


def _scaled(before: Quantity, factor: Quantity, error: float) -> Quantity:
    if before.value is None or factor.value is None or factor.low is None or factor.high is None:
        return Quantity.unknown("ms", before.source if before.value is None else factor.source)
    low, high = before.value * factor.low * (1 - error), before.value * factor.high * (1 + error)
    return Quantity(before.value * factor.value, "ms", "modelled", factor.source, low, high, "model")


def _throughput(arm: Arm, cycle: Quantity, accept: Quantity) -> Quantity:
    """Running requests x accept length / cycle; the range pairs the extremes."""
    if cycle.value is None or accept.value is None or arm.running_req is None:
        why = next((q.source for q in (cycle, accept) if q.value is None), "the load is not known")
        return Quantity.unknown("tok/s", why)
    per_ms = 1000.0 * arm.running_req
    (fast, slow), (few, many) = bounds(cycle), bounds(accept)
    error = 0.0
    if accept == arm.accept_len and arm.row is not None:
        error = arms.sampling_error(arm.row, arm.row.gen_throughput_tok_s, arm.throughput.value)
        # The throughput's own scatter is what counts: accept length and cycle vary together.
        own = arms.cycle_error(arm)
        fast, slow = (fast, slow) if cycle == arm.cycle else (fast / (1 - own), slow / (1 + own))
    text = f"1000 x {arm.running_req} running x accept length / cycle"
    low, high = per_ms * few / slow * (1 - error), per_ms * many / fast * (1 + error)
    return Quantity(per_ms * accept.value / cycle.value, "tok/s", "modelled", text, low, high, "model")


def _accept_len(run: RunAnalysis, arm: Arm, change: Change) -> Quantity:
    if change.accept_len is not None:
        return Quantity(change.accept_len, "tokens", "modelled", "given")
    old = run.facts.integer("speculative.num_draft_tokens")
    rows = change.draft_tokens or old
    if change.acceptance:
        if rows is None:
            return Quantity.unknown("tokens", "the run's own number of draft tokens is not stated")
        return from_first(change.acceptance, rows - 1)
    if change.draft_tokens is None or arm.accept_len.value is None:
        return arm.accept_len
    if old is None:
        return Quantity.unknown("tokens", "the run's own number of draft tokens is not stated")
    if change.draft_tokens == old:
        return arm.accept_len
    topk = run.facts.integer("speculative.topk")
    if topk not in (None, 1):
        low, high = 1.0, min(arm.accept_len.value, float(change.draft_tokens))
        text = "fewer nodes of a tree: which ones is not known"
        if change.draft_tokens > old:
            return Quantity.unknown("tokens", "a larger tree accepts an unknown number of tokens more")
        return Quantity((low + high) / 2, "tokens", "modelled", text, low, high, "model")
    return at_other_depth(arm.accept_len.value, old - 1, change.draft_tokens - 1)


def _even(candidate: Quantity, baseline: Quantity | None, why: str) -> Quantity:
    if baseline is None:
        return Quantity.unknown("tokens", why)
    for quantity in (candidate, baseline):
        if quantity.value is None:
            return Quantity.unknown("tokens", quantity.source)
    assert candidate.value is not None
    assert baseline.value is not None
    value = candidate.value / baseline.value

    (low, high), (base_low, base_high) = bounds(candidate), bounds(baseline)
    if low == high and base_low == base_high:
        return Quantity(value, "tokens", "derived", "cycle / baseline step")
    least, most = low / base_high, high / base_low
    return Quantity(value, "tokens", "modelled", "cycle / baseline step, both after the change", least, most, "model")


def _projected(
    run: RunAnalysis, arm: Arm, measured: MeasuredArm | str, change: Change, accept: Quantity, cases: Cases
) -> ArmProjection:
    # Without a log the traced cycle stands in, and only the cycle can be projected.
    before = arm.cycle if arm.cycle.value is not None else arm.trace_cycle
    after = before
    if change.touches_cycle:
        error = arms.cycle_error(arm)
        after = _scaled(before, _replayed(run, measured, change, cases), error)
    return ArmProjection(arm.throughput, _throughput(arm, after, accept), before, after)


def _explained(measured: MeasuredArm | str, change: Change) -> tuple[str, ...]:
    return () if isinstance(measured, str) or not change.touches_cycle else measured.explain(change)


def _possible(change: Change, draft_tokens: int | None) -> bool:
    """An accept length can need the draft tokens that come with it: such a part cannot be on its own."""
    try:
        change.check(draft_tokens)
    except UsageError:
        return False
    return True


def _of_baseline(change: Change) -> Change:
    """What of a change the baseline sees: what belongs to speculation leaves it alone."""
    return replace(change, accept_len=None, draft_tokens=None)


class Projector:
    """Projects changes of one pair of runs; the measured cycles are prepared once."""

    def __init__(
        self, candidate: RunAnalysis, baseline: RunAnalysis | None, *, prepared: Projector | None = None
    ) -> None:
        """``prepared`` projects some of the same runs; what it has prepared and replayed is used again."""
        self.candidate, self.baseline = candidate, baseline
        self._prepared: dict[tuple[int, int | None, float | None], tuple[RunAnalysis, MeasuredArm | str]] = (
            {} if prepared is None else prepared._prepared
        )
        row = arms.commonest(candidate)
        self._arm = arms.make_arm(candidate, row)
        self._measured = self._measure(candidate, self._arm)
        self._base_arm: Arm | None = None
        self._base_measured: MeasuredArm | str = "no baseline run was given"
        if baseline is not None:
            match, why = arms.matching(baseline, row) if row is not None else (None, "the candidate has no server log")
            self._base_arm = arms.make_arm(baseline, match, why)
            self._base_measured = self._measure(baseline, self._base_arm)

    def _measure(self, run: RunAnalysis, arm: Arm) -> MeasuredArm | str:
        key = (id(run), arm.running_req, arm.trace_over_log.value)
        if key not in self._prepared:
            self._prepared[key] = (run, _measured(run, arm))  # with the run, whose id stays its own so
        return self._prepared[key][1]

    def prepare(self, changes: Sequence[Change]) -> None:
        """Replay several changes at once, which is much faster than one by one when each is projected."""
        touching = [change for change in changes if change.touches_cycle]
        if not isinstance(self._measured, str):
            self._measured.prepare((change, self._cases(change)) for change in touching)
        if self.baseline is not None and not isinstance(self._base_measured, str):
            own = [_of_baseline(change) for change in touching]
            self._base_measured.prepare((c, make_cases(self.baseline, None, c, speculative=False)) for c in own)

    def _cases(self, change: Change) -> Cases:
        speculative = _speculative(self.candidate)
        return make_cases(self.candidate, self.baseline, change, speculative, self._arm.running_req)

    def project(self, change: Change, *, parts: bool = True) -> Projection:
        """Both arms before and after ``change``; see :func:`project`. ``parts``: also each part of it alone."""
        own = self.candidate.facts.integer("speculative.num_draft_tokens")
        change.check(own)
        whole = self._project(change)
        if not parts:
            return whole
        singles = {name: self._project(part) for name, part in change.alone().items() if _possible(part, own)}
        if not singles:
            return whole
        alone = tuple(
            Alone(name, p.candidate.throughput_after, p.baseline.throughput_after if p.baseline else None)
            for name, p in singles.items()
        )
        return replace(whole, alone=alone)

    def _project(self, change: Change) -> Projection:
        cases = self._cases(change)
        accept = _accept_len(self.candidate, self._arm, change)
        after = _projected(self.candidate, self._arm, self._measured, change, accept, cases)
        notes = [EXACT, *cases.assumptions, *_explained(self._measured, change)]
        base = self._base(change, notes)
        if change.allreduce_us is not None or change.allreduce_curve is not None:
            notes.append("late ranks stay as late as measured" if change.wait_us is None else "waits are as given")
        why = "no baseline run was given"
        return Projection(
            change=change,
            candidate=after,
            baseline=base,
            accept_len_before=self._arm.accept_len,
            accept_len_after=accept,
            break_even_accept_len_before=_even(after.cycle_before, base.cycle_before if base else None, why),
            break_even_accept_len_after=_even(after.cycle_after, base.cycle_after if base else None, why),
            assumptions=tuple(notes),
        )

    def _base(self, change: Change, notes: list[str]) -> ArmProjection | None:
        if self.baseline is None or self._base_arm is None:
            return None
        own = _of_baseline(change)
        cases = make_cases(self.baseline, None, own, speculative=False)
        notes += [note for note in cases.assumptions if note not in notes]
        notes += [f"baseline: {note}" for note in _explained(self._base_measured, change)]
        return _projected(self.baseline, self._base_arm, self._base_measured, own, self._base_arm.accept_len, cases)


def project(candidate: RunAnalysis, baseline: RunAnalysis | None, change: Change) -> Projection:
    """Replay the measured cycles of both arms with ``change``.

    The traced cycles give the ratio after / before, which scales the unprofiled cycle of the log. A change of accept
    length or draft tokens touches the candidate only; everything else moves the baseline too. Figures whose inputs
    are missing are unknown.

    Raises:
        UsageError: a change that cannot be, such as an accept length above the draft tokens.
    """
    return Projector(candidate, baseline).project(change)
