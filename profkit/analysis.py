"""A run together with everything that was computed from it: the input of plans, comparisons and the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from profkit.attribution.result import Attribution
from profkit.collectives.cost import MeasuredCurve
from profkit.run import Facts
from profkit.serving.result import LogSummary, ServerSummary


@dataclass(frozen=True, slots=True)
class RunAnalysis:
    """Results of one run; a part is ``None`` when the run holds no files for it."""

    name: str
    path: str
    config: str | None
    date: str | None
    facts: Facts
    log: LogSummary | None
    attribution: Attribution | None
    warnings: tuple[str, ...] = ()
    content_key: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)  # of run.toml: dataset, launch ...
    allreduce_test: MeasuredCurve | None = None  # of nccl-tests whose output lies in the run's folder
    untraced: str | None = None  # why traces that are there gave no attribution, as a clause

    def server(self) -> ServerSummary | None:
        """The server with the most steady decode lines, which is the one the run is about."""
        if self.log is None or not self.log.servers:
            return None
        return max(self.log.servers, key=lambda s: s.decode.lines - s.decode.flagged)
