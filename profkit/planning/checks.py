"""Consistency checks: what must agree if the figures are right, with the numbers; a check without inputs abstains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from profkit.analysis import RunAnalysis
from profkit.comparison.system import compare_systems, system_of
from profkit.planning.situation import Situation
from profkit.speculation import arm as arms
from profkit.words import count

CheckState: TypeAlias = Literal["pass", "fail", "abstain"]
# NCCL's latency model has no size term, so a call may cost somewhat more than its slowest protocol.
MODEL_SLACK = 1.25
# Compute below this share of the floor means that a stated shape or bandwidth is wrong.
FLOOR_SLACK = 0.95
CYCLE_TOLERANCE = 0.10
UNKNOWN_KERNELS = 0.02
FEW_LINES = 10


@dataclass(frozen=True, slots=True)
class Check:
    """One check: ``sentence`` carries the numbers for a person, ``numbers`` for a program (unit last in the key)."""

    name: str
    title: str
    state: CheckState
    sentence: str
    numbers: dict[str, float | None] = field(default_factory=dict)


def _abstain(name: str, title: str, why: str) -> Check:
    return Check(name, title, "abstain", why)


def _verdict(ok: bool) -> CheckState:
    return "pass" if ok else "fail"


def call_count(run: RunAnalysis, arm: str) -> Check:
    """2 all-reduces per layer in the target's forward, or one more for the embedding."""
    name, title = f"calls_per_layer_{arm}", f"2 all-reduces per layer ({arm})"
    layers, calls = run.facts.number("model.layers"), sum(c.calls for c in arms.target_allreduce(run))
    if run.facts.flag("parallel.dp_attention") or (run.facts.number("parallel.ep") or 1) > 1:
        return _abstain(name, title, f"{run.name}: data-parallel attention or expert parallelism changes the count")
    if layers is None:
        return _abstain(name, title, f"{run.name}: the number of layers is not stated (model.layers in run.toml)")
    if not calls:
        return _abstain(name, title, f"{run.name}: no all-reduce of the target's forward in a trace")
    ok = calls in (2 * layers, 2 * layers + 1)
    relation = "is" if ok else "is not"
    more = ", plus one for the embedding" if calls == 2 * layers + 1 else ""
    sentence = f"{calls:g} calls per forward {relation} 2 x {layers:g} layers{more}"
    return Check(name, title, _verdict(ok), sentence, {"calls": calls, "layers": layers})


def nccl_model(at: Situation) -> Check:
    """The measured call against NCCL's own latency table."""
    name, title = "nccl_latency_model", "All-reduce against NCCL's latency model"
    call, model = at.economics.allreduce_per_call, at.economics.nccl_model_per_call
    if call.value is None or model.value is None or model.high is None:
        return _abstain(name, title, call.source if call.value is None else model.source)
    if "nccl" not in at.implementations:
        return _abstain(name, title, f"the all-reduces are not NCCL's ({', '.join(at.implementations)})")
    ok = call.value <= model.high * MODEL_SLACK
    sentence = (
        f"{call.value:.1f} us per call is {call.value / model.value:.1f} x the model's {model.value:.1f} us and "
        f"{call.value / model.high:.1f} x its slowest protocol's {model.high:.1f} us"
    )
    if not ok:
        sentence += ": NCCL does not run on the path that it thinks, or a rank is late; look at the fabric first"
    return Check(name, title, _verdict(ok), sentence, {"call_us": call.value, "model_us": model.value})


def nccl_tests(at: Situation) -> Check:
    """The measured call against what nccl-tests needs on the same host."""
    name, title = "nccl_tests", "All-reduce against nccl-tests"
    if isinstance(at.fabric, str):
        return _abstain(name, title, at.fabric)
    numbers: dict[str, float | None] = {"call_us": at.fabric.server_us, "test_us": at.fabric.test_us}
    return Check(name, title, _verdict(at.fabric.as_dear), at.fabric.sentence, numbers)


