"""Finished requests of one server."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from profkit.serving.columns import Floats, floats, integers, known

_SUMMED = ("input_tokens", "cached_tokens", "output_tokens", "verify_steps", "accepted_drafts", "proposed_drafts")
_SPREAD = ("queue_ms", "prefill_ms", "decode_ms")
_KEPT = 200_000


class RequestStats:
    """Add request batches; sums are exact, medians come from the first 200,000 requests."""

    def __init__(self) -> None:
        self._count = 0
        self._sums: dict[str, int] = {}
        self._tokens = self._steps = 0
        self._values: dict[str, list[Floats]] = {name: [] for name in _SPREAD}

    def add(self, batch: pa.RecordBatch) -> None:
        """Requests of this server."""
        for name in _SUMMED:
            if known(batch, name).any():
                self._sums[name] = self._sums.get(name, 0) + int(integers(batch, name, 0).sum())
        tokens, steps = integers(batch, "output_tokens", 0), integers(batch, "verify_steps", 0)
        speculated = (steps > 0) & known(batch, "output_tokens")
        self._tokens += int(tokens[speculated].sum())
        self._steps += int(steps[speculated].sum())
        if self._count < _KEPT:
            for name in _SPREAD:
                values = floats(batch, name)
                self._values[name].append(values[~np.isnan(values)])
        self._count += batch.num_rows

    def summary(self) -> dict[str, float | int | None]:
        """Counts, sums, medians; ``accept_len`` is sum of output tokens over sum of verify steps."""
        result: dict[str, float | int | None] = {"finished": self._count}
        for name in _SUMMED:
            result[name] = self._sums.get(name)
        result["accept_len"] = self._tokens / self._steps if self._steps else None
        for name in _SPREAD:
            values = np.concatenate([np.empty(0), *self._values[name]])
            result[f"{name}_p50"] = float(np.median(values)) if len(values) else None
        return result
