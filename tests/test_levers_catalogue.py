"""The catalogue of levers: complete, dated, and every flag in the releases that it is gated to."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.collectives.cost import reference_curves
from profkit.planning.gates import releases
from profkit.planning.levers import (
    EFFORT_COST,
    FILLED,
    PLACEHOLDER,
    Lever,
    flag_table,
    load_levers,
    named_flags,
    named_variables,
    version_key,
)
from profkit.words import PHASES
from tests.flag_scan import spans, table

LEVERS = load_levers()
BY_ID = {lever.id: lever for lever in LEVERS}


def in_span(version: str, span: tuple[str, str]) -> bool:
    return version_key(span[0]) <= version_key(version) <= version_key(span[1])


def test_there_are_enough_levers_of_every_kind() -> None:
    assert len(LEVERS) >= 30
    assert {lever.role for lever in LEVERS} == {"lever", "fallback", "experiment"}
    assert sum(lever.effort == 1 for lever in LEVERS) >= 15


@pytest.mark.parametrize("lever", LEVERS, ids=lambda lever: lever.id)
def test_lever_is_complete(lever: Lever) -> None:
    assert re.fullmatch(r"[a-z0-9.-]+", lever.id)
    assert lever.effort in EFFORT_COST
    assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", lever.added)
    assert lever.flags or lever.drop_flags or lever.env or lever.host or not lever.gate.released
    for text in (lever.title, lever.mechanism, lever.risk_why, lever.acceptance, lever.kill):
        assert len(text) > 8
    for text in (lever.mechanism, lever.risk_why, lever.acceptance, lever.kill):
        assert text.endswith(".")
    assert all(other in BY_ID and other != lever.id for other in (*lever.depends, *lever.conflicts))
    placeholders = {p for text in (*lever.flags, *lever.env) for p in PLACEHOLDER.findall(text)} - FILLED
    assert bool(placeholders) == bool(lever.needs_input)


@pytest.mark.parametrize("lever", LEVERS, ids=lambda lever: lever.id)
def test_effect_is_a_model_or_says_that_nobody_measured(lever: Lever) -> None:
    effect = lever.effect
    needed = {
        "curves": bool(effect.curves),
        "wait": effect.removed is not None,
        "idle": effect.removed is not None,
        "compute": effect.factor is not None and bool(effect.phases),
        "reported": effect.relative is not None and bool(lever.report),
        "accept_len": effect.most is not None,
        "none": bool(effect.why),
    }
    assert needed.get(effect.model, True)
    assert set(effect.phases) <= set(PHASES)
    assert set(effect.curves) <= set(reference_curves())
    for case in (effect.removed, effect.relative):
        assert case is None or (list(case) == sorted(case) and case[0] >= 0)
    assert effect.factor is None or list(effect.factor) == sorted(effect.factor, reverse=True)


@pytest.mark.parametrize("lever", [x for x in LEVERS if x.report], ids=lambda lever: lever.id)
def test_reports_say_where_when_and_on_what(lever: Lever) -> None:
    for report in lever.report:
        assert re.fullmatch(r"20\d\d(-[01]\d)?", report.date)
        assert report.hardware
        assert report.address.startswith("https://") or "blog" in report.address
    if lever.evidence == "elsewhere_same_sm":
        assert any(report.sm for report in lever.report)


@pytest.mark.parametrize("lever", LEVERS, ids=lambda lever: lever.id)
def test_flags_exist_in_every_release_that_the_gate_names(lever: Lever) -> None:
    known = flag_table()
    newest = known.sampled[-1]
    first, last = releases(lever)
    first, last = first or known.sampled[0], last or newest
    assert version_key(first) <= version_key(last)
    for bound in (lever.gate.since, lever.gate.until):
        assert bound is None or bound in known.sampled
    for flag in named_flags(lever):
        assert in_span(first, known.flag[flag]), f"{flag} is not in {first}"
        assert in_span(last, known.flag[flag]), f"{flag} is not in {last}"
    for variable in named_variables(lever):
        if variable.startswith("NCCL_"):
            assert variable in known.nccl
            continue
        assert in_span(first, known.variable[variable]), f"{variable} is not in {first}"
        assert in_span(last, known.variable[variable]), f"{variable} is not in {last}"


def test_a_stated_range_is_not_wider_than_the_flags() -> None:
    # A gate that promises a release in which its flag is missing must not pass as narrowed.
    known = flag_table()
    for lever in LEVERS:
        for flag in named_flags(lever):
            if lever.gate.since:
                assert version_key(lever.gate.since) >= version_key(known.flag[flag][0]), (lever.id, flag)
            if lever.gate.until:
                assert version_key(lever.gate.until) <= version_key(known.flag[flag][1]), (lever.id, flag)


def test_the_table_holds_no_name_that_no_lever_uses() -> None:
    known = flag_table()
    assert set(known.flag) == {flag for lever in LEVERS for flag in named_flags(lever)}
    used = {v for lever in LEVERS for v in named_variables(lever)}
    assert set(known.variable) | set(known.nccl) == used


def test_ll128_is_never_forced_without_a_correctness_gate() -> None:
    for lever in LEVERS:
        if any(name in ("NCCL_PROTO", "NCCL_ALGO") for name in named_variables(lever)):
            assert lever.correctness
            assert "LL128" in lever.risk_why
            assert not any("LL128" in text for text in lever.env)


def test_lossy_levers_are_of_high_risk_and_gated_by_accuracy() -> None:
    lossy = [lever for lever in LEVERS if "ossy" in lever.risk_why]
    assert len(lossy) >= 3
    for lever in lossy:
        assert lever.risk == "high"
        assert lever.correctness or "accuracy" in lever.acceptance


@pytest.mark.parametrize(
    "broken",
    [
        {"effort": "much"},
        {"risk": "none"},
        {"gate": {"sincee": "0.5.3"}},
        {"effect": {"model": "magic"}},
        {"colour": "red"},
    ],
)
def test_a_misspelt_entry_is_refused(broken: dict[str, object]) -> None:
    entry = msgspec.to_builtins(BY_ID["fewer-draft-tokens"]) | broken
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(entry, Lever, strict=False)


ORDERED = ["0.4.6", "0.4.6.post5", "0.4.10", "0.5.0rc1", "0.5.0", "0.5.3", "0.5.3.post1", "0.5.10", "0.5.23"]


@given(st.sampled_from(range(len(ORDERED))), st.sampled_from(range(len(ORDERED))))
def test_versions_are_ordered_as_released(one: int, other: int) -> None:
    assert (version_key(ORDERED[one]) < version_key(ORDERED[other])) == (one < other)


def wheel(folder: Path, version: str, files: dict[str, str]) -> Path:
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    return path


def test_the_scan_reads_all_spellings(tmp_path: Path) -> None:
    old = wheel(
        tmp_path,
        "0.5.9",
        {
            "sglang/srt/server_args.py": 'parser.add_argument("--tp-size", "--tensor-parallel-size", type=int)\n',
            "sglang/srt/utils.py": 'import os\nX = os.getenv("SGLANG_OLD", "0")\n',
            "sglang/srt/models/m.py": 'os.getenv("SGLANG_MODEL_ONLY")\n',
        },
    )
    new = wheel(
        tmp_path,
        "0.5.14",
        {
            "sglang/srt/server_args.py": (
                "class ServerArgs:\n"
                '    tp_size: A[int, Arg(help="x", aliases=["--tensor-parallel-size"])] = 1\n'
                "    hidden: A[bool, Arg(no_cli=True)] = False\n"
                "    plain: int = 0\n"
                '    new_one: A[bool, "help"] = False\n'
            ),
            "sglang/srt/environ.py": "class Envs:\n    SGLANG_NEW = EnvBool(False)\n",
            "sglang/srt/args.py": 'if os.getenv("SGLANG_OLD"):\n    warn("SGLANG_OLD has been removed: always on")\n',
        },
    )
    text = table([new, old], ["--tp-size", "--tensor-parallel-size", "--new-one"], ["SGLANG_OLD", "SGLANG_NEW"])
    assert 'sampled = ["0.5.9", "0.5.14"]' in text
    assert '--tp-size = ["0.5.9", "0.5.14"]' in text
    assert '--tensor-parallel-size = ["0.5.9", "0.5.14"]' in text
    assert '--new-one = ["0.5.14", "0.5.14"]' in text
    assert 'SGLANG_OLD = ["0.5.9", "0.5.9"]' in text
    assert 'SGLANG_NEW = ["0.5.14", "0.5.14"]' in text
    for missing in ("--hidden", "--plain"):
        with pytest.raises(ValueError, match="not in any release"):
            table([new], [missing], [])


def test_a_name_that_comes_and_goes_is_refused() -> None:
    with pytest.raises(ValueError, match="row"):
        spans([("1", {"a"}), ("2", set()), ("3", {"a"})], ["a"])
