"""What each section of the page shows, as plain text that the template escapes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from profkit.analysis import RunAnalysis
from profkit.attribution.idle import cause_words
from profkit.attribution.result import Attribution, CycleSummary
from profkit.collectives.cost import reference_curves
from profkit.escape import visible
from profkit.planning.fabric import tested
from profkit.quantity import Quantity
from profkit.reports.html import evidence
from profkit.reports.html.evidence import us
from profkit.reports.html.plot import Measured, allreduce_plot, size_text
from profkit.reports.palette import ACTIVITY_NAMES, PHASE_NAMES
from profkit.reports.wording import (
    NOT_KNOWN,
    at_least,
    at_most,
    count,
    figure,
    part_name,
    percent,
    prefills_only,
    ranged,
)
from profkit.rules import load_rules
from profkit.run import engine_release
from profkit.speculation.economics import Economics
from profkit.words import ACTIVITIES, PHASES, HeadlinePart

_HEADLINE_COLOURS: Mapping[HeadlinePart, str] = {
    "draft": "phase-draft",
    "verify_compute": "activity-compute",
    "allreduce": "activity-allreduce",
    "other_comm": "activity-comm",
    "memory": "activity-memory",
    "idle": "activity-idle",
    "other": "phase-other",
    "unlabelled": "phase-unlabelled",
}
_IMPLEMENTATIONS = {"nccl": "NCCL", "flashinfer_pcie_ipc": "PCIe IPC", "custom_one_shot": "one-shot"}
_DOTS = "Dots: this run's transfer time (without waiting)."
# A part of the headline bar narrower than this share has its name in the key only.
WIDE = 0.05
_ECONOMICS = (
    ("accept_len", "accept length"),
    ("break_even_accept_len", "break-even accept length"),
    ("cycle", "cycle"),
    ("baseline_step", "baseline step"),
    ("inflation", "cycle inflation"),
    ("speedup", "speed-up by speculation"),
    ("throughput", "throughput"),
    ("baseline_throughput", "baseline throughput"),
    ("parity_cycle", "cycle at parity"),
    ("allreduce_per_call", "all-reduce, per call"),
    ("allreduce_calls_per_cycle", "all-reduces per cycle"),
    ("parity_allreduce_per_call", "all-reduce at parity, per call"),
    ("nccl_model_per_call", "NCCL's own latency model"),
    ("baseline_allreduce_per_call", "all-reduce of the baseline, per call"),
    ("verify_compute", "verify compute"),
    ("verify_floor", "verify compute, floor"),
    ("trace_over_log", "traced cycle over the log's"),
)


def quantity(value: Quantity) -> str:
    """``33.3 ms (33.2 to 33.5, p10 to p90)``; a dash for unknown."""
    unit = {"ratio": "times"}.get(value.unit, value.unit)
    if value.value is None:
        return NOT_KNOWN
    range_ = ranged(value)
    return figure(value.value, unit) + (f" ({range_})" if range_ else "")


def context(
    analysis: RunAnalysis,
    baseline: RunAnalysis | None,
    figures: Economics | None,
    plan: Mapping[str, Any] | None,
    shown: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The values of the template that do not come from the page itself; ``shown`` is the first cycle on view."""
    result = analysis.attribution
    runs = [analysis, *([baseline] if baseline is not None else [])]
    plot, caption = _plot(analysis, baseline, figures)
    return {
        "title": visible(analysis.name, 120),
        "subtitle": _subtitle(analysis),
        "verdict": _verdict(analysis, baseline, figures, plan),
        "figures": list(_figures(figures, result)),
        "arms": _arms(runs),
        "unit": "recording" if result is not None and result.cycle is None else "cycle",
        "matrix": _matrix(result, visible(analysis.name, 60) if baseline else ""),
        "idle": _idle(result),
        "without_gpu": result is not None and result.without_gpu,
        "collectives": list(_collectives(result)),
        "plot": Markup(plot),  # noqa: S704 - escaped where it is made
        "plot_caption": caption,
        "economics": list(_economics(figures)),
        "levers": [lever for lever in evidence.levers(plan) if lever["priority"]],
        "closed": [lever for lever in evidence.levers(plan) if not lever["priority"]],
        "findings": list(evidence.findings(analysis)),
        "ranks": list(evidence.ranks(result, shown)),
        "shown_title": shown[0]["title"] if shown else "",
        "notes": list(evidence.notes(analysis, baseline)),
    }


