"""Everything about one rank that needs no other rank: labels, cycles, exclusive timeline, idle causes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from profkit.attribution.collective_kinds import name_collectives
from profkit.attribution.credible_spans import DamagedSpans, with_credible_spans
from profkit.attribution.cycles import Cycles, find_cycles
from profkit.attribution.host import host_time
from profkit.attribution.host_timeline import read_host_ops
from profkit.attribution.idle import idle_by_cause
from profkit.attribution.labels import Labels
from profkit.attribution.labels.annotation import label_by_annotation
from profkit.attribution.labels.frame import label_by_frame
from profkit.attribution.labels.gpu_annotation import label_by_gpu_annotation
from profkit.attribution.labels.graph import label_by_landmarks
from profkit.attribution.labels.size import label_by_size
from profkit.attribution.labels.tail import label_tails
from profkit.attribution.ops import Ops, read_ops
from profkit.attribution.timeline import Timeline, exclusive_timeline
from profkit.trace import Trace, TraceInfo
from profkit.words import LABEL_SOURCES, LabelSource

Ints = npt.NDArray[np.int64]
# Runtime and driver calls that always put work on the GPU.
_QUEUES_WORK: Final = re.compile(r"Launch(Cooperative)?Kernel|GraphLaunch|Mem(cpy|set)\w*Async")


@dataclass(frozen=True, slots=True)
class RankAnalysis:
    """One rank, analysed alone. ``parts`` is (cycles, phases, activities) in ns, ``idle`` (cycles, causes) in ns."""

    info: TraceInfo
    ops: Ops
    labels: Labels
    cycles: Cycles
    timeline: Timeline
    parts: Ints
    idle: Ints
    host_ns: Ints
    time_source: str
    damaged_spans: DamagedSpans

    def labelled_by(self) -> dict[LabelSource, float]:
        """Share of the summed op duration that each pass labelled, in counted cycles (in all ops if there is none)."""
        if not len(self.ops):
            return {source: float(source == "none") for source in LABEL_SOURCES}
        counted = np.append(self.cycles.counted(), False)
        where = counted[self.cycles.op_cycle]
        if not where.any():
            where = np.ones(len(self.ops), np.bool_)
        duration = self.ops.duration[where].astype(np.float64)
        total = float(duration.sum())
        if total == 0.0:
            duration, total = np.ones(int(where.sum())), float(max(where.sum(), 1))
        sums = np.bincount(self.labels.source[where], weights=duration, minlength=len(LABEL_SOURCES))
        return {source: float(sums[i] / total) for i, source in enumerate(LABEL_SOURCES)}


def analyse_rank(trace: Trace, *, speculative: bool | None = None) -> RankAnalysis:
    """Attribute one rank's trace; ``speculative`` says whether the server is known to speculate."""
    on_host = trace.info.kind == "cpu_only"
    trace, damaged = with_credible_spans(trace)
    ops = read_host_ops(trace) if on_host else name_collectives(trace, read_ops(trace))
    labels = Labels.none(len(ops))
    label_tails(ops, labels)
    label_by_annotation(trace, ops, labels)
    label_by_frame(trace, ops, labels)
    label_by_landmarks(ops, labels)
    if label_by_gpu_annotation(trace, ops, labels):
        label_by_landmarks(ops, labels)
    # Sizes of forwards are the weakest evidence: asked last, where nothing else found a forward.
    label_by_size(ops, labels, on_host=on_host, speculative=speculative)
    cycles = find_cycles(ops, labels, cut_off=trace.info.truncated or _lost_work(trace))
    timeline = exclusive_timeline(
        ops.start,
        ops.end,
        ops.activity,
        labels.phase,
        ops.stream,
        ops.stream == cycles.main_stream,
        cycles.start,
        cycles.end,
    )
    return RankAnalysis(
        info=trace.info,
        ops=ops,
        labels=labels,
        cycles=cycles,
        timeline=timeline,
        parts=timeline.parts(len(cycles)),
        idle=idle_by_cause(trace, ops, labels, cycles, timeline),
        host_ns=host_time(trace, ops, cycles),
        time_source="cpu" if on_host else "gpu",
        damaged_spans=damaged,
    )


def _lost_work(trace: Trace) -> bool:
    """Whether the host launched kernels, graphs or copies of which no GPU op was recorded."""
    launches, ops = trace.launches, trace.gpu_ops
    if not launches.num_rows or not ops.num_rows:
        return False
    lost = pc.invert(pc.is_in(launches.column("correlation"), value_set=ops.column("correlation").combine_chunks()))
    names = pc.unique(launches.column("name").filter(pc.and_kleene(lost, launches.column("correlation").is_valid())))
    return any(_QUEUES_WORK.search(str(name)) for name in names.to_pylist())
