"""Lines printed by SGLang's own formatting code, release by release, against the inputs that produced them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profkit.parsers.log import read_log
from profkit.serving import interpret
from tests.paths import SHARED, needs_shared

GENERATED = SHARED / "logs" / "generated"
RELEASES = sorted(p.stem for p in GENERATED.glob("[0-9]*.json"))
GRAPH_WORDS = ("cuda graph", "npu graph", "cpu graph")


def _printed(value: float) -> float:
    return float(f"{value:.2f}")


def _expected_decode(line: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """What the formula of the release gives, for the fields that the line shows; else null."""

    def shown(key: str, value: Any) -> Any:
        return value if f"{key}: " in line else None

    speculative = "alg" in inputs
    return {
        "running_req": inputs["running"],
        "token": inputs["token"],
        "token_usage": _printed(inputs["token"] / inputs["max_total"]),
        "accept_len": shown("accept len", _printed(inputs["acc"] / inputs["fwd"])) if speculative else None,
        "gen_throughput_tok_s": _printed(inputs["gen"] / inputs["gap"]),
        "queue_req": inputs["queue"],
        "cuda_graph": inputs["graph"] if any(f"{w}: " in line for w in GRAPH_WORDS) else None,
        "swa_token": inputs.get("swa") if "swa" in line else None,
        "swa_token_usage": inputs.get("swa_usage") if "swa" in line else None,
        "mamba_num": shown("mamba num", inputs.get("mamba_num")),
        "mamba_usage": shown("mamba usage", inputs.get("mamba_usage")),
        "prealloc_req": shown("#prealloc-req", inputs.get("prealloc_req")),
        "transfer_req": shown("#transfer-req", inputs.get("transfer_req")),
        "retracted_req": shown("#retracted-req", inputs.get("retracted")),
        "cap_len": inputs["cap"] / inputs["fwd"] if "cap len: " in line else None,
        "block_accept_len": inputs["blk"] / inputs["fwd"] if "block accept len" in line else None,
    }


def _expected_prefill(line: str, inputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "new_seq": inputs["pf_seqs"],
        "new_token": inputs["pf_new"],
        "cached_token": inputs["pf_cached"],
        "queue_req": inputs["queue"],
        "running_req": inputs["running"] if "#running-req" in line else None,
        "token_usage": _printed(inputs["token"] / inputs["max_total"]) if "token usage" in line else None,
        "input_throughput_tok_s": _printed(inputs["pf_new"] / inputs["gap"]) if "input throughput" in line else None,
    }


@needs_shared
@pytest.mark.parametrize("release", RELEASES)
def test_every_line_gives_its_inputs_back(release: str) -> None:
    document = json.loads((GENERATED / f"{release}.json").read_text(encoding="utf-8"))
    tables = read_log([GENERATED / f"{release}.log"])
    found = {row["line"]: row for table in (tables.decode, tables.prefill) for row in table.to_pylist()}
    lines = [row for row in document["rows"] if row["line"]]
    assert len(found) == len(lines)
    for number, row in enumerate(lines, 1):
        got, line, inputs = found[number], row["line"], row["inputs"]
        expect = (_expected_decode if row["kind"] == "decode" else _expected_prefill)(line, inputs)
        for name, value in expect.items():
            assert got[name] == value, (release, number, name, line)
        _check_ranks(row, got)


def _check_ranks(row: dict[str, Any], got: dict[str, Any]) -> None:
    shown: dict[str, int | None] = dict.fromkeys(("dp", "pp", "tp", "ep", "attn_cp", "moe_dp"))
    for part in row["prefix"].split():
        name = part.rstrip("0123456789")
        shown[name.lower()] = int(part[len(name) :])
    assert {name: got[name] for name in shown} == shown


@needs_shared
@pytest.mark.parametrize("release", RELEASES)
def test_nothing_is_damaged_or_unknown_without_a_reason(release: str) -> None:
    tables = read_log([GENERATED / f"{release}.log"])
    assert all(not file.problems for file in tables.files)
    assert all(row["flags"] == [] for row in tables.decode.to_pylist() + tables.prefill.to_pylist())


@needs_shared
def test_decoys_in_prompts_give_no_row() -> None:
    for path in sorted(GENERATED.glob("requests_*.log")):
        tables = read_log([path])
        assert tables.decode.num_rows == 0
        assert tables.prefill.num_rows == 0
        lines = path.read_text(encoding="utf-8").splitlines()
        finished = [n for n, line in enumerate(lines, 1) if "Finish: obj" in line or '"request.finished"' in line]
        assert tables.request["line"].to_pylist() == finished
        for row in tables.request.to_pylist():
            assert (row["rid"], row["input_tokens"], row["output_tokens"]) == ("r1", 8, 64)
            assert (row["verify_steps"], row["accept_len"]) == (25, 2.56)


@needs_shared
def test_release_is_within_the_inferred_range() -> None:
    from profkit.parsers.server_args import releases

    order = list(releases())
    for release in RELEASES:
        for row in read_log([GENERATED / f"{release}.log"]).server.to_pylist():
            if row["version_low"] is not None:
                low, high = order.index(row["version_low"]), order.index(row["version_high"])
                assert low <= order.index(release) <= high, (release, row["version_low"], row["version_high"])


@needs_shared
def test_the_era_is_that_of_the_release_or_unknown() -> None:
    from profkit.parsers.server_args import releases

    order = list(releases())
    known = 0
    for release in RELEASES:
        place = order.index(release)
        era = "A" if place <= order.index("0.5.5.post2") else "B" if place <= order.index("0.5.10.post1") else "C"
        for row in interpret(read_log([GENERATED / f"{release}.log"])).decode.to_pylist():
            assert row["accept_rate_era"] in (None, era), release
            assert (row["accept_rate_era"] is None) or row["accept_rate"] is not None
            known += row["accept_rate_era"] is not None
    assert known > 50


@needs_shared
def test_meaning_columns_are_left_to_interpretation() -> None:
    path: Path = GENERATED / "0.5.23.log"
    raw = read_log([path])
    assert raw.decode["step_ms"].null_count == raw.decode.num_rows
    assert interpret(raw).decode["step_ms"].null_count < raw.decode.num_rows
