"""What to try in which order: free ones first, each with what it tells and when to stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from profkit.planning.calls import message_bytes
from profkit.planning.fabric import FabricTest
from profkit.planning.levers import EFFORT_WORDS
from profkit.planning.ranking import RankedLever
from profkit.planning.situation import Situation

MOST = 10


@dataclass(frozen=True, slots=True)
class Experiment:
    """One step: what to do, what it tells, what it costs, when to stop. ``lever`` where it pulls one."""

    title: str
    tells: str
    cost: str
    command: str
    stop: str
    lever: str | None = None


def _of_lever(ranked: RankedLever) -> Experiment:
    gain = ranked.gain.candidate_throughput
    if gain.value is not None and gain.low is not None and gain.high is not None:
        tells = f"whether throughput reaches {gain.value:.0f} tok/s ({gain.low:.0f} to {gain.high:.0f} forecast)"
    elif gain.value is not None:
        tells = f"whether throughput reaches {gain.value:.0f} tok/s"
    elif ranked.lever.effect.model != "none":
        tells = "whether it helps: these files do not allow a forecast"
    else:
        tells = "whether it helps at all: nobody has measured it"
    cost = EFFORT_WORDS[ranked.lever.effort]
    if ranked.state == "upgrade":
        cost += f"; {ranked.failed[0].why}"
    stop = f"Done when: {ranked.lever.acceptance} Stop when: {ranked.lever.kill}"
    return Experiment(ranked.lever.title, tells, cost, ranked.command, stop, ranked.lever.id)


def _inside_the_server(found: FabricTest) -> Experiment:
    """nccl-tests has acquitted the fabric."""
    return Experiment(
        "Find out why the server's all-reduces are dearer than nccl-tests",
        f"why a call takes {found.server_us:.0f} us in the server and {found.test_us:.0f} us outside it",
        "an hour, read-only",
        "profkit whatif RUN --baseline BASELINE --allreduce-curve nccl-tests  # what equal calls would bring\n"
        "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING,ENV python -m sglang.launch_server ...",
        "Transport, algorithm and channels are those of nccl-tests: then look for late ranks and for calls outside "
        "CUDA graphs. They differ: take over what nccl-tests ran with.",
    )


def _fabric(at: Situation, levers: Sequence[RankedLever]) -> Experiment | None:
    fabric = next((r for r in levers if r.lever.id == "fabric-health" and r.priority is not None), None)
    over, call = at.measured["allreduce_over_nccl"].value, at.economics.allreduce_per_call.value
    if not isinstance(at.fabric, str):
        return None if at.fabric.as_dear else _inside_the_server(at.fabric)
    if fabric is None or over is None or call is None:
        return None
    size = message_bytes(at.candidate)
    where = f" at {size / 1024:.0f} KiB" if size else ""
    tells = (
        f"whether the {call:.0f} us per call{where} are the fabric's ({over:.1f} x NCCL's model) or the server's: "
        "nccl-tests outside the server shows the same, or not"
    )
    stop = (
        f"If nccl-tests shows about {call:.0f} us too, repair the path first (fabric-health) and postpone every other "
        "all-reduce lever. If it is far below, look inside the server: graphs, late ranks, the transport it chose."
    )
    return Experiment(
        "Look at the fabric outside the server", tells, "an hour, read-only", fabric.command, stop, "fabric-health"
    )


def _graphs(at: Situation) -> Experiment | None:
    share = at.measured["cuda_graph_share"]
    if share.value is not None and share.value >= 0.98:
        return None
    said = "the log does not say" if share.value is None else f"{share.value:.0%} of the decode lines"
    return Experiment(
        "Check that decode and verify run from CUDA graphs",
        f"whether launches from Python hold the cycle ({said})",
        "minutes",
        "grep -c 'cuda graph: False' server.log",
        "No line says False: graphs are not the problem.",
    )


def _simulated(at: Situation, levers: Sequence[RankedLever]) -> Experiment | None:
    even, rows = at.economics.break_even_accept_len.value, at.facts.number("speculative.num_draft_tokens")
    entry = next((r for r in levers if r.lever.id == "simulated-acceptance"), None)
    if entry is None or entry.state == "closed" or even is None or rows is None or even > rows:
        return None
    return Experiment(
        "Measure the cycle at the break-even accept length",
        f"whether a drafter with {even:.2f} accepted tokens would really reach the baseline, before one is trained",
        EFFORT_WORDS[entry.lever.effort],
        entry.command,
        f"Done when: {entry.lever.acceptance} Stop when: {entry.lever.kill}",
        entry.lever.id,
    )


def _order(at: Situation, levers: Sequence[RankedLever]) -> Iterator[Experiment | None]:
    active = [r for r in levers if r.priority is not None]
    free = [r for r in active if r.lever.cost == 1 and r.lever.effect.model != "none" and r.state == "open"]
    yield from (_of_lever(r) for r in free)
    fabric = _fabric(at, levers)
    yield fabric
    yield _graphs(at)
    yield _simulated(at, levers)
    for ranked in active:
        if ranked in free or (fabric is not None and ranked.lever.id == fabric.lever):
            continue
        yield _of_lever(ranked)


def order(at: Situation, levers: Sequence[RankedLever]) -> tuple[Experiment, ...]:
    """At most :data:`MOST` experiments; the first is the one to start with."""
    return tuple(e for e in _order(at, levers) if e is not None)[:MOST]
