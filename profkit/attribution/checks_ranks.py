"""Findings about several ranks together: alignment, unequal ranks, stragglers, absent ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from profkit.attribution.checks import place
from profkit.attribution.cycles import PARTIAL
from profkit.attribution.groups import Group
from profkit.attribution.naming import called, group_name, numbered_by_rank, rank_names, rank_number
from profkit.attribution.rank import RankAnalysis
from profkit.collectives.matching import NARROW
from profkit.finding import Finding

STRAGGLER_SHARE: Final = 0.5
MOST_NAMED: Final = 8


def group_findings(ranks: Sequence[RankAnalysis], groups: Sequence[Group]) -> Iterator[Finding]:
    """Alignment, unequal ranks, stragglers, arrival skew, absent ranks."""
    yield from _numbering(ranks)
    for group in groups:
        yield from _absent(ranks, group)
        if len(group.ranks) < 2:
            continue
        yield from _alignment(ranks, group)
        if group.parties is None:  # else calls of ranks that did not meet would be compared
            yield from _straggler(ranks, group)


def _numbering(ranks: Sequence[RankAnalysis]) -> Iterator[Finding]:
    """What ranks go by where their own numbers do not tell them apart."""
    infos = [r.info for r in ranks]
    if len(ranks) < 2 or numbered_by_rank(infos):
        return
    named = any(i.rank is not None for i in infos)
    why = "Rank numbers repeat over replicas or stages" if named else "The traces do not say which ranks they are of"
    names = ", ".join(f"{n}: {name}" for n, name in enumerate(rank_names(infos)[:MOST_NAMED]))
    listed = f" ({names}{', ...' * (len(infos) > MOST_NAMED)})" if named else ""
    taken = "" if named else ", and are taken as ranks of one group"
    yield Finding(
        "ranks_renumbered",
        "info" if named else "warning",
        f"{why}{taken}: in tables they go by their place{listed}.",
        () if named else tuple(place(r) for r in ranks[:MOST_NAMED]),
    )


def _absent(ranks: Sequence[RankAnalysis], group: Group) -> Iterator[Finding]:
    """Ranks that should be there and are not: what the others show of a call is its transfer and a part of the wait."""
    here = len(group.ranks)
    whose = group_name([r.info for r in ranks], group.ranks)
    if group.world == here:
        if group.parties is not None:
            yield Finding(
                "transfer_bounded",
                "info",
                "Under DP attention calls are compared within a DP rank, since some of them span no more: transfer "
                "times are at most what is shown, waiting at least.",
            )
        return
    if group.world is None:
        if here > 1:
            yield Finding(
                "group_size_unknown",
                "warning",
                f"Nothing says whether these {here} ranks{whose} are all of their group: transfer times are at most "
                "what is shown, waiting at least.",
                tuple(place(ranks[i]) for i in group.ranks[:8]),
                {"present": here},
            )
        return
    means = (
        "transfer times are at most what is shown, waiting at least; both need the traces of all ranks"
        if here > 1
        else "transfer and waiting times need all of them"
    )
    yield Finding(
        "ranks_missing",
        "warning",
        f"{here} of {group.world} ranks{whose} {'is' if here == 1 else 'are'} here{_missing(ranks, group)}; {means}.",
        tuple(place(ranks[i]) for i in group.ranks[:8]),
        {"present": here, "world": group.world},
    )


def _missing(ranks: Sequence[RankAnalysis], group: Group) -> str:
    """The numbers that no rank has, where all at hand are known and numbered from 0."""
    infos = [ranks[i].info for i in group.ranks]
    tensor = all(i.tp is not None for i in infos)
    have = {i.tp if tensor else i.rank for i in infos}
    gone = [r for r in range(group.world or 0) if r not in have]
    if None in have or len(gone) + len(have) != group.world:
        return ""
    return f" (missing: {', '.join(map(str, gone[:8]))}{', ...' * (len(gone) > 8)})"


def _alignment(ranks: Sequence[RankAnalysis], group: Group) -> Iterator[Finding]:
    matched = group.matched
    infos = [r.info for r in ranks]
    numbers = [called(infos, i) for i in group.ranks]
    whose = group_name(infos, group.ranks)
    unclear = [n for n, a in zip(numbers, matched.alignment, strict=True) if a.shift is None]
    if unclear:
        yield Finding(
            "alignment_ambiguous",
            "warning",
            f"Cycles of {', '.join(unclear)} cannot be matched to the other ranks' with certainty: no "
            "transfer and waiting times are given.",
            tuple(place(ranks[i]) for i in group.ranks),
        )
    else:
        moved = [(n, a.shift) for n, a in zip(numbers, matched.alignment, strict=True) if a.shift]
        shifts = ", ".join(f"{n}: {s:+d}" for n, s in moved)
        worst = max((a.spread_ns or 0.0) for a in matched.alignment)
        margin = min((a.margin for a in matched.alignment if a.margin is not None), default=None)
        clock = any(a.how == "clock" for a in matched.alignment)
        means = "with the help of the host clock" if clock else "by their ends"
        yield Finding(
            "ranks_aligned",
            "info",
            f"Cycles of {len(numbers)} ranks{whose} matched through their collectives, {means} "
            f"({shifts or 'no shift'}).",
            (),
            {"worst_spread_us": worst / 1000.0, "next_shift_margin": margin, "calls_matched": matched.calls},
        )
        narrow = {
            n: a.margin
            for n, a in zip(numbers, matched.alignment, strict=True)
            if a.how == "spread" and a.margin is not None and a.margin < NARROW
        }
        if narrow:
            closest = min(narrow.values())
            yield Finding(
                "alignment_narrow",
                "warning",
                f"Cycles of {', '.join(narrow)} fit the other ranks' almost as well a cycle or more apart (the next "
                f"best fit is {closest:.1f} times worse): transfer and waiting may be of calls that did not meet. "
                "Longer recordings decide it.",
                tuple(place(ranks[i]) for i in group.ranks),
                {"next_shift_margin": closest},
            )
    if len(matched.unequal):
        yield Finding(
            "collectives_unequal",
            "warning",
            f"In {len(matched.unequal)} cycles the numbers of collectives of the ranks{whose} differ: these cycles are "
            "not matched.",
            tuple(place(ranks[i]) for i in group.ranks),
            {"cycles": len(matched.unequal)},
        )
    counts = {len(ranks[i].cycles) for i in group.ranks}
    if len(counts) > 1:
        each = ", ".join(f"{n}: {len(ranks[i].cycles)}" for n, i in zip(numbers, group.ranks, strict=True))
        yield Finding("cycle_counts_differ", "info", f"The ranks{whose} recorded different numbers of cycles ({each}).")


def _straggler(ranks: Sequence[RankAnalysis], group: Group) -> Iterator[Finding]:
    matched = group.matched
    if not matched.calls:
        return
    spread = max((o.spread for o in matched.offset if o is not None), default=0.0)
    infos = [r.info for r in ranks]
    numbers = [rank_number(infos, i) for i in group.ranks]
    whose = group_name(infos, group.ranks)
    skew = matched.arrival_skew
    figures: dict[str, float | int | None] = {
        "arrival_skew_us": None if skew is None else skew / 1000.0,
        "uncertainty_us": spread / 1000.0,
        "calls": matched.calls,
    }
    waits = [w[w >= 0] for w in matched.wait]
    mean = float(np.concatenate(waits).mean())
    last = int(np.argmax(matched.last_share))
    share = matched.last_share[last]
    # A rank that is not here may come later still.
    among = "" if group.transfer_is == "measured" else " of the ranks that are here"
    others = [float(w.mean()) for r, w in enumerate(waits) if r != last and len(w)]
    # An even race is won by each rank equally often: one that is last in most calls is slow, not unlucky.
    if share > max(STRAGGLER_SHARE, 1.5 / len(numbers)) and others and min(others) > 500.0:
        lost = np.mean(others) * matched.calls / max(_cycles_of(ranks, group), 1)
        # A lag that costs the others a fraction of a percent is worth knowing, not worth hunting.
        severe = lost > 0.02 * max(_typical_wall(ranks, group), 1.0)
        yield Finding(
            "straggler",
            "warning" if severe else "info",
            f"{_capital(called(infos, group.ranks[last]))} arrives last{among} in {share:.0%} of the collectives; the "
            f"others wait {np.mean(others) / 1000.0:.1f} us per call for it.",
            (place(ranks[group.ranks[last]]),),
            {"rank": numbers[last], "share": share, "wait_us": float(np.mean(others)) / 1000.0, **figures},
        )
    elif skew is not None and skew > spread:
        yield Finding(
            "arrival_skew",
            "info",
            f"Ranks{whose} arrive at collectives {skew / 1000.0:.1f} us apart (median; clocks are known to "
            f"{spread / 1000.0:.1f} us); no rank is always the last.",
            (),
            {"mean_wait_us": mean / 1000.0, **figures},
        )


def _capital(text: str) -> str:
    """``rank 3`` begins a sentence with a capital letter, coordinates are left alone."""
    return text.capitalize() if text.startswith("rank") else text


def _cycles_of(ranks: Sequence[RankAnalysis], group: Group) -> int:
    return min(int((np.array(ranks[i].cycles.kind) != PARTIAL).sum()) for i in group.ranks)


def _typical_wall(ranks: Sequence[RankAnalysis], group: Group) -> float:
    members = [ranks[i].cycles for i in group.ranks]
    walls = np.concatenate([(c.end - c.start)[c.counted()] for c in members])
    return float(np.median(walls)) if len(walls) else 0.0
