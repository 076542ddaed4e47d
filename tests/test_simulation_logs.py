"""Simulated logs: laid out as each release prints them, and adding up to what was simulated."""

from __future__ import annotations

import ast
import re
import statistics
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from profkit.parsers.log import read_log
from profkit.simulation import simulate, write_run
from profkit.simulation.scenario import Dialect
from profkit.simulation.serverlog import ServerLog
from tests.paths import SHARED, needs_shared
from tests.simulated import MODES

LINE = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?: TP(\d))?\] (.*)")
PAIR = re.compile(r"(#?[a-z][^:]*): ([^,]*)(?:, |$)")


@pytest.mark.parametrize("mode", ["plain", "eagle3_v2", "ngram", "eagle3_v2_batches", "dspark_ragged"])
def test_log_adds_up_to_its_truth(mode: str, tmp_path: Path) -> None:
    scenario = MODES[mode]
    write_run(simulate(scenario), tmp_path / "run", traces=False)
    lines = (tmp_path / "run" / "server.log").read_text(encoding="utf-8").splitlines()
    expected = tomllib.loads((tmp_path / "run" / "expected.toml").read_text(encoding="utf-8"))["log"]
    decode = [dict(PAIR.findall(m[3].split(", ", 1)[1])) for m in map(LINE.fullmatch, lines)
              if m and m[3].startswith("Decode batch, ")]  # fmt: skip
    assert len(decode) == expected["decode_lines"] == scenario.recording.log_lines
    middle = statistics.median(float(d["gen throughput (token/s)"]) for d in decode)
    assert middle == pytest.approx(expected["throughput_tok_s"], rel=0.03)
    for line in decode:
        if scenario.speculative:
            length, rate = float(line["accept len"]), float(line["accept rate"])
            assert rate == pytest.approx((length - 1) / (scenario.serving.num_draft_tokens - 1), abs=0.006)
        else:
            assert "accept len" not in line
    # The flagged lines carry a prefill or the profiler's stop and are slower than any other.
    slow = sorted(float(d["gen throughput (token/s)"]) for d in decode)[: expected["flagged_lines"]]
    assert max(slow) < 0.95 * middle
    stamps = [m[1] for m in map(LINE.fullmatch, lines) if m]
    assert stamps == sorted(stamps)
    assert {m[2] for m in map(LINE.fullmatch, lines) if m and "batch, " in m[3]} == {"0"}
    assert sum("Profiling starts" in line for line in lines) == scenario.ranks


REAL_SERVERS = {
    "0.5.3": "0.5.3_eagle_tp1",
    "0.5.9": "0.5.9_eagle_tp2_steady",
    "0.5.16": "0.5.16_eagle_tp2",
    "0.5.23": "0.5.23_eagle_tp2_steady",
}


def log_of(version: str) -> list[str]:
    """A speculative launch's log in the format of a release."""
    mode = MODES["eagle_v1" if version == "0.5.3" else "eagle3_v2_no_overlap"]
    dialect: Dialect = "0.5.20" if version == "0.5.23" else "0.5.14" if version == "0.5.16" else "none"
    scenario = replace(mode, recording=replace(mode.recording, engine_version=version, dialect=dialect))
    return ServerLog(simulate(scenario, record=False), "1795960129.224998").text().splitlines()


def mask(line: str) -> str:
    """A line without its prefix, figures and names."""
    line = line.split("] ", 1)[-1].replace("cpu graph", "cuda graph").rstrip("\r")
    line = re.sub(r"(?<=dtype: )torch\.\w+|(?<=dtype=)torch\.\w+|(?<=type=)\w+|quant=[\w-]+, |/[\w./-]+", "_", line)
    return re.sub(r"\d+(?:\.\d+)?|True|False", "0", line)


@needs_shared
@pytest.mark.parametrize("version", REAL_SERVERS)
def test_log_lines_have_the_shape_of_a_real_servers(version: str) -> None:
    real = (SHARED / "sglang-cpu" / REAL_SERVERS[version] / "server.log").read_text(errors="replace").splitlines()
    known = {mask(line).replace("type=__", "type=_") for line in real}
    made = log_of(version)
    starts = [
        "Decode batch", "Prefill batch", "Load weight begin", "Load weight end", "Init ", "Memory ",
        "Profiling starts", "Stop profiling", "Profiling done", "The server is fired", "INFO:     Uvicorn",
    ]  # fmt: skip
    for start in starts:
        ours = {mask(line).replace("quant=_, ", "") for line in made if f"] {start}" in line}
        # The real servers were profiled by stage now and then; ours always is.
        fitting = known | {
            k.replace("profiling...", "profiling-DECODE...").replace("starts.", "starts for DECODE.") for k in known
        }
        assert ours, start
        assert {o.replace("_avail", "avail") for o in ours} <= fitting, (start, ours - fitting)
    pools = {mask(line) for line in made if "] KV Cache" in line and "K size" in line}
    assert pools
    assert pools <= known


@needs_shared
@pytest.mark.parametrize("version", REAL_SERVERS)
def test_server_arguments_have_the_keys_of_the_release(version: str) -> None:
    def keys(lines: list[str]) -> list[str]:
        text = next(line for line in lines if "server_args=" in line).split("server_args=", 1)[1]
        node = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.Call):
            return [str(k.arg) for k in node.keywords]
        assert isinstance(node, ast.Dict)
        return [ast.literal_eval(k) for k in node.keys if k is not None]

    real = (SHARED / "sglang-cpu" / REAL_SERVERS[version] / "server.log").read_text(errors="replace").splitlines()
    assert keys(log_of(version)) == keys(real)


def test_accept_rate_means_what_it_meant_in_the_release() -> None:
    """Tokens with the bonus over all rows before 0.5.11; drafts over drafts since."""
    for version in ("0.5.9", "0.5.12"):
        lines = [dict(PAIR.findall(line)) for line in log_of(version) if "Decode batch" in line]
        assert lines
        for line in lines:
            length = float(line["accept len"])
            quotient = length / 4 if version == "0.5.9" else (length - 1) / 3
            assert float(line["accept rate"]) == pytest.approx(quotient, abs=0.006)
    assert not any("accept rate" in line for line in log_of("0.5.3"))
    with pytest.raises(ValueError, match=r"0\.5\.16"):
        log_of("0.5.17")


def test_a_ragged_verify_prints_how_many_rows_it_was_given(tmp_path: Path) -> None:
    scenario = MODES["dspark_ragged"]
    write_run(simulate(scenario), tmp_path, traces=False)
    log = read_log([tmp_path / "server.log"])
    decode = log.decode.to_pandas()
    assert set(decode["cap_len"]) == {float(scenario.serving.num_draft_tokens)}
    assert decode["accept_len"].between(1.0, scenario.serving.num_draft_tokens).all()
    texts = [dict(fields or ()).get("text", "") for fields in log.event.column("fields").to_pylist()]
    assert sum(str(text).startswith("Initialized DSpark draft runner") for text in texts) == 1
    write_run(simulate(MODES["dspark"]), tmp_path / "all", traces=False)
    assert read_log([tmp_path / "all" / "server.log"]).decode.column("cap_len").null_count == len(decode)
