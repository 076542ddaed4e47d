"""What a metric is: unit, direction, and how a person calls it. The data is ``rules/metrics.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal, TypeAlias

from profkit.rules import load_rules

Better: TypeAlias = Literal["higher", "lower"]
Family: TypeAlias = Literal["serving", "trace"]

DEFAULT_PRIMARY = "throughput"
FALLBACK_PRIMARY = "cycle_wall"
# The target model's forward, whether it decodes or verifies: what a configuration with speculation and one without
# have in common.
TARGET_FORWARD = "target_forward"


@dataclass(frozen=True, slots=True)
class MetricKind:
    """A metric's fixed properties; ``unit`` is ``None`` where the file that holds the figure names it."""

    name: str
    unit: str | None
    better: Better
    family: Family
    title: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """One metric of one server launch.

    ``running_req`` is the load it was taken at (running requests per DP rank; the client's concurrency for benchmark
    figures), ``None`` where it covers all loads or the load is unknown.
    ``n`` counts the observations inside the launch (log lines, cycles), ``p10`` and ``p90`` are their spread:
    description only, since observations of one launch are not independent.
    """

    name: str
    value: float
    unit: str
    running_req: int | None = None
    n: int | None = None
    p10: float | None = None
    p90: float | None = None
    source: str = ""


@cache
def metric_kind(name: str) -> MetricKind | None:
    """The properties of a metric, or ``None`` for a name without a known direction, which is not compared."""
    for rule in load_rules("metrics")["metric"]:
        if fnmatchcase(name, rule["pattern"]):
            first, _, rest = name.partition(".")
            title = rule["title"].format(phase=first.replace("_", " "), rest=rest.replace("_", " ").replace(".", ": "))
            return MetricKind(name, rule.get("unit"), rule["better"], rule["family"], title)
    return None
