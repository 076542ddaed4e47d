"""What a projection yields."""

from __future__ import annotations

from dataclasses import dataclass

from profkit.projection.change import Change
from profkit.quantity import Quantity


def bounds(quantity: Quantity) -> tuple[float, float]:
    """Both ends of a modelled range; the value twice where there is none."""
    if quantity.range != "model" or quantity.low is None or quantity.high is None:
        return quantity.require(), quantity.require()
    return quantity.low, quantity.high


@dataclass(frozen=True, slots=True)
class ArmProjection:
    """One arm before and after: throughput in tok/s per DP rank, cycle in ms."""

    throughput_before: Quantity
    throughput_after: Quantity
    cycle_before: Quantity
    cycle_after: Quantity

    @property
    def gain(self) -> float | None:
        """Relative change of throughput, ``None`` when unknown."""
        before, after = self.throughput_before.value, self.throughput_after.value
        return None if not before or after is None else after / before - 1.0


@dataclass(frozen=True, slots=True)
class Alone:
    """One part of a change with several, on its own: throughput of both arms in tok/s per DP rank."""

    part: str
    candidate_throughput: Quantity
    baseline_throughput: Quantity | None


@dataclass(frozen=True, slots=True)
class Projection:
    """The document ``profkit.whatif/1``."""

    change: Change
    candidate: ArmProjection
    baseline: ArmProjection | None
    accept_len_before: Quantity
    accept_len_after: Quantity
    break_even_accept_len_before: Quantity
    break_even_accept_len_after: Quantity
    assumptions: tuple[str, ...]
    alone: tuple[Alone, ...] = ()  # each part of the change by itself: gains do not add up

    @property
    def pays(self) -> bool | None:
        """Whether speculation beats the baseline after the change; ``None`` when unknown or when the ranges of both
        throughputs overlap."""
        if self.baseline is None:
            return None
        after, base = self.candidate.throughput_after, self.baseline.throughput_after
        if after.value is None or base.value is None:
            return None
        (slow, fast), (least, most) = bounds(after), bounds(base)
        if slow > most:
            return True
        return False if fast < least else None

    def to_json(self) -> dict[str, object]:
        """The document ``profkit.whatif/1``."""
        return {
            "schema": "profkit.whatif/1",
            "change": self.change,
            "candidate": self.candidate,
            "baseline": self.baseline,
            "accept_len_before": self.accept_len_before,
            "accept_len_after": self.accept_len_after,
            "break_even_accept_len_before": self.break_even_accept_len_before,
            "break_even_accept_len_after": self.break_even_accept_len_after,
            "alone": list(self.alone),
            "assumptions": list(self.assumptions),
        }