def _subtitle(analysis: RunAnalysis) -> str:
    facts = analysis.facts
    parts = [facts.text(k) for k in ("model.name", "model.quantization", "gpu.name")]
    if analysis.attribution is not None and analysis.attribution.without_gpu:
        parts.append("CPU times, no GPU")
    if tp := facts.integer("parallel.tp"):
        parts.append(f"TP{tp}")
    if link := facts.text("link.kind"):
        parts.append({"pcie": "PCIe", "nvlink": "NVLink"}.get(link, link))
    if engine := facts.text("engine.name"):
        parts.append(f"{engine} {engine_release(facts) or ''}".strip())
    if algorithm := facts.text("speculative.algorithm"):
        parts.append(f"{algorithm}, {facts.text('speculative.num_draft_tokens') or '?'} draft tokens")
    return " · ".join(visible(p, 60) for p in [*parts, analysis.date] if p)


def _share(cycle: CycleSummary, part: HeadlinePart) -> float:
    return (cycle.headline_us[part] or 0.0) / cycle.wall_us.mean if cycle.wall_us.mean else 0.0


def _verdict(
    analysis: RunAnalysis, baseline: RunAnalysis | None, figures: Economics | None, plan: Mapping[str, Any] | None
) -> list[str]:
    stated = (plan or {}).get("verdict", {}).get("sentences") if plan else None
    if stated:
        return [visible(str(s), 600) for s in stated]
    result = analysis.attribution
    sentences: list[str] = []
    if result is not None and result.without_gpu:
        sentences.append("Recorded without a GPU: host operators stand for GPU work, and all times are the CPU's.")
    if result is not None and result.cycle is not None:
        cycle = result.cycle
        largest = max(cycle.headline_us, key=lambda p: cycle.headline_us[p] or 0.0)
        sentences.append(
            f"A decode cycle takes {figure(cycle.wall_us.mean / 1000, 'ms')}; "
            f"{percent(_share(cycle, largest), signed=False)} of it is {part_name(largest, cycle)}."
        )
    elif result is not None and result.window is not None:
        window = result.window
        largest = max(window.headline_us, key=lambda p: window.headline_us[p] or 0.0)
        sentences.append(
            f"The recording of {figure(window.wall_us.mean / 1000, 'ms')} holds no complete decode cycle; "
            f"{percent(_share(window, largest), signed=False)} of it is "
            f"{part_name(largest, window, prefills=prefills_only(result))}."
        )
    if figures is not None:
        sentences += list(_economic_sentences(figures, baseline))
    return sentences or ["These files do not say where the time goes; see the notes below."]


def _economic_sentences(figures: Economics, baseline: RunAnalysis | None) -> Iterator[str]:
    accept, even = figures.accept_len.value, figures.break_even_accept_len.value
    if accept is not None and even is not None:
        pays = "pays" if accept > even else "does not pay"
        yield (
            f"Speculation {pays} here: the accept length is {figure(accept)}, break-even is {figure(even)} "
            f"(a cycle costs {figure(figures.inflation.value)} baseline steps)."
        )
    elif baseline is None:
        yield "Whether speculation pays is not known without a baseline run at the same load."
    call, model = figures.allreduce_per_call.value, figures.nccl_model_per_call
    if call is not None and model.value:
        yield (
            f"One all-reduce of the target's forward costs {figure(call, 'us')}, {figure(call / model.value)} times "
            f"what NCCL's own latency model gives ({figure(model.value, 'us')})."
        )


