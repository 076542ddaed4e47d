"""The figures of one configuration's week: standings, economics, acceptance by dataset, data quality, series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from profkit.comparison import statistics
from profkit.comparison.changepoints import ChangePoint, change_points
from profkit.comparison.fingerprint import GATED, differences
from profkit.comparison.launch import Launch, Quality
from profkit.comparison.metrics import metric_kind
from profkit.comparison.result import Comparison, MetricComparison, is_cell
from profkit.comparison.verdict import compare
from profkit.quantity import Quantity
from profkit.weekly.history import DATASET_LABEL, History
from profkit.weekly.judge import Judged, breaks
from profkit.weekly.model import Drift, Economics, Point, QualityWeek, Standing

ALWAYS = ("accept_len", "step_time", "allreduce_per_call")
DEFAULT_BASELINE = "baseline"


def quantity(values: Sequence[float], unit: str, source: str) -> Quantity:
    """The median of launches with its interval; unknown without any."""
    if not values:
        return Quantity.unknown(unit, f"no value: {source}")
    interval = statistics.median_interval(values)
    return Quantity(
        statistics.median(values), unit, "measured", f"median of {len(values)} server launches, {source}",
        low=interval.low if interval else None, high=interval.high if interval else None,
        range="ci95" if interval else None, n=len(values),
    )  # fmt: skip


def _best(history: History, name: str, metric: str, better: str) -> tuple[str | None, float | None]:
    """The week with the best median among quiet weeks with enough launches on this week's system."""
    found = [
        (statistics.median(values), week)
        for week in history.weeks
        if history.enough(name, week)
        and not history.noisy(name, week)
        and not breaks(history, name, week, history.week)
        if (values := history.values(name, week, metric))
    ]
    if not found:
        return None, None
    value, week = max(found) if better == "higher" else min(found)
    return week, value


def _metric_names(history: History, name: str, comparison: Comparison | None) -> list[str]:
    goals = [g.metric for g in history.tracked(name).goals]
    names = dict.fromkeys([history.config.thresholds.primary, *ALWAYS, *goals])
    names |= dict.fromkeys(m.name for m in (comparison.metrics if comparison else ()) if not is_cell(m.name))
    return list(names)


def standings(history: History, name: str, judged: Judged) -> tuple[Standing, ...]:
    """The primary metric, what is always shown, the goals, and whatever else could be compared."""
    goals = {g.metric: g.target for g in history.tracked(name).goals}
    found = []
    for metric in _metric_names(history, name, judged.comparison):
        kind = metric_kind(metric)
        assert kind is not None
        values = history.values(name, judged.week, metric)
        compared = judged.comparison.metric(metric) if judged.comparison else None
        if not values and compared is None and metric not in (*goals, history.config.thresholds.primary):
            continue
        unit = kind.unit or (compared.unit if compared else "")
        week, best = _best(history, name, metric, kind.better)
        current = quantity(values, unit, judged.week)
        against = current.value / best - 1 if current.value is not None and best else None
        known = (
            Quantity(best, unit, "measured", f"median of the launches of {week}")
            if best is not None
            else Quantity.unknown(unit, "no quiet week with enough launches")
        )
        found.append(
            Standing(metric, kind.title, kind.better, current, judged.reference, compared, week, known, against,
                     goals.get(metric))
        )  # fmt: skip
    return tuple(found)


def budget(comparison: Comparison | None) -> tuple[MetricComparison, ...]:
    """The cells of the cycle budget on both sides."""
    return tuple(m for m in comparison.metrics if is_cell(m.name)) if comparison else ()


def _baseline_week(history: History, name: str, baseline: str) -> str | None:
    """This week or the latest earlier one in which the baseline ran on the same system."""
    for week in [history.week, *history.before(baseline, history.week)]:
        if history.launches(baseline, week) and not _other_system(history, name, baseline, week):
            return week
    return None


def _other_system(history: History, name: str, baseline: str, week: str) -> bool:
    found = differences(
        [x.fingerprint for x in history.launches(baseline, week)],
        [x.fingerprint for x in history.launches(name, history.week)],
    )
    return any(d.cause in GATED and d.state == "blocking" for d in found)