def baseline_bound(at: Situation) -> Check:
    """The baseline's call cannot cost more than its whole step allows."""
    name, title = "baseline_bound", "The baseline's all-reduce fits its step"
    bound, call = at.economics.baseline_allreduce_bound, at.economics.baseline_allreduce_per_call
    if bound.value is None or bound.high is None:
        return _abstain(name, title, bound.source)
    if call.value is None:
        sentence = (
            f"of the baseline no cycle is traced; from its step alone a call costs at most {bound.value:.1f} us "
            f"({bound.high:.1f} us if compute were free)"
        )
        return Check(name, title, "abstain", sentence, {"bound_us": bound.value})
    ok = call.value <= bound.high
    sentence = f"{call.value:.1f} us measured, at most {bound.value:.1f} us with compute at its floor"
    return Check(name, title, _verdict(ok), sentence, {"call_us": call.value, "bound_us": bound.value})


def roofline(at: Situation) -> Check:
    """Compute cannot be faster than reading the weights."""
    name, title = "compute_floor", "Compute against its roofline floor"
    compute, floor = at.economics.verify_compute, at.economics.verify_floor
    if compute.value is None or floor.value is None:
        return _abstain(name, title, compute.source if compute.value is None else floor.source)
    ratio = compute.value / floor.value
    ok = ratio >= FLOOR_SLACK
    sentence = f"{compute.value:.2f} ms measured, {floor.value:.2f} ms needed to read the weights ({ratio:.2f} x)"
    if not ok:
        sentence += ": a stated shape, quantisation or bandwidth is wrong"
    return Check(name, title, _verdict(ok), sentence, {"compute_ms": compute.value, "floor_ms": floor.value})


def trace_against_log(run: RunAnalysis, arm: str, ratio: float | None, why: str) -> Check:
    """The profiled cycle against the unprofiled one of the log."""
    name, title = f"trace_cycle_{arm}", f"Cycle in the trace and in the log ({arm})"
    if ratio is None:
        return _abstain(name, title, why)
    ok = abs(ratio - 1.0) <= CYCLE_TOLERANCE
    sentence = f"{run.name}: the traced cycle is {ratio:.3f} x the log's"
    if not ok:
        sentence += "; shares are taken from the trace, times from the log"
    return Check(name, title, _verdict(ok), sentence, {"ratio": ratio})


def throughput_of_the_benchmark(at: Situation) -> Check:
    """The client's time per token against the log's throughput at batch 1."""
    name, title = "log_against_benchmark", "Throughput in the log and at the client"
    speed, running = at.economics.throughput, at.economics.candidate.running_req
    figures = [b.get("figures") for b in at.candidate.log.bench] if at.candidate.log else []
    tpots = [f["mean_tpot"] for f in figures if isinstance(f, dict) and isinstance(f.get("mean_tpot"), int | float)]
    if not tpots or speed.value is None:
        return _abstain(name, title, "no benchmark result beside the log" if not tpots else speed.source)
    if running != 1:
        return _abstain(name, title, "the client's time per token compares at one running request only")
    client = 1000.0 / tpots[0]
    ratio = client / speed.value
    sentence = f"{client:.1f} tok/s at the client (1000 / mean TPOT), {speed.value:.1f} tok/s in the log"
    return Check(name, title, _verdict(abs(ratio - 1.0) <= CYCLE_TOLERANCE), sentence, {"ratio": ratio})


def ranks_agree(run: RunAnalysis, arm: str) -> Check:
    """All ranks recorded the same cycles and the same collectives."""
    name, title = f"ranks_agree_{arm}", f"Ranks agree ({arm})"
    attribution = run.attribution
    if attribution is None or len(attribution.ranks) < 2:
        return _abstain(name, title, f"{run.name}: the traces of at least two ranks are needed")
    counts = [rank.cycles for rank in attribution.ranks]
    unequal = [f for f in attribution.findings if f.kind in ("collectives_unequal", "alignment_ambiguous")]
    ok = len(set(counts)) == 1 and not unequal
    seen = f"{counts[0]} cycles" if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} cycles"
    sentence = f"{len(counts)} ranks, {seen} each"
    sentence += f"; {unequal[0].sentence}" if unequal else ", equal numbers of collectives"
    return Check(name, title, _verdict(ok), sentence, {"ranks": float(len(counts))})


