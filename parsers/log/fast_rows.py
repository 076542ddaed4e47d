"""Rows of the lines that were read with array operations: which server each belongs to, and record batches."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profkit import tables
from profkit.parsers.log.fast import FastBlock, FastReader, Matched
from profkit.parsers.log.lines import Block
from profkit.parsers.log.prefix import RANK_NAMES
from profkit.parsers.log.segments import Segmenter
from profkit.parsers.log.versions import line_features

_MICROS: Final = 1e6


class FastRows:
    """The lines of one block at a time. :meth:`settle` gives servers to all rows before a line, in line order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._reader = FastReader()
        self._segments: Segmenter | None = None
        self._block: FastBlock | None = None
        self._first_line = 0
        self._order: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._lines = self._groups = self._servers = self._runs = self._order
        self._times: npt.NDArray[np.float64] = np.empty(0)
        self._done = 0
        self._settling = False

    @property
    def rows(self) -> int:
        """Rows of the current block."""
        return len(self._lines)

    def read(self, block: Block, segments: Segmenter) -> FastBlock:
        """Read a block; its rows get their servers from ``segments`` as the other lines are read."""
        self._segments, self._first_line = segments, block.first_line
        self._block = self._reader.read(block.data)
        matched = self._block.matched
        empty: npt.NDArray[np.int64] = np.empty(0, np.int64)
        lines = np.concatenate([empty, *(m.lines for m in matched)])
        self._order = np.argsort(lines, kind="stable")
        self._lines = lines[self._order] + block.first_line
        self._groups = np.concatenate([empty, *(m.groups for m in matched)])[self._order]
        self._times = np.concatenate([np.empty(0), *(m.times for m in matched)])[self._order]
        self._servers = np.zeros(len(lines), np.int64)
        kinds: dict[frozenset[str], int] = {}
        names = np.array([kinds.setdefault(p.rank_names, len(kinds)) for p in self._block.prefixes], np.int64)
        of_row = names[self._groups] if len(lines) else empty
        self._runs = np.flatnonzero(np.append(True, of_row[1:] != of_row[:-1])) if len(lines) else empty
        self._done = 0
        return self._block

    def settle(self, line: int) -> None:
        """Give servers to the rows before ``line`` that have none yet."""
        if self._settling or self._segments is None or self._block is None:
            return
        stop = int(np.searchsorted(self._lines, line))
        self._settling = True
        try:
            while self._done < stop:
                run = int(np.searchsorted(self._runs, self._done, side="right"))
                end = min(stop, int(self._runs[run]) if run < len(self._runs) else len(self._lines))
                first = self._done
                names = self._block.prefixes[int(self._groups[first])].rank_names
                time = float(self._times[first])
                server = self._segments.of_batch("", names, int(self._lines[first]), time, True)
                self._servers[first:end] = server.number
                self._done = end
        finally:
            self._settling = False

    def take(self) -> dict[str, list[pa.RecordBatch]]:
        """The rows of the block as record batches, one per layout, by table."""
        if self._block is None or self._segments is None:
            return {}
        self.settle(int(self._lines[-1]) + 1 if len(self._lines) else 0)
        servers = np.empty(len(self._order), np.int64)
        servers[self._order] = self._servers
        batches: dict[str, list[pa.RecordBatch]] = {}
        start = 0
        for matched in self._block.matched:
            own = servers[start : start + len(matched.lines)]
            start += len(matched.lines)
            self._note_features(matched, own)
            batches.setdefault(matched.template.kind, []).append(self._batch(matched, own))
        self._block = None
        self._lines = self._lines[:0]
        return batches

    def _note_features(self, matched: Matched, servers: npt.NDArray[np.int64]) -> None:
        assert self._block is not None
        assert self._segments is not None
        pairs = np.unique(servers * len(self._block.prefixes) + matched.groups)
        for pair in pairs.tolist():
            server, group = divmod(pair, len(self._block.prefixes))
            found = line_features(self._block.prefixes[group], matched.template.sample)
            self._segments.servers[server].features |= found

    def _batch(self, matched: Matched, servers: npt.NDArray[np.int64]) -> pa.RecordBatch:
        assert self._block is not None
        schema = tables.LOG_TABLES[matched.template.kind]
        count = len(matched.lines)
        nothing: Any = pa.array(np.zeros(count + 1, np.int32))
        text: Any = pa.array([], pa.string())
        columns: dict[str, Any] = {
            "file": _repeated(self._name, count),
            "line": pa.array(matched.lines + self._first_line),
            "time": pa.array(matched.times),
            "timestamp": pa.array(np.rint(matched.times * _MICROS).astype(np.int64)).cast(pa.timestamp("us")),
            "server": pa.array(servers.astype(np.int32)),
            "flags": pa.ListArray.from_arrays(nothing, text),
            "extra": pa.MapArray.from_arrays(nothing, text, text),
        }
        for number, name in enumerate(RANK_NAMES):
            shown = [prefix.ranks[number] for prefix in self._block.prefixes]
            if any(rank is not None for rank in shown):
                columns[name] = pa.array(shown, pa.int32()).take(pa.array(matched.groups, pa.int64()))
        for name, value in matched.template.constants:
            columns[name] = _repeated(str(value), count)
        for name, values in matched.values.items():
            columns[name] = pa.array(values)
        arrays = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def merged(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one table as one, in line order."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    order = np.argsort(np.asarray(table["line"].to_numpy()), kind="stable")
    return table.take(pa.array(order, pa.int64())).combine_chunks().to_batches()[0]


def _repeated(value: str, count: int) -> Any:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([value]))
