"""Whether speculation pays: cycle inflation, break-even accept length, and the distance to it.

With E tokens gained per request and cycle, a cycle of T and a baseline step of B at the same load, speculation
multiplies throughput by E B / T. So the break-even accept length is the cycle inflation T / B, and no other figure is
needed for the verdict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from profkit.analysis import RunAnalysis
from profkit.collectives.cost import nccl_model
from profkit.quantity import Quantity
from profkit.speculation import arm as arms
from profkit.speculation.arm import Arm
from profkit.speculation.roofline import forward_floor
from profkit.words import TARGET_FORWARD_PHASES


@dataclass(frozen=True, slots=True)
class LoadRow:
    """Both arms at one number of running requests per DP rank."""

    running_req: int
    cycle: Quantity
    baseline_step: Quantity
    inflation: Quantity
    accept_len: Quantity
    speedup: Quantity


@dataclass(frozen=True, slots=True)
class Economics:
    """The economics of one speculative run against a baseline; every figure a quantity, unknown where an input is
    missing.

    The all-reduce figures count calls of the target's forward only; parity holds everything else and today's baseline
    fixed.
    """

    accept_len: Quantity
    cycle: Quantity
    baseline_step: Quantity
    inflation: Quantity
    break_even_accept_len: Quantity
    speedup: Quantity
    throughput: Quantity
    baseline_throughput: Quantity
    parity_cycle: Quantity
    parity_allreduce_per_call: Quantity
    allreduce_per_call: Quantity
    allreduce_calls_per_cycle: Quantity
    allreduce_share: Quantity
    nccl_model_per_call: Quantity
    missing_ms: Quantity
    missing_tokens: Quantity
    missing_us_per_call: Quantity
    baseline_allreduce_per_call: Quantity
    baseline_allreduce_bound: Quantity
    verify_compute: Quantity
    verify_floor: Quantity
    verify_rows: Quantity
    trace_over_log: Quantity
    candidate: Arm
    baseline: Arm | None
    by_load: tuple[LoadRow, ...]

    def to_json(self) -> dict[str, object]:
        """The ``economics`` object of plans."""
        skipped = {"candidate", "baseline", "by_load"}
        figures: dict[str, object] = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name not in skipped
        }
        return figures | {"by_load": list(self.by_load)}


def _ratio(top: Quantity, bottom: Quantity, unit: str, formula: str) -> Quantity:
    for quantity in (top, bottom):
        if quantity.value is None:
            return Quantity.unknown(unit, quantity.source)
    if not bottom.value or top.value is None:
        return Quantity.unknown(unit, f"{formula}: the denominator is 0")
    return Quantity(top.value / bottom.value, unit, "derived", formula)


def _product(first: Quantity, second: Quantity, unit: str, formula: str) -> Quantity:
    if first.value is None or second.value is None:
        return Quantity.unknown(unit, first.source if first.value is None else second.source)
    return Quantity(first.value * second.value, unit, "derived", formula)


def _difference(first: Quantity, second: Quantity, unit: str, formula: str) -> Quantity:
    if first.value is None or second.value is None:
        return Quantity.unknown(unit, first.source if first.value is None else second.source)
    return Quantity(first.value - second.value, unit, "derived", formula)


def _with_error(value: Quantity, *errors: float) -> Quantity:
    """The 95 % interval of a ratio whose parts have these relative errors, taken as independent."""
    half = math.sqrt(sum(error**2 for error in errors))
    if value.value is None or not half:
        return value
    low, high = value.value * (1 - half), value.value * (1 + half)
    return replace(value, low=low, high=high, range="ci95")


def inflation(cycle_ms: float, baseline_step_ms: float) -> float:
    """Cycle wall over the baseline's step at the same load; equals the break-even accept length."""
    if cycle_ms <= 0 or baseline_step_ms <= 0:
        raise ValueError("times are positive")
    return cycle_ms / baseline_step_ms


def speedup(accept_len: float, inflated: float) -> float:
    """Throughput with speculation over without: E / I."""
    return accept_len / inflated


def parity_allreduce_us(cycle_ms: float, parity_cycle_ms: float, allreduce_ms: float, calls: float) -> float:
    """What one all-reduce may cost for parity, all else equal: (A - (T - E B)) / calls, in microseconds.

    Negative when even a free all-reduce is not enough.
    """
    return (allreduce_ms - (cycle_ms - parity_cycle_ms)) / calls * 1e3


