"""A host thread per rank, streams and CUDA graphs in simulated time; writes Kineto JSON and counts the truth itself.

Independent of the project's own simulator: nothing here or in ``independent_cycles`` is shared with it.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

MAIN, SCHEDULE, COPY, D2H, SIDE = 23, 7, 27, 31, 35  # stream ids; MAIN carries the forwards
BASE_NS = 1_790_000_000_000_000_000
Kernel = tuple[str, float, str]  # name, microseconds, kind
GRAPH_LAUNCH = "cudaGraphLaunch"


@dataclass(slots=True)
class Op:
    """One GPU op of one rank, with its true phase and cycle (-1: a prefill)."""

    name: str
    kind: str  # kernel, allreduce, comm, memcpy, memset
    start: int
    end: int
    stream: int
    phase: str
    cycle: int
    launch: int
    correlation: int
    owner: int  # innermost annotation at the launch, -1 for none
    graph: int = 0
    node: int = 0


@dataclass(slots=True)
class Host:
    """What one rank's scheduler thread has done so far."""

    now: int
    speed: float
    ops: list[Op] = field(default_factory=list)
    calls: list[tuple[str, str, int, int, int]] = field(default_factory=list)  # cat, name, start, end, correlation
    notes: list[list[Any]] = field(default_factory=list)  # name, start, end
    frames: list[list[Any]] = field(default_factory=list)  # name, start, end, parent
    free: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    correlation: int = 1000


