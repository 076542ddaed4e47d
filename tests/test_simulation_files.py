"""The written files: laid out like the real ones, the same every time, and saying what was simulated."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profkit.simulation import Simulation, simulate, write_run
from profkit.simulation.kineto import TraceWriter, base_ns, start_seconds
from profkit.simulation.simulate import recorded_offset_ns
from tests.oracle_trace import read
from tests.paths import SAMPLES, SHARED, needs_shared
from tests.simulated import MODES, simulated

STORY = SAMPLES / "kimi-k2.5-tp8"
GPU = ("kernel", "gpu_memcpy", "gpu_memset")


def trace_text(simulation: Simulation, rank: int = 0) -> str:
    scenario = simulation.scenario
    return "".join(TraceWriter(simulation, rank, start_seconds(scenario) + 900, "/tmp/tmpabcd1234.json").chunks())


def events(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return found


def shape(event: str) -> str:
    """An event's text with its values taken out."""
    masked = re.sub(r'("name": )"(?:[^"\\]|\\.)*"', r'\1"_"', event)
    masked = re.sub(r'("(?:labels|tid|pid)": )"[^"]*"', r'\1"_"', masked)
    return re.sub(r"-?\d+(?:\.\d+)?(?:e-\d+)?(?=[,\]\n ])", "0", masked)


def shapes(text: str) -> set[str]:
    return {shape(part) for part in re.split(r",(?=\n  \{)", text.split('"traceEvents": [', 1)[1])}


@needs_shared
@pytest.mark.parametrize(
    "kind", ['"cat": "kernel"', '"cat": "cuda_runtime"', '"cat": "gpu_memcpy"', '"cat": "gpu_user_annotation"',
             '"name": "_", "ph": "M"', '"cat": "Trace"', '"ph": "s"', '"ph": "f"', '"ph": "i"'],
)  # fmt: skip
def test_events_are_laid_out_as_kineto_writes_them(kind: str) -> None:
    """Byte for byte apart from values, against a file that Kineto wrote before graph ids came."""
    real = gzip.decompress((SHARED / "traces/hta/nccl_parser_config/nccl_data.json.gz").read_bytes()).decode()
    scenario = MODES["eagle3_v2_flows"]
    scenario = replace(scenario, recording=replace(scenario.recording, graph_ids=False))
    made = {s for s in shapes(trace_text(simulate(scenario))) if kind in s}
    known = {s for s in shapes(real) if kind in s}
    assert made

    def event(text: str) -> str:
        return text.split("\n  ]")[0].replace('"External id": 0,', "")  # not every operation has one

    assert {event(s) for s in made} <= {event(s) for s in known}


def test_header_and_base() -> None:
    document = json.loads(trace_text(simulated("eagle3_v2"), 2))
    assert list(document)[:2] == ["schemaVersion", "deviceProperties"]
    assert document["distributedInfo"]["rank"] == 2
    assert document["distributedInfo"]["world_size"] == len(document["deviceProperties"]) == 4
    assert document["traceName"] == "/tmp/tmpabcd1234.json"
    # Real recordings of October to December 2026 carry this base.
    assert document["baseTimeNanoseconds"] == base_ns(1795960129) == 1790857026000000000


@pytest.mark.parametrize("mode", MODES)
def test_file_holds_the_recorded_timeline(mode: str) -> None:
    simulation = simulated(mode)
    scenario, rank = simulation.scenario, 1
    found = events(trace_text(simulation, rank))
    operations = [e for e in found if e.get("cat") in GPU]
    assert len(operations) == simulation.truth().gpu_ops[rank]
    shift = (start_seconds(scenario) + 900) * 10**9 - base_ns(start_seconds(scenario))
    shift += recorded_offset_ns(scenario, rank)
    first = simulation.recorded.start_ns[rank]
    expected = sorted(
        (start + shift, end - start, stream)
        for block in simulation.machine.blocks
        for start, end, stream in zip(
            block.recorded[:, rank].tolist(), block.end[:, rank].tolist(), [block.stream] * len(block.ops), strict=True
        )
        if start >= first
    )
    written = sorted((round(e["ts"] * 1000), round(e["dur"] * 1000), e["args"]["stream"]) for e in operations)
    assert np.max(np.abs(np.array(written) - np.array(expected))) <= 1  # a float cannot hold more; the text does
    calls = {e["args"]["correlation"]: e for e in found if e.get("cat", "").startswith("cuda_")}
    if scenario.recording.evidence == "launches":
        assert calls
    if scenario.recording.evidence != "host":
        assert bool(calls) == (scenario.recording.evidence == "launches")
        assert not any(e.get("cat") in ("cpu_op", "user_annotation", "python_function") for e in found)
    else:
        linked = sum(o["args"]["correlation"] in calls for o in operations)
        assert 0.5 < linked / len(operations) <= 1.0
    assert any(e.get("cat") == "python_function" for e in found) == scenario.recording.python_stacks
    assert any("graph id" in e["args"] for e in operations) == scenario.recording.graph_ids
    assert any("Collective name" in e["args"] for e in operations) == scenario.recording.collective_arguments


