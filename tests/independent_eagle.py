"""The EAGLE workers: v2 (EAGLE, EAGLE3, NEXTN, STANDALONE), v1, and multi-layer MTP."""

from __future__ import annotations

from tests.independent_cycles import Server
from tests.independent_kernels import (
    ARGMAX,
    BUILD_TREE,
    CAT,
    D2D,
    D2H_COPY,
    EW,
    FILL,
    FOREACH,
    INDEX,
    INDEX_FILL,
    NONZERO,
    SOFTMAX,
    SORT,
    SUM,
    TOPK,
    VERIFY_SAMPLED,
    VERIFY_TREE,
    triton,
)
from tests.independent_machine import MAIN, SCHEDULE, Kernel


class EagleV2(Server):
    """eagle_worker_v2.py (EAGLE, EAGLE3, NEXTN, STANDALONE)."""

    stages = True

    def entry(self) -> tuple[str, ...]:
        return ("speculative/eagle_worker_v2.py", "forward_batch_generation")

    def prefill(self, tokens: int) -> None:
        super().prefill(tokens)
        self.publish()
        with (
            self.stage("draft_extend"),
            self.m.frame(*self.fn("speculative/eagle_worker_v2.py", "_draft_extend_for_prefill")),
        ):
            self.eager("draft_extend", CAT, D2D)
            with self.runner(self.step("EXTEND", 1, draft=True, tokens=tokens)):
                self.run(0, self.model("draft_extend", True, tokens, prefill=True))
            self.eager("draft_extend", SOFTMAX, TOPK)

    def decode(self, bs: int) -> None:
        if self.steps > 0:
            with self.stage("draft"), self.m.frame(*self.fn("speculative/eagle_worker_v2.py", "draft")):
                self.draft(bs)
        else:  # _build_trivial_verify_input
            self.eager("verify", EW, FILL, FILL, FILL, EW)
        self.verify(bs)
        self.publish()
        with (
            self.stage("draft_extend"),
            self.m.frame(*self.fn("speculative/eagle_worker_v2.py", "_draft_extend_for_decode")),
        ):
            self.draft_extend(bs)
        self.m.fence(SCHEDULE, self.m.ends(MAIN))  # the write-after-read barrier

    def draft(self, bs: int) -> None:
        """Cache locations, (num_steps - 1) forwards, tree."""
        name = "assign_draft_cache_locs_page_size_1" if self.c.release < 14 else "assign_draft_cache_locs_contiguous"
        self.eager("draft", triton(name, 2.4), EW, EW)
        graph = self.c.draft_graph and self.steps > 1
        if graph:
            runner = ("speculative/eagle_draft_cuda_graph_runner.py", "execute" if self.c.release >= 14 else "replay")
            with self.m.frame(*self.fn(*runner)):
                self.eager("draft", *([FOREACH, FOREACH, D2D] if self.c.release >= 16 else [EW, EW, EW, D2D, D2D]))
                self.draft_metadata()
                self.m.replay(5000 + 100 * self.steps + bs, self.draft_graph())
        else:
            if self.steps > 1:
                self.draft_metadata()
            with self.m.frame(*self.fn("speculative/eagle_worker_v2.py", "draft_forward")):
                self.eager("draft", EW)
                self.draft_forward(bs)
        self.tree()

    def draft_graph(self) -> list[tuple[str, Kernel]]:
        """What the graph of all draft steps holds."""
        body: list[tuple[str, Kernel]] = [("draft", EW)]
        for i in range(self.steps - 1):
            body += self.model("draft", True, self.c.topk) + [("draft", k) for k in self.pick(i)]
        return body + [("draft", k) for k in self.organize()]

    def draft_forward(self, bs: int) -> None:
        """The draft steps without a graph."""
        for i in range(self.steps - 1):
            with self.runner(self.step("DECODE", bs, draft=True)):
                self.run(0, self.model("draft", True, self.c.topk), decode=True)
            self.eager("draft", *self.pick(i))
        self.eager("draft", *self.organize())

    def tree(self) -> None:
        """build_eagle_verify_input."""
        with self.m.frame(*self.fn("speculative/eagle_utils.py", "build_tree_kernel_efficient")):
            chain = self.c.release >= 23 and self.c.topk == 1
            self.eager("draft", CAT, FILL, triton("_build_chain_tree_kernel", 2.5) if chain else BUILD_TREE)

    def draft_metadata(self) -> None:
        """Attention metadata of all draft steps."""
        if self.c.drafter in ("flashinfer", "triton"):
            self.eager("draft", triton("generate_draft_decode_kv_indices", 3), EW)
        else:
            self.eager("draft", *[EW] * max(self.steps - 1, 1))

    def pick(self, step: int) -> list[Kernel]:
        """Top-k after a draft step."""
        if self.c.topk == 1 and self.c.release >= 16:
            return [triton("_draft_topk1_partial_argmax_kernel", 6), triton("_draft_topk1_finalize_kernel", 2)]
        return [SOFTMAX, TOPK, EW] + ([EW, TOPK, INDEX] if self.c.topk > 1 else [])

    def organize(self) -> list[Kernel]:
        """organize_draft_results."""
        return [] if self.c.topk == 1 and self.c.release >= 16 else [CAT, CAT, TOPK, SORT, INDEX]

    def draft_extend(self, bs: int) -> None:
        """One draft forward over the verified tokens."""
        if self.c.release >= 23:
            self.eager(
                "draft_extend",
                triton("_draft_extend_inputs_kernel", 2),
                triton("_prepare_draft_extend_lengths_kernel", 2),
            )
        else:
            self.eager("draft_extend", EW, EW, EW, EW)
        with self.planning():
            self.eager("draft_extend", triton("compute_position_kernel", 2.4))
        if self.c.extend_graph:
            runner = "speculative/eagle_draft_extend_cuda_graph_runner.py"
            with self.m.frame(*self.fn(runner, "execute" if self.c.release >= 14 else "replay")):
                self.eager("draft_extend", FOREACH, FOREACH, D2D)
                self.metadata("draft_extend", self.c.drafter, bs)
                self.m.replay(7000 + bs + 100 * self.width, self.model("draft_extend", True, self.width))
        else:
            self.metadata("draft_extend", self.c.drafter, bs)
            with self.runner(self.step("DRAFT_EXTEND_V2", bs, draft=True)):
                self.run(0, self.model("draft_extend", True, self.width))
        self.eager(
            "draft_extend", INDEX, INDEX, *([ARGMAX] if self.c.topk == 1 and self.c.release >= 16 else [SOFTMAX, TOPK])
        )


