"""Whether two runs were measured on the same system, so that one's step is a measure of the other's cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from profkit.run import Facts

# What both arms must share for the baseline's step to be a measure of the candidate's cycle.
SAME_SYSTEM: Final = {
    "model.name": "model",
    "model.quantization": "quantisation",
    "parallel.tp": "TP",
    "parallel.dp": "DP",
    "parallel.pp": "PP",
    "parallel.ep": "EP",
    "parallel.dp_attention": "DP attention",
    "gpu.name": "GPU",
    "gpu.count": "GPUs",
    "engine.version": "engine version",
}
# Left out of the arguments, the model's own files decide it: absent in one run is neither equal nor different.
_LEFT_TO_THE_MODEL: Final = "model.quantization"
_NOT_ASKED: Final = ""


@dataclass(frozen=True, slots=True)
class SystemMatch:
    """Two runs side by side, as words for sentences: ``differing`` and ``one_sided`` hold (word, mine, theirs)."""

    equal: tuple[str, ...]
    differing: tuple[tuple[str, str, str], ...]
    one_sided: tuple[tuple[str, str, str], ...]  # stated by one side, and left to the model's files by the other

    @property
    def stated(self) -> bool:
        """Whether both runs state anything of it at all."""
        return bool(self.equal or self.differing)

    def differences(self) -> str:
        """What differs, as part of a sentence; empty when nothing does."""
        return "; ".join(f"{word} {mine} here, {theirs} in the baseline" for word, mine, theirs in self.differing)

    def open_questions(self) -> str:
        """What only one side states, as part of a sentence; empty when there is nothing."""
        return "; ".join(
            f"{word} {mine or theirs} is asked for {'here only' if mine else 'in the baseline only'}, "
            "so it is equal only if the model's files say the same"
            for word, mine, theirs in self.one_sided
        )


def system_of(facts: Facts) -> dict[str, str]:
    """The facts that identify a run's system, as text; an unknown one is absent."""
    found = {key: text for key in SAME_SYSTEM if (text := facts.text(key)) is not None}
    if any(key.startswith("server_args.") for key in facts):
        found.setdefault(_LEFT_TO_THE_MODEL, _NOT_ASKED)
    return found


def compare_systems(mine: Mapping[str, str], theirs: Mapping[str, str]) -> SystemMatch:
    """Set two results of :func:`system_of` against each other; what one of them does not state is left out."""
    equal: list[str] = []
    differing: list[tuple[str, str, str]] = []
    left: list[tuple[str, str, str]] = []
    for key, word in SAME_SYSTEM.items():
        here, there = mine.get(key), theirs.get(key)
        if here is None or there is None or here == there == _NOT_ASKED:
            continue
        if _NOT_ASKED in (here, there):
            left.append((word, here, there))
        # A model may be named by its repository in one run and by its folder in the other.
        elif here.rstrip("/").split("/")[-1] == there.rstrip("/").split("/")[-1]:
            equal.append(word)
        else:
            differing.append((word, here, there))
    return SystemMatch(tuple(equal), tuple(differing), tuple(left))
