"""The written files: laid out like the real ones, the same every time, and saying what was simulated."""

from __future__ import annotations

import ast
import gzip
import json
import re
import statistics
import tomllib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profkit.cli.app import run
from profkit.simulation import Simulation, simulate, write_run
from profkit.simulation.history import history, truth_toml, write_history
from profkit.simulation.kineto import TraceWriter, base_ns, start_seconds
from profkit.simulation.scenario import Dialect, Scenario
from profkit.simulation.serverlog import ServerLog
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


LINE = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?: TP(\d))?\] (.*)")
PAIR = re.compile(r"(#?[a-z][^:]*): ([^,]*)(?:, |$)")


@pytest.mark.parametrize("mode", ["plain", "eagle3_v2", "ngram", "eagle3_v2_batches"])
def test_log_adds_up_to_its_truth(mode: str, tmp_path: Path) -> None:
    scenario = MODES[mode]
    write_run(simulate(scenario), tmp_path / "run", traces=False)
    lines = (tmp_path / "run" / "server.log").read_text().splitlines()
    expected = tomllib.loads((tmp_path / "run" / "expected.toml").read_text())["log"]
    decode = [dict(PAIR.findall(m[3].split(", ", 1)[1])) for m in map(LINE.fullmatch, lines)
              if m and m[3].startswith("Decode batch, ")]  # fmt: skip
    assert len(decode) == expected["decode_lines"] == scenario.recording.log_lines
    middle = statistics.median(float(d["gen throughput (token/s)"]) for d in decode)
    assert middle == pytest.approx(expected["throughput_tok_s"], rel=0.03)
    for line in decode:
        if scenario.speculative:
            length, rate = float(line["accept len"]), float(line["accept rate"])
            assert rate == pytest.approx((length - 1) / (scenario.serving.num_draft_tokens - 1), abs=0.006)
        else:
            assert "accept len" not in line
    # The flagged lines carry a prefill or the profiler's stop and are slower than any other.
    slow = sorted(float(d["gen throughput (token/s)"]) for d in decode)[: expected["flagged_lines"]]
    assert max(slow) < 0.95 * middle
    stamps = [m[1] for m in map(LINE.fullmatch, lines) if m]
    assert stamps == sorted(stamps)
    assert {m[2] for m in map(LINE.fullmatch, lines) if m and "batch, " in m[3]} == {"0"}
    assert sum("Profiling starts" in line for line in lines) == scenario.ranks


REAL_SERVERS = {
    "0.5.3": "0.5.3_eagle_tp1",
    "0.5.9": "0.5.9_eagle_tp2_steady",
    "0.5.16": "0.5.16_eagle_tp2",
    "0.5.23": "0.5.23_eagle_tp2_steady",
}


def log_of(version: str) -> list[str]:
    """A speculative launch's log in the format of a release."""
    mode = MODES["eagle_v1" if version == "0.5.3" else "eagle3_v2_no_overlap"]
    dialect: Dialect = "0.5.20" if version == "0.5.23" else "0.5.14" if version == "0.5.16" else "none"
    scenario = replace(mode, recording=replace(mode.recording, engine_version=version, dialect=dialect))
    return ServerLog(simulate(scenario, record=False), "1795960129.224998").text().splitlines()


def mask(line: str) -> str:
    """A line without its prefix, figures and names."""
    line = line.split("] ", 1)[-1].replace("cpu graph", "cuda graph").rstrip("\r")
    line = re.sub(r"(?<=dtype: )torch\.\w+|(?<=dtype=)torch\.\w+|(?<=type=)\w+|quant=[\w-]+, |/[\w./-]+", "_", line)
    return re.sub(r"\d+(?:\.\d+)?|True|False", "0", line)


@needs_shared
@pytest.mark.parametrize("version", REAL_SERVERS)
def test_log_lines_have_the_shape_of_a_real_servers(version: str) -> None:
    real = (SHARED / "sglang-cpu" / REAL_SERVERS[version] / "server.log").read_text(errors="replace").splitlines()
    known = {mask(line).replace("type=__", "type=_") for line in real}
    made = log_of(version)
    starts = [
        "Decode batch", "Prefill batch", "Load weight begin", "Load weight end", "Init ", "Memory ",
        "Profiling starts", "Stop profiling", "Profiling done", "The server is fired", "INFO:     Uvicorn",
    ]  # fmt: skip
    for start in starts:
        ours = {mask(line).replace("quant=_, ", "") for line in made if f"] {start}" in line}
        # The real servers were profiled by stage now and then; ours always is.
        fitting = known | {
            k.replace("profiling...", "profiling-DECODE...").replace("starts.", "starts for DECODE.") for k in known
        }
        assert ours, start
        assert {o.replace("_avail", "avail") for o in ours} <= fitting, (start, ours - fitting)
    pools = {mask(line) for line in made if "] KV Cache" in line and "K size" in line}
    assert pools
    assert pools <= known


@needs_shared
@pytest.mark.parametrize("version", REAL_SERVERS)
def test_server_arguments_have_the_keys_of_the_release(version: str) -> None:
    def keys(lines: list[str]) -> list[str]:
        text = next(line for line in lines if "server_args=" in line).split("server_args=", 1)[1]
        node = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.Call):
            return [str(k.arg) for k in node.keywords]
        assert isinstance(node, ast.Dict)
        return [ast.literal_eval(k) for k in node.keys if k is not None]

    real = (SHARED / "sglang-cpu" / REAL_SERVERS[version] / "server.log").read_text(errors="replace").splitlines()
    assert keys(log_of(version)) == keys(real)


