"""Throughput of all data-parallel ranks together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from profkit.serving.columns import Floats, floats, integers
from profkit.serving.result import Spread

_CLOCK_STEP_S = 1.0  # most logs print whole seconds


def cluster_samples(decode: pa.Table) -> tuple[Floats, Floats]:
    """Times and summed throughput: at each line the latest line of every rank, if not older than two intervals.

    A rank's interval is the time between its last two lines. Of the pipeline stages and tensor ranks of one
    data-parallel rank only the first that logs is counted.
    """
    table = _one_per_dp(decode)
    times, speeds, ranks = floats(table, "time"), floats(table, "gen_throughput_tok_s"), integers(table, "dp", -1)
    usable = ~(np.isnan(times) | np.isnan(speeds))
    times, speeds, ranks = times[usable], speeds[usable], ranks[usable]
    unique = np.unique(ranks)
    if len(unique) <= 1:
        return times, speeds
    order = np.argsort(times, kind="stable")
    times, speeds, ranks = times[order], speeds[order], ranks[order]
    total = np.zeros(len(times))
    for rank in unique:
        mine = np.flatnonzero(ranks == rank)
        latest = np.searchsorted(mine, np.arange(len(times)), side="right") - 1
        known = latest >= 0
        own = times[mine]
        interval = np.diff(own, prepend=np.nan)
        if len(own) > 1:
            interval[0] = interval[1]
        age = times - own[np.maximum(latest, 0)]
        fresh = known & ~(age > 2.0 * interval[np.maximum(latest, 0)] + _CLOCK_STEP_S)
        total[fresh] += speeds[mine[latest[fresh]]]
    return times, total


def cluster_throughput(decode: pa.Table) -> Spread:
    """Percentiles of the summed throughput over the lines, and their mean."""
    table = _one_per_dp(decode)
    if len(np.unique(integers(table, "dp", -1))) <= 1:
        speeds = floats(table, "gen_throughput_tok_s")
        speeds = speeds[~np.isnan(speeds)]
    else:
        _, speeds = cluster_samples(decode)
    if not len(speeds):
        return Spread()
    low, middle, high = np.percentile(speeds, (10, 50, 90))
    return Spread(float(low), float(middle), float(high), float(np.mean(speeds)))


def _one_per_dp(decode: pa.Table) -> pa.Table:
    """Only the first pipeline stage and tensor rank that logs for each data-parallel rank."""
    dp, pp, tp = (integers(decode, name, -1) for name in ("dp", "pp", "tp"))
    keep = np.ones(len(dp), bool)
    for rank in np.unique(dp):
        mine = dp == rank
        first_stage = pp[mine].min()
        stage = mine & (pp == first_stage)
        keep &= ~mine | (stage & (tp == tp[stage].min()))
    return decode.filter(pa.array(keep)) if not keep.all() else decode
