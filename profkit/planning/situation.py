"""What the runs say, in the terms that gates, checks and sentences use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from profkit.analysis import RunAnalysis
from profkit.attribution.result import BatchSummary, CycleSummary
from profkit.planning.fabric import FabricTest, fabric_test, over_nccl_tests
from profkit.quantity import Quantity
from profkit.run import Facts
from profkit.speculation import arm as arms
from profkit.speculation.economics import Economics, economics
from profkit.words import Activity, Phase


@dataclass(frozen=True, slots=True)
class Situation:
    """The candidate, its baseline and the figures behind a plan; ``measured`` holds what gates may ask for."""

    candidate: RunAnalysis
    baseline: RunAnalysis | None
    economics: Economics
    speculative: bool | None
    cycles: CycleSummary | BatchSummary | None
    measured: Mapping[str, Quantity]
    fabric: FabricTest | str  # the all-reduce against nccl-tests, or why it cannot be compared

    @property
    def facts(self) -> Facts:
        """Facts of the candidate."""
        return self.candidate.facts

    @property
    def algorithm(self) -> str | None:
        """The speculative algorithm in capitals, ``None`` when unknown or none."""
        name = self.facts.text("speculative.algorithm")
        return name.upper() if name and name.upper() != "NONE" else None

    @property
    def implementations(self) -> tuple[str, ...]:
        """What carries out the all-reduces of the target's forward."""
        return tuple(sorted({c.implementation for c in arms.target_allreduce(self.candidate)}))


def is_speculative(run: RunAnalysis) -> bool | None:
    """Whether a run speculates; ``None`` when neither arguments nor log lines tell."""
    server = run.server()
    if server is not None and server.speculative is not None:
        return server.speculative
    name = run.facts.text("speculative.algorithm")
    if name is not None:
        return name.upper() not in ("NONE", "")
    if server is not None and server.decode.accept_len.mean is not None:
        return True
    cycle = run.attribution.cycle if run.attribution else None
    if cycle is not None and (cycle.parts_us.get("verify", {}).get("compute") or 0.0) > 0:
        return True
    return None


def part_us(
    cycles: CycleSummary | BatchSummary, phases: Iterable[Phase] | None = None, activity: Activity | None = None
) -> float:
    """Mean microseconds per cycle in some phases and one activity; all where not given."""
    chosen = set(phases) if phases is not None else None
    return sum(
        value or 0.0
        for phase, row in cycles.parts_us.items()
        if chosen is None or phase in chosen
        for name, value in row.items()
        if activity is None or name == activity
    )


def _share(
    run: RunAnalysis,
    cycles: CycleSummary | BatchSummary | None,
    phases: Iterable[Phase] | None,
    activity: Activity | None,
    what: str,
) -> Quantity:
    if cycles is None:
        return Quantity.unknown("ratio", f"{run.name}: no traced cycle that fits")
    value = part_us(cycles, phases, activity) / cycles.wall_us.mean
    return Quantity(value, "ratio", "measured", f"{run.name}: trace, {what} of the cycle")


def _wait_share(run: RunAnalysis, cycles: CycleSummary | BatchSummary | None) -> Quantity:
    calls = run.attribution.collectives if run.attribution else ()
    waits = [c.measured_wait_us * c.calls for c in calls if c.kind == "all_reduce" and c.measured_wait_us is not None]
    if cycles is None or not waits:
        return Quantity.unknown("ratio", f"{run.name}: waiting needs the traces of all ranks")
    value = sum(waits) / cycles.wall_us.mean
    return Quantity(value, "ratio", "measured", f"{run.name}: trace, wait of all all-reduces over the cycle")


def _over(top: Quantity, bottom: Quantity, what: str) -> Quantity:
    if top.value is None or not bottom.value:
        return Quantity.unknown("ratio", top.source if top.value is None else bottom.source)
    return Quantity(top.value / bottom.value, "ratio", "derived", what)


def _count(value: float | None, unit: str, source: str, missing: str) -> Quantity:
    return Quantity.unknown(unit, missing) if value is None else Quantity(float(value), unit, "measured", source)


def _measured(run: RunAnalysis, found: Economics, cycles: CycleSummary | BatchSummary | None) -> dict[str, Quantity]:
    server = run.server()
    row = found.candidate.row
    log = f"{run.name}: server log"
    no_log = f"{run.name} has no server log with steady decode lines"
    drafts = run.facts.number("speculative.num_draft_tokens")
    running = found.candidate.running_req
    if running is None and cycles is not None:
        running = cycles.batch_size
    return {
        "speedup": found.speedup,
        "accept_len": found.accept_len,
        "allreduce_share": found.allreduce_share,
        "allreduce_over_nccl": _over(
            found.allreduce_per_call, found.nccl_model_per_call, "all-reduce per call / NCCL's latency model"
        ),
        "compute_over_floor": _over(
            found.verify_compute, found.verify_floor, "compute of the target's forward / floor of reading the weights"
        ),
        "draft_tokens": _count(drafts, "tokens", "server arguments", "the number of draft tokens is not stated"),
        "idle_share": _share(run, cycles, None, "idle", "idle"),
        "draft_share": _share(run, cycles, ("draft", "draft_extend"), "compute", "compute of draft and extend"),
        "accept_share": _share(run, cycles, ("accept",), None, "accept phase"),
        "wait_share": _wait_share(run, cycles),
        "cuda_graph_share": _count(
            server.decode.cuda_graph_share if server else None,
            "ratio",
            f"{log}, share of decode lines with a CUDA graph",
            no_log if server is None else "the log does not say whether graphs are used",
        ),
        "running_req": _count(running, "requests", f"{run.name}: commonest load", no_log),
        "retractions": _count(
            float(server.events.get("retraction", 0)) if server else None, "events", f"{log}, retraction lines", no_log
        ),
        "decode_lines": _count(row.lines if row else None, "lines", f"{log}, steady decode lines", no_log),
    }


def make_situation(candidate: RunAnalysis, baseline: RunAnalysis | None) -> Situation:
    """The situation of a candidate against a baseline."""
    found = economics(candidate, baseline)
    cycles = arms.traced(candidate, found.candidate.running_req)
    fabric = fabric_test(candidate, baseline)
    measured = {**_measured(candidate, found, cycles), "allreduce_over_nccl_tests": over_nccl_tests(fabric)}
    return Situation(candidate, baseline, found, is_speculative(candidate), cycles, measured, fabric)
