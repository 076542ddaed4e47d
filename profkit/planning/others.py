"""Further runs beside the candidate: what they say about escapes from the bottleneck."""

from __future__ import annotations

from dataclasses import dataclass

from profkit.analysis import RunAnalysis
from profkit.planning.situation import Situation, is_speculative
from profkit.quantity import Quantity
from profkit.speculation import arm as arms
from profkit.speculation.economics import Economics, economics


@dataclass(frozen=True, slots=True)
class OtherRun:
    """Another run against the same baseline, and in one sentence what it shows."""

    name: str
    algorithm: str | None
    economics: Economics
    same_path: bool | None  # whether its target forward runs the candidate's all-reduces; None when not traced
    sentence: str


def _path(run: RunAnalysis) -> tuple[frozenset[str], float] | None:
    """Kernels and number of the all-reduces of the target's forward."""
    calls = arms.target_allreduce(run)
    if not calls:
        return None
    return frozenset(c.kernel for c in calls), sum(c.calls for c in calls)


def same_verify_path(one: RunAnalysis, other: RunAnalysis) -> bool | None:
    """Whether two runs' target forwards run the same all-reduce kernels equally often; ``None`` without traces."""
    first, second = _path(one), _path(other)
    return None if first is None or second is None else first == second


def _figure(quantity: Quantity, digits: int, unit: str) -> str:
    return f"{quantity.value:.{digits}f} {unit}" if quantity.value is not None else "an unknown time"


def _sentence(at: Situation, run: RunAnalysis, found: Economics, same: bool | None, who: str) -> str:
    parts = []
    if found.cycle.value is not None and found.break_even_accept_len.value is not None:
        parts.append(
            f"a cycle of {found.cycle.value:.1f} ms is {found.break_even_accept_len.value:.2f} baseline steps, "
            f"and yields {_figure(found.accept_len, 2, 'tokens')}"
        )
    calls, rows = found.allreduce_calls_per_cycle, found.verify_rows
    mine = at.economics.verify_rows
    if same and calls.value is not None:
        compared = ""
        if rows.value is not None and mine.value is not None and rows.value != mine.value:
            compared = f", on {rows.value:.0f} rows instead of {mine.value:.0f}"
        text = (
            f"its verify runs the same code path: the same {calls.value:.0f} all-reduces per forward, by the same "
            f"kernel{compared}, {_figure(found.allreduce_per_call, 0, 'us')} each"
        )
        if is_speculative(run):
            text += "; so it cannot escape the all-reduce"
        parts.append(text)
    elif same is False:
        parts.append("its target forward runs other all-reduces than the candidate's: compare the two paths")
    else:
        parts.append("without traces of both it cannot be told whether its verify runs the same all-reduces")
    return f"{who}: " + "; ".join(parts) + "."


def other_run(at: Situation, run: RunAnalysis) -> OtherRun:
    """Set another run against the plan's baseline and candidate."""
    found = economics(run, at.baseline)
    same = same_verify_path(at.candidate, run)
    algorithm = run.facts.text("speculative.algorithm")
    who = f"{algorithm} ({run.name})" if algorithm and algorithm.upper() != "NONE" else run.name
    return OtherRun(run.name, algorithm, found, same, _sentence(at, run, found, same, who))
