"""The commands that record what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from profkit.preflight.result import Capture, RunFound
from profkit.preflight.versions import Release

# Long enough for a dozen cycles, short enough for a file of some megabytes a rank.
STEPS = 12
STACK_STEPS = 3
# Per phase and rank a message is rows x hidden size x 2 bytes; without a hidden size a range that holds any.
_UNKNOWN_SIZES = (4096, 1 << 20)
_ACTIVATION_BYTES = 2


def _port(runs: Sequence[RunFound]) -> int:
    return next((r.port for r in runs if r.port), 30000)


def _batch(runs: Sequence[RunFound]) -> int:
    sizes = [size for r in runs for size in r.batch_sizes]
    return max(set(sizes), key=lambda s: (sizes.count(s), -s)) if sizes else 1


def _profile(port: int, release: Release, *, steps: int, stacks: bool) -> str:
    request: dict[str, object] = {
        "output_dir": "/tmp/profkit-run/traces",  # noqa: S108 - a folder for the user to change
        "num_steps": steps,
        "activities": ["CPU", "GPU"],
        "with_stack": stacks,
        "record_shapes": False,
    }
    if release.has("profile_by_stage"):
        request["profile_by_stage"] = True
    body = json.dumps(request)
    return f"curl -s -X POST http://127.0.0.1:{port}/start_profile -H 'Content-Type: application/json' -d '{body}'"


# Real text: how many drafts are accepted depends on it, and random tokens are hardly ever guessed.
def _load(port: int, release: Release, batch: int, *, prompts: int, into: str) -> str:
    module = "sglang.benchmark.serving" if release.has("benchmark_module") else "sglang.bench_serving"
    return (
        f"python -m {module} --backend sglang --port {port} --dataset-name sharegpt --sharegpt-output-len 512 "
        f"--num-prompts {prompts} --max-concurrency {batch} --output-file {into}"
    )


def _decode_trace(runs: Sequence[RunFound], release: Release) -> Capture:
    port, batch = _port(runs), _batch(runs)
    return Capture(
        "decode_trace",
        "a trace of decoding, every rank, without stacks",
        "each rank writes one file; copy all of them (on every node) into the run's folder",
        (
            f"{_load(port, release, batch, prompts=8 * batch, into='profiled.jsonl')} &",
            "sleep 10   # until prefill is over and only decoding runs",
            _profile(port, release, steps=STEPS, stacks=False),
        ),
    )


def _phases(runs: Sequence[RunFound], release: Release) -> Capture:
    port = _port(runs)
    newer = "" if release.has("step_annotations") else "; SGLang 0.5.14 and later name the phases without stacks"
    return Capture(
        "phases",
        "a second, very short trace with Python stacks",
        f"names the phases where nothing else does; its times are too long to be used{newer}",
        (_profile(port, release, steps=STACK_STEPS, stacks=True),),
    )


def _speculative_log(runs: Sequence[RunFound], release: Release) -> Capture:
    return _log(runs, release, "speculative_log", "a log of the speculative server", "", "speculative/server.log")


def _baseline_log(runs: Sequence[RunFound], release: Release) -> Capture:
    return _log(
        runs,
        release,
        "baseline_log",
        "a log of the same server without speculation",
        "   # the same command without its --speculative-* arguments",
        "baseline/server.log",
    )


def _log(runs: Sequence[RunFound], release: Release, name: str, title: str, remark: str, file: str) -> Capture:
    port, batch = _port(runs), _batch(runs)
    endpoint = "server_info" if release.has("server_info") else "get_server_info"
    folder = file.split("/", maxsplit=1)[0]
    return Capture(
        name,
        title,
        f"steady decode lines at {batch} running request{'s' if batch != 1 else ''}, no profiler running: step time, "
        "throughput and accept length at the same load in both arms",
        (
            f"mkdir -p {folder} && python -m sglang.launch_server YOUR ARGUMENTS --decode-log-interval 20 2>&1 "
            f"| tee {file}{remark}",
            "# when it serves, in a second terminal:",
            _load(port, release, batch, prompts=32 * batch, into=f"{folder}/bench.jsonl"),
            f"curl -s http://127.0.0.1:{port}/{endpoint} > {folder}/server_info.json",
        ),
    )


def _model(runs: Sequence[RunFound], release: Release) -> Capture:
    del runs, release
    return Capture(
        "model_config",
        "the model's shape",
        "hidden size and layers give the size and the number of all-reduce messages",
        ("cp PATH_OF_THE_MODEL/config.json RUN_FOLDER/config.json",),
    )


def message_sizes(runs: Sequence[RunFound]) -> tuple[int, int, str]:
    """Least and greatest all-reduce message in bytes, and where they come from."""
    hidden = next((r.hidden_size for r in runs if r.hidden_size), None)
    if hidden is None:
        low, high = _UNKNOWN_SIZES
        return low, high, "the hidden size is not known here: a range; a message is rows x hidden size x 2 bytes"
    batch = _batch(runs)
    rows = max((r.num_draft_tokens or 1) for r in runs)
    row = hidden * _ACTIVATION_BYTES
    return (
        batch * row,
        batch * rows * row,
        f"{batch} x {hidden} x {_ACTIVATION_BYTES} bytes in a decode step"
        + (f", {rows} rows per request in verify" if rows > 1 else ""),
    )


def _nccl_tests(runs: Sequence[RunFound], release: Release) -> Capture:
    del release
    low, high, why = message_sizes(runs)
    ranks = next((r.ranks for r in runs if r.ranks), None)
    return Capture(
        "nccl_tests",
        "what an all-reduce of these sizes costs on this machine when nothing else runs",
        why,
        (
            "git clone https://github.com/NVIDIA/nccl-tests && make -C nccl-tests",
            f"nccl-tests/build/all_reduce_perf -b {low} -e {max(high, low)} -f 2 -g {ranks or 'GPUS'} -d bfloat16 "
            "-w 50 -n 500 | tee nccl-tests.log",
        ),
    )


def _nccl_debug(runs: Sequence[RunFound], release: Release) -> Capture:
    del runs, release
    return Capture(
        "nccl_debug",
        "what NCCL chose, and over which links",
        "transports, channels and tuning; set for the launch of the server, costs nothing while it serves",
        (
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING NCCL_DEBUG_FILE=nccl.%h.%p.log "
            "python -m sglang.launch_server YOUR ARGUMENTS",
            "nvidia-smi topo -m > topology.txt; nvidia-smi topo -p2p r >> topology.txt",
        ),
    )


def _repeats(runs: Sequence[RunFound], release: Release) -> Capture:
    from profkit.comparison.result import MIN_LAUNCHES

    port, batch = _port(runs), _batch(runs)
    return Capture(
        "repeats",
        f"{MIN_LAUNCHES} launches of each version",
        "windows of one launch are not independent: only new launches tell a change from the luck of one start",
        (
            f"for i in $(seq {MIN_LAUNCHES}); do mkdir -p before/$i",
            "python -m sglang.launch_server YOUR ARGUMENTS > before/$i/server.log 2>&1 & server=$!",
            f"until curl -sf http://127.0.0.1:{port}/health > /dev/null; do sleep 5; done",
            _load(port, release, batch, prompts=32 * batch, into="before/$i/bench.jsonl"),
            "kill $server; wait $server; done",
            "# the same into after/ with the change; alternate between the two if you can",
        ),
    )


CAPTURES: dict[str, Callable[[Sequence[RunFound], Release], Capture]] = {
    "speculative_log": _speculative_log,
    "baseline_log": _baseline_log,
    "decode_trace": _decode_trace,
    "phases": _phases,
    "model_config": _model,
    "nccl_tests": _nccl_tests,
    "nccl_debug": _nccl_debug,
    "repeats": _repeats,
}
