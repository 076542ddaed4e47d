"""What a cheaper part of the cycle is worth, as far as one division can tell.

Amdahl's law takes parts as serial. Where parts overlap, or a rank waits for another, the replay in
:mod:`profkit.projection` says more; this is its upper bound on one line, for both arms.
"""

from __future__ import annotations

import math


def shortened_cycle(cycle: float, share: float, factor: float) -> float:
    """T' = T - f T (1 - 1/s): the cycle when the part with ``share`` f of it gets ``factor`` s times faster.

    ``factor`` may be infinite: the part is free. Same unit in and out.

    Raises:
        ValueError: a share outside [0, 1], or a factor or cycle that is not positive.
    """
    if not 0.0 <= share <= 1.0 or not factor > 0.0 or not cycle > 0.0:
        raise ValueError("a share lies between 0 and 1, a cycle and a factor are positive")
    return cycle - share * cycle * (1.0 - (0.0 if math.isinf(factor) else 1.0 / factor))


def speedup_after(
    accept_len: float, cycle: float, share: float, step: float, base_share: float, factor: float
) -> float:
    """Throughput with speculation over without once a part of both arms is ``factor`` times faster: E B' / T'."""
    after = shortened_cycle(cycle, share, factor)
    if after <= 0.0:
        raise ValueError("nothing of the cycle is left")
    return accept_len * shortened_cycle(step, base_share, factor) / after