def economics(history: History, name: str) -> Economics | None:
    """Cycle inflation against the baseline configuration; ``None`` for the baseline itself and without one."""
    # Names may have parts: the baseline of kimi/eagle3 is kimi/baseline.
    family = name.rpartition("/")[0]
    baseline = history.tracked(name).baseline or "/".join(filter(None, (family, DEFAULT_BASELINE)))
    if baseline == name or not any(history.launches(baseline, w) for w in history.weeks):
        return None
    week = _baseline_week(history, name, baseline)
    accept = quantity(history.values(name, history.week, "accept_len"), "tokens", f"{name} {history.week}")
    if week is None or not history.launches(name, history.week):
        unknown = Quantity.unknown("x", f"{baseline} did not run on the same system as {name} in {history.week}")
        return Economics(baseline, unknown, Quantity.unknown("tokens", unknown.source), accept)
    compared = compare(
        history.launches(baseline, week), history.launches(name, history.week), only=("step_time",)
    ).metric("step_time")
    if compared is None or compared.change is None:
        why = compared.why if compared else "no step time in the logs"
        return Economics(baseline, Quantity.unknown("x", why), Quantity.unknown("tokens", why), accept)
    source = f"step time of {name} {history.week} over that of {baseline} {week}, at the same load"
    low, high = (1 + compared.interval.low, 1 + compared.interval.high) if compared.interval else (None, None)
    inflation = Quantity(
        1 + compared.change, "x", "derived", source, low, high, "ci95" if compared.interval else None,
        min(compared.base.n, compared.candidate.n),
    )  # fmt: skip
    # The accept length at which both configurations are equally fast is the inflation itself.
    return Economics(baseline, inflation, replace(inflation, unit="tokens"), accept)


def _accept_lens(launches: Sequence[Launch], dataset: str, load: int | None) -> list[float]:
    return [
        m.value
        for x in launches
        if (x.labels.get(DATASET_LABEL) or "not stated") == dataset
        for m in x.measurements
        if m.name == "accept_len" and m.running_req == load
    ]


def drift(history: History, name: str, judged: Judged) -> tuple[Drift, ...]:
    """Accept length by dataset, this week and in the reference week."""
    load = history.load(name, "accept_len")
    now = history.every(name, judged.week)
    then = history.every(name, judged.reference) if judged.reference else []
    found = []
    for dataset in sorted({x.labels.get(DATASET_LABEL) or "not stated" for x in [*now, *then]}):
        new, old = _accept_lens(now, dataset, load), _accept_lens(then, dataset, load)
        if new or old:
            found.append(
                Drift(dataset, len(new), statistics.median(new) if new else None, len(old),
                      statistics.median(old) if old else None)
            )  # fmt: skip
    return tuple(found)


def _sum(values: Sequence[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def quality(history: History, name: str) -> QualityWeek:
    """Sums over all launches of the week."""
    rows: list[Quality] = [x.quality for x in history.every(name, history.week)]
    shares = [q.unlabelled_share for q in rows if q.unlabelled_share is not None]
    return QualityWeek(
        launches=len(history.launches(name, history.week)),
        expected=history.expected(name, history.week),
        decode_lines=_sum([q.decode_lines for q in rows]),
        damaged_lines=_sum([q.damaged_lines for q in rows]),
        flagged_lines=_sum([q.flagged_lines for q in rows]),
        cycles=_sum([q.cycles for q in rows]),
        dropped_cycles=_sum([q.dropped_cycles for q in rows]),
        unlabelled_share=max(shares) if shares else None,
        warnings=sum(q.warnings for q in rows),
    )


def series(history: History, name: str) -> tuple[Point, ...]:
    """The primary metric, week by week; weeks without a launch stand with ``None``."""
    points = []
    for week in history.weeks:
        values = history.values(name, week, history.config.thresholds.primary)
        interval = statistics.median_interval(values) if len(values) > 1 else None
        points.append(
            Point(week, len(values), statistics.median(values) if values else None,
                  interval.low if interval else None, interval.high if interval else None, tuple(values))
        )  # fmt: skip
    return tuple(points)


def on_this_system(history: History, name: str, points: Sequence[Point]) -> list[int]:
    """Which points of the series were measured since the latest break of the system."""
    known = [i for i, p in enumerate(points) if p.median is not None]
    start = 0
    for at in range(1, len(known)):
        if breaks(history, name, points[known[at - 1]].week, points[known[at]].week):
            start = at
    return known[start:]


def series_changes(history: History, points: Sequence[Point], known: Sequence[int]) -> tuple[ChangePoint, ...] | None:
    """Change points of the weekly medians of the points ``known``; ``None`` when they are too few to look for any.

    ``index`` counts the points of the whole series.
    """
    medians = [m for i in known if (m := points[i].median) is not None]
    found = change_points(medians, min_effect=history.config.thresholds.min_effect_percent / 100)
    if found is None:
        return None
    return tuple(replace(c, index=known[c.index]) for c in found)
