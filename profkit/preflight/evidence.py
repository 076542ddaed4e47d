"""What a run holds, reduced to what decides which questions it can answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from profkit.comparison.system import system_of
from profkit.preflight.result import RunFound, TraceFound
from profkit.preflight.versions import least_release, version_key
from profkit.run import Run
from profkit.serving.result import LogSummary, ServerSummary
from profkit.trace import Trace

# Fewer steady lines of one batch size than this give no step time worth a comparison.
MIN_LINES = 5
_STEP = re.compile(r"^step\[")
_TARGET_FORWARD = re.compile(r"^step\[(TARGET_)?VERIFY\b|^execute_\S*context_|^gpu_model_runner: forward")
# A forward that reads prompts is no decode step, whatever else is in its batch.
_PREFILL = re.compile(r"^step\[EXTEND\b|^execute_\S*context_[1-9]")
_DECODE_STEP = re.compile(r"^step\[DECODE\b")
_SPECULATION = re.compile(r"^step\[(TARGET_VERIFY|VERIFY|DRAFT)|^draft(_extend)?$")
_GRAPH_LAUNCH = re.compile(r"GraphLaunch")


def _occurrences(column: pa.ChunkedArray[Any]) -> dict[str, int]:
    """How often each text of a column occurs."""
    found: Any = pc.value_counts(column)
    return {str(r["values"]): int(r["counts"]) for r in found.to_pylist() if r["values"] is not None}


def _host_annotations(trace: Trace) -> dict[str, int]:
    table = trace.annotations
    return _occurrences(table.filter(pc.field("side") == "host")["name"]) if table.num_rows else {}


def _has_graphs(trace: Trace) -> bool:
    return any(_GRAPH_LAUNCH.search(name) for name in _occurrences(trace.launches["name"]))


def trace_found(trace: Trace) -> tuple[TraceFound, bool, str | None]:
    """One trace, whether its annotations show speculation, and the oldest release that writes them."""
    counts = _host_annotations(trace)
    labels: Literal["annotations", "frames", "graphs"] | None = None
    if any(_STEP.search(n) or _TARGET_FORWARD.search(n) for n in counts):
        labels = "annotations"
    elif trace.info.python_frames:
        labels = "frames"
    elif _has_graphs(trace):
        labels = "graphs"
    speculative = any(_SPECULATION.search(n) for n in counts)
    release = least_release(counts)
    pattern = _TARGET_FORWARD if speculative or not any(_DECODE_STEP.search(n) for n in counts) else _DECODE_STEP
    steps = sum(n for name, n in counts.items() if pattern.search(name) and not _PREFILL.search(name))
    told = labels == "annotations" and (steps or any(_PREFILL.search(n) for n in counts))
    info = trace.info
    found = TraceFound(
        path=info.path,
        kind=info.kind,
        rank=info.rank,
        stage=info.stage,
        gpu_ops=info.gpu_ops,
        python_frames=info.python_frames,
        labels=labels,
        decode_steps=steps if told else None,
        problems=tuple(f"{p.kind} ({p.count})" for p in info.problems),
    )
    return found, speculative, release


def _ranks(run: Run) -> int | None:
    """How many processes write a trace: tensor-parallel ranks times pipeline stages."""
    tp, pp = run.facts.integer("parallel.tp"), run.facts.integer("parallel.pp")
    if tp is not None:
        return tp * (pp or 1)
    sizes = [size for trace in run.traces if isinstance(size := (trace.info.distributed or {}).get("world_size"), int)]
    return max(sizes) if sizes else None


def _engine(run: Run, servers: Sequence[ServerSummary]) -> str | None:
    stated = [run.facts.text("engine.name"), *(s.engine for s in servers), *(t.info.engine for t in run.traces)]
    return next((engine for engine in stated if engine), None)


def _contexts(server: ServerSummary | None) -> dict[int, float]:
    rows = server.by_batch if server else ()
    return {row.running_req: row.context_tokens for row in rows if row.context_tokens is not None}


def run_found(run: Run, log: LogSummary | None) -> RunFound:
    """Reduce a loaded run and the summary of its logs."""
    facts = run.facts
    found = [trace_found(t) for t in run.traces]
    servers = log.servers if log else ()
    steady = [s for s in servers if s.decode.lines > s.decode.flagged]
    speculative: bool | None = True if "speculative.algorithm" in facts else None
    stated = [s.speculative for s in servers if s.speculative is not None]
    if stated:
        speculative = any(stated)
    elif any(spec for _, spec, _ in found):
        speculative = True
    elif speculative is None and "server_args.model_path" in facts:
        speculative = False
    tests = debug = bench = 0
    if run.log is not None:
        kinds = run.log.nccl["kind"].to_pylist()
        tests, debug = kinds.count("test_row"), len(kinds) - kinds.count("test_row")
        bench = run.log.bench.num_rows
    releases = [release for _, _, release in found if release is not None]
    written_since = max(releases, key=version_key, default=None)
    main = max(steady, key=lambda s: s.decode.lines - s.decode.flagged, default=None)
    return RunFound(
        name=run.name,
        # The same wherever the run lies.
        path=Path(run.path).name if Path(run.path).is_absolute() else run.path,
        engine=_engine(run, servers),
        version=facts.text("engine.version") or next((s.engine_version for s in servers if s.engine_version), None),
        version_low=(main.version_range[0] if main else facts.text("engine.version_low")) or written_since,
        version_high=main.version_range[1] if main else facts.text("engine.version_high"),
        speculative=speculative,
        algorithm=facts.text("speculative.algorithm") or (main.algorithm if main else None),
        num_draft_tokens=facts.integer("speculative.num_draft_tokens"),
        ranks=_ranks(run),
        launches=len(steady),
        decode_lines=sum(s.decode.lines - s.decode.flagged for s in steady),
        batch_sizes=tuple(sorted({b.running_req for s in steady for b in s.by_batch if b.lines >= MIN_LINES})),
        accept_length_known=any(s.decode.accept_len.mean is not None for s in steady),
        bench_rows=bench,
        nccl_debug_rows=debug,
        nccl_test_rows=tests,
        traces=tuple(t for t, _, _ in found),
        hidden_size=facts.integer("model.hidden_size"),
        layers=facts.integer("model.layers"),
        port=facts.integer("server_args.port"),
        warnings=run.warnings,
        contexts=_contexts(main),
        system=system_of(facts),
    )
