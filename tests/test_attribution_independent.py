"""Recordings built after SGLang's own source, sharing nothing with the project's simulator: split right, counts exact.

What the generator takes from the source and what it invents is said in ``tests/independent_cycles.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.independent_check import check, report, truth_windows
from tests.independent_cycles import Case
from tests.independent_found import FOUND, turns
from tests.independent_workers import simulate

EVIDENCES = ("annotations", "stacks", "launches", "gpu_annotations", "gpu")
BETWEEN = (("d", 4), ("d", 4), ("d", 4), ("p", 2048), ("p", 800), ("d", 4), ("d", 4), ("d", 4))
FIRST = (("p", 512), ("d", 4), ("d", 4), ("d", 4), ("d", 4))
LAST = (("d", 4), ("d", 4), ("d", 4), ("d", 4), ("d", 4), ("p", 512))
BATCHES = (("d", 4), ("d", 4), ("d", 4), ("d", 2), ("d", 2), ("d", 1), ("d", 1))
ADAPTIVE = (("d", 4, 3), ("d", 4, 3), ("d", 4, 3), ("d", 4, 5), ("d", 4, 5), ("d", 4, 1), ("d", 4, 1), ("d", 4, 3))
SCRIPTS: dict[str, Any] = {
    "between": BETWEEN, "first": FIRST, "last": LAST, "batches": BATCHES, "adaptive": ADAPTIVE,
}  # fmt: skip


def grid() -> Iterator[tuple[str, Case]]:
    """Every mode and release with every evidence it can have, each with another model, steps and way to launch."""
    yield from _eagle()
    yield from _others()
    yield from _forms()
    yield from _found_wrong_once()


def _found_wrong_once() -> Iterator[tuple[str, Case]]:
    """What a random search found and no other case has."""
    early = (("p", 1024), ("d", 4), ("d", 4), ("d", 4), ("d", 4), ("d", 4))
    yield "ngram-0.5.16-launches-first", Case("0.5.16", "ngram", "launches", start="idle", script=early)
    prompt = (("d", 4), ("d", 4), ("d", 4), ("p", 1024), ("d", 4), ("d", 4), ("d", 4))
    yield "ngram-0.5.9-frames-between", Case("0.5.9", "ngram", "frames", script=prompt, overlap=False)
    first = (("p", 512), *(("d", 4),) * 5)
    yield "eagle v1-0.5.9-launches-first", Case("0.5.9", evidence="launches", start="idle", script=first)
    eager: dict[str, Any] = {"draft_graph": False, "extend_graph": False, "target_graph": False}
    yield "eagle v1-0.5.11-eager", Case("0.5.11", worker="v1", steps=1, **eager)
    often = tuple(turn for _ in range(5) for turn in (("d", 1), ("p", 1024))) + (("d", 1),) * 3
    yield "eagle v1-0.5.9-often", Case("0.5.9", evidence="launches", steps=5, script=often, target_graph=False)
    yield "eagle-0.5.14-tree", Case("0.5.14", evidence="gpu_annotations", steps=1, topk=4, target_graph=False)
    twice = (("d", 4),) * 3 + (("p", 300), ("d", 4), ("d", 4), ("p", 1024), ("d", 4), ("d", 4), ("d", 4))
    yield "none-0.5.9-launches-twice", Case("0.5.9", "none", "launches", ranks=2, layers=10, script=twice)
    yield "none-0.5.16-eager", Case("0.5.16", "none", "launches", target_graph=False, script=prompt)
    yield from FOUND.items()


def _eagle() -> Iterator[tuple[str, Case]]:
    shapes: list[dict[str, Any]] = [
        {"steps": 3, "ranks": 2},
        {"steps": 1, "family": "mla", "drafter": "mla", "branches": True},
        {"steps": 5, "topk": 4, "family": "marlin", "drafter": "triton", "ranks": 4, "layers": 8, "greedy": False},
        {"steps": 2, "draft_graph": False, "extend_graph": False, "family": "blackwell", "early": True},
        {
            "steps": 4,
            "target_graph": False,
            "draft_graph": False,
            "extend_graph": False,
            "family": "triton",
            "layers": 8,
        },
        {"steps": 3, "family": "hybrid", "pieces": 5, "grammar": True, "detailed": True},
    ]
    place = 0
    for version in ("0.5.11", "0.5.14", "0.5.16", "0.5.20", "0.5.23"):
        for evidence in EVIDENCES:
            shape = shapes[place % len(shapes)]
            yield f"eagle-{version}-{evidence}-{place % len(shapes)}", Case(version, evidence=evidence, **shape)
            place += 1
    for evidence in ("launches", "frames", "gpu"):
        for number, shape in enumerate(shapes[:5]):
            yield f"eagle v1-0.5.9-{evidence}-{number}", Case("0.5.9", evidence=evidence, **shape)
    yield "eagle v1-0.5.11-annotations", Case("0.5.11", worker="v1")
    for number, (name, script) in enumerate(SCRIPTS.items()):
        start = "idle" if name == "first" else "mid"
        for version, evidence in (("0.5.9", "frames"), ("0.5.16", "launches"), ("0.5.23", EVIDENCES[number])):
            yield f"eagle-{version}-{evidence}-{name}", Case(version, evidence=evidence, script=script, start=start)


def _forms() -> Iterator[tuple[str, Case]]:
    """Experts on all ranks, chunks of prompts beside decoding requests, a drafter that reads the target's cache."""
    mixed = turns("d4 d4 d4 m4 d4 d4 m4 m4 d4 d4 d4")
    for number, evidence in enumerate(EVIDENCES):
        versions = ("0.5.16", "0.5.20", "0.5.23")
        version = versions[number % 3]
        graphs: dict[str, Any] = {"draft_graph": number % 2 == 0}
        experts: dict[str, Any] = {"ranks": 4, "family": "ep", "layers": 8}
        yield f"experts-{version}-{evidence}", Case(version, "eagle", evidence, drafter="ep", **experts)
        yield f"frozen-{version}-{evidence}", Case(version, "frozen", evidence, draft_layers=2 + number, **graphs)
        yield f"mixed-{version}-{evidence}", Case(version, "none", evidence, script=mixed, overlap=number % 2 == 0)
    yield "experts-plain-0.5.23-annotations", Case("0.5.23", "none", **experts)
    yield "frozen-0.5.16-frames", Case("0.5.16", "frozen", "frames", draft_layers=2)


