"""A projection as a terminal table and as markdown. Computes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.escape import markdown, visible
from profkit.projection.result import ArmProjection, Projection
from profkit.quantity import Quantity

_UNKNOWN = "–"


def figure(quantity: Quantity, digits: int = 2) -> str:
    """A value with its modelled range, or a dash."""
    if quantity.value is None:
        return _UNKNOWN
    text = f"{quantity.value:.{digits}f}"
    if quantity.range != "model" or quantity.low is None or quantity.high is None:
        return text
    low, high = f"{quantity.low:.{digits}f}", f"{quantity.high:.{digits}f}"
    return text if low == high else f"{text} ({low} to {high})"


def _percent(arm: ArmProjection) -> str:
    return _UNKNOWN if arm.gain is None else f"{arm.gain:+.1%}"


def verdict(projection: Projection) -> str:
    """One sentence: does speculation beat the baseline after the change."""
    if projection.baseline is None:
        return "Without a baseline run it cannot be said whether speculation pays (give --baseline)."
    after, base = projection.candidate.throughput_after, projection.baseline.throughput_after
    if after.value is None or base.value is None:
        why = after.source if after.value is None else base.source
        return f"Whether speculation pays cannot be said: {why}."
    pays = {True: "Speculation would pay", False: "Speculation would not pay", None: "Speculation may or may not pay"}
    length, even = projection.accept_len_after, projection.break_even_accept_len_after
    return (
        f"{pays[projection.pays]}: {figure(after, 1)} tok/s with it, {figure(base, 1)} without "
        f"(accept length {figure(length)}, break-even {figure(even)})."
    )


PARTS = {
    "allreduce_us": "all-reduce",
    "allreduce_curve": "all-reduce curve",
    "wait_us": "wait for late ranks",
    "accept_len": "accept length",
    "draft_tokens": "draft tokens",
    "acceptance": "acceptance",
    "idle": "idle time",
    "compute_scale": "compute",
}


def alone(projection: Projection) -> list[list[str]]:
    """Rows of the table of single changes: part, speculative and baseline tok/s."""
    return [
        [
            f"{PARTS.get(one.part, one.part)} alone",
            figure(one.candidate_throughput, 1),
            _UNKNOWN if one.baseline_throughput is None else figure(one.baseline_throughput, 1),
        ]
        for one in projection.alone
    ]


def rows(projection: Projection) -> list[list[str]]:
    """Rows of the table: what, before, after, change."""
    spec, base = projection.candidate, projection.baseline
    table = [
        ["speculative tok/s", figure(spec.throughput_before, 1), figure(spec.throughput_after, 1), _percent(spec)],
        ["speculative cycle ms", figure(spec.cycle_before), figure(spec.cycle_after), ""],
        ["accept length", figure(projection.accept_len_before), figure(projection.accept_len_after), ""],
    ]
    if base is not None:
        table += [
            ["baseline tok/s", figure(base.throughput_before, 1), figure(base.throughput_after, 1), _percent(base)],
            ["baseline step ms", figure(base.cycle_before), figure(base.cycle_after), ""],
            [
                "break-even accept length",
                figure(projection.break_even_accept_len_before),
                figure(projection.break_even_accept_len_after),
                "",
            ],
        ]
    return table


def _missing(projection: Projection) -> list[str]:
    """Why an after-figure is unknown, each reason once."""
    arms = [projection.candidate, *([projection.baseline] if projection.baseline else [])]
    found = [q.source for arm in arms for q in (arm.throughput_after, arm.cycle_after) if q.value is None]
    return list(dict.fromkeys(found))


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = []
    for first, *others in table:
        cells = [first.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(others, widths[1:], strict=True))]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines


def terminal(projection: Projection) -> str:
    """The projection for a terminal."""
    lines = [verdict(projection), ""]
    lines += _aligned([["", "before", "after", "change"], *rows(projection)])
    if missing := _missing(projection):
        lines += ["", *(f"  {_UNKNOWN} {visible(reason)}" for reason in missing)]
    if singles := alone(projection):
        lines += ["", "Gains do not add up; each part of the change by itself:"]
        lines += _aligned([["", "speculative tok/s", "baseline tok/s"], *singles])
    lines += ["", "Assumptions:", *(f"  · {visible(text)}" for text in projection.assumptions)]
    return "\n".join(lines) + "\n"


def as_markdown(projection: Projection) -> str:
    """The projection as markdown."""
    lines = [markdown(verdict(projection)), "", "| | before | after | change |", "|---|---:|---:|---:|"]
    lines += ["| " + " | ".join(markdown(cell) for cell in row) + " |" for row in rows(projection)]
    if singles := alone(projection):
        lines += ["", "| each part by itself | speculative tok/s | baseline tok/s |", "|---|---:|---:|"]
        lines += ["| " + " | ".join(markdown(cell) for cell in row) + " |" for row in singles]
    lines += ["", "Assumptions:", ""]
    lines += [f"- {markdown(text)}" for text in (*projection.assumptions, *_missing(projection))]
    return "\n".join(lines) + "\n"