def verified_rows(analysis: RunAnalysis, running_req: int | None) -> Quantity:
    """Rows of one target forward: running requests x draft tokens (1 without speculation)."""
    server = analysis.server()
    if running_req is None:
        running_req = (
            analysis.attribution.cycle.batch_size if analysis.attribution and analysis.attribution.cycle else None
        )
    speculative = server.speculative if server else None
    tokens = analysis.facts.integer("speculative.num_draft_tokens")
    if speculative is None and tokens is None:
        return Quantity.unknown("rows", "the log does not show the server's arguments")
    if running_req is None:
        return Quantity.unknown("rows", "the number of running requests is not known")
    if speculative is False:
        return Quantity(float(running_req), "rows", "derived", "running requests, no speculation")
    if tokens is None:
        return Quantity.unknown("rows", "the number of draft tokens is not stated")
    return Quantity(float(running_req * tokens), "rows", "derived", f"{running_req} running x {tokens} draft tokens")


def _forward_part(analysis: RunAnalysis, arm: Arm, activity: str) -> Quantity:
    """Time of an activity in the target's forward per cycle, in ms: the trace's share of the log's cycle (rule 9)."""
    cycles = arms.traced(analysis, arm.running_req)
    if cycles is None:
        return Quantity.unknown("ms", f"{analysis.name}: {arms.why_untraced(analysis, arm.running_req)}")
    parts = [
        value
        for phase, row in cycles.parts_us.items()
        if phase in TARGET_FORWARD_PHASES
        for name, value in row.items()
        if name == activity and value is not None
    ]
    if not parts:
        return Quantity.unknown("ms", f"{analysis.name}: the target's forward was not identified in the trace")
    share = sum(parts) / cycles.wall_us.mean
    if arm.cycle.value is not None:
        text = f"{share:.1%} of the traced cycle x the log's {arm.cycle.value:.2f} ms"
        return Quantity(share * arm.cycle.value, "ms", "derived", text)
    return Quantity(sum(parts) / 1e3, "ms", "measured", f"{analysis.name}: trace (profiled)")


def _calls(analysis: RunAnalysis) -> Quantity:
    found = arms.target_allreduce(analysis)
    calls = sum(c.calls for c in found)
    if not calls:
        return Quantity.unknown("calls", f"{analysis.name}: no all-reduce of the target's forward in a trace")
    names = ", ".join(sorted({c.implementation for c in found}))
    return Quantity(calls, "calls", "measured", f"{analysis.name}: trace, {names}")


def _per_call(total_ms: Quantity, calls: Quantity, what: str) -> Quantity:
    if total_ms.value is None or not calls.value:
        return Quantity.unknown("us", total_ms.source if total_ms.value is None else calls.source)
    return Quantity(
        total_ms.value / calls.value * 1e3, "us", "derived", f"{what}: {total_ms.source}, / {calls.value:g} calls"
    )


def _baseline_bound(step: Quantity, calls: Quantity, baseline: RunAnalysis | None, arm: Arm | None) -> Quantity:
    """Most that one all-reduce of the baseline can cost: (step - compute floor) / calls; zero compute bounds it for
    sure."""
    if step.value is None or not calls.value:
        return Quantity.unknown("us", step.source if step.value is None else calls.source)
    loose = step.value / calls.value * 1e3
    running = arm.running_req if arm is not None else None
    floor = forward_floor(baseline.facts, running, _kv_tokens(arm)) if baseline is not None and running else None
    if floor is None or floor.value is None:
        text = "baseline step / calls, as if nothing else took time"
        return Quantity(loose, "us", "modelled", text, 0.0, loose, "model")
    tight = max(step.value - floor.value, 0.0) / calls.value * 1e3
    text = f"(baseline step - compute floor {floor.value:.2f} ms) / calls; the range ends where compute is free"
    return Quantity(tight, "us", "modelled", text, min(tight, loose), loose, "model")


def _by_load(candidate: RunAnalysis, baseline: RunAnalysis) -> tuple[LoadRow, ...]:
    found = []
    for row in arms.rows(candidate):
        match, why = arms.matching(baseline, row)
        spec, base = arms.make_arm(candidate, row), arms.make_arm(baseline, match, why)
        inflated = _ratio(spec.cycle, base.cycle, "ratio", "cycle / baseline step")
        gain = _ratio(spec.accept_len, inflated, "ratio", "accept length / inflation")
        found.append(LoadRow(row.running_req, spec.cycle, base.cycle, inflated, spec.accept_len, gain))
    return tuple(found)


def _even_source(inflated: Quantity) -> str:
    return inflated.source if inflated.value is None else "equals the cycle inflation"


def _kv_tokens(arm: Arm | None) -> float | None:
    """Cached tokens of all running requests."""
    context = arm.row.context_tokens if arm is not None and arm.row is not None else None
    return None if context is None or arm is None or arm.running_req is None else context * arm.running_req