def test_accept_rate_means_what_it_meant_in_the_release() -> None:
    """Tokens with the bonus over all rows before 0.5.11; drafts over drafts since."""
    for version in ("0.5.9", "0.5.12"):
        lines = [dict(PAIR.findall(line)) for line in log_of(version) if "Decode batch" in line]
        assert lines
        for line in lines:
            length = float(line["accept len"])
            quotient = length / 4 if version == "0.5.9" else (length - 1) / 3
            assert float(line["accept rate"]) == pytest.approx(quotient, abs=0.006)
    assert not any("accept rate" in line for line in log_of("0.5.3"))
    with pytest.raises(ValueError, match=r"0\.5\.16"):
        log_of("0.5.17")


def test_demo_writes_the_committed_samples_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "demo"
    assert run(["demo", str(target)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "profkit attribute" in said.err
    assert "--baseline" in said.err
    made = sorted(p.relative_to(target) for p in target.rglob("*") if p.is_file())
    assert made == sorted(p.relative_to(STORY) for p in STORY.rglob("*") if p.is_file())
    for name in made:
        one, two = (target / name).read_bytes(), (STORY / name).read_bytes()
        if name.suffix == ".gz":  # the compressed bytes depend on the zlib at hand
            one, two = gzip.decompress(one), gzip.decompress(two)
        assert one == two, name
    assert run(["demo", str(target)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_demo_overwrites_only_when_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def story(*, seed: int, cycles: int) -> dict[str, Scenario]:
        small = MODES["eagle3_v2"]
        return {"eagle3": replace(small, seed=seed, recording=replace(small.recording, cycles=cycles))}

    monkeypatch.setattr("profkit.simulation.reference_story", story)
    target = tmp_path / "demo"
    assert run(["demo", str(target)]) == 0
    before = (target / "eagle3" / "server.log").read_bytes()
    (target / "eagle3" / "run.toml").write_text("changed")
    (target / "eagle3" / "notes.txt").write_text("mine")
    assert run(["demo", str(target)]) == 2
    assert (target / "eagle3" / "run.toml").read_text() == "changed"
    capsys.readouterr()
    assert run(["demo", str(target), "--force", "--seed", "7", "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert len(list((target / "eagle3" / "traces").iterdir())) == 4, "traces of the other seed are gone"
    assert (target / "eagle3" / "server.log").read_bytes() != before
    assert (target / "eagle3" / "notes.txt").read_text() == "mine"
    assert run(["demo", str(tmp_path / "large"), "--scale", "full"]) == 0
    assert tomllib.loads((tmp_path / "large/eagle3/expected.toml").read_text())["rank"][0]["cycles"] == 60


def test_demo_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    assert run(["demo", str(tmp_path / "file")]) == 2
    assert "is a file" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "x"


def test_history_holds_what_it_says(tmp_path: Path) -> None:
    past = history(10)
    planted = tomllib.loads(truth_toml(past))["event"]
    assert [e["kind"] for e in planted] == ["regression", *["environment"] * 3, "noise", "improvement", "missing"]
    by_week: dict[tuple[str, str], list[float]] = defaultdict(list)
    weeks = sorted({launch.week for launch in past.launches})
    assert len(weeks) == 10
    wanted = {weeks[i] for i in (2, 3, 6, 7)}
    for launch in past.launches:
        if launch.week in wanted and not launch.config.endswith("baseline"):
            wall = np.mean(next(iter(simulate(launch.scenario, record=False).walls_ns.values())))
            by_week[launch.config.rsplit("/", 1)[1], launch.week].append(float(wall))
    assert all(len(walls) == 6 for walls in by_week.values())

    def middle(config: str, week: int) -> float:
        return statistics.median(by_week[config, weeks[week]])

    assert middle("eagle3", 2) / middle("eagle3", 3) == pytest.approx(0.93, abs=0.012)
    assert middle("eagle3", 6) / middle("eagle3", 7) == pytest.approx(1.068, abs=0.012)
    ngram = by_week["ngram", weeks[6]]
    assert statistics.stdev(ngram) / statistics.mean(ngram) > 0.07
    assert statistics.median(ngram) / middle("ngram", 2) == pytest.approx(1.0, abs=0.02)
    assert not any(x.week == weeks[8] and x.config.endswith("baseline") for x in past.launches)
    drivers = {(x.week >= weeks[5]): x.scenario.hardware.driver for x in past.launches}
    assert drivers[False] != drivers[True]
    one = replace(past, launches=past.launches[:4])
    paths = write_history(one, tmp_path / "weeks")
    assert (tmp_path / "weeks" / "planted.toml") in paths
    assert len(list((tmp_path / "weeks").glob("*/*/launch-*/server.log"))) == 4
    assert len(list((tmp_path / "weeks").glob("*/eagle3/launch-1/traces/*.gz"))) == 8
    assert not list((tmp_path / "weeks").glob("*/*/launch-2/traces"))
