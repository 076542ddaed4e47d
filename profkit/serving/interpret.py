"""What a decode line means in its place: flags, step time, the era of its accept rate.

The same rules serve a stream of record batches and whole tables, so both give the same rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profkit.logs import LogTables
from profkit.serving.columns import codes, column, flagged, floats, groups_of, integers, pc
from profkit.serving.context import RankContext
from profkit.serving.eras import EVIDENCE_LINES, EraDecision, EraEvidence
from profkit.tables import DECODE

ServerKey: TypeAlias = tuple[str, int]
# Lines with one of these are left out of averages.
EXCLUDING: Final = ("damaged", "after_idle", "after_prefill", "profiling", "empty_batch")
_RANKS: Final = ("dp", "pp", "tp", "ep", "attn_cp", "moe_dp")
_PROFILE_ON: Final = ("profile_start",)
_PROFILE_OFF: Final = ("profile_end",)


class Interpreter:
    """Give it every batch of a log in file order; decode batches come back interpreted, the others as they are.

    Decode rows may be held until the era of their server is decided, that is for at most 2000 lines that print an
    accept rate; :meth:`finish` gives the rest.
    """

    def __init__(self, *, hold: bool = True) -> None:
        """With ``hold=False`` (live logs) every row comes back at once, and eras stay undecided."""
        self._hold = hold
        self._servers: dict[ServerKey, Mapping[str, Any]] = {}
        self._evidence: dict[ServerKey, EraEvidence] = {}
        self._contexts: dict[tuple[Any, ...], RankContext] = {}
        self._prefills: dict[tuple[Any, ...], list[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]]] = {}
        self._profile: dict[ServerKey, list[tuple[int, bool]]] = defaultdict(list)
        self._held: list[pa.RecordBatch] = []

    def server(self, file: str, row: Mapping[str, Any]) -> None:
        """Facts of a server (a row of the server table); may be given again when more is known."""
        key = (file, int(row["server"]))
        self._servers[key] = row
        if key in self._evidence:
            self._evidence[key].server = row

    def event(self, batch: pa.RecordBatch) -> None:
        """Events up to here: they say when the profiler ran."""
        kinds = pc.is_in(batch["kind"], value_set=pa.array([*_PROFILE_ON, *_PROFILE_OFF]))
        for row in batch.filter(kinds).select(["file", "server", "line", "kind"]).to_pylist():
            self._profile[row["file"], row["server"]].append((row["line"], row["kind"] in _PROFILE_ON))

    def prefill(self, batch: pa.RecordBatch) -> None:
        """Prefill lines up to here: a decode line behind one carries its time."""
        lines = integers(batch, "line", 0)
        # A prefill that found no running request came to an idle server.
        idle = integers(batch, "running_req", -1) == 0
        for key, rows in _groups(batch):
            self._prefills.setdefault(key, []).append((lines[rows], idle[rows]))

    def decode(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Decode lines up to here; give the events and prefill lines of the same stretch of the file first."""
        self._held.append(self._flagged(batch))
        if not self._hold:
            yield from self.finish()
            return
        for file, server, mask in _by_server(batch):
            key = (file, server)
            if key not in self._evidence:
                self._evidence[key] = EraEvidence(self._servers.get(key, {}))
            self._evidence[key].add(floats(batch, "accept_len")[mask], floats(batch, "accept_rate")[mask])
        if all(e.count >= EVIDENCE_LINES or e.decision for e in self._evidence.values()):
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The rows still held."""
        held, self._held = self._held, []
        for batch in held:
            yield self._measured(batch)

    def _flagged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        count = batch.num_rows
        lines = integers(batch, "line", 0)
        damaged = flagged(batch, ["damaged"])
        marks = {name: np.zeros(count, bool) for name in EXCLUDING[1:]}
        for key, rows in _groups(batch):
            file, server = key[0], key[1]
            whole = rows[~damaged[rows]]
            if not len(whole):
                continue
            facts = self._servers.get((file, server), {})
            context = self._contexts.get(key)
            if context is None:
                started = bool(facts.get("server_args")) and not facts.get("continues")
                context = self._contexts[key] = RankContext(started)
            found = context.read(
                lines[whole],
                _steps(batch, facts.get("speculative"))[whole],
                self._prefills.pop(key, []),
                self._profile.get((file, server), []),
            )
            for name, mask in found.items():
                marks[name][whole] = mask
        marks["empty_batch"] = ~damaged & (integers(batch, "running_req", -1) == 0)
        return _with(batch, {"flags": _flag_lists(batch, marks)})

    def _measured(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        count = batch.num_rows
        steps = np.full(count, np.nan)
        shares = floats(batch, "accepted_per_draft_token").copy()
        eras = np.full(count, None, object)
        lengths = floats(batch, "accept_len")
        rated = ~np.isnan(floats(batch, "accept_rate"))
        for file, server, mask in _by_server(batch):
            facts = self._servers.get((file, server), {})
            steps[mask] = _steps(batch, facts.get("speculative"))[mask]
            evidence = self._evidence.get((file, server))
            decision = evidence.decide() if evidence else EraDecision(None, facts.get("num_draft_tokens"))
            draft = decision.num_draft_tokens
            if draft is not None and draft > 1:
                shares[mask] = (lengths[mask] - 1.0) / (draft - 1)
            eras[mask & rated] = decision.era
        columns: dict[str, Any] = {
            "step_ms": pa.array(steps, pa.float64(), from_pandas=True),
            "accepted_per_draft_token": pa.array(shares, pa.float64(), from_pandas=True),
            "accept_rate_era": pa.array(eras, pa.string()),
        }
        return _with(batch, columns)


def interpret(tables: LogTables) -> LogTables:
    """The same tables with flags, step time, era and normalised acceptance of every decode line filled in.

    step_ms = 1000 x running requests x accept length / generation throughput, per DP rank (with pipeline parallelism
    per micro-batch). The accept length is 1 only where the server's arguments show no speculation.
    """
    reader = Interpreter()
    for row in tables.server.to_pylist():
        reader.server(row["file"], row)
    for batch in tables.event.combine_chunks().to_batches():
        reader.event(batch)
    for batch in tables.prefill.combine_chunks().to_batches():
        reader.prefill(batch)
    done: list[pa.RecordBatch] = []
    for batch in tables.decode.unify_dictionaries().combine_chunks().to_batches():
        done.extend(reader.decode(batch))
    done.extend(reader.finish())
    return replace(tables, decode=pa.Table.from_batches(done, schema=DECODE))


def steady_decode(tables: LogTables) -> pa.Table:
    """Decode lines that may be averaged: whole, not after idle or prefill, not inside a profiling window."""
    decode = interpret(tables).decode
    return decode.filter(pa.array(steady_mask(decode)))


def steady_mask(decode: pa.Table | pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Which interpreted decode rows carry no excluding flag."""
    return ~flagged(decode, EXCLUDING)


