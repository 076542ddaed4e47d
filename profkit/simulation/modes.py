"""Small scenarios, one per way in which SGLang and vLLM decode, for tests of everything that reads their files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from profkit.simulation.scenario import Drafter, Hardware, Model, Recording, Scenario, Serving

_SMALL = Model(
    name="test/small-moe", architecture="DeepseekV3ForCausalLM", layers=8, moe_layers=7, hidden_size=2048,
    experts=64, experts_per_token=4, expert_intermediate_size=512, vocabulary=32768, dense_weight_bytes=2.4e9,
    context_length=32768,
)  # fmt: skip
_MACHINE = Hardware(
    dense_compute_us=640.0, expert_compute_us=30.0, allreduce_alpha_us=21.0, allreduce_us_per_kib=1.1,
    allgather_alpha_us=14.0, allgather_us_per_kib=0.1, rank_slowdown=(1.0, 1.05, 0.99, 1.01),
    clock_offset_us=(0.0, 41.0, -17.5, 8.2),
)  # fmt: skip
_DRAFTER = Drafter(
    model="test/drafter", vocabulary=32768, forward_compute_us=120.0, extend_compute_us=170.0,
    conditional_acceptance=(0.7, 0.6, 0.5),
)  # fmt: skip
_EAGLE = Serving(algorithm="EAGLE3", num_steps=3, num_draft_tokens=4)
_BASE = Scenario(
    name="small", config="small", ranks=4, model=_SMALL, hardware=_MACHINE, drafter=_DRAFTER, serving=_EAGLE,
    recording=Recording(cycles=5, log_lines=12, log_cycles=12),
)  # fmt: skip


def _scenario(name: str, **changes: Any) -> Scenario:
    """The base with changed fields of its parts, named ``part__field``."""
    parts: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        part, _, field = key.partition("__")
        parts.setdefault(part, {})[field] = value
    made = replace(_BASE, name=name, config=name)
    for part, fields in parts.items():
        made = replace(made, **{part: replace(getattr(made, part), **fields)})
    return made


def mode_scenarios() -> dict[str, Scenario]:
    """Every mode by name; each differs from ``eagle3_v2`` or ``plain`` in what its name says."""
    plain = {"serving__algorithm": "none", "serving__num_steps": 0, "serving__num_draft_tokens": 0,
             "drafter__model": None}  # fmt: skip
    v1 = {"serving__worker": "v1", "serving__overlap": False, "recording__dialect": "0.5.11",
          "recording__engine_version": "0.5.12"}  # fmt: skip
    dspark = {"serving__algorithm": "DSPARK", "serving__num_steps": 3, "drafter__layers": 3}
    none = {"recording__dialect": "none", "recording__engine_version": "0.5.9"}
    made = [
        _scenario("plain", **plain),
        _scenario("plain_eager", **plain, serving__target_graph=False, hardware__launch_us=7.0),
        _scenario("plain_no_overlap", **plain, serving__overlap=False),
        _scenario("plain_none", **plain, **none),
        _scenario("plain_0_5_3", **plain, recording__dialect="none", recording__engine_version="0.5.3"),
        _scenario("plain_prefill", **plain, serving__prefill_before=(5,)),
        _scenario("plain_batches", **plain, serving__batch_sizes=(1, 1, 2, 1)),
        _scenario("eagle3_v2"),
        _scenario("eagle3_v2_11", recording__dialect="0.5.11", recording__engine_version="0.5.12"),
        _scenario("eagle3_v2_20", recording__dialect="0.5.20", recording__engine_version="0.5.23"),
        _scenario("eagle3_v2_none", recording__dialect="none", recording__engine_version="0.5.9"),
        _scenario("eagle3_v2_eager_draft", serving__draft_graph=False),
        _scenario("eagle3_v2_eager_extend", serving__extend_graph=False),
        _scenario("eagle3_v2_eager_extend_11", serving__extend_graph=False, recording__dialect="0.5.11",
                  recording__engine_version="0.5.12"),
        _scenario("eagle3_v2_eager_extend_20", serving__extend_graph=False, recording__dialect="0.5.20",
                  recording__engine_version="0.5.23"),
        _scenario("eagle3_v2_eager_all", serving__draft_graph=False, serving__extend_graph=False,
                  serving__target_graph=False),
        _scenario("eagle3_v2_no_overlap", serving__overlap=False),
        _scenario("eagle3_v2_step1", serving__num_steps=1, serving__num_draft_tokens=2,
                  drafter__conditional_acceptance=(0.7,)),
        _scenario("eagle3_v2_step5", serving__num_steps=5, serving__num_draft_tokens=6,
                  drafter__conditional_acceptance=(0.8, 0.7, 0.6, 0.6, 0.5)),
        _scenario("eagle3_v2_prefill", serving__prefill_before=(5,)),
        _scenario("eagle3_v2_batches", serving__batch_sizes=(1, 2, 2, 1)),
        _scenario("eagle3_v2_skew", recording__start_skew_cycles=(0, 1, 0, 2), recording__cycles=6),
        _scenario("eagle3_v2_far_clocks", hardware__clock_offset_us=(0.0, 37.5, -8214.25, -8190.0)),
        _scenario("eagle3_v2_side_stream", serving__side_stream=True),
        _scenario("eagle3_v2_comm_overlap", serving__comm_overlap=True),
        _scenario("eagle3_v2_adaptive", serving__adaptive_steps=(3, 3, 2, 4), recording__cycles=8,
                  drafter__conditional_acceptance=(0.7, 0.6, 0.5, 0.5)),
        _scenario("eagle3_v2_profiled", recording__op_overhead_ns=450.0),
        _scenario("eagle3_v2_pause", serving__overlap=False, hardware__pauses=((4, 2, 3500.0),)),
        _scenario("eagle3_v2_pdl", hardware__pdl_early_ns=1600.0),
        _scenario("eagle3_v2_launch_bound", hardware__graph_launch_us=2600.0, hardware__host_speed=1.5),
        _scenario("eagle3_v2_frames", recording__dialect="none", recording__python_stacks=True,
                  recording__engine_version="0.5.9", recording__stack_slowdown=3.0),
        _scenario("eagle3_v2_gpu_annotations", recording__evidence="gpu_annotations"),
        _scenario("eagle3_v2_frames_late", recording__dialect="none", recording__python_stacks=True,
                  recording__stack_slowdown=2.0, recording__engine_version="0.5.23"),
        _scenario("eagle3_v2_detailed", recording__dialect="0.5.20", recording__detailed=True,
                  recording__engine_version="0.5.23", serving__draft_graph=False, serving__extend_graph=False),
        _scenario("eagle3_v2_launches", recording__evidence="launches"),
        _scenario("eagle3_v2_markers", recording__evidence="markers"),
        _scenario("eagle3_v2_no_graph_ids", recording__graph_ids=False),
        _scenario("eagle3_v2_merged", recording__merged=True),
        _scenario("eagle3_v2_flows", recording__flows=True),
        _scenario("eagle3_v2_arguments", serving__target_graph=False, recording__collective_arguments=True),
        _scenario("eagle3_v2_embedding", serving__embedding_allreduce=True),
        _scenario("eagle3_v2_custom", hardware__collective="custom", hardware__link="nvlink"),
        _scenario("eagle3_v2_fused", hardware__collective="flashinfer_fused", hardware__pdl_early_ns=1200.0),
        _scenario("eagle3_v2_pcie_ipc", hardware__collective="pcie_ipc"),
        _scenario("eagle3_v2_multimem", hardware__collective="multimem", hardware__link="nvlink"),
        _scenario("eagle_v1", **v1, serving__algorithm="EAGLE"),
        _scenario("eagle_v1_none", **v1 | none),
        _scenario("eagle_v1_frames", **v1 | none, recording__python_stacks=True, recording__stack_slowdown=3.0),
        _scenario("eagle_v1_eager_extend", **v1, serving__extend_graph=False),
        _scenario("standalone", serving__algorithm="STANDALONE", drafter__layers=4, drafter__forward_compute_us=300.0,
                  drafter__extend_compute_us=340.0),
        _scenario("mtp", serving__algorithm="MTP", serving__num_steps=3),
        _scenario("mtp_20", serving__algorithm="MTP", recording__dialect="0.5.20",
                  recording__engine_version="0.5.23"),
        _scenario("ngram", serving__algorithm="NGRAM", serving__topk=4, serving__num_steps=2, drafter__model=None),
        _scenario("ngram_none", serving__algorithm="NGRAM", serving__topk=4, serving__num_steps=2,
                  drafter__model=None, recording__dialect="none", recording__engine_version="0.5.9"),
        _scenario("ngram_20", serving__algorithm="NGRAM", serving__topk=4, serving__num_steps=2,
                  drafter__model=None, recording__dialect="0.5.20", recording__engine_version="0.5.23"),
        _scenario("ngram_frames", serving__algorithm="NGRAM", serving__topk=4, serving__num_steps=2,
                  drafter__model=None, recording__dialect="none", recording__python_stacks=True,
                  recording__engine_version="0.5.9", recording__stack_slowdown=2.0),
        _scenario("dflash", serving__algorithm="DFLASH", serving__num_steps=1, serving__num_draft_tokens=4,
                  drafter__layers=3),
        _scenario("dspark", **dspark),
        _scenario("dspark_20", **dspark, recording__dialect="0.5.20", recording__engine_version="0.5.23"),
        _scenario("dspark_ragged", **dspark, serving__ragged_verify=True, serving__embedding_allreduce=True),
        _scenario("dspark_folded", **dspark, serving__ragged_verify=True, serving__folded_append=True,
                  serving__batch_sizes=(2, 2, 1)),
        _scenario("dspark_frames", **dspark, serving__prefill_before=(5,), recording__dialect="none",
                  recording__python_stacks=True, recording__stack_slowdown=2.0),
        _scenario("vllm", serving__worker="vllm", serving__algorithm="EAGLE", recording__dialect="vllm",
                  recording__engine_version="0.14.0"),
    ]  # fmt: skip
    return {scenario.name: scenario for scenario in made}
