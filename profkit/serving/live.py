"""A live log: the state of the server now, and alarms when something turns bad."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from profkit.serving.interpret import EXCLUDING, Interpreter
from profkit.serving.result import LogSummary

_RECENT: Final = 20
_HISTORY: Final = 2000
_FEW: Final = 5
_PINNED: Final = 10
_COLLAPSE: Final = 0.5
_FULL: Final = 0.95
_SIMILAR: Final = 0.2  # baseline loads within 20 % are comparable
_FAULTS: Final = {
    "exception": "a process of the server hit an exception",
    "watchdog": "the watchdog saw no progress",
    "oom": "memory ran out",
    "child_failed": "a process of the server died",
}


@dataclass(frozen=True, slots=True)
class Baseline:
    """Step times without speculation, in milliseconds: one for any load, or by running requests."""

    step_ms: float | None = None
    by_running: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of_summary(cls, summary: LogSummary) -> Baseline:
        """The baseline that another log shows."""
        rows = [row for server in summary.servers for row in server.by_batch]
        return cls(by_running={r.running_req: r.step_ms.p50 for r in rows if r.step_ms.p50 is not None})

    def step(self, running: float) -> float | None:
        """The step time at a load: exact, else of the nearest load within 20 %."""
        if self.step_ms is not None:
            return self.step_ms
        near = [size for size in self.by_running if abs(size - running) <= _SIMILAR * running]
        return self.by_running[min(near, key=lambda size: (abs(size - running), size))] if near else None


@dataclass(frozen=True, slots=True)
class Status:
    """The server now; means of the last 20 steady lines. ``break_even`` is in tokens per request and step."""

    time: float | None
    line: int
    throughput_tok_s: float | None
    accept_len: float | None
    step_ms: float | None
    running_req: int | None
    queue_req: int | None
    token_usage: float | None
    break_even: float | None

    def to_json(self) -> dict[str, object]:
        """The status as one JSON object."""
        return {"kind": "status", **{name: getattr(self, name) for name in self.__slots__}}


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something turned bad (``on``) or good again."""

    name: str
    on: bool
    sentence: str
    line: int
    time: float | None

    def to_json(self) -> dict[str, object]:
        """The alarm as one JSON object."""
        return {"kind": "alarm", **{name: getattr(self, name) for name in self.__slots__}}


