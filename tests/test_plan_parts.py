"""Gates, forecasts and checks one by one, on runs whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.analysis import RunAnalysis
from profkit.planning.calls import message_bytes
from profkit.planning.checks import Check, run_checks
from profkit.planning.gains import Forecaster, Gain
from profkit.planning.gates import GateResult, evaluate, state_of
from profkit.planning.levers import Lever, load_levers
from profkit.planning.others import same_verify_path
from profkit.planning.plan import make_plan
from profkit.planning.situation import Situation, make_situation
from profkit.quantity import Quantity
from profkit.reports.plan import document
from profkit.run import Facts
from tests.paths import SAMPLES
from tests.plan_data import log_only, sample, with_facts

BY_ID = {lever.id: lever for lever in load_levers()}


def situation(**facts: str | int | float | bool | None) -> Situation:
    return make_situation(with_facts(sample("eagle3"), **facts), sample("baseline"))


def gate(lever: str, name: str, **facts: str | int | float | bool | None) -> GateResult:
    return next(g for g in evaluate(BY_ID[lever], situation(**facts)) if g.name == name)


@pytest.mark.parametrize(
    ("lever", "name", "facts", "state"),
    [
        ("pcie-ipc-allreduce", "engine_version", {"engine__version": "0.5.21"}, "pass"),
        ("pcie-ipc-allreduce", "engine_version", {"engine__version": "0.5.24"}, "pass"),
        ("pcie-ipc-allreduce", "engine_version", {"engine__version": "0.5.20"}, "fail"),
        ("pcie-ipc-allreduce", "engine_version", {"engine__version": "0.5.20.post1"}, "unknown"),
        ("spec-overlap", "engine_version", {"engine__version": "0.5.9"}, "pass"),
        ("spec-overlap", "engine_version", {"engine__version": "0.5.13"}, "unknown"),
        ("spec-overlap", "engine_version", {"engine__version": "0.5.14"}, "fail"),
        ("pcie-ipc-allreduce", "tp", {"parallel__tp": 6}, "fail"),
        ("pcie-ipc-allreduce", "tp", {"parallel__tp": None}, "unknown"),
        ("pcie-ipc-allreduce", "dtype", {"model__dtype": "float16"}, "fail"),
        ("pcie-ipc-allreduce", "dtype", {"model__dtype": "auto"}, "unknown"),
        ("allreduce-norm-fusion", "sm", {"gpu__sm": "90"}, "pass"),
        ("allreduce-norm-fusion", "sm", {"gpu__sm": "120"}, "fail"),
        ("allreduce-norm-fusion", "link", {"link__kind": "nvlink"}, "pass"),
        ("custom-allreduce", "custom_allreduce", {"parallel__tp": 2, "link__p2p": True}, "pass"),
        ("custom-allreduce", "custom_allreduce", {"parallel__tp": 2, "link__p2p": False}, "fail"),
        ("custom-allreduce", "custom_allreduce", {"parallel__tp": 2}, "unknown"),
        ("custom-allreduce", "custom_allreduce", {"link__kind": "nvlink"}, "pass"),
        ("nccl-symmetric-memory", "nccl_version", {"nccl__version": "2.21.5"}, "fail"),
        ("nccl-symmetric-memory", "nccl_version", {"nccl__version": None}, "unknown"),
        ("quick-reduce", "vendor", {"gpu__name": "AMD Instinct MI325X"}, "pass"),
        ("quick-reduce", "vendor", {"gpu__name": None}, "unknown"),
        ("chain-instead-of-tree", "topk", {"speculative__topk": 4}, "pass"),
        ("cuda-graphs", "device", {"server_args__device": "cpu"}, "fail"),
        ("dp-attention", "dp_attention", {"parallel__dp_attention": True}, "fail"),
        ("expert-parallel", "moe", {"model__experts": None}, "fail"),
        ("expert-parallel", "moe", {"model__experts": None, "model__layers": None}, "unknown"),
        ("nccl-protocol", "implementation", {}, "pass"),
    ],
)
def test_gates(lever: str, name: str, facts: dict[str, str | int | bool | None], state: str) -> None:
    found = gate(lever, name, **facts)
    assert found.state == state, found
    assert found.why


def test_a_version_known_as_a_range_only() -> None:
    facts: dict[str, str | None] = {"engine__version": None}
    low, high = "engine__version_low", "engine__version_high"
    wide = gate("pcie-ipc-allreduce", "engine_version", **facts, **{low: "0.5.16", high: "0.5.23"})
    assert wide.state == "unknown"
    old = gate("pcie-ipc-allreduce", "engine_version", **facts, **{low: "0.5.14", high: "0.5.16"})
    assert old.state == "fail"


def test_one_failing_gate_decides_and_one_unknown_keeps_from_passing() -> None:
    passing = GateResult("a", "pass", "x")
    failing, unknown = replace(passing, state="fail"), replace(passing, state="unknown")
    assert state_of((passing, passing)) == "pass"
    assert state_of((passing, unknown)) == "unknown"
    assert state_of((unknown, failing, passing)) == "fail"
    assert state_of(()) == "pass"


def forecast(lever: str, at: Situation | None = None) -> Gain:
    return Forecaster(at or situation()).gain(BY_ID[lever])


def test_ranges_hold_their_expectation() -> None:
    forecaster = Forecaster(situation())
    for lever in load_levers():
        gain = forecaster.gain(lever)
        for quantity in (gain.candidate_throughput, gain.baseline_throughput, gain.cycle, gain.break_even_accept_len):
            if quantity.value is not None and quantity.low is not None and quantity.high is not None:
                assert quantity.low <= quantity.value * (1 + 1e-9), lever.id
                assert quantity.value <= quantity.high * (1 + 1e-9), lever.id
            assert quantity.source


def test_no_lever_on_the_all_reduce_is_forecast_to_make_a_call_dearer() -> None:
    for name in ("fabric-health", "pcie-ipc-allreduce", "rank-skew"):
        gain = forecast(name)
        for quantity, before in (
            (gain.candidate_throughput, situation().economics.throughput),
            (gain.baseline_throughput, situation().economics.baseline_throughput),
        ):
            assert quantity.low is not None
            # A projection promises no more than the spread of the measured cycles allows.
            assert quantity.low >= before.require() * 0.97, name
            assert quantity.require() >= before.require() * 0.999, name


def test_a_lever_that_only_speculation_has_leaves_the_baseline_alone() -> None:
    base = situation().economics.baseline_throughput.require()
    for name in ("fewer-draft-tokens", "drafter-for-target"):
        assert forecast(name).baseline_throughput.require() == pytest.approx(base)


def test_both_arms_move_together_in_the_break_even_of_a_repair() -> None:
    gain = forecast("fabric-health")
    even = gain.break_even_accept_len
    assert even.low is not None
    assert even.high is not None
    assert 1.8 < even.low < even.high < 2.9


def test_without_inputs_a_forecast_is_unknown_and_says_which() -> None:
    at = make_situation(log_only(sample("eagle3")), log_only(sample("baseline")))
    gain = forecast("fewer-draft-tokens", at)
    assert gain.candidate_throughput.value is None
    assert "trace" in gain.candidate_throughput.source
    unlinked = situation(link__kind=None)
    assert forecast("fabric-health", unlinked).candidate_throughput.value is None
    assert "not known: " in forecast("nccl-channels").candidate_throughput.source


def test_message_size_from_the_trace_or_from_shapes() -> None:
    assert message_bytes(sample("eagle3")) == 57344
    assert message_bytes(log_only(sample("eagle3"))) == 4 * 7168 * 2
    assert message_bytes(log_only(sample("baseline"))) == 7168 * 2
    assert message_bytes(log_only(with_facts(sample("eagle3"), model__hidden_size=None))) is None


def checks(run: RunAnalysis, baseline: RunAnalysis | None = None) -> dict[str, Check]:
    return {c.name: c for c in run_checks(make_situation(run, baseline or sample("baseline")))}


@pytest.mark.parametrize(
    ("name", "facts", "state"),
    [
        ("calls_per_layer_candidate", {"model__layers": 60}, "fail"),
        ("calls_per_layer_candidate", {"model__layers": None}, "abstain"),
        ("calls_per_layer_candidate", {"parallel__dp_attention": True}, "abstain"),
        ("calls_per_layer_candidate", {"parallel__ep": 8}, "abstain"),
        ("nccl_latency_model", {"link__kind": None}, "abstain"),
        ("compute_floor", {"gpu__memory_bandwidth_gb_s": 400.0}, "fail"),
        ("compute_floor", {"gpu__memory_bandwidth_gb_s": None}, "abstain"),
        ("accept_length", {"speculative__num_draft_tokens": 1}, "fail"),
    ],
)
def test_checks_fail_and_abstain(name: str, facts: dict[str, int | float | bool | None], state: str) -> None:
    found = checks(with_facts(sample("eagle3"), **facts))[name]
    assert found.state == state, found
    assert found.sentence


def test_without_a_trace_the_baseline_is_bounded_from_two_throughputs() -> None:
    found = checks(sample("eagle3"), log_only(sample("baseline")))["baseline_bound"]
    assert found.state == "abstain"
    assert "at most 80.7 us" in found.sentence


def test_the_verify_path_of_another_kind_is_told_apart() -> None:
    eagle = sample("eagle3")
    assert same_verify_path(eagle, sample("ngram")) is True
    assert same_verify_path(eagle, log_only(sample("ngram"))) is None
    attribution = sample("ngram").attribution
    assert attribution is not None
    custom = tuple(replace(c, kernel="cross_device_reduce_1stage") for c in attribution.collectives)
    other = replace(sample("ngram"), attribution=replace(attribution, collectives=custom))
    assert same_verify_path(eagle, other) is False


def test_a_server_without_a_gpu_is_not_told_to_use_graphs() -> None:
    from profkit.pipeline import analyse_path

    plan = make_plan(analyse_path(SAMPLES / "sglang-cpu-eagle-tp2", jobs=1, cache=False))
    closed = {r.lever.id for r in plan.levers if r.state == "closed"}
    assert {"cuda-graphs", "fabric-health", "pcie-ipc-allreduce", "torch-compile"} - closed <= {"fabric-health"}
    assert plan.verdict.bottleneck is not None
    assert plan.verdict.speculation_pays is None


QUANTITIES = st.floats(0.1, 1e4, allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(QUANTITIES, QUANTITIES, QUANTITIES)
def test_gates_on_measured_values_follow_their_bounds(value: float, low: float, high: float) -> None:
    lever: Lever = BY_ID["sampling-backend"]
    at = situation_with("accept_share", value)
    condition = replace_bounds(lever, min(low, high), max(low, high))
    found = next(g for g in evaluate(condition, at) if g.name == "accept_share")
    assert (found.state == "pass") == (min(low, high) <= value <= max(low, high))


STORY = situation()


def situation_with(name: str, value: float) -> Situation:
    return replace(STORY, measured={**STORY.measured, name: Quantity(value, "ratio", "measured", "test")})


def replace_bounds(lever: Lever, low: float, high: float) -> Lever:
    import msgspec

    condition = msgspec.structs.replace(lever.gate.measured[0], at_least=low, at_most=high)
    return msgspec.structs.replace(lever, gate=msgspec.structs.replace(lever.gate, measured=(condition,)))


def test_idle_time_that_goes_shortens_each_arm_by_its_own() -> None:
    gain = forecast("spec-overlap")
    assert gain.candidate_throughput.low == pytest.approx(situation().economics.throughput.require())
    eagle = sample("eagle3").attribution
    assert eagle is not None
    assert eagle.cycle is not None
    caused = dict.fromkeys(eagle.cycle.idle_causes_us, 0.0) | {"scheduler": 60.0, "unknown": 40.0}
    idle = {phase: dict(row) | {"idle": 0.0} for phase, row in eagle.cycle.parts_us.items()}
    idle["verify"]["idle"] = 0.2 * eagle.cycle.wall_us.mean
    cycle = replace(eagle.cycle, parts_us=idle, idle_causes_us=caused)
    run = replace(sample("eagle3"), attribution=replace(eagle, cycle=cycle))
    at = make_situation(run, sample("baseline"))
    gain = forecast("spec-overlap", at)
    now = at.economics.throughput.require()
    # 60 of 100 microseconds of idle time have a cause that overlap can remove: 12% of the cycle at best.
    assert gain.candidate_throughput.high == pytest.approx(now / (1 - 0.12))
    assert gain.candidate_throughput.value == pytest.approx(now / (1 - 0.06))


def test_what_nobody_has_measured_is_never_the_first_thing_to_try() -> None:
    bare = with_facts(
        log_only(sample("baseline")), gpu__sm=None, link__kind=None, parallel__tp=None, server_args__device=None
    )
    plan = make_plan(bare)
    assert plan.verdict.first_lever is None
    assert "nothing that these files support" in plan.verdict.sentences[1]


@pytest.mark.parametrize(
    ("low", "high", "words"), [("0.5.23", "0.5.23", "0.5.23"), ("0.5.9", "0.5.16", "0.5.9 to 0.5.16")]
)
def test_a_plan_of_a_log_alone_states_the_release_that_the_log_shows(low: str, high: str, words: str) -> None:
    bare = with_facts(
        log_only(sample("eagle3")), engine__version=None, engine__version_low=low, engine__version_high=high
    )
    text = document(make_plan(bare), names=["eagle3"])
    assert f"| engine version | {words} | inferred from test |" in text
    assert "engine version" not in text.partition("Not stated")[2].splitlines()[0]
    assert f"this is {words}" in text
    assert f"{low} to {low}" not in text
    # One release is as good as a stated one; of several, the exact one is still asked for.
    assert ("engine.version" in text) is (low != high)


def test_a_baseline_of_another_server_is_named() -> None:
    run = sample("eagle3")
    assert checks(run)["same_system"].state == "pass"
    other = checks(run, with_facts(sample("baseline"), parallel__tp=4, model__name="moonshotai/Kimi-K2"))["same_system"]
    assert other.state == "fail"
    assert "model moonshotai/Kimi-K2.5 here, moonshotai/Kimi-K2 in the baseline; TP 8 here, 4" in other.sentence
    folder = checks(run, with_facts(sample("baseline"), model__name="/models/Kimi-K2.5/"))["same_system"]
    assert folder.state == "pass"
    silent = replace(sample("baseline"), facts=Facts({}))
    assert checks(run, silent)["same_system"].state == "abstain"
    # The model's own files may quantise it, so an argument that one side leaves out is no difference yet.
    unsaid = checks(run, with_facts(sample("baseline"), model__quantization=None))["same_system"]
    assert unsaid.state == "abstain"
    assert "quantisation compressed-tensors is asked for here only" in unsaid.sentence
