"""Decode lines of one server: exact sums, and a bounded sample of stretches for percentiles and plots."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profkit.serving.cluster import cluster_throughput
from profkit.serving.columns import Floats, booleans, codes, flagged, floats, groups_of, integers, known
from profkit.serving.interpret import steady_mask
from profkit.serving.result import BatchRow, DecodeSummary, Spread

SAMPLE_COLUMNS: Final = (
    "file", "line", "time", "dp", "pp", "tp", "running_req", "token", "token_usage", "swa_token_usage", "accept_len",
    "accept_rate_era", "accepted_per_draft_token", "cuda_graph", "graph_kind", "gen_throughput_tok_s", "queue_req",
    "step_ms", "flags",
)  # fmt: skip
_STRETCH: Final = 4096
_NO_ROWS: Final = np.empty(0, np.int64)
_MOST_STRETCHES: Final = 32  # 130,000 lines; the decode lines of a 30 MB log are kept whole


class DecodeStats:
    """Add interpreted decode batches in file order."""

    def __init__(self) -> None:
        self.lines = self.damaged = self.flagged = 0
        self._graph = self._graph_known = 0
        self._sums: dict[int, Floats] = {}
        self._speculation = False
        self._stretches: list[pa.Table] = []
        self._open: list[pa.RecordBatch] = []
        self._open_rows = self._stretch_number = 0
        self._stride = 1
        self._sample: pa.Table | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Lines of this server."""
        self._sample = None
        steady = steady_mask(batch)
        damaged = flagged(batch, ["damaged"])
        self.lines += batch.num_rows
        self.damaged += int(damaged.sum())
        self.flagged += int((~steady & ~damaged).sum())
        self._graph_known += int((known(batch, "cuda_graph") & steady).sum())
        self._graph += int((booleans(batch, "cuda_graph", False) & steady).sum())
        self._speculation |= bool((floats(batch, "accept_len") > 1.0).any())
        self._add_sums(batch, steady)
        self._add_sample(batch)

    def speculation_seen(self) -> bool:
        """Whether any line gained more than one token per request and step."""
        return self._speculation

    def sample(self) -> pa.Table:
        """Whole lines of the kept stretches, in file order, with the columns :data:`SAMPLE_COLUMNS`."""
        if self._sample is None:
            self._sample = self._joined()
        return self._sample

    def _joined(self) -> pa.Table:
        parts = list(self._stretches)
        if self._open:
            parts.append(pa.Table.from_batches(self._open))
        if not parts:
            from profkit.tables import DECODE

            return pa.schema([DECODE.field(n) for n in SAMPLE_COLUMNS]).empty_table()
        return pa.concat_tables(parts).unify_dictionaries().combine_chunks()

    def steady(self) -> pa.Table:
        """The lines of the sample that may be averaged."""
        sample = self.sample()
        return sample.filter(pa.array(steady_mask(sample)))

    def era(self) -> str | None:
        """The definition of the accept rate, if the lines or the release tell."""
        eras = codes(self.sample(), "accept_rate_era")[1]
        return eras[0] if len(eras) == 1 else None

    def accepted_share(self) -> float | None:
        """Accepted drafts over draft tokens, weighted by requests."""
        steady = self.steady()
        share, running = floats(steady, "accepted_per_draft_token"), floats(steady, "running_req")
        usable = ~np.isnan(share) & (running > 0)
        return float(np.average(share[usable], weights=running[usable])) if usable.any() else None

    def summary(self) -> DecodeSummary:
        """Figures over the steady lines; exact means, percentiles of the sample."""
        steady = self.steady()
        total = sum(self._sums.values(), start=np.zeros(_SUMS))
        return DecodeSummary(
            lines=self.lines,
            damaged=self.damaged,
            flagged=self.flagged,
            gen_throughput_tok_s=_spread(steady, "gen_throughput_tok_s", _mean(total, "speed")),
            cluster_throughput_tok_s=cluster_throughput(steady),
            accept_len=_spread(steady, "accept_len", _mean(total, "accept")),
            step_ms=_spread(steady, "step_ms", _mean(total, "step")),
            cuda_graph_share=self._graph / self._graph_known if self._graph_known else None,
        )

    def by_batch(self) -> tuple[BatchRow, ...]:
        """Steady lines by number of running requests, smallest first."""
        steady = self.steady()
        by_size = {key[0]: rows for key, rows in groups_of([integers(steady, "running_req", -1)])}
        rows = []
        for running in sorted(self._sums):
            sums = self._sums[running]
            part = steady.take(pa.array(by_size.get(running, _NO_ROWS), pa.int64()))
            rows.append(
                BatchRow(
                    running_req=running,
                    lines=int(sums[_COUNT]),
                    gen_throughput_tok_s=_spread(part, "gen_throughput_tok_s", _mean(sums, "speed")),
                    accept_len=_spread(part, "accept_len", _mean(sums, "accept")),
                    step_ms=_spread(part, "step_ms", _mean(sums, "step")),
                    token_usage=_average(floats(part, "token_usage")),
                    context_tokens=_average(floats(part, "token") / running) if running else None,
                )
            )
        return tuple(rows)

    def _add_sums(self, batch: pa.RecordBatch, steady: npt.NDArray[np.bool_]) -> None:
        running, speed = floats(batch, "running_req"), floats(batch, "gen_throughput_tok_s")
        length, step = floats(batch, "accept_len"), floats(batch, "step_ms")
        usable = steady & (running > 0) & ~np.isnan(speed)
        # A line covers a fixed number of steps, so running requests count request-steps, and with the accept
        # length tokens; where that is not printed it is taken as constant, and cancels.
        tokens = running * np.where(np.isnan(length), 1.0, length)
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds = np.where(speed > 0, tokens / speed, np.nan)
        timed, rated, stepped = ~np.isnan(seconds), ~np.isnan(length), ~np.isnan(step)
        values, row_of = np.unique(running[usable], return_inverse=True)
        row_of = row_of.reshape(-1)
        figures = [
            np.ones(len(running)),
            np.where(timed, tokens, 0.0),
            np.where(timed, seconds, 0.0),
            np.where(rated, running * length, 0.0),
            np.where(rated, running, 0.0),
            np.where(stepped, step, 0.0),
            stepped.astype(np.float64),
        ]
        table = np.stack([np.bincount(row_of, figure[usable], len(values)) for figure in figures], axis=1)
        for value, sums in zip(values.tolist(), table, strict=True):
            self._sums[int(value)] = self._sums.get(int(value), np.zeros(_SUMS)) + sums

    def _add_sample(self, batch: pa.RecordBatch) -> None:
        kept = batch.select(list(SAMPLE_COLUMNS))
        start = 0
        while start < kept.num_rows:
            part = kept.slice(start, _STRETCH - self._open_rows)
            start += part.num_rows
            self._open_rows += part.num_rows
            if self._stretch_number % self._stride == 0:
                self._open.append(part)
            if self._open_rows == _STRETCH:
                self._close_stretch()

    def _close_stretch(self) -> None:
        if self._open:
            stretch = pa.Table.from_batches(self._open)
            # A copy: slices would keep whole batches alive.
            self._stretches.append(stretch.take(pa.array(np.arange(stretch.num_rows), pa.int64())))
        self._open, self._open_rows = [], 0
        self._stretch_number += 1
        if len(self._stretches) >= _MOST_STRETCHES:
            self._stretches = self._stretches[::2]
            self._stride *= 2


_COUNT, _SUMS = 0, 7
_RATIOS = {"speed": (1, 2), "accept": (3, 4), "step": (5, 6)}


def _mean(sums: Floats, name: str) -> float | None:
    above, below = _RATIOS[name]
    return float(sums[above] / sums[below]) if sums[below] > 0 else None


def _spread(table: pa.Table, column: str, mean: float | None) -> Spread:
    values = floats(table, column)
    values = values[~np.isnan(values)]
    if not len(values):
        return Spread(mean=mean)
    low, middle, high = np.percentile(values, (10, 50, 90))
    return Spread(float(low), float(middle), float(high), mean)


def _average(values: Floats) -> float | None:
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else None
