"""One arm of a comparison: what a run's log and trace say about one operating point.

Cycle time and accept length come from unprofiled log lines, shares from the trace (profiling costs time and can
change acceptance).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from profkit.analysis import RunAnalysis
from profkit.attribution.result import BatchSummary, CollectiveSummary, CycleSummary
from profkit.quantity import Quantity
from profkit.serving.result import BatchRow, ServerSummary, Spread
from profkit.words import TARGET_FORWARD_PHASES, count

# Both arms are compared at equal running requests per DP rank, and contexts this close.
CONTEXT_TOLERANCE = 0.20
# p90 - p10 of a normal distribution in standard deviations.
P10_TO_P90 = 2.563


@dataclass(frozen=True, slots=True)
class Arm:
    """The figures of one run at one number of running requests per DP rank; unknown ones say why.

    ``cycle`` ms, ``throughput`` tok/s per DP rank, ``accept_len`` tokens per request and cycle, ``row`` the log's row
    behind them. ``trace_cycle`` ms is the traced (profiled) cycle, ``trace_over_log`` its ratio to the log's.
    """

    name: str
    running_req: int | None
    cycle: Quantity
    throughput: Quantity
    accept_len: Quantity
    trace_cycle: Quantity
    trace_over_log: Quantity
    row: BatchRow | None


def _ranged(value: float, spread: Spread, unit: str, n: int, source: str) -> Quantity:
    if spread.p10 is None or spread.p90 is None:
        return Quantity(value, unit, "measured", source, n=n)
    return Quantity(value, unit, "measured", source, spread.p10, spread.p90, "p10_p90", n)


def sampling_error(row: BatchRow, spread: Spread, mean: float | None) -> float:
    """Half width of the 95 % interval of a mean over a row's log lines, relative; from p10 to p90 as of a normal
    distribution. 0 where a single line or no spread leaves it open."""
    if not mean or spread.p10 is None or spread.p90 is None or row.lines < 2:
        return 0.0
    return 1.96 * (spread.p90 - spread.p10) / P10_TO_P90 / math.sqrt(row.lines) / mean


def cycle_error(arm: Arm) -> float:
    """Relative sampling error of an arm's cycle."""
    return 0.0 if arm.row is None else sampling_error(arm.row, arm.row.step_ms, arm.cycle.value)


def throughput_error(arm: Arm) -> float:
    """Relative sampling error of an arm's throughput."""
    return 0.0 if arm.row is None else sampling_error(arm.row, arm.row.gen_throughput_tok_s, arm.throughput.value)


def rows(analysis: RunAnalysis) -> tuple[BatchRow, ...]:
    """Rows of the main server, steady lines only."""
    server = analysis.server()
    return tuple(row for row in server.by_batch if row.lines) if server else ()


def commonest(analysis: RunAnalysis) -> BatchRow | None:
    """The row with the most lines; among equals the smaller batch."""
    return max(rows(analysis), key=lambda row: (row.lines, -row.running_req), default=None)


def other_context(running_req: int, mine: float | None, theirs: float | None) -> str:
    """Why two context lengths (tokens per request) at one load cannot be compared; empty where they can."""
    if mine is None or theirs is None:
        return f"the context length at {count(running_req, 'running request')} is not logged"
    if abs(mine - theirs) > CONTEXT_TOLERANCE * max(mine, theirs):
        return f"contexts differ by more than 20 %: {mine:.0f} and {theirs:.0f} tokens per request"
    return ""


def matching(analysis: RunAnalysis, other: BatchRow) -> tuple[BatchRow | None, str]:
    """The row of ``analysis`` at the same load as ``other``, or ``None`` and why there is none."""
    for row in rows(analysis):
        if row.running_req != other.running_req:
            continue
        why = other_context(row.running_req, row.context_tokens, other.context_tokens)
        return (None, why) if why else (row, "")
    return None, f"{analysis.name} has no steady decode line at {count(other.running_req, 'running request')}"


def _accept_len(row: BatchRow, server: ServerSummary, source: str) -> Quantity:
    if server.speculative is False:
        return Quantity(1.0, "tokens", "derived", "no speculation in the server's arguments")
    mean = row.accept_len.mean
    if mean is None:
        return Quantity.unknown("tokens", f"{source}: no accept length is printed")
    return _ranged(mean, row.accept_len, "tokens", row.lines, f"{source}: sum of tokens over sum of request-steps")


