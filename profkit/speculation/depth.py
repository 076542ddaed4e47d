"""How many tokens to draft: more drafts gain tokens and cost time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profkit.speculation.acceptance import from_constant


@dataclass(frozen=True, slots=True)
class Depth:
    """One choice of verified rows (drafts + 1) and what it yields."""

    rows: int
    accept_len: float
    cycle_ms: float

    @property
    def throughput(self) -> float:
        """Tokens per second and request."""
        return 1000.0 * self.accept_len / self.cycle_ms


def sweep(cycle_ms: Sequence[float], rate: float) -> tuple[Depth, ...]:
    """Depths for ``cycle_ms[n - 1]``, the cycle with n verified rows, at a constant conditional acceptance ``rate``."""
    return tuple(Depth(n, from_constant(rate, n - 1), cycle) for n, cycle in enumerate(cycle_ms, 1))


def best(depths: Sequence[Depth]) -> Depth:
    """The depth with the highest throughput; among equals the fewest rows. ``ValueError`` when there is none."""
    return max(depths, key=lambda d: (d.throughput, -d.rows))


def worth_another(accept_len: float, cycle_ms: float, gained: float, cost_ms: float) -> bool:
    """Marginal rule: one more position pays only if its acceptance exceeds E x dT / T."""
    return gained > accept_len * cost_ms / cycle_ms
