"""Kernel rules: every example ends in its own rule; renamed and unknown kernels."""

from __future__ import annotations

import re
from typing import Any

import pytest

from profkit.attribution import kernels
from profkit.attribution.labels import dialect
from profkit.rules import load_rules

RULES: list[dict[str, Any]] = load_rules("kernels")["rule"]
EXAMPLES = [(rule, name) for rule in RULES for name in rule["examples"]]


@pytest.mark.parametrize(("rule", "name"), EXAMPLES, ids=[n[:60] for _, n in EXAMPLES])
def test_an_example_ends_in_its_own_rule(rule: dict[str, Any], name: str) -> None:
    first = next(r for r in RULES if re.search(r["pattern"], name))
    assert first is rule
    found = kernels.classify(name)
    assert (found.name, found.kind, found.implementation) == (
        rule["class"],
        rule.get("kind"),
        rule.get("implementation"),
    )


def test_rules_are_complete_and_consistent() -> None:
    for rule in RULES:
        assert rule["examples"], rule
        communicates = rule["class"].startswith("comm.")
        assert communicates == ("kind" in rule) == ("implementation" in rule), rule
        if communicates:
            assert rule["class"] == "comm." + rule["kind"].replace("_", ""), rule


@pytest.mark.parametrize(
    ("name", "activity"),
    [
        ("Memcpy HtoD (Pageable -> Device)", kernels.MEMORY),
        ("Memset (Device)", kernels.MEMORY),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", kernels.ALLREDUCE),
        ("cross_device_reduce_1stage", kernels.ALLREDUCE),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", kernels.COMM),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", kernels.COMM),
        ("nobody_knows_this", kernels.COMPUTE),
        ("", kernels.COMPUTE),
    ],
)
def test_activity(name: str, activity: int) -> None:
    assert kernels.classify(name).activity == activity


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>",
        "splitKreduce_kernel",
        "void cutlass::reduction::kernel::ReduceSplitK",
        "void cub::DeviceReduceSingleTileKernel",
        "paged_attention_ll4mi_reduce_kernel",
        "moe_sum_reduce_kernel",
    ],
)
def test_local_reductions_are_no_collectives(name: str) -> None:
    assert kernels.classify(name).kind is None


def test_a_category_stands_in_for_an_unknown_name() -> None:
    assert kernels.classify("odd copy", "gpu_memcpy").activity == kernels.MEMORY
    assert kernels.classify("odd fill", "gpu_memset").name == "memset"


@pytest.mark.parametrize(
    ("spelling", "kind"),
    [
        ("_allgather_base", "all_gather"),
        ("allreduce", "all_reduce"),
        ("nccl:_all_gather_base", "all_gather"),
        ("nccl:all_reduce", "all_reduce"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("wait", "unknown"),
    ],
)
def test_spellings_of_collectives(spelling: str, kind: str) -> None:
    assert kernels.collective_kind(spelling) == kind


PHASES = load_rules("phases")


@pytest.mark.parametrize(
    ("table", "key", "read"),
    [
        ("annotation", "span", lambda n: dialect.annotation_meaning(n).span),
        ("frame", "span", lambda n: dialect.frame_meaning(n).span),
        ("marker", "marker", dialect.marker_of),
    ],
)
def test_phase_examples_end_in_their_own_rule(table: str, key: str, read: Any) -> None:
    for rule in PHASES[table]:
        assert rule["examples"]
        for name in rule["examples"]:
            assert next(r for r in PHASES[table] if re.search(r["pattern"], name)) is rule, name
            assert read(name) == rule[key], name


@pytest.mark.parametrize(
    ("name", "batch", "prompts"),
    [
        ("step[DECODE bs=32]", 32, -1),
        ("step[VERIFY bs=2 g_sq=4 forward_id=9]", 2, -1),
        ("step[DRAFT_LOOP raw_bs=3 bs=4 topk=1]", 3, -1),
        ("execute_context_1(888_788544)_generation_0(0)", 0, 1),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk9)", 32, 0),
        ("step[VERIFY bs=99999999999999999999999]", 10**18 - 1, -1),
    ],
)
def test_numbers_in_annotations(name: str, batch: int, prompts: int) -> None:
    found = dialect.annotation_meaning(name)
    assert (found.batch, found.prompts) == (batch, prompts)
