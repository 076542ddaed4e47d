"""``plan.md``: the plan as a document for people; and its first screen for a terminal. Formats, computes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from profkit import __version__
from profkit.analysis import RunAnalysis
from profkit.escape import visible
from profkit.planning.budget import ROWS, Budget
from profkit.planning.checks import CheckState
from profkit.planning.gates import GateResult, State
from profkit.planning.levers import EFFORT_WORDS, Evidence
from profkit.planning.plan import Outcome, Plan
from profkit.planning.ranking import LeverState, RankedLever
from profkit.planning.verdict import ACTIVITY_WORDS, Verdict
from profkit.quantity import Quantity
from profkit.reports.templating import render
from profkit.reports.wording import NOT_KNOWN, RANGES, at_least, at_most, count, figure, percent
from profkit.run import Facts, engine_release

STATES: Final[dict[LeverState, str]] = {
    "open": "open",
    "check": "check first",
    "upgrade": "needs another release",
    "no_gain": "nothing to gain",
    "closed": "closed",
}
GATES: Final[dict[State, str]] = {"pass": "pass", "fail": "FAIL", "unknown": "unknown"}
CHECKS: Final[dict[CheckState, str]] = {"pass": "pass", "fail": "FAIL", "abstain": "abstains"}
EVIDENCE: Final[dict[Evidence, str]] = {
    "measured": "measured here",
    "elsewhere_same_sm": "measured elsewhere, same GPU generation",
    "elsewhere": "measured elsewhere",
    "model": "model on the measured cycle",
    "claim": "claim",
    "none": "nobody measured it",
}
PAYS: Final = {True: "pays", False: "does not pay", None: "cannot be said, or too close to call"}
# Facts of section 3, in reading order.
SYSTEM: Final = (
    ("model", "model.name"),
    ("quantisation", "model.quantization"),
    ("layers", "model.layers"),
    ("hidden size", "model.hidden_size"),
    ("experts", "model.experts"),
    ("experts per token", "model.experts_per_token"),
    ("speculation", "speculative.algorithm"),
    ("draft model", "speculative.draft_model"),
    ("steps", "speculative.num_steps"),
    ("topk", "speculative.topk"),
    ("draft tokens", "speculative.num_draft_tokens"),
    ("tensor parallel", "parallel.tp"),
    ("data parallel", "parallel.dp"),
    ("pipeline parallel", "parallel.pp"),
    ("expert parallel", "parallel.ep"),
    ("data-parallel attention", "parallel.dp_attention"),
    ("engine", "engine.name"),
    ("engine version", "engine.version"),
    ("GPU", "gpu.name"),
    ("GPUs", "gpu.count"),
    ("compute capability", "gpu.sm"),
    ("power cap (W)", "gpu.power_cap_w"),
    ("memory bandwidth (GB/s)", "gpu.memory_bandwidth_gb_s"),
    ("link", "link.kind"),
    ("peer access", "link.p2p"),
    ("NCCL", "nccl.version"),
    ("driver", "driver.version"),
    ("attention backend", "server_args.attention_backend"),
    ("custom all-reduce disabled", "server_args.disable_custom_all_reduce"),
    ("CUDA graphs disabled", "server_args.disable_cuda_graph"),
    ("overlap scheduling disabled", "server_args.disable_overlap_schedule"),
)
AT_A_GLANCE: Final = (
    ("Throughput with speculation", "throughput"),
    ("Throughput of the baseline", "baseline_throughput"),
    ("Accept length", "accept_len"),
    ("Break-even accept length (= cycle / baseline step)", "break_even_accept_len"),
    ("Cycle", "cycle"),
    ("Baseline step", "baseline_step"),
    ("One all-reduce of the target's forward", "allreduce_per_call"),
    ("NCCL's latency model for it", "nccl_model_per_call"),
    ("All-reduce at which speculation breaks even", "parity_allreduce_per_call"),
)
ECONOMICS: Final = (
    *AT_A_GLANCE,
    ("Speedup over the baseline", "speedup"),
    ("Cycle at parity", "parity_cycle"),
    ("Missing to parity", "missing_ms"),
    ("Missing to parity", "missing_tokens"),
    ("Missing to parity, per all-reduce", "missing_us_per_call"),
    ("All-reduces per forward", "allreduce_calls_per_cycle"),
    ("Share of the target's all-reduces", "allreduce_share"),
    ("One all-reduce of the baseline", "baseline_allreduce_per_call"),
    ("Most that it can cost", "baseline_allreduce_bound"),
    ("Compute of the target's forward", "verify_compute"),
    ("Floor of that compute", "verify_floor"),
    ("Verified rows", "verify_rows"),
    ("Traced cycle over the log's", "trace_over_log"),
)


def amount(quantity: Quantity) -> str:
    """Value and unit; a dash when unknown. Ratios carry no unit, shares stay ratios."""
    return figure(quantity.value, "" if quantity.unit == "ratio" else quantity.unit)


def spread(quantity: Quantity) -> str:
    """The range with what it is; a dash when there is none."""
    if quantity.low is None or quantity.high is None:
        return NOT_KNOWN
    kind = RANGES[quantity.range] if quantity.range is not None else ""
    return f"{figure(quantity.low)} to {figure(quantity.high)}" + (f" ({kind})" if kind else "")


def with_range(quantity: Quantity) -> str:
    """``79.0 (60.6 to 106.5)``."""
    if quantity.value is None:
        return NOT_KNOWN
    if quantity.low is None or quantity.high is None or figure(quantity.low) == figure(quantity.high):
        return figure(quantity.value)
    return f"{figure(quantity.value)} ({figure(quantity.low)} to {figure(quantity.high)})"


def figures(plan: Plan, rows: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Rows of economics: name, value, range, kind, source."""
    found = []
    for name, key in rows:
        quantity: Quantity = getattr(plan.situation.economics, key)
        n = f", n = {quantity.n}" if quantity.n else ""
        found.append([name, amount(quantity), spread(quantity), quantity.kind, quantity.source + n])
    return found


