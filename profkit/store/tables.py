"""The Parquet tables of a stored run.

Each row carries ``run``, ``config`` and ``week``, so that all runs of a store can be read at once
(``runs/*/metrics.parquet``). Text is plain strings, numbers are int64 and float64, unknown is null.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from profkit.analysis import RunAnalysis
from profkit.comparison.kernels import KernelRow
from profkit.comparison.launch import Launch
from profkit.comparison.metrics import Measurement
from profkit.errors import InputError

_TEXT: pa.DataType = pa.string()
_INT: pa.DataType = pa.int64()
_FLOAT: pa.DataType = pa.float64()
_BOOL: pa.DataType = pa.bool_()
METRICS = pa.schema([
    ("metric", _TEXT), ("running_req", _INT), ("value", _FLOAT), ("unit", _TEXT), ("observations", _INT),
    ("p10", _FLOAT), ("p90", _FLOAT), ("source", _TEXT),
])  # fmt: skip
KERNELS = pa.schema([
    ("phase", _TEXT), ("kernel_class", _TEXT), ("implementation", _TEXT), ("calls_per_cycle", _FLOAT),
    ("us_per_cycle", _FLOAT), ("batch_size", _INT),
])  # fmt: skip
DECODE = pa.schema([
    ("server", _INT), ("running_req", _INT), ("lines", _INT),
    ("throughput_mean", _FLOAT), ("throughput_p10", _FLOAT), ("throughput_p50", _FLOAT), ("throughput_p90", _FLOAT),
    ("accept_len_mean", _FLOAT), ("accept_len_p50", _FLOAT),
    ("step_ms_p10", _FLOAT), ("step_ms_p50", _FLOAT), ("step_ms_p90", _FLOAT), ("token_usage", _FLOAT),
])  # fmt: skip
PARTS = pa.schema([
    ("rank", _INT), ("cycle", _INT), ("batch_size", _INT), ("counted", _BOOL), ("phase", _TEXT),
    ("activity", _TEXT), ("duration_ns", _INT),
])  # fmt: skip
CYCLES = pa.schema([
    ("rank", _INT), ("cycle", _INT), ("aligned_cycle", _INT), ("batch_size", _INT), ("kind", _TEXT),
    ("wall_ns", _INT), ("overlapped_comm_ns", _INT), ("confidence", _FLOAT),
])  # fmt: skip
COLLECTIVES = pa.schema([
    ("phase", _TEXT), ("kind", _TEXT), ("implementation", _TEXT), ("kernel", _TEXT), ("fused", _BOOL),
    ("calls_per_cycle", _FLOAT), ("mean_us", _FLOAT), ("transfer_us", _FLOAT), ("wait_us", _FLOAT),
    ("message_bytes", _INT), ("bus_bandwidth_gb_s", _FLOAT), ("transfer_is", _TEXT),
])  # fmt: skip
FINDINGS = pa.schema([("kind", _TEXT), ("severity", _TEXT), ("sentence", _TEXT)])
TABLES: Mapping[str, pa.Schema] = {
    "metrics": METRICS, "kernels": KERNELS, "decode": DECODE, "parts": PARTS, "cycles": CYCLES,
    "collectives": COLLECTIVES, "findings": FINDINGS,
}  # fmt: skip


def _table(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


def _columns(schema: pa.Schema, table: pa.Table) -> pa.Table:
    """The columns of ``schema`` in their plain types; dictionaries become strings."""
    return pa.table([table[f.name].cast(f.type) for f in schema], schema=schema)


def metrics_table(launch: Launch) -> pa.Table:
    """The measurements of a launch."""
    return _table(
        METRICS,
        (
            {
                "metric": m.name, "running_req": m.running_req, "value": m.value, "unit": m.unit,
                "observations": m.n, "p10": m.p10, "p90": m.p90, "source": m.source,
            }
            for m in launch.measurements
        ),
    )  # fmt: skip


def _columns_of(table: pa.Table, schema: pa.Schema, required: Collection[str]) -> dict[str, list[Any]]:
    """The columns of ``schema`` as lists; one that an older profkit did not write is null throughout.

    Raises:
        InputError: a ``required`` column is missing, or one has another type.
    """
    columns = {}
    for field in schema:
        if field.name not in table.column_names:
            if field.name in required:
                raise InputError(f"no column {field.name!r}; remove the run and add it again")
            columns[field.name] = [None] * table.num_rows
            continue
        found = table.schema.field(field.name)
        if found.type != field.type:
            raise InputError(
                f"column {field.name!r} is {found.type}, not {field.type}; remove the run and add it again"
            )
        columns[field.name] = table[field.name].to_pylist()
    return columns


def measurements(table: pa.Table) -> tuple[Measurement, ...]:
    """The measurements of a stored ``metrics`` table; ``InputError`` when it is none."""
    columns = _columns_of(table, METRICS, ("metric", "running_req", "value", "unit"))
    return tuple(
        Measurement(*row)
        for row in zip(
            columns["metric"], columns["value"], columns["unit"], columns["running_req"], columns["observations"],
            columns["p10"], columns["p90"], columns["source"], strict=True,
        )
    )  # fmt: skip


def kernels(table: pa.Table) -> tuple[KernelRow, ...]:
    """The kernel classes of a stored ``kernels`` table; ``InputError`` when it is none."""
    columns = _columns_of(table, KERNELS, ("phase", "kernel_class", "calls_per_cycle", "us_per_cycle"))
    return tuple(KernelRow(*row) for row in zip(*(columns[name] for name in KERNELS.names), strict=True))


def _decode_rows(analysis: RunAnalysis) -> Iterable[Mapping[str, Any]]:
    for server in analysis.log.servers if analysis.log else ():
        for row in server.by_batch:
            rate, length, step = row.gen_throughput_tok_s, row.accept_len, row.step_ms
            yield {
                "server": server.server, "running_req": row.running_req, "lines": row.lines,
                "throughput_mean": rate.mean, "throughput_p10": rate.p10, "throughput_p50": rate.p50,
                "throughput_p90": rate.p90, "accept_len_mean": length.mean, "accept_len_p50": length.p50,
                "step_ms_p10": step.p10, "step_ms_p50": step.p50, "step_ms_p90": step.p90,
                "token_usage": row.token_usage,
            }  # fmt: skip


def _finding_rows(analysis: RunAnalysis) -> Iterable[Mapping[str, Any]]:
    findings = list(analysis.attribution.findings) if analysis.attribution else []
    if server := analysis.server():
        findings = [*server.findings, *findings]
    for finding in findings:
        yield {"kind": finding.kind, "severity": finding.severity, "sentence": finding.sentence}


def _cycles(table: pa.Table) -> pa.Table:
    wall = pc.subtract(table["end_ns"], table["start_ns"])
    return _columns(CYCLES, table.append_column("wall_ns", wall))


def result_tables(analysis: RunAnalysis, launch: Launch) -> dict[str, pa.Table]:
    """All tables of a run, without those for which it holds no files."""
    tables = {"metrics": metrics_table(launch), "findings": _table(FINDINGS, _finding_rows(analysis))}
    if analysis.log is not None:
        tables["decode"] = _table(DECODE, _decode_rows(analysis))
    if (attribution := analysis.attribution) is not None:
        tables["parts"] = _columns(PARTS, attribution.parts)
        tables["cycles"] = _cycles(attribution.cycles)
        rows = [{name: getattr(c, name) for name in COLLECTIVES.names} for c in attribution.collectives]
        tables["collectives"] = _table(COLLECTIVES, rows)
        tables["kernels"] = _table(KERNELS, ({n: getattr(k, n) for n in KERNELS.names} for k in launch.kernels))
    return tables


def with_head(table: pa.Table, run: str, config: str, week: str) -> pa.Table:
    """The table with its identifying columns in front."""
    for name, value in reversed((("run", run), ("config", config), ("week", week))):
        table = table.add_column(0, pa.field(name, _TEXT), pa.array([value] * table.num_rows, _TEXT))
    return table