def _steps(batch: pa.RecordBatch, speculative: bool | None) -> npt.NDArray[np.float64]:
    running, speed = floats(batch, "running_req"), floats(batch, "gen_throughput_tok_s")
    length = floats(batch, "accept_len")
    if speculative is False:
        length = np.where(np.isnan(length), 1.0, length)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = 1000.0 * running * length / speed
    # vLLM averages over wall-clock intervals and prints the requests at their end: no step time follows from that.
    steps[~((running > 0) & (speed > 0)) | flagged(batch, ["interval_average"])] = np.nan
    return steps


def _with(batch: pa.RecordBatch, columns: Mapping[str, Any]) -> pa.RecordBatch:
    for name, values in columns.items():
        batch = batch.set_column(batch.schema.get_field_index(name), DECODE.field(name), values)
    return batch


def _flag_lists(batch: pa.RecordBatch, found: Mapping[str, npt.NDArray[np.bool_]]) -> Any:
    """Lists of the flags found, and of those that the parser gave."""
    own = {str(name) for name in column(batch, "flags").flatten().unique().to_pylist()}
    names = [*EXCLUDING, *sorted(own - {*EXCLUDING})]
    nothing = np.zeros(batch.num_rows, bool)
    table = np.stack(
        [found.get(name, nothing) | (flagged(batch, [name]) if name in own else nothing) for name in names], axis=1
    )
    offsets = np.concatenate([[0], np.cumsum(table.sum(axis=1))]).astype(np.int32)
    values: Any = pa.DictionaryArray.from_arrays(np.nonzero(table)[1].astype(np.int32), pa.array(names))
    lists: Any = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values.cast(pa.string()))
    return lists.cast(DECODE.field("flags").type)


def _by_server(batch: pa.RecordBatch) -> Iterator[tuple[str, int, npt.NDArray[np.bool_]]]:
    files, names = codes(batch, "file")
    for (file, server), rows in groups_of([files, integers(batch, "server", -1)]):
        mask = np.zeros(batch.num_rows, bool)
        mask[rows] = True
        yield names[file], server, mask


def _groups(batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], npt.NDArray[np.int64]]]:
    """Row numbers by (file, server, ranks): one scheduler's lines, in order."""
    files, names = codes(batch, "file")
    columns = [files, integers(batch, "server", -1), *(integers(batch, name, -1) for name in _RANKS)]
    for key, rows in groups_of(columns):
        yield (names[key[0]], *key[1:]), rows
