"""Labelling passes: each decides, by one kind of evidence, which phase a GPU op belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.words import LABEL_SOURCES, PHASES, LabelSource, Phase

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NO_FORWARD: Final = -1
UNLABELLED: Final = PHASES.index("unlabelled")
NO_SOURCE: Final = LABEL_SOURCES.index("none")


def phase_code(phase: Phase) -> int:
    """Position of a phase in :data:`profkit.words.PHASES`."""
    return PHASES.index(phase)


DRAFT: Final = phase_code("draft")
VERIFY: Final = phase_code("verify")
ACCEPT: Final = phase_code("accept")
DRAFT_EXTEND: Final = phase_code("draft_extend")
DECODE: Final = phase_code("decode")
OTHER: Final = phase_code("other")
TARGET: Final = (VERIFY, DECODE)


@dataclass(slots=True)
class Labels:
    """What the passes decided so far, one entry per op; later passes fill only what is still unlabelled.

    ``forward`` numbers the instances of the target model's forward; -1 elsewhere. ``batch[f]`` is the number of
    requests of forward ``f``, -1 if unknown. ``prefill`` marks ops of prefill batches, whose phase is ``other``.
    ``guessed`` marks what the sizes and the order of forwards alone decided. ``verify_first``: the engine's step begins
    with the verify of the drafts that the step before made (vLLM). ``damaged`` counts annotations whose duration was
    wrong.
    """

    phase: npt.NDArray[np.int8]
    source: npt.NDArray[np.int8]
    forward: Ints
    prefill: Bools
    batch: list[int]
    guessed: Bools
    verify_first: bool = False
    damaged: int = 0

    @classmethod
    def none(cls, count: int) -> Labels:
        """Nothing labelled yet."""
        return cls(
            np.full(count, UNLABELLED, np.int8),
            np.full(count, NO_SOURCE, np.int8),
            np.full(count, NO_FORWARD, np.int64),
            np.zeros(count, np.bool_),
            [],
            np.zeros(count, np.bool_),
        )

    def open(self) -> Bools:
        """Ops that no pass has labelled."""
        return np.asarray(self.source == NO_SOURCE, np.bool_)

    def set(self, where: Bools, phase: int, source: LabelSource, *, prefill: bool = False) -> None:
        """Label the ops of ``where`` that are still open."""
        hit = where & self.open()
        self.phase[hit] = phase
        self.source[hit] = LABEL_SOURCES.index(source)
        if prefill:
            self.prefill[hit] = True

    def set_at(self, rows: Ints, phase: int, source: LabelSource, *, prefill: bool = False) -> None:
        """Label the given ops that are still open; for many short stretches."""
        hit = rows[self.source[rows] == NO_SOURCE]
        self.phase[hit] = phase
        self.source[hit] = LABEL_SOURCES.index(source)
        if prefill:
            self.prefill[hit] = True

    def add_forwards(self, where: Bools, instance: Ints, batch: dict[int, int]) -> None:
        """Number the forward instances of labelled ops; ``batch`` gives the requests of an instance."""
        keys, inverse = np.unique(instance[where], return_inverse=True)
        self.forward[where] = len(self.batch) + inverse.reshape(-1)
        self.batch.extend(batch.get(int(key), -1) for key in keys)
