"""The models, against published and derived figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.collectives import cost
from profkit.rules import load_rules
from profkit.run import Fact, Facts
from profkit.speculation import acceptance, economics, roofline

# --- acceptance ----------------------------------------------------------------------------------


def test_accept_length_of_a_chain() -> None:
    assert acceptance.from_constant(0.8, 5) == pytest.approx(3.6893, abs=5e-5)
    assert acceptance.from_constant(0.6, 4) == pytest.approx(2.3056, abs=5e-5)
    assert acceptance.from_unconditional([0.805, 0.632, 0.483]) == pytest.approx(2.92)
    assert pytest.approx(acceptance.from_unconditional([0.805, 0.632, 0.483]), abs=0.001) == 1 + 167 / 87
    # Leviathan's speedup E / (g c + 1), which takes a verify pass as one decode step.
    assert acceptance.from_constant(0.8, 5) / (5 * 0.05 + 1) == pytest.approx(2.9514, abs=5e-5)


@given(st.floats(0, 1), st.integers(1, 16))
def test_constant_rate_is_the_inverse(rate: float, drafts: int) -> None:
    found = acceptance.constant_rate(acceptance.from_constant(rate, drafts), drafts)
    assert found == pytest.approx(rate, abs=1e-6)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.integers(0, 12))
def test_the_range_at_another_depth_holds_for_every_chain(conditional: list[float], new: int) -> None:
    drafts = len(conditional)
    true = acceptance.from_conditional(conditional)
    answer = acceptance.at_other_depth(true, drafts, new)
    assert answer.low is not None
    assert answer.high is not None
    assert answer.low <= answer.require() <= answer.high
    if new <= drafts:
        cut = acceptance.from_conditional(conditional[:new])
        assert answer.low - 1e-9 <= cut <= answer.high + 1e-9
        reached, unconditional = 1.0, []
        for rate in conditional:
            reached *= rate
            unconditional.append(reached)
        assert acceptance.at_other_depth(true, drafts, new, unconditional).require() == pytest.approx(cut)


def test_what_is_no_chain_abstains() -> None:
    assert acceptance.at_other_depth(5.0, 3, 2).value is None
    with pytest.raises(ValueError, match="at least one"):
        acceptance.from_first([], 2)
    assert acceptance.constant_rate(5.0, 3) is None
    with pytest.raises(ValueError, match="between 0 and 1"):
        acceptance.from_conditional([1.2])


# --- economics -----------------------------------------------------------------------------------


def test_the_reference_story_in_formulas() -> None:
    base = 1000 / 82
    cycle = 1000 * 2.0 / 60
    assert economics.inflation(cycle, base) == pytest.approx(2.733, abs=5e-4)
    assert economics.speedup(2.0, economics.inflation(cycle, base)) == pytest.approx(0.732, abs=5e-4)
    assert economics.inflation(1000 * 1.5 / 52, base) == pytest.approx(2.365, abs=5e-4)
    assert economics.parity_allreduce_us(cycle, 2.0 * base, 25.0, 122) == pytest.approx(131.6, abs=0.2)
    assert pytest.approx(1.23) == 0.030 * 41


@pytest.mark.parametrize(
    ("before", "after", "ratio"),
    [
        (158.34, 244.10, 1.542),  # Llama-3.1-8B on H100, EAGLE-2
        (158.34, 373.25, 2.357),  # the same, EAGLE-3
        (35.02, 48.05, 1.372),  # PCIe-IPC all-reduce, throughput
        (13.62, 21.14, 1.552),  # the same, time per token
        (672, 895, 1.332),  # Kimi-K2.5 W4A8 on 8x MI325X
        (16.37, 14.57, 0.890),  # custom all-reduce, 70B on A100 TP4
        (16.32, 15.17, 0.930),  # all-reduce fusion on H200 TP8
    ],
)
def test_published_ratios(before: float, after: float, ratio: float) -> None:
    # Throughput per request is the inverse of the step, whichever was published.
    assert economics.inflation(after, before) == pytest.approx(ratio, abs=1e-3)


def test_published_cycle_inflation_of_the_run_that_won() -> None:
    # ITL of 27.98 ms without and of 11.75 ms per token with speculation at an accept length of 3.93.
    throughput = 27.41 / 42.73
    assert 3.93 * throughput == pytest.approx(2.52, abs=0.005)


def test_cost_of_one_draft_step_from_two_published_depths() -> None:
    assert pytest.approx(12.94, abs=0.005) == 1000 * 4.68 / 361.70
    assert pytest.approx(14.24, abs=0.005) == 1000 * 5.39 / 378.57
    assert pytest.approx(0.43, abs=0.005) == (14.24 - 12.94) / 3


# --- all-reduce ----------------------------------------------------------------------------------


def test_nccl_latencies_of_eight_ranks_on_pcie() -> None:
    found = {(x.algorithm, x.protocol): x.time_us for x in cost.nccl_latencies(8, "pcie")}
    assert found["ring", "LL"] == pytest.approx(20.6)
    assert found["ring", "Simple"] == pytest.approx(88.2)
    assert found["tree", "LL"] == pytest.approx(20.8)
    assert found["tree", "Simple"] == pytest.approx(64.4)
    model = cost.nccl_model(8, "pcie")
    assert (model.value, model.low, model.high) == pytest.approx((20.6, 20.6, 88.2))
    assert cost.nccl_model(8, "nvlink").require() < model.require()
    assert cost.nccl_model(None, "pcie").value is None
    assert cost.nccl_model(8, None).value is None
    with pytest.raises(ValueError, match="no entry"):
        cost.nccl_latencies(1, "pcie")


def test_nccl_latencies_follow_the_release() -> None:
    def table(version: str) -> dict[tuple[str, str], float]:
        return {(x.algorithm, x.protocol): x.time_us for x in cost.nccl_latencies(8, "pcie", version)}

    assert (
        table("2.28.9")
        == table("2.23.4")
        == {(x.algorithm, x.protocol): x.time_us for x in cost.nccl_latencies(8, "pcie")}
    )
    # Before 2.23 the tree's Simple figure was that of a 256 KiB chunk.
    assert ("tree", "Simple") not in table("2.22.3")
    assert table("2.22.3")["ring", "LL"] == pytest.approx(20.6)
    assert table("2.10.3")["ring", "LL"] == pytest.approx(3.6 + 14 * 1.0)
    assert cost.nccl_model(8, "pcie", "2.4.8").value is None
    assert "2.4.8" in cost.nccl_model(8, "pcie", "2.4.8").source
    assert cost.nccl_model(8, "pcie", "no version").value == pytest.approx(20.6)
    with pytest.raises(ValueError, match="no entry"):
        cost.nccl_latencies(8, "pcie", "2.4.8")


def test_bandwidths() -> None:
    assert cost.bus_bandwidth_factor(8) == 1.75
    # 4 rows of 7168 bf16 elements in 205 us.
    assert cost.bus_bandwidth_gb_s(4 * 7168 * 2, 205, 8) == pytest.approx(0.49, abs=0.001)
    # 100 MiB in 50.4 and 8.5 ms.
    assert pytest.approx(5.9, abs=0.05) == 50.4 / 8.5
    for size, nccl, ipc, ratio in [(12, 205.1, 5.3, 38.7), (96, 584.9, 15.3, 38.2), (384, 1169.3, 34.6, 33.8)]:
        assert nccl / ipc == pytest.approx(ratio, abs=0.05), size


def test_fits() -> None:
    fit = cost.fit_size_latency([(4096, 45.0), (65536, 344.0)], "two points")
    assert fit is not None
    assert (fit.alpha_us, fit.beta_us_per_kib) == pytest.approx((25.07, 4.983), abs=0.005)
    assert fit.residual_us is None
    assert cost.fit_size_latency([(4096, 45.0), (4096, 46.0)], "one size") is None
    assert cost.fit_size_latency([(4096, 45.0), (8192, 40.0)], "falling") is None


@given(st.floats(1, 300), st.floats(0.001, 10), st.lists(st.integers(1, 512), min_size=3, unique=True))
def test_a_fit_finds_the_line_it_was_given(alpha: float, beta: float, sizes: list[int]) -> None:
    line = cost.SizeLatency(alpha, beta, "truth")
    fit = cost.fit_size_latency([(s * 1024.0, line.at(s * 1024.0)) for s in sizes], "points")
    assert fit is not None
    assert fit.alpha_us == pytest.approx(alpha, rel=1e-6, abs=1e-6)
    assert fit.beta_us_per_kib == pytest.approx(beta, rel=1e-6)
    assert fit.residual_us == pytest.approx(0, abs=1e-6)


def test_a_fit_knows_how_sure_it_is() -> None:
    rng = np.random.default_rng(7)
    sizes = np.array([8, 16, 32, 64, 128, 256]) * 1024.0
    held = 0
    for _ in range(400):
        points = [(float(s), 30.0 + 0.8 * s / 1024 + float(rng.normal(0, 4))) for s in sizes]
        fit = cost.fit_size_latency(points, "noisy")
        assert fit is not None
        answer = fit.predict(48 * 1024)
        assert answer.low is not None
        assert answer.high is not None
        held += answer.low <= 30.0 + 0.8 * 48 <= answer.high
    # A 95 % interval holds the truth in 95 % of 400 trials, give or take three standard deviations.
    assert 0.917 <= held / 400 <= 0.983
    two = cost.fit_size_latency([(4096, 45.0), (65536, 344.0)], "two points")
    assert two is not None
    assert two.predict(8192).low is None
    assert "outside the measured sizes" in two.predict(1 << 20).source
    assert "outside" not in two.predict(8192).source


def test_a_curve_of_nccl_tests() -> None:
    rows = [("all_reduce_perf", 65536, 41.2), ("all_reduce_perf", 65536, 40.8), ("all_reduce_perf", 16384, 23.0),
            ("all_gather_perf", 16384, 1.0), ("all_reduce_perf", 0, 5.0), ("all_reduce_perf", 8, None)]  # fmt: skip
    curve = cost.curve_of_nccl_tests(rows, "file")
    assert curve is not None
    assert curve.points == ((16384.0, 23.0), (65536.0, 40.8))
    assert curve.at(1000) == 23.0
    assert curve.at(40960) == pytest.approx((23.0 + 40.8) / 2)
    assert curve.at(114688) == pytest.approx(40.8 + 17.8)
    assert cost.curve_of_nccl_tests([("all_gather_perf", 8, 1.0)], "file") is None


def test_reference_curves_name_their_host_and_stay_near_their_points() -> None:
    curves = cost.reference_curves()
    for entry in load_rules("hardware")["allreduce_curve"]:
        curve = curves[entry["id"]]
        assert entry["source"] in curve.source
        assert entry["host"] in curve.source
        for size, time in entry["points"]:
            # Published fits are coarse; a factor says that id, unit and points belong together.
            assert 0.5 < curve.at(size) / time < 1.5


# --- roofline ------------------------------------------------------------------------------------

KIMI = Facts(
    {
        key: Fact(value, "test")
        for key, value in {
            "model.dense_weight_bytes": 21.7e9,
            "model.experts": 384,
            "model.experts_per_token": 8,
            "model.moe_layers": 60,
            "model.hidden_size": 7168,
            "model.expert_intermediate_size": 2048,
            "model.weight_bytes": 0.5625,
            "gpu.count": 8,
            "gpu.memory_bandwidth_gb_s": 1792.0,
        }.items()
    }
)


@pytest.mark.parametrize(("tokens", "experts"), [(1, 8.0), (2, 15.83), (3, 23.5), (4, 31.01), (8, 59.52)])
def test_expert_coverage(tokens: int, experts: float) -> None:
    assert roofline.expert_coverage(384, 8, tokens) == pytest.approx(experts, abs=0.005)


@pytest.mark.parametrize(("rows", "floor"), [(1, 2.34), (2, 3.16), (3, 3.95), (4, 4.73), (5, 5.49), (8, 7.69)])
def test_floor_of_the_target_forward(rows: int, floor: float) -> None:
    assert roofline.forward_floor(KIMI, rows).require() == pytest.approx(floor, abs=0.006)


def test_roofline_names_what_is_missing() -> None:
    for key in KIMI:
        facts = Facts({k: v for k, v in KIMI.items() if k != key})
        answer = roofline.forward_floor(facts, 4)
        if key == "model.experts":
            assert answer.require() < roofline.forward_floor(KIMI, 4).require()
        else:
            assert answer.value is None
            assert key in answer.source


def test_bound_on_the_baselines_all_reduce() -> None:
    step, calls = 12.195, 122
    assert (step - roofline.forward_floor(KIMI, 1).require()) / calls * 1e3 == pytest.approx(80.7, abs=0.1)
    assert step / calls * 1e3 == pytest.approx(100.0, abs=0.1)
