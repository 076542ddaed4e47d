"""How often the primary verdict is right, by simulation with fixed seeds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from profkit.comparison.launch import Launch
from profkit.comparison.metrics import Measurement
from profkit.comparison.result import Verdict
from profkit.comparison.verdict import compare

TRIALS = 400


def launches(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[Launch]:
    return [
        Launch(f"r{i}", (Measurement("throughput", float(v), "tok/s", 1, 40),), {"gpu.name": "x"})
        for i, v in enumerate(values)
    ]


def verdicts(change: float, noise: float, n: int, seed: int) -> Counter[Verdict]:
    random = np.random.default_rng(seed)
    found: Counter[Verdict] = Counter()
    for _ in range(TRIALS):
        base = 60 * (1 + noise * random.standard_normal(n))
        candidate = 60 * (1 + change) * (1 + noise * random.standard_normal(n))
        found[compare(launches(base), launches(candidate)).verdict] += 1
    return found


@pytest.mark.parametrize("noise", [0.01, 0.02, 0.05, 0.10])
@pytest.mark.parametrize("n", [4, 6])
def test_false_alarms(noise: float, n: int) -> None:
    found = verdicts(0.0, noise, n, seed=round(1000 * noise) + n)
    assert (found["better"] + found["worse"]) / TRIALS <= 0.05
    if noise <= 0.02:
        assert found["no_change"] / TRIALS >= 0.9


def test_detection_of_five_percent_at_two_percent_noise() -> None:
    worse = verdicts(-0.05, 0.02, 6, seed=1)
    assert worse["worse"] / TRIALS >= 0.85
    assert worse["better"] == 0
    assert verdicts(+0.05, 0.02, 6, seed=2)["better"] / TRIALS >= 0.85


def test_noise_too_large_to_call_equal_is_said() -> None:
    found = verdicts(0.0, 0.15, 6, seed=5)
    assert found["no_change"] / TRIALS <= 0.1
    assert found["cannot_say"] / TRIALS >= 0.85


@pytest.mark.parametrize("n", [1, 2, 3])
def test_below_four_launches_there_is_no_verdict(n: int) -> None:
    assert set(verdicts(-0.5, 0.001, n, seed=n)) == {"cannot_say"}
