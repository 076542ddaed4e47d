"""Makes trace files: any events in every layout that profilers and tools write."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

from profkit import tables
from profkit.trace import Trace

Event: TypeAlias = dict[str, Any]

LAYOUTS = ("kineto", "kineto_lines", "one_line", "compact", "indent_2", "indent_4", "ragged")


def text_of(value: Any) -> str:
    """JSON of a value on one line; ``Decimal`` as it is written."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {text_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(text_of(v) for v in value) + "]"
    return json.dumps(value)


def _indented(value: Any, step: int, level: int) -> str:
    pad, close = " " * (step * (level + 1)), " " * (step * level)
    if isinstance(value, dict) and value:
        inner = ",\n".join(f"{pad}{json.dumps(k)}: {_indented(v, step, level + 1)}" for k, v in value.items())
        return "{\n" + inner + "\n" + close + "}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(pad + _indented(v, step, level + 1) for v in value) + "\n" + close + "]"
    return text_of(value)


def _kineto(event: Event) -> str:
    """Three lines and a block of arguments."""
    head = ", ".join(f"{json.dumps(k)}: {text_of(v)}" for k, v in event.items() if k not in ("ts", "dur", "args"))
    lines = [head] if head else []
    times = ", ".join(f'"{k}": {text_of(event[k])}' for k in ("ts", "dur") if k in event)
    lines += [times] if times else []
    if "args" in event:
        lines.append('"args": ' + text_of(event["args"]).replace("{", "{\n      ", 1)[:-1] + "\n    }"
                     if isinstance(event["args"], dict) else '"args": ' + text_of(event["args"]))  # fmt: skip
    return "  {\n    " + ",\n    ".join(lines) + "\n  }"


def _kineto_lines(event: Event) -> str:
    """A line per key, as today's profilers write."""
    return "  {\n    " + ",\n    ".join(f"{json.dumps(k)}: {text_of(v)}" for k, v in event.items()) + "\n  }"


def _ragged(event: Event, number: int) -> str:
    """White space that differs from event to event."""
    gap = ("", " ", "\n", "\t ", "\r\n")[number % 5]
    inside = f",{gap}".join(f"{json.dumps(k)}{gap}:{gap}{text_of(v)}" for k, v in event.items())
    return f"{gap}{{{gap}{inside}{gap}}}{gap}"


def body(events: Sequence[Event], layout: str) -> str:
    """The array of events, brackets included."""
    if layout == "kineto":
        return "[\n" + ",\n".join(map(_kineto, events)) + "\n  ]"
    if layout == "kineto_lines":
        return "[\n    \n" + ",\n".join(map(_kineto_lines, events)) + "\n  ]"
    if layout == "compact":
        return "[" + ",".join(json.dumps(json.loads(text_of(e)), separators=(",", ":")) if _floatless(e) else
                              text_of(e).replace("}, {", "},{") for e in events) + "]"  # fmt: skip
    if layout.startswith("indent"):
        return _indented(list(events), int(layout[-1]), 1)
    if layout == "ragged":
        return "[" + ",".join(_ragged(e, i) for i, e in enumerate(events)) + "]"
    return text_of(list(events))


def _floatless(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_floatless, value.values()))
    if isinstance(value, list):
        return all(map(_floatless, value))
    return not isinstance(value, Decimal | float)


