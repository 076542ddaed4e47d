"""A number that knows its unit, its kind, its range and where it came from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["measured", "derived", "modelled", "reported", "unknown"]
RangeKind: TypeAlias = Literal["ci95", "p10_p90", "model"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure as reports print it: value, unit, kind, range, sample size and source.

    ``value`` is ``None`` when unknown, never 0; then ``kind`` is ``unknown`` and ``source``
    says which input is missing. ``low`` and ``high`` bound it in the sense of ``range``.

    Raises:
        ValueError: a value that is not finite, or an unknown value that carries a number.
    """

    value: float | None
    unit: str
    kind: Kind
    source: str
    low: float | None = None
    high: float | None = None
    range: RangeKind | None = None
    n: int | None = None

    def __post_init__(self) -> None:
        for number in (self.value, self.low, self.high):
            if number is not None and not math.isfinite(number):
                raise ValueError(f"a quantity must be finite or None, not {number} ({self.source})")
        if (self.value is None) != (self.kind == "unknown"):
            raise ValueError(f"unknown means no value, and no value means unknown ({self.source})")
        if (self.low is None) != (self.high is None):
            raise ValueError(f"a range has both ends ({self.source})")

    @classmethod
    def unknown(cls, unit: str, why: str) -> Quantity:
        """An abstention: no value, and ``why`` names what is missing."""
        return cls(None, unit, "unknown", why)

    def require(self) -> float:
        """The value, or ``ValueError`` when it is unknown."""
        if self.value is None:
            raise ValueError(f"unknown: {self.source}")
        return self.value

    def to_json(self) -> dict[str, object]:
        """The quantity object of the JSON contracts."""
        return {
            "value": self.value,
            "unit": self.unit,
            "kind": self.kind,
            "low": self.low,
            "high": self.high,
            "range": self.range,
            "n": self.n,
            "source": self.source,
        }
