"""Finished requests: ``Finish: obj=...`` lines, their JSON form, and ``ReqTimeStats`` lines.

Prompts and outputs in these lines are never kept, and never searched for batch lines.
"""

from __future__ import annotations

import ast
import math
import re
from typing import Any, Final

from profkit.escape import visible
from profkit.jsonio import loads

_STATS = re.compile(r"(?:Req Time Stats|ReqTimeStats)\((?P<facts>[^()]{0,2000})\): (?P<durations>.*)")
_FACT = re.compile(r"([a-z_ ]+)=([^,]*)")
_DURATION = re.compile(r"(?<!\w)(\w+)=(-?\d+(?:\.\d+)?)(ms|s)?(?=[,\s]|$)")
_RID = re.compile(r"\brid='([^']{1,200})'")
_META: Final = "'meta_info': "
# Figures of meta_info that have a column; the first that is there counts. Names changed with the releases.
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "input_tokens": ("prompt_tokens",),
    "cached_tokens": ("cached_tokens",),
    "output_tokens": ("completion_tokens",),
    "verify_steps": ("spec_verify_ct",),
    "accept_len": ("spec_accept_length",),
    "accepted_drafts": ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num"),
    "proposed_drafts": ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num"),
}
_STATS_COLUMNS: Final = {
    "input len": "input_tokens",
    "cached input len": "cached_tokens",
    "output len": "output_tokens",
}
_DURATION_COLUMNS: Final = {
    "queue_duration": "queue_ms",
    "initial_prefill_elapsed": "prefill_ms",
    "post_prefill_elapsed": "decode_ms",
}
_KEPT: Final = (
    "spec_accept_rate",
    "spec_accept_histogram",
    "spec_correct_drafts_histogram",
    "spec_cap_length",
    "spec_block_accept_length",
    "total_retractions",
)


def read_request(message: str) -> dict[str, Any] | None:
    """Columns of the request table from one message, or ``None`` when it tells of no finished request.

    A ``Finish`` line whose figures cannot be read gives a row with what is certain and ``damage`` in ``extra``.
    """
    if message.startswith("Finish: obj="):
        return _finish(message)
    if message.startswith('{"') and '"event": "request.finished"' in message[:300]:
        return _finish_json(message)
    stats = _STATS.match(message)
    return _time_stats(stats) if stats else None


def _finish(message: str) -> dict[str, Any]:
    rid = _RID.search(message[:5000])
    start = message.rfind(_META)
    meta = _literal(message[start + len(_META) :].rstrip()) if start >= 0 else None
    row: dict[str, Any] = {"extra": {"damage": "its figures are cut"}} if meta is None else _from_meta(meta)
    if rid and not row.get("rid"):
        row["rid"] = visible(rid[1], 200)
    return row


def _literal(text: str) -> dict[str, Any] | None:
    # The dictionary is followed by the closing brace of `out` and, in some releases, by more fields.
    end = len(text)
    for _ in range(4):
        end = text.rfind("}", 0, end)
        if end < 0:
            return None
        try:
            value = ast.literal_eval(text[: end + 1])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return value if isinstance(value, dict) else None
    return None


def _finish_json(message: str) -> dict[str, Any] | None:
    try:
        document = loads(message)
        meta = document["out"]["meta_info"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {"extra": {"damage": "its JSON is cut or broken"}}
    if not isinstance(meta, dict):
        return {"extra": {"damage": "its meta_info is no object"}}
    row = _from_meta(meta)
    if isinstance(document.get("rid"), str):
        row["rid"] = visible(document["rid"], 200)
    return row


def _from_meta(meta: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column, names in _COLUMNS.items():
        row[column] = next((n for n in (_number(meta.get(name)) for name in names) if n is not None), None)
        if column != "accept_len" and row[column] is not None:
            row[column] = int(row[column])
    if row["accept_len"] is None and row["verify_steps"] and row["output_tokens"] is not None:
        row["accept_len"] = row["output_tokens"] / row["verify_steps"]  # SGLang's own definition
    if isinstance(meta.get("id"), str):
        row["rid"] = visible(meta["id"], 200)
    extra = {name: visible(str(meta[name]), 500) for name in _KEPT if meta.get(name) is not None}
    latency = _number(meta.get("e2e_latency"))
    if latency is not None:
        extra["e2e_latency_s"] = repr(latency)
    reason = meta.get("finish_reason")
    if isinstance(reason, dict) and isinstance(reason.get("type"), str):
        extra["finish_reason"] = visible(reason["type"], 40)
    row["extra"] = extra
    return row


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and abs(value) < 2**53 else None


def _time_stats(match: re.Match[str]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    extra: dict[str, str] = {}
    for name, value in _FACT.findall(match["facts"]):
        key = name.strip().replace("_", " ")
        column = _STATS_COLUMNS.get(key)
        if key == "rid":
            row["rid"] = visible(value, 200)
        elif column and re.fullmatch(r"\d{1,15}", value):
            row[column] = int(value)
        else:
            extra[key.replace(" ", "_")] = visible(value, 100)
    for name, value, unit in _DURATION.findall(match["durations"]):
        column = _DURATION_COLUMNS.get(name)
        if column and unit:
            row[column] = float(value) * (1.0 if unit == "ms" else 1000.0)
        else:
            extra[name] = value + unit
    row["extra"] = extra
    return row
