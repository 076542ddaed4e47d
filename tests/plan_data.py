"""The sample runs, analysed once for all tests of the plan."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from profkit.analysis import RunAnalysis
from profkit.pipeline import analyse_path
from profkit.planning.plan import Plan, make_plan
from profkit.run import Fact, Facts
from tests.paths import SAMPLES

STORY = SAMPLES / "kimi-k2.5-tp8"


@cache
def sample(name: str) -> RunAnalysis:
    """One run of the reference story."""
    return analyse_path(STORY / name, jobs=1, cache=False)


@cache
def story() -> Plan:
    """The plan of the reference story: EAGLE-3 against the baseline, with the other drafter and NGRAM beside it."""
    return make_plan(sample("eagle3"), sample("baseline"), [sample("aq-medai"), sample("ngram")])


def with_facts(run: RunAnalysis, **facts: str | int | float | bool | None) -> RunAnalysis:
    """The run with some facts changed (``gpu__sm`` for ``gpu.sm``); ``None`` takes one away."""
    known = dict(run.facts.items())
    for key, value in facts.items():
        name = key.replace("__", ".")
        known.pop(name, None)
        if value is not None:
            known[name] = Fact(value, "test")
    return replace(run, facts=Facts(known))


def log_only(run: RunAnalysis) -> RunAnalysis:
    """The run without its traces."""
    return replace(run, attribution=None)


def trace_only(run: RunAnalysis) -> RunAnalysis:
    """The run without its log."""
    return replace(run, log=None)
