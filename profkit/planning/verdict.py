"""Three sentences: where the time goes, what to try first, what would change our mind."""

from __future__ import annotations

from dataclasses import dataclass

from profkit.attribution.idle import cause_words
from profkit.planning.checks import Check
from profkit.planning.levers import EFFORT_WORDS, EffectModel
from profkit.planning.ranking import RankedLever
from profkit.planning.situation import Situation
from profkit.quantity import Quantity
from profkit.speculation import arm as arms
from profkit.words import TARGET_FORWARD_PHASES, Activity, Phase

# Throughputs closer than this are not told apart by one launch each.
TOO_CLOSE = 0.03
AT_FLOOR = 1.15
MODEL_MULTIPLE = 3.0
ACTIVITY_WORDS: dict[Activity, str] = {
    "compute": "compute",
    "allreduce": "all-reduce",
    "comm": "other communication",
    "memory": "copies",
    "idle": "idle time",
}
# Causes of idle time, as attribution names them.
IDLE_WORDS = {
    "host_sync": "the host waiting for the GPU before it launches on",
    "cpu_draft": "drafting on the CPU",
    "scheduler": "the scheduler between two cycles",
    "host_bound": "the host launching late",
    "launch": "launch latency",
}


# What is known after a lever was pulled, whatever it brought.
TELLS: dict[EffectModel, str] = {
    "rows": "how much of the cycle grows with the verified rows",
    "accept_len": "which accept length a drafter reaches here",
    "curves": "how much of the cycle the all-reduce really holds",
    "nccl_model": "how much of the cycle the all-reduce really holds",
    "wait": "how much of the all-reduces is waiting for late ranks",
    "idle": "how much of the idle time the host causes",
    "compute": "how much of the cycle this compute really holds",
    "to_floor": "how near to its floor this compute can come",
    "reported": "whether the gain seen elsewhere is there on this machine",
}


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The largest cell of the cycle; ``share`` of the cycle."""

    phase: Phase
    activity: Activity
    share: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first page: ``speculation_pays`` is ``None`` where it cannot be said or is too close to call."""

    bottleneck: Bottleneck | None
    first_lever: str | None
    speculation_pays: bool | None
    sentences: tuple[str, str, str]


def find_bottleneck(at: Situation) -> Bottleneck | None:
    """The cell of the phase x activity matrix with the most time."""
    if at.cycles is None:
        return None
    cells = [
        (value or 0.0, phase, activity) for phase, row in at.cycles.parts_us.items() for activity, value in row.items()
    ]
    value, phase, activity = max(cells, key=lambda cell: cell[0], default=(0.0, "other", "idle"))
    return Bottleneck(phase, activity, value / at.cycles.wall_us.mean) if value > 0 else None


def pays(at: Situation) -> bool | None:
    """Whether speculation beats the baseline today."""
    found = at.economics.speedup
    speedup = found.value
    if not at.speculative or speedup is None or abs(speedup - 1.0) < TOO_CLOSE:
        return None
    if found.range == "ci95" and found.low is not None and found.high is not None and found.low < 1.0 < found.high:
        return None
    return speedup > 1.0


def times(value: float) -> str:
    """A factor in words that a person reads at once."""
    return "about ten times" if 9.5 <= value < 10.5 else f"{value:.1f} times"


def _range(quantity: Quantity) -> str:
    if quantity.value is None:
        return "unknown"
    if quantity.low is None or quantity.high is None or quantity.high - quantity.low < 0.05:
        return f"{quantity.value:.0f}"
    return f"{quantity.value:.0f} ({quantity.low:.0f} to {quantity.high:.0f})"


def _inside(title: str) -> str:
    """A title inside a sentence: small first letter, unless the first word is a name."""
    word = title.split()[0]
    return title if word[1:] != word[1:].lower() else title[0].lower() + title[1:]


def _idle_cause(at: Situation) -> str:
    """What most of the idle time waits for, where attribution could tell."""
    cycle = at.candidate.attribution.cycle if at.candidate.attribution else None
    causes = dict(cycle.idle_causes_us) if cycle else {}
    total = sum(causes.values())
    name, most = max(causes.items(), key=lambda pair: pair[1], default=("unknown", 0.0))
    if not total or most < total / 2 or name not in IDLE_WORDS:
        return ""
    if at.candidate.attribution is not None and at.candidate.attribution.without_gpu:
        return f"; {most / total:.0%} of all idle time is {cause_words(name, without_gpu=True)}"
    return f"; {most / total:.0%} of all idle time is {IDLE_WORDS[name]}"


