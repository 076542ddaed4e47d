"""The weekly report as markdown."""

from __future__ import annotations

from profkit.comparison.changepoints import MIN_POINTS
from profkit.comparison.result import MIN_LAUNCHES
from profkit.escape import visible
from profkit.quantity import Quantity
from profkit.reports.compare import difference_line, kernel_line, move_line
from profkit.reports.templating import render
from profkit.reports.wording import NOT_KNOWN, VERDICTS, change_sentence, count, figure, interval, launches, percent
from profkit.weekly.model import ConfigurationWeek, Event, Experiment, QualityWeek, Standing, Weekly

KEPT = {"done": "done", "not_done": "not done", "blocked": "blocked", "cannot_say": "cannot say"}
KINDS = {
    "regression": "Regression",
    "improvement": "Improvement",
    "environment": "Environment",
    "noise": "Noise",
    "missing": "Missing",
}


def quantity(value: Quantity) -> str:
    """``57.7 tok/s (57.0 to 58.3; n 6)``."""
    if value.value is None:
        return f"not known: {value.source}"
    details = []
    if value.low is not None and value.high is not None:
        details.append(f"{figure(value.low)} to {figure(value.high)}")
    if value.n is not None:
        details.append(f"n {value.n}")
    return figure(value.value, value.unit) + (f" ({'; '.join(details)})" if details else "")


MAIN_EVIDENCE = 2


def event_line(event: Event, *, evidence: bool = False) -> str:
    """One event in one line, on demand with what speaks most for its cause."""
    line = f"{KINDS[event.kind]} of {event.config} in {event.week}: {event.sentence}."
    if event.kind in ("environment", "missing"):
        line = f"{KINDS[event.kind]}, {event.config}, {event.week}: {event.sentence}."
    elif event.kind == "noise":
        line = f"Noise in {event.config}, {event.week}: {event.sentence}."
    if _unexplained(event):
        line += " No flag, version or system that the runs state changed with it."
    elif event.kind in ("regression", "improvement"):
        line += f" Cause class: {event.cause}."
    if evidence and event.evidence and event.kind in ("regression", "improvement"):
        line += f" With it: {'; '.join(event.evidence[:MAIN_EVIDENCE])}."
    return line


def _unexplained(event: Event) -> bool:
    return event.cause == "unknown" and event.kind in ("regression", "improvement")


def _value(row: ConfigurationWeek, name: str) -> str:
    standing = row.standing(name)
    return NOT_KNOWN if standing is None else figure(standing.current.value, standing.current.unit)


def _score(row: ConfigurationWeek) -> list[str]:
    primary = row.metrics[0]
    compared = primary.comparison
    economics = row.economics
    small = " (small sample)" if 0 < row.quality.launches < MIN_LAUNCHES else ""
    return [
        row.name,
        quantity(primary.current) if primary.current.value is not None else NOT_KNOWN,
        percent(compared.change) + (f" ({interval(compared)})" if compared.interval else "") if compared else NOT_KNOWN,
        percent(primary.against_best) + (f" ({primary.best_week})" if primary.best_week else ""),
        _value(row, "accept_len"),
        figure(economics.inflation.value, "x") if economics else NOT_KNOWN,
        figure(economics.break_even_accept_len.value) if economics else NOT_KNOWN,
        _value(row, "allreduce_per_call"),
        f"{row.quality.launches}{small}",
        percent(compared.minimum_detectable, signed=False) if compared else NOT_KNOWN,
    ]


SCORE_COLUMNS = (
    "configuration",
    "median (95% interval; n)",
    "against the reference week",
    "against the best week",
    "accept length",
    "cycle inflation",
    "break-even accept length",
    "per all-reduce",
    "launches",
    "smallest change seen",
)


def _goal(standing: Standing) -> str:
    value = standing.current.value
    if value is None or standing.goal is None:
        return f"{standing.title}: not measured this week (goal {standing.goal:g})"
    met = value >= standing.goal if standing.better == "higher" else value <= standing.goal
    word = "reached" if met else "not reached"
    return f"{standing.title}: goal {standing.goal:g} {standing.current.unit}, {figure(value)} measured: {word}"


def _experiment(row: Experiment) -> list[str]:
    within = NOT_KNOWN if row.within is None else "yes" if row.within else "no"
    return [
        row.lever, row.config, quantity(row.forecast), quantity(row.outcome), percent(row.error), within,
        f"{VERDICTS[row.verdict].lower()} ({row.why})",
    ]  # fmt: skip


EXPERIMENT_COLUMNS = ("lever", "configuration", "forecast", "outcome", "error", "within the range", "verdict")


def _part(part: int | None, whole: int | None) -> str:
    if part is None or whole is None:
        return NOT_KNOWN
    return f"{part:,} of {whole:,}" + (f" ({percent(part / whole, signed=False)})" if whole else "")


def _quality(name: str, row: QualityWeek) -> list[str]:
    total = None if row.cycles is None or row.dropped_cycles is None else row.cycles + row.dropped_cycles
    return [
        name,
        f"{row.launches}" + (f" of {row.expected}" if row.expected is not None else ""),
        _part(row.damaged_lines, row.decode_lines),
        _part(row.flagged_lines, row.decode_lines),
        _part(row.dropped_cycles, total),
        percent(row.unlabelled_share, signed=False),
        str(row.warnings),
    ]


