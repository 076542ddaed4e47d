"""How many bytes an all-reduce carries: rows of its forward x hidden size x bytes of an activation, or unknown.

Rows come from the step's annotation where it states them (detailed annotations of SGLang, vLLM's step names), else
from requests x rows per request. Whatever is not certain stays unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.attribution.labels import DECODE, DRAFT, DRAFT_EXTEND, VERIFY
from profkit.attribution.labels.annotation import annotations_on
from profkit.attribution.labels.dialect import read_spans
from profkit.attribution.rank import RankAnalysis
from profkit.run import Facts
from profkit.trace import Trace

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
UNKNOWN: Final = -1

# Drafters that are a head on the target's hidden states: their activations are as wide as the target's.
_HEADS: Final = frozenset({"EAGLE", "EAGLE3", "NEXTN"})
# Drafters whose forwards run over topk rows of each request.
_CHAINS: Final = _HEADS | {"STANDALONE"}
# SGLang 0.5.13 dropped the worker whose draft_extend runs over the accepted tokens only.
_FIXED_EXTEND: Final = (0, 5, 13)
_QUERIES: Final = re.compile(r"\b[cg]_sq=(\d{1,9})\b")
_REQUESTS: Final = re.compile(r"\bbs=(\d{1,9})\b")
_VLLM_STEP: Final = re.compile(r"context_\d+\((\d{1,9})[^)]*\)_generation_(\d{1,9})\((\d{1,9})[^)]*\)")


@dataclass(frozen=True, slots=True)
class _Stated:
    """Rows and requests that an annotation states; -1 for unknown."""

    rows: int = UNKNOWN
    requests: int = UNKNOWN


def stated(name: str) -> _Stated:
    """What the text of an annotation says of its forward: ``step[VERIFY bs=2 g_sq=8 ...]``,
    ``execute_context_0(0)_generation_2(8)``."""
    if step := _VLLM_STEP.search(name):
        return _Stated(int(step[1]) + int(step[3]), int(step[2]))
    queries, requests = _QUERIES.findall(name), _REQUESTS.search(name)
    if not queries or requests is None:
        return _Stated()
    return _Stated(sum(int(q) for q in queries), int(requests[1]))


def sizes_from_facts(
    trace: Trace, rank: RankAnalysis, facts: Facts, position: Ints, cycle: Ints, phase: Ints, reduces: Bools
) -> Ints:
    """Bytes of one rank's buffer for every all-reduce among the calls; -1 where a factor is unknown.

    Args:
        trace: the rank's tables.
        rank: the rank, analysed.
        facts: model and server arguments.
        position: of each call among the rank's ops.
        cycle: of each call.
        phase: code of each call.
        reduces: which of the calls are all-reduces.
    """
    result = np.full(len(cycle), UNKNOWN, np.int64)
    width = facts.integer("model.activation_bytes")
    split = facts.flag("parallel.dp_attention") or facts.flag("server_args.enable_two_batch_overlap")
    if width is None or split or not len(cycle):
        return result
    rows = _rows(trace, rank, facts, position, cycle, phase)
    target = np.isin(phase, (VERIFY, DECODE))
    for where, hidden in ((target, facts.integer("model.hidden_size")), (~target, _draft_hidden(facts))):
        if hidden is not None:
            known = where & (rows > 0) & reduces
            result[known] = rows[known] * hidden * width
    return result


def _algorithm(facts: Facts) -> str:
    return (facts.text("speculative.algorithm") or "").upper()


def _draft_hidden(facts: Facts) -> int | None:
    own = facts.integer("speculative.draft_hidden_size")
    if own is not None:
        return own
    return facts.integer("model.hidden_size") if _algorithm(facts) in _HEADS else None


def _rows(trace: Trace, rank: RankAnalysis, facts: Facts, position: Ints, cycle: Ints, phase: Ints) -> Ints:
    """Rows of the forward that each call belongs to, -1 where unknown."""
    told, requests, fixed_extend = _annotated(trace, rank, position)
    batch = rank.cycles.batch[cycle]
    result = told.copy()
    for code, per_request in _per_request(rank, facts, fixed_extend=fixed_extend).items():
        guess = (told < 0) & (phase == code) & (batch > 0)
        result[guess] = batch[guess] * per_request
    requests = np.where(requests > 0, requests, batch)
    return _padded(result, requests, rank.ops.graph_launch[position], facts, vllm=rank.info.engine == "vllm")


def _per_request(rank: RankAnalysis, facts: Facts, *, fixed_extend: bool) -> dict[int, int]:
    """Rows per request of the phases where they are the same in every cycle."""
    result = {DECODE: 1}
    drafts, topk = facts.integer("speculative.num_draft_tokens"), facts.integer("speculative.topk")
    # With adaptive steps the server changes the number of drafts as it goes.
    if drafts is not None and not facts.flag("server_args.speculative_adaptive"):
        result[VERIFY] = drafts
        if fixed_extend or _at_least(facts, _FIXED_EXTEND):
            result[DRAFT_EXTEND] = drafts
    # vLLM's first draft forward takes all verified rows, the others one row each.
    if topk is not None and _algorithm(facts) in _CHAINS and rank.info.engine != "vllm":
        result[DRAFT] = topk
    return result


def _at_least(facts: Facts, release: tuple[int, ...]) -> bool:
    stated_release = facts.text("engine.version") or facts.text("engine.version_low") or ""
    numbers = tuple(int(n) for n in re.findall(r"\d+", stated_release)[:3])
    return facts.text("engine.name") in (None, "sglang") and len(numbers) == 3 and numbers >= release


def _annotated(trace: Trace, rank: RankAnalysis, position: Ints) -> tuple[Ints, Ints, bool]:
    """Rows and requests stated by the annotation that was open when each call was launched, -1 where none was, and
    whether the annotations show that draft_extend runs over all draft tokens."""
    spans, _, words = read_spans(annotations_on(trace, "host"), "annotation", rank.ops.threads)
    says = [stated(w) for w in words]
    rows = np.array([s.rows for s in says] or [UNKNOWN], np.int64)[spans.word]
    requests = np.array([s.requests for s in says] or [UNKNOWN], np.int64)[spans.word]
    used = {words[w] for w in np.unique(spans.word).tolist()}
    fixed = any(w == "draft_extend" or "[DRAFT_EXTEND_V2 " in w for w in used)
    telling = np.flatnonzero(rows > 0)
    telling = telling[np.lexsort((-spans.end[telling], spans.start[telling], spans.thread[telling]))].astype(np.int64)
    moment, thread = rank.ops.launch_ns[position], rank.ops.launch_thread[position]
    row = spans.enclosing(telling, moment, np.where(moment >= 0, thread, UNKNOWN - 1))
    found = row >= 0
    safe = np.maximum(row, 0)
    if not len(rows):
        return np.full(len(position), UNKNOWN, np.int64), np.full(len(position), UNKNOWN, np.int64), fixed
    return np.where(found, rows[safe], UNKNOWN), np.where(found, requests[safe], UNKNOWN), fixed


def _padded(rows: Ints, requests: Ints, graph: Bools, facts: Facts, *, vllm: bool) -> Ints:
    """Rows that a CUDA graph really runs over: those of the next captured size; -1 where that is not known."""
    result = rows.copy()
    for size, asked in {
        (int(r), int(q)) for r, q in zip(rows[graph & (rows > 0)], requests[graph & (rows > 0)], strict=True)
    }:
        here = graph & (rows == size) & (requests == asked)
        captured = _captured(size, facts, vllm=True) if vllm else _captured(asked, facts, vllm=False)
        # Rows that the requests do not share evenly are padded in a way that is not known.
        if captured is None or asked <= 0 or (not vllm and size % asked):
            result[here] = UNKNOWN
        else:
            result[here] = captured if vllm else size // asked * captured
    return result


def _captured(number: int, facts: Facts, *, vllm: bool) -> int | None:
    """The captured size that ``number`` requests (rows, in vLLM) are padded to, ``None`` where it is not known.

    Servers that list the sizes are asked; else those that every release captures by itself.
    """
    for name in ("cuda_graph_bs", "cuda_graph_bs_decode"):
        listed = facts.text(f"server_args.{name}")
        sizes = [int(n) for n in listed.split(",")] if listed and re.fullmatch(r"\d{1,6}(,\d{1,6})*", listed) else []
        if sizes:
            return min((s for s in sizes if s >= number), default=None)
    if facts.flag("server_args.disable_cuda_graph_padding"):
        return number
    if vllm:
        sure = number in (1, 2, 4) or (number % 8 == 0 and number <= 512)
    elif _algorithm(facts) in ("", "NONE", "NULL"):
        sure = number in (1, 2, 4, 8) or (number % 8 == 0 and number <= 160)
    else:
        sure = number <= 8 or (number % 2 == 0 and number <= 32)
    return number if sure else None