def traced(analysis: RunAnalysis, running_req: int | None) -> BatchSummary | CycleSummary | None:
    """The traced cycles of a batch size, or the commonest when the load is not known or was not traced alone."""
    attribution = analysis.attribution
    if attribution is None or attribution.cycle is None:
        return None
    for batch in attribution.by_batch:
        if batch.batch_size == running_req and running_req is not None:
            return batch
    if running_req is not None and attribution.cycle.batch_size not in (None, running_req):
        return None
    return attribution.cycle


def why_untraced(analysis: RunAnalysis, running_req: int | None) -> str:
    """Why :func:`traced` finds nothing, as a clause: no trace, none that can be used, no cycle, or other loads."""
    attribution = analysis.attribution
    if attribution is None:
        return analysis.untraced or "there is no trace"
    one = len(attribution.inputs) == 1
    these = "the trace" if one else f"the {len(attribution.inputs)} traces"
    if attribution.without_gpu:
        these += ", recorded without a GPU,"
    if attribution.cycle is None:
        return f"{these} show{'s' * one} no complete decode cycle"
    sizes = sorted({b.batch_size for b in attribution.by_batch if b.batch_size is not None})
    shown = ", ".join(map(str, sizes)) or str(attribution.cycle.batch_size)
    load = "another load" if running_req is None else count(running_req, "running request")
    return f"{these} show{'s' * one} batch size {shown}, and most steady lines of the log {load}"


def _trace_cycle(analysis: RunAnalysis, running_req: int | None) -> Quantity:
    cycles = traced(analysis, running_req)
    if cycles is None:
        return Quantity.unknown("ms", f"{analysis.name}: {why_untraced(analysis, running_req)}")
    wall = cycles.wall_us
    count = cycles.count if isinstance(cycles, CycleSummary) else cycles.cycles
    source = f"{analysis.name}: trace, mean of {count} cycles over all ranks"
    return Quantity(wall.mean / 1e3, "ms", "measured", source, wall.p10 / 1e3, wall.p90 / 1e3, "p10_p90", count)


def make_arm(analysis: RunAnalysis, row: BatchRow | None, why_not: str = "") -> Arm:
    """The arm of ``analysis`` at the load of ``row``; with ``None`` the log's figures are unknown, the trace's stay."""
    server = analysis.server()
    if row is None or server is None:
        why = why_not or f"{analysis.name} has no server log with steady decode lines"
        trace_cycle = _trace_cycle(analysis, None)
        unknown = Quantity.unknown
        return Arm(
            analysis.name, None, unknown("ms", why), unknown("tok/s", why), unknown("tokens", why), trace_cycle,
            unknown("ratio", why), None,
        )  # fmt: skip
    source = f"{analysis.name}: {count(row.lines, 'steady decode line')} at {count(row.running_req, 'running request')}"
    accept = _accept_len(row, server, source)
    speed = row.gen_throughput_tok_s.mean
    if speed is None:
        throughput = Quantity.unknown("tok/s", f"{source}: no throughput is printed")
    else:
        throughput = _ranged(speed, row.gen_throughput_tok_s, "tok/s", row.lines, f"{source}: tokens over time")
    if accept.value is None or throughput.value is None or throughput.value <= 0:
        cycle = Quantity.unknown("ms", accept.source if accept.value is None else throughput.source)
    else:
        value = 1000.0 * row.running_req * accept.value / throughput.value
        cycle = _ranged(
            value, row.step_ms, "ms", row.lines, f"{source}: 1000 x running requests x accept length / throughput"
        )
    trace_cycle = _trace_cycle(analysis, row.running_req)
    if cycle.value and trace_cycle.value:
        ratio = Quantity(trace_cycle.value / cycle.value, "ratio", "derived", "traced cycle over the log's")
    else:
        ratio = Quantity.unknown("ratio", cycle.source if cycle.value is None else trace_cycle.source)
    return Arm(analysis.name, row.running_req, cycle, throughput, accept, trace_cycle, ratio, row)


def target_allreduce(analysis: RunAnalysis) -> tuple[CollectiveSummary, ...]:
    """All-reduces of the target's forward (verify, or decode without speculation); none without a counted cycle."""
    if analysis.attribution is None or analysis.attribution.cycle is None:
        return ()
    return tuple(
        c for c in analysis.attribution.collectives if c.kind == "all_reduce" and c.phase in TARGET_FORWARD_PHASES
    )
