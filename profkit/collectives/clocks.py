"""Clocks of ranks against each other, from the ends of collectives: those are nearly simultaneous, starts are not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a rank's clock is ahead of the reference, and the uncertainty, both in ns."""

    offset: float
    spread: float
    n: int


def clock_offset(ends: Ints, reference_ends: Ints) -> Offset | None:
    """Median difference of matched collective ends; the spread is half the range from p10 to p90.

    ``None`` without a matched collective.
    """
    if not len(ends):
        return None
    # Differences before floats: absolute ns need 63 bits, their differences do not.
    low, middle, high = np.percentile((ends - reference_ends).astype(np.float64), [10, 50, 90])
    return Offset(float(middle), float(high - low) / 2.0, len(ends))
