"""Which releases can have written a server's lines: by argument names, else by the features of its lines."""

from __future__ import annotations

from functools import cache

from profkit.parsers.log.batch import BatchLine
from profkit.parsers.log.prefix import Prefix
from profkit.parsers.log.segments import ServerStart
from profkit.parsers.server_args import releases
from profkit.rules import load_rules

_SHOWN_BY_KEY = {
    "accept len": "accept_len",
    "accept rate": "accept_rate",
    "#pending-token": "pending_token",
    "cap len": "cap_len",
    "cuda graph": "graph_label",
    "cache hit rate": "cache_hit_rate",
    "timestamp": "timestamp_field",
    "largest-len": "largest_len",
    "#bootstrap-req": "bootstrap_req",
    "fwd occupancy": "forward_occupancy",
    "fwd+idle occupancy": "idle_occupancy",
    "#full token": "two_pools",
    "#retracted-req": "retracted_req",
    "#prealloc-req": "prealloc_req",
    "npu graph": "npu_label",
    "musa graph": "musa_label",
}


def line_features(prefix: Prefix, line: BatchLine) -> set[str]:
    """Names of rules in ``dialects.toml`` that a whole batch line shows."""
    found = {_SHOWN_BY_KEY[key] for key in line.keys if key in _SHOWN_BY_KEY}
    if prefix.beheaded or prefix.source:
        return found
    if prefix.time is not None:
        found.add("dated_prefix" if prefix.dated else "time_only_prefix")
    if prefix.milliseconds:
        found.add("milliseconds_prefix")
    found.update(f"rank_{name}" for name in prefix.rank_names)
    comma = line.separator == ","
    found.add("comma_after_batch" if comma else "full_stop_after_batch")
    if "iteration" in line.values:
        found.add("iteration_number")
    if line.tail == ", ":
        found.add("trailing_comma")
    elif comma and line.tail == "" and line.kind == "decode":
        found.add("comma_form_without_trailing_comma")
    return found


def version_range(server: ServerStart) -> tuple[str | None, str | None, str | None]:
    """Oldest and newest release, and the evidence in words."""
    if server.engine != "sglang":
        return None, None, None
    named = server.argument_range()
    if named is not None:
        share = "exactly" if named.match == 1.0 else f"to {100 * named.match:.1f} %"
        return named.low, named.high, f"argument names agree {share}"
    order = releases()
    low, high = 0, len(order) - 1
    used = []
    for name in sorted(server.features):
        span = _features().get(name)
        if span is None:
            continue
        if span[0] > low or span[1] < high:
            used.append(name)
        low, high = max(low, span[0]), min(high, span[1])
    if not used:
        return None, None, None
    if low > high:
        return None, None, "its lines mix features of different releases (a fork or a development snapshot)"
    return order[low], order[high], "by " + ", ".join(used).replace("_", " ")


@cache
def _features() -> dict[str, tuple[int, int]]:
    order = {release: number for number, release in enumerate(releases())}
    last = len(order) - 1
    return {
        rule["name"]: (order[rule["first"]] if "first" in rule else 0, order[rule["last"]] if "last" in rule else last)
        for rule in load_rules("dialects")["feature"]
    }
