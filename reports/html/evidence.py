"""Levers, findings, ranks and files: the lower half of the page, as plain text that the template escapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from profkit.analysis import RunAnalysis
from profkit.attribution.result import Attribution
from profkit.escape import visible
from profkit.reports.trace_events import microseconds
from profkit.reports.wording import NOT_KNOWN, figure
from profkit.words import ACTIVITIES


def us(value: float | None) -> str:
    """Microseconds with one decimal; a dash where unknown, a dot where nothing."""
    if value is None:
        return NOT_KNOWN
    return "·" if value == 0 else f"{value:,.1f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def levers(plan: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Levers of the document ``profkit.plan/1``; gates that pass are left out."""
    for lever in (plan or {}).get("levers", ()):
        gain = lever.get("gain") or {}
        yield {
            "name": visible(str(lever.get("title") or lever.get("id")), 120),
            "priority": visible(str(lever.get("priority") or ""), 20),
            "candidate": _gain(gain.get("candidate_throughput")),
            "baseline": _gain(gain.get("baseline_throughput")),
            "gates": [
                {k: visible(str(gate.get(k) or ""), 200) for k in ("name", "state", "why")}
                for gate in lever.get("gates", ())
                if gate.get("state") != "pass"
            ],
            "command": _lines(lever.get("command")),
            "acceptance": _lines(lever.get("acceptance")),
            "kill": _lines(lever.get("kill")),
        }


def _lines(value: Any) -> str:
    """Text, or a list of texts, as one line."""
    texts = value if isinstance(value, list | tuple) else [value] if value else []
    return visible("; ".join(line for t in texts for line in str(t).splitlines()), 400)


def _gain(value: Any) -> str:
    if not isinstance(value, Mapping) or value.get("value") is None:
        return NOT_KNOWN
    text = figure(value["value"], str(value.get("unit") or ""))
    low, high = value.get("low"), value.get("high")
    return f"{text} ({figure(low)} to {figure(high)})" if low is not None and high is not None and high > low else text


def findings(analysis: RunAnalysis) -> Iterator[dict[str, Any]]:
    """Findings, problems first; evidence that is a trace of the run leads to its rank."""
    found = list(analysis.attribution.findings) if analysis.attribution else []
    server = analysis.server()
    found += list(server.findings) if server else []
    places = {i.path: n for n, i in enumerate(analysis.attribution.inputs)} if analysis.attribution else {}
    order = ("problem", "warning", "info")
    for finding in sorted(found, key=lambda f: order.index(f.severity)):
        yield {
            "severity": finding.severity,
            "sentence": visible(finding.sentence, 600),
            "evidence": [{"text": visible(e, 160), "rank": places.get(e)} for e in finding.evidence[:6]],
        }


def ranks(result: Attribution | None, shown: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    """One row per rank; ``shown`` is the cycle whose place in each file is named."""
    if result is None:
        return
    sources = {r["place"]: r["source"] for r in shown[0]["ranks"]} if shown else {}
    for place, (rank, clock, info) in enumerate(zip(result.ranks, result.clock_offsets_us, result.inputs, strict=True)):
        cycles = rank.cycles

        def mean(total: float, cycles: int = cycles) -> str:
            return us(total / cycles / 1000) if cycles else NOT_KNOWN

        parts = {a: sum(p[a] or 0 for p in rank.parts_ns.values()) for a in ACTIVITIES}
        known = clock.offset is not None and clock.spread is not None
        yield {
            "name": rank.name,
            "cycles": str(cycles),
            "dropped": str(sum(rank.dropped.values())),
            "wall": mean(rank.wall_ns),
            "allreduce": mean(parts["allreduce"]),
            "idle": mean(parts["idle"]),
            "clock": f"{clock.offset:+.1f} ±{clock.spread:.1f}" if known else NOT_KNOWN,
            "labelled": ", ".join(f"{k} {v:.0%}" for k, v in rank.labelled_by.items() if v >= 0.005),
            "source": _source(sources.get(place), "host op" if rank.time_source == "cpu" else "GPU op"),
            "file": visible(info.path, 200),
        }


def _source(found: Sequence[int] | None, noun: str) -> str:
    """``GPU op 1741 to 2610, ts 3972487135.123 to ...``: counted from 0 in file order, times in us as recorded."""
    if found is None:
        return NOT_KNOWN
    first, last, begin, end = found
    return f"{noun} {first} to {last}, ts {microseconds(begin)} to {microseconds(end)}"


def notes(analysis: RunAnalysis, baseline: RunAnalysis | None) -> Iterator[str]:
    """Sentences for the foot of the page."""
    for run in (analysis, baseline):
        if run is not None:
            yield from (f"{visible(run.name, 60)}: {visible(w, 400)}" for w in run.warnings)
    server = analysis.server()
    if server is not None and server.start_line:
        yield f"Log of the server: {visible(server.start_line, 160)}."
