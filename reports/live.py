"""Lines that a person reads while following a live log."""

from __future__ import annotations

import datetime as dt

from profkit.escape import visible
from profkit.reports.ansi import COLOUR, PLAIN
from profkit.reports.log_summary import number
from profkit.serving.live import Alarm, Status

_DAY = 86_400.0


def clock(seconds: float | None) -> str:
    """Time of day of the log's clock."""
    if seconds is None:
        return "--:--:--"
    moment = dt.datetime.fromtimestamp(seconds % _DAY, dt.UTC)
    return f"{moment:%H:%M:%S}"


def status_line(status: Status) -> str:
    """The state of the server in one line."""
    parts = [f"{number(status.throughput_tok_s)} tok/s"]
    if status.accept_len is not None:
        parts.append(f"accept {status.accept_len:.2f}")
    parts.append(f"step {number(status.step_ms)} ms")
    if status.break_even is not None:
        gain = "" if status.accept_len is None else f" ({status.accept_len / status.break_even:.2f}x the baseline)"
        parts.append(f"break-even {status.break_even:.2f}{gain}")
    parts.append(f"running {'-' if status.running_req is None else status.running_req}")
    parts.append(f"queue {'-' if status.queue_req is None else status.queue_req}")
    if status.token_usage is not None:
        parts.append(f"KV {100 * status.token_usage:.0f} %")
    return f"{clock(status.time)}  {'  '.join(parts)}"


def alarm_line(alarm: Alarm, *, colour: bool) -> str:
    """One alarm, or its end."""
    style = COLOUR if colour else PLAIN
    word, tint = ("ALARM", style.red) if alarm.on else ("ok", style.dim)
    return f"{clock(alarm.time)}  {tint}{word}{style.end} {visible(alarm.sentence, 300)} (line {alarm.line})"