class FrozenKv(EagleV2):
    """frozen_kv_mtp_worker_v2.py: the drafter reads the target's cache; its seed runs in the draft's graph, and its
    draft_extend only picks what the next seed needs."""

    file = "speculative/frozen_kv_mtp_worker_v2.py"

    def entry(self) -> tuple[str, ...]:
        return (self.file, "forward_batch_generation")

    def prefill(self, tokens: int) -> None:
        Server.prefill(self, tokens)
        self.publish()
        with self.stage("draft_extend"), self.m.frame(*self.fn(self.file, "_draft_extend_for_prefill")):
            self.eager("draft_extend", SUM, EW, INDEX, FILL, FILL)

    def decode(self, bs: int) -> None:
        with self.stage("draft"), self.m.frame(*self.fn(self.file, "draft")):
            self.draft(bs)
        self.verify(bs)
        self.publish()
        with self.stage("draft_extend"), self.m.frame(*self.fn(self.file, "_draft_extend_for_decode")):
            self.eager("draft_extend", FILL, EW, EW, EW, INDEX, EW, FILL, FILL)
        self.m.fence(SCHEDULE, self.m.ends(MAIN))

    def draft(self, bs: int) -> None:
        self.eager("draft", EW, SUM, EW)
        body: list[tuple[str, Kernel]] = []
        for _ in range(self.steps):
            body += self.model("draft", True, 1) + [("draft", k) for k in (SOFTMAX, TOPK, EW)]
        body += [("draft", k) for k in (CAT, CAT, TOPK, SORT, INDEX)]
        if self.c.draft_graph:
            with self.m.frame(*self.fn("speculative/frozen_kv_mtp_cuda_graph_runner.py", "execute")):
                self.eager("draft", EW, D2D, D2D, D2D, EW)
                name = f"step[DRAFT_LOOP raw_bs={bs} bs={bs} topk={self.c.topk}]"
                with self.m.note(name):
                    self.m.replay(5000 + 100 * self.steps + bs, body)
        else:
            self.draft_metadata()
            with self.m.frame(*self.fn(self.file, "draft_forward")):
                for _ in range(self.steps):
                    with self.runner(self.step("DECODE", bs, draft=True)):
                        self.run(0, self.model("draft", True, 1), decode=True)
                    self.eager("draft", SOFTMAX, TOPK, EW)
                self.eager("draft", CAT, CAT, TOPK, SORT, INDEX)
        self.tree()


