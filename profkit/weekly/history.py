"""The launches of a store by configuration and week, and what is usual for a configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from profkit.comparison import statistics
from profkit.comparison.launch import Launch
from profkit.comparison.result import MIN_LAUNCHES
from profkit.config import Config, Tracked
from profkit.errors import InputError
from profkit.week import between, monday

LEVER_LABEL = "lever"
DATASET_LABEL = "dataset"
# What a usual spread or number of launches is known from.
USUAL_WEEKS = 2


class History:
    """Launches up to and with one week.

    Launches with a ``lever`` label are experiments and stand apart from the tracked series; where a configuration runs
    on several datasets, its series is that of the commonest one.

    Raises:
        InputError: no launch up to that week.
    """

    def __init__(self, launches: Sequence[Launch], config: Config, week: str | None = None) -> None:
        filed = [x for x in launches if x.config and x.week]
        last = week or max((x.week for x in filed if x.week), key=monday, default=None)
        if last is None:
            raise InputError("the store holds no runs; `profkit add RUN` keeps one")
        known = [x for x in filed if x.week and monday(x.week) <= monday(last)]
        if not known:
            raise InputError(f"the store holds no runs up to {last}; `profkit runs` lists its weeks")
        first = min((x.week for x in known if x.week), key=monday)
        self.config = config
        self.week = last
        self.weeks: tuple[str, ...] = tuple(between(first, last))
        self._all: dict[tuple[str, str], list[Launch]] = {}
        self._experiments: dict[tuple[str, str, str], list[Launch]] = {}
        self._loads: dict[tuple[str, str], int | None] = {}
        self._spreads: dict[tuple[str, str], float | None] = {}
        for launch in sorted(known, key=lambda x: (x.date or "", x.name, x.id or "")):
            assert launch.config is not None
            assert launch.week is not None
            lever = launch.labels.get(LEVER_LABEL)
            if lever:
                self._experiments.setdefault((launch.week, launch.config, lever), []).append(launch)
            else:
                self._all.setdefault((launch.config, launch.week), []).append(launch)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Tracked configurations in the order of the file, or all of the store by name."""
        if self.config.configuration:
            return tuple(c.name for c in self.config.configuration)
        return tuple(sorted({name for name, _ in self._all}))

    def tracked(self, name: str) -> Tracked:
        """A configuration's entry in the file."""
        return self.config.tracked(name)

    def every(self, name: str, week: str) -> list[Launch]:
        """Launches of a configuration on all datasets, experiments excluded."""
        return self._all.get((name, week), [])

    @cached_property
    def _datasets(self) -> dict[str, str | None]:
        seen: dict[str, Counter[str | None]] = {}
        for (config, _), launches in sorted(self._all.items()):
            seen.setdefault(config, Counter()).update(x.labels.get(DATASET_LABEL) for x in launches)
        return {config: min(count, key=lambda d: (-count[d], d or "")) for config, count in seen.items()}

    def dataset(self, name: str) -> str | None:
        """The dataset of a configuration's series: the commonest over all weeks."""
        return self._datasets.get(name)

    def launches(self, name: str, week: str) -> list[Launch]:
        """The launches of a configuration's series in a week."""
        dataset = self.dataset(name)
        return [x for x in self.every(name, week) if x.labels.get(DATASET_LABEL) == dataset]

    def experiments(self, week: str) -> list[tuple[str, str, list[Launch]]]:
        """(configuration, lever, launches) of a week."""
        return [(c, lever, xs) for (w, c, lever), xs in sorted(self._experiments.items()) if w == week]

    def before(self, name: str, week: str) -> list[str]:
        """Earlier weeks in which the configuration ran, the latest first."""
        return [w for w in reversed(self.weeks) if monday(w) < monday(week) and self.launches(name, w)]

    def load(self, name: str, metric: str) -> int | None:
        """The load at which most of the configuration's observations of a metric were taken."""
        if (name, metric) not in self._loads:
            weight: Counter[int | None] = Counter()
            for week in self.weeks:
                for launch in self.launches(name, week):
                    for m in launch.measurements:
                        if m.name == metric:
                            weight[m.running_req] += m.n or 1
            commonest = min(weight, key=lambda k: (-weight[k], -1 if k is None else k), default=None)
            self._loads[name, metric] = commonest
        return self._loads[name, metric]

    def values(self, name: str, week: str, metric: str) -> list[float]:
        """One value per launch, at :meth:`load`."""
        load = self.load(name, metric)
        return [
            m.value
            for launch in self.launches(name, week)
            for m in launch.measurements
            if m.name == metric and m.running_req == load
        ]

    def spread(self, name: str, week: str) -> float | None:
        """Relative spread of the primary metric between the launches of a week; ``None`` below three."""
        if (name, week) not in self._spreads:
            values = self.values(name, week, self.config.thresholds.primary)
            self._spreads[name, week] = statistics.relative_spread(values) if len(values) > 2 else None
        return self._spreads[name, week]

    def usual_spread(self, name: str, week: str) -> float | None:
        """Median spread of the earlier weeks; ``None`` when fewer than two show one."""
        known = [s for w in self.before(name, week) if (s := self.spread(name, w)) is not None]
        return statistics.median(known) if len(known) >= USUAL_WEEKS else None

    def noisy(self, name: str, week: str) -> bool:
        """Whether the launches of a week scatter far more than usual, and by more than a change that counts."""
        spread, usual = self.spread(name, week), self.usual_spread(name, week)
        thresholds = self.config.thresholds
        if spread is None or usual is None:
            return False
        return spread > max(thresholds.noise_factor * usual, thresholds.min_effect_percent / 100)

    def expected(self, name: str, week: str) -> int | None:
        """Launches that were to be expected: the file's number, else the commonest of the earlier weeks."""
        if (stated := self.tracked(name).launches_per_week) is not None:
            return stated
        counts = Counter(len(self.launches(name, w)) for w in self.before(name, week))
        if sum(counts.values()) < USUAL_WEEKS:
            return None
        return max(counts, key=lambda n: (counts[n], n))

    def enough(self, name: str, week: str) -> bool:
        """Whether a week has the launches that a verdict needs."""
        return len(self.launches(name, week)) >= MIN_LAUNCHES
