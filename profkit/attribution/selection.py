"""Which of a run's traces belong together: one profile, its decode stage, each rank once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from profkit.trace import Trace


def _coordinates(trace: Trace) -> tuple[int | None, ...]:
    info = trace.info
    return (info.rank, info.dp, info.pp, info.tp, info.ep)


def _without_copies(traces: Sequence[Trace], warnings: list[str]) -> list[Trace]:
    """The traces without those whose file holds the same bytes as another's; the name that says most is kept."""
    alike: dict[tuple[object, ...], list[Trace]] = {}
    for trace in traces:
        # Members of one archive, and ranks of one merged file, share the file's key.
        key: tuple[object, ...] = (
            trace.info.content_key or trace.info.path,
            trace.info.path.partition("!")[2],
            trace.extra.get("label"),
        )
        alike.setdefault(key, []).append(trace)
    kept: set[int] = set()
    for copies in alike.values():
        best = max(copies, key=_said)
        same = [t.info.path for t in copies if t.info.path != best.info.path]
        warnings.extend(f"{path}: the same recording as {best.info.path}; left out" for path in same)
        kept.update(id(t) for t in copies if t.info.path == best.info.path)
    return [t for t in traces if id(t) in kept]


def _said(trace: Trace) -> int:
    """How much a trace's name says."""
    info = trace.info
    return sum(part is not None for part in (*_coordinates(trace), info.profile_id, info.stage))


def _one_profile(traces: Sequence[Trace], warnings: list[str]) -> list[Trace]:
    """Keep the profile with the most ranks, among equals the latest."""
    profiles: dict[str, list[Trace]] = {}
    for trace in traces:
        profiles.setdefault(trace.info.profile_id or "", []).append(trace)
    if len(profiles) < 2:
        return list(traces)
    ranks = {key: len({_coordinates(t) for t in members}) for key, members in profiles.items()}
    best = max(profiles, key=lambda key: (ranks[key], key))
    alone = list(ranks.values()).count(ranks[best]) == 1
    why = "the one with the most ranks" if alone else "the latest of those with the most ranks"
    names = _profile_names(profiles)
    others = ", ".join(sorted(names[key] for key in profiles if key != best))
    warnings.append(
        f"the traces come from {len(profiles)} profiles; {names[best]} is used, {why}, not {others}: "
        "give the files of one profile to choose it"
    )
    return profiles[best]


def _profile_names(profiles: Mapping[str, Sequence[Trace]]) -> dict[str, str]:
    """What profiles are called: their time stamp, and their folder where each has its own."""
    folders = {key: {str(PurePath(t.info.path).parent) for t in members} for key, members in profiles.items()}
    single = {key: next(iter(found)) for key, found in folders.items() if len(found) == 1}
    apart = len(set(single.values())) == len(profiles)
    return {key: (key or "the unnamed one") + (f" in {single[key]}" if apart else "") for key in profiles}


def _traces(some: Sequence[Trace], stage: str) -> str:
    return f"{len(some)} {stage} trace{'s' * (len(some) != 1)}"


def select_traces(traces: Sequence[Trace]) -> tuple[tuple[Trace, ...], tuple[str, ...]]:
    """Choose the traces to attribute together; returns them and what was left out, in sentences.

    Prefill-stage files are left out where decode-stage files exist, captures of graphs always (their kernels did not
    run), copies of a file, profiles other than the one with the most ranks, and repeated ranks. Order is kept.
    """
    warnings: list[str] = []
    chosen = _without_copies(traces, warnings)
    if captures := [t for t in chosen if t.info.kind == "capture"]:
        warnings.append(f"{_traces(captures, 'graph-capture')} left out: kernels of a capture did not run")
        chosen = [t for t in chosen if t.info.kind != "capture"]
    if any(t.info.stage == "decode" for t in chosen) and (prefill := [t for t in chosen if t.info.stage == "prefill"]):
        warnings.append(f"{_traces(prefill, 'prefill-stage')} left out")
        chosen = [t for t in chosen if t.info.stage != "prefill"]
    chosen = _one_profile(chosen, warnings)
    seen: set[tuple[int | None, ...]] = set()
    unique: list[Trace] = []
    for trace in chosen:
        key = _coordinates(trace)
        if key in seen and any(part is not None for part in key):
            warnings.append(f"{trace.info.path}: rank {trace.info.rank} is there twice; this copy is left out")
            continue
        seen.add(key)
        unique.append(trace)
    return tuple(unique), tuple(warnings)
