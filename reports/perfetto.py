"""Chosen cycles of all ranks as one Chrome trace for ui.perfetto.dev or chrome://tracing.

Process ids are written as SGLang's merged profiles write them (``"[TP00] 1"``), so that profkit reads the file back
rank by rank. Above the GPU streams lie profkit's lanes: cycle, phase, activity, and each collective split into wait and
transfer. All times are on the first rank's clock and count from the first chosen cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from profkit.attribution.result import Attribution
from profkit.attribution.views import ChosenCycle, rank_positions
from profkit.errors import InputError
from profkit.export.clocks import base_shifts_ns, corrections_ns
from profkit.export.ops import op_rows
from profkit.reports.palette import ACTIVITY_NAMES, PHASE_NAMES
from profkit.reports.tensorboard import matching_traces
from profkit.reports.trace_events import EventSink, writing_trace
from profkit.trace import Trace, TraceInfo

_CYCLE, _PHASE, _ACTIVITY, _COLLECTIVE, _FIRST_STREAM = 1, 2, 3, 4, 10
_PHASES: Final[Mapping[str, str]] = {str(k): v for k, v in PHASE_NAMES.items()}
_ACTIVITIES: Final[Mapping[str, str]] = {str(k): v for k, v in ACTIVITY_NAMES.items()}
_LANES: Final = {
    _CYCLE: "profkit: cycle",
    _PHASE: "profkit: phase",
    _ACTIVITY: "profkit: activity",
    _COLLECTIVE: "profkit: collectives",
}


@dataclass(frozen=True, slots=True)
class _Lane:
    """Where one rank's events go: its process id, and what to add to its times."""

    pid: str
    number: int  # of the rank in the tables
    group: int  # ranks of one group share collectives
    move: int
    cycles: tuple[int, ...]  # ordinals of this rank


def process_label(info: TraceInfo, place: int) -> str:
    """``[TP00-EP00] 1``: what profkit's reader takes for a rank of a merged trace."""
    known = (("DP", info.dp), ("PP", info.pp), ("TP", info.tp), ("EP", info.ep))
    parts = [f"{name}{value:02d}" for name, value in known if value is not None]
    return f"[{'-'.join(parts) or f'TP{place:02d}'}] {place + 1}"


def write_perfetto(
    result: Attribution, traces: Sequence[Trace], chosen: Sequence[ChosenCycle], path: Path, *, force: bool = False
) -> int:
    """Write the chosen cycles to ``path`` (``.json`` or ``.json.gz``); returns the number of events.

    Raises:
        InputError: no cycle to show.
        UsageError: the file exists and ``force`` is false, or cannot be written.
    """
    if not chosen:
        raise InputError("these traces hold no decode cycle to cut out; record while the server decodes")
    matched = matching_traces(result, traces)
    lanes, origin = _lanes(result, chosen)
    _, known = corrections_ns(result)
    head = {
        "displayTimeUnit": "ns",
        "otherData": {
            "cycles": ", ".join(str(c.number) for c in chosen),
            "clocks": "all ranks on the clock of the first" if known else "not aligned: the ranks could not be matched",
        },
        "baseTimeNanoseconds": result.inputs[0].base_ns + origin,
    }
    with writing_trace(path, head, force=force) as sink:
        for place, lane in enumerate(lanes):
            trace = matched[place]
            _write_names(sink, lane, trace, place)
            _write_cycles(sink, lane, chosen, place)
            _write_segments(sink, lane, result.segments)
            _write_streams(sink, lane, trace, result.ops[place])
        _write_collectives(sink, result, lanes)
        return sink.count


def _lanes(result: Attribution, chosen: Sequence[ChosenCycle]) -> tuple[list[_Lane], int]:
    offsets, _ = corrections_ns(result)
    shifts = base_shifts_ns(result)
    corrected = [s - o for s, o in zip(shifts, offsets, strict=True)]
    origin = min(int(m["start_ns"]) + corrected[p] for c in chosen for p, m in c.members.items())
    numbers = {place: number for number, place in rank_positions(result).items()}
    return [
        _Lane(
            process_label(info, place),
            numbers[place],
            result.ranks[place].group,
            corrected[place] - origin,
            tuple(int(c.members[place]["cycle"]) for c in chosen if place in c.members),
        )
        for place, info in enumerate(result.inputs)
    ], origin


def _write_names(sink: EventSink, lane: _Lane, trace: Trace, place: int) -> None:
    label = lane.pid.partition("]")[0].strip("[")
    sink.name("process_name", lane.pid, None, f"rank {lane.number} ({label})")
    sink.name("process_sort_index", lane.pid, None, place)
    for tid, words in _LANES.items():
        sink.name("thread_name", lane.pid, tid, words)
        sink.name("thread_sort_index", lane.pid, tid, tid)
    streams = sorted({s for s in pc.unique(trace.gpu_ops.column("stream")).to_pylist() if s is not None})
    if trace.info.kind != "gpu":
        sink.name("thread_name", lane.pid, _FIRST_STREAM, "host ops")
    for order, stream in enumerate(streams):
        sink.name("thread_name", lane.pid, _FIRST_STREAM + stream, f"stream {stream}")
        sink.name("thread_sort_index", lane.pid, _FIRST_STREAM + stream, _FIRST_STREAM + order)


