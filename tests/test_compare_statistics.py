"""The statistics against brute force, against scipy, and against what they promise."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from profkit.comparison import statistics
from profkit.comparison.changepoints import change_points
from profkit.comparison.statistics import mann_whitney, minimum_detectable, ratio_interval

TIED = st.lists(st.integers(0, 4).map(float), min_size=2, max_size=5)


def by_enumeration(base: list[float], candidate: list[float]) -> float:
    """All ways to deal the pooled values, counted one by one."""
    ranks = stats.rankdata(base + candidate)
    n = len(base)
    centre = n * ranks.sum() / ranks.size
    observed = abs(ranks[:n].sum() - centre)
    dealt = [abs(sum(ranks[i] for i in chosen) - centre) for chosen in combinations(range(ranks.size), n)]
    return len([d for d in dealt if d >= observed - 1e-9]) / len(dealt)


@given(TIED, TIED)
@settings(max_examples=60, deadline=None)
def test_exact_with_ties(base: list[float], candidate: list[float]) -> None:
    assert mann_whitney(base, candidate) == pytest.approx(by_enumeration(base, candidate), abs=1e-12)


@given(st.lists(st.integers(0, 10**6), min_size=8, max_size=20, unique=True), st.integers(3, 5))
@settings(max_examples=30, deadline=None)
def test_agrees_with_scipy_without_ties(values: list[int], cut: int) -> None:
    base, candidate = [float(v) for v in values[:cut]], [float(v) for v in values[cut:]]
    expected = float(stats.mannwhitneyu(base, candidate, method="exact").pvalue)
    assert mann_whitney(base, candidate) == pytest.approx(expected, abs=1e-12)
    assert mann_whitney(candidate, base) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.integers(0, 6).map(float), min_size=1, max_size=20))
@settings(max_examples=40, deadline=None)
def test_midranks_are_those_of_scipy(values: list[float]) -> None:
    assert statistics.midranks(np.array(values)).tolist() == stats.rankdata(values).tolist()


def test_smallest_p_per_sample_size() -> None:
    assert [round(statistics.smallest_p(n, n), 4) for n in (3, 4, 5, 6)] == [0.1, 0.0286, 0.0079, 0.0022]
    assert mann_whitney([1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(statistics.smallest_p(4, 4))


def test_large_samples_use_the_normal_limit() -> None:
    random = np.random.default_rng(1)
    base, candidate = random.normal(60, 1, 60).tolist(), random.normal(60, 1, 60).tolist()
    exact = float(stats.mannwhitneyu(base, candidate, method="exact").pvalue)
    assert mann_whitney(base, candidate) == pytest.approx(exact, rel=0.02)


def test_interval_of_the_ratio_covers_the_truth() -> None:
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        base = (60 * (1 + 0.02 * random.standard_normal(6))).tolist()
        candidate = (57 * (1 + 0.02 * random.standard_normal(6))).tolist()
        interval = ratio_interval(base, candidate)
        assert interval is not None
        covered += interval.low <= 0.95 <= interval.high
    assert covered >= 180


def test_interval_abstains() -> None:
    assert ratio_interval([1.0], [1.0, 2.0]) is None
    assert ratio_interval([0.0, 0.0, 1.0], [1.0, 2.0]) is None
    assert statistics.median_interval([3.0]) is None


def test_same_seed_same_interval() -> None:
    values = ([60.0, 61.0, 59.5, 60.2], [57.0, 58.0, 56.5, 57.2])
    assert ratio_interval(*values) == ratio_interval(*values)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_holm_is_monotone_and_never_below_the_raw_p(values: list[float]) -> None:
    adjusted = statistics.holm(values)
    assert all(a >= p and a <= 1 for a, p in zip(adjusted, values, strict=True))
    order = sorted(range(len(values)), key=lambda i: values[i])
    assert [adjusted[i] for i in order] == sorted(adjusted[i] for i in order)


def test_holm_by_hand() -> None:
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


@pytest.mark.parametrize("n", [4, 6, 8])
def test_minimum_detectable_effect_is_detected_as_often_as_promised(n: int) -> None:
    random = np.random.default_rng(11 + n)
    noise, min_effect = 0.02, 0.03
    # Samples whose spread is exactly the noise.
    shape = stats.norm.ppf((np.arange(n) + 0.5) / n)
    shape *= noise / shape.std(ddof=1)
    sample = (60 * (1 + shape)).tolist()
    effect = minimum_detectable(sample, sample, alpha=0.05, min_effect=min_effect)
    assert effect is not None
    called = 0
    for _ in range(400):
        base = 60 * (1 + noise * random.standard_normal(n))
        candidate = 60 * (1 + effect + noise * random.standard_normal(n))
        p = mann_whitney(base.tolist(), candidate.tolist())
        called += bool(p < 0.05 and np.median(candidate) / np.median(base) - 1 >= min_effect)
    assert 0.73 <= called / 400 <= 0.87


def test_minimum_detectable_effect_abstains_and_falls_with_launches() -> None:
    assert minimum_detectable([60, 61, 59], [60, 61, 59], alpha=0.05, min_effect=0.03) is None
    assert minimum_detectable([60], [60, 61, 59], alpha=0.05, min_effect=0.03) is None
    effects = [
        minimum_detectable([60.0, 62.0] * k, [60.0, 62.0] * k, alpha=0.05, min_effect=0.0) for k in (2, 3, 5, 30)
    ]
    known = [e for e in effects if e is not None]
    assert len(known) == 4
    assert known == sorted(known, reverse=True)
    # Far from small samples the normal theory holds: (z_0.975 + z_0.8) sd sqrt(2/n) / sqrt(3/pi).
    spread = statistics.relative_spread([60.0, 62.0] * 30)
    assert spread is not None
    assert known[-1] == pytest.approx(2.8016 * spread * math.sqrt(2 / 60) / math.sqrt(3 / math.pi), rel=0.01)


def test_no_change_points_below_ten() -> None:
    assert change_points([60.0] * 5 + [50.0] * 4) is None
    found = change_points([60.0, 60.1, 59.9, 60.2, 59.8, 50.0, 50.1, 49.9, 50.2, 49.8])
    assert found is not None
    assert [c.index for c in found] == [5]
    assert (found[0].before, found[0].after) == (60.0, 50.0)


def test_a_spike_is_no_change_point() -> None:
    assert change_points([60.0, 60.1, 59.9, 60.2, 30.0, 59.8, 60.3, 60.0, 59.7, 60.1, 60.2, 59.9]) == []


def test_change_points_false_alarms_and_detection() -> None:
    random = np.random.default_rng(3)
    flat = [change_points((60 * (1 + 0.02 * random.standard_normal(12))).tolist()) for _ in range(100)]
    assert sum(bool(c) for c in flat) <= 5
    steps = [
        change_points((np.repeat([60, 55], 7) * (1 + 0.02 * random.standard_normal(14))).tolist()) for _ in range(100)
    ]
    assert sum(bool(c) for c in steps) >= 85


@pytest.mark.parametrize("values", [[], [float("nan")], [1.0, float("inf")]])
def test_samples_must_hold_finite_numbers(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        mann_whitney(values, [1.0])
