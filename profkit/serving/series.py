"""A log in at most sixty points: what sparklines and plots over time show."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from profkit.serving.cluster import cluster_samples
from profkit.serving.columns import Floats, floats

POINTS: Final = 60
_COLUMNS: Final = ("gen_throughput_tok_s", "accept_len", "step_ms", "running_req")


def series(decode: pa.Table) -> dict[str, list[float | None]]:
    """Means of the decode lines in up to 60 stretches of equal numbers of lines.

    Keys: ``time_s`` from the first line (``None`` without times), and the means of throughput (all DP ranks added up),
    accept length, step time and running requests; ``None`` where a stretch shows none.
    """
    count = decode.num_rows
    if not count:
        return {}
    bounds = np.linspace(0, count, min(POINTS, count) + 1).astype(int)
    times = floats(decode, "time")
    start = float(np.nanmin(times)) if not np.isnan(times).all() else np.nan
    result = {"time_s": _means(times - start, bounds)}
    for name in _COLUMNS:
        result[name] = _means(floats(decode, name), bounds)
    several, total = cluster_samples(decode)
    if len(total) == count and len(several):
        result["gen_throughput_tok_s"] = _means(total, bounds)
    return result


def _means(values: Floats, bounds: np.ndarray[tuple[int], np.dtype[np.int_]]) -> list[float | None]:
    means: list[float | None] = []
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        part = values[first:last]
        part = part[~np.isnan(part)]
        means.append(float(part.mean()) if len(part) else None)
    return means