def _write_cycles(sink: EventSink, lane: _Lane, chosen: Sequence[ChosenCycle], place: int) -> None:
    for cycle in chosen:
        row = cycle.members.get(place)
        if row is None:
            continue
        begin, wall = int(row["start_ns"]), int(row["end_ns"]) - int(row["start_ns"])
        size = f", batch {row['batch_size']}" if row["batch_size"] is not None else ""
        name = f"cycle {cycle.number}: {wall / 1e6:.3f} ms{size}"
        args = {"kind": row["kind"], "hidden communication us": row["overlapped_comm_ns"] / 1000.0}
        sink.complete(name, "profkit.cycle", lane.pid, _CYCLE, begin + lane.move, wall, args)


def _of(table: pa.Table, lane: _Lane) -> list[dict[str, Any]]:
    mine = pc.and_(
        pc.equal(table.column("rank"), pa.scalar(lane.number)),
        pc.is_in(table.column("cycle"), value_set=pa.array(lane.cycles, pa.int64())),
    )
    rows: list[dict[str, Any]] = table.filter(mine).to_pylist()
    return rows


def runs(rows: Sequence[Mapping[str, Any]], key: str) -> Iterator[tuple[str, int, int]]:
    """(word, start, end) of neighbouring segments with the same ``key`` in one cycle, joined."""
    held: tuple[str, int, int] | None = None
    cycle = None
    for row in rows:
        if held and row[key] == held[0] and row["start_ns"] == held[2] and row["cycle"] == cycle:
            held = (held[0], held[1], row["end_ns"])
            continue
        if held:
            yield held
        held, cycle = (row[key], row["start_ns"], row["end_ns"]), row["cycle"]
    if held:
        yield held


def _write_segments(sink: EventSink, lane: _Lane, segments: pa.Table) -> None:
    rows = sorted(_of(segments, lane), key=lambda r: r["start_ns"])
    for phase, begin, end in runs(rows, "phase"):
        sink.complete(_PHASES.get(phase, phase), "profkit.phase", lane.pid, _PHASE, begin + lane.move, end - begin)
    for row in rows:
        words = _ACTIVITIES.get(row["activity"], row["activity"])
        begin, length = row["start_ns"] + lane.move, row["end_ns"] - row["start_ns"]
        sink.complete(words, "profkit.activity", lane.pid, _ACTIVITY, begin, length, {"phase": row["phase"]})


def _write_streams(sink: EventSink, lane: _Lane, trace: Trace, ops: pa.Table) -> None:
    for op in op_rows(trace, ops, set(lane.cycles)):
        args = {
            "device": op.device, "stream": op.stream, "correlation": op.correlation, "External id": op.external_id,
            "phase": op.phase, "activity": op.activity, "class": op.kernel_class, "implementation": op.implementation,
        }  # fmt: skip
        sink.complete(op.name or "kernel", op.category, lane.pid, _FIRST_STREAM + (op.stream or 0),
                      op.raw_start_ns + lane.move, op.raw_duration_ns, args)  # fmt: skip


def _write_collectives(sink: EventSink, result: Attribution, lanes: Sequence[_Lane]) -> None:
    members: dict[tuple[Any, ...], list[tuple[int, _Lane]]] = {}
    for lane in lanes:
        for row in sorted(_of(result.calls, lane), key=lambda r: r["start_ns"]):
            _write_call(sink, lane, row)
            if row["transfer_ns"] is not None and row["aligned_cycle"] is not None:
                key = (lane.group, row["aligned_cycle"], row["phase"], row["kind"], row["ordinal"])
                members.setdefault(key, []).append((row["start_ns"] + lane.move, lane))
    for number, (key, found) in enumerate(members.items(), 1):
        _write_flow(sink, number, f"{key[3]} {key[4]}", sorted(found, key=lambda f: (f[0], f[1].number)))


def _write_call(sink: EventSink, lane: _Lane, row: Mapping[str, Any]) -> None:
    begin, length = row["start_ns"] + lane.move, row["duration_ns"]
    args = {"phase": row["phase"], "ordinal": row["ordinal"], "message bytes": row["message_bytes"]}
    name = f"{row['kind']} {row['ordinal']}"
    sink.complete(name, "profkit.collective", lane.pid, _COLLECTIVE, begin, length, args)
    if row["wait_ns"] is None or row["transfer_ns"] is None:
        return
    wait = min(row["wait_ns"], length)
    if wait > 0:
        sink.complete("wait", "profkit.wait", lane.pid, _COLLECTIVE, begin, wait)
    if length > wait:
        sink.complete("transfer", "profkit.transfer", lane.pid, _COLLECTIVE, begin + wait, length - wait)


def _write_flow(sink: EventSink, number: int, name: str, found: Sequence[tuple[int, _Lane]]) -> None:
    """An arrow through the members of one collective, from the first to arrive to the last."""
    if len(found) < 2:
        return
    for place, (at, lane) in enumerate(found):
        step = "s" if place == 0 else "f" if place == len(found) - 1 else "t"
        sink.flow(step, name, number, lane.pid, _COLLECTIVE, at)
