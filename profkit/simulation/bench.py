"""The result line of the bench client that drove the simulated server."""

from __future__ import annotations

from typing import Any

import numpy as np

from profkit.simulation.serverlog import ServerLog
from profkit.simulation.simulate import Simulation


def _statistics(name: str, values_ms: list[float]) -> dict[str, float]:
    data = np.array(values_ms)
    out = {f"mean_{name}_ms": float(data.mean()), f"median_{name}_ms": float(np.median(data))}
    out[f"std_{name}_ms"] = float(data.std())
    for percentile in (90, 95, 99):
        out[f"p{percentile}_{name}_ms"] = float(np.percentile(data, percentile))
    return {key: round(value, 6) for key, value in out.items()}


def bench_line(simulation: Simulation, log: ServerLog) -> dict[str, Any]:
    """One object as SGLang's serving benchmark appends it; the profiled request is among them, as it would be."""
    requests = [r for r in log.requests if r.done_s]
    begin, end = requests[0].sent_s, requests[-1].done_s
    duration = end - begin
    outputs = sum(r.output for r in requests)
    inputs = sum(r.prompt for r in requests)
    latencies = [(r.done_s - r.sent_s) * 1000 for r in requests]
    waits: list[float] = []
    for request in requests:
        previous = request.first_token_s
        for at, gained in zip(request.token_times_s, request.gained, strict=True):
            waits.extend([(at - previous) * 1000 / max(1, gained)] * gained)
            previous = at
    batch = max(simulation.scenario.serving.batch_sizes)
    line: dict[str, Any] = {
        "tag": None, "backend": "sglang", "dataset_name": "random", "request_rate": float("inf"),
        "max_concurrency": batch, "sharegpt_output_len": None, "random_input_len": 1800, "random_output_len": 1536,
        "random_range_ratio": 0.5, "duration": round(duration, 6), "completed": len(requests),
        "total_input_tokens": inputs, "total_input_text_tokens": inputs, "total_input_vision_tokens": 0,
        "total_output_tokens": outputs, "total_output_tokens_retokenized": outputs,
        "request_throughput": round(len(requests) / duration, 9), "input_throughput": round(inputs / duration, 6),
        "output_throughput": round(outputs / duration, 6),
        "total_throughput": round((inputs + outputs) / duration, 6),
    }  # fmt: skip
    line |= _statistics("e2e_latency", latencies)
    line |= _statistics("ttft", [(r.first_token_s - r.sent_s) * 1000 for r in requests])
    line |= _statistics(
        "tpot", [(r.done_s - r.first_token_s) * 1000 / (r.output - 1) for r in requests if r.output > 1]
    )
    line |= _statistics("itl", waits)
    line["concurrency"] = round(sum(latencies) / 1000 / duration, 6)
    speculative = simulation.scenario.speculative
    steps = [tokens for r in requests for tokens in r.gained]
    line["accept_length"] = round(sum(steps) / len(steps), 6) if speculative else None
    line["max_concurrent_requests"] = batch
    return line
