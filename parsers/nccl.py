"""NCCL debug output and nccl-tests tables, to the ``nccl`` table.

From ``NCCL_DEBUG=INFO`` (subsystems INIT, GRAPH, ENV, TUNING): version, environment, communicators, transports between
ranks, channels, tree and ring membership, and the algorithm and protocol where a line states them. From nccl-tests: one
row per message size. A protocol is never guessed.
"""

from __future__ import annotations

import re
from typing import Any

Row = dict[str, Any]

# Numbers that 64 bits can hold; a line with another one is a foreign line.
_COUNT = r"[0-9]{1,18}"
_RANK = r"[0-9]{1,9}"
_DECIMAL = r"[0-9]{1,15}(?:\.[0-9]{0,15})?"

# host:pid:tid [device] NCCL INFO text; containers and launchers put things in front. (Tried only where a word begins: a
# long word would cost its length squared.)
_INFO = re.compile(
    r"(?<![\w.-])(?P<host>[\w.-]+):(?P<pid>\d+):(?P<tid>\d+) \[(?P<device>-?\d+)\] "
    r"NCCL (?P<level>INFO|WARN) (?P<text>.*)$"
)
_FACTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("version", re.compile(r"^NCCL version (?P<version>\d+\.\d+\.\d+\S*?)(?:\+cuda(?P<cuda>[\d.]+))?\s*$")),
    (
        "env",
        re.compile(r"^(?P<name>NCCL_\w+) set by environment to (?P<value>.*?)\.?\s*$"),
    ),
    (
        "init",
        re.compile(
            rf"^(?:ncclCommInit\w+ )?comm (?P<comm>0x[0-9a-f]+) rank (?P<rank>{_RANK}) n[rR]anks (?P<nranks>\d+)"
            r"(?: cudaDev (?P<cuda_device>\d+))?(?: nvmlDev (?P<nvml_device>\d+))?(?: busId (?P<bus>\w+))?"
            r"(?: commId (?P<comm_id>0x[0-9a-f]+))? - Init (?P<state>COMPLETE|START)"
        ),
    ),
    (
        "topology",
        re.compile(
            rf"^comm (?P<comm>0x[0-9a-f]+) rank (?P<rank>{_RANK}) nRanks (?P<nranks>\d+) nNodes (?P<nodes>\d+) "
            r"localRanks (?P<local_ranks>\d+) localRank (?P<local_rank>\d+)(?: MNNVL (?P<mnnvl>\d+))?"
        ),
    ),
    (
        "transport",
        re.compile(
            r"^(?:Channel (?P<channel>\d+)(?:/\d+)?|Ring (?P<ring>\d+)) ?: (?P<from>\d+)\[[^\]]*\] -> "
            r"(?P<to>\d+)\[[^\]]*\](?: \[(?P<direction>send|receive)\])? via (?P<transport>\S+)(?P<detail>.*)$"
        ),
    ),
    (
        "channels",
        re.compile(
            r"^(?P<coll>\d+) coll channels, (?:(?P<collnet>\d+) collnet channels, )?(?P<nvls>\d+) nvls channels, "
            r"(?P<p2p>\d+) p2p channels, (?P<p2p_per_peer>\d+) p2p channels per peer"
        ),
    ),
    ("rings", re.compile(r"^Connected all rings(?:, use ring PXN (?P<pxn>\d+) GDR (?P<gdr>\d+))?")),
    ("trees", re.compile(r"^Connected all trees")),
    ("p2p_check", re.compile(r"^Check P2P Type intraNodeP2pSupport (?P<supported>\d+) directMode (?P<direct>\d+)")),
    (
        "p2p_disabled",
        re.compile(r"^(?:NCCL_P2P_DISABLE set|P2P is disabled between connected GPUs (?P<from>\d+) and (?P<to>\d+))"),
    ),
    # TUNING lists the choice per call: ``AllReduce: 57344 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}``.
    (
        "algorithm",
        re.compile(
            rf"^(?P<collective>\w+): (?P<bytes>{_COUNT}) Bytes -> Algo (?P<algorithm>\w+) proto (?P<protocol>\w+)"
            rf"(?: time (?P<time>{_DECIMAL}))?"
            r"(?: channel\{Lo\.\.Hi\}=\{(?P<channel_low>\d+)\.\.(?P<channel_high>\d+)\})?"
        ),
    ),
    ("network", re.compile(r"^Using network (?P<network>.+?)\s*$")),
    ("plugin", re.compile(r"^(?P<plugin>TUNER/Plugin|NET/Plugin)\s*: ?(?P<message>.+)$")),
)
_TEST_HEADER = re.compile(
    r"^#\s+size\s+count\s+type\s+redop(?P<root>\s+root)?\s+time\s+algbw\s+busbw\s+(?P<check>#wrong|error)"
)
_TEST_UNITS = re.compile(r"^#\s+\(B\)\s+\(elements\)")
_TEST_ROW = re.compile(
    rf"^\s*(?P<size>{_COUNT})\s+(?P<count>{_COUNT})\s+(?P<type>[a-z]\w*)\s+(?P<redop>\w+)\s+(?P<root>-?\d+\s+)?"
    rf"(?P<time>{_DECIMAL})\s+(?P<algbw>{_DECIMAL})\s+(?P<busbw>{_DECIMAL})\s+(?P<wrong>\S+)"
    rf"(?:\s+(?P<in_time>{_DECIMAL})\s+(?P<in_algbw>{_DECIMAL})\s+(?P<in_busbw>{_DECIMAL})\s+(?P<in_wrong>\S+))?\s*$"
)
_TEST_DEVICE = re.compile(
    rf"^#\s+Rank\s+(?P<rank>{_RANK})\s+(?:Group\s+(?P<group>\d+)\s+)?Pid\s+(?P<pid>\d+) on\s+(?P<host>\S+) device\s+"
    r"(?P<device>\d+) \[(?P<bus>[^\]]+)\] (?P<gpu>.+?)\s*$"
)
_TEST_COMMAND = re.compile(r"(?P<test>all_reduce|all_gather|reduce_scatter|alltoall|broadcast|sendrecv)_perf")


