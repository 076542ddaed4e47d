"""Why the GPU waited, what unnamed collectives are, and findings that warn about the attribution itself."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.attribution import Attribution, attribute
from profkit.attribution.idle import CAUSES
from profkit.run import Fact, Facts
from profkit.simulation.modes import mode_scenarios
from tests.attribution_modes import attributed, record, scenario
from tests.attribution_tables import decode_steps, trace

GENERIC = "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"
LAYER = [("flash_fwd_kernel", 0, 100), ("nvjet_gemm", 100, 100)]
SIMULATED = mode_scenarios()


def causes(found: Attribution) -> dict[str, float]:
    assert found.cycle is not None
    return dict(found.cycle.idle_causes_us)


def facts(**values: str | int | bool) -> Facts:
    return Facts({k.replace("__", "."): Fact(v, "test") for k, v in values.items()})


# --- idle ---------------------------------------------------------------------------------------------


def main_cause(found: Attribution) -> str:
    return max(causes(found), key=lambda c: causes(found)[c])


@pytest.mark.parametrize(("mode", "cause"), [("eagle3_v2_launch_bound", "launch"), ("plain_eager", "kernel_gaps")])
def test_what_the_gpu_waits_for(mode: str, cause: str) -> None:
    traces, _ = record(SIMULATED[mode])
    found = attribute(traces)
    assert main_cause(found) == cause
    assert any(f.kind == "idle" for f in found.findings)


def test_a_host_that_waits_for_the_gpu_is_named() -> None:
    found, _ = attributed(scenario({"worker": "v1", "overlap": False}, {"dialect": "0.5.11"}))
    assert main_cause(found) == "host_sync"


def test_causes_of_one_gap_by_hand() -> None:
    # Step 1 ends at 200 + base; step 2's first launch is called 700 ns later and starts 50 ns after that.
    one = decode_steps(4, LAYER, period=1000)
    found = attribute([trace(**one)])
    assert found.cycle is not None
    assert found.cycle.parts_us["decode"]["idle"] == pytest.approx(0.8)
    # The host called at 950 of the period: 750 ns late, then 50 ns of latency.
    assert causes(found)["scheduler"] == pytest.approx(0.75)
    assert causes(found)["launch"] == pytest.approx(0.05)
    waited = [("cudaStreamSynchronize", 1000 + step * 1000 + 150, 600) for step in range(4)]
    synchronised = attribute([trace(**one, calls=waited)])
    assert causes(synchronised)["host_sync"] == pytest.approx(0.75)


def test_a_kernel_that_waits_for_another_stream_is_a_dependency() -> None:
    kernels = [("flash_fwd_kernel", 0, 100, -10), ("nvjet_gemm", 50_000, 100, -5)]
    many = [(n, s + i * 100_000, d, t + i * 100_000) for i in range(4) for n, s, d, t in kernels]
    spans = [("step[DECODE bs=1]", i * 100_000 - 20, 30) for i in range(4)]
    found = attribute([trace(many, spans)])
    assert causes(found)["dependency"] == pytest.approx(49.9)


@pytest.mark.parametrize("mode", ["eagle3_v2", "eagle_v1", "ngram", "plain"])
def test_causes_add_up_to_the_idle_time(mode: str) -> None:
    traces, _ = record(SIMULATED[mode])
    found = attribute(traces)
    assert found.cycle is not None
    assert set(causes(found)) == set(CAUSES)
    assert sum(causes(found).values()) == pytest.approx(found.cycle.headline_us["idle"] or 0.0)


# --- collectives without a name -----------------------------------------------------------------------


def reduce_steps() -> dict[str, Any]:
    return decode_steps(3, [*LAYER, (GENERIC, 200, 300)], period=2000)


def test_a_generic_kernel_is_comm_until_something_tells() -> None:
    found = attribute([trace(**reduce_steps())])
    assert found.cycle is not None
    assert found.cycle.headline_us["other_comm"] == pytest.approx(0.3)
    assert any(f.kind == "collective_kind_unknown" for f in found.findings)


def test_the_enclosing_annotation_tells() -> None:
    steps = reduce_steps()
    spans = [*steps["spans"]]
    spans += [("nccl:all_reduce", s + 12, 10) for _, s, _ in spans]
    found = attribute([trace(steps["kernels"], spans)])
    assert found.cycle is not None
    assert found.cycle.headline_us["allreduce"] == pytest.approx(0.3)
    assert {c.implementation for c in found.collectives} == {"rccl"}
    assert not any(f.kind == "collective_kind_unknown" for f in found.findings)


def test_arguments_tell_kind_and_size() -> None:
    arguments = [
        {"gpu_op": row, "name": "allreduce", "dtype": "BFloat16", "in_elements": 4096, "out_elements": 4096,
         "group_size": 8}
        for row in (2, 5, 8)
    ]  # fmt: skip
    found = attribute([trace(**reduce_steps(), collectives=arguments)])
    row = next(c for c in found.collectives if c.kind == "all_reduce")
    assert row.message_bytes == 8192
    assert row.bus_bandwidth_gb_s is None  # one rank knows no transfer time


# --- findings -----------------------------------------------------------------------------------------


def kinds(found: Attribution) -> set[str]:
    return {f.kind for f in found.findings}


def test_unknown_kernels_raise_an_alarm_above_two_percent() -> None:
    loud = attribute([trace(**decode_steps(3, [*LAYER, ("zzz_secret", 200, 10)], period=1000))])
    finding = next(f for f in loud.findings if f.kind == "unknown_kernels")
    assert "zzz_secret" in finding.sentence
    assert finding.numbers["share"] == pytest.approx(10 / 210)
    assert finding.sentence in loud.warnings
    quiet = attribute([trace(**decode_steps(3, [*LAYER, ("zzz_secret", 200, 3)], period=1000))])
    assert "unknown_kernels" not in kinds(quiet)


@pytest.mark.parametrize(
    ("layers", "known", "kind"),
    [
        (10, {}, "allreduce_count_fits"),
        (12, {}, "allreduce_count_odd"),
        (12, {"parallel__dp_attention": True}, None),
        (12, {"parallel__ep": 2}, None),
        (None, {}, None),
    ],
)
def test_all_reduces_are_checked_against_the_layers(
    layers: int | None, known: dict[str, int | bool], kind: str | None
) -> None:
    traces, _ = record(scenario())
    given = {**known} if layers is None else {"model__layers": layers, **known}
    found = attribute(traces, facts=facts(**given))
    assert {k for k in kinds(found) if k.startswith("allreduce_count")} == ({kind} if kind else set())


def test_the_embedding_all_reduce_fits_too() -> None:
    traces, _ = record(scenario({"embedding_allreduce": True}))
    finding = next(f for f in attribute(traces, facts=facts(model__layers=10)).findings if "count" in f.kind)
    assert (finding.kind, finding.numbers["allreduces"]) == ("allreduce_count_fits", 21)


def test_sizes_need_every_factor() -> None:
    traces, _ = record(scenario())
    whole = facts(model__hidden_size=7168, model__activation_bytes=2, speculative__num_draft_tokens=4)
    sizes = {c.phase: c.message_bytes for c in attribute(traces, facts=whole).collectives if c.kind == "all_reduce"}
    assert sizes == {"draft": None, "verify": 4 * 7168 * 2, "draft_extend": None}
    for missing in whole:
        part = Facts({k: v for k, v in whole.facts.items() if k != missing})
        assert {c.message_bytes for c in attribute(traces, facts=part).collectives} == {None}
    spread = Facts({**whole.facts, "parallel.dp_attention": Fact(True, "test")})
    assert {c.message_bytes for c in attribute(traces, facts=spread).collectives} == {None}


@pytest.mark.parametrize(("step_ms", "severity"), [(None, None), (1.0, "warning")])
def test_the_log_checks_the_cycle(step_ms: float | None, severity: str | None) -> None:
    traces, _ = record(scenario())
    findings = [f for f in attribute(traces, log_step_ms=step_ms).findings if f.kind == "trace_to_log"]
    assert [f.severity for f in findings] == ([severity] if severity else [])


def test_idle_in_a_recording_with_stacks_is_not_trusted() -> None:
    slow = decode_steps(4, LAYER, period=1000)
    assert "profiler_idle" in kinds(attribute([trace(**slow, python_frames=True)]))
    assert "profiler_idle" not in kinds(attribute([trace(**slow)]))


def test_what_nothing_labels_stays_visible_and_makes_phases_unknown() -> None:
    # Half of the GPU's time was launched from a thread without annotations, in a trace without launches for it.
    steps = decode_steps(4, [*LAYER, ("mystery", 300, 200)], period=1000)
    one = trace(**steps)
    keep = [i for i, (n, *_) in enumerate(steps["kernels"]) if n != "mystery"]
    bare = trace(**steps, streams=[7 if i in keep else 9 for i in range(len(steps["kernels"]))])
    found = attribute([one])
    assert found.ranks[0].labelled_by["none"] == 0.0
    # On another stream it is the scheduler's or nobody's, never the forward's by accident.
    other = attribute([bare])
    assert (other.ranks[0].parts_ns["decode"]["compute"] or 0) >= 3 * 200
