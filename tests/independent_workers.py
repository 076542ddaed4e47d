"""The other workers: EAGLE v1, multi-layer MTP, NGRAM, DFLASH, DSPARK, and no speculation."""

from __future__ import annotations

import zlib

from tests.independent_cycles import Case, EagleV2, Server
from tests.independent_kernels import (
    ARGMAX, CAT, D2D, D2H_COPY, EW, FILL, GATHER, H2D, INDEX, NONZERO, SOFTMAX, SORT, SUM, TOPK, VERIFY_SAMPLED, VERIFY_TREE,
    forward, triton,
)  # fmt: skip
from tests.independent_machine import MAIN, SIDE, Kernel, Machine


class EagleV1(EagleV2):
    """eagle_worker.py: no overlap, the host waits for acceptance."""

    stages = False

    def entry(self) -> tuple[str, ...]:
        return ("speculative/eagle_worker.py", "forward_batch_generation")

    def prefill(self, tokens: int) -> None:
        with self.m.frame(*self.fn("speculative/eagle_worker.py", "forward_target_extend")):
            Server.prefill(self, tokens)
        with self.m.frame(*self.fn("speculative/eagle_worker.py", "forward_draft_extend")):
            self.eager("draft_extend", CAT, EW)
            with self.runner(None):
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
                    body: list[tuple[str, Kernel]] = [("draft", EW)]
                    for i in range(self.steps - 1):
                        body += self.model("draft", True, self.c.topk) + [("draft", k) for k in self.pick(i)]
                    m.replay(5000 + bs, body + [("draft", k) for k in self.organize()])
            else:
                with m.frame(*self.fn("speculative/eagle_worker.py", "draft_forward")):
                    for i in range(self.steps - 1):
                        with self.runner(None):
                            self.run(0, self.model("draft", True, self.c.topk), decode=True)
                        self.eager("draft", *self.pick(i))
                    self.eager("draft", *self.organize())
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
                with self.runner(None):
                    self.run(0, self.model("draft_extend", True, self.width))
                self.eager("draft_extend", SOFTMAX, TOPK)


INDEX_FILL: Kernel = ("void at::native::index_elementwise_kernel<128, 4, at::native::index_fill_kernel_impl>(long)", 2, "kernel")


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


class Ngram(Server):
    """ngram_worker.py: the draft is a lookup on the CPU; what it copies prepares verify."""

    def entry(self) -> tuple[str, ...]:
        return ("speculative/ngram_worker.py", "forward_batch_generation")

    def verify_frame(self) -> tuple[str, ...]:
        return ("speculative/ngram_worker.py", "forward_batch_generation")

    def sample_frame(self) -> tuple[str, ...]:
        return ("speculative/ngram_info.py", "verify") if self.c.release < 14 else super().sample_frame()

    def next_batch(self, prefill: bool) -> None:
        self.m.host(60)

    def prefill(self, tokens: int) -> None:
        super().prefill(tokens)
        self.eager("accept", FILL, D2D)
        self.publish()

    def decode(self, bs: int) -> None:
        m = self.m
        with m.frame(*self.fn("speculative/ngram_worker.py", "_prepare_for_speculative_decoding")):
            with m.frame(*self.fn("speculative/ngram_worker.py", "_prepare_draft_tokens")):
                if self.c.overlap:
                    m.launch("verify", D2H_COPY, D2H_COPY)
                m.wait(MAIN)
                m.host(350)
            rebuild: Kernel = ("void reconstructIndicesFromTreeMask(bool*, long*, long*, long*, long*, long*, int, int)", 4, "kernel")
            self.eager("verify", H2D, H2D, triton("_reconstruct_tree_mask_kernel", 4) if self.c.release >= 23 else rebuild)
            for _ in range(bs):
                self.eager("verify", FILL, H2D, CAT, EW)
            self.eager("verify", CAT, EW)
            if self.c.release < 11:
                self.eager("verify", triton("assign_req_to_token_pool", 2.4))
            else:
                self.eager("verify", triton("assign_extend_cache_locs" + ("_uniform" if self.c.release >= 20 else ""), 2.5))
        self.eager("verify", FILL)
        if self.c.target_graph:
            self.eager("verify", EW, EW)
        self.metadata("verify", self.c.family, bs)
        self.target("TARGET_VERIFY", bs, "verify", 8)
        self.accept(bs)
        if self.c.topk == 1:
            self.eager("accept", triton("fill_accept_out_cache_loc", 2), triton("copy_all_layer_kv_cache_tiled", 9))
        self.publish()
        m.host(80)


