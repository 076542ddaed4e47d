"""From a run to its results: the one place where parsers' tables meet the analyses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.compute as pc

from profkit.analysis import RunAnalysis
from profkit.attribution import attribute, needs_frames
from profkit.attribution.result import Attribution
from profkit.collectives.cost import MeasuredCurve, curve_of_nccl_rows
from profkit.errors import InputError
from profkit.loading import load_run
from profkit.logs import LogTables
from profkit.run import Run
from profkit.serving import summarise
from profkit.serving.result import BatchRow, LogSummary, ServerSummary
from profkit.trace import NO_TIMELINE, Trace


def _main_server(log: LogSummary | None) -> ServerSummary | None:
    if log is None or not log.servers:
        return None
    return max(log.servers, key=lambda s: s.decode.lines - s.decode.flagged)


def _steps_by_load(server: ServerSummary | None) -> dict[int, float]:
    """Mean step time in ms by the number of running requests per DP rank: the cycle that economics state."""
    rows = server.by_batch if server else ()
    return {row.running_req: _mean_step(row) for row in rows if row.step_ms.p50 is not None}


def _mean_step(row: BatchRow) -> float:
    """Of lines whose step time is known: sums over sums. Without a printed accept length each step gives one token."""
    speed = row.gen_throughput_tok_s.mean
    if not speed:
        return row.step_ms.p50 or 0.0
    accept = 1.0 if row.accept_len.mean is None else row.accept_len.mean
    return 1000.0 * row.running_req * accept / speed


def _allreduce_test(log: LogTables) -> MeasuredCurve | None:
    """Times of nccl-tests, if its output is among the logs."""
    rows = log.nccl.filter(pc.field("kind").isin(["test_row", "test_device"]))
    return curve_of_nccl_rows(rows.to_pylist())


def _untraced(traces: Sequence[Trace]) -> str:
    """Why none of the traces could be attributed, as a clause."""
    why = " or ".join(sorted({NO_TIMELINE.get(t.info.kind, "empty") for t in traces}))
    these = "the trace here cannot" if len(traces) == 1 else f"the {len(traces)} traces here cannot"
    return f"{these} be used, being {why}"


def analyse(run: Run, *, jobs: int | None = None) -> RunAnalysis:
    """Summarise the logs and attribute the traces of a loaded run.

    Traces that cannot be attributed leave the log's half of the result intact, and a warning.

    Raises:
        InputError: the run has traces only, and none of them can be attributed.
    """
    log = summarise(run.log) if run.log is not None else None
    warnings = list(run.warnings)
    attribution: Attribution | None = None
    untraced: str | None = None
    if run.traces:
        try:
            steps = _steps_by_load(_main_server(log))
            attribution = attribute(run.traces, facts=run.facts, log_step_ms=steps, jobs=jobs)
        except InputError as error:
            if log is None:
                raise
            warnings.append(str(error))
            untraced = _untraced(run.traces)
    return RunAnalysis(
        name=run.name,
        path=run.path,
        config=run.config,
        date=run.date,
        labels=run.labels,
        facts=run.facts,
        log=log,
        attribution=attribution,
        warnings=tuple(warnings),
        content_key=run.content_key,
        allreduce_test=_allreduce_test(run.log) if run.log is not None else None,
        untraced=untraced,
    )


def load_and_analyse(
    path: Path | str,
    *,
    jobs: int | None = None,
    cache: bool = True,
    progress: Callable[[float], None] | None = None,
) -> tuple[Run, RunAnalysis]:
    """Load and analyse the run at ``path``; Python frames are read only where nothing better labels the ops.

    Raises:
        InputError: nothing usable at ``path``.
    """
    run = load_run(path, jobs=jobs, cache=cache, progress=progress)
    if any(needs_frames(trace) for trace in run.traces):
        run = load_run(path, frames=True, jobs=jobs, cache=cache)
    return run, analyse(run, jobs=jobs)


def analyse_path(
    path: Path | str,
    *,
    jobs: int | None = None,
    cache: bool = True,
    progress: Callable[[float], None] | None = None,
) -> RunAnalysis:
    """Load and analyse the run at ``path``; Python frames are read only where nothing better labels the ops.

    Raises:
        InputError: nothing usable at ``path``.
    """
    return load_and_analyse(path, jobs=jobs, cache=cache, progress=progress)[1]