def _others() -> Iterator[tuple[str, Case]]:
    drafters: list[dict[str, Any]] = [
        {"layers": 16, "draft_layers": 4},
        {"layers": 8, "draft_layers": 16},
        {"layers": 14, "draft_layers": 12, "drafter": "marlin"},
    ]
    for mode, layers in (("eagle", 1), ("standalone", 4), ("mtp", 1), ("dflash", 4), ("dspark", 4)):
        case = Case("0.5.23", mode, "launches", draft_layers=layers, start="idle", script=FIRST)
        yield f"{mode}-0.5.23-launches-first", case
    for number, evidence in enumerate(EVIDENCES):
        for version in ("0.5.9", "0.5.11", "0.5.16", "0.5.23"):
            shape = drafters[(number + len(version)) % len(drafters)]
            yield f"standalone-{version}-{evidence}", Case(version, "standalone", evidence, start="idle", **shape)
        for version, steps, graph in (("0.5.11", 1, True), ("0.5.16", 3, False), ("0.5.23", 3, True)):
            case = Case(
                version, "mtp", evidence, steps, family="mla", drafter="mla", extend_graph=graph, script=BETWEEN
            )
            yield f"mtp-{version}-{evidence}", case
        for version in ("0.5.9", "0.5.16", "0.5.23"):
            overlap = version != "0.5.9"
            yield f"ngram-{version}-{evidence}", Case(version, "ngram", evidence, ranks=1 + number % 2, overlap=overlap)
        for version, mode, graph in (
            ("0.5.14", "dflash", True), ("0.5.23", "dflash", False),
            ("0.5.16", "dspark", True), ("0.5.20", "dspark", False), ("0.5.23", "dspark", True),
        ):  # fmt: skip
            folded = mode == "dspark" and version == "0.5.23"
            case = Case(version, mode, evidence, draft_layers=4, draft_graph=graph, folded=folded, layers=14)
            yield f"{mode}-{version}-{evidence}", case
        for version, family in (("0.5.9", "hybrid"), ("0.5.16", "mla"), ("0.5.23", "blackwell")):
            case = Case(
                version, "none", evidence, ranks=1 + number % 2, family=family, branches=number % 2 == 1, script=BETWEEN
            )
            yield f"none-{version}-{evidence}", case


CASES = dict(grid())


@pytest.mark.parametrize("name", CASES)
def test_split_as_the_source_launched_it(name: str) -> None:
    case = CASES[name]
    outcome = check(case)
    assert outcome.right, report(case, outcome)
    spans = case.release >= 11 and case.evidence in ("annotations", "stacks", "gpu_annotations")
    told = case.mode != "none" or spans or case.evidence in ("stacks", "frames")
    assert (outcome.confidence > 0.99) == told  # plain decoding has no kernel that only it launches: a guess
    for rank in outcome.found.ranks:
        assert sum(ns or 0 for parts in rank.parts_ns.values() for ns in parts.values()) == rank.wall_ns


@pytest.mark.parametrize("mode", ["eagle", "mtp", "ngram", "dflash", "dspark", "none"])
def test_the_truth_tiles_every_cycle(mode: str) -> None:
    case = Case(mode=mode, script=BETWEEN, plan_stream=True, branches=True, early=True)
    machine = simulate(case)
    windows = truth_windows(case, machine, 0)
    assert windows
    for window in windows:
        assert sum(window.parts.values()) == window.end - window.start


@pytest.mark.parametrize("evidence", ["launches", "gpu"])
@pytest.mark.parametrize("mode", ["eagle", "standalone", "mtp", "ngram", "dflash", "dspark", "none"])
def test_where_no_name_tells_the_split_is_called_a_guess(mode: str, evidence: str) -> None:
    for graph in (True, False):
        layers = {"standalone": 4, "dflash": 3, "dspark": 3}.get(mode, 1)
        outcome = check(
            Case("0.5.16", mode, evidence, hidden=True, draft_layers=layers, target_graph=graph, draft_graph=graph)
        )
        assert outcome.confidence <= 0.5
        assert outcome.cycles[0][0] == 0 or any("may be wrong" in w for w in outcome.found.warnings)


def test_drafts_that_only_the_order_of_forwards_tells_are_called_a_guess() -> None:
    outcome = check(Case("0.5.11", "eagle", steps=5, hidden=True, start="idle", family="hybrid"))
    assert outcome.cycles == ((6, 6),)
    assert outcome.cells[0, "draft", "compute"][0] > 0.1
    assert outcome.worst < 0.01
    assert outcome.confidence < 0.9


def test_where_most_kernels_are_unknown_sizes_are_not_asked() -> None:
    outcome = check(Case("0.5.20", "dspark", "gpu", ranks=2, family="triton", drafter="triton", hidden=True))
    assert outcome.cycles == ((0, 4), (0, 4))
    assert any("unknown kind" in w for w in outcome.found.warnings)
    assert all(rank.labelled_by["none"] > 0.99 for rank in outcome.found.ranks)
