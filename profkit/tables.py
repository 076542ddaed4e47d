"""Arrow schemas of every table that parsers produce and analysis reads.

Times of traces are int64 nanoseconds counted from the trace's ``base_ns``; times of logs are float64
seconds. A column is null where the file says nothing.
"""

from __future__ import annotations

import pyarrow as pa


def _schema(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema(list(columns))


_NAME = pa.dictionary(pa.int32(), pa.string())
_TEXT_MAP = pa.map_(pa.string(), pa.string())

# --- traces -------------------------------------------------------------------------------------

GPU_OPS = _schema(
    ("name", _NAME),
    ("category", _NAME),  # kernel, gpu_memcpy, gpu_memset
    ("start_ns", pa.int64()),
    ("duration_ns", pa.int64()),
    ("stream", pa.int64()),
    ("device", pa.int64()),
    ("correlation", pa.int64()),
    ("graph_id", pa.int64()),
    ("graph_node_id", pa.int64()),
    ("external_id", pa.int64()),
)
LAUNCHES = _schema(
    (
        "name",
        _NAME,
    ),  # cudaLaunchKernel, cudaGraphLaunch, hipModuleLaunchKernel, cudaStreamSynchronize ...
    ("category", _NAME),  # cuda_runtime, cuda_driver, hip_runtime ...
    ("start_ns", pa.int64()),
    ("duration_ns", pa.int64()),
    ("pid", pa.int64()),
    ("tid", pa.int64()),
    ("correlation", pa.int64()),
    ("external_id", pa.int64()),
)
ANNOTATIONS = _schema(
    ("name", _NAME),
    ("side", _NAME),  # host or gpu
    ("start_ns", pa.int64()),
    ("duration_ns", pa.int64()),
    ("pid", pa.int64()),
    ("tid", pa.int64()),  # host side; null on the gpu side
    ("stream", pa.int64()),  # gpu side; null on the host side
    ("external_id", pa.int64()),
)
FRAMES = _schema(
    ("name", _NAME),
    ("start_ns", pa.int64()),
    ("duration_ns", pa.int64()),
    ("pid", pa.int64()),
    ("tid", pa.int64()),
    ("python_id", pa.int64()),
    ("parent_id", pa.int64()),
)
CPU_OPS = _schema(
    ("name", _NAME),
    ("start_ns", pa.int64()),
    ("duration_ns", pa.int64()),
    ("pid", pa.int64()),
    ("tid", pa.int64()),
    ("external_id", pa.int64()),
)
COLLECTIVES = _schema(
    ("gpu_op", pa.int64()),  # row of gpu_ops, null where the arguments sit on a host op
    ("cpu_op", pa.int64()),  # row of cpu_ops, likewise
    ("name", _NAME),  # as the trace spells it: allreduce, _allgather_base ...
    ("dtype", _NAME),
    ("in_elements", pa.int64()),
    ("out_elements", pa.int64()),
    ("group_size", pa.int64()),
    ("group", _NAME),
)
PROCESSES = _schema(
    ("pid", pa.int64()),
    ("tid", pa.int64()),  # null for facts about the process
    ("key", pa.string()),  # process_name, process_labels, thread_name ...
    ("value", pa.string()),
)
TRACE_TABLES = {
    "gpu_ops": GPU_OPS,
    "launches": LAUNCHES,
    "annotations": ANNOTATIONS,
    "frames": FRAMES,
    "cpu_ops": CPU_OPS,
    "collectives": COLLECTIVES,
    "processes": PROCESSES,
}


# --- logs ---------------------------------------------------------------------------------------

_RANKS: list[tuple[str, pa.DataType]] = [
    ("dp", pa.int32()),
    ("pp", pa.int32()),
    ("tp", pa.int32()),
    ("ep", pa.int32()),
    ("attn_cp", pa.int32()),
    ("moe_dp", pa.int32()),
]
_PLACE: list[tuple[str, pa.DataType]] = [
    ("file", _NAME),
    ("line", pa.int64()),
    # Seconds since 1970-01-01 on the log's own clock (no zone); in time-only logs since the first
    # day's midnight, with roll-over.
    ("time", pa.float64()),
    ("timestamp", pa.timestamp("us")),  # null in time-only logs
    ("server", pa.int32()),
]
DECODE = _schema(
    *_PLACE,
    *_RANKS,
    ("running_req", pa.int64()),
    ("token", pa.int64()),
    ("token_usage", pa.float64()),
    ("accept_len", pa.float64()),
    ("accept_rate", pa.float64()),
    ("accept_rate_era", pa.string()),
    ("accepted_per_draft_token", pa.float64()),
    ("cuda_graph", pa.bool_()),
    ("gen_throughput_tok_s", pa.float64()),
    ("queue_req", pa.int64()),
    ("step_ms", pa.float64()),
    ("flags", pa.list_(pa.string())),
    ("extra", _TEXT_MAP),
    ("iteration", pa.int64()),  # the scheduler's forward pass number, where the line shows it
    ("graph_kind", _NAME),  # cuda, npu, cpu ...: the word before "graph"
    ("swa_token", pa.int64()),
    ("swa_token_usage", pa.float64()),
    ("mamba_num", pa.int64()),
    ("mamba_usage", pa.float64()),
    ("cap_len", pa.float64()),
    ("block_accept_len", pa.float64()),
    ("preallocated_usage", pa.float64()),
    ("prealloc_req", pa.int64()),
    ("transfer_req", pa.int64()),
    ("retracted_req", pa.int64()),
)
PREFILL = _schema(
    *_PLACE,
    *_RANKS,
    ("new_seq", pa.int64()),
    ("new_token", pa.int64()),
    ("cached_token", pa.int64()),
    ("token_usage", pa.float64()),
    ("running_req", pa.int64()),
    ("queue_req", pa.int64()),
    ("input_throughput_tok_s", pa.float64()),
    ("cuda_graph", pa.bool_()),
    ("flags", pa.list_(pa.string())),
    ("extra", _TEXT_MAP),
    ("iteration", pa.int64()),
    ("graph_kind", _NAME),
    ("token", pa.int64()),
    ("swa_token", pa.int64()),
    ("swa_token_usage", pa.float64()),
    ("mamba_num", pa.int64()),
    ("mamba_usage", pa.float64()),
    ("cache_hit_rate", pa.float64()),  # in percent
    ("pending_token", pa.int64()),
)
REQUEST = _schema(
    *_PLACE,
    ("rid", pa.string()),
    ("input_tokens", pa.int64()),
    ("cached_tokens", pa.int64()),
    ("output_tokens", pa.int64()),
    ("queue_ms", pa.float64()),
    ("prefill_ms", pa.float64()),
    ("decode_ms", pa.float64()),
    ("verify_steps", pa.int64()),
    ("accept_len", pa.float64()),
    ("accepted_drafts", pa.int64()),
    ("proposed_drafts", pa.int64()),
    ("extra", _TEXT_MAP),
)
EVENT = _schema(*_PLACE, *_RANKS, ("kind", pa.string()), ("fields", _TEXT_MAP))
SERVER = _schema(
    *_PLACE,
    ("engine", pa.string()),  # sglang, vllm
    ("engine_version", pa.string()),  # only when the log states it
    ("version_low", pa.string()),  # inferred range, both ends inclusive
    ("version_high", pa.string()),
    ("version_evidence", pa.string()),
    ("algorithm", pa.string()),  # EAGLE3, NGRAM ...; null without speculation or when unknown
    ("speculative", pa.bool_()),  # null when the arguments are not in the log
    ("num_steps", pa.int64()),
    ("topk", pa.int64()),
    ("num_draft_tokens", pa.int64()),
    ("tp", pa.int64()),
    ("dp", pa.int64()),
    ("pp", pa.int64()),
    ("ep", pa.int64()),
    ("model", pa.string()),
    ("draft_model", pa.string()),
    ("quantization", pa.string()),
    ("decode_log_interval", pa.int64()),
    ("server_args", pa.string()),  # JSON object of typed values, secrets removed
    ("continues", pa.string()),  # "file:server" when this is the same server in the next part of a rotated log
)
BENCH = _schema(
    ("file", _NAME),
    ("line", pa.int64()),
    ("tool", pa.string()),  # bench_serving, bench_one_batch, bench_speculative, send_one
    ("row", pa.int64()),  # one result has several rows, one per figure
    ("name", pa.string()),
    ("value", pa.float64()),  # null where the figure is text or not finite
    ("unit", pa.string()),
    ("text", pa.string()),
)
NCCL = _schema(
    ("file", _NAME),
    ("line", pa.int64()),
    ("kind", pa.string()),  # version, env, init, transport, channel, graph, algorithm, test_row ...
    ("rank", pa.int64()),
    ("size_bytes", pa.int64()),
    ("time_us", pa.float64()),
    ("algorithm_bandwidth_gb_s", pa.float64()),
    ("bus_bandwidth_gb_s", pa.float64()),
    ("fields", _TEXT_MAP),
)
LOG_TABLES = {
    "decode": DECODE,
    "prefill": PREFILL,
    "request": REQUEST,
    "event": EVENT,
    "server": SERVER,
    "bench": BENCH,
    "nccl": NCCL,
}

# --- attribution --------------------------------------------------------------------------------

PARTS = _schema(  # one row per (rank, cycle, phase, activity) with time in it
    ("rank", pa.int64()),
    ("cycle", pa.int64()),
    ("batch_size", pa.int64()),
    ("counted", pa.bool_()),
    ("phase", _NAME),
    ("activity", _NAME),
    ("duration_ns", pa.int64()),
)
CYCLES = _schema(
    ("rank", pa.int64()),
    ("cycle", pa.int64()),  # ordinal on this rank, in time order, from 0
    ("aligned_cycle", pa.int64()),  # ordinal shared by all ranks after alignment, null if ambiguous
    ("start_ns", pa.int64()),  # on this rank's clock, from base_ns
    ("end_ns", pa.int64()),
    ("batch_size", pa.int64()),
    ("kind", pa.string()),  # counted, partial, prefill
    ("confidence", pa.float64()),  # share of its GPU time that is labelled; what only sizes tell counts half
    ("overlapped_comm_ns", pa.int64()),
    ("host_ns", pa.int64()),  # host time to the next cycle, waits for the GPU left out; null where not recorded
)
OPS = _schema(  # one row per GPU op: what attribution decided about it
    ("gpu_op", pa.int64()),  # row of the trace's gpu_ops
    ("cycle", pa.int64()),  # null before the first and after the last boundary
    ("start_ns", pa.int64()),  # effective: not before the op ahead on its stream has ended
    ("end_ns", pa.int64()),
    ("stream", pa.int64()),
    ("phase", _NAME),
    ("activity", _NAME),
    ("label_source", _NAME),
    ("kernel_class", _NAME),  # gemm, attn, norm, comm.allreduce ...
    ("implementation", _NAME),  # of collectives: nccl, sglang_custom, flashinfer ...; else null
    ("collective", pa.int64()),  # ordinal within (phase, cycle, kind); null for other ops
    ("launch_ns", pa.int64()),  # when the host called its launch (of a graph: the graph's); null where not recorded
    ("launch_end_ns", pa.int64()),  # when that call returned
)
SEGMENTS = _schema(  # the exclusive timeline: half-open, tiling each cycle
    ("rank", pa.int64()),
    ("cycle", pa.int64()),
    ("start_ns", pa.int64()),
    ("end_ns", pa.int64()),
    ("phase", _NAME),
    ("activity", _NAME),
)
COLLECTIVE_CALLS = _schema(  # one row per collective call and rank
    ("rank", pa.int64()),
    ("cycle", pa.int64()),
    ("aligned_cycle", pa.int64()),
    ("phase", _NAME),
    ("kind", _NAME),  # all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv, barrier
    ("ordinal", pa.int64()),
    ("gpu_op", pa.int64()),
    ("start_ns", pa.int64()),
    ("duration_ns", pa.int64()),
    ("transfer_ns", pa.int64()),  # minimum over ranks; null with one rank or unmatched
    ("wait_ns", pa.int64()),
    ("message_bytes", pa.int64()),
)


def empty(schema: pa.Schema) -> pa.Table:
    """A table of ``schema`` without rows."""
    return schema.empty_table()
