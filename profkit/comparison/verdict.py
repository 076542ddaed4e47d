"""The verdict on two groups of launches: better, worse, no detectable change, or cannot say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from profkit.comparison import statistics
from profkit.comparison.arms import same_phases
from profkit.comparison.fingerprint import differences
from profkit.comparison.kernels import kernel_changes, same_load
from profkit.comparison.launch import CONTEXT, Launch
from profkit.comparison.metrics import Better, Family, Measurement, metric_kind
from profkit.comparison.result import (
    MIN_LAUNCHES,
    SMALL_CELL,
    Comparison,
    MetricComparison,
    Settings,
    Side,
    Verdict,
    is_cell,
)

# Both sides shall run at the same context length, within this share; and what of it the log resolves.
SAME_CONTEXT = 0.20
READABLE_USAGE = 0.05


def _by_load(launch: Launch, name: str) -> dict[int | None, Measurement]:
    return {m.running_req: m for m in launch.measurements if m.name == name}


def _common_load(sides: Sequence[Sequence[dict[int | None, Measurement]]]) -> tuple[bool, int | None]:
    """The load that all launches that have the metric share and that most observations were taken at."""
    rows = [found for side in sides for found in side if found]
    if not rows:
        return False, None
    shared = set.intersection(*(set(found) for found in rows))
    if not shared:
        return False, None

    def weight(load: int | None) -> tuple[int, int]:
        return sum(found[load].n or 1 for found in rows), -1 if load is None else -load

    return True, max(shared, key=weight)


def _side(found: Sequence[dict[int | None, Measurement]], load: int | None) -> Side:
    taken = [rows[load] for rows in found if load in rows]
    lows = [m.p10 for m in taken if m.p10 is not None]
    highs = [m.p90 for m in taken if m.p90 is not None]
    within = (statistics.median(lows), statistics.median(highs)) if lows and highs else None
    return Side(tuple(m.value for m in taken), within)


@dataclass(frozen=True, slots=True)
class _Raw:
    """A metric before its p is adjusted."""

    name: str
    title: str
    unit: str
    better: Better
    family: Family
    load: int | None
    base: Side
    candidate: Side
    problem: str | None
    p: float | None

    @property
    def constant(self) -> bool:
        return len({*self.base.values, *self.candidate.values}) == 1


def _raw(name: str, base: Sequence[Launch], candidate: Sequence[Launch]) -> _Raw:
    kind = metric_kind(name)
    if kind is None:
        raise ValueError(f"{name} has no known direction")
    found = ([_by_load(x, name) for x in base], [_by_load(x, name) for x in candidate])
    shared, load = _common_load(found)
    units = {m.unit for side in found for rows in side for m in rows.values()}
    unit = kind.unit or (units.pop() if len(units) == 1 else "")
    sides = (_side(found[0], load), _side(found[1], load)) if shared else (Side(()), Side(()))
    problem = _problem(sides, len(base), len(candidate), shared=shared, measured=bool(any(found[0]) or any(found[1])))
    p = None
    if problem is None:
        p = statistics.mann_whitney(sides[0].values, sides[1].values)
    return _Raw(name, kind.title, unit, kind.better, kind.family, load, *sides, problem, p)


def _problem(sides: tuple[Side, Side], base: int, candidate: int, *, shared: bool, measured: bool) -> str | None:
    """Why there can be no verdict, or ``None``."""
    if not measured:
        return "no launch states it"
    if not shared:
        return "the launches share no load (running requests) at which it was measured"
    for side, name, launches in ((sides[0], "base", base), (sides[1], "candidate", candidate)):
        if side.n == 0:
            return f"the {name} does not state it"
        if side.n < MIN_LAUNCHES:
            return (
                f"{name}: {side.n} of {launches} launches state it, {MIN_LAUNCHES} are needed"
                if (side.n < launches)
                else f"{name}: {side.n} server launch{'es' if side.n > 1 else ''}, {MIN_LAUNCHES} are needed"
            )
    return None


def _judge(
    raw: _Raw, p_adjusted: float | None, detectable: float | None, change: float | None, settings: Settings
) -> tuple[Verdict, str]:
    if raw.problem is not None:
        return "cannot_say", raw.problem
    assert p_adjusted is not None
    if change is None:
        return "cannot_say", "the base median is 0, so there is no relative change"
    if p_adjusted < settings.alpha and abs(change) >= settings.min_effect:
        good = (change > 0) == (raw.better == "higher")
        return ("better" if good else "worse"), f"p {p_adjusted:.2g} and {abs(change):.1%} apart"
    if p_adjusted < settings.alpha:
        return "no_change", f"a difference of {abs(change):.1%} is real but below {settings.min_effect:.0%}"
    if detectable is None:
        if raw.constant:
            return "no_change", "all launches gave the same figure"
        return "cannot_say", "too few launches for the significance asked for"
    if detectable > settings.blind_above:
        return "cannot_say", f"too noisy: only a change above {detectable:.0%} would have been seen"
    return "no_change", f"a change above {detectable:.1%} would have been seen"


def _finish(raw: _Raw, role: Literal["primary", "secondary"], p_adjusted: float | None, alpha: float,
            settings: Settings, comparable: bool) -> MetricComparison:  # fmt: skip
    base, candidate = raw.base.median, raw.candidate.median
    change = candidate / base - 1.0 if base is not None and candidate is not None and base > 0 else None
    interval = detectable = size = None
    if change is not None:
        ratio = statistics.ratio_interval(raw.base.values, raw.candidate.values)
        interval = statistics.Interval(ratio.low - 1.0, ratio.high - 1.0) if ratio else None
        size = statistics.rank_biserial(raw.base.values, raw.candidate.values)
        detectable = statistics.minimum_detectable(
            raw.base.values, raw.candidate.values, alpha=alpha, min_effect=settings.min_effect
        )
    verdict, why = _judge(raw, p_adjusted, detectable, change, settings)
    if not comparable and verdict != "cannot_say":
        verdict, why = "cannot_say", f"not comparable (else: {verdict.replace('_', ' ')}, {why})"
    return MetricComparison(
        raw.name, raw.title, raw.unit, raw.better, role, raw.load, raw.base, raw.candidate,
        change, interval, raw.p, p_adjusted, detectable, size, verdict, why,
    )  # fmt: skip


def _names(base: Sequence[Launch], candidate: Sequence[Launch], primary: str) -> list[str]:
    """Metrics to compare: the primary one first, then in order of first mention; cells of small size are left out."""
    seen: dict[str, float] = {primary: 0.0}
    whole = 0.0
    for launch in (*base, *candidate):
        for m in launch.measurements:
            seen[m.name] = max(seen.get(m.name, 0.0), m.value)
            whole = max(whole, m.value) if m.name == "cycle_wall" else whole
    known = [n for n in seen if n == primary or metric_kind(n) is not None]
    return [n for n in known if n == primary or not is_cell(n) or seen[n] > SMALL_CELL * whole]


def _context(base: Sequence[Launch], candidate: Sequence[Launch], load: int | None) -> list[str]:
    """A warning when the KV cache was used so differently that the contexts cannot have been alike."""
    usage = [[m.value for x in side if (m := _by_load(x, CONTEXT).get(load))] for side in (base, candidate)]
    if not all(usage):
        return []
    low, high = sorted(statistics.median(values) for values in usage)
    # The log prints two decimals: below a few percent their ratio says nothing.
    if low < READABLE_USAGE or high <= (1 + SAME_CONTEXT) * low:
        return []
    return [
        f"KV cache usage differs by more than {SAME_CONTEXT:.0%} ({low:.0%} and {high:.0%}): other context lengths?"
    ]


def _adjust(raws: Sequence[_Raw], alpha: float) -> tuple[dict[str, float], dict[Family, float]]:
    """p adjusted within each family (Holm), and the level of its strictest step.

    A metric whose values are all the same can never be significant, and is not counted (Tarone).
    """
    adjusted: dict[str, float] = {}
    levels: dict[Family, float] = {"serving": alpha, "trace": alpha}
    for family in levels:
        of_family = [(r, r.p) for r in raws if r.family == family and r.p is not None]
        adjusted |= {r.name: 1.0 for r, _ in of_family if r.constant}
        tested = [(r.name, p) for r, p in of_family if not r.constant]
        adjusted |= dict(zip((n for n, _ in tested), statistics.holm([p for _, p in tested]), strict=True))
        levels[family] = alpha / max(1, len(tested))
    return adjusted, levels


def _without_copies(side: Sequence[Launch], name: str) -> tuple[list[Launch], list[str]]:
    """A launch that was given twice counts once."""
    kept: dict[str, Launch] = {}
    for index, launch in enumerate(side):
        kept.setdefault(launch.content_key or f"#{index}", launch)
    lost = len(side) - len(kept)
    return list(kept.values()), [f"{name}: {lost} copies of the same run were counted once"] if lost else []


def _states(side: Sequence[Launch], name: str) -> bool:
    return any(m.name == name for launch in side for m in launch.measurements)


def _with_primary(
    base: Sequence[Launch], candidate: Sequence[Launch], settings: Settings
) -> tuple[Settings, list[str]]:
    """The settings with the metric that the verdict is about: the fallback when nobody states the primary one."""
    stated = _states(base, settings.primary) or _states(candidate, settings.primary)
    other = settings.fallback
    if stated or other is None or not (_states(base, other) and _states(candidate, other)):
        return settings, []
    return replace(settings, primary=other), [f"no launch states {settings.primary}; the verdict is about {other}"]


def compare(
    base: Sequence[Launch],
    candidate: Sequence[Launch],
    settings: Settings | None = None,
    *,
    only: Sequence[str] | None = None,
) -> Comparison:
    """Compare two groups of server launches; ``only`` restricts the secondary metrics to those named.

    The primary metric is tested on its own at ``settings.alpha``; the p values of the others are adjusted within their
    family (Holm), and their minimum detectable effect is given at the level of the strictest step.

    Raises:
        ValueError: a side is empty, or the primary metric has no known direction.
    """
    settings = settings or Settings()
    if not base or not candidate:
        raise ValueError("both sides need at least one launch")
    base, warnings = _without_copies(base, "base")
    candidate, more = _without_copies(candidate, "candidate")
    warnings += more
    if both := {x.content_key for x in base if x.content_key} & {x.content_key for x in candidate}:
        warnings.append(f"{len(both)} runs stand on both sides")
    differing = differences([x.fingerprint for x in base], [x.fingerprint for x in candidate], settings.expect)
    warnings += [
        f"{pattern} was expected to differ and does not"
        for pattern in settings.expect
        if not any(d.state == "expected" and fnmatchcase(d.key, pattern) for d in differing)
    ]
    comparable = all(d.state != "blocking" for d in differing)
    base, candidate = same_phases(base, candidate)
    settings, told = _with_primary(base, candidate, settings)
    warnings += told
    names = _names(base, candidate, settings.primary)
    raws = [_raw(name, base, candidate) for name in names if only is None or name in (settings.primary, *only)]
    metrics = [_finish(raws[0], "primary", raws[0].p, settings.alpha, settings, comparable)]
    warnings += _context(base, candidate, raws[0].load)
    adjusted, levels = _adjust(raws[1:], settings.alpha)
    metrics += [
        _finish(raw, "secondary", adjusted.get(raw.name), levels[raw.family], settings, comparable) for raw in raws[1:]
    ]
    traced = [[x.kernels for x in side if x.kernels] for side in (base, candidate)]
    if all(traced) and not same_load([*traced[0], *traced[1]]):
        warnings.append("kernel classes are not compared: the traces are of different batch sizes")
    return Comparison(
        tuple(x.name for x in base), tuple(x.name for x in candidate), comparable, tuple(differing),
        settings.primary, tuple(metrics), kernel_changes(*traced), settings, tuple(warnings),
    )  # fmt: skip
