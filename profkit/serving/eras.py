"""What `accept rate` means in a log: three definitions over the releases, told apart by the numbers themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from profkit.rules import load_rules

Era: TypeAlias = Literal["A", "B", "C"]
Floats: TypeAlias = npt.NDArray[np.float64]

# Lines of a server from which its era is decided: the first so many that print an accept rate.
EVIDENCE_LINES: Final = 2000
_HALF_DIGIT: Final = 0.005 + 1e-9  # both figures are printed with two decimals
_AGREE: Final = 0.95
_MOST_DRAFTS: Final = 512


@dataclass(frozen=True, slots=True)
class EraDecision:
    """``era`` is ``None`` when the data fit several definitions; ``num_draft_tokens`` as argued or as found."""

    era: Era | None
    num_draft_tokens: int | None


@dataclass(slots=True)
class EraEvidence:
    """Pairs of accept length and rate of one server, in line order."""

    server: Mapping[str, Any]
    _lengths: list[Floats] = field(default_factory=list)
    _rates: list[Floats] = field(default_factory=list)
    count: int = 0
    decision: EraDecision | None = None

    def add(self, lengths: Floats, rates: Floats) -> None:
        """More lines; beyond :data:`EVIDENCE_LINES` they change nothing."""
        wanted = EVIDENCE_LINES - self.count
        if wanted <= 0:
            return
        rows = np.flatnonzero(~(np.isnan(lengths) | np.isnan(rates)))[:wanted]
        lengths, rates = lengths[rows], rates[rows]
        self.count += len(lengths)
        self._lengths.append(lengths)
        self._rates.append(rates)

    def decide(self) -> EraDecision:
        """The decision from the lines so far; it is made once."""
        if self.decision is None:
            empty: Floats = np.empty(0)
            lengths = np.concatenate([empty, *self._lengths])
            rates = np.concatenate([empty, *self._rates])
            self.decision = decide_era(lengths, rates, self.server)
        return self.decision


def decide_era(lengths: Floats, rates: Floats, server: Mapping[str, Any]) -> EraDecision:
    """Which definition fits accept lengths and rates within rounding, on at least 95 % of the lines.

    Without arguments, lines that fit none get the definition of their release, if it has only one.
    ``server`` may hold ``num_steps``, ``num_draft_tokens``, ``version_low`` and ``version_high``; where several
    definitions fit the numbers, the releases decide, and where those do not, the era is ``None``.
    """
    draft, steps = server.get("num_draft_tokens"), server.get("num_steps")
    if not len(lengths):
        return EraDecision(None, draft)
    if draft:
        fitting: dict[Era, int] = {}
        if steps and _fits(lengths, rates, steps + 1):
            fitting["A"] = draft
        if _fits(lengths, rates, draft):
            fitting["B"] = draft
        if draft > 1 and _fits(lengths - 1.0, rates, draft - 1):
            fitting["C"] = draft
    else:
        whole, drafts = _divisor(lengths, rates), _divisor(lengths - 1.0, rates)
        fitting = {} if whole is None else {"A": whole, "B": whole}
        if drafts is not None:
            fitting["C"] = drafts + 1
    if not fitting and not draft:
        # Lines of several configurations fit no single divisor; the release may still have only one definition.
        only = _eras_of(server)
        return EraDecision(only.pop() if len(only) == 1 else None, None)
    possible = {era: n for era, n in fitting.items() if era in _eras_of(server)} if len(fitting) > 1 else fitting
    if len(possible) == 1:
        era, found = next(iter(possible.items()))
        # With the first definition the divisor is the number of steps, which says nothing of a tree's drafts.
        return EraDecision(era, draft or (found if era != "A" else None))
    return EraDecision(None, draft)


def _fits(gained: Floats, rates: Floats, divisor: float) -> bool:
    slack = _HALF_DIGIT / divisor + _HALF_DIGIT
    return bool(np.mean(np.abs(gained / divisor - rates) <= slack) >= _AGREE)


def _divisor(gained: Floats, rates: Floats) -> int | None:
    """The one integer that divides all gained tokens to the printed rates, or ``None`` if none or several do."""
    usable = (rates > 0) & (gained > 0)
    if not usable.any():
        return None
    guess = float(np.median(gained[usable] / rates[usable]))
    # Small rates carry two digits only: try every integer that their rounding leaves open.
    spread = max(1.0, guess * _HALF_DIGIT / float(np.max(rates[usable])))
    low, high = max(1, int(guess - spread)), min(_MOST_DRAFTS, int(guess + spread) + 1)
    fitting = [n for n in range(low, high + 1) if _fits(gained, rates, n)]
    return fitting[0] if len(fitting) == 1 else None


def _eras_of(server: Mapping[str, Any]) -> set[Era]:
    order, spans = _spans()
    low, high = server.get("version_low"), server.get("version_high")
    first, last = order.get(str(low), 0), order.get(str(high), len(order) - 1)
    return {era for era, (start, end) in spans.items() if first <= end and last >= start}


@cache
def _spans() -> tuple[dict[str, int], dict[Era, tuple[int, int]]]:
    order = {release: n for n, release in enumerate(load_rules("server_args")["releases"])}
    spans = {
        rule["name"]: (order[rule["first"]], order[rule["last"]] if "last" in rule else len(order))
        for rule in load_rules("dialects")["accept_rate_era"]
    }
    return order, spans
