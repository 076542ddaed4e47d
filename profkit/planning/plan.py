"""The plan: everything that the documents show, computed once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from profkit.analysis import RunAnalysis
from profkit.collectives.cost import KIB, SizeLatency, bus_bandwidth_gb_s, fit_size_latency
from profkit.comparison.kernels import KernelRow, kernel_rows
from profkit.forecast import PlanForecast
from profkit.planning.budget import Budget, budget
from profkit.planning.capture import Limit, limits
from profkit.planning.checks import Check, run_checks
from profkit.planning.experiments import Experiment, order
from profkit.planning.gains import Forecaster
from profkit.planning.others import OtherRun, other_run
from profkit.planning.ranking import RankedLever, rank
from profkit.planning.situation import Situation, make_situation
from profkit.planning.verdict import Verdict, verdict
from profkit.quantity import Quantity
from profkit.speculation import arm as arms
from profkit.words import TARGET_FORWARD_PHASES


@dataclass(frozen=True, slots=True)
class Goal:
    """What the user wants, as given: throughput in tok/s, and hard constraints in words."""

    throughput: float | None = None
    constraints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """A forecast of an earlier plan against a run that tried its lever; ``error`` is relative."""

    lever: str
    run: str
    forecast: Quantity
    outcome: Quantity
    error: float | None
    within: bool | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The document ``profkit.plan/1`` and everything behind ``plan.md``."""

    id: str
    date: str | None
    situation: Situation
    goal: Goal
    verdict: Verdict
    budgets: tuple[Budget, ...]
    levers: tuple[RankedLever, ...]
    experiments: tuple[Experiment, ...]
    checks: tuple[Check, ...]
    limits: tuple[Limit, ...]
    others: tuple[OtherRun, ...]
    size_curve: SizeLatency | None
    size_bandwidth: Quantity
    kernels: tuple[KernelRow, ...]
    runs: tuple[RunAnalysis, ...]
    supersedes: str | None = None
    outcomes: tuple[Outcome, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The document ``profkit.plan/1``."""
        return {
            "schema": "profkit.plan/1",
            "id": self.id,
            "date": self.date,
            "supersedes": self.supersedes,
            "run": self.situation.candidate.name,
            "baseline": self.situation.baseline.name if self.situation.baseline else None,
            "inputs": [_input(run) for run in self.runs],
            "goal": {"throughput": self.goal.throughput, "constraints": self.goal.constraints},
            "verdict": self.verdict,
            "economics": self.situation.economics,
            "budgets": [_budget(b) for b in self.budgets],
            "levers": [_lever(r) for r in self.levers],
            "experiments": self.experiments,
            "checks": self.checks,
            "others": [
                {
                    "run": o.name,
                    "algorithm": o.algorithm,
                    "same_verify_path": o.same_path,
                    "sentence": o.sentence,
                    "economics": o.economics,
                }
                for o in self.others
            ],
            "allreduce_size_curve": None
            if self.size_curve is None
            else {
                "alpha_us": self.size_curve.alpha_us,
                "beta_us_per_kib": self.size_curve.beta_us_per_kib,
                "points": self.size_curve.points,
                "bus_bandwidth": self.size_bandwidth,
            },
            "limits": self.limits,
            "outcomes": self.outcomes,
        }


def _input(run: RunAnalysis) -> dict[str, Any]:
    files = [f.path for f in run.log.inputs] if run.log else []
    files += [t.path for t in run.attribution.inputs] if run.attribution else []
    return {"run": run.name, "config": run.config, "date": run.date, "content": run.content_key, "files": files}


def _budget(found: Budget) -> dict[str, Any]:
    return {"run": found.name, "wall": found.wall, "rows": found.rows, "why": found.why or None}


def _lever(ranked: RankedLever) -> dict[str, Any]:
    lever, gain = ranked.lever, ranked.gain
    return {
        "id": lever.id,
        "title": lever.title,
        "role": lever.role,
        "priority": ranked.priority,
        "state": ranked.state,
        "gates": ranked.gates,
        "gain": {
            "candidate_throughput": gain.candidate_throughput,
            "baseline_throughput": gain.baseline_throughput,
            "cycle": gain.cycle,
            "accept_len": gain.accept_len,
            "break_even_accept_len": gain.break_even_accept_len,
            "relative": gain.relative,
            "per_effort": ranked.per_effort,
            "speculation_pays": gain.pays,
            "draft_tokens": gain.rows,
            "assumptions": gain.assumptions,
        },
        "evidence": lever.evidence,
        "reports": [
            {"what": r.what, "hardware": r.hardware, "date": r.date, "address": r.address} for r in lever.report
        ],
        "effort": lever.effort,
        "risk": lever.risk,
        "depends": lever.depends,
        "conflicts": lever.conflicts,
        "correctness": lever.correctness,
        "command": ranked.command,
        "acceptance": lever.acceptance,
        "kill": lever.kill,
    }


def _size_curve(runs: Sequence[RunAnalysis]) -> SizeLatency | None:
    """Time over message size of the target's all-reduces, fitted to the runs with the same implementation.

    Only transfers that all ranks were compared for: what may hold waiting tells nothing of the size.
    """
    points: list[tuple[float, float]] = []
    kinds: set[str] = set()
    for run in runs:
        for call in run.attribution.collectives if run.attribution else ():
            time = call.measured_transfer_us
            reduces = call.kind == "all_reduce" and call.phase in TARGET_FORWARD_PHASES
            if reduces and call.message_bytes and time is not None:
                points.append((float(call.message_bytes), time))
                kinds.add(call.implementation)
    return fit_size_latency(points, "target's forward of these runs") if len(kinds) == 1 else None


def _bandwidth(curve: SizeLatency | None, at: Situation) -> Quantity:
    """Bus bandwidth that the slope of the size curve stands for: what the link gives beyond the latency."""
    ranks = at.facts.integer("parallel.tp")
    if curve is None or not curve.beta_us_per_kib or ranks is None or ranks < 2:
        return Quantity.unknown("GB/s", "all-reduces of two message sizes are needed")
    value = bus_bandwidth_gb_s(KIB, curve.beta_us_per_kib, ranks)
    return Quantity(value, "GB/s", "derived", f"1 KiB / slope x 2 (n - 1) / n, {ranks} ranks")


def _id(runs: Sequence[RunAnalysis]) -> str:
    keys = "\n".join(f"{run.name} {run.content_key or ''}" for run in runs)
    return hashlib.sha256(keys.encode()).hexdigest()[:10]


def _outcomes(previous: PlanForecast | None, runs: Sequence[RunAnalysis]) -> tuple[Outcome, ...]:
    found = []
    for run in runs:
        name = run.labels.get("lever")
        promised = previous.lever(name) if previous is not None and name else None
        if promised is None or promised.candidate is None or name is None:
            continue
        said = promised.candidate
        forecast = Quantity(
            said.value, said.unit, "modelled", "the earlier plan", said.low, said.high,
            "model" if said.low is not None else None,
        )  # fmt: skip
        outcome = arms.make_arm(run, arms.commonest(run)).throughput
        error = within = None
        if outcome.value is not None and said.value:
            error = outcome.value / said.value - 1.0
            if said.low is not None and said.high is not None:
                within = said.low <= outcome.value <= said.high
        found.append(Outcome(name, run.name, forecast, outcome, error, within))
    return tuple(found)


def make_plan(
    candidate: RunAnalysis,
    baseline: RunAnalysis | None = None,
    others: Sequence[RunAnalysis] = (),
    *,
    goal: Goal | None = None,
    previous: PlanForecast | None = None,
    supersedes: str | None = None,
) -> Plan:
    """The plan for ``candidate`` against ``baseline``; ``others`` are further runs that show what else was tried.

    Parts whose inputs are missing abstain and say which ones. ``previous`` are the forecasts of an earlier plan; runs
    whose label ``lever`` names one of its levers are scored against them.
    """
    at = make_situation(candidate, baseline)
    checks = run_checks(at)
    levers = rank(at, Forecaster(at))
    running = at.economics.candidate.running_req
    runs = tuple(run for run in (candidate, baseline, *others) if run is not None)
    curve = _size_curve(runs)
    return Plan(
        id=_id(runs),
        date=candidate.date,
        situation=at,
        goal=goal or Goal(),
        verdict=verdict(at, levers, checks),
        budgets=tuple(budget(run, running) for run in runs),
        levers=levers,
        experiments=order(at, levers),
        checks=checks,
        limits=limits(at, checks),
        others=tuple(other_run(at, run) for run in others),
        size_curve=curve,
        size_bandwidth=_bandwidth(curve, at),
        kernels=kernel_rows(candidate.attribution) if candidate.attribution else (),
        runs=runs,
        supersedes=supersedes,
        outcomes=_outcomes(previous, runs),
    )