@pytest.mark.parametrize("mode", ["eagle3_v2", "eagle3_v2_20", "eagle3_v2_eager_extend", "plain", "eagle_v1", "vllm"])
def test_annotations_on_the_gpu_span_what_was_launched_inside(mode: str) -> None:
    """Per stream, from the first to the last operation whose innermost annotation it is, 1 ns wider at each side."""
    found = events(trace_text(simulated(mode)))
    marks = [e for e in found if e.get("cat") == "user_annotation"]
    calls = {e["args"]["correlation"]: e for e in found if e.get("cat", "").startswith("cuda_")}
    hulls: dict[tuple[int, int], list[float]] = {}
    for operation in (e for e in found if e.get("cat") in GPU):
        call = calls.get(operation["args"]["correlation"])
        around = [m for m in marks if call and m["ts"] <= call["ts"] < m["ts"] + m["dur"]]
        if not around:
            continue
        inner = max(around, key=lambda m: (m["ts"], -m["dur"]))
        key = (inner["args"]["External id"], operation["tid"])
        end = operation["ts"] + operation["dur"]
        hull = hulls.setdefault(key, [operation["ts"], end])
        hulls[key] = [min(hull[0], operation["ts"]), max(hull[1], end)]
    names = {m["args"]["External id"]: m["name"] for m in marks}
    written = {
        (e["args"]["External id"], e["tid"]): e for e in found if e.get("cat") == "gpu_user_annotation"
    }  # fmt: skip
    assert set(hulls) <= set(written)
    for key, (begin, end) in hulls.items():
        assert written[key]["name"] == names[key[0]]
        assert written[key]["ts"] == pytest.approx(begin, abs=0.0045)
        assert written[key]["dur"] == pytest.approx(end - begin, abs=0.0045)


def test_phases_lie_where_the_dialect_marks_them() -> None:
    expected = {
        "plain": {"step[DECODE bs=1]"},
        "eagle3_v2": {"draft", "step[TARGET_VERIFY bs=1]", "draft_extend"},
        "eagle3_v2_11": {"step[TARGET_VERIFY bs=1]"},
        "eagle3_v2_20": {"draft", "step[VERIFY bs=1]", "draft_extend"},
        "eagle3_v2_none": set(),
        "eagle3_v2_eager_draft": {"draft", "step[DECODE bs=1]", "step[TARGET_VERIFY bs=1]", "draft_extend"},
        "eagle3_v2_eager_extend_20": {"draft", "step[VERIFY bs=1]", "draft_extend", "step[DRAFT bs=1]"},
        "eagle_v1_eager_extend": {"step[TARGET_VERIFY bs=1]", "step[DRAFT_EXTEND bs=1]"},
        "ngram": {"step[TARGET_VERIFY bs=1]"},
        "mtp": {"step[TARGET_VERIFY bs=1]"},
        "mtp_20": {"step[VERIFY bs=1]", "step[DRAFT_EXTEND_V2 bs=1]"},
        "dflash": {"step[TARGET_VERIFY bs=1]"},
        "eagle3_v2_launches": set(),
        "plain_prefill": {"step[DECODE bs=1]", "step[EXTEND bs=1 toks=512]"},
    }
    for mode, names in expected.items():
        found = events(trace_text(simulated(mode)))
        marks = {e["name"] for e in found if e.get("cat") == "user_annotation"}
        assert {m for m in marks if not m.startswith("scheduler.") and m != "copy_result_to_cpu"} == names, mode


