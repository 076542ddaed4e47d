"""Reads torch-profiler (Kineto) traces: one table set per rank, times as exact integer nanoseconds."""

from profkit.parsers.trace.many import find_traces, read_trace, read_traces

__all__ = ["find_traces", "read_trace", "read_traces"]
