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
    "v2 late": {
        "run": ("managers/scheduler.py", 4613, "run_batch"),
        "cycle": ("speculative/eagle_worker_v2.py", 1416, "forward_batch_generation"),
        "draft": ("speculative/eagle_worker_v2.py", 660, "draft"),
        "draft_graph": ("speculative/eagle_draft_cuda_graph_runner.py", 570, "execute"),
        "draft_eager": ("speculative/eagle_worker_v2.py", 801, "draft_forward"),
        "tree": ("speculative/eagle_utils.py", 170, "build_tree_kernel_efficient"),
        "verify": ("speculative/eagle_worker_v2.py", 1979, "verify"),
        "target_graph": ("model_executor/runner/decode_cuda_graph_runner.py", 1034, "execute"),
        "accept": ("speculative/eagle_utils.py", 521, "eagle_sample"),
        "extend": ("speculative/eagle_worker_v2.py", 1110, "_draft_extend_for_decode"),
        "extend_graph": ("speculative/eagle_draft_extend_cuda_graph_runner.py", 517, "execute"),
        "ngram": ("speculative/ngram_worker.py", 422, "forward_batch_generation"),
        "decode": ("managers/tp_worker.py", 520, "forward_batch_generation"),
        "sample": ("model_executor/model_runner.py", 2611, "sample"),
    },
}
BLOCK_DRAFTERS = ("DFLASH", "DSPARK")
# Block drafters in 0.5.16: DFLASH does nearly everything in one function.
_BLOCK_FRAMES: dict[str, dict[str, tuple[str, int, str]]] = {
    "DFLASH": {
        "block_cycle": ("speculative/dflash_worker_v2.py", 1366, "forward_batch_generation"),
        "block_choice": ("speculative/dflash_worker_v2.py", 796, "_greedy_sample_from_vocab_parallel_head"),
        "block_append": ("speculative/dflash_worker_v2.py", 1008, "_append_target_hidden_to_draft_kv_by_loc"),
        "block_target": ("managers/tp_worker.py", 529, "forward_batch_generation"),
        "block_draft": ("model_executor/model_runner.py", 1232, "forward"),
        "block_prefill": ("speculative/dflash_worker_v2.py", 1366, "forward_batch_generation"),
    },
    "DSPARK": {
        "block_cycle": ("speculative/dspark_components/dspark_worker_v2.py", 477, "_forward_decode"),
        "block_propose": ("speculative/dspark_components/dspark_draft.py", 247, "propose"),
        "block_choice": ("speculative/dspark_components/dspark_draft.py", 159, "sample_draft_block"),
        "block_draft": ("model_executor/model_runner.py", 1232, "forward"),
        "block_verify": ("speculative/dspark_components/dspark_verify.py", 352, "run_compact"),
        "block_target": ("managers/tp_worker.py", 529, "forward_batch_generation"),
        "block_accept": ("speculative/dspark_components/dspark_verify.py", 86, "accept_and_finalize"),
        "block_append": ("speculative/dspark_components/dspark_verify.py", 282, "commit_hidden"),
        "block_prefill": ("speculative/dspark_components/dspark_worker_v2.py", 391, "_forward_prefill"),
    },
}
# Frames that were open when the recording began carry the line that ran, not the line of the definition.
_OUTER = (
    ("multiprocessing/process.py", 314, "_bootstrap"),
    (f"{_ROOT}managers/scheduler.py", 3611, "run_scheduler_process"),
    (f"{_ROOT}managers/scheduler.py", 1391, "event_loop_overlap"),
)


def frame_name(scenario: Scenario, key: str) -> str | None:
    """The ``python_function`` event's name, or ``None`` when stacks are off or the key has no frame."""
    if not scenario.recording.python_stacks:
        return None
    late = scenario.recording.engine_version in ("0.5.16", "0.5.23")
    blocks = _BLOCK_FRAMES.get(scenario.serving.algorithm, {})
    entry = blocks.get(key) or _FRAMES["v1" if scenario.serving.worker == "v1" else "v2 late" if late else "v2"].get(
        key
    )
    return None if entry is None else f"{_ROOT}{entry[0]}({entry[1]}): {entry[2]}"


def outer_frames() -> list[str]:
    """Frames that are open during the whole recording, outermost first."""
    return [f"{file}({line}): {function}" for file, line, function in _OUTER]


@dataclass(slots=True)
class Annotations:
    """Names of the user annotations of one dialect; ``None`` where it has none."""

    scenario: Scenario
    cycle: int = 0
    _target_forwards: int = 120
    _draft_forwards: int = 340

    def _details(self, batch: int, rows: int, kind: str, *, draft: bool = False) -> str:
        """Sums over requests of query and key lengths, as detailed annotations carry them: g decodes, c prefills."""
        if not self.scenario.recording.detailed:
            return ""
        if draft:
            self._draft_forwards += 1
        else:
            self._target_forwards += 1
        number = self._draft_forwards if draft else self._target_forwards
        keys = self.scenario.serving.context_tokens + 2 * self.cycle
        sums = (rows * batch, rows * rows * batch, rows * keys * batch, keys * batch)
        text = " ".join(
            f"{kind}_{name}={value}" for name, value in zip(("sq", "sqsq", "sqsk", "sk"), sums, strict=True)
        )
        return f" {text} forward_id={number}"

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
        more = self._details(batch, self.scenario.rows_of(self.cycle), "g")
        if not self.scenario.speculative:
            return f"step[DECODE bs={batch}{more}]"
        return f"step[{'VERIFY' if self.dialect == '0.5.20' else 'TARGET_VERIFY'} bs={batch}{more}]"

    def draft_step(self, batch: int) -> str | None:
        """Around each eager draft forward; a draft graph's replay has none."""
        if self.dialect in ("none", "vllm"):
            return None
        more = self._details(batch, 1, "g", draft=True)
        if self.dialect == "0.5.20":
            return f"step[DRAFT bs={batch}{more}]"
        block = self.scenario.serving.algorithm in BLOCK_DRAFTERS
        return f"step[{'TARGET_VERIFY' if block else 'DECODE'} bs={batch}{more}]"

    def extend_step(self, batch: int) -> str | None:
        if self.dialect in ("none", "vllm"):
            return None
        more = self._details(batch, self.scenario.rows_of(self.cycle), "c", draft=True)
        if self.scenario.serving.algorithm == "MTP":
            return f"step[DRAFT_EXTEND_V2 bs={batch}{more}]" if self.dialect == "0.5.20" else None
        if self.dialect == "0.5.20":
            return f"step[DRAFT bs={batch}{more}]"
        return f"step[DRAFT_EXTEND{'_V2' if self.scenario.serving.worker == 'v2' else ''} bs={batch}{more}]"

    def prefill(self, batch: int, tokens: int, *, draft: bool = False) -> str | None:
        if self.dialect in ("none", "vllm"):
            return None
        more = self._details(batch, tokens // max(1, batch), "c", draft=draft)
        if draft and self.dialect == "0.5.20":
            return f"step[DRAFT bs={batch} toks={tokens}{more}]"
        return f"step[EXTEND bs={batch} toks={tokens}{more}]"