def _tested(at: Situation) -> str:
    """What nccl-tests on this host says about the same message, where its output lies in the run."""
    found = at.fabric
    if isinstance(found, str):
        return ""
    if found.as_dear:
        return f"; nccl-tests needs {found.test_us:.0f} us for it too, so the fabric is the limit: repair that first"
    return (
        f"; nccl-tests needs {found.test_us:.0f} us for it on this host, so look inside the server, not at the fabric"
    )


def _where(at: Situation, found: Bottleneck | None) -> str:
    e = at.economics
    if found is None or at.cycles is None:
        running = e.candidate.running_req
        cycle = f" of {e.cycle.value:.1f} ms" if e.cycle.value is not None else ""
        return f"Where the time of the cycle{cycle} goes cannot be said: {arms.why_untraced(at.candidate, running)}."
    cycle_ms = e.cycle.value if e.cycle.value is not None else at.cycles.wall_us.mean / 1e3
    text = f"{found.share:.0%} of each {cycle_ms:.1f} ms cycle is {ACTIVITY_WORDS[found.activity]} in {found.phase}"
    if found.activity == "idle":
        text += _idle_cause(at)
    call, calls = e.allreduce_per_call, e.allreduce_calls_per_cycle
    # The figures per call are those of the target's forward.
    forward = found.activity == "allreduce" and found.phase in TARGET_FORWARD_PHASES
    if forward and call.value is not None and calls.value is not None:
        text += f": {calls.value:.0f} calls of {call.value:.0f} us"
        over, model = at.measured["allreduce_over_nccl"].value, e.nccl_model_per_call
        if over is not None and model.value is not None and "nccl" in at.implementations:
            text += f", {times(over)} NCCL's own latency model ({model.value:.1f} us)"
            if over > MODEL_MULTIPLE and isinstance(at.fabric, str):
                # Waiting for a rank that nobody recorded is no sign of a sick fabric.
                sure = all(c.transfer_is == "measured" for c in arms.target_allreduce(at.candidate))
                text += (
                    ", so look at the health of the fabric first"
                    if sure
                    else ", waiting for ranks whose traces are not here included, so record all ranks first"
                )
        text += _tested(at)
    ratio = at.measured["compute_over_floor"].value
    if ratio is not None and e.verify_compute.value is not None and e.verify_floor.value is not None:
        which = "verify" if at.speculative else "decode"
        near = "near" if ratio <= AT_FLOOR else f"{ratio:.1f} times"
        text += (
            f"; {which} compute ({e.verify_compute.value:.1f} ms) is {near} its floor ({e.verify_floor.value:.1f} ms)"
        )
    if at.candidate.attribution is not None and at.candidate.attribution.without_gpu:
        text += "; the traces were recorded without a GPU, so these are shares of the CPU's time"
    return text + "."


def _needs(ranked: RankedLever) -> str:
    return f" ({ranked.failed[0].why.split(';')[0]})" if ranked.state == "upgrade" else ""


def _below_the_bar(at: Situation, first: RankedLever) -> str:
    """Why a lever comes first that alone does not bring speculation up to the baseline; empty where it does."""
    after, bar = first.gain.candidate_throughput, first.gain.baseline_throughput.value
    bar = bar if bar is not None else at.economics.baseline_throughput.value
    if not at.speculative or after.value is None or bar is None or after.value >= bar:
        return ""
    never = after.high is not None and after.high < bar
    short = "alone it does not reach" if never else "alone it is not expected to reach"
    cost, tells = EFFORT_WORDS[first.lever.effort], TELLS.get(first.lever.effect.model, "whether its model holds here")
    return f": {short} the baseline's {bar:.0f}, but it costs {cost} and tells {tells}"


