"""Summary of the logs of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from profkit.finding import Finding
from profkit.logs import LogFile


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles, and mean where an average has a meaning (weighted: sums over sums)."""

    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    mean: float | None = None


@dataclass(frozen=True, slots=True)
class BatchRow:
    """Steady decode lines of one number of running requests per DP rank."""

    running_req: int
    lines: int
    gen_throughput_tok_s: Spread
    accept_len: Spread
    step_ms: Spread
    token_usage: float | None
    context_tokens: float | None = None  # mean KV tokens per running request


@dataclass(frozen=True, slots=True)
class DecodeSummary:
    """All decode lines of one server. ``flagged`` lines (after idle or prefill, profiling) are left out of averages.

    ``gen_throughput_tok_s`` and ``step_ms`` are per DP rank; ``cluster_throughput_tok_s`` adds the DP ranks up.
    ``accept_len.mean`` is sum of tokens over sum of request-steps.
    """

    lines: int
    damaged: int
    flagged: int
    gen_throughput_tok_s: Spread
    cluster_throughput_tok_s: Spread
    accept_len: Spread
    step_ms: Spread
    cuda_graph_share: float | None


@dataclass(frozen=True, slots=True)
class ServerSummary:
    """One server start and what it served."""

    server: int
    engine: str | None
    engine_version: str | None
    version_range: tuple[str | None, str | None]
    model: str | None
    algorithm: str | None
    speculative: bool | None
    num_steps: int | None
    topk: int | None
    num_draft_tokens: int | None
    tp: int | None
    dp: int | None
    pp: int | None
    ep: int | None
    decode: DecodeSummary
    by_batch: tuple[BatchRow, ...]
    prefill: Mapping[str, float | int | None]
    requests: Mapping[str, float | int | None]
    events: Mapping[str, int]
    findings: tuple[Finding, ...] = ()
    start_line: str | None = None  # file:line
    accept_rate_era: str | None = None  # A, B or C: see docs/logs.md; null when the lines do not tell
    accepted_per_draft_token: float | None = None  # mean over request-steps
    version_evidence: str | None = None
    series: Mapping[str, Sequence[float | None]] = field(default_factory=dict)  # up to 60 points over the log


@dataclass(frozen=True, slots=True)
class LogSummary:
    """The document ``profkit.log/1``."""

    inputs: tuple[LogFile, ...]
    servers: tuple[ServerSummary, ...]
    bench: tuple[Mapping[str, object], ...] = ()
    warnings: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, object]:
        """The document ``profkit.log/1``."""
        return {
            "schema": "profkit.log/1",
            "inputs": list(self.inputs),
            "servers": list(self.servers),
            "bench": list(self.bench),
            "warnings": list(self.warnings),
        }
