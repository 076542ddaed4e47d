"""Facts about the system: names, places and which place wins."""

from __future__ import annotations

import json
import tomllib

import pytest

from profkit import facts
from profkit.run import Fact, Facts, engine_release, release_span
from profkit.speculation.roofline import kv_bytes_per_token


def test_run_toml_is_flattened_and_keeps_identity_out() -> None:
    document = tomllib.loads(
        'name = "a"\ndate = 2026-11-16\n[labels]\nweek = "2026-W47"\n[model]\nlayers = 61\n[link]\np2p = false\n'
    )
    found = facts.from_run_toml(document, "run.toml")
    assert found == {"model.layers": Fact(61, "run.toml"), "link.p2p": Fact(False, "run.toml")}


def test_server_args_get_their_own_names() -> None:
    found = facts.from_server_args(
        {"tp_size": 8, "speculative_algorithm": "EAGLE3", "dtype": "bfloat16", "json": [1]}, "log:3"
    )
    assert found["parallel.tp"] == Fact(8, "log:3")
    assert found["server_args.tp_size"].value == 8
    assert found["model.activation_bytes"].value == 2
    assert "server_args.json" not in found


def test_model_config_of_a_multimodal_mixture_of_experts() -> None:
    config = {
        "text_config": {
            "num_hidden_layers": 61,
            "hidden_size": 7168,
            "n_routed_experts": 384,
            "num_experts_per_tok": 8,
            "first_k_dense_replace": 1,
            "torch_dtype": "bfloat16",
        }
    }
    found = facts.from_model_config(config, "config.json")
    values = {key: fact.value for key, fact in found.items()}
    assert values == {
        "model.layers": 61,
        "model.hidden_size": 7168,
        "model.experts": 384,
        "model.experts_per_token": 8,
        "model.moe_layers": 60,
        "model.activation_bytes": 2,
        "model.dtype": "bfloat16",
    }


def test_the_cache_of_a_model_config() -> None:
    shape = {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "torch_dtype": "bfloat16"}
    grouped = {"num_hidden_layers": 32, "num_key_value_heads": 8, "head_dim": 128, "torch_dtype": "bfloat16"}

    def per_token(config: dict[str, object], **facts_of: str | int | bool) -> float | None:
        known = facts.from_model_config(config, "config.json")
        known |= {key.replace("__", "."): Fact(value, "test") for key, value in facts_of.items()}
        return kv_bytes_per_token(Facts(known))

    assert per_token(shape, server_args__kv_cache_dtype="auto") == 61 * 576 * 2
    assert per_token(shape, server_args__kv_cache_dtype="fp8_e4m3") == 61 * 576
    assert per_token(shape, model__kv_bytes_per_token=5) == 5
    assert per_token(grouped, server_args__kv_cache_dtype="auto", parallel__tp=4) == 2 * 32 * 2 * 128 * 2
    assert per_token(grouped, server_args__kv_cache_dtype="auto", parallel__tp=16) == 2 * 32 * 1 * 128 * 2
    # What is not known, or what not every layer reads, gives nothing.
    assert per_token(shape) is None
    assert per_token(grouped, server_args__kv_cache_dtype="auto") is None
    assert per_token(grouped, server_args__kv_cache_dtype="auto", parallel__tp=4, parallel__dp_attention=True) is None
    windowed = grouped | {"sliding_window": 4096}
    assert per_token(windowed, server_args__kv_cache_dtype="auto", parallel__tp=4) is None
    unused = windowed | {"use_sliding_window": False}
    assert per_token(unused, server_args__kv_cache_dtype="auto", parallel__tp=4) is not None
    assert per_token(shape | {"index_topk": 2048}, server_args__kv_cache_dtype="auto") is None


def test_an_earlier_place_wins_and_keeps_its_source() -> None:
    row = {"file": "server.log", "line": 7, "server_args": json.dumps({"tp_size": 4}), "engine": "sglang", "tp": 4}
    merged = facts.merge([{"parallel.tp": Fact(8, "run.toml")}, facts.from_server_row(row)])
    assert merged["parallel.tp"] == Fact(8, "run.toml")
    assert merged["engine.name"] == Fact("sglang", "server.log:7")
    assert merged.integer("server_args.tp_size") == 4
    assert merged.number("parallel.dp") is None
    assert merged.flag("parallel.tp") is None


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        ("0.5.23", "0.5.23", "0.5.23"),
        ("0.5.9", "0.5.12", "0.5.9 to 0.5.12"),
        ("0.5.9", None, "0.5.9 or later"),
        (None, "0.4.3", "up to 0.4.3"),
        (None, None, None),
    ],
)
def test_a_range_of_releases_in_words(low: str | None, high: str | None, words: str | None) -> None:
    assert release_span(low, high) == words
    known = {f"engine.version_{end}": Fact(text, "log") for end, text in (("low", low), ("high", high)) if text}
    assert engine_release(Facts(known)) == words
    assert engine_release(Facts({**known, "engine.version": Fact("0.5.11", "run.toml")})) == "0.5.11"


def test_a_server_names_its_release_among_its_arguments() -> None:
    assert facts.from_server_args({"version": "0.5.16"}, "server_info.json")["engine.version"].value == "0.5.16"
    assert facts.from_server_args({"version": "0.0.0.dev1+g123"}, "server_info.json") == {}