def document(
    events: Sequence[Event], layout: str = "kineto", *, facts: Mapping[str, Any] | None = None, where: str = "last"
) -> bytes:
    """A whole trace file; ``where`` puts the events ``first``, ``middle`` or ``last``, or makes it ``bare``."""
    array = body(events, layout)
    if where == "bare":
        return array.encode()
    known = {"schemaVersion": 1, "deviceProperties": [], **(facts or {}), "traceName": '/tmp/x "}, {\\ ] .json'}
    pairs = [f"{json.dumps(k)}: {text_of(v)}" for k, v in known.items()]
    at = {"first": 0, "middle": len(pairs) // 2, "last": len(pairs)}[where]
    pairs.insert(at, f'"traceEvents": {array}')
    return ("{\n  " + ",\n  ".join(pairs) + "\n}\n").encode()


@dataclass
class Clock:
    """Counts time and ids for made events."""

    ns: int = 4909733316007991
    serial: int = 0

    def next(self, step: int = 1500) -> tuple[Decimal, int]:
        """The next time in microseconds and the next id."""
        self.ns += step
        self.serial += 1
        return Decimal(self.ns) / 1000, self.serial


def decode_events(count: int, *, frames: int = 0, pid: int = 251, clock: Clock | None = None) -> list[Event]:
    """``count`` launches with their kernels, host operators, annotations and collectives, then metadata."""
    clock = clock or Clock()
    events: list[Event] = []
    for _ in range(count):
        ts, i = clock.next()
        events.append(
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": pid, "tid": pid, "ts": ts, "dur": Decimal("3.250"),
             "args": {"External id": i, "Input Dims": [[1, 2], []], "Ev Idx": i}}
        )  # fmt: skip
    for _ in range(frames):
        ts, i = clock.next()
        events.append(
            {"ph": "X", "cat": "python_function", "name": f"a/b.py({i % 7}): f", "pid": pid, "tid": pid, "ts": ts,
             "dur": Decimal("7.001"), "args": {"Python parent id": i - 1, "Python id": i, "Ev Idx": i}}
        )  # fmt: skip
    for k in range(count):
        ts, i = clock.next()
        events.append(
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid, "tid": pid, "ts": ts,
             "dur": Decimal("5.500"), "args": {"External id": i, "cbid": 211, "correlation": i}}
        )  # fmt: skip
        events.append({"ph": "s", "id": i, "pid": pid, "tid": pid, "ts": ts, "cat": "ac2g", "name": "ac2g"})
        collective = k % 4 == 3
        args: dict[str, Any] = {"External id": i, "device": 0, "stream": 7, "correlation": i, "grid": [1, 1, 1],
                                "blocks per SM": Decimal("0.006757"), "graph node id": 100 + k % 5}  # fmt: skip
        if collective:
            args |= {"Collective name": "allreduce", "In msg nelems": 7168, "Out msg nelems": 7168, "Group size": 8,
                     "dtype": "BFloat16", "Process Group Name": "tp:0"}  # fmt: skip
        events.append(
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel" if collective else "void gemm<{lambda}, {int}>(x)",
             "pid": 0, "tid": 7, "ts": ts + 9, "dur": Decimal("4.125"), "args": args}
        )  # fmt: skip
    ts, i = clock.next()
    events += [
        {"ph": "X", "cat": "user_annotation", "name": f"step[DECODE bs={count}]", "pid": pid, "tid": pid,
         "ts": ts, "dur": Decimal("900.000"), "args": {"External id": i}},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "step", "pid": 0, "tid": 7, "ts": ts, "dur": Decimal("9.5"),
         "args": {"External id": i}},
        {"name": "process_name", "ph": "M", "ts": ts, "pid": pid, "tid": 0, "args": {"name": "sglang::scheduler_TP0"}},
        {"name": "thread_name", "ph": "M", "ts": ts, "pid": pid, "tid": pid, "args": {"name": "thread \"1\" {main}"}},
        {"ph": "X", "cat": "Trace", "ts": ts - 999, "dur": Decimal("12345.678"), "pid": "Spans",
         "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", "args": {"Op count": 0}},
        {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": ts},
    ]  # fmt: skip
    return events


def same_tables(a: Trace, b: Trace) -> bool:
    """Whether two traces hold the same rows, dictionaries aside."""
    return all(
        getattr(a, n) == getattr(b, n) or getattr(a, n).to_pylist() == getattr(b, n).to_pylist()
        for n in tables.TRACE_TABLES
    )


def write_trace(path: Path, count: int = 5, **facts: Any) -> Path:
    """A trace of ``count`` decode steps with header ``facts``; compressed if its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = document(decode_events(count), facts=facts)
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path
