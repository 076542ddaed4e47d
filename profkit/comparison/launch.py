"""One server launch as comparisons see it: its metrics, its fingerprint, its kernel classes, its data quality."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from profkit.analysis import RunAnalysis
from profkit.attribution.result import Attribution, BatchSummary, CollectiveSummary
from profkit.comparison.fingerprint import Fingerprint, Scalar, fingerprint
from profkit.comparison.kernels import KernelRow, kernel_rows
from profkit.comparison.metrics import Measurement, metric_kind
from profkit.rules import load_rules
from profkit.serving.result import BatchRow, ServerSummary, Spread
from profkit.words import TARGET_FORWARD_PHASES

# Share of the KV cache in use: not compared, but launches at very different ones had other context lengths.
CONTEXT = "token_usage"


@dataclass(frozen=True, slots=True)
class Quality:
    """How much of a launch was usable; ``None`` where the run holds no such file."""

    decode_lines: int | None = None
    damaged_lines: int | None = None
    flagged_lines: int | None = None
    cycles: int | None = None
    dropped_cycles: int | None = None
    unlabelled_share: float | None = None  # of GPU-op time
    warnings: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """One server launch. ``id`` is its id in the store, or ``None`` for a run that was read just now."""

    name: str
    measurements: tuple[Measurement, ...]
    fingerprint: Fingerprint
    kernels: tuple[KernelRow, ...] = ()
    quality: Quality = field(default_factory=Quality)
    id: str | None = None
    config: str | None = None
    week: str | None = None
    date: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    content_key: str | None = None


def _measurement(
    name: str, value: float | None, *, source: str, running_req: int | None, n: int | None, spread: Spread | None = None
) -> Iterator[Measurement]:
    kind = metric_kind(name)
    if value is None or kind is None:
        return
    unit = kind.unit or ""
    low, high = (spread.p10, spread.p90) if spread else (None, None)
    yield Measurement(name, float(value), unit, running_req, n, low, high, source)


def _from_batch(row: BatchRow, source: str) -> Iterator[Measurement]:
    rate = row.gen_throughput_tok_s
    throughput = rate.mean if rate.mean is not None else rate.p50
    length = row.accept_len.mean if row.accept_len.mean is not None else row.accept_len.p50
    for name, value, spread in (
        ("throughput", throughput, rate),
        ("accept_len", length, row.accept_len),
        ("step_time", row.step_ms.p50, row.step_ms),
    ):
        yield from _measurement(name, value, source=source, running_req=row.running_req, n=row.lines, spread=spread)
    if row.token_usage is not None:
        yield Measurement(CONTEXT, row.token_usage, "share", row.running_req, row.lines, source=source)


def _from_server(server: ServerSummary) -> Iterator[Measurement]:
    source = f"decode lines of the server at {server.start_line}" if server.start_line else "decode lines"
    for row in server.by_batch:
        yield from _from_batch(row, source)
    steady = server.decode.lines - server.decode.flagged
    cluster = server.decode.cluster_throughput_tok_s
    total = cluster.mean if cluster.mean is not None else cluster.p50
    # With one load and one DP rank it would be the throughput again.
    if len(server.by_batch) != 1 or (server.dp or 1) > 1:
        yield from _measurement("cluster_throughput", total, source=source, running_req=None, n=steady, spread=cluster)
    share = server.decode.cuda_graph_share
    yield from _measurement("cuda_graph_share", share, source=source, running_req=None, n=steady)


def _from_cycles(batch: BatchSummary) -> Iterator[Measurement]:
    load = batch.batch_size
    spread = Spread(p10=batch.wall_us.p10, p50=batch.wall_us.p50, p90=batch.wall_us.p90, mean=batch.wall_us.mean)
    yield from _measurement(
        "cycle_wall", batch.wall_us.p50, source="trace", running_req=load, n=batch.cycles, spread=spread
    )
    for phase, cells in batch.parts_us.items():
        for activity, value in cells.items():
            name = f"{phase}.{activity}"
            yield from _measurement(name, value, source="trace", running_req=load, n=batch.cycles)


def _mean_per_call(rows: list[tuple[CollectiveSummary, float | None]]) -> float | None:
    """Mean over calls; ``None`` when one row's figure is unknown, since the rest would not stand for all calls."""
    calls = sum(row.calls for row, _ in rows)
    if calls <= 0 or any(value is None for _, value in rows):
        return None
    return sum(row.calls * value for row, value in rows if value is not None) / calls


