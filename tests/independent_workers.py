"""The workers without EAGLE: NGRAM, DFLASH, DSPARK, and no speculation; and the way from a case to its recording."""

from __future__ import annotations

import zlib
from dataclasses import replace

from tests.independent_cycles import Case, Server
from tests.independent_eagle import EagleV1, EagleV2, FrozenKv, MultiLayer
from tests.independent_kernels import (
    ARGMAX,
    CAT,
    D2D,
    D2D_KERNEL,
    D2H_COPY,
    EMBED,
    EW,
    FILL,
    GATHER,
    H2D,
    HEAD,
    INDEX,
    MAX,
    forward,
    triton,
)
from tests.independent_machine import MAIN, SIDE, Kernel, Machine


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
                    m.launch("other", D2H_COPY, D2H_COPY)
                m.wait(MAIN)
                m.host(350)
            rebuild: Kernel = (
                "void reconstructIndicesFromTreeMask(bool*, long*, long*, long*, long*, long*, int, int)",
                4,
                "kernel",
            )
            self.eager(
                "verify", H2D, H2D, triton("_reconstruct_tree_mask_kernel", 4) if self.c.release >= 23 else rebuild
            )
            for _ in range(bs):
                self.eager("verify", FILL, H2D, CAT, EW)
            self.eager("verify", CAT, EW)
            if self.c.release < 11:
                self.eager("verify", triton("assign_req_to_token_pool", 2.4))
            else:
                self.eager(
                    "verify", triton("assign_extend_cache_locs" + ("_uniform" if self.c.release >= 20 else ""), 2.5)
                )
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
            self.eager(
                "draft_extend", kernels[2], kernels[2], triton("_fused_norm_rope_kernel_stacked", 4), FILL, INDEX
            )

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
        return [HEAD, MAX, *gather]

    def decode(self, bs: int) -> None:
        self.eager("draft", triton("_prepare_dflash_draft_block_contig_kernel", 2.5))
        self.eager("draft", EMBED)
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
        names = (
            ("_markov_greedy_partial_kernel", "_markov_greedy_combine_kernel")
            if self.c.release >= 20
            else ("_online_partial_kernel", "_online_combine_kernel")
        )
        return [HEAD, *([GATHER] if self.c.ranks > 1 else []), *(triton(n, 4) for _ in range(7) for n in names)]

    def model(self, phase: str, draft: bool, tokens: int, *, prefill: bool = False) -> list[tuple[str, Kernel]]:
        kernels = super().model(phase, draft, tokens, prefill=prefill)
        if self.c.folded and not draft and not prefill and self.c.target_graph:  # DsparkVerifyEpilogue
            tail = [triton("_scatter_compact_to_strided_kernel", 4)] * 2 + [
                ARGMAX,
                triton("_finalize_accept_lens_kernel", 2.2),
            ]
            kernels += [("accept", k) for k in [*tail, triton("_build_out_tokens_kernel", 2.4), EW, EW, D2D_KERNEL]]
        return kernels

    def commit(self, function: str) -> None:
        part = "speculative/dspark_components/"
        with self.m.frame(
            *self.fn(part + "dspark_verify.py", "commit_hidden"),
            *self.fn(part + "dspark_kv_inject.py", "inject_target_hidden"),
        ):
            kernels = forward(self.c.drafter, 1, 8, 1, head=False)
            self.eager("draft_extend", EW, kernels[2], triton("_fused_kv_norm_rope_write_kernel", 4))

    def prefill(self, tokens: int) -> None:
        with self.m.frame(*self.fn(self.file, "_forward_prefill")):
            super().prefill(tokens)

    def decode(self, bs: int) -> None:
        with self.m.frame(*self.fn(self.file, "_forward_decode")):
            self.step_of(bs)

    def step_of(self, bs: int) -> None:
        """_forward_decode."""
        part = "speculative/dspark_components/"
        self.eager(
            "draft",
            triton("assign_extend_cache_locs" + ("_uniform" if self.c.release >= 20 else ""), 2.6),
            EW,
            FILL,
            EW,
        )
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
        if self.c.folded and self.c.target_graph:
            self.publish()
            return
        with self.m.frame(*self.fn(part + "dspark_verify.py", "accept_and_finalize")):
            if self.c.release >= 23:
                self.eager("accept", ARGMAX, triton("_static_accept_tail_kernel", 3))
            else:
                self.eager(
                    "accept",
                    ARGMAX,
                    triton("_finalize_accept_lens_kernel", 2.2),
                    triton("_build_out_tokens_kernel", 2.4),
                )
        self.publish()
        self.commit("")


WORKERS: dict[str, type[Server]] = {
    "eagle": EagleV2,
    "standalone": EagleV2,
    "frozen": FrozenKv,
    "mtp": MultiLayer,
    "ngram": Ngram,
    "dflash": Dflash,
    "dspark": Dspark,
    "none": Server,
}


def simulate(case: Case) -> Machine:
    """Run the case on all its ranks."""
    machine = Machine(case.ranks, zlib.crc32(repr(case).encode()))
    first = case.mode in ("eagle", "standalone") and (case.worker or ("v1" if case.release <= 9 else "v2")) == "v1"
    if first:
        case = replace(case, overlap=False)
    worker = (EagleV1 if first else WORKERS[case.mode])(case, machine)
    if case.start == "idle":
        machine.record()
    for place, item in enumerate(case.script):
        if case.start != "idle" and place == 2:
            machine.record(case.cut_us)
        worker.iterate(item)
    worker.drain()
    machine.finish()
    return machine