def _glance(plan: Plan) -> list[list[str]]:
    rows = [row for row in figures(plan, AT_A_GLANCE) if row[1] != NOT_KNOWN]
    return [[name, value, spread_, kind] for name, value, spread_, kind, _ in rows]


def _system(plan: Plan) -> tuple[list[list[str]], list[str]]:
    rows, unknown = [], []
    for words, key in SYSTEM:
        fact = plan.situation.facts.get(key)
        if fact is not None:
            rows.append([words, str(fact.value), fact.source])
        elif key == "engine.version" and (inferred := _inferred_release(plan.situation.facts)) is not None:
            rows.append([words, *inferred])
        else:
            unknown.append(words)
    return rows, unknown


def _inferred_release(facts: Facts) -> tuple[str, str] | None:
    """The release as far as the log's lines show it, and where that comes from."""
    found = engine_release(facts)
    place = facts.get("engine.version_low") or facts.get("engine.version_high")
    return (found, f"inferred from {place.source}") if found is not None and place is not None else None


def _evidence(run: RunAnalysis) -> list[str]:
    server, attribution = run.server(), run.attribution
    lines = NOT_KNOWN
    if server is not None:
        decode = server.decode
        lines = f"{decode.lines - decode.flagged} used, {decode.flagged} left out, {decode.damaged} damaged"
    cycles = ranks = labelled = NOT_KNOWN
    if attribution is not None:
        used = attribution.cycle.count if attribution.cycle else 0
        dropped = sum(sum(rank.dropped.values()) for rank in attribution.ranks)
        cycles = f"{used} used, {dropped} left out"
        ranks = str(len(attribution.ranks))
        if attribution.cycle is not None:
            share = sum(v or 0.0 for v in attribution.cycle.parts_us.get("unlabelled", {}).values())
            labelled = percent(1 - share / attribution.cycle.wall_us.mean, signed=False)
    return [run.name, run.date or NOT_KNOWN, lines, cycles, ranks, labelled, (run.content_key or NOT_KNOWN)[:12]]


def _budget_cell(found: Budget, at: int) -> str:
    if not found.rows:
        return NOT_KNOWN
    row = found.rows[at]
    return f"{figure(row.time.value)} ({percent(row.share, signed=False)})"


def _budget(plan: Plan) -> list[list[str]]:
    rows = [[name, *(_budget_cell(b, at) for b in plan.budgets)] for at, (name, _, _) in enumerate(ROWS)]
    waits = [next((r.wait for r in b.rows if r.wait), Quantity.unknown("ms", "")) for b in plan.budgets]
    shown = ["≥ " * (wait.range == "model") + figure(wait.value) for wait in waits]
    rows.insert(3, ["of this, waiting for a late rank", *shown])
    rows.append(["cycle", *(figure(b.wall.value) for b in plan.budgets)])
    return rows