QUALITY_COLUMNS = (
    "configuration",
    "launches",
    "damaged log lines",
    "lines left out",
    "cycles left out",
    "unlabelled GPU time",
    "warnings",
)


def _told(row: ConfigurationWeek, event: Event) -> bool:
    """Whether the headline of a configuration already says an event in full."""
    return event.kind not in ("regression", "improvement") and event.sentence in row.sentence


def _headline(row: ConfigurationWeek) -> tuple[str, str, str]:
    """(title, verdict, sentences) of a configuration."""
    small = row.quality.launches
    sentences = f"{row.sentence}."
    if 0 < small < MIN_LAUNCHES:
        sentences += f" Small sample: {launches(small)}."
    if (economics := row.economics) is not None and economics.pays is not None:
        word = "pays" if economics.pays else "does not pay"
        accept, needed = figure(economics.accept_len.value), figure(economics.break_even_accept_len.value)
        sentences += f" Speculation {word}: accept length {accept}, break-even {needed}."
    return row.title, VERDICTS[row.verdict], sentences


def also_changed(row: ConfigurationWeek) -> list[str]:
    """Secondary metrics with a verdict, cells of the cycle budget excluded: those have their own part."""
    found = [m.comparison for m in row.metrics if m.comparison is not None and m.comparison.role == "secondary"]
    return [f"{VERDICTS[c.verdict].lower()}: {change_sentence(c)}" for c in found if c.verdict in ("better", "worse")]


def _breaks(report: Weekly) -> list[str]:
    return [
        f"{row.name}: {difference_line(d)}"
        for row in report.configurations
        for d in row.differences
        if d.cause in ("environment", "workload") and d.state != "unknown"
    ]


def _bounds(low: float | None, high: float | None) -> str:
    return NOT_KNOWN if low is None or high is None else f"{figure(low)} to {figure(high)}"


def _series(row: ConfigurationWeek) -> dict[str, object]:
    if row.change_points is None:
        known = count(row.weeks_on_system, "week")
        found = f"no change points looked for: {known} on this system, {MIN_POINTS} are needed"
    elif not row.change_points:
        found = "no change point"
    else:
        found = "; ".join(
            f"change point at {row.series[c.index].week}: {figure(c.before)} → {figure(c.after)} (p {c.p:.2g})"
            for c in row.change_points
        )
    cells = [[p.week, figure(p.median), _bounds(p.low, p.high), str(p.n)] for p in row.series]
    return {"name": row.name, "change_points": found, "rows": cells}


def unbroken(row: ConfigurationWeek) -> list[list[tuple[int, float]]]:
    """The medians as lines that end where the system changed: across a break nothing is comparable."""
    breaks = {e.week for e in (*row.history, *row.events) if e.kind == "environment"}
    lines: list[list[tuple[int, float]]] = [[]]
    for at, point in enumerate(row.series):
        if point.week in breaks:
            lines.append([])
        if point.median is not None:
            lines[-1].append((at, point.median))
    return lines


def parts(report: Weekly) -> dict[str, object]:
    """What each part of the report says, in words and unescaped: the values that its templates share."""
    rows = report.configurations
    return {
        "report": report,
        "headlines": [(title, word, said[:1].upper() + said[1:]) for title, word, said in map(_headline, rows)],
        "events": [event_line(e, evidence=True) for r in rows for e in r.events if not _told(r, e)],
        "changed": any(r.events for r in rows),
        "kept": KEPT,
        "score_columns": SCORE_COLUMNS,
        "scores": [_score(r) for r in rows if r.metrics],
        "goals": [f"{r.name}: {_goal(s)}" for r in rows for s in r.metrics if s.goal is not None],
        "event_line": event_line,
        "also": [(r.name, also_changed(r)) for r in rows],
        "move_line": move_line,
        "kernel_line": kernel_line,
        "breaks": _breaks(report),
        "experiment_columns": EXPERIMENT_COLUMNS,
        "experiments": [_experiment(e) for e in report.experiments],
        "quality_columns": QUALITY_COLUMNS,
        "quality": [_quality(r.name, r.quality) for r in rows],
        "series": [_series(r) for r in rows],
        "count": count,
    }


def document(report: Weekly, *, plots: tuple[str, ...] = (), store: str = "STORE") -> str:
    """``weekly.md``. ``plots`` are file names beside it; ``store`` is how the commands at the end name the store."""
    return render("weekly.md.j2", {**parts(report), "plots": plots, "store": store})


def terminal(report: Weekly) -> list[str]:
    """The first screen for a terminal."""
    lines = [f"Week {report.week}"]
    for row in report.configurations:
        title, word, sentence = _headline(row)
        lines.append(f"  {title}: {word}: {sentence}")
        lines += [f"    {event_line(e, evidence=True)}" for e in row.events if not _told(row, e)]
        # Where the headline speaks of a change, the others mostly follow from it.
        lines += [f"    also {line}" for line in also_changed(row) if row.verdict == "no_change"]
    lines += [f"  next: {a.text}" + (f" ({a.owner})" if a.owner else "") for a in report.actions]
    return [visible(line) for line in lines]
