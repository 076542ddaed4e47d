"""What a lever would bring, on both arms: the measured cycles replayed with its effect, as a range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from profkit.collectives.cost import reference_curves
from profkit.planning.calls import idle_share, mean_wait_us, message_bytes, transfer_us
from profkit.planning.levers import Lever
from profkit.planning.situation import Situation
from profkit.projection import Change, Projection, Projector
from profkit.projection.result import bounds
from profkit.quantity import Quantity
from profkit.speculation import arm as arms

NO_BASELINE = "no baseline run was given"
# Rows that are worth a try below today's number: the cheapest ones, where a chain's gain is decided.
FEWEST_ROWS, MOST_ROWS = 2, 5


@dataclass(frozen=True, slots=True)
class Gain:
    """A lever's forecast. Throughput in tok/s per DP rank, cycle in ms; ``relative`` is the candidate's change.

    ``rows`` is the number of verified rows that is best, ``sweep`` the projection of each that was tried.
    """

    candidate_throughput: Quantity
    baseline_throughput: Quantity
    cycle: Quantity
    accept_len: Quantity
    break_even_accept_len: Quantity
    relative: float | None = None
    pays: bool | None = None
    rows: int | None = None
    sweep: tuple[tuple[int, Projection], ...] = ()
    assumptions: tuple[str, ...] = ()


_Three: TypeAlias = tuple[Change | None, Change | None, Change | None]


@dataclass(frozen=True, slots=True)
class _Cases:
    """One change per case and arm: least favourable, expected, most favourable; ``None`` leaves things as measured."""

    candidate: _Three
    baseline: _Three
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Arms:
    """Both arms after one change."""

    throughput: Quantity
    cycle: Quantity
    accept_len: Quantity
    baseline_throughput: Quantity
    baseline_step: Quantity
    notes: tuple[str, ...]


def unknown_gain(why: str) -> Gain:
    """No forecast, and why."""
    return Gain(
        Quantity.unknown("tok/s", why),
        Quantity.unknown("tok/s", why),
        Quantity.unknown("ms", why),
        Quantity.unknown("tokens", why),
        Quantity.unknown("tokens", why),
    )


def _spread(cases: Sequence[Quantity], source: str) -> Quantity:
    """The expected case with the extremes of all three; unknown when one is."""
    for case in cases:
        if case.value is None:
            return Quantity.unknown(case.unit, case.source)
    ends = [end for case in cases for end in bounds(case)]
    return Quantity(cases[1].value, cases[1].unit, "modelled", source, min(ends), max(ends), "model")


def _ratio(tops: Sequence[Quantity], bottoms: Sequence[Quantity]) -> Quantity:
    """Cycle over baseline step, case by case: one cause moves both arms, so the extremes of one do not meet those of
    the other."""
    cases = []
    for top, bottom in zip(tops, bottoms, strict=True):
        if top.value is None or not bottom.value:
            return Quantity.unknown("tokens", top.source if top.value is None else bottom.source)
        (low, high), (least, most) = bounds(top), bounds(bottom)
        cases.append(Quantity(top.value / bottom.value, "tokens", "modelled", "", low / most, high / least, "model"))
    return _spread(cases, "cycle / baseline step, both after the change, case by case")


def _relative(after: Quantity, before: Quantity) -> float | None:
    return None if after.value is None or not before.value else after.value / before.value - 1.0


def _pays(accept: Quantity, even: Quantity) -> bool | None:
    if accept.value is None or even.value is None:
        return None
    (least, most), (low, high) = bounds(accept), bounds(even)
    return True if least > high else False if most < low else None


@dataclass(slots=True)
class Forecaster:
    """Forecasts levers for one situation; the replayed cycles are prepared once."""

    at: Situation
    _projector: Projector = field(init=False)
    _known: dict[str, Projection] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._projector = Projector(self.at.candidate, self.at.baseline)

    def gain(self, lever: Lever) -> Gain:
        """The forecast of a lever; unknown with the reason where nobody measured or an input is missing."""
        match lever.effect.model:
            case "none":
                return unknown_gain(f"not known: {lever.effect.why}")
            case "baseline":
                return self._as_baseline()
            case "rows":
                return self._rows()
            case "reported":
                return self._reported(lever)
            case "idle":
                return self._idle(lever.effect.removed or (0.0, 0.5, 1.0), lever.effect.causes)
            case _:
                cases = self._cases(lever)
                return unknown_gain(cases) if isinstance(cases, str) else self._projected(cases)

    def project(self, change: Change) -> Projection:
        """Both arms after a change; each is replayed once."""
        key = repr(change)
        if key not in self._known:
            self._known[key] = self._projector.project(change)
        return self._known[key]

    def _as_baseline(self) -> Gain:
        found = self.at.economics
        base = found.baseline_throughput
        return Gain(
            base, base, found.baseline_step, Quantity(1.0, "tokens", "derived", "no speculation"),
            found.break_even_accept_len, _relative(base, found.throughput), None,
            assumptions=("throughput as measured in the baseline run at the same load",),
        )  # fmt: skip

    def _rows(self) -> Gain:
        drafts = self.at.facts.integer("speculative.num_draft_tokens")
        if drafts is None:
            return unknown_gain("the number of draft tokens is not stated")
        if drafts <= FEWEST_ROWS:
            return unknown_gain("two rows are verified already: the bonus token and one draft")
        tried = [(rows, self.project(Change(draft_tokens=rows))) for rows in range(FEWEST_ROWS, min(drafts, MOST_ROWS))]
        known = [(rows, p) for rows, p in tried if p.candidate.throughput_after.value is not None]
        if not known:
            return unknown_gain(tried[0][1].candidate.throughput_after.source)
        rows, best = max(known, key=lambda pair: pair[1].candidate.throughput_after.require())
        after = best.candidate.throughput_after
        base = best.baseline.throughput_after if best.baseline else Quantity.unknown("tok/s", NO_BASELINE)
        return Gain(
            after, base, best.candidate.cycle_after, best.accept_len_after, best.break_even_accept_len_after,
            best.candidate.gain, best.pays, rows, tuple(tried), best.assumptions,
        )  # fmt: skip

    def _reported(self, lever: Lever) -> Gain:
        relative = lever.effect.relative
        found = self.at.economics
        if relative is None or found.throughput.value is None:
            return unknown_gain(found.throughput.source)
        low, middle, high = (1.0 + share for share in relative)
        where = lever.report[0]
        source = f"{lever.effect.why} ({where.hardware}, {where.date}, {where.address})"

        def scaled(before: Quantity) -> Quantity:
            if before.value is None:
                return before
            return Quantity(
                before.value * middle, before.unit, "reported", source, before.value * low, before.value * high, "model"
            )

        cycle = found.cycle
        after = (
            Quantity(cycle.value / middle, "ms", "reported", source, cycle.value / high, cycle.value / low, "model")
            if cycle.value is not None
            else cycle
        )
        return Gain(
            scaled(found.throughput), scaled(found.baseline_throughput), after, found.accept_len,
            found.break_even_accept_len, middle - 1.0, None, assumptions=("the reported change carries over",),
        )  # fmt: skip

    def _projected(self, cases: _Cases) -> Gain:
        mine, other, cycles, steps, lengths = [], [], [], [], []
        notes: list[str] = list(cases.notes)
        for candidate, baseline in zip(cases.candidate, cases.baseline, strict=True):
            own = self._arms(candidate)
            base = own if baseline == candidate else self._arms(baseline)
            mine.append(own.throughput)
            cycles.append(own.cycle)
            lengths.append(own.accept_len)
            other.append(base.baseline_throughput)
            steps.append(base.baseline_step)
            notes += [note for note in own.notes if note not in notes]
        after, base_after = (_spread(x, "replay of the measured cycles, three cases") for x in (mine, other))
        cycle = _spread(cycles, "replay of the measured cycles, three cases")
        accept = _spread(lengths, "the cases of the lever") if lengths[0] != lengths[2] else lengths[1]
        even = _ratio(cycles, steps)
        return Gain(
            after, base_after, cycle, accept, even, _relative(after, self.at.economics.throughput),
            _pays(accept, even), assumptions=tuple(notes),
        )  # fmt: skip

    def _arms(self, change: Change | None) -> _Arms:
        """Both arms after a change; as measured, without any range of a projection, where nothing changes."""
        found = self.at.economics
        if change is None:
            step = found.baseline_step
            return _Arms(found.throughput, found.cycle, found.accept_len, found.baseline_throughput, step, ())
        after = self.project(change)
        base = after.baseline
        return _Arms(
            after.candidate.throughput_after, after.candidate.cycle_after, after.accept_len_after,
            base.throughput_after if base else Quantity.unknown("tok/s", NO_BASELINE),
            base.cycle_after if base else Quantity.unknown("ms", NO_BASELINE),
            after.assumptions,
        )  # fmt: skip

    def _cases(self, lever: Lever) -> _Cases | str:
        """The changes of a lever, or why they cannot be stated."""
        effect = lever.effect
        match effect.model:
            case "curves":
                return self._curves(effect.curves, effect.slack, effect.why)
            case "nccl_model":
                return self._nccl_model()
            case "wait":
                return self._waits(effect.removed)
            case "compute":
                factor = effect.factor or (1.0, 1.0, 1.0)
                both = tuple(Change(compute_scale=dict.fromkeys(effect.phases, f)) for f in factor)
                return _Cases(_three(both), _three(both), (effect.why,))
            case "to_floor":
                return self._to_floor(effect.why)
            case "accept_len":
                return self._longer(effect.most or 1.0, effect.why)
            case _:
                return "no model"

    def _idle(self, removed: tuple[float, float, float], causes: Sequence[str]) -> Gain:
        """Nothing runs while the GPU is idle, so idle time that goes shortens the cycle by as much, on each arm."""
        found = self.at.economics
        share = idle_share(self.at.candidate, causes)
        if share is None:
            return unknown_gain(
                f"{arms.why_untraced(self.at.candidate, found.candidate.running_req)}: the idle time is not known"
            )
        source = f"cycle less none, {removed[1]:.0%} or {removed[2]:.0%} of the idle time that it can remove"
        other = idle_share(self.at.baseline, causes) if self.at.baseline is not None else None
        return Gain(
            _faster(found.throughput, share, removed, source),
            _faster(found.baseline_throughput, other, removed, source),
            _shorter(found.cycle, share, removed, source),
            found.accept_len,
            _ratio(
                [_shorter(found.cycle, share, (r, r, r), source) for r in removed],
                [_shorter(found.baseline_step, other, (r, r, r), source) for r in removed],
            ),
            1.0 / (1.0 - removed[1] * share) - 1.0,
            assumptions=(f"{share:.1%} of the cycle is idle time with a cause that it can remove",),
        )

    def _waits(self, removed: tuple[float, float, float] | None) -> _Cases | str:
        cases: list[_Three] = []
        for run in (self.at.candidate, self.at.baseline):
            mean = mean_wait_us(run) if run is not None else None
            if mean is None and run is self.at.candidate:
                return "waiting needs the traces of all ranks"
            shares = removed or (0.0, 0.5, 1.0)
            cases.append(_three([Change(wait_us=mean * (1.0 - s)) if s and mean is not None else None for s in shares]))
        return _Cases(cases[0], cases[1], ("waiting for late ranks goes by none, half, all of it",))

    def _longer(self, most: float, why: str) -> _Cases | str:
        now = self.at.economics.accept_len.value
        rows = self.at.facts.number("speculative.num_draft_tokens")
        if now is None:
            return self.at.economics.accept_len.source
        limit = min(most, rows) if rows else most
        if now >= limit:
            return f"the accept length is {now:.2f} already"
        lengths = (None, Change(accept_len=(now + limit) / 2), Change(accept_len=limit))
        return _Cases(lengths, (None, None, None), (why,))

    def _to_floor(self, why: str) -> _Cases | str:
        over = self.at.measured["compute_over_floor"]
        if not over.value:
            return over.source
        share = min(1.0 / over.value, 1.0)
        factors = (1.0, 1.0 - (1.0 - share) / 3.0, share)
        both = tuple(Change(compute_scale={"verify": f, "decode": f}) for f in factors)
        return _Cases(_three(both), _three(both), (why,))

    def _curves(self, names: Sequence[str], slack: float, why: str) -> _Cases | str:
        known = reference_curves()
        cases: list[_Three] = []
        for run in (self.at.candidate, self.at.baseline):
            if run is None:
                cases.append((None, None, None))
                continue
            size, today = message_bytes(run), transfer_us(run)
            if size is None:
                return f"{run.name}: the message size of its all-reduces is not known"
            best = min(known[name].at(size) for name in names)
            cases.append(_three([_cheaper(best * f, today) for f in (slack, math.sqrt(slack), 1.0)]))
        return _Cases(cases[0], cases[1], (why, *(f"curve: {known[name].source}" for name in names)))

    def _nccl_model(self) -> _Cases | str:
        model = self.at.economics.nccl_model_per_call
        if model.value is None or model.high is None or model.low is None:
            return model.source
        cases = []
        for run in (self.at.candidate, self.at.baseline):
            today = transfer_us(run) if run is not None else None
            expected = model.high
            if today is not None and today <= model.high:
                expected = (today + model.low) / 2
            cases.append((None, _cheaper(expected, today), _cheaper(model.low, today)))
        note = (
            "range: from nothing found to NCCL's fastest protocol; expected: its slowest protocol, or half of the way "
            "to the fastest where calls are below that already; the model has no size term, so large messages cost more"
        )
        return _Cases(cases[0], cases[1], (note,))


def _three(cases: Sequence[Change | None]) -> _Three:
    least, expected, most = cases
    return least, expected, most


def _cheaper(wanted_us: float, today_us: float | None) -> Change | None:
    """An all-reduce at ``wanted_us``, but never dearer than today."""
    return None if today_us is not None and wanted_us >= today_us else Change(allreduce_us=wanted_us)


def _shorter(before: Quantity, share: float | None, removed: tuple[float, float, float], source: str) -> Quantity:
    if before.value is None or share is None:
        return before if before.value is None else Quantity.unknown(before.unit, "no traced cycle of this arm")
    long, middle, short = (before.value * (1.0 - r * share) for r in removed)
    return Quantity(middle, before.unit, "modelled", source, short, long, "model")


def _faster(before: Quantity, share: float | None, removed: tuple[float, float, float], source: str) -> Quantity:
    if before.value is None or share is None:
        return before if before.value is None else Quantity.unknown(before.unit, "no traced cycle of this arm")
    low, middle, high = (before.value / (1.0 - r * share) for r in removed)
    return Quantity(middle, before.unit, "modelled", source, low, high, "model")
