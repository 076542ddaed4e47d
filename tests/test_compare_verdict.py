"""Verdicts, the gate on what differs, loads, kernels, and conditions that fail a build."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files

import jsonschema
import pytest

from profkit.comparison import metrics
from profkit.comparison.checks import failures, parse_fail_on, undecided
from profkit.comparison.fingerprint import Difference, Scalar, cause_class, differences, fingerprint
from profkit.comparison.kernels import KernelRow, kernel_changes
from profkit.comparison.launch import Launch, launch_of
from profkit.comparison.metrics import Measurement, metric_kind
from profkit.comparison.result import Settings
from profkit.comparison.verdict import compare
from profkit.errors import UsageError
from profkit.jsonio import dumps
from profkit.reports.compare import difference_line
from profkit.rules import load_rules
from profkit.run import Fact, Facts
from profkit.words import Activity, Phase
from tests.store_data import PARTS_US, analysis, noisy

SLOWER: dict[Phase, dict[Activity, float]] = {
    "draft": PARTS_US["draft"],
    "verify": {**PARTS_US["verify"], "allreduce": 27000.0},
}


def side(
    level: float,
    seed: int,
    n: int = 6,
    *,
    noise: float = 0.01,
    facts: Mapping[str, Scalar] | None = None,
    parts_us: Mapping[Phase, Mapping[Activity, float]] | None = None,
    running_req: int = 1,
    accept_len: float = 2.0,
) -> list[Launch]:
    """``n`` launches around ``level`` whose cycle budgets wobble a little."""
    launches = []
    for i, value in enumerate(noisy(level, n, noise=noise, seed=seed)):
        parts = parts_us and {p: {a: us * (1 + 0.002 * i) for a, us in c.items()} for p, c in parts_us.items()}
        run = analysis(
            f"{seed}-{i}", value, facts=facts, parts_us=parts, running_req=running_req, accept_len=accept_len
        )
        launches.append(launch_of(run))
    return launches


def test_a_slowdown_is_found_and_placed() -> None:
    result = compare(side(60, 1, parts_us=PARTS_US), side(57, 2, parts_us=SLOWER))
    assert (result.comparable, result.verdict) == (True, "worse")
    primary = result.metric("throughput")
    assert primary is not None
    assert primary.change == pytest.approx(-0.05, abs=0.015)
    assert primary.interval is not None
    assert primary.interval.low < primary.interval.high < -0.02
    assert (primary.base.n, primary.effect_size) == (6, -1.0)
    assert [m.name for m in result.moved] == ["verify.allreduce"]
    per_call = result.metric("allreduce_per_call")
    assert per_call is not None
    assert (per_call.verdict, per_call.role) == ("worse", "secondary")
    assert per_call.base.median == pytest.approx(25000 * 1.005 / 122)
    cell = result.metric("verify.compute")
    assert cell is not None
    assert cell.verdict == "no_change"


def test_direction_belongs_to_the_metric() -> None:
    result = compare(side(60, 1), side(63.5, 2))
    assert result.verdict == "better"
    step = result.metric("step_time")
    assert step is not None
    assert step.change is not None
    assert step.change < 0
    assert step.verdict == "better"


def test_secondary_p_values_are_adjusted_within_their_family() -> None:
    result = compare(side(60, 1, parts_us=PARTS_US), side(57, 2, parts_us=SLOWER))
    for metric in result.metrics:
        assert metric.p is not None
        assert metric.p_adjusted is not None
        assert metric.p_adjusted >= metric.p
        if metric.role == "primary":
            assert metric.p_adjusted == metric.p
    serving = result.metric("step_time")
    trace = result.metric("verify.allreduce")
    assert serving is not None
    assert trace is not None
    # Alone in its family (the others are constant) against one of nine.
    assert serving.p_adjusted == serving.p
    assert trace.p_adjusted == pytest.approx(trace.p and 10 * trace.p, rel=0.2)


@pytest.mark.parametrize("n", [1, 3])
def test_too_few_launches(n: int) -> None:
    result = compare(side(60, 1, n), side(30, 2, 6))
    assert result.verdict == "cannot_say"
    metric = result.metric("throughput")
    assert metric is not None
    assert metric.p is None
    assert f"base: {n} server launch" in metric.why
    assert metric.base.within is not None, "the spread inside launches is shown as description"


def test_copies_of_a_run_are_one_launch() -> None:
    one = side(60, 1, 1)
    result = compare(one * 6, side(50, 2, 6))
    assert result.verdict == "cannot_say"
    assert "5 copies" in result.warnings[0]
    both = side(60, 1)
    assert any("both sides" in w for w in compare(both, both).warnings)


def test_a_real_but_small_difference_is_no_change() -> None:
    result = compare(side(60, 1, 10, noise=0.001), side(59.4, 2, 10, noise=0.001))
    metric = result.metric("throughput")
    assert metric is not None
    assert metric.p is not None
    assert metric.p < 0.001
    assert (metric.verdict, metric.why) == (
        "no_change",
        f"a difference of {abs(metric.change or 0):.1%} is real but below 3%",
    )
    smaller = compare(side(60, 1, 10, noise=0.001), side(59.4, 2, 10, noise=0.001), Settings(min_effect=0.005))
    assert smaller.verdict == "worse"


def test_different_loads_are_not_compared() -> None:
    result = compare(side(60, 1, running_req=1), side(400, 2, running_req=8))
    metric = result.metric("throughput")
    assert metric is not None
    assert (metric.verdict, metric.base.n) == ("cannot_say", 0)
    assert "share no load" in metric.why


def test_the_commonest_shared_load_is_used() -> None:
    def launch(name: str, loads: Mapping[int, tuple[float, int]]) -> Launch:
        rows = tuple(Measurement("throughput", v, "tok/s", load, n) for load, (v, n) in loads.items())
        return Launch(name, rows, {})

    base = [launch(f"b{i}", {1: (60.0 + i, 5), 8: (300.0 + i, 50), 16: (500.0, 90)}) for i in range(4)]
    candidate = [launch(f"c{i}", {1: (60.0 + i, 5), 8: (200.0 + i, 50)}) for i in range(4)]
    metric = compare(base, candidate).metric("throughput")
    assert metric is not None
    assert (metric.running_req, metric.base.median, metric.verdict) == (8, 301.5, "worse")


@pytest.mark.parametrize(("usages", "warned"), [((0.10, 0.11), False), ((0.10, 0.30), True), ((0.01, 0.04), False)])
def test_other_context_lengths_are_named(usages: tuple[float, float], warned: bool) -> None:
    def launches(usage: float, seed: int) -> list[Launch]:
        return [
            Launch(
                f"{usage}-{i}",
                (Measurement("throughput", v, "tok/s", 1, 40), Measurement("token_usage", usage, "share", 1, 40)),
                {},
            )
            for i, v in enumerate(noisy(60.0, 5, noise=0.01, seed=seed))
        ]

    result = compare(launches(usages[0], 1), launches(usages[1], 2))
    assert any("KV cache usage" in w for w in result.warnings) == warned
    assert result.metric("token_usage") is None


def test_an_environment_that_differs_blocks_unless_expected() -> None:
    base, candidate = (
        side(60, 1),
        side(50, 2, facts={"driver.version": "590.1", "server_args.attention_backend": "fa3"}),
    )
    blocked = compare(base, candidate)
    assert (blocked.comparable, blocked.verdict) == (False, "cannot_say")
    metric = blocked.metric("throughput")
    assert metric is not None
    assert metric.p is not None
    assert "else: worse" in metric.why
    states = {d.key: d.state for d in blocked.differences}
    assert states == {"driver.version": "blocking", "server_args.attention_backend": "listed"}
    named = compare(base, candidate, Settings(expect=("driver.*",)))
    assert not named.comparable, "whoever names a change wants to hear of the others"
    both = compare(base, candidate, Settings(expect=("driver.version", "server_args.*")))
    assert (both.comparable, both.verdict) == (True, "worse")
    nothing = compare(base, side(60, 3), Settings(expect=("driver.version",)))
    assert "driver.version was expected to differ and does not" in nothing.warnings


def test_repeats_that_differ_among_themselves_are_no_repeats() -> None:
    mixed = side(60, 1, 3) + side(60, 2, 3, facts={"server_args.attention_backend": "fa3"})
    result = compare(mixed, side(60, 3))
    assert not result.comparable
    assert result.differences[0].base == ("fa3", "flashinfer")


def test_what_one_side_does_not_state_is_unknown_not_different() -> None:
    result = compare(side(60, 1), side(57, 2, facts={"host.kernel": "6.8"}))
    assert [(d.key, d.state, d.base) for d in result.differences] == [("host.kernel", "unknown", (None,))]
    assert (result.comparable, result.verdict) == (True, "worse")


def test_fingerprint_keeps_what_matters() -> None:
    facts = Facts(
        {
            "model.name": Fact("/data/a/Kimi/", "x"),
            "server_args.tp_size": Fact(8, "x"),
            "parallel.tp": Fact(8, "x"),
            "server_args.port": Fact(1, "x"),
            "server_args.log_level": Fact("info", "x"),
            "server_args.mem_fraction_static": Fact(0.9, "x"),
            "model.layers": Fact(61, "x"),
        }
    )
    assert fingerprint(facts, {"dataset": "gsm8k", "note": "x"}) == {
        "labels.dataset": "gsm8k",
        "model.name": "Kimi",
        "parallel.tp": 8,
        "server_args.mem_fraction_static": 0.9,
    }


def test_differences_come_by_class_and_name() -> None:
    found = differences(
        [{"server_args.a": 1, "driver.version": "1", "model.name": "x", "engine.version": "1"}],
        [{"server_args.a": 2, "driver.version": "2", "model.name": "y", "engine.version": "2"}],
    )
    assert [d.cause for d in found] == ["workload", "environment", "code", "config"]


def test_every_rule_matches_its_examples() -> None:
    for rule in load_rules("metrics")["metric"]:
        for example in rule["examples"]:
            kind = metric_kind(example)
            assert kind is not None
            assert (kind.better, kind.unit, kind.family) == (rule["better"], rule.get("unit"), rule["family"]), example
    for rule in load_rules("fingerprint")["key"]:
        for example in rule["examples"]:
            assert cause_class(example) == rule["class"], example
    assert metric_kind("bench.std_ttft") is None
    assert metric_kind("bench.max_concurrency") is None
    assert metrics.DEFAULT_PRIMARY == "throughput"


def rows(**kernels: tuple[float, float]) -> list[KernelRow]:
    return [KernelRow("verify", name, None, calls, us) for name, (calls, us) in kernels.items()]


def test_kernel_classes_that_appear_vanish_and_change() -> None:
    base = [rows(nccl=(122.0, 25000.0), gemm=(244.0, 4000.0), norm=(122.0, 300.0), tiny=(1.0, 1.0))] * 4
    candidate = [rows(custom=(122.0, 3000.0), gemm=(244.0, 4100.0), norm=(60.0, 290.0), tiny=(9.0, 1.0))] * 4
    found = {(c.kernel_class, c.change) for c in kernel_changes(base, candidate)}
    assert found == {("nccl", "vanished"), ("custom", "appeared"), ("norm", "changed")}
    assert kernel_changes(base, [])[:1] == ()
    # A class that ran in some launches only is no statement about the side.
    assert all(c.kernel_class != "new" for c in kernel_changes(base, [*base[:3], rows(new=(1.0, 9000.0))]))


def test_kernels_at_different_batch_sizes_are_not_compared() -> None:
    base = [[KernelRow("verify", "gemm", None, 1.0, 100.0, 1)]]
    candidate = [[KernelRow("verify", "gemm", None, 1.0, 900.0, 8)]]
    assert kernel_changes(base, candidate) == ()
    sides = [[Launch(str(i), (), {}, kernels=tuple(rows))] for i, (rows,) in enumerate((base, candidate))]
    assert any("different batch sizes" in w for w in compare(sides[0], sides[1]).warnings)


def test_traces_alone_are_judged_by_their_cycle() -> None:
    def traced(us: float, i: int) -> Launch:
        return Launch(f"{us}-{i}", (Measurement("cycle_wall", us * (1 + 0.001 * i), "us", 1, 30),), {})

    base, candidate = [traced(1000.0, i) for i in range(5)], [traced(1100.0, i) for i in range(5)]
    result = compare(base, candidate)
    assert (result.primary, result.verdict) == ("cycle_wall", "worse")
    assert "the verdict is about cycle_wall" in result.warnings[0]
    named = compare(base, candidate, Settings(fallback=None))
    assert (named.primary, named.verdict) == ("throughput", "cannot_say")


def test_the_release_counts_as_engine_version_and_notes_of_the_server_do_not_count() -> None:
    arguments: dict[str, Scalar] = {
        "version": "0.5.16",
        "_x_explicitly_set": True,
        "launch_command": "python -m x",
        "port": 1,
    }
    facts = Facts({f"server_args.{k}": Fact(v, "server_args.json") for k, v in arguments.items()})
    assert fingerprint(facts, {}) == {"engine.version": "0.5.16"}


def test_a_comparison_as_a_table() -> None:
    frame = compare(side(60, 1), side(57, 2)).to_pandas().set_index("name")
    assert frame.loc["throughput", "verdict"] == "worse"
    assert frame.loc["throughput", "base_n"] == 6
    assert frame["change_percent"].notna().all()


def test_kernels_of_a_trace() -> None:
    launch = launch_of(analysis("a", 60.0, traced=True))
    top = launch.kernels[0]
    assert (top.phase, top.kernel_class, top.implementation) == ("verify", "comm.allreduce", "nccl")
    assert (top.calls_per_cycle, top.us_per_cycle) == (1.0, 25000.0)


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("worse", True),
        ("worse:throughput:3%", True),
        ("worse:throughput:4.5%", True),
        ("worse:throughput:30%", False),
        ("worse:accept_len", False),
        ("worse:step_time:3%", True),
        ("cannot_say", False),
        ("cannot_say:bench.median_ttft", True),
        ("worse:bench.median_ttft", False),
    ],
)
def test_conditions_that_fail_a_build(text: str, fails: bool) -> None:
    result = compare(side(60, 1), side(57, 2))
    assert bool(failures(result, [parse_fail_on(text)])) == fails


def test_no_verdict_does_not_fail_a_build_unless_asked() -> None:
    result = compare(side(60, 1, 2), side(30, 2, 2))
    assert failures(result, [parse_fail_on("worse")]) == []
    assert "2 server launches" in undecided(result, [parse_fail_on("worse")])[0]
    assert failures(result, [parse_fail_on("cannot_say")]) != []


@pytest.mark.parametrize(
    "text", ["better", "worse:", "worse:throughput:3", "worse:speedyness", "cannot_say:throughput:3%"]
)
def test_conditions_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="--fail-on"):
        parse_fail_on(text)


def test_benchmark_results_keep_their_load() -> None:
    def bench(concurrency: int, ttft: float, tool: str = "bench_serving") -> dict[str, object]:
        figures = {"max_concurrency": concurrency, "median_ttft": ttft, "std_ttft": 1.0, "dataset_name": "random"}
        return {"file": "bench.jsonl", "line": 1, "tool": tool, "figures": figures}

    run = analysis("a", 60.0)
    assert run.log is not None
    results = (bench(1, 100.0), bench(16, 900.0), bench(16, 1100.0), bench(1, 5.0, "bench_speculative"))
    object.__setattr__(run.log, "bench", results)
    found = [m for m in launch_of(run).measurements if m.name.startswith("bench.")]
    assert [(m.name, m.running_req, m.value, m.unit) for m in found] == [
        ("bench.median_ttft", 1, 100.0, "ms"),
        ("bench.median_ttft", 16, 1000.0, "ms"),
    ]


def test_the_document_keeps_its_contract() -> None:
    schema = json.loads(files("profkit.schemas").joinpath("compare.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    for result in (
        compare(side(60, 1, parts_us=PARTS_US), side(57, 2, parts_us=SLOWER)),
        compare(side(60, 1, 1), side(57, 2, facts={"driver.version": "x"})),
        compare([Launch("a", (), {})], [Launch("b", (), {})]),
    ):
        document = json.loads(dumps(result))
        jsonschema.validate(document, schema)
        assert dumps(result) == dumps(result)
    assert document["verdict"] == "cannot_say"


def test_empty_sides_and_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one launch"):
        compare([], side(60, 1))
    for alpha, min_effect in ((0.0, 0.03), (1.5, 0.03), (0.05, -0.1)):
        with pytest.raises(ValueError, match=r"level|effects"):
            Settings(alpha=alpha, min_effect=min_effect)
    with pytest.raises(ValueError, match="direction"):
        compare(side(60, 1), side(60, 2), Settings(primary="speedyness"))


def test_launches_that_differ_within_each_side_are_not_called_a_difference_of_the_sides() -> None:
    mixed: tuple[Scalar | None, ...] = ("EAGLE3", "NGRAM", "none")
    line = difference_line(Difference("speculative.algorithm", "config", mixed, mixed[::-1], "blocking"))
    assert line == (
        "speculative.algorithm: EAGLE3 / NGRAM / none within each side (config; launches of one side are no repeats)"
    )
    some: tuple[Scalar | None, ...] = (None, 48)
    line = difference_line(Difference("server_args.max_running_requests", "config", some, some, "unknown"))
    assert line.endswith("not stated / 48 within each side (config; not every launch states it)")
    line = difference_line(Difference("driver.version", "environment", ("580",), ("590",), "blocking"))
    assert line == "driver.version: 580 → 590 (environment; not expected: makes the sides incomparable)"