class Dflash(Server):
    """dflash_worker_v2.py: one block forward of the drafter (as TARGET_VERIFY), verify, the hidden states to its KV."""

    file = "speculative/dflash_worker_v2.py"

    def entry(self) -> tuple[str, ...]:
        return (self.file, "forward_batch_generation")

    def verify_frame(self) -> tuple[str, ...]:
        return (self.file, "forward_batch_generation")

    def prefill(self, tokens: int) -> None:
        super().prefill(tokens)
        self.publish()
        self.commit("_append_target_hidden_to_draft_kv_by_loc")

    def commit(self, function: str) -> None:
        """The target's hidden states into the drafter's KV cache."""
        with self.m.frame(*self.fn(self.file, function)):
            kernels = forward(self.c.drafter, 1, 8, 1, head=False)
            self.eager("draft_extend", kernels[2], kernels[2], triton("_fused_norm_rope_kernel_stacked", 4), FILL, INDEX)

    def draft_forward(self, bs: int) -> None:
        """The block forward through the draft runner's own ModelRunner.forward."""
        with self.runner(self.step("TARGET_VERIFY", bs, draft=True)):
            graph = self.c.draft_graph
            if graph:
                self.eager("draft", EW, EW, D2D)
                self.metadata("draft", self.c.drafter, bs)
            kernels = self.model("draft", True, 8)
            if graph:
                kernels += [("draft", k) for k in self.sampler()]
            self.run(5000 + bs if graph else 0, kernels)
        if not graph:
            with self.m.frame(*self.fn(self.file, "_greedy_sample_from_vocab_parallel_head")):
                self.eager("draft", *self.sampler())

    def sampler(self) -> list[Kernel]:
        """Greedy tokens from the target's head, gathered over ranks."""
        gather = [GATHER, GATHER, ARGMAX, INDEX] if self.c.ranks > 1 else []
        head: Kernel = ("nvjet_tst_128x8_64x12_2x1_v_bz_TNT", 90, "kernel")
        return [head, ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::MaxOps>>()", 12, "kernel"), *gather]

    def decode(self, bs: int) -> None:
        self.eager("draft", triton("_prepare_dflash_draft_block_contig_kernel", 2.5))
        self.eager("draft", ("void at::native::(anonymous namespace)::vectorized_gather_kernel<16, long>()", 2.5, "kernel"))
        if self.c.ranks > 1:
            self.eager("draft", forward(self.c.family, 0, 8, self.c.ranks)[1])
        self.draft_forward(bs)
        self.eager("draft", D2D, EW)
        with self.m.frame(*self.fn("speculative/dflash_info.py", "prepare_for_verify")):
            if self.c.target_graph:
                self.eager("verify", EW, EW, EW)
            self.metadata("verify", self.c.family, bs)
        self.target("TARGET_VERIFY", bs, "verify", 8)
        self.eager("accept", ARGMAX, triton("_dflash_accept_bonus_contig_kernel", 3))
        self.publish()
        self.commit("_append_target_hidden_to_draft_kv_by_loc")


class Dspark(Dflash):
    """dspark_worker_v2.py, verify not compact, acceptance eager."""

    file = "speculative/dspark_components/dspark_worker_v2.py"

    def sampler(self) -> list[Kernel]:
        head: Kernel = ("nvjet_tst_128x8_64x12_2x1_v_bz_TNT", 90, "kernel")
        names = ("_markov_greedy_partial_kernel", "_markov_greedy_combine_kernel") if self.c.release >= 20 else ("_online_partial_kernel", "_online_combine_kernel")
        return [head, *([GATHER] if self.c.ranks > 1 else []), *(triton(n, 4) for _ in range(7) for n in names)]

    def commit(self, function: str) -> None:
        part = "speculative/dspark_components/"
        with self.m.frame(*self.fn(part + "dspark_verify.py", "commit_hidden"), *self.fn(part + "dspark_kv_inject.py", "inject_target_hidden")):
            kernels = forward(self.c.drafter, 1, 8, 1, head=False)
            self.eager("draft_extend", EW, kernels[2], triton("_fused_kv_norm_rope_write_kernel", 4))

    def decode(self, bs: int) -> None:
        part = "speculative/dspark_components/"
        self.eager("draft", triton("assign_extend_cache_locs" + ("_uniform" if self.c.release >= 20 else ""), 2.6), EW, FILL, EW)
        with self.m.frame(*self.fn(part + "dspark_draft.py", "propose", "_run_forward")):
            self.draft_forward(bs)
        early = self.c.release >= 23  # the metadata of verify on a side stream, beside the drafter's graph
        if early:
            self.m.launch("verify", EW, INDEX, EW, stream=SIDE)
        self.eager("draft", CAT)
        with self.m.frame(*self.fn(part + "dspark_verify.py", "run_non_compact", "_forward_prepared_verify")):
            with self.m.frame(*self.fn("speculative/dflash_info.py", "prepare_for_verify")):
                if self.c.target_graph:
                    self.eager("verify", EW, EW, EW)
                if not early:
                    self.metadata("verify", self.c.family, bs)
            self.target("TARGET_VERIFY", bs, "verify", 8)
        with self.m.frame(*self.fn(part + "dspark_verify.py", "accept_and_finalize")):
            if self.c.release >= 23:
                self.eager("accept", ARGMAX, triton("_static_accept_tail_kernel", 3))
            else:
                self.eager("accept", ARGMAX, triton("_finalize_accept_lens_kernel", 2.2), triton("_build_out_tokens_kernel", 2.4))
        self.publish()
        self.commit("")


WORKERS: dict[str, type[Server]] = {
    "eagle": EagleV2, "standalone": EagleV2, "mtp": MultiLayer, "ngram": Ngram, "dflash": Dflash, "dspark": Dspark, "none": Server,
}  # fmt: skip


def simulate(case: Case) -> Machine:
    """Run the case on all its ranks."""
    machine = Machine(case.ranks, zlib.crc32(repr(case).encode()))
    first = case.mode in ("eagle", "standalone") and case.release <= 9
    worker = (EagleV1 if first else WORKERS[case.mode])(case, machine)
    if case.start == "idle":
        machine.record()
    for place, item in enumerate(case.script):
        if case.start == "mid" and place == 2:
            machine.record()
        worker.iterate(item)
    worker.drain()
    machine.finish()
    return machine
