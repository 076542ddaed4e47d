"""Levers in the order in which they are worth trying."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from profkit.planning.gains import FEWEST_ROWS, Forecaster, Gain, unknown_gain
from profkit.planning.gates import GateResult, State, evaluate, state_of
from profkit.planning.levers import PLACEHOLDER, Lever, load_levers
from profkit.planning.situation import Situation

# open: can be tried; check: a condition cannot be told from the files; upgrade: another release is needed;
# no_gain: expected to bring nothing; closed: a condition fails.
LeverState: TypeAlias = Literal["open", "check", "upgrade", "no_gain", "closed"]
WORTH: Final = 0.005


@dataclass(frozen=True, slots=True)
class RankedLever:
    """A lever against this run. ``priority`` counts from 1 in the order of trying; ``None`` for closed ones."""

    lever: Lever
    state: LeverState
    gates: tuple[GateResult, ...]
    gain: Gain
    command: str
    priority: int | None = None

    @property
    def per_effort(self) -> float | None:
        """Expected relative gain over the relative cost of trying."""
        return None if self.gain.relative is None else self.gain.relative / self.lever.cost

    @property
    def failed(self) -> tuple[GateResult, ...]:
        """The conditions that fail."""
        return tuple(g for g in self.gates if g.state == "fail")


def _values(at: Situation, gain: Gain) -> dict[str, str]:
    """What the placeholders of flags stand for in this run."""
    found: dict[str, str] = {}
    rows = gain.rows
    drafts = at.facts.integer("speculative.num_draft_tokens")
    if rows is None and drafts is not None and drafts > FEWEST_ROWS:
        rows = FEWEST_ROWS
    if rows is not None:
        found |= {"rows": str(rows), "steps": str(rows - 1)}
    tp = at.facts.integer("parallel.tp")
    if tp:
        found |= {"tp": str(tp), "half_tp": str(max(tp // 2, 1))}
    running = at.measured["running_req"].value
    if running:
        found["batch"] = str(int(running))
    even = at.economics.break_even_accept_len.value
    if even is not None:
        found["break_even"] = f"{even:.2f}"
    return found


def command_of(lever: Lever, at: Situation, gain: Gain) -> str:
    """What to change, as a person types it; values that only a person can choose stay in capitals."""
    values = _values(at, gain)

    def filled(text: str) -> str:
        return PLACEHOLDER.sub(lambda m: values.get(m.group(1), m.group(1).upper()), text)

    lines = [filled(text) for text in lever.host]
    start = " ".join([*(filled(e) for e in lever.env), "python -m sglang.launch_server ...", *map(filled, lever.flags)])
    if lever.flags or lever.env:
        lines.append(start)
    if lever.drop_flags:
        lines.append(f"# start the server without {' '.join(lever.drop_flags)}")
    if not lines:
        lines.append("# no command: needs a patched build")
    return "\n".join(lines)


def _state(gates: tuple[GateResult, ...], gain: Gain) -> LeverState:
    overall: State = state_of(gates)
    failed = {g.name for g in gates if g.state == "fail"}
    if failed - {"engine_version"}:
        return "closed"
    if failed:
        return "upgrade"
    if gain.relative is not None and gain.relative < WORTH:
        return "no_gain"
    return "check" if overall == "unknown" else "open"


RISKS: Final = {"low": 0, "medium": 1, "high": 2}


def _key(ranked: RankedLever) -> tuple[int, float, int, int]:
    """Free ones with a known gain; free ones with a model that lacks an input here; the rest by gain per effort; then
    those that nobody has measured, by risk and effort."""
    gain, cost, risk = ranked.per_effort, ranked.lever.cost, RISKS[ranked.lever.risk]
    free = cost == 1 and ranked.state == "open"
    if gain is not None:
        return 0 if free else 2, -gain, risk, cost
    if free and ranked.lever.effect.model != "none":
        return 1, 0.0, risk, cost
    return {"open": 3, "check": 4, "upgrade": 5}[ranked.state], 0.0, risk, cost


def _after_dependencies(ranked: list[RankedLever]) -> list[RankedLever]:
    """The same order, but a lever never stands before one that it depends on."""
    by_id = {r.lever.id: r for r in ranked}
    placed: dict[str, RankedLever] = {}

    def place(one: RankedLever, open_ones: frozenset[str]) -> None:
        for other in one.lever.depends:
            if other in by_id and other not in placed and other not in open_ones:
                place(by_id[other], open_ones | {one.lever.id})
        placed.setdefault(one.lever.id, one)

    for one in ranked:
        place(one, frozenset())
    return list(placed.values())


def rank(at: Situation, forecaster: Forecaster) -> tuple[RankedLever, ...]:
    """All levers: ranked ones first, then those with nothing to gain, then the closed ones."""
    found = []
    for lever in load_levers():
        gates = evaluate(lever, at)
        failed = {g.name for g in gates if g.state == "fail"} - {"engine_version"}
        gain = unknown_gain(f"not computed: {sorted(failed)[0]} fails") if failed else forecaster.gain(lever)
        found.append(RankedLever(lever, _state(gates, gain), gates, gain, command_of(lever, at, gain)))
    active = [r for r in found if r.state in ("open", "check", "upgrade") and r.lever.role == "lever"]
    rest = [r for r in found if r not in active]
    order = {"open": 0, "check": 0, "upgrade": 0, "no_gain": 1, "closed": 2}
    ranked = [
        RankedLever(r.lever, r.state, r.gates, r.gain, r.command, place)
        for place, r in enumerate(_after_dependencies(sorted(active, key=_key)), 1)
    ]
    return (*ranked, *sorted(rest, key=lambda r: order[r.state]))