def _spreads(plan: Plan) -> list[list[str]]:
    return [
        [b.name, row.name, figure(row.time.value), spread(row.time), str(row.time.n or NOT_KNOWN), row.time.source]
        for b in plan.budgets
        for row in b.rows
        if row.time.value
    ]


def _lever_row(ranked: RankedLever) -> list[str]:
    lever, gain = ranked.lever, ranked.gain
    return [
        str(ranked.priority or NOT_KNOWN),
        lever.title,
        STATES[ranked.state],
        with_range(gain.candidate_throughput),
        with_range(gain.baseline_throughput),
        EFFORT_WORDS[lever.effort],
        lever.risk,
        EVIDENCE[lever.evidence],
    ]


def _gate_words(gates: Sequence[GateResult]) -> Iterator[str]:
    for gate in gates:
        yield f"{GATES[gate.state]}: {gate.name.replace('_', ' ')}: {gate.why}"


def _closed(plan: Plan) -> list[list[str]]:
    rows = []
    for ranked in plan.levers:
        if ranked.state not in ("closed", "no_gain"):
            continue
        if ranked.state == "no_gain":
            why = f"expected {with_range(ranked.gain.candidate_throughput)} tok/s: nothing to gain"
            again = "after the next change that moves the cycle budget"
        else:
            why = "; ".join(g.why for g in ranked.failed)
            again = "when this changes: " + ", ".join(g.name.replace("_", " ") for g in ranked.failed)
        rows.append([ranked.lever.title, STATES[ranked.state], why, again])
    return rows


def _sweep(plan: Plan) -> list[list[str]]:
    first = next((r for r in plan.levers if r.gain.sweep), None)
    rows = []
    for number, projection in first.gain.sweep if first else ():
        rows.append(
            [
                str(number),
                with_range(projection.accept_len_after),
                with_range(projection.candidate.cycle_after),
                with_range(projection.candidate.throughput_after),
                with_range(projection.break_even_accept_len_after),
                PAYS[projection.pays],
            ]
        )
    return rows


def _collectives(plan: Plan) -> list[list[str]]:
    return [
        [
            run.name, call.phase, call.kind, call.implementation + (" (fused)" if call.fused else ""),
            figure(call.calls_per_cycle), figure(call.mean_us),
            at_most(figure(call.transfer_us), call), at_least(figure(call.wait_us), call),
            NOT_KNOWN if call.message_bytes is None else f"{call.message_bytes / 1024:.1f}",
            at_least(figure(call.bus_bandwidth_gb_s), call), call.kernel,
        ]
        for run in plan.runs
        for call in (run.attribution.collectives if run.attribution else ())
    ]  # fmt: skip


def _loads(plan: Plan) -> list[list[str]]:
    """Both arms at every load that both runs were measured at; empty when it is one."""
    rows = plan.situation.economics.by_load
    return [] if len(rows) < 2 else [
        [
            str(row.running_req), figure(row.cycle.value), figure(row.baseline_step.value), figure(row.inflation.value),
            figure(row.accept_len.value), figure(row.speedup.value),
        ]
        for row in rows
    ]  # fmt: skip


def _others(plan: Plan) -> list[list[str]]:
    return [
        [
            other.name, other.algorithm or NOT_KNOWN, with_range(other.economics.throughput),
            figure(other.economics.accept_len.value), figure(other.economics.break_even_accept_len.value),
            with_range(other.economics.cycle), figure(other.economics.allreduce_per_call.value),
            {True: "the same", False: "another", None: NOT_KNOWN}[other.same_path],
        ]
        for other in plan.others
    ]  # fmt: skip


def _outcome(outcome: Outcome) -> list[str]:
    inside = {True: "inside", False: "outside", None: NOT_KNOWN}[outcome.within]
    return [
        outcome.lever,
        outcome.run,
        with_range(outcome.forecast),
        with_range(outcome.outcome),
        percent(outcome.error),
        inside,
    ]


def _meanwhile(plan: Plan) -> str | None:
    """What to do until a lever has paid."""
    fallback = next((r for r in plan.levers if r.lever.role == "fallback" and r.state in ("open", "check")), None)
    if fallback is None or plan.verdict.speculation_pays is not False:
        return None
    speed = amount(fallback.gain.candidate_throughput)
    return f"Until a lever has paid, serve without speculation: {speed}."


