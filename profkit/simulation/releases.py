"""Log lines as each SGLang release words them; only what the simulator prints, for the releases it knows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

RELEASES = ("0.5.3", "0.5.9", "0.5.12", "0.5.16", "0.5.23")
_PREFILL_TOKENS = (
    *range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64), *range(1280, 4097, 256),
    *range(4608, 8193, 512),
)  # fmt: skip
CAPTURED_BATCHES = (1, 2, 4, 8, 12, 16, 24, 32)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@dataclass(frozen=True, slots=True)
class Release:
    """One release. Raises ``ValueError`` for a version that the simulator does not know."""

    version: str

    def __post_init__(self) -> None:
        if self.version not in RELEASES:
            raise ValueError(f"the simulator writes logs of SGLang {', '.join(RELEASES)}, not {self.version}")

    def before(self, version: str) -> bool:
        return _number(self.version) < _number(version)

    # Arguments -------------------------------------------------------------------------------------------------

    def arguments(self) -> dict[str, Any]:
        """Names in the release's order with default values."""
        text = files("profkit.simulation.server_args").joinpath(f"{self.version}.json").read_text(encoding="utf-8")
        loaded: dict[str, Any] = json.loads(text)
        return loaded

    def graph_config(self) -> dict[str, Any]:
        """``cuda_graph_config`` of releases that have it."""
        decode = {"backend": "full", "max_bs": CAPTURED_BATCHES[-1], "bs": list(CAPTURED_BATCHES)}
        prefill = {"backend": "disabled", "max_bs": _PREFILL_TOKENS[-1], "bs": list(_PREFILL_TOKENS)}
        rest: dict[str, Any] = {"tc_compiler": "eager"}
        if not self.before("0.5.19"):
            rest["max_context_size"] = None
        rest["full_prefill_max_req"] = None
        if not self.before("0.5.19"):
            rest |= {"full_prefill_prefix_chunk_tokens": None, "max_seq_len": None}
        return {"decode": decode | rest, "prefill": prefill | rest}

    def arguments_line(self, arguments: dict[str, Any]) -> str:
        """``server_args=`` as printed: a dataclass's text, from 0.5.19 on a dictionary's."""
        if not self.before("0.5.19"):
            full = {k: self.graph_config() if k == "cuda_graph_config" else v for k, v in arguments.items()}
            return f"server_args={full!r}"
        phases = ", ".join(
            f"{name}=PhaseConfig({', '.join(f'{k}={v!r}' for k, v in phase.items())})"
            for name, phase in self.graph_config().items()
        )
        parts = [
            f"{key}={f'CudaGraphConfig({phases})' if key == 'cuda_graph_config' else repr(value)}"
            for key, value in arguments.items()
        ]
        return f"server_args=ServerArgs({', '.join(parts)})"

    # Start-up --------------------------------------------------------------------------------------------------

    def distributed(self, seconds: float, used_gb: float) -> tuple[str, list[str]]:
        """The first and the closing lines of the communication set-up."""
        if not self.before("0.5.21"):
            return "Init parallel begin.", [
                f"Init parallel ends. elapsed={seconds:.2f} s",
                f"Memory baseline taken. mem usage={used_gb:.2f} GB",
            ]
        elapsed = "" if self.before("0.5.9") else f"elapsed={seconds:.2f} s, "
        return "Init torch distributed begin.", [f"Init torch distributed ends. {elapsed}mem usage={used_gb:.2f} GB"]

    def custom_allreduce_disabled(self) -> str:
        name = "CustomAllreduce" if not self.before("0.5.14") else "Custom allreduce"
        return (
            f"{name} is disabled because it's not supported on more than two PCIe-only GPUs. "
            "To silence this warning, specify disable_custom_all_reduce=True explicitly."
        )

    def weights(self, seconds: float, kind: str, quantization: str | None, free_gb: float, used_gb: float) -> str:
        text = "Load weight end. "
        if not self.before("0.5.9"):
            text += f"elapsed={seconds:.2f} s, "
        text += f"type={kind}, "
        if self.before("0.5.10"):
            text += "dtype=torch.bfloat16, "
        elif quantization:
            text += f"quant={quantization}, "
        return f"{text}avail mem={free_gb:.2f} GB, mem usage={used_gb:.2f} GB."

    def pool(self, tokens: int, sizes: str) -> str:
        dtype = "" if self.before("0.5.13") else "dtype: torch.bfloat16, "
        return f"KV Cache is allocated. {dtype}#tokens: {tokens}, {sizes}"

    def capture(
        self, job: str, rows: int, batches: Sequence[int], seconds: float, free_gb: float, used_gb: float
    ) -> tuple[list[str], str]:
        """Lines before and after a graph capture. ``job``: target decode, target verify, draft decode, draft extend."""
        left = free_gb - used_gb
        if not self.before("0.5.14"):
            width = "num_tokens_per_bs" if self.before("0.5.16") else "num_tokens_per_req"
            return [
                f"Capture {job} CUDA graph begin. backend=full, {width}={rows}, bs={list(batches)}, "
                f"avail mem={free_gb:.2f} GB"
            ], (
                f"Capture {job} CUDA graph end. elapsed={seconds:.2f} s, mem usage={used_gb:.2f} GB, "
                f"avail mem={left:.2f} GB."
            )
        name = {"draft decode": "draft cuda graph", "draft extend": "draft extend cuda graph"}.get(job, "cuda graph")
        begin = [f"Capture {name} begin. This can take up to several minutes. avail mem={free_gb:.2f} GB"]
        if job.startswith("target"):
            begin.append(f"Capture cuda graph bs {list(batches)}")
        return begin, (
            f"Capture {name} end. Time elapsed: {seconds:.2f} s. mem usage={used_gb:.2f} GB. avail mem={left:.2f} GB."
        )

    def tree_cache(self) -> list[str]:
        if self.before("0.5.14"):
            return []
        if self.before("0.5.19"):
            return [
                "Tree cache initialized: source=default impl=RadixCache hybrid_swa=False hybrid_ssm=False "
                "hierarchical=False streaming_wrapped=False"
            ]
        return [
            "Init Unified Radix Cache. Components: (<ComponentType.FULL: 0>,). Tree Core: RustUnifiedTreeCore",
            "Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False hybrid_ssm=False "
            "hicache_attached=False",
        ]

    # Serving ---------------------------------------------------------------------------------------------------

    def prefill(
        self, sequences: int, tokens: int, usage: float, running: int, throughput: float, *, graph: bool = False
    ) -> str:
        if self.before("0.5.4"):
            return (
                f"Prefill batch. #new-seq: {sequences}, #new-token: {tokens}, #cached-token: 0, "
                f"token usage: {usage:.2f}, #running-req: {running}, #queue-req: 0, "
            )
        text = (
            f"Prefill batch, #new-seq: {sequences}, #new-token: {tokens}, #cached-token: 0, "
            f"token usage: {usage:.2f}, #running-req: {running}, #queue-req: 0, "
        )
        if self.before("0.5.9"):
            return text
        if self.before("0.5.10"):
            return f"{text}input throughput (token/s): {throughput:.2f}, cuda graph: {graph}"
        if not self.before("0.5.11"):
            text += "#pending-token: 0, "
        return f"{text}cuda graph: {graph}, input throughput (token/s): {throughput:.2f}"

    def decode(
        self, running: int, tokens: int, usage: float, accept: tuple[int, int, int, int] | None, throughput: float,
        *, graph: bool, cap: float | None = None,
    ) -> str:  # fmt: skip
        """``accept``: tokens gained, request steps, num_steps, draft tokens; ``None`` without speculation.

        ``cap``: mean rows per request that a ragged verify was given.
        """
        text = "Decode batch. " if self.before("0.5.4") else "Decode batch, "
        text += f"#running-req: {running}, #token: {tokens}, token usage: {usage:.2f}, "
        if accept is not None:
            gained, steps, _, drafted = accept
            text += f"accept len: {gained / steps:.2f}, "
            # The same words meant another quotient before 0.5.11, and were not printed before 0.5.3.post3.
            if not self.before("0.5.11"):
                text += f"accept rate: {(gained - steps) / (steps * (drafted - 1)):.2f}, "
            elif not self.before("0.5.4"):
                text += f"accept rate: {gained / (steps * drafted):.2f}, "
            if cap is not None and not self.before("0.5.16"):
                text += f"cap len: {cap:.2f}, "
        text += f"cuda graph: {graph}, gen throughput (token/s): {throughput:.2f}, #queue-req: 0"
        return text + (", " if self.before("0.5.9") else "")
