"""vLLM server logs: the engine's throughput line and the SpecDecoding metrics line, to rows of the ``decode`` table.

vLLM averages over a wall-clock interval (10 s by default) that may hold idle time and prefills, and prints the number
of running requests at its end. So a row carries the flag ``interval_average`` and no step time.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any

Row = dict[str, Any]

_DECIMAL = r"[0-9]{1,15}(?:\.[0-9]{0,15})?"
# ``(APIServer pid=7) INFO 11-20 12:00:00 [loggers.py:248] text``: month and day, no year.
_PREFIX = re.compile(
    r"(?:^|\s)(?:INFO|DEBUG) (?P<month>\d\d)-(?P<day>\d\d) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d(?:\.\d+)?) "
    r"\[[^\]]*\] (?P<text>.*)$"
)
_ENGINE = re.compile(r"^Engine (?P<engine>\d{1,9}): ")
_STATS = re.compile(
    rf"^Avg prompt throughput: (?P<prompt>{_DECIMAL}) tokens/s, "
    rf"Avg generation throughput: (?P<generation>{_DECIMAL}) tokens/s, "
    r"Running: (?P<running>\d{1,9}) reqs, (?:Swapped: (?P<swapped>\d+) reqs, )?"
    r"(?:Waiting|Pending): (?P<waiting>\d{1,9}) reqs"
    r"(?P<rest>.*)$"
)
_CACHE = re.compile(rf"GPU KV cache usage: (?P<usage>{_DECIMAL})%")
_REST = re.compile(rf", (?P<key>[A-Z][^:,]*): (?P<value>{_DECIMAL}%?(?: reqs)?)")
_SPEC = re.compile(
    rf"^SpecDecoding metrics: Mean acceptance length: (?P<length>{_DECIMAL}|nan), "
    rf"Accepted throughput: (?P<accepted_rate>{_DECIMAL}) tokens/s, "
    rf"Drafted throughput: (?P<drafted_rate>{_DECIMAL}) tokens/s, "
    r"Accepted: (?P<accepted>\d+) tokens, Drafted: (?P<drafted>\d+) tokens, "
    rf"Per-position acceptance rate: (?P<positions>[\d., ]*), Avg Draft acceptance rate: (?P<rate>{_DECIMAL}|nan)%"
)


def _seconds(match: re.Match[str]) -> float | None:
    """Seconds since the start of a year that the log does not name (a leap year is assumed)."""
    try:
        day = dt.date(2000, int(match["month"]), int(match["day"]))
    except ValueError:
        return None
    clock = int(match["hour"]) * 3600 + int(match["minute"]) * 60 + float(match["second"])
    return (day - dt.date(2000, 1, 1)).days * 86400.0 + clock


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


class VllmReader:
    """Feed the lines of a file in order; ``rows`` are decode rows. ``feed`` returns False for foreign lines.

    A SpecDecoding line completes the throughput line before it: accept length, and in ``extra`` the counts and the
    unconditional acceptance rate per position.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.rows: list[Row] = []

    def feed(self, line: int, text: str) -> bool:
        """Take one line without its end; True when it is one of vLLM's two metric lines."""
        if "tokens/s" not in text:
            return False
        prefix = _PREFIX.search(text.rstrip("\r\n"))
        if prefix is None:
            return False
        body = prefix["text"]
        engine = _ENGINE.match(body)
        if engine:
            body = body[engine.end() :]
        if match := _STATS.match(body):
            self._stats(line, prefix, int(engine["engine"]) if engine else None, match)
            return True
        if match := _SPEC.match(body):
            self._spec(line, prefix, match)
            return True
        return False

    def _row(self, line: int, prefix: re.Match[str]) -> Row:
        return {"file": self.file, "line": line, "time": _seconds(prefix), "flags": ["interval_average"], "extra": []}

    def _stats(self, line: int, prefix: re.Match[str], engine: int | None, match: re.Match[str]) -> None:
        row = self._row(line, prefix)
        usage = _CACHE.search(match["rest"])
        extra = [(key, value) for key, value in _REST.findall(match["rest"]) if not key.startswith("GPU KV cache")]
        row |= {
            "dp": engine,
            "running_req": int(match["running"]),
            "queue_req": int(match["waiting"]),
            "gen_throughput_tok_s": float(match["generation"]),
            "token_usage": float(usage["usage"]) / 100 if usage else None,
            "extra": [("Avg prompt throughput", match["prompt"]), *extra],
        }
        if float(match["prompt"]) > 0:
            row["flags"].append("after_prefill")
        self.rows.append(row)

    def _spec(self, line: int, prefix: re.Match[str], match: re.Match[str]) -> None:
        # The metrics of an interval are printed directly after its throughput.
        if not self.rows or line - self.rows[-1]["line"] > 3 or self.rows[-1].get("accept_len") is not None:
            self.rows.append(self._row(line, prefix))
        rate = _finite(match["rate"])
        row = self.rows[-1]
        row["accept_len"] = _finite(match["length"])
        row["accepted_per_draft_token"] = None if rate is None else rate / 100
        row["extra"] += [
            ("accepted_tokens", match["accepted"]),
            ("drafted_tokens", match["drafted"]),
            ("acceptance_per_position", match["positions"].replace(" ", "")),
        ]