def _try_first(at: Situation, first: RankedLever | None, levers: tuple[RankedLever, ...]) -> str:
    e = at.economics
    text = ""
    verdict = pays(at)
    even, accept = e.break_even_accept_len.value, e.accept_len.value
    if verdict is not None and even is not None and accept is not None:
        now, base = e.throughput.value or 0.0, e.baseline_throughput.value or 0.0
        text = (
            f"Speculation {'pays' if verdict else 'does not pay'} today: {now:.1f} against {base:.1f} tok/s without, "
            f"as a cycle costs {even:.2f} baseline steps and yields {accept:.2f} tokens"
        )
    elif at.speculative and even is not None and accept is not None:
        text = f"Speculation breaks even today: it costs {even:.2f} baseline steps and yields {accept:.2f} tokens"
    text += "; try first: " if text else "Try first: "
    if first is None:
        return text + "nothing that these files support; capture what is missing (section 12)."
    text += _inside(first.lever.title)
    rows, drafts = first.gain.rows, at.facts.integer("speculative.num_draft_tokens")
    if rows is not None and drafts is not None:
        text += f" ({rows} instead of {drafts})"
    after = first.gain.candidate_throughput
    if after.value is not None:
        text += f", forecast {_range(after)} tok/s{_below_the_bar(at, first)}"
    elif first.lever.effect.model != "none":
        text += ", whose gain cannot be forecast from these files"
    else:
        text += ", whose gain nobody has measured"
    text += _needs(first)
    biggest = max(
        (r for r in levers if r.priority is not None and r is not first and r.gain.relative is not None),
        key=lambda r: r.gain.relative or 0.0,
        default=None,
    )
    known = first.gain.relative
    if biggest is not None and known is not None and (biggest.gain.relative or 0.0) > 2 * known:
        name = _inside(biggest.lever.title)
        text += f"; the largest lever is {name}{_needs(biggest)}"
    return text + "."


def _without_speculation(at: Situation, call_us: float | None) -> str:
    if call_us is None:
        return "What would change our mind: a trace, which shows what the step consists of."
    if not isinstance(at.fabric, str):
        return f"What would change our mind: other figures of nccl-tests than these. {at.fabric.sentence}."
    return (
        f"What would change our mind: nccl-tests outside the server; if it shows about {call_us:.0f} us per call at "
        "the same message size too, the fabric is the limit and no flag of the server helps."
    )


def _change_of_mind(at: Situation, levers: tuple[RankedLever, ...]) -> str:
    e = at.economics
    if at.speculative is False:
        return _without_speculation(at, e.allreduce_per_call.value)
    if at.baseline is None:
        return (
            "What would change our mind: a baseline run, without which no lever can be weighed against not speculating."
        )
    parts = []
    if at.speculative and e.break_even_accept_len.value is not None:
        need = f"an accept length above {e.break_even_accept_len.value:.2f} at today's cycle"
        parity, accept = e.parity_allreduce_per_call.value, e.accept_len.value
        if parity is not None and accept is not None:
            need += (
                f", or all-reduces below {parity:.0f} us per call at today's accept length"
                if parity > 0
                else " (even free all-reduces would not be enough)"
            )
        parts.append(f"speculation pays from {need}")
    base = e.baseline_throughput
    cheaper = [
        r.gain.baseline_throughput
        for r in levers
        if r.lever.effect.model in ("curves", "nccl_model") and r.gain.baseline_throughput.value is not None
    ]
    ends = [x for q in cheaper for x in (q.low, q.high) if x is not None]
    if ends and base.value is not None and max(ends) > base.value * 1.02:
        parts.append(
            f"a cheaper all-reduce lifts the baseline too ({base.value:.0f} tok/s today, {min(ends):.0f} to "
            f"{max(ends):.0f} after), and with it the bar"
        )
    if at.cycles is None:
        parts.append("a trace may show another cause than acceptance")
    if not parts:
        return "What would change our mind: figures of both arms at the same load."
    return "What would change our mind: " + "; ".join(parts) + "."


def _worth_trying(ranked: RankedLever) -> bool:
    """Whether a lever may come first: it surely applies here (but for what only the host tells), and has a model."""
    unsure = any(g.state == "unknown" and g.name != "host" for g in ranked.gates)
    if unsure or ranked.lever.effect.model == "none":
        return False
    return ranked.gain.relative is not None or ranked.state == "open"


def verdict(at: Situation, levers: tuple[RankedLever, ...], checks: tuple[Check, ...]) -> Verdict:
    """The verdict from ranked levers; a failing check is named where it undermines the first sentence."""
    first = next((r for r in levers if r.priority is not None and _worth_trying(r)), None)
    found = find_bottleneck(at)
    where = _where(at, found)
    broken = [c for c in checks if c.state == "fail" and c.name not in ("nccl_latency_model", "nccl_tests")]
    if broken:
        failed = f"{len(broken)} consistency check{'s' if len(broken) > 1 else ''} failed"
        where = f"{where.removesuffix('.')} (with care: {failed}, section 7)."
    return Verdict(
        found,
        first.lever.id if first else None,
        pays(at),
        (where, _try_first(at, first, levers), _change_of_mind(at, levers)),
    )
