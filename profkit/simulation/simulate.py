"""Runs a scenario: the timeline that the profiler records, and the cycle times that the server's log averages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from profkit.simulation.engine import Machine
from profkit.simulation.noise import Noise
from profkit.simulation.programs import Program
from profkit.simulation.scenario import Scenario
from profkit.simulation.truth import Truth, collectives_of, entries_of, sweep, windows_of

_TRACE_STREAM, _LOG_STREAM, _ACCEPT_STREAM, _DRAW_STREAM = 1, 2, 3, 4


@dataclass(slots=True)
class Recorded:
    """The part of the timeline that the profiler writes, per rank, in true ns."""

    start_ns: list[int]
    stop_ns: list[int]


@dataclass(slots=True)
class LogCycle:
    """One cycle of the unprofiled server: its wall time and what each request gained."""

    wall_ns: int
    batch: int
    gained: int  # tokens of all requests together


@dataclass(slots=True)
class Simulation:
    """A simulated launch."""

    scenario: Scenario
    machine: Machine
    program: Program
    recorded: Recorded
    walls_ns: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict)  # by batch size, unprofiled
    accept_deck: npt.NDArray[np.int64] = field(default_factory=lambda: np.ones(1, dtype=np.int64))
    _truth: Truth | None = None

    def truth(self) -> Truth:
        """Counted on first use.

        Raises:
            ValueError: the launch was simulated without recording.
        """
        if not self.recorded.start_ns:
            raise ValueError("this launch was simulated without recording; call simulate(scenario) for its timeline")
        if self._truth is None:
            self._truth = _truth(self)
        return self._truth

    def log_cycles(self) -> Iterator[LogCycle]:
        """An endless run of unprofiled cycles."""
        serving = self.scenario.serving
        noise = Noise(self.scenario.seed, _DRAW_STREAM)
        deck, place, cycle = self.accept_deck, 0, 0
        shuffle = Noise(self.scenario.seed, _ACCEPT_STREAM)
        while True:
            batch = serving.batch_sizes[cycle % len(serving.batch_sizes)]
            pool = self.walls_ns[batch]
            pattern = max(1, len(serving.adaptive_steps))
            draw = int(noise.raw(1)[0] % np.uint64(pool.size // pattern)) * pattern + cycle % pattern
            wall = int(pool[draw])
            most = self.scenario.rows_of(cycle)
            gained = 0
            for _ in range(batch):
                if place % deck.size == 0:
                    deck = shuffle.shuffled(deck)
                gained += min(most, int(deck[place % deck.size]))
                place += 1
            yield LogCycle(wall, batch, gained)
            cycle += 1


def accept_lengths(scenario: Scenario, size: int = 400) -> npt.NDArray[np.int64]:
    """A deck of tokens gained per request and cycle, in the proportions of the conditional acceptances."""
    if not scenario.speculative:
        return np.ones(1, dtype=np.int64)
    reach, shares = 1.0, []
    for probability in scenario.drafter.conditional_acceptance:
        shares.append(reach * (1.0 - probability))
        reach *= probability
    shares.append(reach)
    borders = np.rint(np.cumsum(np.array(shares)) * size).astype(np.int64)
    counts = np.diff(np.concatenate([np.zeros(1, dtype=np.int64), borders]))
    return np.repeat(np.arange(1, len(shares) + 1, dtype=np.int64), counts)


def simulate(scenario: Scenario, *, record: bool = True) -> Simulation:
    """Run ``scenario``; the same scenario gives the same result on every machine.

    Without ``record`` only the cycles for the server's log are simulated, not the profiler's window.
    """
    skew = scenario.recording.start_skew_cycles
    machine = Machine(scenario, Noise(scenario.seed, _TRACE_STREAM))
    program = Program(scenario, machine)
    machine.boundary = program.boundary
    first = 2
    last = first + max(skew, default=0) + scenario.recording.cycles + 1
    machine.host_factor = scenario.recording.stack_slowdown
    if not record:
        simulation = Simulation(scenario, machine, program, Recorded([], []))
        simulation.walls_ns = _unprofiled(scenario)
        simulation.accept_deck = accept_lengths(scenario)
        return simulation
    machine.op_overhead_ns = scenario.recording.op_overhead_ns
    _run(program, last)
    program.cut(last)
    starts = [
        int(program.batch_begins[first + (skew[r] if r < len(skew) else 0)][r]) for r in range(scenario.ranks)
    ]  # fmt: skip
    done = np.max(np.stack(list(machine.free.values())), axis=0)
    stops = np.maximum(done, machine.now) + 40_000  # the profiler waits for the GPU, then reads its buffers
    recorded = Recorded(starts, [int(s) for s in stops])
    simulation = Simulation(scenario, machine, program, recorded)
    simulation.walls_ns = _unprofiled(scenario)
    simulation.accept_deck = accept_lengths(scenario)
    return simulation


def _run(program: Program, last: int) -> None:
    serving = program.scenario.serving
    for cycle in range(last):
        batch = serving.batch_sizes[cycle % len(serving.batch_sizes)]
        if cycle in serving.prefill_before:
            program.prefill(cycle, batch)
        program.run(cycle, batch)


def _unprofiled(scenario: Scenario) -> dict[int, npt.NDArray[np.int64]]:
    # A pause happened once, in the recording; the log's cycles are drawn again and again.
    scenario = replace(scenario, hardware=replace(scenario.hardware, pauses=()))
    machine = Machine(scenario, Noise(scenario.seed, _LOG_STREAM), keep=False)
    program = Program(scenario, machine)
    machine.boundary = program.boundary
    walls: dict[int, npt.NDArray[np.int64]] = {}
    cycle = 0
    for batch in sorted(set(scenario.serving.batch_sizes)):
        pattern = max(1, len(scenario.serving.adaptive_steps))
        cycle += -cycle % pattern
        first = cycle
        for _ in range(scenario.recording.log_cycles + 4):
            program.run(cycle, batch)
            cycle += 1
        begins = np.array(
            [int(machine.starts[n].mean()) for n in range(first + 3 + -3 % pattern, cycle)], dtype=np.int64
        )
        walls[batch] = np.diff(begins)
    return walls


def _truth(simulation: Simulation) -> Truth:
    machine, program, scenario = simulation.machine, simulation.program, simulation.scenario
    ranks, partial, counts = [], [], []
    for rank in range(scenario.ranks):
        begin = simulation.recorded.start_ns[rank]
        entries = entries_of(machine.blocks, rank, begin)
        windows = windows_of(machine.starts, rank, begin, program.cycle_batch, program.prefills)
        sweep(entries, windows)
        ranks.append(windows)
        counts.append(len(entries))
        before = bool(windows) and any(e.end <= windows[0].start_ns and e.phase != "other" for e in entries)
        partial.append(1 + int(before))
    common = set.intersection(*({w.cycle for w in one if not w.prefill} for one in ranks)) if ranks else set()
    given = scenario.hardware.clock_offset_us
    offsets = [(given[r] if r < len(given) else 0.0) for r in range(scenario.ranks)]
    return Truth(
        ranks, partial, counts, collectives_of(machine.blocks, common),
        [o - offsets[0] for o in offsets],
    )  # fmt: skip


def recorded_offset_ns(scenario: Scenario, rank: int) -> int:
    """Recorded minus true time of a rank."""
    given = scenario.hardware.clock_offset_us
    return round(given[rank] * 1000) if rank < len(given) else 0
