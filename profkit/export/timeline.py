"""Chosen cycles of all ranks as compact integer lists, for a page that draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from profkit.attribution.result import Attribution
from profkit.attribution.views import ChosenCycle, rank_positions
from profkit.escape import visible
from profkit.export.clocks import base_shifts_ns, corrections_ns
from profkit.export.ops import op_rows
from profkit.export.selection import choose
from profkit.trace import Trace
from profkit.words import ACTIVITIES, PHASES

# Ops of one cycle over all ranks beyond which the shortest are left out of a page.
MOST_OPS: Final = 40_000
MOST_STRAGGLERS: Final = 24
NAME_LENGTH: Final = 140


@dataclass(slots=True)
class _Words:
    """Words as they are shown and their numbers, in order of first use."""

    numbers: dict[str, int] = field(default_factory=dict)
    _known: dict[str, int] = field(default_factory=dict)

    def number(self, word: str, length: int) -> int:
        """The number of a word that is shown with at most ``length`` characters."""
        if word not in self._known:
            self._known[word] = self.numbers.setdefault(visible(word, length), len(self.numbers))
        return self._known[word]


def rank_label(result: Attribution, place: int) -> str:
    """``tp3``, with replica and stage in front where they are known: ``dp0 tp3``."""
    return result.ranks[place].name


def timeline(
    result: Attribution, traces: Sequence[Trace] | None, which: Sequence[str] = ("median", "worst")
) -> dict[str, Any]:
    """The ``timeline`` object of the page.

    Per cycle and rank: ``segments`` is a flat list of (length ns, phase x 8 + activity) that tiles the cycle,
    ``ops`` of (start ns after the start of the op before, length ns, name, class, phase x 8 + activity, wait ns or -1,
    ordinal of the collective or -1). Times are on the first rank's clock and count from ``origin`` of the cycle.
    """
    names, classes = _Words(), _Words()
    shown: list[dict[str, Any]] = []
    seen: set[tuple[int, int]] = set()
    by_path = {t.info.path: t for t in traces or ()}
    for word in which:
        for cycle in choose(result, word):
            if (key := (cycle.number, next(iter(cycle.members)))) not in seen:
                seen.add(key)
                shown.append(_cycle(result, by_path, cycle, word, names, classes))
    return {
        "phases": list(PHASES),
        "activities": list(ACTIVITIES),
        "names": list(names.numbers),
        "classes": list(classes.numbers),
        "cycles": shown,
        "aligned": corrections_ns(result)[1],
    }


def _cycle(
    result: Attribution, traces: Mapping[str, Trace], cycle: ChosenCycle, word: str, names: _Words, classes: _Words
) -> dict[str, Any]:
    offsets, _ = corrections_ns(result)
    move = [s - o for s, o in zip(base_shifts_ns(result), offsets, strict=True)]
    origin = min(int(row["start_ns"]) + move[p] for p, row in cycle.members.items())
    numbers = {place: number for number, place in rank_positions(result).items()}
    total = sum(_in_cycle(result.ops[p], int(row["cycle"])).num_rows for p, row in cycle.members.items())
    least = _least_length(result, cycle, total)
    ranks = []
    for place, row in cycle.members.items():
        shift = move[place] - origin
        calls = _calls(result.calls, numbers[place], int(row["cycle"]))
        info = result.inputs[place]
        ranks.append(
            {
                "label": rank_label(result, place),
                "place": place,
                "file": visible(info.path.rpartition("/")[2], 120),
                "source": _source(result.ops[place], row),
                "start": int(row["start_ns"]) + shift,
                "end": int(row["end_ns"]) + shift,
                "segments": _segments(result.segments, numbers[place], int(row["cycle"])),
                "ops": _ops(traces.get(info.path), result.ops[place], row, shift, least, calls, names, classes),
            }
        )
    words = {"median": "median cycle", "worst": "slowest cycle"} if result.cycle is not None else {}
    plain = "cycle" if result.cycle is not None else "recording"
    return {
        "title": f"{words.get(word, plain)} (no. {cycle.number})",
        "number": cycle.number,
        "batch_size": cycle.batch_size,
        "wall": cycle.wall_ns,
        "hidden_ops": 0 if least == 0 else sum(1 for _ in _shorter(result, cycle, least)),
        "ranks": ranks,
        "stragglers": _stragglers(result, cycle, numbers, move, origin),
    }


def _source(ops: pa.Table, row: Mapping[str, Any]) -> list[int]:
    """Where the cycle lies in the file: first and last row of ops, begin and end in ns as recorded."""
    rows = [int(r or 0) for r in _in_cycle(ops, int(row["cycle"])).column("gpu_op").to_pylist()]
    return [min(rows, default=0), max(rows, default=0), int(row["start_ns"]), int(row["end_ns"])]


def _in_cycle(ops: pa.Table, cycle: int) -> pa.Table:
    return ops.filter(pc.equal(ops.column("cycle"), pa.scalar(cycle)))


def _lengths(result: Attribution, cycle: ChosenCycle) -> list[int]:
    found: list[int] = []
    for place, row in cycle.members.items():
        mine = _in_cycle(result.ops[place], int(row["cycle"]))
        ends, starts = mine.column("end_ns").to_pylist(), mine.column("start_ns").to_pylist()
        found += [int(e) - int(s) for e, s in zip(ends, starts, strict=True) if e is not None and s is not None]
    return found


def _least_length(result: Attribution, cycle: ChosenCycle, total: int) -> int:
    """Ops shorter than this are left out, so that at most :data:`MOST_OPS` remain; 0 leaves none out."""
    if total <= MOST_OPS:
        return 0
    return max(sorted(_lengths(result, cycle), reverse=True)[MOST_OPS - 1], 1)


def _shorter(result: Attribution, cycle: ChosenCycle, least: int) -> list[int]:
    return [n for n in _lengths(result, cycle) if n < least]


def _calls(calls: pa.Table, rank: int, cycle: int) -> dict[int, tuple[int, int]]:
    """(wait ns or -1, ordinal) by GPU op."""
    mine = calls.filter(
        pc.and_(pc.equal(calls.column("rank"), pa.scalar(rank)), pc.equal(calls.column("cycle"), pa.scalar(cycle)))
    )
    rows = zip(*(mine.column(n).to_pylist() for n in ("gpu_op", "wait_ns", "ordinal")), strict=True)
    return {op: (-1 if wait is None else wait, ordinal) for op, wait, ordinal in rows}


_CODES: Final[dict[tuple[str, str], int]] = {
    (p, a): PHASES.index(p) * 8 + ACTIVITIES.index(a) for p in PHASES for a in ACTIVITIES
}


def _segments(segments: pa.Table, rank: int, cycle: int) -> list[int]:
    mine = segments.filter(
        pc.and_(
            pc.equal(segments.column("rank"), pa.scalar(rank)), pc.equal(segments.column("cycle"), pa.scalar(cycle))
        )
    )
    columns = (mine.column(name).to_pylist() for name in ("start_ns", "end_ns", "phase", "activity"))
    flat: list[int] = []
    for start, end, phase, activity in sorted(zip(*columns, strict=True), key=lambda row: row[0]):
        length, code = end - start, _CODES[phase, activity]
        if flat and flat[-1] == code:
            flat[-2] += length
        elif length:
            flat += [length, code]
    return flat


def _ops(
    trace: Trace | None, ops: pa.Table, row: Mapping[str, Any], shift: int, least: int,
    calls: Mapping[int, tuple[int, int]], names: _Words, classes: _Words,
) -> list[int]:  # fmt: skip
    found = []
    if trace is not None:
        for op in op_rows(trace, ops, {int(row["cycle"])}):
            wait, ordinal = calls.get(op.gpu_op, (-1, -1))
            found.append((op.start_ns, op.end_ns, op.name, op.kernel_class, op.phase, op.activity, wait, ordinal))
    else:
        for r in _in_cycle(ops, int(row["cycle"])).to_pylist():
            wait, ordinal = calls.get(r["gpu_op"], (-1, -1))
            kind = r["kernel_class"] or "other"
            found.append((r["start_ns"], r["end_ns"], "", kind, r["phase"], r["activity"], wait, ordinal))
    flat: list[int] = []
    before = 0
    for begin, end, name, kind, phase, activity, wait, ordinal in sorted(found, key=lambda f: (f[0], f[1])):
        if end - begin < least:
            continue
        at = begin + shift
        flat += [
            at - before, end - begin, names.number(name, NAME_LENGTH), classes.number(kind, 60),
            _CODES[phase, activity], wait, ordinal,
        ]  # fmt: skip
        before = at
    return flat


def _stragglers(
    result: Attribution, cycle: ChosenCycle, numbers: Mapping[int, int], move: Sequence[int], origin: int
) -> list[dict[str, Any]]:
    """Collectives of the cycle by how long the others waited for the last to arrive, the longest first."""
    places = {(numbers[p], int(row["cycle"])): p for p, row in cycle.members.items()}
    wanted = pa.array(sorted({number for _, number in places}), pa.int64())
    shown = result.calls.filter(pc.is_in(result.calls.column("cycle"), value_set=wanted))
    members: dict[tuple[str, str, int], list[tuple[int, int, int, int]]] = {}
    for row in shown.to_pylist():
        place = places.get((row["rank"], row["cycle"]))
        if place is None or row["wait_ns"] is None:
            continue
        begin = row["start_ns"] + move[place] - origin
        key = (row["phase"], row["kind"], row["ordinal"])
        members.setdefault(key, []).append((row["wait_ns"], place, begin, begin + row["duration_ns"]))
    order = list(cycle.members)
    found = []
    for (phase, kind, ordinal), calls in members.items():
        if len(calls) > 1:
            found.append(
                {
                    "name": f"{phase} {kind} {ordinal}",
                    "rank": order.index(min(calls)[1]),
                    "wait": max(c[0] for c in calls),
                    "start": min(c[2] for c in calls),
                    "end": max(c[3] for c in calls),
                }
            )
    return sorted(found, key=lambda f: (-int(str(f["wait"])), int(str(f["start"]))))[:MOST_STRAGGLERS]
