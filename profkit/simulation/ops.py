"""GPU work as data: single operations, and the lists of them that a forward pass runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from profkit.rules import load_rules
from profkit.simulation.scenario import Hardware, Model, Scenario
from profkit.words import Activity, Phase

Kind: TypeAlias = Literal["kernel", "gpu_memcpy", "gpu_memset"]
CollectiveKind: TypeAlias = Literal["allreduce", "allgather"]


@dataclass(frozen=True, slots=True)
class Op:
    """One GPU operation of every rank. ``duration_ns`` is without jitter; of a collective, the transfer alone."""

    name: str
    duration_ns: float
    activity: Activity = "compute"
    kind: Kind = "kernel"
    grid: int = 1
    block: int = 128
    registers: int = 32
    shared: int = 0
    bytes: int = 0
    collective: CollectiveKind | None = None
    message_bytes: int = 0
    fused: bool = False
    api: str = "cudaLaunchKernel"
    op: str | None = None


@dataclass(frozen=True, slots=True)
class Fork:
    """Two branches of a graph that start together; the main branch goes on when both have ended."""

    main: tuple[Op, ...]
    side: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Enter:
    """What follows in a graph belongs to this phase."""

    phase: Phase


Part: TypeAlias = Op | Fork | Enter


@dataclass(slots=True)
class Kernels:
    """Builds operations from the kernel rules for one scenario."""

    scenario: Scenario
    rules: dict[str, Any] = field(default_factory=lambda: load_rules("simulated_kernels"))

    @property
    def hardware(self) -> Hardware:
        return self.scenario.hardware

    @property
    def model(self) -> Model:
        return self.scenario.model

    def kernel(self, key: str, duration_us: float, *, grid: int = 1) -> Op:
        """A compute kernel of the rules."""
        rule = self.rules["kernel"][key]
        return Op(
            name=rule["name"],
            duration_ns=duration_us * 1000.0,
            grid=grid,
            block=rule["block"],
            registers=rule["registers"],
            api=rule.get("api", "cudaLaunchKernel"),
            op=rule.get("op"),
        )

    def copy(self, name: str, size: int, duration_us: float) -> Op:
        """A copy by the copy engine, such as ``Memcpy HtoD (Pinned -> Device)``."""
        return Op(
            name=name, duration_ns=duration_us * 1000.0, activity="memory", kind="gpu_memcpy", bytes=size,
            api="cudaMemcpyAsync", op="aten::copy_",
        )  # fmt: skip

    def memset(self, size: int, duration_us: float) -> Op:
        """A device memset."""
        return Op(
            name="Memset (Device)", duration_ns=duration_us * 1000.0, activity="memory", kind="gpu_memset", bytes=size,
            api="cudaMemsetAsync", op="aten::zero_",
        )  # fmt: skip

    def allreduce(self, rows: int) -> Op:
        """The all-reduce of ``rows`` activations; its transfer is alpha + beta * size."""
        size = rows * self.model.hidden_size * self.model.activation_bytes
        microseconds = self.hardware.allreduce_alpha_us + self.hardware.allreduce_us_per_kib * size / 1024
        implementation = self.hardware.collective
        name = self.rules["collective"][implementation]["allreduce"].format(gpus=self.scenario.ranks)
        return Op(
            name=name, duration_ns=microseconds * 1000.0, activity="allreduce", grid=8, block=512, registers=96,
            collective="allreduce", message_bytes=size, fused=implementation == "flashinfer_fused",
            op="c10d::allreduce_",
        )  # fmt: skip

    def allgather(self, rows: int, vocabulary: int) -> Op:
        """The all-gather of the logits of ``rows`` rows over a vocabulary that is split over the ranks."""
        size = rows * vocabulary * self.model.activation_bytes
        microseconds = self.hardware.allgather_alpha_us + self.hardware.allgather_us_per_kib * size / 1024
        return Op(
            name=self.rules["collective"]["allgather"], duration_ns=microseconds * 1000.0, activity="comm", grid=8,
            block=512, registers=96, collective="allgather", message_bytes=size, op="c10d::_allgather_base_",
        )  # fmt: skip

    def distinct_experts(self, rows: int) -> float:
        """Expected distinct experts that ``rows`` tokens reach under uniform routing: E (1 - (1 - k/E)^n)."""
        experts = self.model.experts
        return experts * (1.0 - (1.0 - self.model.experts_per_token / experts) ** rows)

    def layer(self, template: str, rows: int, dense_us: float, moe_us: float) -> list[Part]:
        """One layer: its kernels share ``dense_us`` and ``moe_us``; without MoE time those kernels are left out."""
        parts: list[Part] = []
        side: list[Op] = []
        branch: list[Op] = []
        hidden: list[Op] = []
        for rule in self.rules["layer"][template]:
            if rule.get("allreduce"):
                if self.scenario.serving.comm_overlap and hidden:
                    parts.extend(branch)
                    parts.append(Fork(tuple(hidden), (self.allreduce(rows),)))
                    side, branch, hidden = [], [], []
                    continue
                if side:
                    parts.append(Fork(tuple(branch), tuple(side)))
                else:
                    parts.extend(branch)
                side, branch = [], []
                parts.append(self.allreduce(rows))
                continue
            if rule.get("norm") and self.hardware.collective == "flashinfer_fused" and parts:
                continue  # the fused all-reduce has done it
            total = dense_us if rule["group"] == "dense" else moe_us
            if total <= 0.0:
                continue
            op = self.kernel(rule["kernel"], total * rule["share"], grid=8 * rows + int(40 * rule["share"]) * 8)
            if rule.get("side") and self.scenario.serving.comm_overlap and moe_us > 0.0:
                hidden.append(op)
            elif rule.get("side") and self.scenario.serving.side_stream and moe_us > 0.0:
                side.append(op)
            else:
                branch.append(op)
        parts.extend(branch)
        return parts

    def target_forward(self, rows: int) -> tuple[Part, ...]:
        """The target model's forward over ``rows`` rows, up to the gathered logits."""
        model, hardware = self.model, self.hardware
        head_us = 0.03 * hardware.dense_compute_us
        dense_us = (hardware.dense_compute_us - head_us) / model.layers
        moe_us = hardware.expert_compute_us * self.distinct_experts(rows) / max(1, model.moe_layers)
        moe_us = moe_us if model.moe_layers else 0.0
        parts: list[Part] = [self.kernel("embedding", 1.6, grid=rows)]
        if self.scenario.serving.embedding_allreduce:
            parts.append(self.allreduce(rows))
        for index in range(model.layers):
            parts.extend(
                self.layer("target", rows, dense_us, moe_us if index >= model.layers - model.moe_layers else 0.0)
            )
        parts += [
            self.kernel("add_norm", 2.2, grid=rows),
            self.kernel("lm_head", max(1.0, head_us - 3.8), grid=320),
            self.allgather(rows, model.vocabulary),
            self.kernel("copy", 1.4, grid=64 * rows),
        ]
        return tuple(parts)

    def draft_forward(self, rows: int, compute_us: float, *, extend: bool = False) -> list[Part]:
        """One forward of the draft model with its head and the choice of the best token."""
        drafter = self.scenario.drafter
        body_us = (compute_us + drafter.row_compute_us * (rows - 1)) / (drafter.layers + 1.0)
        parts: list[Part] = [self.kernel("embedding", 1.5, grid=rows)]
        if extend:
            parts.append(self.kernel("draft_fc", body_us * 0.25, grid=112))
        for _ in range(drafter.layers):
            parts.extend(self.layer("draft", rows, body_us, 0.0))
        head_us = body_us * (0.5 if extend else 0.75)
        parts += [
            self.kernel("add_norm", 2.1, grid=rows),
            self.kernel("lm_head", head_us, grid=64),
            self.allgather(rows, drafter.vocabulary),
            self.kernel("softmax", body_us * 0.15, grid=rows),
            self.kernel("topk", body_us * 0.10, grid=rows),
        ]
        return parts
