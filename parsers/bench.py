"""Results of SGLang's benchmark clients: printed tables, printed lines and JSON lines, to the ``bench`` table.

Known tools: bench_serving, bench_one_batch (bench_latency before 0.3), bench_one_batch_server, bench_speculative and
send_one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from profkit.jsonio import loads
from profkit.rules import load_rules

Row = dict[str, Any]

_SERVING_HEAD = re.compile(r"^=+ Serving Benchmark Result =+\s*$")
_RULE = re.compile(r"^(=+|-+)$")
_SECTION = re.compile(r"^-{3,}[^-].*[^-]?-{3,}$")
_LABELLED = re.compile(r"^(?P<label>[A-Z][^:]*\S):\s+(?P<value>\S.*?)\s*$")
_ONE_BATCH = re.compile(
    r"^(?P<stage>Prefill|Decode(?: \d+)?|Total)\. +(?:Batch size: (?P<batch>\d+), +)?(?P<median>median )?"
    r"latency: +(?P<latency>[\d.]+) s, +(?:median )?throughput: +(?P<throughput>[\d.]+) token/s\s*$"
)
_ACC_LENGTH = re.compile(r"^acc_length: +(?P<value>[\d.]+)\s*$")
_SPECULATIVE = re.compile(
    r"^Finish i=(?P<i>\d+): batch_size=(?P<batch_size>\d+), steps=(?P<steps>\d+), topk=(?P<topk>\d+), "
    r"num_draft_tokens=(?P<num_draft_tokens>\d+), speed=(?P<speed>[\d.]+) token/s, "
    r"step_time=(?P<step_time>[\d.]+) ms\s*$"
)
_SEND_ONE_HEAD = re.compile(r"^\|\s*Latency \(s\)\s*\|\s*Tokens\s*\|\s*Acc Length\s*\|\s*Speed \(token/s\)\s*\|\s*$")
_SEND_ONE_ROW = re.compile(r"^\|\s*([\d.]+)\s*\|\s*(\d+)\s*\|\s*([\d.]+)\s*\|\s*([\d.]+)\s*\|\s*$")
_JSON_TOOLS = {
    "bench_serving": ({"request_throughput", "duration"}, "serving"),
    "bench_speculative": ({"steps", "topk", "num_draft_tokens"}, "speculative"),
    "bench_one_batch": ({"run_name", "batch_size"}, "one_batch"),
}
# Of a figure that is no number so much is kept.
_LONGEST_TEXT = 40
# Text fields of JSON results that name the conditions of a measurement.
_JSON_TEXT = ("tag", "backend", "dataset_name", "run_name", "lora_name")


def _number(value: str | float) -> float | None:
    """A finite number, written as text or parsed; ``None`` for anything else, such as 1.2.3 or 400 digits."""
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


class BenchReader:
    """Feed the lines of a file in order; ``rows`` holds the figures of every complete result.

    Lines that belong to no benchmark result are refused (``feed`` returns False), so a mixed file can be read by
    several readers at once. ``row`` numbers the results of the file from 0.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.rows: list[Row] = []
        self._results = 0
        self._table: list[Row] | None = None  # the bench_serving table being read
        self._one_batch: list[Row] | None = None
        self._send_one = False
        rules = load_rules("bench")
        self._labels = {label: rule for rule in rules["serving"] for label in rule["labels"]}
        self._keys = {
            section: {rule["key"]: rule for rule in rules[section]}
            for section in ("serving", "one_batch", "speculative")
        }

    def feed(self, line: int, text: str) -> bool:
        """Take one line without its end; True when it is part of a benchmark result."""
        text = text.rstrip("\r\n")
        if self._table is not None:
            return self._serving_line(line, text)
        if _SERVING_HEAD.match(text):
            self._table = []
            return True
        if text.startswith("{"):
            return self._json_line(line, text)
        return self._one_batch_line(line, text) or self._speculative_line(line, text) or self._send_one_line(line, text)

    def close(self) -> bool:
        """End of file; True when a result was cut off (its figures so far are kept)."""
        cut = self._table is not None
        if self._table:
            self._finish(self._table)
        self._table = self._one_batch = None
        return cut

    def _row(self, tool: str, line: int, name: str, value: float | None, unit: str, text: str | None = None) -> Row:
        return {
            "file": self.file,
            "line": line,
            "tool": tool,
            "row": self._results,
            "name": name,
            "value": value,
            "unit": unit or None,
            "text": text,
        }

    def _figure(self, tool: str, line: int, name: str, text: str, unit: str, scale: float = 1.0) -> Row:
        """The row of a printed figure; one that is no number is kept as its text."""
        number = _number(text)
        if number is None:
            return self._row(tool, line, name, None, unit, text[:_LONGEST_TEXT])
        return self._row(tool, line, name, number * scale, unit)

    def _finish(self, rows: list[Row]) -> None:
        self.rows.extend(rows)
        self._results += 1

    def _serving_line(self, line: int, text: str) -> bool:
        assert self._table is not None
        stripped = text.strip()
        if _RULE.match(stripped):
            self._finish(self._table)
            self._table = None
            return True
        if not stripped or _SECTION.match(stripped):
            return True
        match = _LABELLED.match(stripped)
        if match is None:
            # Something else was printed in between; the table goes on only while its own lines come.
            self._finish(self._table)
            self._table = None
            return False
        label, value = match["label"], match["value"]
        rule = self._labels.get(label, {"name": label, "unit": ""})
        number = _number(value)
        shown = None if number is not None else value
        self._table.append(self._row("bench_serving", line, rule["name"], number, rule["unit"], shown))
        return True

    def _json_line(self, line: int, text: str) -> bool:
        try:
            document = loads(text)
        except (ValueError, RecursionError):
            return False
        if not isinstance(document, dict):
            return False
        for tool, (needed, section) in _JSON_TOOLS.items():
            if needed <= document.keys():
                self._finish(self._json_rows(tool, section, line, document))
                return True
        return False

    def _json_rows(self, tool: str, section: str, line: int, document: Mapping[str, Any]) -> list[Row]:
        rows: list[Row] = [
            self._row(tool, line, key, None, "", document[key])
            for key in _JSON_TEXT
            if isinstance(document.get(key), str)
        ]
        for key, rule in self._keys[section].items():
            value = document.get(key)
            if isinstance(value, bool) or value is None:
                continue
            if isinstance(value, int | float):
                number = _number(value)
                # -1 is how bench_one_batch_server says that there was no speculation.
                absent = rule["name"] == "accept_len" and value < 0
                if not absent:
                    rows.append(
                        self._row(
                            tool,
                            line,
                            rule["name"],
                            number,
                            rule["unit"],
                            None if number is not None else str(value)[:_LONGEST_TEXT],
                        )
                    )
            elif isinstance(value, str):
                rows.append(self._row(tool, line, rule["name"], None, rule["unit"], value))
        return rows

    def _one_batch_line(self, line: int, text: str) -> bool:
        if match := _ACC_LENGTH.match(text):
            self._finish([self._figure("bench_one_batch", line, "accept_len", match["value"], "tokens")])
            return True
        match = _ONE_BATCH.match(text)
        if match is None:
            return False
        stage = match["stage"]
        if stage == "Prefill" or self._one_batch is None:
            self._one_batch = []
        if stage == "Prefill":
            names = ("prefill_latency", "prefill_throughput")
        elif stage == "Total":
            names = ("total_latency", "overall_throughput")
        elif match["median"]:
            names = ("median_decode_latency", "median_decode_throughput")
        else:
            return True  # one step of many; the median line sums them up
        for name, value, unit in zip(names, (match["latency"], match["throughput"]), ("s", "tok/s"), strict=True):
            self._one_batch.append(self._figure("bench_one_batch", line, name, value, unit))
        if stage == "Total":
            self._finish(self._one_batch)
            self._one_batch = None
        return True

    def _speculative_line(self, line: int, text: str) -> bool:
        match = _SPECULATIVE.match(text)
        if match is None:
            return False
        figures = [
            ("batch_size", "batch_size", 1.0, "requests"),
            ("num_steps", "steps", 1.0, ""),
            ("topk", "topk", 1.0, ""),
            ("num_draft_tokens", "num_draft_tokens", 1.0, "tokens"),
            ("speed", "speed", 1.0, "tok/s"),
            ("step_time", "step_time", 1e-3, "s"),
        ]
        self._finish(
            [
                self._figure("bench_speculative", line, name, match[group], unit, scale)
                for name, group, scale, unit in figures
            ]
        )
        return True

    def _send_one_line(self, line: int, text: str) -> bool:
        if _SEND_ONE_HEAD.match(text):
            self._send_one = True
            return True
        if not self._send_one:
            return False
        if match := _SEND_ONE_ROW.match(text):
            names = (("latency", "s"), ("output_tokens", "tokens"), ("accept_len", "tokens"), ("speed", "tok/s"))
            self._finish(
                [
                    self._figure("send_one", line, name, value, unit)
                    for (name, unit), value in zip(names, match.groups(), strict=True)
                ]
            )
            self._send_one = False
            return True
        return bool(re.fullmatch(r"\+[-+]+\+\s*", text))
