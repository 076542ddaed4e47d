"""Every number of draft tokens in turn: where one more draft stops paying."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from profkit.errors import UsageError
from profkit.projection.change import Change
from profkit.projection.project import Projector
from profkit.projection.result import Projection, bounds
from profkit.quantity import Quantity

# One draft and the bonus token: fewer rows are no speculation.
FEWEST = 2
# Beyond this, rows cost what nobody measured anywhere near.
MOST = 64


@dataclass(frozen=True, slots=True)
class DepthRow:
    """One number of verified rows (draft tokens) and what it would yield.

    ``gained`` tokens per request and cycle come with the row's last draft, expected; it pays when that is more than
    ``needed`` = E x dT / T of the row before: with E tokens in T, one more is worth its time when it comes at a better
    rate than the others. ``None`` in the first row and where a figure is unknown.
    """

    draft_tokens: int
    projection: Projection
    gained: float | None
    needed: float | None

    def to_json(self) -> dict[str, object]:
        """An entry of ``sweep`` in ``profkit.whatif/1``."""
        p = self.projection
        return {
            "draft_tokens": self.draft_tokens,
            "accept_len": p.accept_len_after,
            "cycle": p.candidate.cycle_after,
            "throughput": p.candidate.throughput_after,
            "break_even_accept_len": p.break_even_accept_len_after,
            "speculation_pays": p.pays,
            "last_draft_gains": self.gained,
            "last_draft_must_gain": self.needed,
        }


@dataclass(frozen=True, slots=True)
class DepthSweep:
    """All rows of a sweep. ``best`` has the highest expected throughput (among equals the fewest draft tokens),
    ``rivals`` are those whose range overlaps with its range; ``None`` where no throughput is known."""

    rows: tuple[DepthRow, ...]
    today: int | None
    best: int | None
    rivals: tuple[int, ...]

    def to_json(self) -> dict[str, object]:
        """The object ``sweep`` of ``profkit.whatif/1``."""
        return {"today": self.today, "best": self.best, "rivals": self.rivals, "rows": self.rows}


def required_gain(accept_len: float, cycle_ms: float, cost_ms: float) -> float:
    """Tokens per cycle that one more draft must bring to be worth its time: E x dT / T."""
    return accept_len * cost_ms / cycle_ms


def _step(before: Projection, after: Projection) -> tuple[float | None, float | None]:
    lengths = before.accept_len_after.value, after.accept_len_after.value
    cycles = before.candidate.cycle_after.value, after.candidate.cycle_after.value
    if lengths[0] is None or not cycles[0] or cycles[1] is None:
        return None, None
    gained = None if lengths[1] is None else lengths[1] - lengths[0]
    return gained, required_gain(lengths[0], cycles[0], cycles[1] - cycles[0])


def _best(rows: Sequence[DepthRow]) -> tuple[int | None, tuple[int, ...]]:
    known = [(r.draft_tokens, q) for r in rows if (q := r.projection.candidate.throughput_after).value is not None]
    if not known:
        return None, ()

    def merit(pair: tuple[int, Quantity]) -> tuple[float, int]:
        return pair[1].require(), -pair[0]

    best, top = max(known, key=merit)
    return best, tuple(n for n, q in known if n != best and bounds(q)[1] >= bounds(top)[0])


def check_sweep(change: Change, most: int) -> None:
    """Refuse a sweep that cannot be.

    Raises:
        UsageError: ``most`` is no number of draft tokens, or the change names one itself or an accept length.
    """
    if not FEWEST <= most <= MOST:
        raise UsageError(f"--sweep-depth {most}: give the most draft tokens to try, from {FEWEST} to {MOST}")
    if change.draft_tokens is not None or change.accept_len is not None:
        raise UsageError("--sweep-depth sets the draft tokens, and the accept length follows from them: give neither")


def sweep_depth(projector: Projector, change: Change, most: int) -> DepthSweep:
    """Project 2, 3 ... ``most`` draft tokens, each together with ``change``.

    Raises:
        UsageError: see :func:`check_sweep`.
    """
    check_sweep(change, most)
    changes = [replace(change, draft_tokens=rows) for rows in range(FEWEST, most + 1)]
    projector.prepare(changes)
    rows: list[DepthRow] = []
    for one in changes:
        found = projector.project(one, parts=False)
        gained, needed = _step(rows[-1].projection, found) if rows else (None, None)
        assert one.draft_tokens is not None
        rows.append(DepthRow(one.draft_tokens, found, gained, needed))
    best, rivals = _best(rows)
    today = projector.candidate.facts.integer("speculative.num_draft_tokens")
    return DepthSweep(tuple(rows), today, best, rivals)
