"""The annotations and Python frames that each release records around its phases."""

from __future__ import annotations

from dataclasses import dataclass

from profkit.simulation.scenario import Scenario

# File, function and line of the definition, per worker; releases: v1 0.5.9, v2 0.5.12 and 0.5.23.
_ROOT = "/sgl-workspace/sglang/python/sglang/srt/"
_FRAMES: dict[str, dict[str, tuple[str, int, str]]] = {
    "v1": {
        "run": ("managers/scheduler.py", 2278, "run_batch"),
        "cycle": ("speculative/eagle_worker.py", 278, "forward_batch_generation"),
        "draft": ("speculative/eagle_worker.py", 532, "draft"),
        "draft_graph": ("speculative/eagle_draft_cuda_graph_runner.py", 319, "replay"),
        "draft_eager": ("speculative/eagle_worker.py", 606, "draft_forward"),
        "tree": ("speculative/eagle_utils.py", 59, "build_tree_kernel_efficient"),
        "verify": ("speculative/eagle_worker.py", 691, "verify"),
        "target_graph": ("model_executor/cuda_graph_runner.py", 846, "replay"),
        "accept": ("speculative/eagle_info.py", 216, "verify"),
        "extend": ("speculative/eagle_worker.py", 902, "forward_draft_extend_after_decode"),
        "extend_graph": ("speculative/eagle_draft_extend_cuda_graph_runner.py", 380, "replay"),
        "ngram": ("speculative/ngram_worker.py", 263, "forward_batch_generation"),
        "decode": ("managers/tp_worker.py", 372, "forward_batch_generation"),
        "sample": ("model_executor/model_runner.py", 2262, "sample"),
    },
    "v2": {
        "run": ("managers/scheduler.py", 2996, "run_batch"),
        "cycle": ("speculative/eagle_worker_v2.py", 744, "forward_batch_generation"),
        "draft": ("speculative/eagle_worker_v2.py", 339, "draft"),
        "draft_graph": ("speculative/eagle_draft_cuda_graph_runner.py", 394, "replay"),
        "draft_eager": ("speculative/eagle_worker_v2.py", 455, "draft_forward"),
        "tree": ("speculative/eagle_utils.py", 112, "build_tree_kernel_efficient"),
        "verify": ("speculative/eagle_worker_v2.py", 971, "verify"),
        "target_graph": ("model_executor/cuda_graph_runner.py", 1317, "replay"),
        "accept": ("speculative/eagle_info_v2.py", 333, "sample"),
        "extend": ("speculative/eagle_worker_v2.py", 567, "_draft_extend_for_decode"),
        "extend_graph": ("speculative/eagle_draft_extend_cuda_graph_runner.py", 432, "replay"),
        "ngram": ("speculative/ngram_worker.py", 422, "forward_batch_generation"),
        "decode": ("managers/tp_worker.py", 410, "forward_batch_generation"),
        "sample": ("model_executor/model_runner.py", 2611, "sample"),
    },
}


def frame_name(scenario: Scenario, key: str) -> str | None:
    """The ``python_function`` event's name, or ``None`` when stacks are off or the key has no frame."""
    if not scenario.recording.python_stacks:
        return None
    entry = _FRAMES["v1" if scenario.serving.worker == "v1" else "v2"].get(key)
    return None if entry is None else f"{_ROOT}{entry[0]}({entry[1]}): {entry[2]}"


@dataclass(frozen=True, slots=True)
class Annotations:
    """Names of the user annotations of one dialect; ``None`` where it has none."""

    scenario: Scenario

    @property
    def dialect(self) -> str:
        return self.scenario.recording.dialect

    def scheduler(self, what: str) -> str | None:
        return f"scheduler.{what}" if self.dialect in ("0.5.14", "0.5.20") else None

    def copy_result(self) -> str | None:
        return "copy_result_to_cpu" if self.dialect in ("0.5.14", "0.5.20") else None

    def stage(self, name: str) -> str | None:
        """``draft`` and ``draft_extend``: only the EAGLE worker of spec v2 marks them."""
        serving = self.scenario.serving
        marked = serving.worker == "v2" and serving.algorithm in ("EAGLE", "EAGLE3", "STANDALONE")
        return name if marked and self.dialect in ("0.5.14", "0.5.20") else None

    def target(self, batch: int) -> str | None:
        if self.dialect in ("none", "vllm"):
            return None
        if not self.scenario.speculative:
            return f"step[DECODE bs={batch}]"
        return f"step[VERIFY bs={batch}]" if self.dialect == "0.5.20" else f"step[TARGET_VERIFY bs={batch}]"

    def draft_step(self, batch: int) -> str | None:
        """Around each eager draft forward; a draft graph's replay has none."""
        if self.dialect in ("none", "vllm"):
            return None
        if self.dialect == "0.5.20":
            return f"step[DRAFT bs={batch}]"
        return f"step[{'TARGET_VERIFY' if self.scenario.serving.algorithm == 'DFLASH' else 'DECODE'} bs={batch}]"

    def extend_step(self, batch: int) -> str | None:
        if self.dialect in ("none", "vllm"):
            return None
        if self.scenario.serving.algorithm == "MTP":
            return f"step[DRAFT_EXTEND_V2 bs={batch}]" if self.dialect == "0.5.20" else None
        if self.dialect == "0.5.20":
            return f"step[DRAFT bs={batch}]"
        return f"step[DRAFT_EXTEND{'_V2' if self.scenario.serving.worker == 'v2' else ''} bs={batch}]"

    def prefill(self, batch: int, tokens: int, *, draft: bool = False) -> str | None:
        if self.dialect in ("none", "vllm"):
            return None
        if draft and self.dialect == "0.5.20":
            return f"step[DRAFT bs={batch}]"
        return f"step[EXTEND bs={batch} toks={tokens}]"