class Machine:
    """All ranks run the same program; a collective ends on all of them together."""

    def __init__(self, ranks: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.hosts = [Host(0, 1.0 + 0.04 * r) for r in range(ranks)]
        self.cycle = -1
        self.early = 0  # ns by which a kernel may start before the one ahead of it ends
        self.note_stack: list[list[int]] = [[] for _ in range(ranks)]
        self.frame_stack: list[list[int]] = [[] for _ in range(ranks)]
        self.begin: list[int] | None = None  # per rank, when recording started
        self.stop: list[int] | None = None

    def host(self, us: float) -> None:
        """The host computes."""
        for h in self.hosts:
            h.now += int(us * 1000 * h.speed * self.rng.uniform(0.9, 1.1))

    def record(self, later_us: float = 0.0) -> None:
        """Start recording here or a little later: what began before is lost."""
        self.begin = [h.now + int(later_us * 1000) for h in self.hosts]

    def finish(self) -> None:
        """Stop recording after a device synchronisation, as the profiler's stop does."""
        self.wait(*(set().union(*[h.free for h in self.hosts])))
        self.stop = [h.now for h in self.hosts]

    def ends(self, *streams: int) -> list[int]:
        """Per rank, when the last op queued on the streams ends: an event."""
        return [max((h.free[s] for s in streams), default=0) for h in self.hosts]

    def fence(self, stream: int, event: Sequence[int]) -> None:
        """Ops queued on ``stream`` from now on wait for the event."""
        for h, t in zip(self.hosts, event, strict=True):
            h.free[stream] = max(h.free[stream], t)

    def wait(self, *streams: int, event: Sequence[int] | None = None, api: str = "cudaStreamSynchronize") -> None:
        """The host waits for streams or an event."""
        for h, t in zip(self.hosts, event or self.ends(*streams), strict=True):
            begun = h.now
            h.now = max(h.now + 3000, t + 4000)
            h.calls.append(("cuda_runtime", api, begun, h.now, 0))

    @contextmanager
    def note(self, name: str | None) -> Iterator[None]:
        """A ``record_function`` span around what is launched inside."""
        if name is None:
            yield
            return
        for r, h in enumerate(self.hosts):
            self.note_stack[r].append(len(h.notes))
            h.notes.append([name, h.now, 0])
            h.now += 1500
        yield
        for r, h in enumerate(self.hosts):
            h.now += 800
            h.notes[self.note_stack[r].pop()][2] = h.now

    @contextmanager
    def frame(self, *names: str) -> Iterator[None]:
        """Python functions, outermost first."""
        for name in names:
            for r, h in enumerate(self.hosts):
                parent = self.frame_stack[r][-1] if self.frame_stack[r] else -1
                self.frame_stack[r].append(len(h.frames))
                h.frames.append([name, h.now, 0, parent])
                h.now += 300
        yield
        for _ in names:
            for r, h in enumerate(self.hosts):
                h.now += 200
                h.frames[self.frame_stack[r].pop()][2] = h.now

    def launch(self, phase: str, *kernels: Kernel, stream: int = MAIN, host_us: float = 5.0) -> None:
        """Launch each kernel eagerly."""
        for name, us, kind in kernels:
            driver = "triton" in kind
            kind = kind.rstrip("@").replace("triton", "kernel")
            api = {"memcpy": "cudaMemcpyAsync", "memset": "cudaMemsetAsync"}.get(kind, "cudaLaunchKernel")
            if driver:
                api = "cuLaunchKernelEx"
            begun = [h.now for h in self.hosts]
            self.host(host_us)
            for h, b in zip(self.hosts, begun, strict=True):
                h.correlation += 1
                cat = "cuda_driver" if driver else "cuda_runtime"
                h.calls.append((cat, api, b + 1000, max(h.now - 500, b + 1500), h.correlation))
            self._queue(name, us, kind, phase, stream, 0, 0, [b + 1000 for b in begun], 2500, 1200)

    def replay(
        self, graph: int, kernels: Sequence[tuple[str, Kernel]], stream: int = MAIN, host_us: float = 40.0
    ) -> None:
        """Replay a CUDA graph: (phase, kernel) in order."""
        begun = [h.now for h in self.hosts]
        self.host(host_us)
        for h, b in zip(self.hosts, begun, strict=True):
            h.correlation += 1
            h.calls.append(("cuda_runtime", GRAPH_LAUNCH, b + 1000, h.now - 500, h.correlation))
        beside = 0  # kernels since the last that ran on the graph's second branch
        for node, (phase, (name, us, kind)) in enumerate(kernels):
            branch = kind.endswith("@")
            if branch:
                self.fence(stream + 1, self.ends(stream))
            elif beside == 2:
                self.fence(stream, self.ends(stream + 1))
            beside = 1 if branch else (beside + 1 if beside else 0)
            kind = kind.rstrip("@").replace("triton", "kernel")
            self._queue(name, us, kind, phase, stream + branch, graph, node + 1, [t + 1000 for t in begun], 6000, 700)

    def _queue(self, name: str, us: float, kind: str, phase: str, stream: int, graph: int, node: int,
               called: Sequence[int], latency: int, gap: int) -> None:  # fmt: skip
        starts = [
            max(
                h.free[stream] - self.early + int(gap * self.rng.uniform(0.8, 1.2)),
                c + int(latency * self.rng.uniform(0.9, 1.1)),
            )
            for h, c in zip(self.hosts, called, strict=True)
        ]
        lasts = [int(us * 1000 * self.rng.uniform(0.98, 1.02)) for _ in self.hosts]
        if kind in ("allreduce", "comm"):
            finish = max(starts) + lasts[0]
            lasts = [finish + int(self.rng.integers(-60, 60)) - s for s in starts]
        for r, h in enumerate(self.hosts):
            owner = self.note_stack[r][-1] if self.note_stack[r] else -1
            h.ops.append(Op(name, kind, starts[r], starts[r] + max(lasts[r], 900), stream, phase, self.cycle,
                            called[r], h.correlation, owner, graph, node))  # fmt: skip
            h.free[stream] = h.ops[-1].end

    # --- files -----------------------------------------------------------------------------------

    def recorded(self, rank: int) -> list[Op]:
        """The ops that are in the file, in file order."""
        begin, stop = (self.begin or [0] * len(self.hosts))[rank], (self.stop or [1 << 62] * len(self.hosts))[rank]
        return [op for op in self.hosts[rank].ops if begin <= op.start < stop]

    def write(self, folder: Path, evidence: str, hidden: bool = False) -> None:
        """One Kineto file per rank with the evidence asked for; ``hidden`` gives Triton kernels names nobody knows."""
        if hidden:
            for h in self.hosts:
                for op in h.ops:
                    if op.name.isidentifier() and "moe" not in op.name and op.kind == "kernel":
                        op.name = f"kernel_{zlib.crc32(op.name.encode()):08x}"
                    op.name = op.name.replace("VerifyTreeGreedy", "Krn7").replace("TreeSpeculativeSampling", "Krn8")
                    op.name = op.name.replace("build_tree_efficient", "Krn9").replace("reconstructIndices", "Krn10")
        for rank in range(len(self.hosts)):
            name = f"1764400000.123-TP-{rank}-DECODE.trace.json"
            (folder / name).write_text(json.dumps(self._document(rank, evidence)))

    def _document(self, rank: int, evidence: str) -> dict[str, Any]:
        h, pid = self.hosts[rank], 4000 + rank
        begin, stop = (self.begin or [0] * len(self.hosts))[rank], (self.stop or [1 << 62] * len(self.hosts))[rank]
        offset = self.offset(rank)

        def event(cat: str, name: str, start: int, end: int, pid: int, tid: int, **args: Any) -> dict[str, Any]:
            return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": (start + offset) / 1000,
                    "dur": (end - start) / 1000, "args": args}  # fmt: skip

        ops = self.recorded(rank)
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": "python3"}},
            {"ph": "M", "name": "process_labels", "pid": rank, "tid": 0, "ts": 0, "args": {"labels": f"GPU {rank}"}},
        ]
        host = evidence in ("annotations", "stacks", "frames", "launches")
        if evidence in ("annotations", "stacks"):
            for name, start, end in h.notes:
                if begin <= start < stop and end:
                    events.append(event("user_annotation", name, start, end, pid, pid, **{"Record function id": 0}))
        if evidence in ("stacks", "frames"):
            for i, (name, start, end, parent) in enumerate(h.frames):
                if begin <= end and start < stop:
                    args = {"Python parent id": parent if parent >= 0 else None, "Python id": i}
                    events.append(event("python_function", name, max(start, begin), min(end, stop), pid, pid, **args))
        if host:
            for cat, name, start, end, correlation in h.calls:
                if begin <= start < stop:
                    args = {"cbid": 211, "correlation": correlation} if correlation else {"cbid": 131, "correlation": 0}
                    events.append(event(cat, name, start, end, pid, pid, **args))
        if evidence in ("annotations", "stacks", "gpu_annotations"):
            events += self._hulls(h, [op for op in ops if op.owner >= 0 and h.notes[op.owner][1] >= begin], rank, event)
        for op in ops:
            cat = {"memcpy": "gpu_memcpy", "memset": "gpu_memset"}.get(op.kind, "kernel")
            args = {"device": rank, "context": 1, "stream": op.stream, "correlation": op.correlation}
            if cat == "kernel":
                args |= {"grid": [132, 1, 1], "block": [256, 1, 1]}
            else:
                args["bytes"] = 4096
            if op.graph:
                args |= {"graph id": op.graph, "graph node id": op.graph * 10_000 + op.node}
            events.append(event(cat, op.name, op.start, op.end, rank, op.stream, **args))
        world = len(self.hosts)
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": r, "name": "NVIDIA H200", "numSms": 132} for r in range(world)],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": BASE_NS,
            "traceEvents": events,
        }

    @staticmethod
    def _hulls(h: Host, ops: list[Op], rank: int, event: Any) -> list[dict[str, Any]]:
        """Kineto's rule: per stream, the hull of the ops whose innermost annotation is the instance."""
        hulls: dict[tuple[int, int], list[int]] = {}
        for op in ops:
            found = hulls.setdefault((op.owner, op.stream), [op.start, op.end])
            found[:] = [min(found[0], op.start), max(found[1], op.end)]
        return [event("gpu_user_annotation", h.notes[o][0], a, b, rank, s) for (o, s), (a, b) in hulls.items()]

    # --- truth -----------------------------------------------------------------------------------

    def truth(self, rank: int, first_phases: Sequence[str] = ("draft", "verify", "decode")) -> list[Window]:
        """The cycles of a rank, each from its first op to that of the next, cut by the accounting rules."""
        ops, everything = self.recorded(rank), self.hosts[rank].ops
        starts: dict[int, int] = {}
        for phase in first_phases:
            for op in everything:
                if op.phase == phase and op.cycle >= 0 and op.stream == MAIN and op.cycle not in starts:
                    starts[op.cycle] = op.start
        known = sorted((t, c) for c, t in starts.items() if t >= self.begin_of(rank))
        windows = []
        for (start, cycle), (end, _) in pairwise(known):
            inside = [op for op in ops if start <= op.start < end]
            prefill = any(op.cycle < 0 and op.stream == MAIN for op in inside)
            calls = sum(op.kind == "allreduce" for op in inside)
            windows.append(Window(cycle, start, end, prefill, _sweep(ops, start, end), calls))
        return windows

    @staticmethod
    def offset(rank: int) -> int:
        """From simulated time to that in the file; ranks' clocks differ a little."""
        return 5_000_000_000 + rank * 3_000

    def begin_of(self, rank: int) -> int:
        """When the recording of a rank started."""
        return self.begin[rank] if self.begin else 0


