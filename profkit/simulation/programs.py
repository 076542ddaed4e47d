"""What one decode cycle does on the host and on the GPU, per algorithm and worker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from profkit.simulation.blocks import block_prefill, dflash_cycle, dspark_cycle
from profkit.simulation.dialects import BLOCK_DRAFTERS, Annotations, frame_name
from profkit.simulation.engine import COPY_STREAM, MAIN_STREAM, SCHEDULE_STREAM, Graph, Machine, Times
from profkit.simulation.ops import Fork, Kernels, Op, Part
from profkit.simulation.scenario import Scenario
from profkit.words import Phase

_D2H = "Memcpy DtoH (Device -> Pinned)"
_H2D = "Memcpy HtoD (Pinned -> Device)"
_D2D = "Memcpy DtoD (Device -> Device)"


def flat(parts: Sequence[Part]) -> list[Op]:
    """The operations of a pass without forks, for an eager run."""
    out: list[Op] = []
    for part in parts:
        if isinstance(part, Fork):
            out.extend([*part.main, *part.side])
        elif isinstance(part, Op):
            out.append(part)
    return out


@dataclass(slots=True)
class Program:
    """Runs cycles of one scenario on a machine."""

    scenario: Scenario
    machine: Machine
    kernels: Kernels = field(init=False)
    names: Annotations = field(init=False)
    copied: list[Times] = field(default_factory=list)  # when each cycle's result is in host memory
    cycle_batch: dict[int, int] = field(default_factory=dict)
    prefills: set[int] = field(default_factory=set)
    batch_begins: dict[int, Times] = field(default_factory=dict)  # host time at which the cycle's batch was started
    _graphs: dict[tuple[str, int], Graph] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kernels = Kernels(self.scenario)
        self.names = Annotations(self.scenario)

    @property
    def boundary(self) -> frozenset[Phase]:
        """Phases whose first operation begins a cycle: the draft's where it runs on the GPU."""
        if self.scenario.serving.worker == "vllm":
            return frozenset({"draft"})
        return frozenset({"draft", "verify", "decode"})

    # Building blocks -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def within(self, annotation: str | None = None, frame: str | None = None) -> Iterator[None]:
        with (
            self.machine.span("python_function", frame_name(self.scenario, frame) if frame else None),
            self.machine.span("user_annotation", annotation),
        ):
            yield

    def graph(self, key: str, rows: int, make: Callable[[], Sequence[Part]]) -> Graph:
        """The graph of a pass over this many rows, captured on first use."""
        if (key, rows) not in self._graphs:
            self._graphs[key, rows] = self.machine.capture(make())
        return self._graphs[key, rows]

    def drafted(self, rows: int) -> list[Part]:
        return self.kernels.draft_forward(rows, self.scenario.drafter.forward_compute_us)

    def extended(self, rows: int) -> list[Part]:
        return self.kernels.draft_forward(rows, self.scenario.drafter.extend_compute_us, extend=True)

    def rows(self, batch: int) -> int:
        return batch * self.scenario.rows_of(self.machine.cycle)

    def target(self, batch: int, tail: Sequence[Part] = ()) -> None:
        """Copies into the forward's buffers and the target forward itself, with what its graph does after it."""
        k, rows = self.kernels, self.rows(batch)
        with self.within(self.names.target(batch), "decode" if not self.scenario.speculative else None):
            self.machine.launch([k.kernel("plan", 2.0), k.kernel("copy", 1.5), k.copy(_D2D, 8 * rows, 1.3)])
            if self.scenario.serving.target_graph:
                with self.within(frame="target_graph"):
                    self.machine.replay(self.graph("target", rows, lambda: [*k.target_forward(rows), *tail]))
            else:
                self.machine.launch(flat(k.target_forward(rows)))

    def _future(self) -> None:
        """Inputs of this batch that the previous one, still running, will have left on the GPU."""
        if self.scenario.serving.overlap:
            self.machine.launch([self.kernels.kernel("gather", 1.6), self.kernels.kernel("gather", 1.6)])

    def _store_future(self) -> None:
        if self.scenario.serving.overlap:
            self.machine.launch([self.kernels.kernel("scatter", 1.7)])

    def _copy_result(self, batch: int) -> None:
        """Result copies of the overlap scheduler on the copy stream."""
        k, machine = self.kernels, self.machine
        with self.within(self.names.copy_result()):
            machine.wait_event(COPY_STREAM, MAIN_STREAM)
            machine.launch([k.copy(_D2H, 8 * self.rows(batch), 1.6), k.copy(_D2H, 8 * batch, 1.5)], COPY_STREAM)
            machine.call("cudaEventRecord", 0.9)
        self.copied.append(machine.free[COPY_STREAM].copy())

    def _choose(self, cycle: int) -> None:
        """What the scheduler does before it runs a batch."""
        machine = self.machine
        machine.cycle, machine.phase = cycle, "other"
        for what, microseconds in (
            ("recv_requests", 35.0), ("process_input_requests", 4.0), ("get_next_batch_to_run", 60.0),
        ):  # fmt: skip
            with self.within(self.names.scheduler(what)):
                machine.work(microseconds)

    def cut(self, cycle: int) -> None:
        """The scheduler begins one more batch, in which the profiler is stopped before anything is launched."""
        machine = self.machine
        self._choose(cycle)
        with self.within(self.names.scheduler("run_batch")):
            machine.work(2.0)
            idle = np.max(np.stack(list(machine.free.values())), axis=0)
            machine.wait_host("cudaDeviceSynchronize", idle)

    # One cycle -------------------------------------------------------------------------------------------------

    def run(self, cycle: int, batch: int) -> None:
        """Schedule, launch and process one cycle."""
        machine, names = self.machine, self.names
        self.cycle_batch[cycle] = batch
        names.cycle = cycle
        self._choose(cycle)
        machine.launch([self.kernels.copy(_H2D, 8 * batch, 1.4)], SCHEDULE_STREAM)
        machine.wait_event(MAIN_STREAM, SCHEDULE_STREAM)
        with self.within(names.scheduler("run_batch"), "run"):
            machine.work(2.0)
            self.batch_begins[cycle] = machine.now.copy()  # where the server would start or stop its profiler
            for at, rank, microseconds in self.scenario.hardware.pauses:
                if at == cycle:
                    machine.now[rank] += round(microseconds * 1000)
            machine.work(38.0)
            self._future()
            {
                "none": self._decode, "NGRAM": self._ngram, "MTP": self._mtp,
                "DFLASH": self._dflash, "DSPARK": self._dspark,
            }.get(self.scenario.serving.algorithm, self._eagle)(batch)  # fmt: skip
            machine.phase = "other"
            self._store_future()
            if self.scenario.serving.worker != "v1":
                self._copy_result(batch)
        if self.scenario.serving.overlap:
            if len(self.copied) > 1:
                self._process(self.copied[-2])
        else:
            self._process(self.copied[-1])

    def _process(self, copied: Times) -> None:
        with self.within(self.names.scheduler("process_batch_result")):
            self.machine.wait_host("cudaEventSynchronize", copied)
            self.machine.work(180.0)

    def _decode(self, batch: int) -> None:
        k, machine = self.kernels, self.machine
        machine.phase = "decode"
        self.target(batch)
        machine.phase = "accept"
        with self.within(frame="sample"):
            machine.launch([k.kernel("argmax", 6.5, grid=batch), k.kernel("copy", 1.4)])

    def _draft(self, batch: int) -> None:
        """The EAGLE draft: cache locations, metadata, num_steps - 1 forwards, the tree."""
        k, machine, serving = self.kernels, self.machine, self.scenario.serving
        rows = batch * serving.topk
        machine.phase = "draft"
        with self.within(self.names.stage("draft"), "draft"):
            machine.launch(
                [k.kernel("assign_draft", 2.4), k.kernel("draft_indices", 2.9), k.kernel("cumsum", 2.6),
                 k.kernel("copy", 1.5), k.kernel("copy", 1.5)]
            )  # fmt: skip
            if serving.worker == "v1":
                machine.launch([k.memset(4 * rows, 1.1)])
            passes = self.scenario.steps_of(machine.cycle) - 1
            if passes and serving.draft_graph:
                with self.within(frame="draft_graph"):
                    machine.replay(self.graph(f"draft{passes}", rows, lambda: self.drafted(rows) * passes))
            elif passes:
                with self.within(frame="draft_eager"):
                    for _ in range(passes):
                        with self.within(self.names.draft_step(batch)):
                            machine.launch(flat(self.drafted(rows)))
            with self.within(frame="tree"):
                machine.launch([k.kernel("topk", 4.0), k.kernel("build_tree", 4.5)])

    def _accept(self, batch: int) -> None:
        k, machine = self.kernels, self.machine
        machine.phase = "accept"
        with self.within(frame="accept"):
            machine.launch([k.kernel("argmax", 8.0, grid=self.rows(batch)), k.kernel("verify_tree", 3.4)])
            if self.scenario.serving.worker == "v1":
                machine.launch([k.copy("Memcpy DtoH (Device -> Pageable)", 8 * self.rows(batch), 1.9)])
                self.machine.wait_host("cudaStreamSynchronize", machine.free[MAIN_STREAM])
                machine.work(160.0)
                machine.launch([k.kernel("fill_verified", 2.0)])
            else:
                machine.launch([k.kernel("fill_bonus", 2.0), k.kernel("commit", 2.0)])

    def _extend(self, batch: int) -> None:
        k, machine, serving = self.kernels, self.machine, self.scenario.serving
        rows = self.rows(batch)
        machine.phase = "draft_extend"
        with self.within(self.names.stage("draft_extend"), "extend"):
            first = "extend_info" if serving.worker == "v1" else "extend_prepare"
            machine.launch([k.kernel(first, 2.2), k.kernel("plan", 2.1), k.kernel("copy", 1.5)])
            if serving.extend_graph:
                with self.within(frame="extend_graph"):
                    machine.replay(self.graph("extend", rows, lambda: self.extended(rows)))
            else:
                with self.within(self.names.extend_step(batch)):
                    machine.launch(flat(self.extended(rows)))
            machine.launch([k.kernel("gather", 1.6)])

    def _eagle(self, batch: int) -> None:
        k, machine = self.kernels, self.machine
        if self.scenario.serving.worker == "vllm":
            self._vllm(batch)
            return
        with self.within(frame="cycle"):
            self._draft(batch)
            machine.phase = "verify"
            with self.within(frame="verify"):
                first = "assign_pool" if self.scenario.serving.worker == "v1" else "assign_extend"
                machine.launch([k.kernel(first, 2.3)])
                self.target(batch)
                self._accept(batch)
            self._extend(batch)
        if self.scenario.serving.worker == "v1":
            self.copied.append(machine.free[MAIN_STREAM].copy())

    def _ngram(self, batch: int) -> None:
        """The draft is a corpus lookup on the CPU, after the previous result has come back."""
        k, machine = self.kernels, self.machine
        with self.within(frame="ngram"):
            machine.phase = "verify"
            if self.copied:
                machine.wait_host("cudaEventSynchronize", self.copied[-1])
            machine.work(self.scenario.drafter.corpus_match_us)
            size = self.rows(batch)
            machine.launch([k.copy(_H2D, 8 * size, 1.6), k.copy(_H2D, size * size, 1.6), k.kernel("tree_mask", 3.0)])
            machine.launch([k.kernel("assign_extend", 2.3)])
            self.target(batch)
            self._accept(batch)
        if self.scenario.serving.worker == "v1":
            self.copied.append(machine.free[MAIN_STREAM].copy())

    def _dflash(self, batch: int) -> None:
        dflash_cycle(self, batch)

    def _dspark(self, batch: int) -> None:
        dspark_cycle(self, batch)

    def _mtp(self, batch: int) -> None:
        """Multi-layer MTP: the draft has no forward; draft_extend runs one small forward per layer."""
        k, machine, serving = self.kernels, self.machine, self.scenario.serving
        rows = self.rows(batch)
        with self.within(frame="cycle"):
            machine.phase = "draft"
            with self.within(frame="draft"):
                machine.launch([k.kernel("topk", 4.0), k.kernel("build_tree", 4.5)])
            machine.phase = "verify"
            machine.launch([k.kernel("assign_extend", 2.3)])
            self.target(batch)
            self._accept(batch)
            machine.phase = "draft_extend"
            with self.within(frame="extend"):
                machine.launch([k.kernel("extend_prepare", 2.2)])
                for step in range(serving.num_steps):
                    with self.within(self.names.extend_step(batch)):
                        machine.replay(self.graph(f"extend{step}", rows, lambda: self.extended(rows)))
                    machine.launch([k.kernel("rotate", 2.0)])

    def _vllm(self, batch: int) -> None:
        """vLLM's order: verify the last round's drafts, sample, then draft; there is no draft_extend."""
        k, machine, serving = self.kernels, self.machine, self.scenario.serving
        rows = self.rows(batch)
        machine.phase = "verify"
        with self.within(f"execute_context_0(0)_generation_{batch}({rows})"):
            machine.launch([k.copy(_H2D, 8 * rows, 1.6), k.kernel("gather", 1.6)])
            machine.replay(self.graph("target", rows, lambda: k.target_forward(rows)))
        machine.phase = "accept"
        with self.within("gpu_model_runner: sample"):
            machine.launch([k.kernel("argmax", 8.0), k.kernel("rejection", 3.2)])
        machine.phase = "draft"
        with self.within("gpu_model_runner: draft"):
            machine.launch([k.kernel("padded_next", 2.2), k.kernel("padded_inputs", 2.2)])
            machine.replay(self.graph("first", rows, lambda: self.extended(rows)))
            for _ in range(serving.num_steps - 1):
                machine.launch([k.kernel("slot_mapping", 2.2)])
                machine.replay(self.graph("draft", batch, lambda: self.drafted(batch)))

    def prefill(self, cycle: int, batch: int) -> None:
        """A prefill between two cycles: the target over the prompt, then the drafter over it."""
        machine, serving = self.machine, self.scenario.serving
        machine.cycle, machine.phase = cycle, "other"
        self.prefills.add(cycle)
        tokens = serving.prefill_tokens
        with self.within(self.names.scheduler("run_batch"), "run"):
            block = serving.algorithm in BLOCK_DRAFTERS
            with self.within(frame="block_prefill" if block else None):
                with (
                    self.within(frame="block_target" if block else None),
                    self.within(self.names.prefill(batch, tokens), "block_draft" if block else None),
                ):
                    machine.launch(self._scaled(self.kernels.target_forward(64), tokens / 64))
                if block:
                    with self.within(frame="block_append" if serving.algorithm == "DFLASH" else None):
                        machine.launch(self._scaled(block_prefill(self), tokens / 64))
            if not block and self.scenario.speculative and serving.algorithm != "NGRAM":
                with (
                    self.within(self.names.stage("draft_extend")),
                    self.within(self.names.prefill(batch, tokens, draft=True)),
                ):
                    machine.launch(self._scaled(self.extended(64), tokens / 64))
            self._copy_result(batch)
        self._process(self.copied[-1])

    @staticmethod
    def _scaled(parts: Sequence[Part], factor: float) -> list[Op]:
        return [replace(op, duration_ns=op.duration_ns * factor**0.5, grid=op.grid * 8) for op in flat(parts)]
