"""What is simulated: the model, the machine, the server and the recording, every parameter with its unit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Algorithm: TypeAlias = Literal["none", "EAGLE", "EAGLE3", "STANDALONE", "MTP", "NGRAM", "DFLASH", "DSPARK"]
Worker: TypeAlias = Literal["v1", "v2", "vllm"]
Dialect: TypeAlias = Literal["none", "0.5.11", "0.5.14", "0.5.20", "vllm"]
Evidence: TypeAlias = Literal["host", "launches", "gpu_annotations", "markers"]
Collective: TypeAlias = Literal["nccl", "custom", "flashinfer_fused", "pcie_ipc", "multimem"]


@dataclass(frozen=True, slots=True)
class Model:
    """The served model, as its configuration file describes it."""

    name: str = "moonshotai/Kimi-K2.5"
    architecture: str = "KimiK25ForConditionalGeneration"
    quantization: str = "compressed-tensors"
    layers: int = 61
    moe_layers: int = 60
    hidden_size: int = 7168
    experts: int = 384
    experts_per_token: int = 8
    expert_intermediate_size: int = 2048
    vocabulary: int = 163840
    activation_bytes: int = 2
    weight_bytes: float = 0.5625
    dense_weight_bytes: float = 21.7e9
    context_length: int = 262144


@dataclass(frozen=True, slots=True)
class Drafter:
    """The drafting side: which model, how many forwards, how long they take."""

    model: str | None = None
    architecture: str = "LlamaForCausalLMEagle3"
    layers: int = 1
    vocabulary: int = 32000
    forward_compute_us: float = 300.0  # of one draft forward over one row, without its collectives
    extend_compute_us: float = 450.0  # of the draft_extend forward over all rows
    row_compute_us: float = 4.0  # for each row beyond the first
    corpus_match_us: float = 320.0  # NGRAM: host time of one corpus lookup
    conditional_acceptance: tuple[float, ...] = ()  # of the k-th draft token, given that those before were accepted


@dataclass(frozen=True, slots=True)
class Hardware:
    """The machine: compute times of one rank, collectives, launches, and what makes ranks differ."""

    gpu: str = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    sm: int = 120
    multiprocessors: int = 188
    memory_bytes: int = 102_012_354_560
    memory_bandwidth_gb_s: float = 1792.0
    power_cap_w: int = 600
    link: Literal["pcie", "nvlink"] = "pcie"
    peer_access: bool | None = None  # GPUs reach each other's memory; None: nobody looked
    nccl: str = "2.28.9"
    driver: str = "580.95.05"
    cuda: str = "13.0"
    # Target forward on one rank: dense part, and the routed experts per distinct expert that the rows reach.
    dense_compute_us: float = 1510.0
    expert_compute_us: float = 103.9
    # One blocking all-reduce of s KiB after the last rank arrived: alpha + beta * s; the same for an all-gather.
    allreduce_alpha_us: float = 36.3
    allreduce_us_per_kib: float = 3.01
    allgather_alpha_us: float = 22.0
    allgather_us_per_kib: float = 0.12
    collective: Collective = "nccl"
    transfer_jitter: float = 0.01  # relative deviation of a transfer, the same on all ranks
    transfer_drift: float = 0.002  # relative deviation of all transfers of one cycle together
    end_jitter_ns: float = 60.0  # deviation between the ranks' ends of one collective
    compute_jitter: float = 0.02  # relative deviation of a kernel
    rank_slowdown: tuple[float, ...] = ()  # factor on a rank's compute, by rank; missing ranks 1.0
    clock_offset_us: tuple[float, ...] = ()  # recorded minus true time, by rank; missing ranks 0.0
    graph_gap_ns: float = 160.0  # between kernels of one graph
    eager_gap_ns: float = 650.0  # between kernels launched one by one that already wait
    launch_us: float = 4.2  # host time of one launch, operator dispatch included
    launch_latency_us: float = 3.0  # from the call to the earliest start
    graph_launch_us: float = 190.0  # host time of one graph launch
    host_speed: float = 1.0  # factor on all host times; above 1 is slower
    pauses: tuple[tuple[int, int, float], ...] = ()  # (cycle, rank, us): the host of one rank stands still once
    pdl_early_ns: float = 0.0  # programmatic dependent launch: how early a successor's record begins


@dataclass(frozen=True, slots=True)
class Serving:
    """How the server runs: algorithm, graphs, scheduling, the batch."""

    algorithm: Algorithm = "none"
    worker: Worker = "v2"
    num_steps: int = 0
    topk: int = 1
    num_draft_tokens: int = 0
    overlap: bool = True
    target_graph: bool = True
    draft_graph: bool = True
    extend_graph: bool = True
    side_stream: bool = False  # shared experts on a second stream
    comm_overlap: bool = False  # the second all-reduce of a layer on a second stream, under the shared experts
    adaptive_steps: tuple[int, ...] = ()  # num_steps of the cycles, repeated; draft tokens are one more
    batch_sizes: tuple[int, ...] = (1,)  # running requests of the cycles, repeated
    prefill_before: tuple[int, ...] = ()  # a prefill runs before these cycles
    prefill_tokens: int = 512
    context_tokens: int = 1800
    embedding_allreduce: bool = False
    ragged_verify: bool = False  # DSPARK: rows of the verify chosen by confidence, acceptance at its graph's end
    folded_append: bool = False  # and the drafter's cache written there too


@dataclass(frozen=True, slots=True)
class Recording:
    """What the profiler and the server write down."""

    dialect: Dialect = "0.5.14"
    engine_version: str = "0.5.16"
    date: str = "2026-11-16"
    time: str = "09:12:04"
    cycles: int = 8  # complete cycles per trace
    start_skew_cycles: tuple[int, ...] = ()  # ranks that begin to record this many cycles later
    evidence: Evidence = "host"  # launches: runtime calls only; then GPU events with or without annotations
    detailed: bool = False  # step annotations carry query and key lengths and a forward id
    python_stacks: bool = False
    flows: bool = False
    graph_ids: bool = True
    collective_arguments: bool = False
    by_stage: bool = True
    merged: bool = False
    stack_slowdown: float = 1.0  # factor on host times while recording
    op_overhead_ns: float = 0.0  # what recording adds before each GPU operation
    log_cycles: int = 64  # cycles simulated for the log; its lines draw from them
    log_lines: int = 60  # decode lines outside the profiling window
    decode_log_interval: int = 40


@dataclass(frozen=True, slots=True)
class Scenario:
    """One server launch. ``assumed`` names the parameters that no source gives."""

    name: str = "run"
    config: str = "run"
    seed: int = 1
    ranks: int = 8
    model: Model = field(default_factory=Model)
    drafter: Drafter = field(default_factory=Drafter)
    hardware: Hardware = field(default_factory=Hardware)
    serving: Serving = field(default_factory=Serving)
    recording: Recording = field(default_factory=Recording)
    labels: tuple[tuple[str, str], ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def speculative(self) -> bool:
        return self.serving.algorithm != "none"

    @property
    def rows_per_request(self) -> int:
        """Rows of the target forward per request: draft tokens with speculation, else 1."""
        return self.serving.num_draft_tokens if self.speculative else 1

    def steps_of(self, cycle: int) -> int:
        """Draft steps in a cycle."""
        pattern = self.serving.adaptive_steps
        return pattern[cycle % len(pattern)] if pattern else self.serving.num_steps

    def rows_of(self, cycle: int) -> int:
        """Rows of the target forward per request in a cycle."""
        return self.steps_of(cycle) + 1 if self.serving.adaptive_steps else self.rows_per_request
