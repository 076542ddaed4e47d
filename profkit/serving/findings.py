"""What an engineer should know about a server's log, with the lines that show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from profkit.finding import Finding
from profkit.serving.findings_decode import decode_findings
from profkit.serving.result import ServerSummary

Events = Sequence[Mapping[str, Any]]
_ORDER: Final = {"problem": 0, "warning": 1, "info": 2}
_SHOWN: Final = 3
_FAULTS: Final = {
    "exception": "the scheduler or another process of the server hit an exception",
    "watchdog": "the watchdog found no progress and dumped the processes",
    "oom": "memory ran out",
    "child_failed": "a process of the server died",
}
_NO_CUSTOM_ALL_REDUCE: Final = ("disabled", "NCCL", "failed")


def find(
    summary: ServerSummary,
    file: str,
    decode: pa.Table,
    events: Events,
    facts: Mapping[str, Any],
) -> tuple[Finding, ...]:
    """All findings of one server, the worst first; ``decode`` is the kept sample of interpreted decode lines."""
    del facts
    found = [
        *_faults(summary, file, events),
        *_retractions(summary, file, events),
        *_all_reduce(summary, file, events),
        *_limits(file, events),
        *_adaptive(file, events),
        *decode_findings(summary, file, decode),
    ]
    return tuple(sorted(found, key=lambda finding: _ORDER[finding.severity]))


def places(file: str, rows: Events) -> tuple[str, ...]:
    """The first places of some rows, as ``file:line``."""
    return tuple(f"{row.get('file') or file}:{row['line']}" for row in rows[:_SHOWN])


def times(count: int) -> str:
    """``once``, ``7 times``."""
    return "once" if count == 1 else f"{count} times"


def _of(events: Events, *kinds: str) -> list[Mapping[str, Any]]:
    return [event for event in events if event["kind"] in kinds]


def _fields(event: Mapping[str, Any]) -> dict[str, str]:
    return dict(event.get("fields") or ())


def _faults(summary: ServerSummary, file: str, events: Events) -> list[Finding]:
    ready = summary.events.get("ready", 0) > 0
    served = summary.decode.lines + int(summary.prefill.get("lines") or 0) > 0
    found = []
    for kind, words in _FAULTS.items():
        rows = _of(events, kind)
        if not rows:
            continue
        errors = [_fields(row) for row in rows]
        named = next((e for e in errors if e.get("type")), {})
        reason = f": {named['type']}: {named.get('message', '')}".rstrip(": ") if named else ""
        when = "While serving" if ready or served else "Before the server was ready"
        found.append(
            Finding(
                f"fault_{kind}",
                "problem",
                f"{when}, {words}{f' ({times(len(rows))})' if len(rows) > 1 else ''}{reason}.",
                places(file, rows),
                {"count": len(rows)},
            )
        )
    if summary.start_line and summary.events.get("server_start") and not ready and not served:
        found.append(
            Finding(
                "never_ready",
                "problem",
                "The server never became ready in this log: no line says that it is fired up, and it served nothing.",
                (summary.start_line,),
            )
        )
    return found


def _retractions(summary: ServerSummary, file: str, events: Events) -> list[Finding]:
    count = summary.events.get("retraction", 0)
    if not count:
        return []
    rows = _of(events, "retraction")
    retracted = sum(int(_fields(row).get("retracted_reqs", "1")) for row in rows)
    return [
        Finding(
            "retraction",
            "problem" if count >= 10 else "warning",
            f"The KV cache ran full {times(count)} and requests were put back ({retracted} seen); their "
            "work is done twice. Lower the load or --max-running-requests, or give the cache more memory.",
            places(file, rows),
            {"retractions": count, "retracted_requests": retracted},
        )
    ]


def _all_reduce(summary: ServerSummary, file: str, events: Events) -> list[Finding]:
    rows = [
        event
        for event in _of(events, "all_reduce_path")
        if any(word in _fields(event).get("path", "") for word in _NO_CUSTOM_ALL_REDUCE)
    ]
    if not rows or (summary.tp or 2) < 2:
        return []
    return [
        Finding(
            "custom_all_reduce_off",
            "warning",
            "The server does not use its custom all-reduce for all groups, so small messages go through NCCL: "
            f"\N{LEFT DOUBLE QUOTATION MARK}{_fields(rows[0])['path'][:160]}\N{RIGHT DOUBLE QUOTATION MARK}.",
            places(file, rows),
        )
    ]


def _limits(file: str, events: Events) -> list[Finding]:
    rows = _of(events, "max_running_requests")
    if not rows:
        return []
    cap = _fields(rows[0]).get("max_running_requests")
    return [
        Finding(
            "max_running_requests_reduced",
            "info",
            f"The server lowered the number of running requests to {cap}; above that load requests queue.",
            places(file, rows),
            {"max_running_requests": int(cap) if cap and cap.isdigit() else None},
        )
    ]


def _adaptive(file: str, events: Events) -> list[Finding]:
    rows = _of(events, "adaptive_spec")
    if not rows:
        return []
    return [
        Finding(
            "adaptive_speculation",
            "info",
            f"The number of draft steps changed {len(rows)} times while serving; accept rates around these lines mix "
            "different draft lengths.",
            places(file, rows),
            {"changes": len(rows)},
        )
    ]