class Monitor:
    """Give it what was read, in order; ask for the status, and for alarms raised since the last time."""

    def __init__(self, baseline: Baseline | None = None) -> None:
        self._baseline = baseline
        self._reader = Interpreter(hold=False)
        self._steady: deque[Mapping[str, Any]] = deque(maxlen=_HISTORY)
        self._latest: dict[tuple[Any, ...], tuple[Mapping[str, Any], float | None]] = {}
        self._last: Mapping[str, Any] | None = None
        self._on: set[str] = set()
        self._alarms: list[Alarm] = []

    def restart(self) -> None:
        """The log was replaced: the old server's numbers say nothing of what comes."""
        self._reader = Interpreter(hold=False)
        self._steady.clear()
        self._latest.clear()
        self._on.clear()

    def push(
        self,
        batches: Mapping[str, pa.RecordBatch],
        servers: Sequence[tuple[str, Mapping[str, Any]]],
        *,
        history: bool = False,
    ) -> None:
        """One stretch of the log; with ``history`` it is learnt from and raises no alarm."""
        for file, row in servers:
            self._reader.server(file, row)
            if row.get("server_args"):
                self._steady.clear()
                self._latest.clear()
        if "event" in batches:
            self._reader.event(batches["event"])
            if not history:
                self._events(batches["event"])
        if "prefill" in batches:
            self._reader.prefill(batches["prefill"])
        if "decode" in batches:
            for batch in self._reader.decode(batches["decode"]):
                for row in batch.slice(max(0, batch.num_rows - _HISTORY) if history else 0).to_pylist():
                    self._decode(row, history=history)

    def alarms(self) -> list[Alarm]:
        """Alarms since the last call."""
        raised, self._alarms = self._alarms, []
        return raised

    def status(self) -> Status | None:
        """The state at the last decode line, or ``None`` before the first."""
        if self._last is None:
            return None
        rows = list(self._latest.values())
        recent = list(self._steady)[-_RECENT:]
        fresh = [row for row, _ in rows if not self._stale(row)]
        speeds = [row["gen_throughput_tok_s"] for row in fresh if row["gen_throughput_tok_s"] is not None]
        return Status(
            time=self._last["time"],
            line=self._last["line"],
            throughput_tok_s=sum(speeds) if speeds else None,
            accept_len=_weighted(recent),
            step_ms=_median([row["step_ms"] for row in recent]),
            running_req=sum(row["running_req"] or 0 for row in fresh) if fresh else None,
            queue_req=sum(row["queue_req"] or 0 for row in fresh) if fresh else None,
            token_usage=max((row["token_usage"] for row in fresh if row["token_usage"] is not None), default=None),
            break_even=self._break_even(recent),
        )

    def _stale(self, row: Mapping[str, Any]) -> bool:
        assert self._last is not None
        interval = self._latest[_rank(row)][1]
        if interval is None or row["time"] is None or self._last["time"] is None:
            return False
        return bool(self._last["time"] - row["time"] > 2.0 * interval + 1.0)

    def _break_even(self, rows: Sequence[Mapping[str, Any]]) -> float | None:
        if self._baseline is None:
            return None
        ratios = []
        for row in rows:
            base = self._baseline.step(row["running_req"]) if row["step_ms"] is not None else None
            if base:
                ratios.append(row["step_ms"] / base)
        return _median(ratios)

    def _decode(self, row: Mapping[str, Any], *, history: bool) -> None:
        if "damaged" in row["flags"]:
            return
        self._last = row
        before = self._latest.get(_rank(row))
        interval = None
        if before is not None and row["time"] is not None and before[0]["time"] is not None:
            interval = row["time"] - before[0]["time"]
        self._latest[_rank(row)] = (row, interval)
        if not set(row["flags"]) & set(EXCLUDING):
            self._steady.append(row)
        if not history:
            self._check(row)

    def _check(self, row: Mapping[str, Any]) -> None:
        recent = list(self._steady)[-_RECENT:]
        length, even = _weighted(recent), self._break_even(recent)
        if length is not None and even is not None and len(recent) >= _FEW:
            self._set(
                "accept_below_break_even",
                length < even,
                row,
                f"accept length {length:.2f} is below break-even {even:.2f}: speculation makes this server slower",
                f"accept length {length:.2f} is above break-even {even:.2f} again",
            )
        pinned = [r["accept_len"] for r in list(self._steady)[-_PINNED:] if r["accept_len"] is not None]
        self._set(
            "accept_len_one",
            len(pinned) == _PINNED and max(pinned) <= 1.0,
            row,
            f"accept length exactly 1.00 for {_PINNED} lines: no draft token is accepted",
            "draft tokens are accepted again",
        )
        self._set("throughput_collapse", self._collapsed(), row, *_COLLAPSE_WORDS)
        few = list(self._steady)[-_FEW:]
        queue = [r["queue_req"] or 0 for r in few]
        self._set(
            "queueing",
            len(few) == _FEW and min(queue, default=0) > 0,
            row,
            f"requests have waited for {_FEW} lines, {row['queue_req']} now",
            "no request waits any more",
        )
        usage = [r["token_usage"] or 0.0 for r in few]
        self._set(
            "kv_cache_full",
            len(few) == _FEW and min(usage, default=0.0) >= _FULL,
            row,
            f"the KV cache is at least {100 * _FULL:.0f} % full; retraction is near",
            "the KV cache has room again",
        )
        eager = [r["cuda_graph"] is False and r["graph_kind"] != "cpu" for r in few]
        self._set(
            "no_graph",
            len(few) == _FEW and all(eager),
            row,
            f"{_FEW} decode lines without a graph: the batch may be larger than any captured one",
            "decoding uses graphs again",
        )

    def _collapsed(self) -> bool:
        rows = [r for r in self._steady if r["running_req"] and r["gen_throughput_tok_s"]]
        if len(rows) < 3 * _FEW:
            return False
        for row in rows[-_FEW:]:
            same = [r["gen_throughput_tok_s"] for r in rows[:-_FEW] if r["running_req"] == row["running_req"]]
            if len(same) < _FEW or row["gen_throughput_tok_s"] >= _COLLAPSE * float(np.median(same)):
                return False
        return True

    def _events(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            if row["kind"] == "retraction":
                number = str(dict(row["fields"] or ()).get("retracted_reqs", "some"))
                requests = "1 request was" if number == "1" else f"{number} requests were"
                self._raise("retraction", row, f"the KV cache ran full and {requests} put back")
            elif row["kind"] in _FAULTS:
                error = dict(row["fields"] or ())
                detail = f": {error['type']}: {error.get('message', '')}" if error.get("type") else ""
                self._raise(row["kind"], row, f"{_FAULTS[row['kind']]}{detail}")

    def _set(self, name: str, bad: bool, row: Mapping[str, Any], sentence: str, cleared: str) -> None:
        if bad == (name in self._on):
            return
        if bad:
            self._on.add(name)
            self._raise(name, row, sentence)
        else:
            self._on.discard(name)
            self._alarms.append(Alarm(name, False, cleared, row["line"], row["time"]))

    def _raise(self, name: str, row: Mapping[str, Any], sentence: str) -> None:
        self._alarms.append(Alarm(name, True, sentence, row["line"], row["time"]))


_COLLAPSE_WORDS: Final = (
    f"for {_FEW} lines the throughput is less than half of what it was at the same number of requests",
    "the throughput has recovered",
)


def _rank(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (row["server"], row["dp"])


def _weighted(rows: Sequence[Mapping[str, Any]]) -> float | None:
    pairs = [(r["accept_len"], r["running_req"]) for r in rows if r["accept_len"] is not None and r["running_req"]]
    return sum(a * n for a, n in pairs) / sum(n for _, n in pairs) if pairs else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None