def _curve(plan: Plan) -> str | None:
    curve = plan.size_curve
    if curve is None:
        return None
    text = (
        f"Fitted to {count(curve.points, 'message size')} of these runs, one all-reduce costs {figure(curve.alpha_us)} "
        f"us + {figure(curve.beta_us_per_kib)} us per KiB"
    )
    if plan.size_bandwidth.value is not None:
        text += f"; the slope is a bus bandwidth of {figure(plan.size_bandwidth.value, 'GB/s')}"
        if plan.situation.facts.text("link.kind") == "pcie":
            text += ", where PCIe 4.0 x16 has 31.5 GB/s each way"
    return text + "."


def _bottleneck(verdict: Verdict) -> str:
    found = verdict.bottleneck
    if found is None:
        return NOT_KNOWN
    return f"{ACTIVITY_WORDS[found.activity]} in {found.phase}, {percent(found.share, signed=False)}"


def _findings(run: RunAnalysis) -> list[str]:
    server = run.server()
    found = [*(run.attribution.findings if run.attribution else ()), *(server.findings if server else ())]
    told = [f.sentence + (f" ({', '.join(f.evidence[:3])})" if f.evidence else "") for f in found]
    return [*told, *run.warnings, *(run.attribution.warnings if run.attribution else ())]


def document(plan: Plan, *, plots: Sequence[tuple[str, str]] = (), names: Sequence[str] = ()) -> str:
    """``plan.md``. ``plots`` are (file name beside it, what it shows); ``names`` are the runs as the commands name
    them, candidate first, baseline second."""
    active = [r for r in plan.levers if r.priority is not None]
    rows, unknown = _system(plan)
    return render(
        "plan.md.j2",
        {
            "plan": plan,
            "version": __version__,
            "name": plan.situation.candidate.name,
            "baseline": plan.situation.baseline.name if plan.situation.baseline else None,
            "bottleneck": _bottleneck(plan.verdict),
            "pays": PAYS[plan.verdict.speculation_pays],
            "meanwhile": _meanwhile(plan),
            "glance": _glance(plan),
            "plots": dict(plots),
            "system": rows,
            "unknown": unknown,
            "evidence": [_evidence(run) for run in plan.runs],
            "budget_columns": ["ms per cycle (share)", *(b.name for b in plan.budgets)],
            "budget": _budget(plan) if any(b.rows for b in plan.budgets) else [],
            "untraced": [b.why for b in plan.budgets if b.why],
            "spreads": _spreads(plan),
            "curve": _curve(plan),
            "economics": figures(plan, ECONOMICS),
            "loads": _loads(plan),
            "others": _others(plan),
            "checks": [[c.title, CHECKS[c.state], c.sentence] for c in plan.checks],
            "active": active,
            "lever_rows": [_lever_row(r) for r in active],
            "gate_words": {r.lever.id: list(_gate_words(r.gates)) for r in active},
            "states": STATES,
            "evidence_words": EVIDENCE,
            "sweep": _sweep(plan),
            "closed": _closed(plan),
            "correctness": sorted({c for r in active for c in r.lever.correctness}),
            "forecasts": [
                [r.lever.id, with_range(r.gain.candidate_throughput), with_range(r.gain.baseline_throughput)]
                for r in active
                if r.gain.candidate_throughput.value is not None
            ],
            "outcomes": [_outcome(o) for o in plan.outcomes],
            "collectives": _collectives(plan),
            "bounded": any(cell.startswith("≤") for row in _collectives(plan) for cell in row),
            "kernels": [
                [k.phase, k.kernel_class, k.implementation or "", figure(k.calls_per_cycle), figure(k.us_per_cycle)]
                for k in plan.kernels[:20]
            ],
            "findings": [(run.name, _findings(run)) for run in plan.runs],
            "names": list(names),
            "figure": figure,
            "with_range": with_range,
        },
    )


def terminal(plan: Plan) -> list[str]:
    """The first screen: verdict, what to do meanwhile, the first steps."""
    lines = [f"Plan for {plan.situation.candidate.name}"]
    lines += [f"  {place}. {sentence}" for place, sentence in enumerate(plan.verdict.sentences, 1)]
    if meanwhile := _meanwhile(plan):
        lines.append(f"  {meanwhile}")
    lines.append("First steps:")
    for place, step in enumerate(plan.experiments[:3], 1):
        lines.append(f"  {place}. {step.title} ({step.cost}): {step.command.splitlines()[-1]}")
    return [visible(line) for line in lines]
