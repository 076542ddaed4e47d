"""A projection as a terminal table and as markdown. Computes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.escape import markdown, visible
from profkit.projection.change import Change
from profkit.projection.result import ArmProjection, Projection
from profkit.projection.sweep import DepthSweep
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


SWEEP_HEAD = ["draft tokens", "accept length", "cycle ms", "speculative tok/s", "break-even", "last draft gains"]


def sweep_verdict(sweep: DepthSweep) -> str:
    """One sentence: how many draft tokens are best, and how sure that is."""
    if sweep.best is None:
        why = sweep.rows[0].projection.candidate.throughput_after.source
        return f"Which number of draft tokens is best cannot be said: {why}."
    best = next(r for r in sweep.rows if r.draft_tokens == sweep.best)
    text = f"{sweep.best} draft tokens are expected to be best: {figure(best.projection.candidate.throughput_after, 1)}"
    text += " tok/s"
    if sweep.today is not None and sweep.today != sweep.best:
        now = best.projection.candidate.throughput_before
        text += f" (today {sweep.today}: {figure(now, 1)})" if now.value is not None else ""
    base = best.projection.baseline
    if base is not None and base.throughput_after.value is not None:
        text += f"; without speculation {figure(base.throughput_after, 1)}"
    return f"{text}; {_rivals(sweep)}."


def _rivals(sweep: DepthSweep) -> str:
    """Which other numbers may be as good, and of which nothing is known."""
    others = [n for n in sweep.rivals if n != sweep.today]
    several = len(others) > 1
    today = sweep.today in sweep.rivals
    said = []
    if others:
        said.append(
            f"the range{'s' * several} of {', '.join(map(str, others))} overlap{'' if several else 's'} with its own, "
            f"so measure {'those' if several else 'that one'} too"
        )
    elif not today:
        said.append("no other number's range overlaps with its own")
    if today and not others:
        said.append("today's range overlaps with its own, so that it may bring nothing")
    dark = [r.draft_tokens for r in sweep.rows if r.projection.candidate.throughput_after.value is None]
    if dark:
        said.append(f"nothing can be said of {', '.join(map(str, dark))}")
    return "; ".join(said)


def sweep_rows(sweep: DepthSweep) -> list[list[str]]:
    """Rows of the table of a sweep, best and today's marked."""
    table = []
    for row in sweep.rows:
        marks = ["best"] * (row.draft_tokens == sweep.best) + ["today"] * (row.draft_tokens == sweep.today)
        said = f" ({', '.join(marks)})" if marks else ""
        found = row.projection
        gain = _UNKNOWN
        if row.gained is not None and row.needed is not None:
            gain = f"{row.gained:.2f} of {row.needed:.2f} needed"
        table.append(
            [
                f"{row.draft_tokens}{said}",
                figure(found.accept_len_after),
                figure(found.candidate.cycle_after),
                figure(found.candidate.throughput_after, 1),
                figure(found.break_even_accept_len_after),
                gain,
            ]
        )
    return table


def _notes(projection: Projection, sweep: DepthSweep | None) -> list[str]:
    """What was assumed, each note once."""
    rows = [note for row in (sweep.rows if sweep else ()) for note in row.projection.assumptions]
    return list(dict.fromkeys([*projection.assumptions, *(n for n in rows if not n.startswith("a chain of "))]))


def terminal(projection: Projection, sweep: DepthSweep | None = None) -> str:
    """The projection for a terminal; with a sweep alone its table stands for that of before and after."""
    lines = []
    if sweep is None or projection.change != Change():
        lines += [verdict(projection), "", *_aligned([["", "before", "after", "change"], *rows(projection)])]
        if missing := _missing(projection):
            lines += ["", *(f"  {_UNKNOWN} {visible(reason)}" for reason in missing)]
        if singles := alone(projection):
            lines += ["", "Gains do not add up; each part of the change by itself:"]
            lines += _aligned([["", "speculative tok/s", "baseline tok/s"], *singles])
        lines += [""] if sweep is not None else []
    if sweep is not None:
        lines += [visible(sweep_verdict(sweep), 300), "", *_aligned([SWEEP_HEAD, *sweep_rows(sweep)])]
    lines += ["", "Assumptions:", *(f"  · {visible(text)}" for text in _notes(projection, sweep))]
    return "\n".join(lines) + "\n"


def as_markdown(projection: Projection, sweep: DepthSweep | None = None) -> str:
    """The projection as markdown."""
    lines: list[str] = []
    if sweep is None or projection.change != Change():
        lines += [markdown(verdict(projection)), "", "| | before | after | change |", "|---|---:|---:|---:|"]
        lines += ["| " + " | ".join(markdown(cell) for cell in row) + " |" for row in rows(projection)]
        if singles := alone(projection):
            lines += ["", "| each part by itself | speculative tok/s | baseline tok/s |", "|---|---:|---:|"]
            lines += ["| " + " | ".join(markdown(cell) for cell in row) + " |" for row in singles]
        lines += [""] if sweep is not None else []
    if sweep is not None:
        lines += [markdown(sweep_verdict(sweep)), "", f"| {' | '.join(SWEEP_HEAD)} |", "|---" + "|---:" * 5 + "|"]
        lines += ["| " + " | ".join(markdown(cell) for cell in row) + " |" for row in sweep_rows(sweep)]
    lines += ["", "Assumptions:", ""]
    missing = _missing(projection) if sweep is None or projection.change != Change() else []
    lines += [f"- {markdown(text)}" for text in (*_notes(projection, sweep), *missing)]
    return "\n".join(lines) + "\n"
