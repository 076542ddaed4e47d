"""The statistics of comparisons: small samples of server launches, no assumption about their distribution.

Every random number comes from a fixed seed, so the same samples give the same answer on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

SEED = 20261130
RESAMPLES = 4000
# Up to this many launches on both sides together the test is exact; beyond, its normal limit is.
EXACT_UP_TO = 80
# Asymptotic efficiency of the rank test against the t test under a normal distribution: 3/pi.
RANK_EFFICIENCY = 3.0 / math.pi

Floats = npt.NDArray[np.float64]
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval."""

    low: float
    high: float


def _array(values: Sequence[float]) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all():
        raise ValueError("a sample needs at least one value, all of them finite")
    return array


def midranks(values: npt.NDArray[np.float64]) -> Floats:
    """Ranks from 1; tied values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2.0)[places]
    return ranks


def median(values: Sequence[float]) -> float:
    """The median of a sample that is not empty."""
    return float(np.median(_array(values)))


def _rank_sums(doubled_ranks: npt.NDArray[np.int64], n: int) -> Floats:
    """In how many ways ``n`` of the doubled midranks add up to each sum (index)."""
    ways = np.zeros((n + 1, int(doubled_ranks.sum()) + 1))
    ways[0, 0] = 1.0
    for rank in doubled_ranks:
        # Backwards over the count, so that each value is dealt at most once.
        for count in range(n - 1, -1, -1):
            ways[count + 1, rank:] += ways[count, : ways.shape[1] - rank]
    dealt: Floats = ways[n]
    return dealt


def mann_whitney(base: Sequence[float], candidate: Sequence[float]) -> float:
    """Two-sided p of the Wilcoxon-Mann-Whitney test, exact also when values are tied.

    The null distribution of the rank sum is counted over all ways to deal the pooled midranks to the two sides
    (dynamic programming over doubled midranks, which are integers). Above :data:`EXACT_UP_TO` values the normal
    approximation with tie and continuity correction is used.
    """
    first, second = _array(base), _array(candidate)
    if first.size + second.size > EXACT_UP_TO:
        from scipy import stats  # half a second to load, and seldom needed

        return float(stats.mannwhitneyu(first, second, alternative="two-sided", method="asymptotic").pvalue)
    doubled = np.rint(2 * midranks(np.concatenate([first, second]))).astype(np.int64)
    dealt = _rank_sums(doubled, first.size)
    observed = int(doubled[: first.size].sum())
    centre = first.size * float(doubled.sum()) / doubled.size
    as_extreme = np.abs(np.arange(dealt.size) - centre) >= abs(observed - centre) - 1e-9
    return float(min(1.0, dealt[as_extreme].sum() / dealt.sum()))


def smallest_p(base_n: int, candidate_n: int) -> float:
    """The smallest two-sided p that samples of these sizes can reach: 2 / C(m + n, n)."""
    return min(1.0, 2.0 / math.comb(base_n + candidate_n, base_n))


def ratio_interval(base: Sequence[float], candidate: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Percentile bootstrap interval of median(candidate) / median(base).

    ``None`` when a side has fewer than two values or a resampled base median is not positive.
    """
    first, second = _array(base), _array(candidate)
    if min(first.size, second.size) < 2:
        return None
    random = np.random.default_rng(SEED)
    below = np.median(first[random.integers(0, first.size, (RESAMPLES, first.size))], axis=1)
    above = np.median(second[random.integers(0, second.size, (RESAMPLES, second.size))], axis=1)
    if (below <= 0).any():
        return None
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(above / below, [tail, 1.0 - tail])
    return Interval(float(low), float(high))


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Percentile bootstrap interval of the median; ``None`` below two values."""
    sample = _array(values)
    if sample.size < 2:
        return None
    random = np.random.default_rng(SEED)
    medians = np.median(sample[random.integers(0, sample.size, (RESAMPLES, sample.size))], axis=1)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(medians, [tail, 1.0 - tail])
    return Interval(float(low), float(high))


def rank_biserial(base: Sequence[float], candidate: Sequence[float]) -> float:
    """Effect size in [-1, 1]: how much likelier a launch of the candidate lies above one of the base than below."""
    first, second = _array(base), _array(candidate)
    return float(np.sign(second[:, None] - first[None, :]).mean())


def relative_spread(values: Sequence[float]) -> float | None:
    """Standard deviation over median, the noise between launches; ``None`` below two values or at a median of 0."""
    sample = _array(values)
    centre = float(np.median(sample))
    if sample.size < 2 or centre == 0:
        return None
    return float(sample.std(ddof=1)) / abs(centre)


@cache
def _critical_shifts(base_n: int, candidate_n: int, alpha: float) -> tuple[Floats, Floats] | None:
    """Per simulated pair of normal samples: the shift from which the rank test calls it, and the shift of its medians.

    A shift d turns exactly the pairs with difference below d, so the test's critical shift is an order statistic of
    the pairwise differences. ``None`` when samples of these sizes never reach ``alpha``.
    """
    ranks = 2 * np.arange(1, base_n + candidate_n + 1)
    ways = _rank_sums(ranks, base_n)[base_n * (base_n + 1) :: 2]
    called = int((2 * np.cumsum(ways) / ways.sum() < alpha).sum())  # U = 0 .. called - 1
    if called == 0:
        return None
    random = np.random.default_rng(SEED)
    first = random.standard_normal((RESAMPLES, base_n))
    second = random.standard_normal((RESAMPLES, candidate_n))
    differences = np.sort((second[:, :, None] - first[:, None, :]).reshape(RESAMPLES, -1), axis=1)
    return differences[:, -called], np.median(second, axis=1) - np.median(first, axis=1)


def minimum_detectable(
    base: Sequence[float], candidate: Sequence[float], *, alpha: float, min_effect: float, power: float = 0.8
) -> float | None:
    """The smallest true relative change that these launches would have called with probability ``power``.

    A change is called when the rank test gives p < alpha and the medians differ by ``min_effect``; both are simulated
    under a normal distribution with the pooled spread of the two sides. ``None`` when the samples are too small to
    ever reach ``alpha`` or to show a spread.
    """
    first, second = _array(base), _array(candidate)
    spreads = [relative_spread(base), relative_spread(candidate)]
    if smallest_p(first.size, second.size) >= alpha or any(s is None for s in spreads):
        return None
    degrees = [first.size - 1, second.size - 1]
    sigma = math.sqrt(sum(d * s * s for d, s in zip(degrees, spreads, strict=True) if s is not None) / sum(degrees))
    if first.size + second.size > EXACT_UP_TO:
        scale = sigma * math.sqrt(1.0 / first.size + 1.0 / second.size)
        quantiles = _NORMAL.inv_cdf(1 - alpha / 2) + _NORMAL.inv_cdf(power)
        by_size = min_effect + _NORMAL.inv_cdf(power) * scale * math.sqrt(math.pi / 2)
        return max(quantiles * scale / math.sqrt(RANK_EFFICIENCY), by_size)
    shifts = _critical_shifts(first.size, second.size, alpha)
    if shifts is None:
        return None
    by_test, of_medians = shifts
    return float(np.quantile(np.maximum(sigma * by_test, min_effect + sigma * of_medians), power))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment, in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for step, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - step) * p_values[index]))
        adjusted[index] = running
    return adjusted