def economics(candidate: RunAnalysis, baseline: RunAnalysis | None) -> Economics:
    """The economics of ``candidate`` at its commonest load, against ``baseline`` at the same load.

    Cycle times and accept lengths come from the logs, shares from the traces; without a log the traced cycles stand
    in, and the accept length is unknown.
    """
    row = arms.commonest(candidate)
    spec = arms.make_arm(candidate, row)
    base: Arm | None = None
    if baseline is not None:
        match, why = arms.matching(baseline, row) if row is not None else (None, "the candidate has no server log")
        base = arms.make_arm(baseline, match, why)
    no_baseline = "no baseline run was given"
    cycle = spec.cycle if spec.cycle.value is not None else spec.trace_cycle
    step = Quantity.unknown("ms", no_baseline)
    if base is not None:
        traced_only = spec.cycle.value is None and base.cycle.value is None
        step = base.trace_cycle if traced_only else base.cycle
    errors = (arms.cycle_error(spec), arms.cycle_error(base)) if base is not None else ()
    inflated = _with_error(_ratio(cycle, step, "ratio", "cycle / baseline step at the same load"), *errors)
    # Accept length and cycle of one line vary together, so that the speed-up is as sure as the throughputs.
    speeds = (arms.throughput_error(spec), arms.throughput_error(base)) if base is not None else ()
    parity = _product(spec.accept_len, step, "ms", "accept length x baseline step")
    calls = _calls(candidate)
    allreduce = _forward_part(candidate, spec, "allreduce")
    per_call = _per_call(allreduce, calls, "all-reduce of the target's forward")
    missing = _difference(cycle, parity, "ms", "cycle - accept length x baseline step")
    parity_call = Quantity.unknown("us", missing.source if missing.value is None else allreduce.source)
    if None not in (cycle.value, parity.value, allreduce.value) and calls.value:
        assert cycle.value is not None
        assert parity.value is not None
        assert allreduce.value is not None
        value = parity_allreduce_us(cycle.value, parity.value, allreduce.value, calls.value)
        text = "(all-reduce - (cycle - parity cycle)) / calls, all else and today's baseline fixed"
        parity_call = Quantity(
            value, "us", "derived", text + ("; below 0: free would not be enough" if value < 0 else "")
        )
    base_calls = _calls(baseline) if baseline is not None else Quantity.unknown("calls", no_baseline)
    base_allreduce = (
        _forward_part(baseline, base, "allreduce")
        if baseline is not None and base is not None
        else Quantity.unknown("ms", no_baseline)
    )
    bound_calls = base_calls if base_calls.value else calls
    facts = candidate.facts
    rows = verified_rows(candidate, spec.running_req)
    ranks = facts.integer("parallel.tp")
    return Economics(
        accept_len=spec.accept_len,
        cycle=cycle,
        baseline_step=step,
        inflation=inflated,
        break_even_accept_len=replace(inflated, unit="tokens", source=_even_source(inflated)),
        speedup=_with_error(_ratio(spec.accept_len, inflated, "ratio", "accept length / cycle inflation"), *speeds),
        throughput=spec.throughput,
        baseline_throughput=base.throughput if base is not None else Quantity.unknown("tok/s", no_baseline),
        parity_cycle=parity,
        parity_allreduce_per_call=parity_call,
        allreduce_per_call=per_call,
        allreduce_calls_per_cycle=calls,
        allreduce_share=_ratio(allreduce, cycle, "ratio", "all-reduce of the target's forward / cycle"),
        nccl_model_per_call=Quantity.unknown("us", "the traces were recorded without a GPU, so no call is NCCL's")
        if candidate.attribution is not None and candidate.attribution.without_gpu
        else nccl_model(ranks, facts.text("link.kind"), facts.text("nccl.version")),
        missing_ms=missing,
        missing_tokens=_difference(inflated, spec.accept_len, "tokens", "break-even - accept length"),
        missing_us_per_call=_difference(per_call, parity_call, "us", "all-reduce per call - its parity value"),
        baseline_allreduce_per_call=_per_call(base_allreduce, base_calls, "all-reduce of the baseline's forward"),
        baseline_allreduce_bound=_baseline_bound(step, bound_calls, baseline, base),
        verify_compute=_forward_part(candidate, spec, "compute"),
        verify_floor=forward_floor(facts, int(rows.value), _kv_tokens(spec))
        if rows.value
        else Quantity.unknown("ms", rows.source),
        verify_rows=rows,
        trace_over_log=spec.trace_over_log,
        candidate=spec,
        baseline=base,
        by_load=_by_load(candidate, baseline) if baseline is not None else (),
    )