class EagleV1(EagleV2):
    """eagle_worker.py: no overlap, the host waits for acceptance."""

    stages = False

    def results(self) -> list[int]:
        return self.m.ends(MAIN)  # acceptance has copied them

    def entry(self) -> tuple[str, ...]:
        return ("speculative/eagle_worker.py", "forward_batch_generation")

    def prefill(self, tokens: int) -> None:
        with self.m.frame(*self.fn("speculative/eagle_worker.py", "forward_target_extend")):
            Server.prefill(self, tokens)
        with self.m.frame(*self.fn("speculative/eagle_worker.py", "forward_draft_extend")):
            self.eager("draft_extend", CAT, EW)
            with self.runner(self.step("EXTEND", 1, draft=True, tokens=tokens)):
                self.run(0, self.model("draft_extend", True, tokens, prefill=True))
            self.eager("draft_extend", SOFTMAX, TOPK)

    def decode(self, bs: int) -> None:
        m = self.m
        with m.frame(*self.fn("speculative/eagle_worker.py", "draft")):
            with m.frame(*self.fn("speculative/eagle_worker.py", "_draft_preprocess_decode")):
                self.eager("draft", EW, triton("assign_draft_cache_locs", 2.6), SUM, D2H_COPY)
                m.wait(MAIN)
                self.eager("draft", EW)
            if self.c.draft_graph and self.steps > 1:
                with m.frame(*self.fn("speculative/eagle_draft_cuda_graph_runner.py", "replay")):
                    self.eager("draft", EW, EW, EW, D2D, D2D, D2D, EW)
                    self.draft_metadata()
                    m.replay(5000 + bs, self.draft_graph())
            else:
                with m.frame(*self.fn("speculative/eagle_worker.py", "draft_forward")):
                    self.draft_forward(bs)
            self.tree()
        with m.frame(*self.fn("speculative/eagle_worker.py", "verify")):
            self.eager("verify", D2D, EW, triton("assign_req_to_token_pool", 2.4), INDEX)
            if self.c.target_graph:
                self.eager("verify", EW, EW, EW)
            self.metadata("verify", self.c.family, bs)
            self.target("TARGET_VERIFY", bs, "verify", self.width)
            with m.frame(*self.fn("speculative/eagle_info.py", "verify")):
                if self.c.greedy:
                    self.eager("accept", FILL, ARGMAX, VERIFY_TREE, D2H_COPY)
                else:
                    self.eager("accept", FILL, INDEX, EW, SOFTMAX, INDEX, VERIFY_SAMPLED, D2H_COPY)
                m.wait(MAIN)
                self.eager("accept", D2H_COPY)
                m.wait(MAIN)
                m.host(60)
                self.eager("accept", EW, NONZERO, INDEX, FILL, INDEX_FILL, D2H_COPY)
                m.wait(MAIN)
                self.eager("accept", INDEX, triton("assign_req_to_token_pool", 2.4), EW)
            self.eager("accept", INDEX, INDEX)
        with m.frame(*self.fn("speculative/eagle_worker.py", "forward_draft_extend_after_decode")):
            self.eager("draft_extend", D2D, EW, triton("create_extend_after_decode_spec_info", 2.4))
            if self.c.extend_graph:
                with m.frame(*self.fn("speculative/eagle_draft_extend_cuda_graph_runner.py", "replay")):
                    self.eager("draft_extend", EW, EW, EW, D2D)
                    self.metadata("draft_extend", self.c.drafter, bs)
                    tail: list[tuple[str, Kernel]] = [("draft_extend", SOFTMAX), ("draft_extend", TOPK)]
                    m.replay(7000 + bs, self.model("draft_extend", True, self.width) + tail)
            else:
                self.metadata("draft_extend", self.c.drafter, bs)
                with self.runner(self.step("DRAFT_EXTEND", bs, draft=True)):
                    self.run(0, self.model("draft_extend", True, self.width))
                self.eager("draft_extend", SOFTMAX, TOPK)


