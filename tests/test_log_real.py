"""Real logs: every batch line is read or listed as damaged; servers agree with what they said of themselves."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profkit.errors import InputError
from profkit.logs import LogTables
from profkit.parsers.log import read_log
from profkit.parsers.server_args import read_server_args_json
from profkit.serving import interpret, summarise
from tests.paths import SHARED, needs_shared

REAL = SHARED / "logs" / "real"
CPU = SHARED / "sglang-cpu"

# Counted by hand (grep, then by eye): decode lines, prefill lines, damaged among them, servers, requests.
COUNTS = {
    "01_dgxspark_laguna_dflash_int4": (56, 57, 0, 1, 0),
    "03_ascend_qwen3next80b_tp2_mamba_k8s": (301, 92, 0, 1, 0),
    "08_ascend_qwen3_32b_eagle3_tp4_client_and_server": (165, 12, 0, 1, 0),
    "10_ascend_qwen3_30b_1p_spec": (140, 787, 0, 1, 0),
    "14_pr11854_custom_logging_config_mtp_h20": (4, 0, 0, 1, 0),
    "15_pr30393_v0517_glm52_pd_decode_eagle": (3, 0, 1, 1, 0),
    "16_issue2777_eagle2_jan2025_cachehit": (0, 8, 1, 1, 0),
    "19_issue26248_swa_retraction_collapse_cut_first_bracket": (3, 0, 0, 1, 0),
    "20_pr25960_npu_terminal_overwritten_lines": (1, 4, 5, 1, 0),
    "24_jpezzulli_rtxpro6000_agentic_hybrid_mtp_reqtimestats": (8, 2, 0, 1, 3),
    "27_sglang_test_ray_prefix_lines": (3, 0, 0, 3, 0),
    "28_hosted_platform_prefix_rewritten_timestamp": (2, 1, 0, 3, 0),
    "30_fork_extra_fields_iter_latency": (2, 0, 1, 1, 0),
}


def rows(tables: LogTables, name: str) -> list[dict[str, Any]]:
    return tables.table(name).to_pylist()


@needs_shared
@pytest.mark.parametrize("name", sorted(COUNTS))
def test_hand_counted(name: str) -> None:
    tables = read_log([REAL / f"{name}.log"])
    batches = rows(tables, "decode") + rows(tables, "prefill")
    damaged = sum("damaged" in row["flags"] for row in batches)
    assert (
        tables.decode.num_rows,
        tables.prefill.num_rows,
        damaged,
        tables.server.num_rows,
        tables.request.num_rows,
    ) == COUNTS[name]


LOGS = sorted(REAL.glob("*.log")) + sorted(CPU.glob("*/server.log"))


@needs_shared
@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.parent.name + p.stem)
def test_no_batch_line_is_lost(path: Path) -> None:
    data = path.read_bytes()
    # Every occurrence of the words in these files is a batch line: none of them echoes prompts.
    expected = (len(re.findall(rb"Decode batch", data)), len(re.findall(rb"Prefill batch", data)))
    if path.name.startswith("12_"):  # pieces of lines, cut out by grep -o
        with pytest.raises(InputError, match="no line of an SGLang server"):
            read_log([path])
        return
    tables = read_log([path])
    assert (tables.decode.num_rows, tables.prefill.num_rows) == expected
    for row in rows(tables, "decode") + rows(tables, "prefill"):
        assert row["flags"] in ([], ["damaged"])
        assert bool(row["flags"]) == ("damage" in dict(row["extra"]))


@needs_shared
def test_values_read_by_eye() -> None:
    first = rows(read_log([REAL / "14_pr11854_custom_logging_config_mtp_h20.log"]), "decode")[0]
    assert (first["dp"], first["tp"], first["ep"], first["accept_len"], first["retracted_req"]) == (3, 3, 3, 1.93, 0)
    assert first["timestamp"].isoformat() == "2025-10-20T03:02:22"
    fork = rows(read_log([REAL / "30_fork_extra_fields_iter_latency.log"]), "decode")[0]
    assert dict(fork["extra"]) == {
        "iter latency (ms)": "20.0000",
        "valid draft len": "1.00",
        "modeled throughput (token/s)": "1000.00",
    }
    jax = rows(read_log([REAL / "23_sglangjax564_fork_cache_miss.log"]), "decode")
    assert [dict(row["extra"]) for row in jax] == [{"#cache_miss": "1"}] * 3
    beheaded = rows(read_log([REAL / "31_pr7481_missing_leading_bracket.log"]), "decode")
    assert [row["timestamp"].isoformat() for row in beheaded][:2] == ["2025-06-23T18:55:20", "2025-06-23T18:55:21"]
    ray = rows(read_log([REAL / "27_sglang_test_ray_prefix_lines.log"]), "decode")
    assert [(row["server"], row["iteration"]) for row in ray] == [(0, 51341), (1, 39913), (2, None)]
    stats = rows(read_log([REAL / "24_jpezzulli_rtxpro6000_agentic_hybrid_mtp_reqtimestats.log"]), "request")
    assert [(r["input_tokens"], r["output_tokens"], r["decode_ms"]) for r in stats] == [
        (472, 364, 2270.33),
        (300447, 640, 4340.25),
        (304276, 488, 5928.40),
    ]
    faults = [r["kind"] for r in rows(read_log([REAL / "35_issue12076_docker_compose_prefix_watchdog.log"]), "event")]
    assert faults == ["watchdog"]
    paths = [
        dict(r["fields"])["path"]
        for r in rows(read_log([REAL / "32_amd_mi35x_v0512_glm51_startup_excerpt.log"]), "event")
        if r["kind"] == "all_reduce_path"
    ]
    assert paths.count("All-reduce call path: NCCL (custom AR disabled)") == 2


@needs_shared
def test_client_tracebacks_are_no_server_fault() -> None:
    path = REAL / "03_ascend_qwen3next80b_tp2_mamba_k8s.log"
    (server,) = summarise(read_log([path])).servers
    assert not [finding for finding in server.findings if finding.kind.startswith("fault_")]


@needs_shared
def test_eras_of_known_logs() -> None:
    expected = {
        "01_dgxspark_laguna_dflash_int4": ("C", 16),
        "08_ascend_qwen3_32b_eagle3_tp4_client_and_server": ("B", 3),
    }
    expected |= {"10_ascend_qwen3_30b_1p_spec": ("B", 4)}
    for name, (era, draft) in expected.items():
        decode = interpret(read_log([REAL / f"{name}.log"])).decode.to_pylist()
        assert {row["accept_rate_era"] for row in decode} == {era}, name
        for row in decode:
            assert row["accepted_per_draft_token"] == pytest.approx((row["accept_len"] - 1) / (draft - 1)), name
    # Without arguments the data tell: (accept length - 1) / rate is 7 on every line.
    hybrid = interpret(
        read_log([REAL / "24_jpezzulli_rtxpro6000_agentic_hybrid_mtp_reqtimestats.log"])
    ).decode.to_pylist()
    assert {row["accept_rate_era"] for row in hybrid} == {"C"}
    assert hybrid[0]["accepted_per_draft_token"] == pytest.approx(4.6 / 7)


@needs_shared
@pytest.mark.parametrize("folder", sorted(p.parent for p in CPU.glob("*/server_info.json")), ids=lambda p: p.name)
def test_servers_agree_with_their_server_info(folder: Path) -> None:
    info = json.loads((folder / "server_info.json").read_text(encoding="utf-8"))
    tables = read_log([folder / "server.log"])
    (server,) = rows(tables, "server")
    assert server["version_low"] == server["version_high"] == info["version"] == folder.name.split("_")[0]
    for column, argument in NAMES.items():
        assert server[column] == info[argument], column
    assert server["speculative"] == (info["speculative_algorithm"] is not None)
    arguments = json.loads(server["server_args"])
    from_file = read_server_args_json(folder / "server_info.json")
    assert {k: v for k, v in arguments.items() if from_file[k] != v} == {}
    _check_state(info["internal_states"][0], rows(interpret(tables), "decode"))


NAMES = {"tp": "tp_size", "num_draft_tokens": "speculative_num_draft_tokens", "model": "model_path"}


def _check_state(state: dict[str, Any], decode: list[dict[str, Any]]) -> None:
    speed = state.get("last_gen_throughput")
    if speed is not None:
        assert any(abs(row["gen_throughput_tok_s"] - speed) < 0.006 for row in decode)
    average = state.get("avg_spec_accept_length")
    if average is not None:
        known = [(row["accept_len"], row["running_req"]) for row in decode if row["accept_len"] is not None]
        lengths, running = np.array(known).T
        assert np.average(lengths, weights=np.maximum(running, 1)) == pytest.approx(average, rel=0.08)


@needs_shared
@pytest.mark.parametrize("folder", sorted(p.parent for p in CPU.glob("*/bench.jsonl")), ids=lambda p: p.name)
def test_bench_files_agree_with_the_log(folder: Path) -> None:
    summary = summarise(read_log([folder / "server.log", folder / "bench.jsonl"]))
    (server,) = summary.servers
    result = summary.bench[0]["figures"]
    assert isinstance(result, dict)
    last = json.loads((folder / "bench.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert result["output_throughput"] == last["output_throughput"]
    length = result.get("accept_len")
    if length is not None:
        assert server.decode.accept_len.mean == pytest.approx(length, rel=0.08)


@needs_shared
def test_step_time_agrees_with_the_clock() -> None:
    # Between two lines of one scheduler lie decode_log_interval steps: whole seconds only, so sums over the log.
    tables = interpret(read_log([CPU / "0.5.23_eagle_tp2_steady" / "server.log"]))
    interval = json.loads(rows(tables, "server")[0]["server_args"])["decode_log_interval"]
    decode = rows(tables, "decode")
    spans = [(b["time"] - a["time"], b["step_ms"]) for a, b in pairwise(decode) if not b["flags"]]
    assert sum(s * interval / 1000 for _, s in spans) == pytest.approx(sum(t for t, _ in spans), rel=0.05)
