"""A slow, plain reader of Kineto traces: the independent truth that the real reader is compared with."""

from __future__ import annotations

import gzip
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from profkit import tables
from profkit.trace import Trace, TraceInfo, TraceKind

GPU_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset"}
LAUNCH_CATEGORIES = {"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime", "driver", "Runtime"}
OLD_CATEGORIES = {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Operator": "cpu_op"}
RANK = re.compile(r"(?:-|^)TP-(\d+)(?:-DP-(\d+))?(?:-PP-(\d+))?(?:-EP-(\d+))?")


def nanoseconds(value: Any) -> int | None:
    """Microseconds as ``int``, ``Decimal`` or decimal text to integer nanoseconds; the rest is cut."""
    if value is None or isinstance(value, bool):
        return None
    try:
        found = int(Decimal(str(value)) * 1000)
    except (ArithmeticError, ValueError):
        return None
    return found if -(2**63) <= found < 2**63 else None


def integer(value: Any) -> int | None:
    """An integer, or ``None``."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, Decimal) and value == int(value):
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return int(value)
    return None


def load(path: Path) -> Any:
    """The parsed JSON, numbers with a point as ``Decimal``."""
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    return json.loads(raw, parse_float=Decimal)


def read(path: Path) -> Trace:
    """Read one single-rank trace completely."""
    document = load(path)
    events = document["traceEvents"] if isinstance(document, dict) else document
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in tables.TRACE_TABLES}
    for event in events:
        if event.get("ph") == "M":
            for key, value in (event.get("args") or {}).items():
                del key
                rows["processes"].append(
                    {
                        "pid": integer(event.get("pid")),
                        "tid": integer(event.get("tid")),
                        "key": event.get("name"),
                        "value": str(value),
                    }
                )
            continue
        if event.get("ph") != "X":
            continue
        args = event.get("args") or {}
        common = {
            "name": event.get("name"),
            "start_ns": nanoseconds(event.get("ts")),
            "duration_ns": nanoseconds(event.get("dur")),
        }
        host = {"pid": integer(event.get("pid")), "tid": integer(event.get("tid"))}
        external = {
            "external_id": integer(
                args.get("external id") if args.get("External id") is None else args.get("External id")
            )
        }
        category = OLD_CATEGORIES.get(event.get("cat"), event.get("cat"))
        if category in GPU_CATEGORIES:
            rows["gpu_ops"].append(
                common
                | external
                | {
                    "category": category,
                    "stream": integer(args.get("stream", event.get("tid"))),
                    "device": integer(args.get("device", event.get("pid"))),
                    "correlation": integer(args.get("correlation")),
                    "graph_id": integer(args.get("graph id")),
                    "graph_node_id": integer(args.get("graph node id")),
                }
            )
        elif category in LAUNCH_CATEGORIES:
            rows["launches"].append(
                common | host | external | {"category": category, "correlation": integer(args.get("correlation"))}
            )
        elif category in ("user_annotation", "gpu_user_annotation"):
            gpu = category == "gpu_user_annotation"
            rows["annotations"].append(
                common
                | external
                | {
                    "side": "gpu" if gpu else "host",
                    "pid": host["pid"],
                    "tid": None if gpu else host["tid"],
                    "stream": integer(args.get("stream", event.get("tid"))) if gpu else None,
                }
            )
        elif category == "python_function":
            rows["frames"].append(
                common
                | host
                | {
                    "python_id": integer(args.get("Python id")),
                    "parent_id": integer(args.get("Python parent id")),
                }
            )
        elif category == "cpu_op":
            rows["cpu_ops"].append(common | host | external)
        if "Collective name" in args:
            rows["collectives"].append(
                {
                    "gpu_op": len(rows["gpu_ops"]) - 1 if category in GPU_CATEGORIES else None,
                    "cpu_op": len(rows["cpu_ops"]) - 1 if category == "cpu_op" else None,
                    "name": args["Collective name"],
                    "dtype": args.get("dtype"),
                    "in_elements": integer(args.get("In msg nelems")),
                    "out_elements": integer(args.get("Out msg nelems")),
                    "group_size": integer(args.get("Group size")),
                    "group": args.get("Process Group Name"),
                }
            )
    made = {name: pa.Table.from_pylist(rows[name], schema=schema) for name, schema in tables.TRACE_TABLES.items()}
    match = RANK.search(path.name)
    tp, dp, pp, ep = (int(g) if g else None for g in match.groups()) if match else (None,) * 4
    distributed = document.get("distributedInfo") if isinstance(document, dict) else None
    kind: TraceKind = "gpu" if rows["gpu_ops"] else "cpu_only"
    info = TraceInfo(
        path=path.name,
        kind=kind,
        rank=tp if tp is not None else (distributed or {}).get("rank"),
        tp=tp,
        dp=dp,
        pp=pp,
        ep=ep,
        events=len(events),
        gpu_ops=len(rows["gpu_ops"]),
        base_ns=int(document.get("baseTimeNanoseconds") or 0) if isinstance(document, dict) else 0,
        python_frames=bool(rows["frames"]),
        distributed=distributed,
    )
    return Trace(
        info=info,
        gpu_ops=made["gpu_ops"],
        launches=made["launches"],
        annotations=made["annotations"],
        cpu_ops=made["cpu_ops"],
        collectives=made["collectives"],
        processes=made["processes"],
        frames=made["frames"],
    )
