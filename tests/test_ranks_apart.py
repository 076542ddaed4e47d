"""Files whose ranks are easily confused: replicas, stages, copies, traces without a name."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest

from profkit.analysis import RunAnalysis
from profkit.attribution import Attribution, attribute
from profkit.attribution.calls import plain_calls, read_calls
from profkit.attribution.checks_ranks import _alignment, group_findings
from profkit.attribution.groups import match_groups, world_of
from profkit.attribution.naming import group_name, rank_names, rank_number
from profkit.attribution.rank import analyse_rank
from profkit.attribution.selection import select_traces
from profkit.attribution.views import median_cycle
from profkit.collectives.matching import Alignment
from profkit.comparison.kernels import kernel_rows
from profkit.export.selection import choose
from profkit.parsers.trace import read_traces
from profkit.projection import Change, project
from profkit.projection.measured import MOST_CYCLES
from profkit.projection.measured import groups_of as replay_groups
from profkit.reports.attribution import terminal
from profkit.run import Fact, Facts
from profkit.simulation import Simulation, simulate
from profkit.simulation.files import write_trace
from profkit.trace import Trace, TraceInfo
from tests.attribution_modes import scenario
from tests.html_pages import html_of

ID = "1700000000.5"


@cache
def launch(seed: int, ranks: int = 2, cycles: int = 5) -> Simulation:
    return simulate(replace(scenario(recording={"cycles": cycles}), ranks=ranks, seed=seed))


def write(folder: Path, simulation: Simulation, names: Sequence[str], *, silent: bool = False) -> list[Path]:
    """One file per rank; ``silent``: without the header that tells rank and groups."""
    paths = [folder / f"{name}.trace.json.gz" for name in names]
    for rank, path in enumerate(paths):
        write_trace(simulation, rank, path, 1_790_000_000)
        if silent:
            document = json.loads(gzip.decompress(path.read_bytes()))
            document.pop("distributedInfo")
            path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return paths


def read(folder: Path) -> Attribution:
    return attribute(read_traces([folder], cache=False))


def kinds(found: Attribution) -> set[str]:
    return {f.kind for f in found.findings}


@pytest.mark.parametrize("part", ["DP", "PP"])
@pytest.mark.parametrize("silent", [False, True])
def test_replicas_and_stages_stay_apart(part: str, silent: bool, tmp_path: Path) -> None:
    alone = []
    for replica in (0, 1):
        names = [f"{ID}-TP-{rank}-{part}-{replica}-DECODE" for rank in (0, 1)]
        write(tmp_path / "both", launch(replica + 1), names, silent=silent)
        write(tmp_path / f"only{replica}", launch(replica + 1), names, silent=silent)
        alone.append(read(tmp_path / f"only{replica}"))
    found = read(tmp_path / "both")
    word = part.lower()
    assert [r.name for r in found.ranks] == [f"{word}{d} tp{t}" for t in (0, 1) for d in (0, 1)]
    assert [r.number for r in found.ranks] == [0, 1, 2, 3]
    assert [r.group for r in found.ranks] == [0, 1, 0, 1]
    assert "ranks_renumbered" in kinds(found)
    # Every rank is what it is without the other replica: times, transfer and wait of every call.
    for mine, info in zip(found.ranks, found.inputs, strict=True):
        place = mine.dp if part == "DP" else mine.pp
        assert place is not None
        other = next(r for r in alone[place].ranks if r.tp == mine.tp)
        assert (mine.wall_ns, mine.parts_ns, mine.cycles) == (other.wall_ns, other.parts_ns, other.cycles)
        assert info.tp == mine.tp

        def calls(of: Attribution, number: int) -> list[dict[str, object]]:
            return [{**row, "rank": 0} for row in of.calls.to_pylist() if row["rank"] == number]

        assert calls(found, mine.number) == calls(alone[place], other.number)
    assert len({f.sentence for f in found.findings if f.kind == "ranks_aligned"}) == 2
    straggler = [f.sentence for f in found.findings if f.kind == "straggler"]
    assert sorted(s.split(" arrives")[0] for s in straggler) == [f"{word}0 tp1", f"{word}1 tp1"]
    assert all(f"{word}{d} tp{t}" in terminal(found) for d in (0, 1) for t in (0, 1))
    # A cycle that is shown is one group's.
    assert {lane.name[:3] for lane in median_cycle(found)} == {f"{word}0"}
    for cycle in choose(found, "all"):
        assert len({found.ranks[place].group for place in cycle.members}) == 1
    assert len(choose(found, "all")) == 2 * len(choose(alone[0], "all"))
    assert all(name in html_of(RunAnalysis("x", "x", None, None, Facts({}), None, found)) for name in (f"{word}1 tp0",))


def test_a_group_that_could_not_be_aligned_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    for replica in (0, 1):
        write(tmp_path, launch(replica + 1), [f"{ID}-TP-{rank}-DP-{replica}-DECODE" for rank in (0, 1)])
    found = read(tmp_path)
    groups = {r.number: r.group for r in found.ranks}
    late = next(r.number for r in found.ranks if (r.dp, r.tp) == (0, 1))
    rows = found.cycles.to_pylist()
    for row in rows:  # a rank of the first group began a cycle earlier; the second group is not aligned
        row["aligned_cycle"] = row["cycle"] + (row["rank"] == late) if groups[row["rank"]] == 0 else None
    found = replace(found, cycles=pa.Table.from_pylist(rows, schema=found.cycles.schema))
    shown = [c for c in choose(found, "all") if groups[next(iter(c.members))] == 0 and len(c.members) == 2]
    assert shown
    for cycle in shown:
        first, second = (row["cycle"] for row in cycle.members.values())
        assert (cycle.number, second) == (first, first - 1)


def test_replicas_are_replayed_with_their_own_ops(tmp_path: Path) -> None:
    for replica in (0, 1):
        write(tmp_path, launch(replica + 1), [f"{ID}-TP-{rank}-DP-{replica}-DECODE" for rank in (0, 1)])
    found = read(tmp_path)
    assert found.cycle is not None
    run = RunAnalysis("x", "x", None, None, Facts({}), None, found)
    same = project(run, None, Change(compute_scale={"verify": 1.0})).candidate
    assert same.cycle_before.require() == pytest.approx(found.cycle.wall_us.mean / 1e3)
    assert same.cycle_after.require() == pytest.approx(same.cycle_before.require(), rel=1e-6)
    busy = sum(row.us_per_cycle for row in kernel_rows(found)) / 1e3
    assert busy == pytest.approx(same.cycle_before.require(), rel=0.02)


def test_long_recordings_are_replayed_with_the_same_cycles_on_all_ranks(tmp_path: Path) -> None:
    write(tmp_path, launch(1, cycles=60), [f"{ID}-TP-{rank}-DECODE" for rank in (0, 1)])
    found = read(tmp_path)
    rows = found.cycles.to_pylist()
    last = max(i for i, row in enumerate(rows) if row["rank"] == 1 and row["kind"] == "counted")
    rows[last]["kind"] = "partial"
    fewer = replace(found, cycles=pa.Table.from_pylist(rows, schema=found.cycles.schema))
    for one in (found, fewer):
        groups = replay_groups(one, 1)
        assert len(groups) == MOST_CYCLES
        assert all([c.rank for c in group.ranks] == [0, 1] for group in groups)
        assert all((c.meets >= 0).any() for group in groups for c in group.ranks)


def test_expert_parallel_ranks_are_tensor_parallel_ranks(tmp_path: Path) -> None:
    write(tmp_path, launch(1), [f"{ID}-TP-{rank}-EP-{rank}-DECODE" for rank in (0, 1)])
    found = read(tmp_path)
    assert [(r.number, r.group, r.ep, r.name) for r in found.ranks] == [(0, 0, 0, "tp0"), (1, 0, 1, "tp1")]
    assert found.ranks[0].transfer_is == "measured"


def test_no_coordinate_is_overlooked(tmp_path: Path) -> None:
    write(tmp_path, launch(1), [f"{ID}-TP-0-EP-0-DECODE", f"{ID}-TP-0-EP-1-DECODE"], silent=True)
    found = read(tmp_path)
    assert [r.name for r in found.ranks] == ["tp0 ep0", "tp0 ep1"]
    assert not any("there twice" in w for w in found.warnings)


def test_dp_attention_compares_within_a_dp_rank(tmp_path: Path) -> None:
    write(tmp_path, launch(1, ranks=4), [f"{ID}-TP-{rank}-DP-{rank // 2}-DECODE" for rank in range(4)])
    found = read(tmp_path)
    assert {r.group for r in found.ranks} == {0}
    assert {r.transfer_is for r in found.ranks} == {"upper_bound"}
    assert "transfer_bounded" in kinds(found)
    assert not {"straggler", "arrival_skew"} & kinds(found)
    duration = {(c["rank"], c["cycle"], c["phase"], c["kind"], c["ordinal"]): c for c in found.calls.to_pylist()}
    checked = 0
    for key, call in duration.items():
        if call["transfer_ns"] is not None:
            pair = key[0] ^ 1
            assert call["transfer_ns"] == min(call["duration_ns"], duration[pair, *key[1:]]["duration_ns"])
            checked += 1
    assert checked > 100


def test_copies_are_named_and_left_out(tmp_path: Path) -> None:
    first, second = write(tmp_path, launch(1), [f"{ID}-TP-{rank}-DECODE" for rank in (0, 1)])
    alone = read(tmp_path)
    # Names that sort before, after, and say less or as much as the original's.
    for name in ("0 copy.trace.json.gz", "zz.trace.json.gz", f"again-{ID}-TP-0-DECODE.trace.json.gz"):
        shutil.copy(first, tmp_path / name)
    (tmp_path / "below").mkdir()
    shutil.copy(second, tmp_path / "below" / second.name)
    found = read(tmp_path)
    assert len([w for w in found.warnings if "the same recording as" in w and "left out" in w]) == 4
    assert not any("profiles" in w for w in found.warnings)
    assert [r.number for r in found.ranks] == [0, 1]
    assert found.parts == alone.parts
    assert found.calls == alone.calls


def test_another_recording_of_a_rank_is_named(tmp_path: Path) -> None:
    write(tmp_path, launch(1), [f"{ID}-TP-{rank}-DECODE" for rank in (0, 1)])
    write(tmp_path / "again", launch(2), [f"{ID}-TP-0-DECODE"])
    found = read(tmp_path)
    assert len(found.ranks) == 2
    assert len([w for w in found.warnings if "rank 0 is there twice; this copy is left out" in w]) == 1


def test_ranks_of_one_merged_file_are_no_copies(tmp_path: Path) -> None:
    paths = write(tmp_path, launch(1), [f"{ID}-TP-{rank}-DECODE" for rank in (0, 1)])
    traces = read_traces(paths, cache=False)
    merged = [
        replace(t, info=replace(t.info, path="merged.json", content_key="one"), extra={"label": f"TP0{i}"})
        for i, t in enumerate(traces)
    ]
    assert select_traces(merged) == (tuple(merged), ())


@pytest.mark.parametrize("silent", [False, True])
def test_files_without_a_name(silent: bool, tmp_path: Path) -> None:
    write(tmp_path, launch(1), ["a", "b"], silent=silent)
    found = read(tmp_path)
    assert [r.rank for r in found.ranks] == ([None, None] if silent else [0, 1])
    assert [(r.number, r.name) for r in found.ranks] == [(0, "rank 0"), (1, "rank 1")]
    assert ("ranks_renumbered" in kinds(found)) == silent
    assert {r.transfer_is for r in found.ranks} == {"upper_bound" if silent else "measured"}
    # A trace without a rank can be replayed all the same.
    (one,) = [RunAnalysis("x", "x", None, None, Facts({}), None, read_one) for read_one in [read_alone(tmp_path / "a")]]
    assert project(one, None, Change(compute_scale={"verify": 2.0})).candidate.cycle_after.value is not None


def read_alone(path: Path) -> Attribution:
    return attribute(read_traces([path.with_suffix(".trace.json.gz")], cache=False))


def test_a_rank_that_is_cut_off_and_one_that_began_late(tmp_path: Path) -> None:
    names = [f"{ID}-TP-{rank}-DECODE" for rank in range(3)]
    simulation = simulate(replace(scenario(recording={"cycles": 6, "start_skew_cycles": (0, 0, 2)}), ranks=3))
    paths = write(tmp_path, simulation, names)
    whole = read(tmp_path)
    data = gzip.compress(gzip.decompress(paths[1].read_bytes()))
    paths[1].write_bytes(data[: len(data) * 7 // 10])
    found = read(tmp_path)
    (counts,) = [f.sentence for f in found.findings if f.kind == "cycle_counts_differ"]
    assert "rank 0:" in counts
    assert {"trace_truncated", "ranks_aligned"} <= kinds(found)
    assert found.ranks[0] == whole.ranks[0]
    assert found.ranks[2] == whole.ranks[2]
    assert 0 < found.ranks[1].cycles < whole.ranks[1].cycles
    # Calls that all three have are compared as before; the others are not.
    before = {(c["rank"], c["cycle"], c["phase"], c["kind"], c["ordinal"]): c for c in whole.calls.to_pylist()}
    known = 0
    for call in found.calls.to_pylist():
        same = before.get((call["rank"], call["cycle"], call["phase"], call["kind"], call["ordinal"]))
        if call["transfer_ns"] is not None and call["rank"] != 1:
            assert same is not None
            assert (call["transfer_ns"], call["wait_ns"]) == (same["transfer_ns"], same["wait_ns"])
            known += 1
    assert known > 50


def info(rank: int | None = None, tp: int | None = None, dp: int | None = None) -> TraceInfo:
    return TraceInfo(path="x", kind="gpu", rank=rank, tp=tp, dp=dp)


def test_names_are_never_the_same() -> None:
    infos = [info(tp=0, rank=0), info(tp=0, rank=0), info(), info(rank=3)]
    names = rank_names(infos)
    assert len(set(names)) == 4
    assert [rank_number(infos, i) for i in range(4)] == [0, 1, 2, 3]
    assert group_name(infos, (0, 1)) == ""
    assert group_name([info(dp=0, tp=0), info(dp=1, tp=0)], (1,)) == " of dp1"


def test_a_narrow_alignment_is_said() -> None:
    ranks = [analyse_rank(t) for t in read_traces_of(launch(1))]
    calls = [read_calls(t, r, Facts({})) for t, r in zip(read_traces_of(launch(1)), ranks, strict=True)]
    (group,) = match_groups(
        [r.info for r in ranks], [plain_calls(r, c) for r, c in zip(ranks, calls, strict=True)], Facts({})
    )
    assert not [f for f in group_findings(ranks, [group]) if f.kind == "alignment_narrow"]
    narrow = Alignment(0, "spread", 2000.0, 8000.0)
    unsure = replace(group, matched=replace(group.matched, alignment=[group.matched.alignment[0], narrow]))
    (said,) = [f for f in group_findings(ranks, [unsure]) if f.kind == "alignment_narrow"]
    assert said.sentence.startswith("Cycles of rank 1 fit")
    assert "4.0 times worse" in said.sentence
    # What the clock decided by a hair is not what is said of the others.
    clock = replace(narrow, how="clock", next_spread_ns=2400.0)
    both = replace(
        group, ranks=(0, 1, 1), matched=replace(group.matched, alignment=[Alignment(0, "reference"), narrow, clock])
    )
    (said,) = [f for f in _alignment(ranks, both) if f.kind == "alignment_narrow"]
    assert "4.0 times worse" in said.sentence
    decided = replace(
        group, matched=replace(group.matched, alignment=[group.matched.alignment[0], replace(narrow, how="clock")])
    )
    assert not [f for f in group_findings(ranks, [decided]) if f.kind == "alignment_narrow"]


def read_traces_of(simulation: Simulation) -> tuple[Trace, ...]:
    with TemporaryDirectory() as folder:
        return read_traces(write(Path(folder), simulation, [f"{ID}-TP-{r}-DECODE" for r in (0, 1)]), cache=False)


def header(world: object, **more: object) -> TraceInfo:
    return replace(info(rank=0, tp=0), distributed={"rank": 0, "world_size": world, **more})


@pytest.mark.parametrize(
    ("infos", "facts", "world"),
    [
        ([info(0, 0), info(1, 1)], {}, None),
        ([info(0, 0), info(1, 1)], {"parallel.tp": 2}, 2),
        ([info(0, 0), info(1, 1)], {"parallel.tp": 8}, 8),
        ([info(0, 0), info(1, 1)], {"parallel.tp": 1}, None),
        ([header(8)], {}, 8),
        # A world of several stages, or of the replicas of another engine, is larger than a group.
        ([header(8)], {"parallel.pp": 2}, 4),
        ([header(8)], {"parallel.tp": 4}, 4),
        ([header(8)], {"parallel.pp": 3}, None),
        ([header(8, pg_config=[{"pg_desc": "tp:device", "ranks": [0, 1]}])], {"parallel.tp": 4}, 2),
        (
            [header(8, pg_config=[{"pg_desc": "undefined", "ranks": [0, 1]}, 7, {"pg_desc": "tp:x", "ranks": None}])],
            {},
            8,
        ),
        ([header(8), header(4)], {}, None),
        ([replace(info(), distributed={"world_size": "x"})], {}, None),
        ([header([8]), header([8])], {}, None),
    ],
)
def test_how_many_ranks_a_group_has(infos: list[TraceInfo], facts: dict[str, int], world: int | None) -> None:
    known = Facts({key: Fact(value, "test") for key, value in facts.items()})
    assert world_of(infos, range(len(infos)), known) == world
