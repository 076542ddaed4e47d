"""Recordings that end inside a cycle, or hold none: nothing cut is taken for whole, and all of it is shown."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from profkit.attribution import Attribution, attribute
from profkit.trace import Trace
from tests.attribution_modes import record, scenario
from tests.attribution_tables import trace


def between(one: Trace, first_ns: int, stop_ns: int) -> Trace:
    """The trace with only those GPU ops that start in the window, counted from its first op."""
    start = one.gpu_ops.column("start_ns").to_numpy()
    start = start - start.min()
    return replace(one, gpu_ops=one.gpu_ops.filter(pa.array((start >= first_ns) & (start < stop_ns))))


def span(one: Trace) -> int:
    """From the first GPU op's start to the last one's end, in ns."""
    ops = one.gpu_ops.to_pandas()
    return int((ops["start_ns"] + ops["duration_ns"]).max() - ops["start_ns"].min())


def wall(found: Attribution) -> int:
    assert found.window is not None
    return round(found.window.wall_us.mean * 1000)


@pytest.mark.parametrize("algorithm", ["EAGLE", "NONE"])
def test_a_forward_cut_in_its_middle_is_no_cycle(algorithm: str) -> None:
    serving = {} if algorithm == "EAGLE" else {"algorithm": None, "num_steps": 0, "num_draft_tokens": 0}
    traces, _ = record(scenario(serving))
    whole = attribute(traces[:1])
    assert whole.cycle is not None
    first = whole.cycles.to_pylist()[1]
    begin = int(first["start_ns"]) - int(pc.min(traces[0].gpu_ops.column("start_ns")).as_py())
    cut = between(traces[0], begin, begin + int(0.5 * (first["end_ns"] - first["start_ns"])))
    found = attribute([cut])
    assert found.cycle is None
    assert found.ranks[0].cycles == 0
    assert wall(found) == span(cut)
    assert [f.kind for f in found.findings if f.severity == "problem"] == ["no_cycles"]


def test_the_window_is_the_whole_recording_of_a_rank_not_the_mean_of_its_pieces() -> None:
    traces, _ = record(scenario())
    whole = attribute(traces[:1]).cycles.to_pylist()
    begin = int(pc.min(traces[0].gpu_ops.column("start_ns")).as_py())
    half = int(0.5 * (whole[1]["end_ns"] - whole[1]["start_ns"]))
    # The end of one cycle and the beginning of the next.
    cut = between(traces[0], whole[1]["start_ns"] - begin + half, whole[2]["start_ns"] - begin + half)
    found = attribute([cut])
    assert found.cycle is None
    assert found.cycles.num_rows == 2
    assert wall(found) == span(cut)
    assert found.window is not None
    assert found.window.count == 1
    assert sum(found.window.idle_causes_us.values()) == pytest.approx(found.window.headline_us["idle"])


def test_a_single_whole_step_still_counts() -> None:
    one = trace([("fwd_gemm", 100, 50, 10), ("fwd_attention", 160, 30, 12)], [("step[DECODE bs=2]", 5, 20)])
    found = attribute([one])
    assert found.cycle is not None
    assert (found.cycle.count, found.cycle.batch_size) == (1, 2)
    assert any(f.kind == "single_cycle" for f in found.findings)
    lost = one.launches.to_pylist()
    lost.append(lost[-1] | {"start_ns": 14, "correlation": 99})
    cut = replace(one, launches=pa.Table.from_pylist(lost, schema=one.launches.schema))
    assert attribute([cut]).cycle is None
    assert attribute([replace(one, info=replace(one.info, truncated=True))]).cycle is None


def test_a_lone_eager_forward_that_nothing_names_is_not_called_decode() -> None:
    kernels = [(n, 100 * i, 90, 10 + i) for i, n in enumerate(["sm90_gemm", "flash_fwd_kernel", "sm90_gemm"] * 4)]
    found = attribute([trace(kernels)])
    assert found.cycle is None
    assert found.window is not None
    assert found.window.parts_us["unlabelled"]["compute"] == pytest.approx(12 * 90 / 1000)
    # Unknown is not nothing: no phase of the headline was observed.
    assert found.window.headline_us["draft"] is None
    assert found.window.headline_us["verify_compute"] is None
    assert found.window.headline_us["other"] is None
    assert found.window.headline_us["allreduce"] == 0.0


def test_prefills_beside_pieces_of_cycles_are_not_called_only_prefills() -> None:
    steps = [("sm90_gemm", 100, 50, 10), ("sm90_gemm", 200, 900, 60)]
    only = attribute([trace(steps[1:], [("step[EXTEND bs=1 toks=9]", 55, 20)])])
    assert any("holds only prefill batches" in f.sentence for f in only.findings)
    both = attribute([trace(steps, [("step[DECODE bs=2]", 5, 20), ("step[EXTEND bs=1 toks=9]", 55, 20)])])
    assert both.cycle is None
    assert any("no complete decode cycle without a prefill inside" in f.sentence for f in both.findings)


def test_one_cut_trace_is_spoken_of_as_one() -> None:
    one = trace([("fwd_gemm", 100, 50, 10)], [("step[DECODE bs=2]", 5, 20)], truncated=True)
    assert "The trace is cut off: what could be read is attributed." in attribute([one]).warnings
