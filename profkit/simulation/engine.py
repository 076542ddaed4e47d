"""The machine: every rank's host thread and GPU streams, run in step because collectives tie the ranks together.

All ranks execute the same program, so one pass over it with a vector over ranks is a complete simulation: an
operation begins when its stream is free, its launch has arrived and what it waits for has ended; a collective ends on
all ranks when the last rank has arrived and the transfer is done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from profkit.simulation.noise import Noise
from profkit.simulation.ops import Enter, Op, Part
from profkit.simulation.scenario import Scenario
from profkit.words import Phase

Times = npt.NDArray[np.int64]
TICK_NS = 32  # resolution of the GPU's clock: begins and ends are multiples of it


def ticks(nanoseconds: npt.NDArray[np.float64], least: int = 0) -> Times:
    """Durations rounded to the GPU's clock, at least ``least`` ticks."""
    return np.maximum(least, np.rint(nanoseconds / TICK_NS)).astype(np.int64) * TICK_NS


@dataclass(slots=True)
class Block:
    """Consecutive operations of one stream: times have the shape (operations, ranks), in true ns."""

    ops: Sequence[Op]
    phase: Phase
    cycle: int
    stream: int
    recorded: Times  # where the record begins; earlier than ``begin`` with programmatic dependent launch
    begin: Times
    end: Times
    transfer: Times  # per operation: the transfer of a collective, else 0
    correlation: Times  # per operation
    external: Times  # per operation: id of the operator above it, 0 for none
    graph: int = 0
    nodes: Times | None = None
    annotation: int = 0  # external id of the innermost user annotation at the launch


@dataclass(slots=True)
class Host:
    """Something on the scheduler's thread; times per rank in true ns."""

    category: str  # user_annotation, cpu_op, cuda_runtime, cuda_driver, python_function
    name: str
    start: Times
    end: Times
    correlation: int = 0
    external: int = 0
    cycle: int = 0
    cbid: int = 0
    depth: int = 0


CBID = {
    "cudaLaunchKernel": 211,
    "cuLaunchKernelEx": 652,
    "cudaGraphLaunch": 311,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaStreamSynchronize": 131,
    "cudaEventSynchronize": 137,
    "cudaDeviceSynchronize": 165,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
}
MAIN_STREAM, SCHEDULE_STREAM, COPY_STREAM, SIDE_STREAM = 23, 7, 27, 31


@dataclass(slots=True)
class Graph:
    """A captured graph: its parts, its id and the ids of its nodes."""

    parts: tuple[Part, ...]
    identity: int


