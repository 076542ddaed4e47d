"""The doctor: what can be answered from which files, and the commands for the rest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from syrupy.assertion import SnapshotAssertion

from profkit.cli.app import run as profkit
from profkit.jsonio import dumps
from profkit.preflight import Diagnosis, diagnose
from profkit.preflight.captures import CAPTURES, message_sizes
from profkit.preflight.evidence import trace_found
from profkit.preflight.result import RunFound, TraceFound
from profkit.preflight.versions import has_feature, least_release, release_of, version_key
from profkit.reports.doctor import as_markdown, as_text
from profkit.rules import load_rules
from tests.attribution_tables import trace
from tests.paths import ROOT, SAMPLES
from tests.trace_makers import decode_events, document

SCHEMA = json.loads((ROOT / "profkit/schemas/doctor.schema.json").read_text(encoding="utf-8"))
TRACES = tuple(
    TraceFound(
        path=f"traces/1.5-TP-{rank}-DECODE.trace.json.gz",
        kind="gpu",
        rank=rank,
        stage="decode",
        gpu_ops=9000,
        python_frames=False,
        labels="annotations",
        decode_steps=12,
    )
    for rank in range(2)
)
SPECULATIVE = RunFound(
    name="eagle3",
    path="runs/eagle3",
    engine="sglang",
    version="0.5.16",
    version_low="0.5.16",
    version_high="0.5.16",
    speculative=True,
    algorithm="EAGLE3",
    num_draft_tokens=4,
    ranks=2,
    launches=1,
    decode_lines=50,
    batch_sizes=(1, 4),
    accept_length_known=True,
    bench_rows=40,
    nccl_debug_rows=10,
    nccl_test_rows=8,
    traces=TRACES,
    hidden_size=7168,
    layers=61,
    port=30000,
    contexts={1: 900.0, 4: 700.0},
    system={"model.name": "org/K2.5", "parallel.tp": "2", "gpu.name": "H20"},
)
BASELINE = replace(SPECULATIVE, name="base", path="runs/base", speculative=False, algorithm=None, num_draft_tokens=None)
EMPTY = replace(
    SPECULATIVE, engine=None, version=None, version_low=None, version_high=None, speculative=None, ranks=None,
    launches=0, decode_lines=0, batch_sizes=(), accept_length_known=False, bench_rows=0, nccl_debug_rows=0,
    nccl_test_rows=0, traces=(), hidden_size=None, layers=None, port=None, algorithm=None, num_draft_tokens=None,
    name="empty",
)  # fmt: skip


def states(*runs: RunFound) -> list[str]:
    return [a.state for a in diagnose(runs).answers]


def reasons(number: int, *runs: RunFound) -> str:
    return "\n".join(diagnose(runs).answers[number - 1].because)


def captures(*runs: RunFound) -> list[str]:
    return [c.id for c in diagnose(runs).captures]


def many(run: RunFound, launches: int) -> RunFound:
    return replace(run, launches=launches)


def test_everything_there() -> None:
    found = diagnose([many(SPECULATIVE, 4), many(BASELINE, 4)])
    assert [a.state for a in found.answers] == ["answerable"] * 4
    assert found.complete
    assert found.captures == ()


def test_nothing_there() -> None:
    assert states() == ["not"] * 4
    assert states(EMPTY) == ["not"] * 4
    assert captures() == ["speculative_log", "baseline_log", "decode_trace", "repeats"]


def test_one_arm_gives_no_break_even() -> None:
    assert states(SPECULATIVE)[1] == "partly"
    assert "baseline_log" in captures(SPECULATIVE)
    assert states(BASELINE)[1] == "partly"
    assert "speculative_log" in captures(BASELINE)


def test_arms_at_different_load() -> None:
    assert "never ran the same number" in reasons(2, replace(SPECULATIVE, batch_sizes=(8,)), BASELINE)
    assert states(replace(SPECULATIVE, accept_length_known=False), BASELINE)[1] == "partly"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"parallel.tp": "1"}, "base is no baseline of eagle3: TP 2 here, 1 in the baseline"),
        ({"gpu.name": "H200"}, "GPU H20 here, H200 in the baseline"),
        ({"model.name": "org/K2"}, "model org/K2.5 here, org/K2 in the baseline"),
        ({"model.quantization": "w4a8"}, "quantisation fp8 here, w4a8 in the baseline"),
        ({"model.quantization": ""}, "quantisation fp8 is asked for here only"),
    ],
)
def test_another_system_is_no_baseline(other: dict[str, str], words: str) -> None:
    stated = {**SPECULATIVE.system, "model.quantization": "fp8"}
    fast = replace(SPECULATIVE, system=stated)
    assert states(fast, replace(BASELINE, system=stated))[1] == "answerable"
    stranger = replace(BASELINE, system=stated | other)
    assert states(fast, stranger)[1] == "partly"
    assert words in reasons(2, fast, stranger)
    # Beside a baseline of its own system a stranger does no harm, and its batch sizes do not count.
    own = replace(BASELINE, name="own", system=stated)
    assert states(fast, stranger, own)[1] == "answerable"
    lone = replace(own, batch_sizes=(64,))
    assert states(fast, stranger, lone)[1] == "partly"
    assert "never ran the same number" in reasons(2, fast, stranger, lone)


@pytest.mark.parametrize(
    ("contexts", "words"),
    [
        ({1: 100.0, 4: 90.0}, "at batch size 1, but contexts differ by more than 20 %: 900 and 100 tokens"),
        ({}, "the context length at 1 running request is not logged"),
    ],
)
def test_other_contexts_are_another_load(contexts: dict[int, float], words: str) -> None:
    base = replace(BASELINE, contexts=contexts)
    assert states(SPECULATIVE, base)[1] == "partly"
    assert words in reasons(2, SPECULATIVE, base)
    # One common load is enough.
    assert states(SPECULATIVE, replace(base, contexts={**contexts, 4: 690.0}))[1] == "answerable"
    assert states(SPECULATIVE, base, BASELINE)[1] == "answerable"
    assert states(SPECULATIVE, BASELINE, base)[1] == "answerable"


def test_a_system_that_nobody_states_cannot_be_compared() -> None:
    fast, base = replace(SPECULATIVE, system={}), replace(BASELINE, system={"parallel.tp": "2"})
    assert states(fast, base)[1] == "partly"
    assert "whether base is the same system as eagle3 cannot be told" in reasons(2, fast, base)


def test_a_folder_and_a_repository_may_be_the_same_model() -> None:
    folder = replace(BASELINE, system={**BASELINE.system, "model.name": "/models/K2.5/"})
    assert states(SPECULATIVE, folder)[1] == "answerable"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"traces": TRACES[:1]}, "1 of 2 ranks (missing: 1)"),
        ({"traces": tuple(replace(t, labels="graphs") for t in TRACES)}, "guessed from the structure"),
        ({"traces": tuple(replace(t, labels=None) for t in TRACES)}, "nothing names the phases"),
        ({"traces": tuple(replace(t, labels="frames", python_frames=True) for t in TRACES)}, "Python frames only"),
        ({"traces": tuple(replace(t, python_frames=True) for t in TRACES)}, "stretch the idle time"),
        ({"traces": tuple(replace(t, decode_steps=2) for t in TRACES)}, "only 2 decode steps"),
        ({"traces": tuple(replace(t, problems=("truncated (1)",)) for t in TRACES)}, "2 traces cut off or damaged"),
        ({"decode_lines": 0, "launches": 0}, "no log of the traced server"),
    ],
)
def test_an_incomplete_split(change: dict[str, Any], words: str) -> None:
    run = replace(SPECULATIVE, **change)
    assert states(run)[0] == "partly"
    assert words in reasons(1, run)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("capture", "2 traces cannot be used"),
        ("cpu_only", "2 traces recorded without GPU activity; profkit attribute splits the CPU's time"),
        ("no_kernels", "2 traces cannot be used"),
    ],
)
def test_traces_without_a_timeline(kind: Any, words: str) -> None:
    run = replace(SPECULATIVE, traces=tuple(replace(t, kind=kind) for t in TRACES))
    assert states(run)[0] == "not"
    assert states(run)[2] == "not"
    assert words in reasons(1, run)


def test_prefill_alone_is_no_decode_cycle() -> None:
    run = replace(SPECULATIVE, traces=tuple(replace(t, stage="prefill") for t in TRACES))
    assert states(run)[0] == "not"
    assert "2 traces of prefill" in reasons(1, run)


def test_what_the_first_lever_needs() -> None:
    run = replace(SPECULATIVE, hidden_size=None, nccl_test_rows=0, nccl_debug_rows=0)
    assert states(run)[2] == "partly"
    assert {"model_config", "nccl_tests", "nccl_debug"} <= set(captures(run))
    alone = replace(run, ranks=1, traces=TRACES[:1])
    assert not {"nccl_tests", "nccl_debug", "model_config"} & set(captures(alone))


@pytest.mark.parametrize(("launches", "state"), [(1, "not"), (2, "partly"), (7, "partly"), (8, "answerable")])
def test_launches_decide_about_changes(launches: int, state: str) -> None:
    assert states(many(SPECULATIVE, launches))[3] == state


def test_message_sizes() -> None:
    assert message_sizes([SPECULATIVE])[:2] == (7168 * 2, 4 * 7168 * 2)
    assert message_sizes([replace(SPECULATIVE, batch_sizes=(4,))])[:2] == (4 * 7168 * 2, 16 * 7168 * 2)
    low, high, why = message_sizes([EMPTY])
    assert low < high
    assert "not known" in why


# --- versions -------------------------------------------------------------------------------------

FEATURES = [(f["name"], e["version"], e["has"]) for f in load_rules("capture")["feature"] for e in f["examples"]]


@pytest.mark.parametrize(("name", "version", "has"), FEATURES)
def test_features_of_releases(name: str, version: str, has: bool) -> None:
    assert has_feature(version, name) is has


def test_versions_are_ordered_as_numbers() -> None:
    names = ["0.4.6", "0.4.6.post5", "0.4.10.post2", "0.5.3", "0.5.23"]
    assert sorted(names, key=version_key) == names
    with pytest.raises(KeyError):
        has_feature("0.5.3", "telepathy")


def test_annotations_date_a_trace() -> None:
    for dialect in load_rules("capture")["dialect"]:
        for example in dialect["examples"]:
            assert least_release([example, "aten::mm"]) == dialect["since"]
    assert least_release(["gloo:all_reduce", "step", "drafts"]) is None
    assert least_release(["step[DECODE bs=1]", "draft"]) == "0.5.14"


def test_commands_fit_the_release() -> None:
    old, new = replace(SPECULATIVE, version="0.4.6.post5"), replace(SPECULATIVE, version="0.5.23")
    for run, by_stage, module, endpoint in (
        (old, False, "sglang.bench_serving", "get_server_info"),
        (new, True, "sglang.benchmark.serving", "/server_info"),
    ):
        release = release_of([run])
        trace = CAPTURES["decode_trace"]([run], release).commands
        request = json.loads(trace[-1].split("-d '")[1].rstrip("'"))
        assert request["activities"] == ["CPU", "GPU"]
        assert (request["with_stack"], request["record_shapes"]) == (False, False)
        assert 5 <= request["num_steps"] <= 20
        assert ("profile_by_stage" in request) is by_stage
        log = "\n".join(CAPTURES["baseline_log"]([run], release).commands)
        assert module in log
        assert endpoint in log
    # What the oldest of several can do, all can.
    assert release_of([new, old]).version == "0.4.6.post5"
    assert "do not tell" in release_of([EMPTY]).note


# --- documents ------------------------------------------------------------------------------------

CASES: dict[str, Diagnosis] = {
    "speculative_only": diagnose([replace(SPECULATIVE, traces=TRACES[:1], nccl_test_rows=0)]),
    "nothing": diagnose([], ["x: no such thing"]),
    "hostile": diagnose([replace(EMPTY, name="a|b\x1b[31m`<b>\n# c", engine="vllm")]),
}


@pytest.mark.parametrize("name", CASES)
def test_documents(name: str, snapshot: SnapshotAssertion) -> None:
    found = CASES[name]
    assert as_text(found) == snapshot(name="text")
    assert as_markdown(found) == snapshot(name="markdown")
    assert "\x1b" not in as_text(found) + as_markdown(found)
    text = dumps(found)
    jsonschema.validate(json.loads(text), SCHEMA)
    assert text == dumps(found)


# --- the command ----------------------------------------------------------------------------------


def test_the_sample_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert profkit(["doctor", str(SAMPLES / "kimi-k2.5-tp8"), "--format", "json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    assert len(found["runs"]) == 4
    assert {r["speculative"] for r in found["runs"]} == {True, False}
    assert all(len(r["traces"]) == 8 for r in found["runs"])
    assert [a["state"] for a in found["answers"][:2]] == ["answerable", "answerable"]
    assert profkit(["doctor", str(SAMPLES / "kimi-k2.5-tp8"), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_a_sample_with_another_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    """A run on two ranks against the story's baseline on eight, of another model."""
    cpu, base = SAMPLES / "sglang-cpu-eagle-tp2", SAMPLES / "kimi-k2.5-tp8" / "baseline"
    assert profkit(["doctor", str(cpu), str(base), "--format", "json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    assert found["answers"][1]["state"] == "partly"
    (reason,) = [r for r in found["answers"][1]["because"] if "is no baseline of" in r]
    assert "TP 2 here, 8 in the baseline" in reason
    assert "model" in reason
    assert "baseline_log" in found["answers"][1]["captures"]


def test_cpu_engine_sample_has_no_cycle(capsys: pytest.CaptureFixture[str]) -> None:
    assert profkit(["doctor", str(SAMPLES / "sglang-cpu-eagle-tp2")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "2 traces recorded without GPU activity; profkit attribute splits the CPU's time, not a GPU's" in text
    assert "/start_profile" in text


def test_strict_leaves_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "1.5-TP-0.trace.json"
    trace.write_bytes(document(decode_events(9)))
    assert profkit(["doctor", str(trace), "--strict"]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("Found\n")
    assert captured.err.startswith("profkit: ")
    assert "question 1, 2, 3, 4 cannot be answered in full" in captured.err


def test_paths_of_every_sort(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a/1.5-TP-0.trace.json", "b/traces/1.5-TP-0.trace.json", "c/mine.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(document(decode_events(9)))
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "server.log").write_text("no log at all\n")

    def runs(*paths: Path) -> list[list[str]]:
        assert profkit(["doctor", *map(str, paths), "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        jsonschema.validate(found, SCHEMA)
        return [[t["kind"] for t in r["traces"]] for r in found["runs"]]

    assert runs(tmp_path / "a", tmp_path / "b") == [["gpu"], ["gpu"]]
    assert runs(tmp_path / "c") == [["gpu"]]
    assert runs(tmp_path / "*" / "*.json") == [["gpu", "gpu"]]
    assert runs(tmp_path)[:2] == [["gpu"], ["gpu"]]
    assert profkit(["doctor", str(tmp_path / "none")]) == 3
    assert "no such file or folder" in capsys.readouterr().err
    assert profkit(["doctor", str(tmp_path), "--format", "csv"]) == 2


@pytest.mark.parametrize(
    ("spans", "steps"),
    [
        (["step[EXTEND bs=15 toks=15360]", "execute_15360_context_15(sq1sk1)_generation_0(sq0sk0)"], 0),
        (["execute_context_1(888_788544)_generation_0(0)"], 0),
        (["execute_8192_context_9(sq1sk1)_generation_37(sq1sk1)"], 0),
        (["step[DECODE bs=32]", "execute_32_context_0(sq0sk0)_generation_32(sq1sk1)"], 1),
        (["step[EXTEND bs=1 toks=9]", "step[DECODE bs=1]", "step[DECODE bs=1]"], 2),
        (["step[TARGET_VERIFY bs=1]", "draft"], 1),
        (["step[IDLE bs=0]"], None),
        (["aten::mm"], None),
    ],
)
def test_forwards_that_read_prompts_are_no_decode_steps(spans: list[str], steps: int | None) -> None:
    found, _, _ = trace_found(trace([("gemm", 100, 50, 10)], [(name, 5 + i, 1) for i, name in enumerate(spans)]))
    assert found.decode_steps == steps


def test_a_trace_of_prefills_answers_nothing_about_cycles() -> None:
    prefills = tuple(replace(t, stage=None, decode_steps=0) for t in TRACES)
    run = replace(SPECULATIVE, traces=prefills)
    assert states(run)[0] == "not"
    assert "2 traces of prefill" in reasons(1, run)