def coverage(run: RunAnalysis, arm: str) -> Check:
    """How much of the cycle nothing could label."""
    name, title = f"coverage_{arm}", f"Labelled time ({arm})"
    cycle = run.attribution.cycle if run.attribution else None
    if cycle is None:
        return _abstain(name, title, f"{run.name}: {arms.why_untraced(run, None)}")
    share = sum(v or 0.0 for v in cycle.parts_us.get("unlabelled", {}).values()) / cycle.wall_us.mean
    unknown = [f for f in (run.attribution.findings if run.attribution else ()) if f.kind == "unknown_kernels"]
    ok = share <= UNKNOWN_KERNELS and not unknown
    sentence = f"{1 - share:.1%} of the cycle has a phase"
    if unknown:
        sentence += f"; {unknown[0].sentence}"
    return Check(name, title, _verdict(ok), sentence, {"unlabelled_ratio": share})


def same_load(at: Situation) -> Check:
    """Both arms must be compared at the same load and context."""
    name, title = "same_load", "Both arms at the same load"
    base = at.economics.baseline
    if base is None:
        return _abstain(name, title, "no baseline run was given")
    mine, theirs = at.economics.candidate.row, base.row
    if mine is None or theirs is None:
        return _abstain(name, title, base.cycle.source)
    sentence = f"{count(mine.running_req, 'running request')} on both"
    if mine.context_tokens and theirs.context_tokens:
        sentence += f", contexts {mine.context_tokens:.0f} and {theirs.context_tokens:.0f} tokens"
    return Check(name, title, "pass", sentence, {"running_req": float(mine.running_req)})


def same_system(at: Situation) -> Check:
    """Break-even against the baseline of another server means nothing."""
    name, title = "same_system", "Both arms on the same system"
    if at.baseline is None:
        return _abstain(name, title, "no baseline run was given")
    found = compare_systems(system_of(at.facts), system_of(at.baseline.facts))
    if not found.stated:
        return _abstain(name, title, "no fact about model, GPUs or parallelism is stated by both runs")
    if found.differing:
        other = f"{found.differences()}: the baseline is another server, so break-even says little"
        return Check(name, title, "fail", other)
    if found.one_sided:
        return _abstain(name, title, found.open_questions())
    return Check(name, title, "pass", f"equal in both runs: {', '.join(found.equal)}")


def enough_lines(at: Situation) -> Check:
    """Few log lines make wide spreads."""
    name, title = "enough_lines", "Enough steady decode lines"
    lines = at.measured["decode_lines"]
    if lines.value is None:
        return _abstain(name, title, lines.source)
    ok = lines.value >= FEW_LINES
    return Check(name, title, _verdict(ok), f"{lines.value:.0f} steady decode lines", {"lines": lines.value})


def accept_length_fits(at: Situation) -> Check:
    """An accept length lies between 1 and the number of verified rows."""
    name, title = "accept_length", "Accept length within its bounds"
    accept, rows = at.economics.accept_len, at.facts.number("speculative.num_draft_tokens")
    if not at.speculative:
        return _abstain(name, title, "the run does not speculate, or does not say so")
    if accept.value is None or rows is None:
        return _abstain(name, title, accept.source if accept.value is None else "the number of rows is not stated")
    ok = 1.0 <= accept.value <= rows
    sentence = f"{accept.value:.2f} tokens per cycle of at most {rows:.0f}"
    if abs(accept.value - 1.0) < 0.005:
        ok, sentence = False, f"{sentence}: nothing is ever accepted, which points to a drafter that does not fit"
    return Check(name, title, _verdict(ok), sentence, {"accept_len_tokens": accept.value})


def _checks(at: Situation) -> Iterator[Check]:
    yield same_load(at)
    yield same_system(at)
    yield enough_lines(at)
    yield accept_length_fits(at)
    yield throughput_of_the_benchmark(at)
    ratio = at.economics.trace_over_log
    yield trace_against_log(at.candidate, "candidate", ratio.value, ratio.source)
    if at.economics.baseline is not None and at.baseline is not None:
        over = at.economics.baseline.trace_over_log
        yield trace_against_log(at.baseline, "baseline", over.value, over.source)
    yield call_count(at.candidate, "candidate")
    if at.baseline is not None:
        yield call_count(at.baseline, "baseline")
    yield nccl_model(at)
    yield nccl_tests(at)
    yield baseline_bound(at)
    yield roofline(at)
    yield ranks_agree(at.candidate, "candidate")
    if at.baseline is not None:
        yield ranks_agree(at.baseline, "baseline")
    yield coverage(at.candidate, "candidate")


def run_checks(at: Situation) -> tuple[Check, ...]:
    """All checks, in the order in which they are read."""
    return tuple(_checks(at))
