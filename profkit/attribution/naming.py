"""What ranks are called: a number that tells them apart in tables, a name for a person."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.trace import TraceInfo


def numbered_by_rank(infos: Sequence[TraceInfo]) -> bool:
    """Whether every trace says its rank and no two say the same: replicas and pipeline stages number theirs anew."""
    numbers = [i.rank for i in infos]
    return None not in numbers and len(set(numbers)) == len(numbers)


def rank_number(infos: Sequence[TraceInfo], index: int) -> int:
    """The number a rank goes by in results: its own if all are known and distinct, else its place in the inputs."""
    own = infos[index].rank
    return own if own is not None and numbered_by_rank(infos) else index


def _coordinates(info: TraceInfo, *keys: str) -> str:
    return " ".join(f"{k}{getattr(info, k)}" for k in keys if getattr(info, k) is not None)


def rank_names(infos: Sequence[TraceInfo]) -> list[str]:
    """A name for every rank, no two alike: its coordinates, else ``rank`` and its number."""
    for keys in (("dp", "pp", "tp"), ("dp", "pp", "tp", "ep")):
        names = [_coordinates(info, *keys) or f"rank {rank_number(infos, place)}" for place, info in enumerate(infos)]
        if len(set(names)) == len(names):
            return names
    return [name if names.count(name) == 1 else f"{name} #{place}" for place, name in enumerate(names)]


def called(infos: Sequence[TraceInfo], index: int) -> str:
    """How a sentence calls a rank: ``rank 3``, or its coordinates where numbers repeat or are not known."""
    if numbered_by_rank(infos):
        return f"rank {infos[index].rank}"
    return rank_names(infos)[index]


def group_name(infos: Sequence[TraceInfo], members: Sequence[int]) -> str:
    """What tells a group of ranks from the others: its replica and stage (`` of dp1``); empty where it is the only."""
    if len(members) == len(infos):
        return ""
    common = [k for k in ("dp", "pp") if len({getattr(infos[i], k) for i in members}) == 1]
    shared = _coordinates(infos[members[0]], *common)
    return f" of {shared}" if shared else ""
