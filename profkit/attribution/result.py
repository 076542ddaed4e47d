"""What attribution yields. Times are nanoseconds in tables, microseconds in summaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa

from profkit.finding import Finding
from profkit.trace import TraceInfo
from profkit.words import Activity, HeadlinePart, LabelSource, Phase

if TYPE_CHECKING:
    import pandas as pd

TransferIs: TypeAlias = Literal["measured", "upper_bound"]
PartsUs = Mapping[Phase, Mapping[Activity, float | None]]
PartsNs = Mapping[Phase, Mapping[Activity, int | None]]


@dataclass(frozen=True, slots=True)
class WallUs:
    """Distribution of the cycle wall, in microseconds."""

    mean: float
    p10: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class RankResult:
    """One rank: sums over its counted cycles; ``parts_ns`` adds up to ``wall_ns`` exactly.

    A phase that did not run is 0, one that could not be observed is ``None``. ``number`` is what the rank goes by in
    tables and findings: its own rank where all are known and distinct, else its place in the inputs; ``name`` (``dp1
    tp0``) is for people, and no two ranks have the same. Collectives are
    compared among the ranks of one ``group``, which has ``group_size`` ranks when all are there (``None``: not said);
    ``transfer_is`` says whether the least duration over those at hand is the transfer or only bounds it from above.
    """

    rank: int | None
    dp: int | None
    tp: int | None
    pp: int | None
    ep: int | None
    cycles: int
    dropped: Mapping[str, int]  # {"partial": n, "prefill": n}
    wall_ns: int
    parts_ns: PartsNs
    overlapped_comm_ns: int
    labelled_by: Mapping[LabelSource, float]
    boundary: str  # which op starts a cycle, in words
    time_source: str  # gpu, or cpu for traces without a GPU
    number: int = 0
    name: str = "rank 0"
    group: int = 0
    group_size: int | None = None
    transfer_is: TransferIs | None = None


@dataclass(frozen=True, slots=True)
class CycleSummary:
    """The headline: counted cycles of the commonest batch size, all ranks pooled."""

    count: int
    batch_size: int | None
    wall_us: WallUs
    parts_us: PartsUs
    headline_us: Mapping[HeadlinePart, float | None]
    # Mean idle time by cause (keys in profkit.attribution.idle); adds up to the idle part.
    idle_causes_us: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """Counted cycles of one batch size, all ranks pooled."""

    batch_size: int | None
    cycles: int
    wall_us: WallUs
    parts_us: PartsUs


@dataclass(frozen=True, slots=True)
class CollectiveSummary:
    """One kind of collective in one phase; ``None`` where it cannot be known (one rank, unmatched, no sizes).

    ``transfer_us`` is the transfer where ``transfer_is`` says ``measured``. Where ranks of the group are missing it
    is an ``upper_bound``: the true transfer is at most that, the wait at least ``wait_us``, the bandwidth at least
    ``bus_bandwidth_gb_s``. ``calls_per_cycle`` is ``None`` where no cycle was counted.
    """

    phase: Phase
    kind: str
    implementation: str
    kernel: str
    fused: bool
    calls_per_cycle: float | None
    mean_us: float
    transfer_us: float | None
    wait_us: float | None
    message_bytes: int | None
    bus_bandwidth_gb_s: float | None
    transfer_is: TransferIs | None = None

    @property
    def calls(self) -> float:
        """Calls per cycle as a weight: rows of recordings without a counted cycle weigh nothing."""
        return self.calls_per_cycle or 0.0

    @property
    def measured_transfer_us(self) -> float | None:
        """The transfer where all ranks of the group were compared, else ``None``."""
        return self.transfer_us if self.transfer_is == "measured" else None

    @property
    def measured_wait_us(self) -> float | None:
        """The wait where all ranks of the group were compared, else ``None``."""
        return self.wait_us if self.transfer_is == "measured" else None


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Clock of a rank against the first rank, from the ends of matched collectives, in microseconds."""

    rank: int
    offset: float | None
    spread: float | None


@dataclass(frozen=True, slots=True)
class Attribution:
    """The result for all ranks of one run.

    Tables (schemas in :mod:`profkit.tables`): ``parts`` PARTS, ``cycles`` CYCLES, ``segments`` SEGMENTS,
    ``calls`` COLLECTIVE_CALLS, ``ops`` per rank OPS. Order of ``inputs``, ``ranks`` and ``ops`` is the same.
    """

    inputs: tuple[TraceInfo, ...]
    ranks: tuple[RankResult, ...]
    cycle: CycleSummary | None
    by_batch: tuple[BatchSummary, ...]
    collectives: tuple[CollectiveSummary, ...]
    clock_offsets_us: tuple[ClockOffset, ...]
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    parts: pa.Table
    cycles: pa.Table
    segments: pa.Table
    calls: pa.Table
    ops: tuple[pa.Table, ...]
    # Where no cycle is counted (prefill only, cut recordings): the whole recording, mean over ranks; else None.
    window: CycleSummary | None = None

    @property
    def without_gpu(self) -> bool:
        """Whether all traces were recorded without a GPU: host ops stand for GPU ops, and all times are the CPU's."""
        return bool(self.ranks) and all(rank.time_source == "cpu" for rank in self.ranks)

    def to_arrow(self) -> pa.Table:
        """One row per (rank, cycle, phase, activity): the Parquet form."""
        return self.parts

    def to_pandas(self) -> pd.DataFrame:
        """The same as a data frame."""
        return self.parts.to_pandas()

    def to_json(self) -> dict[str, object]:
        """The document ``profkit.attribution/1``."""
        return {
            "schema": "profkit.attribution/1",
            "inputs": list(self.inputs),
            "ranks": list(self.ranks),
            "cycle": self.cycle,
            "window": self.window,
            "by_batch": list(self.by_batch),
            "collectives": list(self.collectives),
            "clock_offsets_us": list(self.clock_offsets_us),
            "findings": list(self.findings),
            "warnings": list(self.warnings),
        }