class NcclReader:
    """Feed the lines of a file in order; ``rows`` holds the facts. ``feed`` returns False for foreign lines.

    Repeated transport lines (two per channel and pair) are kept: their number is evidence. The name of the nccl-tests
    program is taken from the command line when the file shows it.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.rows: list[Row] = []
        self._in_test = False
        self._test: str | None = None

    def feed(self, line: int, text: str) -> bool:
        """Take one line without its end; True when it is NCCL's or nccl-tests'."""
        text = text.rstrip("\r\n")
        if "NCCL " in text and (match := _INFO.search(text)):
            return self._info(line, match)
        if text.startswith("NCCL version "):
            return self._fact(line, None, None, text)
        if text.startswith("#"):
            return self._test_comment(line, text)
        if self._in_test and (match := _TEST_ROW.match(text)):
            self._test_row(line, match)
            return True
        if match := _TEST_COMMAND.search(text):
            self._test = match["test"]
        return False

    def _add(self, line: int, kind: str, fields: dict[str, str | None], **columns: Any) -> None:
        row: Row = {
            "file": self.file,
            "line": line,
            "kind": kind,
            "rank": None,
            "size_bytes": None,
            "time_us": None,
            "algorithm_bandwidth_gb_s": None,
            "bus_bandwidth_gb_s": None,
        }
        self.rows.append(row | columns | {"fields": [(k, v) for k, v in fields.items() if v is not None]})

    def _info(self, line: int, match: re.Match[str]) -> bool:
        if match["level"] == "WARN":
            self._add(line, "warning", {"device": match["device"], "host": match["host"], "text": match["text"]})
            return True
        self._fact(line, match["device"], match["host"], match["text"])
        return True

    def _fact(self, line: int, device: str | None, host: str | None, text: str) -> bool:
        for kind, pattern in _FACTS:
            if match := pattern.match(text):
                fields = match.groupdict()
                columns: dict[str, Any] = {}
                if fields.get("rank") is not None:
                    columns["rank"] = int(fields.pop("rank") or 0)
                if kind == "algorithm":
                    columns["size_bytes"] = int(fields.pop("bytes") or 0)
                    time = fields.pop("time")
                    columns["time_us"] = float(time) if time else None
                self._add(line, kind, {"device": device, "host": host, **fields}, **columns)
                return True
        return False

    def _test_comment(self, line: int, text: str) -> bool:
        if _TEST_HEADER.match(text):
            self._in_test = True
            return True
        if match := _TEST_DEVICE.match(text):
            fields = match.groupdict()
            self._add(line, "test_device", fields | {"rank": None}, rank=int(fields["rank"]))
            return True
        return (
            bool(_TEST_UNITS.match(text))
            or "out-of-place" in text
            or text.startswith(("# nThread", "# Using devices", "# Avg bus"))
        )

    def _test_row(self, line: int, match: re.Match[str]) -> None:
        common = {"test": self._test, "type": match["type"], "redop": match["redop"], "count": match["count"]}
        for place, prefix in (("out_of_place", ""), ("in_place", "in_")):
            if match[f"{prefix}time"] is None:
                continue
            self._add(
                line,
                "test_row",
                common | {"place": place, "wrong": match[f"{prefix}wrong"]},
                size_bytes=int(match["size"]),
                time_us=float(match[f"{prefix}time"]),
                algorithm_bandwidth_gb_s=float(match[f"{prefix}algbw"]),
                bus_bandwidth_gb_s=float(match[f"{prefix}busbw"]),
            )