def _from_collectives(attribution: Attribution) -> Iterator[Measurement]:
    cycle = attribution.cycle
    if cycle is None:
        return  # then the rows count calls of cut recordings, not of cycles
    load, n = cycle.batch_size, cycle.count
    reduces = [
        c for c in attribution.collectives if c.phase in TARGET_FORWARD_PHASES and c.kind in ("all_reduce", "allreduce")
    ]
    if reduces:
        for name, value in (
            ("allreduce_per_call", _mean_per_call([(c, c.mean_us) for c in reduces])),
            ("allreduce_transfer", _mean_per_call([(c, c.measured_transfer_us) for c in reduces])),
            ("allreduce_calls", sum(c.calls for c in reduces)),
        ):
            yield from _measurement(name, value, source="trace, target forward", running_req=load, n=n)
    waits = [(c.measured_wait_us, c.calls) for c in attribution.collectives]
    if waits and all(wait is not None for wait, _ in waits):
        total = sum(wait * calls for wait, calls in waits if wait is not None)
        yield from _measurement("wait", total, source="trace, matched collectives", running_req=load, n=n)


# A sweep over settings inside one launch is no figure of that launch's setting.
_SWEEPS = frozenset({"bench_speculative"})
# What states the load of a benchmark result, best first.
_LOADS = ("max_concurrency", "batch_size", "peak_concurrent_requests")


@cache
def _bench_units() -> Mapping[str, str]:
    """Units of benchmark figures by name: the readers' own rules."""
    return {rule["name"]: rule["unit"] for rules in load_rules("bench").values() for rule in rules}


def _bench_load(figures: Mapping[str, object]) -> int | None:
    stated = (figures.get(name) for name in _LOADS)
    return next((round(v) for v in stated if isinstance(v, int | float) and not isinstance(v, bool)), None)


def _from_bench(results: tuple[Mapping[str, object], ...]) -> Iterator[Measurement]:
    """Benchmark figures: the mean where a launch holds several results at one load."""
    found: dict[tuple[str, int | None], tuple[list[float], str, str]] = {}
    for result in results:
        figures, tool = result.get("figures"), str(result.get("tool"))
        if tool in _SWEEPS or not isinstance(figures, Mapping):
            continue
        short = tool.removeprefix("bench_")
        for key, value in figures.items():
            name = f"bench.{key}" if short == "serving" else f"bench.{short}.{key}"
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if number and metric_kind(name) is not None:
                place: tuple[list[float], str, str] = ([], _bench_units().get(key, ""), str(result.get("file")))
                found.setdefault((name, _bench_load(figures)), place)[0].append(value)
    for (name, load), (values, unit, source) in found.items():
        yield Measurement(name, sum(values) / len(values), unit, load, len(values), None, None, source)


def _quality(analysis: RunAnalysis, server: ServerSummary | None) -> Quality:
    attribution = analysis.attribution
    ranks = attribution.ranks if attribution else ()
    shares = [rank.labelled_by["none"] for rank in ranks if "none" in rank.labelled_by]
    return Quality(
        decode_lines=server.decode.lines if server else None,
        damaged_lines=server.decode.damaged if server else None,
        flagged_lines=server.decode.flagged if server else None,
        cycles=sum(rank.cycles for rank in ranks) if attribution else None,
        dropped_cycles=sum(sum(rank.dropped.values()) for rank in ranks) if attribution else None,
        unlabelled_share=max(shares) if shares else None,
        warnings=len(analysis.warnings)
        + (len(analysis.log.warnings) if analysis.log else 0)
        + (len(attribution.warnings) if attribution else 0),
    )


def _fingerprint(analysis: RunAnalysis, server: ServerSummary | None) -> dict[str, Scalar]:
    """The facts' fingerprint; that there is no speculation is as much a setting as an algorithm is."""
    prints = fingerprint(analysis.facts, analysis.labels)
    if server is not None and server.speculative is False:
        prints.setdefault("speculative.algorithm", "none")
    return dict(sorted(prints.items()))


def launch_of(analysis: RunAnalysis) -> Launch:
    """Everything of a run that can be compared. A figure that the run does not hold is absent, never 0."""
    server = analysis.server()
    measurements: list[Measurement] = []
    if server is not None:
        measurements += _from_server(server)
    if analysis.log is not None:
        measurements += _from_bench(analysis.log.bench)
    if analysis.attribution is not None:
        for batch in analysis.attribution.by_batch:
            measurements += _from_cycles(batch)
        measurements += _from_collectives(analysis.attribution)
    return Launch(
        name=analysis.name,
        measurements=tuple(measurements),
        fingerprint=_fingerprint(analysis, server),
        kernels=kernel_rows(analysis.attribution) if analysis.attribution else (),
        quality=_quality(analysis, server),
        config=analysis.config,
        date=analysis.date,
        labels=dict(analysis.labels),
        content_key=analysis.content_key,
    )