def _figures(figures: Economics | None, result: Attribution | None) -> Iterator[dict[str, str]]:
    chosen: list[tuple[str, Quantity]] = []
    if figures is not None:
        chosen = [
            ("throughput", figures.throughput),
            ("baseline throughput", figures.baseline_throughput),
            ("cycle", figures.cycle),
            ("accept length", figures.accept_len),
            ("break-even accept length", figures.break_even_accept_len),
            ("one all-reduce", figures.allreduce_per_call),
        ]
    elif result is not None and result.cycle is not None:
        wall = result.cycle.wall_us
        source = "trace"
        chosen = [
            ("cycle", Quantity(wall.mean / 1e3, "ms", "measured", source, wall.p10 / 1e3, wall.p90 / 1e3, "p10_p90"))
        ]
    for name, value in chosen:
        if value.value is None:
            continue
        yield {
            "name": name,
            "value": figure(value.value),
            "unit": {"tokens": "", "ratio": "times"}.get(value.unit, value.unit),
            "range": ranged(value),
        }


def _arms(runs: Sequence[RunAnalysis]) -> list[dict[str, Any]]:
    cycles = [
        (run, found)
        for run in runs
        if run.attribution is not None and (found := run.attribution.cycle or run.attribution.window) is not None
    ]
    longest = max((c.wall_us.mean for _, c in cycles), default=0.0) or 1.0  # a recording of one empty op has no length
    arms = []
    for run, cycle in cycles:
        prefills = run.attribution is not None and prefills_only(run.attribution)
        parts = [_part(part, value, cycle, prefills) for part, value in cycle.headline_us.items() if value]
        parts.sort(key=lambda p: -float(p["weight"]))
        size = f"batch {cycle.batch_size}, " if cycle.batch_size is not None else ""
        whole = run.attribution is not None and run.attribution.cycle is None
        arms.append(
            {
                "name": visible(run.name, 80),
                "wall": figure(cycle.wall_us.mean / 1000),
                "note": "the whole recording"
                if whole
                else f"{size}{count(cycle.count, 'cycle')}, p90 {figure(cycle.wall_us.p90 / 1000)} ms",
                "width": f"{100 * cycle.wall_us.mean / longest:.2f}",
                "label": f"{visible(run.name, 80)}: " + ", ".join(f"{p['name']} {p['ms']} ms" for p in parts),
                "parts": [p | {"wide": float(p["weight"]) / longest > WIDE} for p in parts],
            }
        )
    return arms


def _part(part: HeadlinePart, value: float, cycle: CycleSummary, prefills: bool) -> dict[str, Any]:
    return {
        "name": part_name(part, cycle, prefills=prefills),
        "ms": figure(value / 1000),
        "share": percent(_share(cycle, part), signed=False),
        "weight": f"{value:.6g}",
        "colour": _HEADLINE_COLOURS[part],
    }


def _matrix(result: Attribution | None, name: str) -> dict[str, Any] | None:
    cycle = None if result is None else result.cycle or result.window
    if cycle is None:
        return None
    largest = max((v or 0.0 for row in cycle.parts_us.values() for v in row.values()), default=0.0) or 1.0
    rows = []
    totals = dict.fromkeys(ACTIVITIES, 0.0)
    for phase in PHASES:
        cells = [cycle.parts_us[phase][a] for a in ACTIVITIES]
        if not any(c is None or c > 0 for c in cells):
            continue
        for activity, cell in zip(ACTIVITIES, cells, strict=True):
            totals[activity] += cell or 0.0
        rows.append(
            {
                "key": phase.replace("_", "-"),
                "name": PHASE_NAMES[phase],
                "cells": [{"text": us(c), "heat": f"{_heat(c, largest):.1f}"} for c in cells],
                "sum": us(None if None in cells else sum(c or 0.0 for c in cells)),
            }
        )
    return {
        "name": name,
        "activities": [{"key": a, "name": ACTIVITY_NAMES[a]} for a in ACTIVITIES],
        "rows": rows,
        "totals": [*(us(totals[a]) for a in ACTIVITIES), us(sum(totals.values()))],
    }


