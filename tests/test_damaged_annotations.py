"""Annotations whose duration went wrong lose no step, and are counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from profkit.attribution import Attribution, attribute
from profkit.attribution.labels.mended import mended
from profkit.attribution.spans import Spans
from profkit.parsers.trace import read_traces
from tests.independent_check import truth_windows
from tests.independent_cycles import Case
from tests.independent_workers import simulate

EAGLE = Case("0.5.16")
PLAIN = Case("0.5.20", "none")
NGRAM = Case("0.5.11", "ngram")
BLOCKS = Case("0.5.20", "dflash", draft_layers=4)
LAYERS = Case("0.5.16", "mtp")
SPANS = [
    *(
        (EAGLE, name)
        for name in ("step[TARGET_VERIFY", "draft", "draft_extend", "scheduler.recv", "scheduler.run_batch")
    ),
    (PLAIN, "step[DECODE"),
    (NGRAM, "step[TARGET_VERIFY"),
    (BLOCKS, "step[VERIFY"),
    (BLOCKS, "step[DRAFT"),
    (LAYERS, "step[TARGET_VERIFY"),
    (LAYERS, "scheduler.run_batch"),
]
DAMAGE: dict[str, Callable[[float], float]] = {
    "milliseconds": lambda us: us + 8e3,
    "seconds": lambda us: us + 1e7,
    "weeks": lambda _: 1e12,
}


def damaged(case: Case, name: str, change: Callable[[float], float], folder: Path) -> tuple[Attribution, float]:
    """The attribution with one annotation changed, and its largest error as a share of the wall."""
    machine = simulate(case)
    machine.write(folder, case.evidence)
    (path,) = folder.glob("*.json")
    document = json.loads(path.read_text())
    events = document["traceEvents"]
    spans = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith(name)]
    spans[len(spans) // 2]["dur"] = change(spans[len(spans) // 2]["dur"])
    path.write_text(json.dumps(document))
    found = attribute(read_traces([folder]))
    (rank,) = found.ranks
    windows = truth_windows(case, machine, 0)
    assert rank.cycles == len(windows)
    truth: Counter[tuple[str, str]] = Counter()
    for window in windows:
        truth.update(window.parts)
    worst = max(
        abs((ns or 0) - truth[phase, activity]) for phase, row in rank.parts_ns.items() for activity, ns in row.items()
    )
    return found, worst / rank.wall_ns


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize(("case", "name"), SPANS, ids=[f"{c.mode} {n}" for c, n in SPANS])
def test_a_damaged_annotation_loses_nothing_and_is_counted(case: Case, name: str, how: str, tmp_path: Path) -> None:
    found, worst = damaged(case, name, DAMAGE[how], tmp_path)
    assert worst <= 0.005
    (finding,) = [f for f in found.findings if f.kind == "annotations_damaged"]
    assert finding.severity == "warning"
    assert finding.numbers["annotations"] == 1


@pytest.mark.parametrize(
    ("case", "name"), [(EAGLE, "step[TARGET"), (PLAIN, "step[DEC"), (NGRAM, "step[TARGET"), (BLOCKS, "step[VERIFY")]
)
def test_a_step_too_short_for_its_launches_is_mended(case: Case, name: str, tmp_path: Path) -> None:
    found, worst = damaged(case, name, lambda us: us / 10, tmp_path)
    assert worst <= 0.005
    assert any(f.kind == "annotations_damaged" for f in found.findings)


@pytest.mark.parametrize("case", [EAGLE, PLAIN, NGRAM, BLOCKS, LAYERS], ids=lambda c: str(c.mode))
def test_sound_annotations_are_left_alone(case: Case, tmp_path: Path) -> None:
    name = "step[" if case.mode != "dflash" else "step[VERIFY"
    found, _ = damaged(case, name, lambda us: us, tmp_path)
    assert not [f for f in found.findings if f.kind == "annotations_damaged"]


def spans_of(*rows: tuple[str, int, int]) -> Spans:
    """Spans of one thread: kind, start, end."""
    kinds = tuple(dict.fromkeys(r[0] for r in rows))
    zero = np.zeros(len(rows), np.int64)
    return Spans(
        kinds,
        np.array([kinds.index(r[0]) for r in rows], np.int32),
        np.array([r[1] for r in rows], np.int64),
        np.array([r[2] for r in rows], np.int64),
        zero,
        zero - 1,
        zero.astype(np.int32),
    )


NOWHERE = np.zeros(0, np.int64)


def test_an_engine_that_nests_batches_has_no_damaged_ones() -> None:
    rows = [("run_batch", 100 * i + inner, 100 * i + 90 - inner) for i in range(4) for inner in (0, 10)]
    spans, count = mended(spans_of(*rows), NOWHERE, NOWHERE)
    assert count == 0
    assert spans.end.tolist() == [r[2] for r in rows]


def test_a_mended_span_lasts_as_its_like_but_not_into_what_cannot_be_inside() -> None:
    rows = [("verify", 100 * i, 100 * i + 60) for i in range(10)]
    rows[2] = ("verify", 200, 90_000)
    rows[4] = ("verify", 400, 1_000_000)
    rows.append(("draft_extend", 430, 450))
    spans, count = mended(spans_of(*rows), NOWHERE, NOWHERE)
    assert count == 2
    assert spans.end.tolist() == [60, 160, 260, 360, 430, 560, 660, 760, 860, 960, 450]