class MultiLayer(EagleV2):
    """multi_layer_eagle_worker_v2.py: the forwards are all in draft_extend; no stage spans."""

    stages = False
    file = "speculative/multi_layer_eagle_worker_v2.py"

    def entry(self) -> tuple[str, ...]:
        return (self.file, "forward_batch_generation")

    def verify_frame(self) -> tuple[str, ...]:
        return super().verify_frame() if self.c.release >= 16 else (self.file, "verify")

    def prefill(self, tokens: int) -> None:
        Server.prefill(self, tokens)
        self.publish()
        with self.m.frame(*self.fn(self.file, "_draft_extend_for_prefill")):
            self.eager("draft_extend", triton("rotate_input_ids_kernel", 2))
            for _ in range(self.steps):
                with self.runner(self.step("EXTEND", 1, draft=True, tokens=tokens)):
                    self.run(0, self.model("draft_extend", True, tokens, prefill=True))
                self.eager("draft_extend", SOFTMAX, TOPK, triton("rotate_input_ids_kernel", 2))

    def draft(self, bs: int) -> None:
        name = "assign_draft_cache_locs_page_size_1" if self.c.release < 14 else "assign_draft_cache_locs_contiguous"
        self.eager("draft", triton(name, 2.4), EW, EW)
        with self.m.frame(*self.fn(self.file, "draft_forward")):
            self.eager("draft", EW, CAT, CAT, TOPK, SORT, INDEX, CAT)
        self.tree()

    def decode(self, bs: int) -> None:
        with self.m.frame(*self.fn(self.file, "draft")):
            self.draft(bs)
        self.verify(bs)
        self.publish()
        with self.m.frame(*self.fn(self.file, "_draft_extend_for_decode")):
            self.eager("draft_extend", EW, triton("compute_position_kernel", 2.4), EW, D2D)
            if self.c.extend_graph:
                with self.m.note(self.step("DRAFT_EXTEND_V2", bs) if self.c.release >= 17 else None):
                    runner = "speculative/multi_layer_eagle_draft_extend_cuda_graph_runner.py"
                    self.eager("draft_extend", FILL, EW, triton("fill_draft_extend_prepare_buffers_kernel", 2.5), D2D)
                    for step in range(self.steps):
                        with self.m.frame(*self.fn(runner, "replay")):
                            self.m.replay(7000 + 10 * bs + step, self.model("draft_extend", True, self.width))
                        self.eager("draft_extend", D2D, D2D, triton("rotate_input_ids_kernel", 2))
            else:
                for _ in range(self.steps):
                    self.metadata("draft_extend", self.c.drafter, bs)
                    with self.runner(self.step("DRAFT_EXTEND_V2", bs, draft=True)):
                        self.run(0, self.model("draft_extend", True, self.width))
                    self.eager("draft_extend", SOFTMAX, TOPK, triton("rotate_input_ids_kernel", 2))
            self.eager("draft_extend", CAT, CAT)
