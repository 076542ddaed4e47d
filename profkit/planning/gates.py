"""Whether a lever can be pulled here: each condition passes, fails, or cannot be told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from profkit.attribution.result import RankResult
from profkit.planning.levers import Lever, Measured, flag_table, named_flags, named_variables, version_key
from profkit.planning.situation import Situation
from profkit.run import engine_release

State: TypeAlias = Literal["pass", "fail", "unknown"]


@dataclass(frozen=True, slots=True)
class GateResult:
    """One condition: its name, how it came out, and why in one clause."""

    name: str
    state: State
    why: str


def releases(lever: Lever) -> tuple[str | None, str | None]:
    """First and last sampled release that a lever works in: its gate, narrowed to where its flags and variables exist.

    The last is ``None`` when it is still there in the newest sampled release.
    """
    table = flag_table()
    spans = [table.flag[f] for f in named_flags(lever) if f in table.flag]
    spans += [table.variable[v] for v in named_variables(lever) if v in table.variable]
    firsts = [first for first, _ in spans if first != table.sampled[0]]
    lasts = [last for _, last in spans if last != table.sampled[-1]]
    firsts += [lever.gate.since] if lever.gate.since else []
    lasts += [lever.gate.until] if lever.gate.until else []
    return max(firsts, key=version_key, default=None), min(lasts, key=version_key, default=None)


def _neighbours(since: str | None, until: str | None) -> tuple[str | None, str | None]:
    """The last sampled release before ``since`` and the first one after ``until``."""
    sampled = flag_table().sampled
    before = after = None
    if since is not None:
        before = max((v for v in sampled if version_key(v) < version_key(since)), key=version_key, default=None)
    if until is not None:
        after = min((v for v in sampled if version_key(v) > version_key(until)), key=version_key, default=None)
    return before, after


def _version(lever: Lever, at: Situation) -> GateResult | None:
    if not lever.gate.released:
        return GateResult("engine_version", "fail", "in no release; needs a patched build")
    since, until = releases(lever)
    if since is None and until is None:
        return None
    wanted = f"SGLang {since} or later" if since else ""
    if until:
        wanted = f"SGLang {since} to {until}" if since else f"SGLang up to {until}"
    facts = at.facts
    exact = facts.text("engine.version")
    low = exact or facts.text("engine.version_low")
    high = exact or facts.text("engine.version_high")
    if low is None and high is None:
        return GateResult("engine_version", "unknown", f"needs {wanted}; the version is not known")
    here = engine_release(facts)
    # Between two sampled releases nothing is known about the flag.
    without_before, without_after = _neighbours(since, until)
    too_old = without_before is not None and high is not None and version_key(high) <= version_key(without_before)
    too_new = without_after is not None and low is not None and version_key(low) >= version_key(without_after)
    if too_old or too_new:
        return GateResult("engine_version", "fail", f"needs {wanted}; this is {here}")
    old_enough = since is None or (low is not None and version_key(low) >= version_key(since))
    new_enough = until is None or (high is not None and version_key(high) <= version_key(until))
    state: State = "pass" if old_enough and new_enough else "unknown"
    return GateResult("engine_version", state, f"needs {wanted}; this is {here}")


def _same(name: str, wanted: str, here: str | None, ok: bool | None) -> GateResult:
    if here is None or ok is None:
        return GateResult(name, "unknown", f"needs {wanted}; not stated by the run")
    return GateResult(name, "pass" if ok else "fail", f"needs {wanted}; this is {here}")


def _one_of(values: tuple[object, ...]) -> str:
    words = [str(v) for v in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _device(at: Situation) -> str | None:
    """Whether the target runs on a GPU; the CPU engine has neither graphs nor NCCL."""
    device = at.facts.text("server_args.device")
    if device == "cpu" or any(r.time_source == "cpu" for r in _ranks(at)):
        return "a CPU"
    return "a GPU" if device or at.facts.text("gpu.name") or at.facts.text("gpu.sm") else None


def _ranks(at: Situation) -> tuple[RankResult, ...]:
    return at.candidate.attribution.ranks if at.candidate.attribution else ()


def _hardware(lever: Lever, at: Situation) -> Iterator[GateResult]:
    gate, facts = lever.gate, at.facts
    sm = facts.text("gpu.sm")
    if gate.sm:
        yield _same("sm", f"SM{_one_of(gate.sm)}", sm and f"SM{sm}", sm in gate.sm if sm else None)
    tp = facts.integer("parallel.tp")
    if gate.tp:
        yield _same("tp", f"TP {_one_of(gate.tp)}", f"TP{tp}" if tp else None, tp in gate.tp if tp else None)
    if gate.tp_at_least:
        ok = tp >= gate.tp_at_least if tp else None
        yield _same("tp", f"TP of {gate.tp_at_least} or more", f"TP{tp}" if tp else None, ok)
    link = facts.text("link.kind")
    if gate.link:
        yield _same("link", gate.link, link, link == gate.link if link else None)
    if gate.vendor:
        name = (facts.text("gpu.name") or "").lower()
        here = "amd" if "amd" in name or "instinct" in name else "nvidia" if name else None
        yield _same("vendor", gate.vendor, here, here == gate.vendor if here else None)
    dtype = facts.text("model.dtype")
    if gate.dtype:
        known = dtype if dtype and dtype != "auto" else None
        yield _same("dtype", gate.dtype, known, known == gate.dtype if known else None)
    nccl = facts.text("nccl.version")
    if gate.nccl_since:
        ok = version_key(nccl) >= version_key(gate.nccl_since) if nccl else None
        yield _same("nccl_version", f"NCCL {gate.nccl_since} or later", nccl, ok)
    if gate.gpu is not None:
        here = _device(at)
        yield _same("device", "a GPU" if gate.gpu else "a CPU", here, (here == "a GPU") == gate.gpu if here else None)
    if gate.custom_allreduce is not None:
        yield _custom_allreduce(tp, link, facts.flag("link.p2p"))


def _custom_allreduce(tp: int | None, link: str | None, p2p: bool | None) -> GateResult:
    name, wanted = "custom_allreduce", "two GPUs with peer access, or NVLink between all"
    if tp is None or link is None:
        return GateResult(name, "unknown", f"needs {wanted}; not stated by the run")
    if link == "nvlink":
        return GateResult(name, "pass", f"needs {wanted}; this is {tp} GPUs over NVLink")
    if tp > 2:
        return GateResult(name, "fail", f"needs {wanted}; SGLang refuses {tp} GPUs over PCIe")
    if p2p is None:
        return GateResult(name, "unknown", f"needs {wanted}; peer access is not stated")
    return GateResult(
        name, "pass" if p2p else "fail", f"needs {wanted}; peer access is {'there' if p2p else 'missing'}"
    )


def _serving(lever: Lever, at: Situation) -> Iterator[GateResult]:
    gate, facts = lever.gate, at.facts
    speculates = at.speculative
    said = None if speculates is None else "speculating" if speculates else "not speculating"
    if gate.speculative is not None:
        wanted = "speculation" if gate.speculative else "no speculation"
        yield _same("speculative", wanted, said, speculates == gate.speculative if said else None)
    named = at.algorithm or ("none" if speculates is False else None)
    if gate.algorithms:
        yield _same("algorithm", _one_of(gate.algorithms), named, named in gate.algorithms if named else None)
    if gate.not_algorithms:
        ok = named not in gate.not_algorithms if named else None
        yield _same("algorithm", f"another than {_one_of(gate.not_algorithms)}", named, ok)
    topk = facts.integer("speculative.topk")
    here = f"topk {topk}" if topk is not None else None
    if gate.topk is not None:
        yield _same("topk", f"topk {gate.topk}", here, topk == gate.topk if here else None)
    if gate.topk_at_least is not None:
        ok = topk >= gate.topk_at_least if topk is not None else None
        yield _same("topk", f"topk of {gate.topk_at_least} or more", here, ok)
    attention = facts.flag("parallel.dp_attention")
    if gate.dp_attention is not None:
        wanted = "data-parallel attention" if gate.dp_attention else "no data-parallel attention"
        text = None if attention is None else "with it" if attention else "without it"
        yield _same("dp_attention", wanted, text, attention == gate.dp_attention if text else None)
    experts = facts.integer("model.experts")
    if gate.moe is not None:
        known = f"{experts} experts" if experts else "dense" if facts.number("model.layers") else None
        yield _same("moe", "a mixture of experts", known, bool(experts) == gate.moe if known else None)
    if gate.implementation:
        found = at.implementations
        ok = gate.implementation in found if found else None
        yield _same("implementation", f"all-reduce by {gate.implementation}", ", ".join(found) or None, ok)
    for argument in gate.arguments:
        fact = facts.get(f"server_args.{argument.name}")
        ok = fact.value == argument.value if fact is not None else None
        here = str(fact.value) if fact is not None else None
        yield _same(argument.name, f"{argument.name} = {argument.value} ({argument.why})", here, ok)


def _condition(condition: Measured, at: Situation) -> GateResult:
    quantity = at.measured[condition.quantity]
    bounds = []
    if condition.at_least is not None:
        bounds.append(f"at least {condition.at_least:g}")
    if condition.at_most is not None:
        bounds.append(f"at most {condition.at_most:g}")
    wanted = f"{condition.quantity.replace('_', ' ')} {' and '.join(bounds)}"
    value = quantity.value
    if value is None:
        return GateResult(condition.quantity, "unknown", f"needs {wanted} ({condition.why}); {quantity.source}")
    ok = (condition.at_least is None or value >= condition.at_least) and (
        condition.at_most is None or value <= condition.at_most
    )
    state: State = "pass" if ok else "fail"
    return GateResult(condition.quantity, state, f"needs {wanted} ({condition.why}); measured {value:.3g}")


def evaluate(lever: Lever, at: Situation) -> tuple[GateResult, ...]:
    """Every condition of a lever against the run."""
    found = [r for r in (_version(lever, at),) if r is not None]
    found += _hardware(lever, at)
    found += _serving(lever, at)
    found += [
        _condition(condition, at)
        for condition in lever.gate.measured
        if not condition.if_known or at.measured[condition.quantity].value is not None
    ]
    found += [GateResult("host", "unknown", f"to be checked on the host: {ask}") for ask in lever.gate.asks]
    return tuple(found)


def state_of(gates: tuple[GateResult, ...]) -> State:
    """Fail if one fails, else unknown if one cannot be told, else pass."""
    states = {gate.state for gate in gates}
    return "fail" if "fail" in states else "unknown" if "unknown" in states else "pass"