@dataclass(frozen=True, slots=True)
class Window:
    """A true cycle of one rank."""

    cycle: int
    start: int
    end: int
    prefill: bool
    parts: dict[tuple[str, str], int]
    allreduces: int


ACTIVITY = {"kernel": "compute", "allreduce": "allreduce", "comm": "comm", "memcpy": "memory", "memset": "memory"}
RANK = {"compute": 0, "allreduce": 1, "comm": 2, "memory": 3}


def _sweep(ops: list[Op], start: int, end: int) -> dict[tuple[str, str], int]:
    """Accounting rule 3, one elementary interval after the other."""
    spans: list[tuple[int, int, Op]] = []
    last: dict[int, int] = defaultdict(int)
    for op in sorted(ops, key=lambda o: o.start):
        begin = max(op.start, last[op.stream])
        last[op.stream] = max(last[op.stream], op.end)
        if begin < op.end and begin < end and op.end > start:
            spans.append((begin, op.end, op))
    order = sorted(ops, key=lambda o: (o.start, o.stream != MAIN))
    begins = [o.start for o in order]
    cuts = sorted({start, end, *(t for a, b, _ in spans for t in (a, b) if start < t < end)})
    parts: dict[tuple[str, str], int] = defaultdict(int)
    spans.sort(key=lambda s: s[0])
    active: list[tuple[int, int, Op]] = []
    following = 0
    for a, b in pairwise(cuts):
        while following < len(spans) and spans[following][0] <= a:
            active.append(spans[following])
            following += 1
        active = [s for s in active if s[1] > a]
        if active:
            best = min(active, key=lambda s: (RANK[ACTIVITY[s[2].kind]], s[2].stream != MAIN, s[0]))[2]
            parts[best.phase, ACTIVITY[best.kind]] += b - a
        else:
            place = bisect_right(begins, a)
            after = order[min(place, len(order) - 1)]
            parts[after.phase, "idle"] += b - a
    return dict(parts)
