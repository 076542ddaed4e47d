"""Which ranks share collectives, how many there should be, and what matching the ranks at hand says about transfers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profkit.attribution.result import TransferIs
from profkit.collectives.matching import Calls, Matched, match
from profkit.run import Facts
from profkit.trace import TraceInfo


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks (indices into the inputs) whose collectives meet, and the result of matching them.

    ``world`` is how many ranks the group has when all are there, ``None`` where nothing says it. ``parties`` names
    for every member the smaller group within which its calls were compared (attention groups under DP attention).
    """

    ranks: tuple[int, ...]
    matched: Matched
    world: int | None = None
    parties: tuple[int, ...] | None = None

    @property
    def transfer_is(self) -> TransferIs | None:
        """What the shortest duration over the ranks is: the transfer, or no more than its upper bound.

        The rank that arrives last waits for nobody: only where all ranks of the group were compared is it among them.
        ``None`` where nothing was compared.
        """
        if not self.matched.calls:
            return None
        return "measured" if self.world == len(self.ranks) and self.parties is None else "upper_bound"

    def shared_shift(self, place: int) -> int | None:
        """What leads from a member's cycle ordinals to those shared by the group, which begin at 0 or later."""
        mine = self.matched.alignment[place].shift
        known = [a.shift for a in self.matched.alignment if a.shift is not None]
        return None if mine is None or len(known) < len(self.ranks) else mine - min(known)


def groups_of(infos: Sequence[TraceInfo]) -> list[tuple[int, ...]]:
    """Which ranks share collectives: pipeline stages never do; DP replicas only under DP attention.

    SGLang numbers tensor-parallel ranks through all DP ranks under DP attention, and anew in each replica without.
    Where a trace lists its process groups, ranks of different tensor-parallel groups are kept apart as well.
    """
    listed = [tensor_group(info) for info in infos]
    by_stage: dict[tuple[int | None, tuple[int, ...] | None], list[int]] = {}
    for i, info in enumerate(infos):
        by_stage.setdefault((info.pp, None if None in listed else listed[i]), []).append(i)
    result: list[tuple[int, ...]] = []
    for members in by_stage.values():
        tensor = [infos[i].tp for i in members]
        if len(set(tensor)) == len(tensor):
            result.append(tuple(members))
            continue
        by_replica: dict[int | None, list[int]] = {}
        for i in members:
            by_replica.setdefault(infos[i].dp, []).append(i)
        result.extend(tuple(m) for m in by_replica.values())
    return sorted(result)


def tensor_group(info: TraceInfo) -> tuple[int, ...] | None:
    """The ranks of the tensor-parallel group that the trace's header lists, ``None`` where it names none."""
    told: Any = (info.distributed or {}).get("pg_config")
    for one in told if isinstance(told, list) else ():
        members = one.get("ranks") if isinstance(one, Mapping) else None
        named = isinstance(members, list) and str(one.get("pg_desc", "")).split(":")[0] == "tp"
        if named and members and all(isinstance(m, int) for m in members):
            return tuple(members)
    return None


def world_of(infos: Sequence[TraceInfo], members: Sequence[int], facts: Facts) -> int | None:
    """How many ranks a group has when all are there: by the tensor-parallel group that the traces' headers list, the
    server's arguments, or the number of ranks in the headers.

    More ranks than that are no contradiction to argue with: then nothing says how many there are.
    """
    stages = facts.integer("parallel.pp") or len({i.pp for i in infos if i.pp is not None}) or 1
    listed = {tensor_group(infos[i]) for i in members}
    world = facts.integer("parallel.tp")
    if len(listed) == 1 and None not in listed:
        world = len(next(iter(listed)) or ())
    elif world is None:
        told = [(infos[i].distributed or {}).get("world_size") for i in members]
        size = told[0] if all(one == told[0] for one in told) else None
        if isinstance(size, int) and size > 0 and size % stages == 0:
            world = size // stages
    return world if world is not None and world >= len(members) else None


def _parties(infos: Sequence[TraceInfo], members: Sequence[int]) -> tuple[int, ...] | None:
    """Under DP attention some collectives span the ranks of one DP rank and some all of them, and a graph does not say
    which: comparing within a DP rank is right for the former and an upper bound for the latter. ``None``: compare all.
    """
    replicas = [infos[i].dp for i in members]
    sizes = {dp: replicas.count(dp) for dp in replicas}
    if len(sizes) < 2 or None in sizes or max(sizes.values()) < 2:
        return None
    order = {dp: place for place, dp in enumerate(dict.fromkeys(replicas))}
    return tuple(order[dp] for dp in replicas)


def _same_clock(infos: Sequence[TraceInfo]) -> bool:
    hosts = {i.host_name for i in infos}
    return len(hosts) == 1 and len({i.base_ns > 0 for i in infos}) == 1


def match_groups(infos: Sequence[TraceInfo], calls: Sequence[Calls], facts: Facts) -> list[Group]:
    """Match every group of ranks; ``calls`` are those of each rank."""
    result = []
    for members in groups_of(infos):
        parties = _parties(infos, members)
        matched = match(
            [calls[i] for i in members], same_clock=_same_clock([infos[i] for i in members]), parties=parties
        )
        result.append(Group(members, matched, world_of(infos, members, facts), parties))
    return result
