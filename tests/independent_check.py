"""Compare the attribution of a simulated recording with its truth."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from profkit.attribution import Attribution, attribute, needs_frames
from profkit.parsers.trace import read_traces
from profkit.words import ACTIVITIES, PHASES
from tests.independent_cycles import Case
from tests.independent_machine import Machine, Window
from tests.independent_workers import simulate


@dataclass(frozen=True)
class Outcome:
    """How far the attribution is from the truth, over all ranks."""

    cycles: tuple[tuple[int, int], ...]  # found, true
    calls: tuple[tuple[float, float], ...]  # all-reduces in counted cycles
    worst: float
    where: tuple[int, str, str]
    cells: dict[tuple[int, str, str], tuple[float, float]]  # share of the wall: found, true
    confidence: float
    common: float  # the largest difference over the cycles that both count
    found: Attribution
    machine: Machine

    @property
    def right(self) -> bool:
        """Counts exact and every cell within half a percent of the wall."""
        return (
            self.worst <= 0.005
            and all(a == b for a, b in self.cycles)
            and all(abs(a - b) < 1e-6 for a, b in self.calls)
        )


def truth_windows(case: Case, machine: Machine, rank: int) -> list[Window]:
    """The counted cycles of a rank."""
    first = ("draft", "verify", "decode") if case.mode != "ngram" else ("verify",)
    return [w for w in machine.truth(rank, first) if not w.prefill]


def check(case: Case) -> Outcome:
    """Simulate, write, read, attribute, compare."""
    machine = simulate(case)
    with tempfile.TemporaryDirectory() as folder:
        machine.write(Path(folder), case.evidence, case.hidden)
        traces = read_traces([folder])
        if any(needs_frames(trace) for trace in traces):
            traces = read_traces([folder], frames=True)
        found = attribute(traces)
    cycles, calls = [], []
    cells: dict[tuple[int, str, str], tuple[float, float]] = {}
    kinds = found.calls.to_pandas()
    table = found.cycles.to_pandas()
    for rank, mine in enumerate(found.ranks):
        windows = truth_windows(case, machine, rank)
        cycles.append((mine.cycles, len(windows)))
        counted = table[(table["rank"] == mine.rank) & (table["kind"] == "counted")]["cycle"]
        here = kinds[(kinds["rank"] == mine.rank) & (kinds["kind"] == "all_reduce") & kinds["cycle"].isin(counted)]
        calls.append((float(len(here)), float(sum(w.allreduces for w in windows))))
        parts: dict[tuple[str, str], int] = defaultdict(int)
        for w in windows:
            for key, ns in w.parts.items():
                parts[key] += ns
        wall = max(sum(w.end - w.start for w in windows), 1)
        for phase in PHASES:
            for activity in ACTIVITIES:
                got = (mine.parts_ns[phase][activity] or 0) / wall
                cells[rank, phase, activity] = (got, parts[phase, activity] / wall)
    where = max(cells, key=lambda c: abs(cells[c][0] - cells[c][1]))
    common = max(_common(case, machine, found, rank) for rank in range(len(found.ranks)))
    counted_rows = table[table["kind"] == "counted"]
    confidence = float(counted_rows["confidence"].mean()) if len(counted_rows) else 0.0
    return Outcome(
        tuple(cycles),
        tuple(calls),
        abs(cells[where][0] - cells[where][1]),
        where,
        cells,
        confidence,
        common,
        found,
        machine,
    )


def _common(case: Case, machine: Machine, found: Attribution, rank: int) -> float:
    """The largest difference of a cell over the cycles that begin at (nearly) the same time in both."""
    table, parts = found.cycles.to_pandas(), found.parts.to_pandas()
    mine = found.ranks[rank].rank
    table = table[(table["rank"] == mine) & (table["kind"] == "counted")]
    total: dict[tuple[str, str], int] = defaultdict(int)
    wall = 0
    for w in truth_windows(case, machine, rank):
        near = table[(table["start_ns"] - w.start - machine.offset(rank)).abs() < (w.end - w.start) // 20]
        if not len(near):
            continue
        wall += w.end - w.start
        for key, ns in w.parts.items():
            total[key] -= ns
        rows = parts[(parts["rank"] == mine) & (parts["cycle"] == near["cycle"].iloc[0])]
        for phase, activity, ns in zip(rows["phase"], rows["activity"], rows["duration_ns"], strict=True):
            total[phase, activity] += 0 if ns != ns else int(ns)
    return max((abs(v) for v in total.values()), default=0) / wall if wall else 1.0


def report(case: Case, outcome: Outcome) -> str:
    """What differs, for a person."""
    lines = [
        f"{case}",
        f"  cycles found/true {outcome.cycles} all-reduces {outcome.calls} "
        f"confidence {outcome.confidence:.2f} common {outcome.common:.2%}",
    ]
    lines += [f"  labelled_by {dict(outcome.found.ranks[0].labelled_by)}"]
    for (rank, phase, activity), (got, true) in outcome.cells.items():
        if abs(got - true) > 0.005:
            lines.append(f"  rank {rank} {phase:13s} {activity:10s} found {got:8.2%} true {true:8.2%}")
    lines += [f"  ! {w}" for w in outcome.found.warnings]
    return "\n".join(lines)
