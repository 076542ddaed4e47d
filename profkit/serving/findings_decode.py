"""Findings that the decode lines of a server show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from profkit.finding import Finding
from profkit.serving.columns import Floats, Mask, booleans, codes, flagged, floats, integers, known
from profkit.serving.interpret import EXCLUDING
from profkit.serving.result import ServerSummary

_PINNED_LINES: Final = 10
_FULL: Final = 0.95  # share of the KV pool from which decoding is about to retract
_OFTEN: Final = 0.1
_QUEUE_SHARE: Final = 0.2
_NO_GRAPH_SHARE: Final = 0.05
_MIN_LINES: Final = 20
_CONTEXT_SPAN: Final = 2.0
_FALL: Final = 0.85
_COLLAPSE: Final = 0.5
_COLLAPSE_LINES: Final = 8
_IMBALANCE: Final = 1.5


@dataclass(frozen=True, slots=True)
class _Lines:
    """The decode lines as arrays; ``steady`` are those that may be averaged."""

    file: str
    table: pa.Table
    line: np.ndarray[tuple[int], np.dtype[np.int64]]
    steady: Mask
    whole: Mask
    running: Floats
    speed: Floats
    accept: Floats

    def places(self, mask: Mask) -> tuple[str, ...]:
        """First and last of some lines."""
        rows = np.flatnonzero(mask)
        chosen = rows[:1] if len(rows) == 1 else rows[[0, -1]]
        files, names = codes(self.table, "file")
        return tuple(f"{names[files[row]]}:{self.line[row]}" for row in chosen.tolist())


def decode_findings(summary: ServerSummary, file: str, table: pa.Table) -> list[Finding]:
    """What the decode lines show: graphs, acceptance, memory, queue, collapse, imbalance, and what was left out."""
    if not table.num_rows:
        return []
    damaged = flagged(table, ["damaged"])
    lines = _Lines(
        file,
        table,
        integers(table, "line", 0),
        ~flagged(table, EXCLUDING),
        ~damaged,
        floats(table, "running_req"),
        floats(table, "gen_throughput_tok_s"),
        floats(table, "accept_len"),
    )
    return [
        *_nothing_steady(summary, lines),
        *_pinned(summary, lines),
        *_no_graph(lines),
        *_memory(lines),
        *_queue(lines),
        *_falling(lines),
        *_collapse(lines),
        *_imbalance(lines),
        *_profiled(lines),
    ]


def _nothing_steady(summary: ServerSummary, lines: _Lines) -> list[Finding]:
    if lines.steady.any() or not lines.whole.any():
        return []
    number = summary.decode.lines
    which = "The only decode line follows" if number == 1 else f"All {number} decode lines follow"
    return [
        Finding(
            "no_steady_line",
            "warning",
            f"{which} a prefill or an idle time, or {'lies' if number == 1 else 'lie'} in a profiling window, so "
            "nothing can be averaged. Longer answers, or a smaller --decode-log-interval, give lines in between.",
            lines.places(lines.whole),
        )
    ]


def _pinned(summary: ServerSummary, lines: _Lines) -> list[Finding]:
    rows = lines.whole & ~np.isnan(lines.accept)
    pinned = lines.accept[rows] <= 1.0
    longest = _longest_run(pinned)
    if longest < _PINNED_LINES:
        return []
    whole = bool(pinned.all())
    mask = np.zeros(len(rows), bool)
    mask[np.flatnonzero(rows)[pinned]] = True
    causes = "speculation switched off while serving, or a drafter that does not fit the target model"
    if summary.algorithm in ("EAGLE", "NEXTN"):
        causes = "an EAGLE3 drafter under the algorithm EAGLE, a drafter of another model, or speculation switched off"
    elif summary.algorithm == "NGRAM":
        causes = "text that repeats nothing, which n-gram drafting lives on"
    return [
        Finding(
            "accept_len_pinned_at_one",
            "problem" if whole else "warning",
            f"The accept length is exactly 1.00 {'on all lines' if whole else f'for {longest} lines in a row'}: no "
            f"draft token was accepted. Possible causes: {causes}.",
            lines.places(mask),
            {"lines": int(pinned.sum()), "longest_run": longest},
        )
    ]


def _longest_run(values: Mask) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], values.astype(np.int8), [0]])))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def _no_graph(lines: _Lines) -> list[Finding]:
    rows = lines.whole & known(lines.table, "cuda_graph") & (lines.running > 0)
    eager = rows & ~booleans(lines.table, "cuda_graph", True)
    kinds, names = codes(lines.table, "graph_kind")
    on_cpu = bool(len(names)) and all(names[k] == "cpu" for k in np.unique(kinds[rows]).tolist() if k >= 0)
    share = eager.sum() / rows.sum() if rows.any() else 0.0
    if share < _NO_GRAPH_SHARE or eager.sum() < 3:
        return []
    with_graph = rows & ~eager
    above = with_graph.any() and lines.running[eager].min() > lines.running[with_graph].max()
    limit = int(lines.running[with_graph].max()) if with_graph.any() else 0
    why = (
        f"always with more than {limit} running requests: capture larger batches (--cuda-graph-max-bs)"
        if above
        else "graphs are off, or the batch was larger than any captured one"
    )
    return [
        Finding(
            "decode_without_graph",
            "info" if on_cpu else "problem" if share > 0.5 else "warning",
            f"{100 * share:.0f} % of the decode lines ran without a graph; {why}.",
            lines.places(eager),
            {"share": float(share), "lines": int(eager.sum())},
        )
    ]


def _memory(lines: _Lines) -> list[Finding]:
    usage = np.fmax(floats(lines.table, "token_usage"), floats(lines.table, "swa_token_usage"))
    full = lines.whole & (usage >= _FULL)
    share = full.sum() / max(int(lines.whole.sum()), 1)
    if share < _OFTEN:
        return []
    return [
        Finding(
            "kv_cache_full",
            "warning",
            f"The KV cache was at least {100 * _FULL:.0f} % full on {100 * share:.0f} % of the decode lines: requests "
            "wait for memory, and retraction is near.",
            lines.places(full),
            {"share": float(share), "usage_max": float(np.nanmax(usage))},
        )
    ]


def _queue(lines: _Lines) -> list[Finding]:
    queue = floats(lines.table, "queue_req")
    waiting = lines.whole & (queue > 0)
    share = waiting.sum() / max(int(lines.whole.sum()), 1)
    if share < _QUEUE_SHARE:
        return []
    longest, most = int(np.nanmax(queue)), int(np.nanmax(lines.running))
    return [
        Finding(
            "queueing",
            "warning",
            f"Requests waited on {100 * share:.0f} % of the decode lines, up to {longest} at once, while at "
            f"most {most} ran: the server is the limit, not the client.",
            lines.places(waiting),
            {
                "share": float(share),
                "queue_req_max": longest,
                "running_req_max": most,
            },
        )
    ]


def _falling(lines: _Lines) -> list[Finding]:
    with np.errstate(divide="ignore", invalid="ignore"):
        context = floats(lines.table, "token") / lines.running
    rows = lines.steady & np.isfinite(context) & (context > 0) & ~np.isnan(lines.accept)
    if rows.sum() < _MIN_LINES:
        return []
    short, long = np.quantile(context[rows], (0.25, 0.75))
    if long < _CONTEXT_SPAN * short:
        return []
    below, above = rows & (context <= short), rows & (context >= long)
    early, late = lines.accept[below].mean(), lines.accept[above].mean()
    if late > _FALL * early:
        return []
    return [
        Finding(
            "accept_len_falls_with_context",
            "warning",
            f"The accept length falls with the context: {early:.2f} at up to {short:,.0f} tokens per request, "
            f"{late:.2f} from {long:,.0f} on. Drafters trained on short texts do that; so does a draft window that is "
            "too small.",
            lines.places(above),
            {
                "accept_len_short": float(early),
                "accept_len_long": float(late),
                "tokens_short": float(short),
                "tokens_long": float(long),
            },
        )
    ]


def _collapse(lines: _Lines) -> list[Finding]:
    rows = np.flatnonzero(lines.steady & (lines.running > 0) & (lines.speed > 0))
    if len(rows) < _MIN_LINES:
        return []
    # Speed per request, against the median at the same number of running requests.
    each = lines.speed[rows] / lines.running[rows]
    usual = np.empty(len(rows))
    for size in np.unique(lines.running[rows]):
        same = lines.running[rows] == size
        usual[same] = np.median(each[same])
    slow = each < _COLLAPSE * usual
    longest = _longest_run(slow)
    if longest < _COLLAPSE_LINES:
        return []
    mask = np.zeros(len(lines.steady), bool)
    mask[rows[slow]] = True
    return [
        Finding(
            "throughput_collapse",
            "problem",
            f"For {longest} lines in a row the speed per request was less than half of what it usually is at the same "
            "number of running requests.",
            lines.places(mask),
            {"longest_run": longest, "lines": int(slow.sum())},
        )
    ]


def _imbalance(lines: _Lines) -> list[Finding]:
    dp = integers(lines.table, "dp", -1)
    ranks = np.unique(dp[lines.whole & (dp >= 0)])
    if len(ranks) < 2:
        return []
    means = [float(np.nanmean(lines.running[lines.whole & (dp == rank)])) for rank in ranks]
    low, high = min(means), max(means)
    if high < _IMBALANCE * max(low, 1e-9) or lines.whole.sum() < _MIN_LINES:
        return []
    busy, idle = int(ranks[means.index(high)]), int(ranks[means.index(low)])
    return [
        Finding(
            "dp_imbalance",
            "warning",
            f"DP rank {busy} ran {high:.1f} requests on average, DP rank {idle} only {low:.1f}.",
            lines.places(lines.whole & (dp == busy)),
            {"running_req_high": high, "running_req_low": low},
        )
    ]


def times(count: int, what: str) -> str:
    """``1 line was``, ``3 lines were``."""
    return f"{count} {what} was" if count == 1 else f"{count} {what}s were"


def _profiled(lines: _Lines) -> list[Finding]:
    inside = flagged(lines.table, ["profiling"])
    count = int(inside.sum())
    if not count:
        return []
    return [
        Finding(
            "profiled_lines",
            "info",
            f"{times(count, 'decode line')} printed while the profiler ran and left out of the averages.",
            lines.places(inside),
            {"lines": count},
        )
    ]
