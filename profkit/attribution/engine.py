"""The public entry: traces of one run in, the attribution out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from profkit import tables
from profkit.attribution import checks, checks_ranks, summary
from profkit.attribution.calls import RankCalls, plain_calls, read_calls
from profkit.attribution.groups import Group, match_groups
from profkit.attribution.labels.annotation import annotates_work
from profkit.attribution.naming import rank_names, rank_number
from profkit.attribution.rank import RankAnalysis, analyse_rank
from profkit.attribution.result import Attribution, CycleSummary
from profkit.attribution.selection import select_traces
from profkit.errors import InputError
from profkit.finding import Finding
from profkit.run import Facts
from profkit.trace import Trace

# Below this many GPU ops in all, starting threads costs more than they save.
PARALLEL_OPS = 200_000


def attribute(
    traces: Sequence[Trace],
    *,
    facts: Facts | None = None,
    log_step_ms: float | Mapping[int, float] | None = None,
    jobs: int | None = None,
) -> Attribution:
    """Split every decode cycle of every rank by phase and activity.

    Args:
        traces: the ranks of one run. Captures, repeated ranks and other profiles among them are left out and named
            in ``warnings``.
        facts: what is known about the system; sizes and expected counts need it.
        log_step_ms: unprofiled step time of the same run from the server log, for a cross-check: one figure, or one by
            the number of running requests.
        jobs: ranks analysed at the same time; default: as many as there are processors, for large traces.

    Raises:
        InputError: no trace holds a timeline.
    """
    known = facts if facts is not None else Facts()
    chosen, warnings = select_traces(traces)
    usable = [t for t in chosen if t.info.kind in ("gpu", "cpu_only") and (t.gpu_ops.num_rows or t.cpu_ops.num_rows)]
    if usable and len(usable) < len(chosen):
        empty = ", ".join(t.info.path for t in chosen if t not in usable)
        warnings = (*warnings, f"no timeline in {empty}: left out")
    if not usable:
        names = ", ".join(t.info.path for t in traces[:3]) or "nothing"
        raise InputError(
            f"{names}: no timeline in these traces (captures, or recorded without kernels); "
            "profile the server while it decodes"
        )
    ranks = _analyse(usable, jobs, _speculates(known))
    calls = [read_calls(t, r, known) for t, r in zip(usable, ranks, strict=True)]
    plain = [plain_calls(r, c) for r, c in zip(ranks, calls, strict=True)]
    groups = match_groups([r.info for r in ranks], plain, known)
    cycle = summary.cycle_summary(ranks)
    findings = list(checks.rank_findings(ranks))
    findings += checks.count_findings(ranks, calls, known, cycle)
    findings += checks_ranks.group_findings(ranks, groups)
    source = ranks[0].time_source
    if cycle is not None:
        findings += checks.cycle_findings(cycle, _step_at(log_step_ms, cycle.batch_size), source)
    return _result(ranks, calls, groups, cycle, findings, warnings)


def _step_at(log_step_ms: float | Mapping[int, float] | None, batch_size: int | None) -> float | None:
    """The log's step time at the traced load; without a known batch size only a single figure can be meant."""
    if not isinstance(log_step_ms, Mapping):
        return log_step_ms
    if batch_size is None:
        return next(iter(log_step_ms.values())) if len(log_step_ms) == 1 else None
    return log_step_ms.get(batch_size)


def _speculates(facts: Facts) -> bool | None:
    algorithm = facts.text("speculative.algorithm")
    return None if algorithm is None else algorithm.lower() not in ("none", "null", "")


def _analyse(traces: Sequence[Trace], jobs: int | None, speculative: bool | None) -> list[RankAnalysis]:
    def one(trace: Trace) -> RankAnalysis:
        return analyse_rank(trace, speculative=speculative)

    large = sum(t.gpu_ops.num_rows or t.cpu_ops.num_rows for t in traces) >= PARALLEL_OPS
    if len(traces) < 2 or jobs == 1 or not large:
        return [one(t) for t in traces]
    # numpy and Arrow release the interpreter lock in the calls that take the time.
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        return list(pool.map(one, traces))


def _result(
    ranks: list[RankAnalysis],
    calls: list[RankCalls],
    groups: list[Group],
    cycle: CycleSummary | None,
    findings: list[Finding],
    warnings: Sequence[str],
) -> Attribution:
    where = {i: (g, p) for g in groups for p, i in enumerate(g.ranks)}
    group_of = {i: (n, g) for n, g in enumerate(groups) for i in g.ranks}
    infos = [r.info for r in ranks]
    numbers, names = [rank_number(infos, i) for i in range(len(ranks))], rank_names(infos)
    shifts = [where[i][0].shared_shift(where[i][1]) for i in range(len(ranks))]
    order = {"problem": 0, "warning": 1, "info": 2}
    findings = sorted(findings, key=lambda f: order[f.severity])
    return Attribution(
        inputs=tuple(r.info for r in ranks),
        ranks=tuple(summary.rank_result(r, numbers[i], names[i], *group_of[i]) for i, r in enumerate(ranks)),
        cycle=cycle,
        by_batch=summary.by_batch(ranks),
        collectives=summary.collective_summaries(ranks, calls, groups),
        clock_offsets_us=summary.clock_offsets(ranks, groups),
        findings=tuple(findings),
        warnings=(*warnings, *(f.sentence for f in findings if f.severity != "info")),
        parts=_joined(tables.PARTS, [summary.parts_table(n, r) for n, r in zip(numbers, ranks, strict=True)]),
        cycles=_joined(
            tables.CYCLES, [summary.cycles_table(n, r, s) for n, r, s in zip(numbers, ranks, shifts, strict=True)]
        ),
        segments=_joined(tables.SEGMENTS, [summary.segments_table(n, r) for n, r in zip(numbers, ranks, strict=True)]),
        calls=_joined(
            tables.COLLECTIVE_CALLS,
            [
                summary.calls_table(n, r, c, where[i][1], where[i][0])
                for i, (n, r, c) in enumerate(zip(numbers, ranks, calls, strict=True))
            ],
        ),
        ops=tuple(summary.ops_table(r, c) for r, c in zip(ranks, calls, strict=True)),
        window=summary.window_summary(ranks) if cycle is None else None,
    )


def _joined(schema: pa.Schema, parts: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(parts).unify_dictionaries().cast(schema)


def needs_frames(trace: Trace) -> bool:
    """Whether Python frames would help: they are in the file, were not read, and no annotation names the work."""
    return trace.frames is None and trace.info.python_frames and not annotates_work(trace)