@needs_shared
def test_detailed_annotations_read_like_the_real_ones() -> None:
    """Figures apart, the names of a recorded server's steps are ours."""

    def names(document: list[dict[str, Any]]) -> set[str]:
        found = {e["name"] for e in document if e.get("cat") == "user_annotation" and e["name"].startswith("step[")}
        return {re.sub(r"\d+", "0", name) for name in found}

    folder = SHARED / "sglang-cpu" / "0.5.23_eagle_detail" / "traces_detail"
    real = names(events(gzip.decompress(next(folder.glob("*.gz")).read_bytes()).decode()))
    made = names(events(trace_text(simulated("eagle3_v2_detailed"))))
    assert made == real - {name for name in real if "toks" in name}
    assert len(made) == 3


def test_a_launch_without_recording_has_no_traces(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without recording"):
        write_run(simulate(MODES["plain"], record=False), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_frames_nest_and_know_their_parents() -> None:
    frames = [e for e in events(trace_text(simulated("eagle3_v2_frames"))) if e.get("cat") == "python_function"]
    by_id = {f["args"]["Python id"]: f for f in frames}
    assert len(by_id) == len(frames) > 50
    for frame in frames:
        parent = frame["args"]["Python parent id"]
        if parent is None:
            continue
        outer = by_id[parent]
        assert outer["ts"] <= frame["ts"]
        assert frame["ts"] + frame["dur"] <= outer["ts"] + outer["dur"] + 0.002
    draft = next(f for f in frames if "eagle_draft_cuda_graph_runner.py" in f["name"])
    chain = []
    while draft["args"]["Python parent id"] is not None:
        draft = by_id[draft["args"]["Python parent id"]]
        chain.append(draft["name"].rsplit(": ", 1)[1])
    assert chain == [
        "draft", "forward_batch_generation", "run_batch", "event_loop_overlap", "run_scheduler_process", "_bootstrap",
    ]  # fmt: skip


def test_merged_file_labels_ranks_and_keeps_colliding_ids(tmp_path: Path) -> None:
    write_run(simulated("eagle3_v2_merged"), tmp_path / "run")
    (path,) = (tmp_path / "run" / "traces").iterdir()
    assert re.fullmatch(r"merged-\d+\.\d+\.trace\.json\.gz", path.name)
    document = json.loads(gzip.decompress(path.read_bytes()))
    ranks = defaultdict(set)
    for event in document["traceEvents"]:
        match = re.fullmatch(r"\[TP(\d\d)\] (.*)", event["pid"])
        assert match
        if event.get("cat") in GPU:
            ranks[int(match[1])].add(event["args"]["correlation"])
    assert sorted(ranks) == [0, 1, 2, 3]
    assert ranks[0] & ranks[3]
    assert len(document["deviceProperties"]) == 16
    assert document["distributedInfo"]["rank"] == 0


@pytest.mark.filterwarnings("ignore")
def test_tensorboards_reader_finds_the_same_kernel_times(tmp_path: Path) -> None:
    """The profiler plug-in for TensorBoard reads a committed file and adds up the same durations."""
    from torch_tb_profiler.profiler.data import RunProfileData

    path = sorted((STORY / "eagle3" / "traces").glob("*-TP-3-*"))[0]
    profile = RunProfileData.parse("worker", "span", str(path), str(tmp_path))
    profile.process()
    totals: dict[str, float] = defaultdict(float)
    for event in events(gzip.decompress(path.read_bytes()).decode()):
        if event.get("cat") == "kernel":
            totals[event["name"]] += event["dur"]
    found = dict(zip(profile.kernel_stat.index, profile.kernel_stat["sum"], strict=True))
    assert found.keys() == totals.keys()
    for name, total in totals.items():
        assert found[name] == pytest.approx(total, rel=1e-6)


def test_plain_reader_reads_it(tmp_path: Path) -> None:
    write_run(simulated("eagle3_v2_frames"), tmp_path / "run")
    path = sorted((tmp_path / "run" / "traces").iterdir())[3]
    trace = read(path)
    assert trace.info.rank == 3
    assert trace.frames is not None
    assert trace.frames.num_rows > 50
    assert trace.gpu_ops.num_rows > 900
