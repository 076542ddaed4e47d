"""``profkit.toml``: which configurations are tracked, their goals and owners, thresholds, promises."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from profkit.comparison.metrics import DEFAULT_PRIMARY, metric_kind
from profkit.comparison.result import Settings
from profkit.errors import InputError
from profkit.week import monday

FILE_NAME = "profkit.toml"
STORE_VARIABLE = "PROFKIT_STORE"
DEFAULT_STORE = "profkit-store"

Percent: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1000)]
Status: TypeAlias = Literal["done", "not_done", "blocked"]


class Goal(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a configuration shall reach."""

    metric: str
    target: float


class Tracked(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A tracked configuration. ``baseline`` names the configuration without speculation to set it against."""

    name: str
    title: str | None = None
    owner: str | None = None
    baseline: str | None = None
    launches_per_week: Annotated[int, msgspec.Meta(ge=1)] | None = None
    goals: tuple[Goal, ...] = ()


class Promise(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What was promised in a report for the week after it.

    Without ``status`` the figures decide, if ``config``, ``metric`` and ``target`` are given.
    """

    made: str
    text: str
    owner: str | None = None
    config: str | None = None
    metric: str | None = None
    target: float | None = None
    status: Status | None = None
    note: str | None = None


class Triaged(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Somebody has looked into an event of a week."""

    week: str
    config: str
    kind: Literal["regression", "improvement", "environment", "noise", "missing"]
    note: str


class Thresholds(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """When a change is called one; in percent as a person writes them."""

    primary: str = DEFAULT_PRIMARY
    alpha: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.05
    min_effect_percent: Percent = 3.0
    blind_above_percent: Percent = 10.0
    noise_factor: Annotated[float, msgspec.Meta(gt=1)] = 3.0
    unlabelled_percent: Percent = 2.0

    def settings(self, expect: tuple[str, ...] = ()) -> Settings:
        """The settings of a comparison."""
        return Settings(self.primary, self.alpha, self.min_effect_percent / 100, self.blind_above_percent / 100, expect)


class Config(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The file. Everything has a default; without the file every configuration of the store is tracked."""

    store: str | None = None
    thresholds: Thresholds = Thresholds()
    configuration: tuple[Tracked, ...] = ()
    promise: tuple[Promise, ...] = ()
    triaged: tuple[Triaged, ...] = ()

    def tracked(self, name: str) -> Tracked:
        """A configuration's entry, or one without any facts."""
        return next((c for c in self.configuration if c.name == name), Tracked(name))


def _check(config: Config, path: Path) -> None:
    names = [c.name for c in config.configuration]
    if twice := {n for n in names if names.count(n) > 1}:
        raise InputError(f"{path}: configuration {sorted(twice)[0]!r} stands there twice; keep one")
    used = [g.metric for c in config.configuration for g in c.goals]
    used += [p.metric for p in config.promise if p.metric] + [config.thresholds.primary]
    if strange := [m for m in used if metric_kind(m) is None]:
        raise InputError(f"{path}: {strange[0]!r} is no metric; `profkit compare --format json` lists their names")
    for week in [*(p.made for p in config.promise), *(t.week for t in config.triaged)]:
        try:
            monday(week)
        except Exception as error:
            raise InputError(f"{path}: {error}") from error


def read_config(path: Path) -> Config:
    """Read a ``profkit.toml``.

    Raises:
        InputError: no TOML, an unknown key, a value of the wrong kind: with the place.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; --config-file names the file") from error
    try:
        config = msgspec.toml.decode(data, type=Config)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}; docs/weekly.md shows the keys") from error
    _check(config, path)
    return config


def find_config(explicit: Path | None = None, folder: Path | None = None) -> Config:
    """The named file, else ``profkit.toml`` in ``folder`` (the current one), else defaults."""
    if explicit is not None:
        return read_config(explicit)
    path = (folder or Path()) / FILE_NAME
    return read_config(path) if path.is_file() else Config()


def store_path(explicit: Path | None, config: Config) -> Path:
    """Where the store lies: the option, ``PROFKIT_STORE``, the file's ``store``, else ``profkit-store``."""
    if explicit is not None:
        return explicit
    return Path(os.environ.get(STORE_VARIABLE) or config.store or DEFAULT_STORE)
