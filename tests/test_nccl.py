"""NCCL debug lines and nccl-tests tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit import tables
from profkit.parsers.nccl import NcclReader


def read(text: str) -> list[dict[str, Any]]:
    reader = NcclReader("f")
    for number, line in enumerate(text.splitlines(), 1):
        reader.feed(number, line)
    return reader.rows


@pytest.mark.parametrize(
    ("line", "kind", "fields"),
    [
        ("NCCL version 2.27.7+cuda12.9", "version", {"version": "2.27.7", "cuda": "12.9"}),
        ("h:1:2 [0] NCCL INFO NCCL version 2.18.5+cuda12.2", "version", {"version": "2.18.5", "cuda": "12.2"}),
        ("h:1:2 [0] NCCL INFO NCCL_ALGO set by environment to Ring.", "env", {"name": "NCCL_ALGO", "value": "Ring"}),
        (
            "box-1:42:43 [3] NCCL INFO Channel 00/0 : 3[3] -> 4[4] via SHM/direct/direct",
            "transport",
            {"channel": "00", "from": "3", "to": "4", "transport": "SHM/direct/direct"},
        ),
        (
            "pod | box:42:43 [3] NCCL INFO Channel 01/0 : 7[7] -> 6[6] via P2P/direct pointer",
            "transport",
            {"channel": "01", "transport": "P2P/direct", "detail": " pointer"},
        ),
        ("h:1:2 [0] NCCL INFO Ring 00 : 7[7] -> 3[3] via P2P/IPC", "transport", {"ring": "00", "transport": "P2P/IPC"}),
        (
            "h:1:2 [0] NCCL INFO ncclCommInitRank comm 0x55 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId f000 commId 0x7 "
            "- Init COMPLETE",
            "init",
            {"nranks": "8", "bus": "f000", "state": "COMPLETE"},
        ),
        (
            "h:1:2 [0] NCCL INFO comm 0x55 rank 1 nRanks 2 nNodes 1 localRanks 2 localRank 1 MNNVL 0",
            "topology",
            {"nranks": "2", "nodes": "1"},
        ),
        (
            "h:1:2 [1] NCCL INFO 4 coll channels, 4 collnet channels, 0 nvls channels, 4 p2p channels, "
            "2 p2p channels per peer",
            "channels",
            {"coll": "4", "nvls": "0", "p2p_per_peer": "2"},
        ),
        (
            "h:1:2 [0] NCCL INFO AllReduce: 57344 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}",
            "algorithm",
            {"collective": "AllReduce", "algorithm": "RING", "protocol": "LL", "channel_high": "1"},
        ),
        ("h:1:2 [0] NCCL WARN Cuda failure 'out of memory'", "warning", {"text": "Cuda failure 'out of memory'"}),
    ],
)
def test_facts(line: str, kind: str, fields: dict[str, str]) -> None:
    (row,) = read(line)
    assert row["kind"] == kind
    assert fields.items() <= dict(row["fields"]).items()


def test_rank_and_size_go_into_their_columns() -> None:
    init, chosen = read(
        "h:1:2 [0] NCCL INFO comm 0x55 rank 3 nranks 8 cudaDev 3 busId f000 - Init COMPLETE\n"
        "h:1:2 [0] NCCL INFO AllReduce: 57344 Bytes -> Algo TREE proto SIMPLE"
    )
    assert init["rank"] == 3
    assert chosen["size_bytes"] == 57344
    assert "protocol" in dict(chosen["fields"])


TEST = """$ ./build/all_reduce_perf -b 8 -e 1M -f 2 -g 8
# nThread 1 nGpus 8 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid   1887 on   worker-1 device  0 [0x8d] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
       32768          8192     float     sum      -1    18.66    1.76    3.07       0    17.95    1.83    3.20       0
       65536         32768      half     sum      -1    20.10    3.26    5.71       0
# Avg bus bandwidth    : 4.2
"""


def test_nccl_tests_table() -> None:
    rows = [r for r in read(TEST) if r["kind"] == "test_row"]
    assert [(r["size_bytes"], r["time_us"], r["bus_bandwidth_gb_s"]) for r in rows] == [
        (32768, 18.66, 3.07),
        (32768, 17.95, 3.20),
        (65536, 20.10, 5.71),
    ]
    assert dict(rows[0]["fields"]) == {
        "test": "all_reduce",
        "type": "float",
        "redop": "sum",
        "count": "8192",
        "place": "out_of_place",
        "wrong": "0",
    }
    (device,) = [r for r in read(TEST) if r["kind"] == "test_device"]
    assert dict(device["fields"])["gpu"] == "NVIDIA H100 80GB HBM3"
    assert pa.Table.from_pylist(read(TEST), schema=tables.NCCL).num_rows == 4


def test_numbers_outside_a_table_are_no_measurement() -> None:
    assert read("       32768          8192     float     sum      -1    18.66    1.76    3.07       0") == []


@given(st.text())
def test_any_text_is_taken_or_refused(text: str) -> None:
    read("h:1:2 [0] NCCL INFO " + text)
    read(TEST + text)
