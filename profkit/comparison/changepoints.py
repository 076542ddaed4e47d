"""Change points of a series: where its level moved for good, and only if it is long enough to say so.

Binary segmentation on ranks: for every cut that leaves three points on both sides the rank sum of the left part is
standardised as in the Mann-Whitney test; the largest is the candidate, and it counts when fewer than three in a
hundred shuffles of the series reach it. A single spike cannot do that, since it moves one rank only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from profkit.comparison.statistics import SEED, midranks

MIN_POINTS = 10
MIN_SEGMENT = 3
SHUFFLES = 1999


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """The level changed from ``before`` to ``after`` at ``index``, the first point of the new level."""

    index: int
    before: float
    after: float
    p: float


def _scores(ranks: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """|standardised rank sum| for each admissible cut; the last axis of ``ranks`` is the series."""
    n = ranks.shape[-1]
    cuts = np.arange(MIN_SEGMENT, n - MIN_SEGMENT + 1)
    sums = np.cumsum(ranks, axis=-1)[..., cuts - 1]
    centre = cuts * (n + 1) / 2
    scale = np.sqrt(cuts * (n - cuts) * (n + 1) / 12)
    scores: npt.NDArray[np.float64] = np.abs(sums - centre) / scale
    return scores


def _strongest(values: npt.NDArray[np.float64]) -> tuple[int, float]:
    """The best cut and its p from shuffling."""
    ranks = midranks(values)
    scores = _scores(ranks)
    cut = int(np.argmax(scores)) + MIN_SEGMENT
    random = np.random.default_rng(SEED)
    shuffled = random.permuted(np.tile(ranks, (SHUFFLES, 1)), axis=1)
    reached = int((_scores(shuffled).max(axis=-1) >= scores.max() - 1e-9).sum())
    return cut, (reached + 1) / (SHUFFLES + 1)


def change_points(
    values: Sequence[float], *, alpha: float = 0.03, min_effect: float = 0.03
) -> list[ChangePoint] | None:
    """Change points in order; ``None`` below :data:`MIN_POINTS` points, where none can be told from noise.

    ``min_effect`` is the smallest relative step between the medians of neighbouring segments.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.size < MIN_POINTS:
        return None
    cuts: list[tuple[int, float]] = []
    pending = [(0, series.size)]
    while pending:
        start, end = pending.pop()
        if end - start < 2 * MIN_SEGMENT or np.ptp(series[start:end]) == 0:
            continue
        cut, p = _strongest(series[start:end])
        if p < alpha:
            cuts.append((start + cut, p))
            pending += [(start, start + cut), (start + cut, end)]
    cuts.sort()
    borders = [0, *(c for c, _ in cuts), series.size]
    levels = [float(np.median(series[a:b])) for a, b in pairwise(borders)]
    return [
        ChangePoint(cut, before, after, p)
        for (cut, p), before, after in zip(cuts, levels, levels[1:], strict=False)
        if before != 0 and abs(after / before - 1) >= min_effect
    ]
