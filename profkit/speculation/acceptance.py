"""Accept length: how many tokens a request gains per cycle, the bonus token counted.

Symbols: g drafted tokens in a chain, a_i the acceptance of draft i given that those before it were accepted
(conditional), r_i = a_1 ... a_i the acceptance of draft i at all (unconditional), E the accept length.
"""

from __future__ import annotations

from collections.abc import Sequence

from profkit.quantity import Quantity


def _check_probabilities(rates: Sequence[float]) -> None:
    if any(not 0.0 <= rate <= 1.0 for rate in rates):
        raise ValueError("an acceptance rate lies between 0 and 1")


def from_conditional(rates: Sequence[float]) -> float:
    """E = 1 + sum over i of a_1 ... a_i. Raises ``ValueError`` for a rate outside [0, 1]."""
    _check_probabilities(rates)
    total, reached = 1.0, 1.0
    for rate in rates:
        reached *= rate
        total += reached
    return total


def from_unconditional(rates: Sequence[float]) -> float:
    """E = 1 + sum of r_i. Raises ``ValueError`` for a rate outside [0, 1]."""
    _check_probabilities(rates)
    return 1.0 + sum(rates)


def from_first(rates: Sequence[float], drafts: int) -> Quantity:
    """The accept length of ``drafts`` drafts of which the first ones have the unconditional acceptance ``rates``.

    Exact when all are given. A later draft is never accepted more often than the last given one, which bounds the rest;
    the value is that of the last conditional acceptance going on. Raises ``ValueError`` for no rate or one outside
    [0, 1].
    """
    if not rates:
        raise ValueError("at least one rate is needed")
    known = from_unconditional(rates[:drafts])
    missing = drafts - len(rates)
    if missing <= 0:
        return Quantity(known, "tokens", "modelled", "1 + sum of the given acceptance per position")
    last, before = rates[-1], rates[-2] if len(rates) > 1 else 1.0
    rest = last * (from_constant(last / before, missing) - 1.0) if before else 0.0
    high = known + missing * last
    text = f"given acceptance of {len(rates)} of {drafts} drafts; range: none of the others, or all as the last given"
    return Quantity(min(known + rest, high), "tokens", "modelled", text, known, high, "model")


def from_constant(rate: float, drafts: int) -> float:
    """E = (1 - a^(g+1)) / (1 - a) for the same conditional acceptance at every position (Leviathan et al.,
    2211.17192)."""
    return from_conditional([rate] * drafts)


def constant_rate(accept_len: float, drafts: int) -> float | None:
    """The constant conditional acceptance that gives ``accept_len``; ``None`` outside [1, drafts + 1]."""
    if drafts < 1 or not 1.0 <= accept_len <= drafts + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if from_constant(middle, drafts) < accept_len:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def at_other_depth(
    accept_len: float, drafts: int, new_drafts: int, per_position: Sequence[float] | None = None
) -> Quantity:
    """The accept length of a chain cut or extended to ``new_drafts`` drafts.

    With the unconditional acceptance ``per_position`` of at least ``new_drafts`` positions the answer is exact.
    Without, only the mean is known: r_i never rises with i and adds up to E - 1, which bounds every depth; the value
    between the bounds is that of a constant conditional acceptance.

    Abstains when the accept length does not fit the number of drafts (a tree, or a mixture of depths).
    """
    source = f"accept length {accept_len:.3g} of {drafts} drafts"
    if new_drafts < 0 or drafts < 1 or not 1.0 <= accept_len <= drafts + 1:
        return Quantity.unknown("tokens", f"{source} is not a chain's")
    if per_position is not None and len(per_position) >= new_drafts:
        value = from_unconditional(per_position[:new_drafts])
        return Quantity(value, "tokens", "derived", "1 + sum of the measured acceptance per position")
    if new_drafts == drafts:
        return Quantity(accept_len, "tokens", "derived", source, accept_len, accept_len, "model")
    gained = accept_len - 1.0
    if new_drafts < drafts:
        low = 1.0 + gained * new_drafts / drafts  # every position alike
        high = 1.0 + min(gained, float(new_drafts))  # the first positions certain
    else:
        low = accept_len  # nothing more is ever accepted
        high = accept_len + gained / drafts * (new_drafts - drafts)  # the rest as good as the mean
    rate = constant_rate(accept_len, drafts)
    assert rate is not None
    low = min(low, high)  # equal bounds may differ in their last bit
    value = min(max(from_constant(rate, new_drafts), low), high)
    return Quantity(
        value,
        "tokens",
        "modelled",
        f"constant acceptance {rate:.3g} per draft, from {source}; range: any acceptance that never rises with depth",
        low,
        high,
        "model",
    )
