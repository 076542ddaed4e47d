"""What one run's trace and facts say about its all-reduces and its idle time, as forecasts need it."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.analysis import RunAnalysis
from profkit.speculation import arm as arms


def idle_share(run: RunAnalysis, causes: Sequence[str]) -> float | None:
    """Share of the cycle that is idle by some causes (all when none is named); ``None`` without a trace."""
    cycle = run.attribution.cycle if run.attribution else None
    if cycle is None:
        return None
    idle = sum(row.get("idle") or 0.0 for row in cycle.parts_us.values()) / cycle.wall_us.mean
    known = dict(cycle.idle_causes_us)
    total = sum(known.values())
    if not causes or not total:
        return min(idle, 0.999)
    return min(idle * sum(known.get(cause, 0.0) for cause in causes) / total, 0.999)


def mean_wait_us(run: RunAnalysis) -> float | None:
    """Mean wait per all-reduce of the target's forward in us; ``None`` unless all ranks were compared."""
    waits = [(c.measured_wait_us, c.calls) for c in arms.target_allreduce(run) if c.measured_wait_us is not None]
    return sum(w * n for w, n in waits) / sum(n for _, n in waits) if waits else None


def transfer_us(run: RunAnalysis) -> float | None:
    """Mean transfer of those calls in us: what is known of it at most, where ranks are missing."""
    calls = arms.target_allreduce(run)
    total = sum(c.calls for c in calls)
    if not total:
        return None
    return sum((c.mean_us if c.transfer_us is None else c.transfer_us) * c.calls for c in calls) / total


def message_bytes(run: RunAnalysis) -> float | None:
    """Bytes of one all-reduce of the target's forward: from the trace, else rows x hidden size x element size."""
    sizes = [c.message_bytes for c in arms.target_allreduce(run) if c.message_bytes]
    if sizes:
        return float(max(sizes))
    hidden, element = run.facts.number("model.hidden_size"), run.facts.number("model.activation_bytes")
    row = arms.commonest(run)
    cycle = run.attribution.cycle if run.attribution else None
    running = row.running_req if row else cycle.batch_size if cycle else None
    server = run.server()
    if server is not None and server.speculative is False:
        rows: float | None = 1.0
    else:
        rows = run.facts.number("speculative.num_draft_tokens")
    if hidden is None or element is None or running is None or rows is None:
        return None
    return hidden * element * running * rows
