"""Cycles of block drafters (DFLASH, DSPARK): one forward drafts all tokens, the verify feeds the drafter's cache.

The order is that of SGLang's workers (0.5.14 to 0.5.23): the target's embedding of the block, the block's forward with
the choice of its tokens in the same graph, the target's verify, acceptance, and the target's hidden states written
into the drafter's cache layer by layer. DSPARK may shorten the verified block by the drafter's confidence; acceptance,
and for some models the cache as well, then run at the end of the verify's graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from profkit.simulation.ops import Enter, Op, Part

if TYPE_CHECKING:
    from profkit.simulation.programs import Program


def dflash_cycle(program: Program, batch: int) -> None:
    """Draft a block, verify it, append the target's hidden states to the drafter's cache."""
    k, machine = program.kernels, program.machine
    with program.within(frame="block_cycle"):
        machine.phase = "draft"
        machine.launch([k.kernel("prepare_block", 2.4)])
        _embed(program, batch)
        _draft(program, batch, program.rows(batch))
        machine.phase = "verify"
        machine.launch([k.kernel("copy", 1.4), k.kernel("copy", 1.4)])
        with program.within(frame="block_target"):
            program.target(batch)
        machine.phase = "accept"
        machine.launch([k.kernel("argmax", 8.0, grid=program.rows(batch)), k.kernel("block_accept", 2.4)])
        machine.phase = "draft_extend"
        with program.within(frame="block_append"):
            machine.launch(_append(program))


def dspark_cycle(program: Program, batch: int) -> None:
    """The same with a window allocated for draft and verify, and with verify lengths chosen by confidence."""
    k, machine, serving = program.kernels, program.machine, program.scenario.serving
    folded = serving.ragged_verify and serving.target_graph
    with program.within(frame="block_cycle"):
        machine.phase = "draft"
        machine.launch([k.kernel("add", 1.4), k.kernel("assign_extend", 2.3)])
        with program.within(frame="block_propose"):
            machine.launch([k.kernel("fill", 1.2), k.kernel("copy", 1.4)])
            _embed(program, batch)
            _draft(program, batch, program.rows(batch) - batch)
        machine.phase = "verify"
        if serving.ragged_verify:
            machine.launch([k.kernel("schedule_prep", 2.2), k.kernel("schedule_finalize", 2.1),
                            k.kernel("ragged_finalize", 2.0)])  # fmt: skip
        machine.launch([k.kernel("cat", 1.8)])
        with program.within(frame="block_verify"):
            if serving.ragged_verify:
                machine.launch([k.kernel("compact_index", 2.0), k.kernel("compact_gather", 2.0)])
            program.target(batch, tail=tuple(_tail(program)) if folded else ())
        machine.phase = "accept"
        if not folded:
            with program.within(frame="block_accept"):
                machine.launch([k.kernel("argmax", 8.0, grid=program.rows(batch)), k.kernel("cumsum", 2.4),
                                *_finalize(program)])  # fmt: skip
        machine.phase = "draft_extend"
        if not (folded and serving.folded_append):
            with program.within(frame="block_append"):
                # Ragged rows are placed anew before they are written.
                again = [k.kernel("assign_extend", 2.3)] if serving.ragged_verify else []
                machine.launch([*again, *_append(program)])


def block_prefill(program: Program) -> list[Op]:
    """What a prefill leaves to the drafter: the prompt's hidden states in its cache, without a forward."""
    return [program.kernels.kernel("extend_prepare", 2.2), *_append(program)]


def _embed(program: Program, batch: int) -> None:
    """The block goes through the target's embedding, whose rows are summed over the ranks."""
    k, machine = program.kernels, program.machine
    ops = [k.kernel("embedding", 1.5, grid=program.rows(batch))]
    if program.scenario.serving.embedding_allreduce:
        ops.append(k.allreduce(program.rows(batch)))
    machine.launch(ops)


def _draft(program: Program, batch: int, rows: int) -> None:
    """The block's forward; the choice of its tokens is in the graph, and after the forward without one."""
    k, machine = program.kernels, program.machine
    if program.scenario.serving.draft_graph:
        with program.within(program.names.draft_step(batch), "block_draft"):
            machine.launch([k.kernel("plan", 2.0), k.kernel("copy", 1.3)])
            machine.replay(program.graph("draft", rows, lambda: [*program.drafted(rows), *_choice(program)]))
        return
    parts = program.drafted(rows)
    head = next(i for i, part in enumerate(parts) if isinstance(part, Op) and part.collective == "allgather") - 1
    with program.within(program.names.draft_step(batch), "block_draft"):
        machine.launch([k.kernel("plan", 2.0), k.kernel("copy", 1.3), *_single(parts[:head])])
    with program.within(frame="block_choice"):
        machine.launch([*_single(parts[head:]), *_choice(program)])


def _choice(program: Program) -> list[Op]:
    """DSPARK corrects the head's logits token by token, and says how sure it is."""
    if program.scenario.serving.algorithm != "DSPARK":
        return []
    k = program.kernels
    steps = program.scenario.serving.num_draft_tokens - 1
    return [*[k.kernel("draft_fc", 3.1), k.kernel("argmax", 4.0)] * steps, k.kernel("shared_expert", 2.6)]


def _tail(program: Program) -> Iterator[Part]:
    """The end of a verify graph that accepts."""
    k = program.kernels
    yield Enter("accept")
    yield from [k.kernel("scatter_compact", 2.6), k.kernel("scatter_compact", 2.4)]
    yield from [k.kernel("argmax", 8.0), k.kernel("cumsum", 2.4), *_finalize(program), k.kernel("copy", 1.3)]
    if program.scenario.serving.folded_append:
        yield Enter("draft_extend")
        yield k.kernel("commit_layout", 2.1)
        yield from _append(program)


def _finalize(program: Program) -> list[Op]:
    k = program.kernels
    return [k.kernel("finalize_accept", 2.0), k.kernel("build_out", 2.0)]


def _append(program: Program) -> list[Op]:
    """Hidden states of the verified rows become keys and values of every draft layer."""
    k = program.kernels
    layer = [k.kernel("q_b", 7.5), k.kernel("norm", 2.0), k.kernel("rope_kv", 2.4)]
    return [k.kernel("draft_fc", 30.0), k.kernel("norm", 2.1), *layer * program.scenario.drafter.layers]


def _single(parts: Sequence[Part]) -> list[Op]:
    return [part for part in parts if isinstance(part, Op)]
