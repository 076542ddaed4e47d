"""Pass 2: the Python functions that were open when an op was launched (recordings with stacks).

Functions are matched by file and name, since generic names (``verify``, ``draft``, ``replay``) occur in several files.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profkit.attribution.labels import ACCEPT, DECODE, DRAFT, DRAFT_EXTEND, OTHER, VERIFY, Labels
from profkit.attribution.labels.between import NEVER, first_moment
from profkit.attribution.labels.dialect import marker_of, read_spans
from profkit.attribution.ops import Ops, copies_from_host
from profkit.attribution.spans import Spans
from profkit.trace import Trace

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def label_by_frame(trace: Trace, ops: Ops, labels: Labels) -> None:
    """Label what is still open through Python frames."""
    if trace.frames is None or not trace.frames.num_rows or not labels.open().any():
        return
    spans, _, _ = read_spans(trace.frames, "frame", ops.threads)
    if len(spans):
        _Frames(spans, ops, labels).run()


class _Frames:
    """Functions around each launch, and what they say; inner functions are asked before outer ones."""

    def __init__(self, spans: Spans, ops: Ops, labels: Labels) -> None:
        self.spans, self.ops, self.labels = spans, ops, labels
        self.usable = labels.open() & (ops.launch_thread >= 0)

    def around(self, *kinds: str) -> Ints:
        """Row of the outermost function of these kinds around each op's launch, -1 if none."""
        return self.spans.enclosing(self.spans.outermost(*kinds), self.ops.launch_ns, self.ops.launch_thread)

    def set(self, where: Bools, phase: int, *, prefill: bool = False) -> None:
        self.labels.set(self.usable & where, phase, "frame", prefill=prefill)

    def run(self) -> None:
        """Label by SGLang's functions, then vLLM's."""
        self._prefills()
        self._block_prefills()
        self._ngram_prefills()
        self.set(self.around("draft") >= 0, DRAFT)
        self.set(self.around("draft_extend") >= 0, DRAFT_EXTEND)
        self.set(self.around("accept") >= 0, ACCEPT)
        self._target("verify_region", VERIFY)
        self._host_drafts()
        self._target("ngram_cycle", VERIFY)
        self._blocks()
        self.set(self.around("scheduler") >= 0, OTHER)
        self._target("target_worker", DECODE)
        # Old releases call the forward from the batch itself.
        forward = self.around("target_forward")
        bare = self.usable & self.labels.open() & (forward >= 0)
        self.set(bare, DECODE)
        self.labels.add_forwards(bare, forward, {})
        self._vllm()
        self._rest()

    def _prefills(self) -> None:
        """Batches with a prefill function in them, outside the verification of drafts."""
        self.set(self.around("prefill") >= 0, OTHER, prefill=True)
        inside = [
            self.spans.outermost(k) for k in ("verify_region", "ngram_cycle", "block_cycle", "draft", "draft_extend")
        ]
        rows = self.spans.outermost("prefill_forward")
        own = np.ones(len(rows), np.bool_)
        for cover in inside:
            own &= self.spans.enclosing(cover, self.spans.start[rows], self.spans.thread[rows]) < 0
        batches = self.spans.outermost("run_batch")
        prefill = np.unique(self.spans.enclosing(batches, self.spans.start[rows[own]], self.spans.thread[rows[own]]))
        batch = self.around("run_batch")
        self.set(np.isin(batch, prefill[prefill >= 0]), OTHER, prefill=True)
        if not len(batches):
            self.set(
                self.spans.enclosing(rows[own], self.ops.launch_ns, self.ops.launch_thread) >= 0, OTHER, prefill=True
            )

    def _block_drafts(self) -> tuple[Ints, Ints]:
        """Forwards inside the cycles of a block drafter that are not the target's, and the cycle of each."""
        cycles, targets = self.spans.outermost("block_cycle"), self.spans.outermost("target_worker")
        rows = self.spans.outermost("target_forward", "prefill_forward")
        start, thread = self.spans.start[rows], self.spans.thread[rows]
        own = self.spans.enclosing(targets, start, thread) < 0
        cycle = self.spans.enclosing(cycles, start, thread)
        return rows[own & (cycle >= 0)], cycle[own & (cycle >= 0)]

    def _block_prefills(self) -> None:
        """DFLASH reads prompts in the function that also decodes: there only the target runs."""
        cycles = self.spans.outermost("block_cycle")
        if len(cycles):
            cycle = self.around("block_cycle")
            drafted = np.concatenate([self._block_drafts()[1], self._cycles_of("draft")])
            self.set((cycle >= 0) & ~np.isin(cycle, drafted), OTHER, prefill=True)

    def _ngram_prefills(self) -> None:
        """Prompts too are read inside the NGRAM worker's function: there no drafts are looked up."""
        drafts, cycles = self.spans.outermost("ngram_draft"), self.spans.outermost("ngram_cycle")
        if len(drafts):
            drafting = self.spans.enclosing(cycles, self.spans.start[drafts], self.spans.thread[drafts])
            cycle = self.around("ngram_cycle")
            self.set((cycle >= 0) & ~np.isin(cycle, drafting), OTHER, prefill=True)

    def _host_drafts(self) -> None:
        """NGRAM's drafts arrive as copies: what ran before them in the cycle is the scheduler's."""
        cycle = self.around("ngram_cycle")
        prepares = np.array([marker_of(n) in ("verify_prepare", "window") for n in self.ops.names] or [False], np.bool_)
        arrives = (cycle >= 0) & (copies_from_host(self.ops) | prepares[self.ops.name])
        first = first_moment(arrives, cycle, self.ops.launch_ns)
        self.set((cycle >= 0) & (first < NEVER) & (self.ops.launch_ns < first), OTHER)

    def _cycles_of(self, kind: str) -> Ints:
        rows, cycles = self.spans.outermost(kind), self.spans.outermost("block_cycle")
        found = self.spans.enclosing(cycles, self.spans.start[rows], self.spans.thread[rows])
        return found[found >= 0]

    def _since(self, rows: Ints, cycle: Ints) -> Bools:
        """Ops launched after the first of ``rows`` in their own cycle began."""
        if not len(rows):
            return np.zeros(len(cycle), np.bool_)
        place = self.spans.preceding(rows, self.ops.launch_ns, self.ops.launch_thread)
        begun = self.spans.start[rows[np.maximum(place, 0)]]
        return np.asarray((place >= 0) & (begun >= self.spans.start[np.maximum(cycle, 0)]), np.bool_)

    def _blocks(self) -> None:
        """A block drafter's cycle: before and in its own forward the draft, then the target's, then acceptance."""
        cycle = self.around("block_cycle")
        where = self.usable & self.labels.open() & (cycle >= 0)
        if not where.any():
            return
        moment, thread = self.ops.launch_ns, self.ops.launch_thread
        targets = self.spans.outermost("target_worker")
        target = self.spans.enclosing(targets, moment, thread)
        mine = where & (target >= 0)
        self.set(mine, VERIFY)
        self.labels.add_forwards(mine, cycle, {})
        self.set(where & self._since(targets, cycle) & (target < 0), ACCEPT)
        drafts = self._block_drafts()[0]
        drafting = self.spans.enclosing(drafts, moment, thread) >= 0
        self.set(where & self._since(drafts, cycle) & ~drafting, VERIFY)
        self.set(where, DRAFT)

    def _rest(self) -> None:
        """What is left of batches: the scheduler's, or a prefill where a batch works and no function says how."""
        batch = self.around("run_batch")
        rest = self.usable & self.labels.open() & (batch >= 0)
        told = np.unique(batch[(batch >= 0) & ~self.labels.open()])
        works = np.unique(batch[rest & self.ops.classes.mask("attn") & ~self.ops.classes.mask("attn.meta")])
        self.set(rest & np.isin(batch, works) & ~np.isin(batch, told), OTHER, prefill=True)
        self.set(rest, OTHER)

    def _target(self, region: str, phase: int) -> None:
        """A function that prepares, runs the target forward and picks tokens: told apart by the forward inside."""
        cover = self.around(region)
        where = self.usable & self.labels.open() & (cover >= 0)
        if not where.any():
            return
        rows = self.spans.outermost("target_forward", "prefill_forward")
        forward = self.spans.enclosing(rows, self.ops.launch_ns, self.ops.launch_thread)
        place = self.spans.preceding(rows, self.ops.launch_ns, self.ops.launch_thread)
        safe = np.maximum(place, 0)
        after = (place >= 0) & (forward < 0)
        if len(rows):
            after &= self.spans.start[rows[safe]] >= self.spans.start[np.maximum(cover, 0)]
        known = (cover >= 0) & ((forward >= 0) | (self.labels.forward >= 0))
        has_forward = np.isin(cover, np.unique(cover[known]))
        inside = where & (forward >= 0)
        self.set(inside, phase)
        self.labels.add_forwards(inside, cover, {})
        self.set(where & after & has_forward, ACCEPT)
        # What is left of a region that the recording cut comes after its forward, where other regions tell theirs.
        spans = self.spans.outermost(region)
        cut = spans[np.append(True, np.diff(self.spans.thread[spans]) != 0)] if has_forward.any() else spans[:0]
        self.set(where & ~has_forward & np.isin(cover, cut), ACCEPT)
        # A region whose forward has no function of its own (eager, or a name we do not know) is the forward itself.
        whole = where & ~has_forward & self.labels.open()
        self.set(where, phase)
        self.labels.add_forwards(whole, cover, {})

    def _vllm(self) -> None:
        drafts = self.spans.has("vllm_draft")
        sample, draft = self.around("vllm_sample"), self.around("vllm_draft")
        self.set(draft >= 0, DRAFT)
        self.set(sample >= 0, ACCEPT)
        forward = self.around("vllm_forward")
        where = self.usable & self.labels.open() & (forward >= 0)
        if where.any():
            self.labels.verify_first |= drafts
            self.set(where, VERIFY if drafts else DECODE)
            self.labels.add_forwards(where, forward, {})