def _heat(value: float | None, largest: float) -> float:
    """How strongly a cell is tinted, in percent; the root keeps small cells visible."""
    return 55.0 * math.sqrt((value or 0.0) / largest)


def _idle(result: Attribution | None) -> list[dict[str, str]]:
    cycle = None if result is None else result.cycle or result.window
    causes = [(c, v) for c, v in cycle.idle_causes_us.items() if v > 0] if cycle else []
    on_host = result is not None and result.without_gpu
    ordered = sorted(causes, key=lambda c: -c[1])
    return [{"us": us(v), "words": cause_words(c, without_gpu=on_host)} for c, v in ordered]


def _collectives(result: Attribution | None) -> Iterator[dict[str, Any]]:
    for row in result.collectives if result else ():
        yield {
            "what": f"{row.phase} {row.kind}".replace("_", " "),
            "kernel": visible(row.kernel, 160),
            "fused": row.fused,
            "calls": NOT_KNOWN if row.calls_per_cycle is None else f"{row.calls_per_cycle:.4g}",
            "mean": us(row.mean_us),
            "transfer": at_most(us(row.transfer_us), row),
            "wait": at_least(us(row.wait_us), row),
            "size": NOT_KNOWN if row.message_bytes is None else size_text(row.message_bytes),
            "bandwidth": NOT_KNOWN
            if row.bus_bandwidth_gb_s is None
            else at_least(f"{row.bus_bandwidth_gb_s:.2f}", row),
            "implementation": visible(row.implementation, 40),
        }


def _plot(analysis: RunAnalysis, baseline: RunAnalysis | None, figures: Economics | None) -> tuple[str, str]:
    points = []
    for run, colour in ((analysis, "activity-allreduce"), (baseline, "activity-compute")):
        for call in run.attribution.collectives if run is not None and run.attribution else ():
            time = call.transfer_us if call.transfer_us is not None else call.mean_us
            if run is not None and call.kind == "all_reduce" and call.message_bytes and time > 0:
                name = f"{run.name.rpartition(' ')[2]} {call.phase}".replace("_", " ")
                sure = call.transfer_is == "measured"
                points.append(Measured(float(call.message_bytes), time, name, colour, bound=not sure))
    if analysis.attribution is not None and analysis.attribution.without_gpu:
        # What NCCL or a GPU's links reach says nothing about calls of the CPU's backend.
        return allreduce_plot(points, [], None), f"{_DOTS} Recorded without a GPU: no curve of a GPU host belongs here."
    references = reference_curves()
    link = analysis.facts.text("link.kind")
    chosen: list[Any] = []
    if (test := tested(analysis, baseline)) is not None:
        chosen.append((f"{test.source}, this host", test, (test.points[0][0], test.points[-1][0])))
    for entry in load_rules("hardware")["allreduce_curve"]:
        if link in (None, entry["link"]):
            measured = [float(size) for size, _ in entry["points"]]
            bounds = (min(measured), max(measured)) if measured else None
            who = _IMPLEMENTATIONS.get(entry["implementation"], entry["implementation"])
            chosen.append((f"{who}, {entry['host']}", references[entry["id"]], bounds))
    model = None
    if figures is not None and figures.nccl_model_per_call.value:
        model = (figures.nccl_model_per_call.value, "NCCL's own latency model")
    caption = (
        f"{_DOTS} Lines: {'nccl-tests on this host, and ' if test else ''}other people's hosts, faint where nothing "
        "was measured; hosts of one kind still differ tenfold."
    )
    if any(point.bound for point in points):
        caption += " Open dots: ranks are missing, so that waiting may be in it; the transfer is at most that."
    return allreduce_plot(points, chosen, model), caption


def _economics(figures: Economics | None) -> Iterator[dict[str, str]]:
    if figures is None:
        return
    for key, name in _ECONOMICS:
        value: Quantity = getattr(figures, key)
        yield {
            "name": name,
            "value": quantity(value),
            "kind": value.kind,
            "source": visible(value.source, 220),
        }