@dataclass(slots=True)
class Machine:
    """State of all ranks; see the module's text."""

    scenario: Scenario
    noise: Noise
    now: Times = field(init=False)  # the host threads
    free: dict[int, Times] = field(default_factory=dict)  # streams: end of the last operation
    blocks: list[Block] = field(default_factory=list)
    host: list[Host] = field(default_factory=list)
    cycle: int = 0
    phase: Phase = "other"
    slow: npt.NDArray[np.float64] = field(init=False)
    _correlation: int = 100_000
    _external: int = 20_000
    _graphs: int = 0
    _stack: list[int] = field(default_factory=list)
    _drifted: tuple[int, float] = (-1, 1.0)
    starts: dict[int, Times] = field(default_factory=dict)  # begin of each cycle on the target's stream
    boundary: frozenset[Phase] = frozenset({"draft", "verify", "decode"})
    keep: bool = True
    host_factor: float = 1.0
    op_overhead_ns: float = 0.0

    def __post_init__(self) -> None:
        ranks = self.scenario.ranks
        self.now = np.full(ranks, 1_000_000, dtype=np.int64)
        given = self.scenario.hardware.rank_slowdown
        self.slow = np.array([given[r] if r < len(given) else 1.0 for r in range(ranks)])

    # The host thread -------------------------------------------------------------------------------------------

    def next_correlation(self) -> int:
        self._correlation += 1 + int(self._correlation % 3)
        return self._correlation

    def next_external(self) -> int:
        self._external += 1
        return self._external

    def work(self, microseconds: float) -> None:
        """The host computes."""
        jitter = 1.0 + 0.04 * self.noise.normal(self.scenario.ranks)
        factor = self.scenario.hardware.host_speed * self.host_factor
        self.now = self.now + np.maximum(1, np.rint(microseconds * 1000.0 * factor * jitter)).astype(np.int64)

    def record(self, category: str, name: str, start: Times, *, correlation: int = 0, external: int = 0) -> Host:
        entry = Host(
            category, name, start, self.now.copy(), correlation, external, self.cycle, CBID.get(name, 0),
            len(self._stack),
        )  # fmt: skip
        if self.keep:
            self.host.append(entry)
        return entry

    @contextlib.contextmanager
    def span(self, category: str, name: str | None) -> Iterator[None]:
        """An annotation, operator or frame around what happens inside; ``None`` records nothing."""
        if name is None:
            yield
            return
        self.work(0.6)
        entry = self.record(category, name, self.now.copy(), external=self.next_external())
        marks = category == "user_annotation"
        if marks:
            self._stack.append(entry.external)
        yield
        if marks:
            self._stack.pop()
        self.work(0.4)
        entry.end = self.now.copy()

    def call(self, name: str, microseconds: float, *, correlation: int = 0, external: int = 0) -> Times:
        """A runtime call; returns when it started, per rank."""
        start = self.now.copy()
        self.work(microseconds)
        self.record(
            "cuda_driver" if name.startswith("cuL") else "cuda_runtime", name, start,
            correlation=correlation or self.next_correlation(), external=external,
        )  # fmt: skip
        return start

    # The streams -----------------------------------------------------------------------------------------------

    def _free(self, stream: int) -> Times:
        return self.free.get(stream, np.zeros(self.scenario.ranks, dtype=np.int64))

    def launch(self, ops: Sequence[Op], stream: int = MAIN_STREAM) -> None:
        """Launch operations one by one."""
        hardware = self.scenario.hardware
        latency = int(hardware.launch_latency_us * 1000)
        ready, correlations, externals = [], [], []
        for op in ops:
            correlation, external = self.next_correlation(), 0
            if op.op is not None:
                external = self.next_external()
                started = self.now.copy()
                self.work(hardware.launch_us * 0.5)
                self.call(op.api, hardware.launch_us * 0.5, correlation=correlation, external=external)
                self.record("cpu_op", op.op, started, external=external)
                self.now = self.now + 250  # operators never touch
            else:
                self.work(hardware.launch_us * 0.4)
                self.call(op.api, hardware.launch_us * 0.6, correlation=correlation)
            ready.append(self.now + latency)
            correlations.append(correlation)
            externals.append(external)
        self._run(
            ops, stream, np.stack(ready), hardware.eager_gap_ns,
            np.array(correlations, dtype=np.int64), np.array(externals, dtype=np.int64),
        )  # fmt: skip

    def capture(self, parts: Sequence[Part]) -> Graph:
        """A graph with an id of its own."""
        self._graphs += 1
        return Graph(tuple(parts), 8 + 4 * self._graphs)

    def replay(self, graph: Graph, stream: int = MAIN_STREAM) -> None:
        """Launch a graph: one call, one correlation for all its operations."""
        hardware = self.scenario.hardware
        correlation = self.next_correlation()
        self.call("cudaGraphLaunch", hardware.graph_launch_us, correlation=correlation)
        ready = self.now + int(hardware.launch_latency_us * 1000)
        node = graph.identity * 10_000
        run: list[Op] = []

        def flush() -> None:
            nonlocal node, ready
            if run:
                self._run_graph(run, stream, ready, correlation, graph.identity, node)
                node += len(run)
                run.clear()

        for part in graph.parts:
            if isinstance(part, Op):
                run.append(part)
                continue
            flush()
            if isinstance(part, Enter):
                self.phase = part.phase
                continue
            fork = self._free(stream).copy()
            self._run_graph(part.main, stream, ready, correlation, graph.identity, node)
            node += len(part.main)
            self.free[SIDE_STREAM] = np.maximum(self._free(SIDE_STREAM), fork)
            self._run_graph(part.side, SIDE_STREAM, ready, correlation, graph.identity, node)
            node += len(part.side)
            self.free[stream] = np.maximum(self.free[stream], self.free[SIDE_STREAM])
        flush()

    def _run_graph(self, ops: Sequence[Op], stream: int, ready: Times, correlation: int, graph: int, node: int) -> None:
        count = len(ops)
        self._run(
            list(ops), stream, np.broadcast_to(ready, (count, self.scenario.ranks)),
            self.scenario.hardware.graph_gap_ns,
            np.full(count, correlation, dtype=np.int64), np.zeros(count, dtype=np.int64),
            graph=graph, nodes=np.arange(node, node + count, dtype=np.int64),
        )  # fmt: skip

    def _run(
        self, ops: Sequence[Op], stream: int, ready: Times, gap_ns: float, correlation: Times, external: Times,
        *, graph: int = 0, nodes: Times | None = None,
    ) -> None:  # fmt: skip
        count, ranks = len(ops), self.scenario.ranks
        hardware = self.scenario.hardware
        base = np.array([op.duration_ns for op in ops])
        collective = np.array([op.collective is not None for op in ops])
        moved = np.array([op.activity == "compute" for op in ops])
        factor = 1.0 + hardware.compute_jitter * self.noise.normal(count, ranks)
        factor = np.where(moved[:, None], factor * self.slow, factor)
        work = ticks(base[:, None] * factor, 1)
        common = self._drift() * (1.0 + hardware.transfer_jitter * self.noise.normal(count))
        transfer = np.where(collective, ticks(base * common, 1), 0)
        if graph and hardware.pdl_early_ns > 0:
            gap_ns = 0.0  # a successor that is already resident goes on at once
        gaps = ticks((gap_ns + self.op_overhead_ns) * (1.0 + 0.2 * self.noise.normal(count, ranks)))
        ends = ticks(np.abs(hardware.end_jitter_ns * self.noise.normal(count, ranks)))
        ready = -(-ready // TICK_NS) * TICK_NS
        begin = np.empty((count, ranks), dtype=np.int64)
        end = np.empty((count, ranks), dtype=np.int64)
        at = self._free(stream)
        first = 0
        stops = [*np.flatnonzero(collective), count]
        for stop in stops:
            if stop > first:
                part = slice(first, stop)
                self._serial(at, ready[part], gaps[part], work[part], begin[part], end[part])
                at = end[stop - 1]
            if stop < count:
                arrived = np.maximum(at + gaps[stop], ready[stop])
                begin[stop] = arrived
                end[stop] = arrived.max() + transfer[stop] + ends[stop]
                at = end[stop]
            first = stop + 1
        self.free[stream] = at
        if self.phase in self.boundary and stream == MAIN_STREAM and self.cycle not in self.starts:
            self.starts[self.cycle] = begin[0]
        if not self.keep:
            return
        self.blocks.append(
            Block(
                ops, self.phase, self.cycle, stream, self._recorded(begin, end, graph), begin, end, transfer,
                correlation, external, graph, nodes, self._stack[-1] if self._stack else 0,
            )
        )  # fmt: skip

    def _drift(self) -> float:
        """How much slower or faster the link is in this cycle."""
        if self._drifted[0] != self.cycle:
            draw = float(self.noise.normal(1)[0])
            self._drifted = (self.cycle, 1.0 + self.scenario.hardware.transfer_drift * draw)
        return self._drifted[1]

    @staticmethod
    def _serial(at: Times, ready: Times, gaps: Times, work: Times, begin: Times, end: Times) -> None:
        """Fill ``begin`` and ``end`` of operations in a row: end_k = max(end_(k-1) + gap_k, ready_k) + work_k."""
        total = np.cumsum(gaps + work, axis=0)
        before = total - gaps - work
        end[...] = total + np.maximum(at, np.maximum.accumulate(ready - gaps - before, axis=0))
        begin[...] = end - work

    def _recorded(self, begin: Times, end: Times, graph: int) -> Times:
        early = self.scenario.hardware.pdl_early_ns
        if early <= 0 or not graph or len(begin) < 2:
            return begin
        recorded = begin.copy()
        earliest = np.maximum(begin[:-1], end[:-1] - int(early) // TICK_NS * TICK_NS)
        recorded[1:] = np.minimum(begin[1:], earliest)
        return recorded

    def wait_event(self, stream: int, other: int) -> None:
        """``stream`` waits for what ``other`` has queued so far."""
        self.free[stream] = np.maximum(self._free(stream), self._free(other))

    def wait_host(self, name: str, until: Times) -> None:
        """The host blocks in ``name`` until the given times."""
        start = self.now.copy()
        self.now = np.maximum(self.now, until)
        self.work(2.5)
        self.record("cuda_runtime", name, start, correlation=self.next_correlation())
