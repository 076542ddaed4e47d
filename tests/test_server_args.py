"""Server arguments: both printed forms, typed values, no secrets, the release by their names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.errors import InputError
from profkit.parsers.server_args import (
    REMOVED,
    infer_version,
    parse_server_args,
    read_server_args_json,
    releases,
    text_without_secrets,
    without_secrets,
)
from profkit.rules import load_rules

plain = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
)
values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
names = st.from_regex(r"[a-z][a-z_]{0,12}x", fullmatch=True)


@given(st.dictionaries(names, values, max_size=6))
@settings(max_examples=100, deadline=None)
def test_both_forms_give_the_values_back(arguments: dict[str, Any]) -> None:
    safe = without_secrets(arguments)
    as_repr = f"ServerArgs({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
    assert parse_server_args(as_repr) == safe
    assert parse_server_args(repr(arguments)) == safe


@given(st.dictionaries(names, values, min_size=1, max_size=4), st.data())
@settings(max_examples=60, deadline=None)
def test_a_cut_text_gives_whole_arguments_only(arguments: dict[str, Any], data: st.DataObject) -> None:
    text = f"ServerArgs({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
    found = parse_server_args(text[: data.draw(st.integers(len("ServerArgs("), len(text)))])
    assert found is not None
    safe = without_secrets(arguments)
    assert found == {name: safe[name] for name in found}
    assert list(found) == list(arguments)[: len(found)]


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_text_is_no_error(text: str) -> None:
    parse_server_args("ServerArgs(" + text)
    parse_server_args("{" + text)


def test_forms_as_printed() -> None:
    text = (
        "ServerArgs(model_path='a/b', json_model_override_args='{}', port=30000, mem_fraction_static=0.85, bs=[1, 2], "
        "note=\"it's, (odd)\", graph=Config(decode=Phase(backend='full', bs=[1]), level=2), kind=<Kind.X: 1>, "
        "last=None)"
    )
    assert parse_server_args(text) == {
        "model_path": "a/b",
        "json_model_override_args": "{}",
        "port": 30000,
        "mem_fraction_static": 0.85,
        "bs": [1, 2],
        "note": "it's, (odd)",
        "graph": {"decode": {"backend": "full", "bs": [1]}, "level": 2},
        "kind": "<Kind.X: 1>",
        "last": None,
    }
    assert parse_server_args("something else") is None


def test_secrets_are_removed() -> None:
    text = (
        "ServerArgs(api_key='abc', admin_api_key='def', watermark_key='k', ssl_keyfile_password='p', hf_token='t', "
        "ssl_keyfile='/k.pem', tokenizer_path='t', max_total_tokens=5, model_path='https://me:pw@host/m', "
        "model_loader_extra_config='{\"api_key\": \"xyz\"}', extra={'password': 'q', 'size': 1}, "
        "custom='hf_abcdefghijklmnopqrst', empty_api_key=None)"
    )
    found = parse_server_args(text)
    assert found is not None
    shown = json.dumps(found)
    for secret in ("abc", "def", '"k"', '"p"', '"q"', "me:pw", "xyz", "hf_abcdef"):
        assert secret not in shown, secret
    assert found["api_key"] == found["ssl_keyfile_password"] == REMOVED
    assert (found["ssl_keyfile"], found["tokenizer_path"], found["max_total_tokens"]) == ("/k.pem", "t", 5)
    assert found["model_path"] == f"https://{REMOVED}@host/m"
    assert found["extra"] == {"password": REMOVED, "size": 1}
    assert found["empty_api_key"] is None


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("python -m x --api-key SECRET --port 30000", "python -m x --api-key [removed] --port 30000"),
        ("x --admin-api-key=SECRET --max-total-tokens 5", "x --admin-api-key=[removed] --max-total-tokens 5"),
        ("x --hf-token 'SECRET words'", "x --hf-token [removed]"),
        (
            "https://b.example/k?size=1&X-Amz-Signature=SECRET&n=2",
            "https://b.example/k?size=1&X-Amz-Signature=[removed]&n=2",
        ),
        ("401: api-key: 'SECRET' refused", "401: api-key: '[removed]' refused"),
        ("Authorization: Bearer SECRETSECRET", "Authorization: [removed]"),
        ("--speculative-token-map map.pt --tokenizer-path t", "--speculative-token-map map.pt --tokenizer-path t"),
        ("token: 5000, KV token=3", "token: 5000, KV token=3"),
    ],
)
def test_secrets_inside_texts(text: str, kept: str) -> None:
    assert text_without_secrets(text) == kept


def test_a_launch_command_shows_no_key() -> None:
    found = parse_server_args("ServerArgs(launch_command='sglang serve --api-key SECRET', extra={'token': 'SECRET'})")
    assert "SECRET" not in json.dumps(found)


def _names(release: str) -> frozenset[str]:
    order = {r: n for n, r in enumerate(releases())}
    here = order[release]
    found = set()
    for name, ranges in load_rules("server_args")["keys"].items():
        for span in ranges.split():
            first, _, last = span.partition("..")
            if order[first] <= here <= (order[last] if last else len(order)):
                found.add(name)
    return frozenset(found)


def test_every_release_is_found_by_its_names() -> None:
    order = list(releases())
    for release in order:
        found = infer_version(_names(release))
        assert found is not None
        assert found.match == 1.0
        assert order.index(found.low) <= order.index(release) <= order.index(found.high)
        assert order.index(found.high) - order.index(found.low) <= 4, release


def test_few_or_foreign_names_abstain() -> None:
    assert infer_version(frozenset({"model_path", "tp_size"})) is None
    assert infer_version(frozenset(f"fork_{n}" for n in range(100))) is None
    near = infer_version(_names("0.5.9") - {"tp_size", "api_key"} | {"my_fork_option"})
    assert near is not None
    assert (near.low, near.high) == ("0.5.9", "0.5.9")
    assert near.match < 1.0


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "server_info.json"
    path.write_text('{"version": "0.5.9", "server_args": {"tp_size": 2, "api_key": "s"}, "internal_states": [1]}')
    assert read_server_args_json(path) == {"version": "0.5.9", "tp_size": 2, "api_key": REMOVED}
    path.write_text('{"server_args": "ServerArgs(tp_size=4)"}')
    assert read_server_args_json(path) == {"tp_size": 4}
    for text in ("[1]", "{", "", '"x"'):
        path.write_text(text)
        with pytest.raises(InputError, match="server_info"):
            read_server_args_json(path)
    with pytest.raises(InputError, match=r"none\.json"):
        read_server_args_json(tmp_path / "none.json")
