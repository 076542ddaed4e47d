"""Decode cycles as SGLang's own workers launch them, release by release, with the truth of every op.

The order of launches, annotations, functions and marker kernels follows the source of SGLang 0.5.9, 0.5.11, 0.5.14,
0.5.16, 0.5.20 and 0.5.23 (``srt/speculative``, ``srt/managers/scheduler.py``, ``srt/model_executor``). Durations, host
times, line numbers of functions and the number of small tensor kernels between markers are invented.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.independent_kernels import (
    ARGMAX,
    BROADCAST,
    D2D,
    D2H_COPY,
    EW,
    FILL,
    FOREACH,
    H2D,
    INDEX,
    INDEX_PUT,
    SAMPLE,
    SOFTMAX,
    VERIFY_SAMPLED,
    VERIFY_TREE,
    forward,
    triton,
)
from tests.independent_machine import COPY, D2H, MAIN, SCHEDULE, SIDE, Kernel, Machine

Item = tuple[str, int] | tuple[str, int, int]  # ("d", batch size[, steps]), ("p", tokens), ("m", decoding requests)
DECODES: tuple[Item, ...] = (("d", 4),) * 7


@dataclass(frozen=True)
class Case:
    """One recording: what serves, and what of it is in the file."""

    version: str = "0.5.16"
    mode: str = "eagle"  # eagle, standalone, frozen (KV MTP), mtp, ngram, dflash, dspark, none
    evidence: str = "annotations"  # annotations, stacks (both), frames, launches, gpu_annotations, gpu
    steps: int = 3
    topk: int = 1
    ranks: int = 1
    family: str = "fa3"
    layers: int = 12
    drafter: str = "fa3"
    draft_layers: int = 1
    target_graph: bool = True
    draft_graph: bool = True
    extend_graph: bool = True
    greedy: bool = True
    overlap: bool = True
    detailed: bool = False
    worker: str = ""  # v1 or v2 where a release has both
    plan_stream: bool = False  # SGLANG_ENABLE_OVERLAP_PLAN_STREAM
    branches: bool = False  # graphs with a second branch (shared experts beside routed ones)
    pieces: int = 0  # the target forward as so many graphs (piecewise) instead of one
    grammar: bool = False  # structured output: the host reads the draft before verify
    early: bool = False  # programmatic dependent launch: kernels start a little before the one ahead ends
    hidden: bool = False  # kernel names that no table knows
    folded: bool = False  # DSPARK: acceptance inside the graph of verify
    start: str = "mid"  # mid: between two turns of the loop, cut: within one; idle: before the first launch
    cut_us: float = 0.0
    script: tuple[Item, ...] = field(default=DECODES)

    @property
    def release(self) -> int:
        """The number after 0.5."""
        return int(self.version.split(".")[2])


class Server:
    """The scheduler's loop and what all workers share. Every method launches in the order of the source."""

    stages = False  # whether the worker opens the spans draft and draft_extend

    def __init__(self, case: Case, machine: Machine) -> None:
        self.c, self.m = case, machine
        self.cycle = 0
        self.stream = MAIN
        machine.early = 1900 if case.early else 0
        self.steps = case.steps
        self.mixed = False  # the prefill takes the decoding requests along (mixed chunks)
        self.pending: list[int] | None = None
        self.published: list[int] | None = None

    # --- small things ----------------------------------------------------------------------------

    def fn(self, file: str, *functions: str) -> list[str]:
        """Python frames of functions of one file, outermost first."""
        return [f"sglang/srt/{file}({100 + zlib.crc32((file + f).encode()) % 1900}): {f}" for f in functions]

    def step(self, mode: str, bs: int, *, draft: bool = False, tokens: int = 0) -> str | None:
        """The name of the span around ModelRunner.forward."""
        if self.c.release < 11:
            return None
        if self.c.release >= 20:
            mode = "DRAFT" if draft else {"TARGET_VERIFY": "VERIFY"}.get(mode, mode)
        name = f"step[{mode} bs={bs}" + (f" toks={tokens}" if tokens else "")
        if self.c.detailed:
            name += f" g_sq={4 * bs} g_sqsq={16 * bs} g_sqsk={8192 * bs} g_sk={2048 * bs} forward_id={self.cycle}"
        return name + "]"

    @contextmanager
    def scheduler(self, name: str) -> Iterator[None]:
        """A function of the scheduler; from 0.5.14 it has a span."""
        span = f"scheduler.{name}" if self.c.release >= 14 else None
        with self.m.note(span), self.m.frame(*self.fn("managers/scheduler.py", name)):
            yield

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """The spans draft and draft_extend, where the worker has them."""
        with self.m.note(name if self.stages and self.c.release >= 14 else None):
            yield

    @property
    def width(self) -> int:
        """Tokens per request in verify."""
        return self.steps + 1 if self.c.topk == 1 else 8

    def eager(self, phase: str, *kernels: Kernel) -> None:
        """Eager launches on the current stream."""
        self.m.launch(phase, *kernels, stream=self.stream)

    @contextmanager
    def planning(self) -> Iterator[None]:
        """What runs on the plan stream, if there is one: it waits for the forward's stream, which waits for it."""
        if self.c.plan_stream:
            self.m.fence(SIDE, self.m.ends(MAIN))
            self.stream = SIDE
        yield
        self.stream = MAIN
        if self.c.plan_stream:
            self.m.fence(MAIN, self.m.ends(SIDE))

    def model(self, phase: str, draft: bool, tokens: int, *, prefill: bool = False) -> list[tuple[str, Kernel]]:
        """The kernels of one forward."""
        c = self.c
        family, layers = (c.drafter, c.draft_layers) if draft else (c.family, c.layers)
        kernels = forward(
            family, layers, tokens, c.ranks, prefill=prefill, head=not draft or c.mode not in ("dflash", "dspark")
        )
        if c.branches and not prefill:
            kernels = [
                (n, us, kind + "@") if i % 9 == 7 and kind == "kernel" else (n, us, kind)
                for i, (n, us, kind) in enumerate(kernels)
            ]
        return [(phase, k) for k in kernels]

    def run(self, graph_id: int, kernels: list[tuple[str, Kernel]], *, decode: bool = False) -> None:
        """What ModelRunner._forward_raw does: replay the target's graph, or (0) launch one by one."""
        new = self.c.release >= 14
        if graph_id:
            names = self.fn("model_executor/cuda_graph_runner.py", "replay")
            if new:
                names = self.fn("model_executor/runner/decode_cuda_graph_runner.py", "execute")
                names += self.fn("model_executor/runner_backend/full_cuda_graph_backend.py", "replay")
            pieces = max(self.c.pieces, 1)
            size = -(-len(kernels) // pieces)
            with self.m.frame(*names):
                for i in range(pieces):
                    self.m.replay(
                        graph_id * 10 + i, kernels[i * size : (i + 1) * size], host_us=40.0 if pieces == 1 else 15.0
                    )
            return
        names = self.fn("model_executor/model_runner.py", "forward_decode" if decode else "forward_extend")
        if new:
            file = "model_executor/runner/eager_runner.py"
            names = self.fn(file, "execute", "_execute_decode" if decode else "_execute_extend")
        with self.m.frame(*names, *self.fn("models/llama.py", "forward")):
            for phase, kernel in kernels:
                self.m.launch(phase, kernel, host_us=4.0)

    @contextmanager
    def runner(self, span: str | None) -> Iterator[None]:
        """ModelRunner.forward and the span around what it does."""
        with self.m.frame(*self.fn("model_executor/model_runner.py", "forward", "_forward_raw")), self.m.note(span):
            yield

    def target(self, mode: str, bs: int, phase: str, tokens: int) -> None:
        """The target forward inside its span."""
        with (
            self.m.frame(*self.fn("managers/tp_worker.py", "forward_batch_generation")),
            self.runner(self.step(mode, bs)),
        ):
            self.eager(phase, *([EW, D2D] if self.c.target_graph else [EW, EW, INDEX]))
            graph = 1000 + 100 * tokens + bs if self.c.target_graph else 0
            self.run(graph, self.model(phase, False, tokens), decode=mode == "DECODE")

    # --- the loop --------------------------------------------------------------------------------

    def iterate(self, item: Item) -> None:
        """One turn of the event loop: run a batch, then process the result of the one before."""
        prefill = item[0] in ("p", "m")
        self.mixed = item[0] == "m"
        loop = "event_loop_overlap" if self.c.overlap else "event_loop_normal"
        with self.m.frame(*self.fn("managers/scheduler.py", loop)):
            for name in ("recv_requests", "process_input_requests"):
                with self.scheduler(name):
                    self.m.host(15)
            self.m.cycle = -1 if prefill else self.cycle
            if not prefill:
                self.cycle += 1
                self.steps = item[2] if len(item) > 2 else self.c.steps
            with self.scheduler("get_next_batch_to_run"):
                self.next_batch(prefill)
            with self.scheduler("run_batch"):
                self.m.host(20)
                event = self.batch(item[1], prefill)
            if self.c.overlap:
                before, self.pending = self.pending, event
                self.process(before)
            else:
                self.process(event)

    def next_batch(self, prefill: bool) -> None:
        """Scheduling; with speculation the scheduler's stream allocates for the next cycle."""
        self.m.host(60)
        if self.c.overlap and self.published is not None and self.c.release < 14:
            self.m.wait(event=self.published, api="cudaEventSynchronize")  # verify_done
        if self.c.overlap and not prefill:
            name = "alloc_decode_kernel" if self.c.mode == "none" else "assign_req_to_token_pool"
            self.m.launch("other", H2D, H2D, triton(name, 2.5), stream=SCHEDULE)

    def process(self, event: list[int] | None) -> None:
        """The result of a batch: wait for its copies, then work on the CPU."""
        if event is None:
            return
        with self.scheduler("process_batch_result"):
            self.m.wait(event=event, api="cudaEventSynchronize")
            self.m.host(90)

    def drain(self) -> None:
        """What is left in the queue."""
        self.process(self.pending)

    def batch(self, size: int, prefill: bool) -> list[int]:
        """Run one batch; returns the event after which its results are on the CPU."""
        m, speculates = self.m, self.c.mode != "none"
        if self.c.overlap and speculates and not prefill and self.published is not None and self.c.release >= 14:
            m.fence(SCHEDULE, self.published)
            m.launch("other", INDEX, stream=SCHEDULE)
            m.fence(D2H, self.published)
            m.launch("other", D2H_COPY, stream=D2H)
            m.wait(D2H)
        if self.c.overlap:
            m.fence(MAIN, m.ends(SCHEDULE))
        if prefill:
            self.eager("other", H2D)
        elif not speculates:
            self.eager("other", INDEX)
        elif self.c.overlap and self.c.mode != "ngram":
            names = [INDEX] * 4 if self.c.release < 14 else [triton("_gather_rows_kernel", 2.2)] * 2
            self.eager("other", *names)
        with m.frame(*self.fn(*self.entry())):
            if prefill:
                self.prefill(size)
            else:
                self.decode(size)
        if self.c.overlap:
            self.eager("other", *([D2D, EW, EW, D2D] if self.c.release < 14 else [EW, INDEX_PUT, INDEX_PUT]))
        return self.results()

    def results(self) -> list[int]:
        """The results to the CPU."""
        m = self.m
        stream = COPY if self.c.overlap and self.c.release >= 15 else MAIN
        if stream == COPY:
            m.fence(COPY, m.ends(MAIN))
        with m.note("copy_result_to_cpu" if self.c.release >= 15 else None):
            m.launch("other", D2H_COPY, D2H_COPY, stream=stream)
        return m.ends(stream)

    def entry(self) -> tuple[str, ...]:
        """File and function of the worker's entry."""
        return ("managers/tp_worker.py", "forward_batch_generation")

    def prefill(self, tokens: int) -> None:
        """The target's extend and the sampling of its first token."""
        with self.m.frame(*self.fn("managers/tp_worker.py", "forward_batch_generation")):
            span = self.step("MIXED", tokens + 1) if self.mixed else self.step("EXTEND", 1, tokens=tokens)
            with self.runner(span):
                self.eager("decode", EW, triton("create_flashinfer_kv_indices_triton", 3), EW)
                self.run(0, self.model("decode", False, tokens, prefill=True))
            self.sample()

    def sample(self) -> None:
        """ModelRunner.sample."""
        with self.m.frame(
            *self.fn("model_executor/model_runner.py", "sample"), *self.fn("layers/sampler.py", "forward")
        ):
            self.eager("accept", *([ARGMAX] if self.c.greedy else [EW, SOFTMAX, SAMPLE]))

    def publish(self) -> None:
        """New sequence lengths into the future map, after acceptance."""
        if self.c.release >= 14 and self.c.overlap:
            self.eager("other", EW, INDEX_PUT)
        self.published = self.m.ends(MAIN)

    def decode(self, bs: int) -> None:
        """One decode step without speculation."""
        self.target("DECODE", bs, "decode", 1)
        with self.m.frame(*self.fn("managers/tp_worker.py", "forward_batch_generation")):
            self.sample()

    # --- verify, shared by the workers of v2 -----------------------------------------------------

    def verify(self, bs: int, prepared: bool = False) -> None:
        """run_eagle_verify and its predecessors."""
        with self.m.frame(*self.fn(*self.verify_frame())):
            name = "assign_extend_cache_locs" + ("_uniform" if self.c.release >= 20 else "")
            with self.planning():
                if not prepared:
                    self.eager("verify", EW, triton(name, 2.6))
                if self.c.target_graph:
                    self.eager("verify", FOREACH, FOREACH, EW)
                self.metadata("verify", self.c.family, bs)
            if self.c.plan_stream:  # update_verify_buffers_to_fill_after_draft
                self.eager("verify", EW, D2D)
            if self.c.grammar:
                self.eager("verify", D2H_COPY, D2H_COPY, D2H_COPY)
                self.m.wait(MAIN)
            self.target("TARGET_VERIFY", bs, "verify", self.width)
            self.accept(bs)

    def verify_frame(self) -> tuple[str, ...]:
        """File and function of verify."""
        if self.c.release >= 16:
            return ("speculative/eagle_worker_common.py", "run_eagle_verify")
        return ("speculative/eagle_worker_v2.py", "verify")

    def metadata(self, phase: str, family: str, bs: int) -> None:
        """Attention metadata, eager, before a replay."""
        if family in ("flashinfer", "triton"):
            self.eager(phase, FILL, EW, triton("create_flashinfer_kv_indices_triton", 3.1), EW)
        else:
            self.eager(phase, EW, INDEX, EW)

    def accept(self, bs: int) -> None:
        """eagle_sample and the commit."""
        with self.m.frame(*self.fn(*self.sample_frame())):
            self.eager("accept", FILL, FILL)
            if self.c.grammar:
                self.m.host(120)
                self.eager("accept", H2D, triton("apply_token_bitmask_inplace_kernel", 5))
            if self.c.greedy and self.c.release >= 23:
                self.eager(
                    "accept", triton("_argmax_partial_kernel", 9), triton("_argmax_final_kernel", 2.4), VERIFY_TREE
                )
            elif self.c.greedy:
                self.eager("accept", ARGMAX, VERIFY_TREE)
            else:
                self.eager("accept", INDEX, EW, SOFTMAX, INDEX, VERIFY_SAMPLED)
                if self.c.ranks > 1:
                    self.eager("accept", BROADCAST, BROADCAST, BROADCAST)
            self.eager("accept", EW)
        if self.c.release >= 23:
            self.eager("accept", triton("_verify_commit_outputs_kernel", 3))
        else:
            self.eager(
                "accept", EW, INDEX, triton("fill_new_verified_id" if self.c.release < 12 else "fill_bonus_tokens", 2)
            )
        if self.c.topk > 1:
            self.eager(
                "accept", triton("fill_accept_out_cache_loc", 2), triton("copy_all_layer_kv_cache_tiled", 9), INDEX, D2D
            )

    def sample_frame(self) -> tuple[str, ...]:
        """File and function of acceptance."""
        if self.c.release >= 16:
            return ("speculative/eagle_utils.py", "eagle_sample")
        return ("speculative/eagle_info_v2.py", "sample")
