"""A change to project: what would be different, everything else as measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from profkit.collectives.cost import Curve
from profkit.errors import UsageError
from profkit.words import Phase


@dataclass(frozen=True, slots=True)
class Change:
    """One hypothetical change; ``None`` leaves things as measured.

    ``allreduce_us``: transfer of every all-reduce of the target's forward and the draft, on both arms.
    ``allreduce_curve``: the same as a curve over the message size; needs message sizes. ``wait_us``: wait of those
    calls. ``accept_len``: tokens per request and cycle. ``draft_tokens``: verified rows per request. ``acceptance``:
    share of cycles in which the first, second ... draft is accepted, which makes the accept length of other draft
    tokens exact as far as they are given, and bounds it beyond. ``idle``: share of today's idle time that stays, 0 to
    1. ``compute_scale``: factor on compute per phase.
    """

    allreduce_us: float | None = None
    allreduce_curve: Curve | None = None
    wait_us: float | None = None
    accept_len: float | None = None
    draft_tokens: int | None = None
    acceptance: tuple[float, ...] | None = None
    idle: float | None = None
    compute_scale: Mapping[Phase, float] = field(default_factory=dict)

    def check(self, draft_tokens: int | None) -> None:
        """Refuse what cannot be; ``draft_tokens`` are the run's own.

        Raises:
            UsageError: a figure that is not finite, a negative time, an idle share outside [0, 1], an accept length
            below 1 or above the draft tokens.
        """
        numbers = (self.allreduce_us, self.wait_us, self.accept_len, self.idle, *self.compute_scale.values())
        if any(value is not None and not math.isfinite(value) for value in numbers):
            raise UsageError("every figure of a change must be a finite number")
        for name, value in (("all-reduce time", self.allreduce_us), ("wait", self.wait_us)):
            if value is not None and value < 0:
                raise UsageError(f"the {name} cannot be negative")
        if self.allreduce_us is not None and self.allreduce_curve is not None:
            raise UsageError("give either an all-reduce time or a curve")
        if self.idle is not None and not 0.0 <= self.idle <= 1.0:
            raise UsageError("--idle is the share of today's idle time that stays, between 0 and 1")
        if self.draft_tokens is not None and self.draft_tokens < 1:
            raise UsageError("at least one token is verified per request")
        if self.acceptance is not None:
            self._check_acceptance(self.acceptance)
        if any(scale < 0 for scale in self.compute_scale.values()):
            raise UsageError("a compute factor cannot be negative")
        if self.accept_len is not None:
            if self.accept_len < 1:
                raise UsageError("an accept length is at least 1: the bonus token counts")
            rows = self.draft_tokens or draft_tokens
            if rows is not None and self.accept_len > rows:
                raise UsageError(f"an accept length of {self.accept_len:g} needs more than {rows} draft tokens")

    def _check_acceptance(self, rates: tuple[float, ...]) -> None:
        if any(not 0.0 <= rate <= 1.0 for rate in rates) or list(rates) != sorted(rates, reverse=True):
            raise UsageError(
                "acceptance per position is the share of cycles in which each draft is accepted: between 0 and 1, and "
                "never rising, because a draft counts only when those before it were accepted"
            )
        if self.accept_len is not None:
            raise UsageError("give either an accept length or the acceptance per position")

    def alone(self) -> dict[str, Change]:
        """Each part of the change on its own, by name; empty when there is only one part."""
        nothing = Change()
        kept = {"draft_tokens": ("draft_tokens", "acceptance")}
        parts = {
            name: replace(nothing, **{key: getattr(self, key) for key in kept.get(name, (name,))})
            for name in self.__dataclass_fields__
            if getattr(self, name) != getattr(nothing, name)
            and not (name == "acceptance" and self.draft_tokens is not None)
        }
        return parts if len(parts) > 1 else {}

    @property
    def touches_cycle(self) -> bool:
        """Whether the change alters the time of a cycle (an accept length alone does not)."""
        return any(
            value is not None
            for value in (self.allreduce_us, self.allreduce_curve, self.wait_us, self.draft_tokens, self.idle)
        ) or bool(self.compute_scale)

    def to_json(self) -> dict[str, object]:
        """Only what changes."""
        found: dict[str, object] = {
            "allreduce_us": self.allreduce_us,
            "allreduce_curve": self.allreduce_curve.source if self.allreduce_curve else None,
            "wait_us": self.wait_us,
            "accept_len": self.accept_len,
            "draft_tokens": self.draft_tokens,
            "acceptance": list(self.acceptance) if self.acceptance is not None else None,
            "idle": self.idle,
            "compute_scale": dict(self.compute_scale) or None,
        }
        return {key: value for key, value in found.items() if value is not None}
