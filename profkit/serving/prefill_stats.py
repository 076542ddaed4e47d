"""Prefill lines of one server."""

from __future__ import annotations

import pyarrow as pa

from profkit.serving.columns import flagged, integers


class PrefillStats:
    """Add prefill batches; counts and sums only, for their throughput covers idle and decode time too."""

    def __init__(self) -> None:
        self._lines = self._damaged = self._new = self._cached = self._sequences = 0
        self._queue: int | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Lines of this server."""
        self._lines += batch.num_rows
        self._damaged += int(flagged(batch, ["damaged"]).sum())
        self._new += int(integers(batch, "new_token", 0).sum())
        self._cached += int(integers(batch, "cached_token", 0).sum())
        self._sequences += int(integers(batch, "new_seq", 0).sum())
        queue = int(integers(batch, "queue_req", -1).max(initial=-1))
        if queue >= 0:
            self._queue = max(queue, self._queue or 0)

    def summary(self) -> dict[str, float | int | None]:
        """Counts, sums and the share of prompt tokens found in the cache."""
        prompt = self._new + self._cached
        return {
            "lines": self._lines,
            "damaged": self._damaged,
            "new_seq": self._sequences,
            "new_tokens": self._new,
            "cached_tokens": self._cached,
            "cached_share": self._cached / prompt if prompt else None,
            "queue_req_max": self._queue,
        }
