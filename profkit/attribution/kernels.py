"""What each GPU op does, told from its name by ordered rules (``profkit/rules/kernels.toml``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.rules import load_rules
from profkit.words import ACTIVITIES, Activity

UNKNOWN_CLASS: Final = "other"
SYMMETRIC_KINDS: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})

# How torch spells collectives in arguments and in ``nccl:`` / ``gloo:`` annotations, without underscores.
_SPELLINGS: Final = {
    "allreduce": "all_reduce",
    "allreducecoalesced": "all_reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherintotensorcoalesced": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensorcoalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "alltoallbase": "all_to_all",
    "broadcast": "broadcast",
    "broadcastoop": "broadcast",
    "reduce": "reduce",
    "send": "send_recv",
    "recv": "send_recv",
    "sendrecv": "send_recv",
    "barrier": "barrier",
}


def activity_code(activity: Activity) -> int:
    """Position of an activity in :data:`profkit.words.ACTIVITIES`."""
    return ACTIVITIES.index(activity)


COMPUTE: Final = activity_code("compute")
ALLREDUCE: Final = activity_code("allreduce")
COMM: Final = activity_code("comm")
MEMORY: Final = activity_code("memory")
IDLE: Final = activity_code("idle")


@dataclass(frozen=True, slots=True)
class KernelClass:
    """What an op does. ``kind`` and ``implementation`` are set for communication only."""

    name: str
    kind: str | None = None
    implementation: str | None = None
    fused: bool = False

    @property
    def activity(self) -> int:
        """Index into :data:`profkit.words.ACTIVITIES`."""
        if self.kind is not None:
            return ALLREDUCE if self.kind == "all_reduce" else COMM
        return MEMORY if self.name in ("memcpy", "memset") else COMPUTE


UNKNOWN: Final = KernelClass(UNKNOWN_CLASS)


@cache
def _rules() -> tuple[tuple[re.Pattern[str], KernelClass], ...]:
    return tuple(
        (
            re.compile(rule["pattern"]),
            KernelClass(rule["class"], rule.get("kind"), rule.get("implementation"), rule.get("fused", False)),
        )
        for rule in load_rules("kernels")["rule"]
    )


@cache
def classify(name: str, category: str = "kernel") -> KernelClass:
    """The class of one op by its name; ``category`` is Kineto's (``kernel``, ``gpu_memcpy``, ``gpu_memset``)."""
    found = next((c for pattern, c in _rules() if pattern.search(name)), UNKNOWN)
    # Kineto knows a copy or a set by itself; only that a copy crosses devices is in the name.
    if category in ("gpu_memcpy", "gpu_memset") and found.activity == COMPUTE:
        return KernelClass(category.removeprefix("gpu_"))
    return found


def collective_kind(spelling: str) -> str:
    """The kind of a collective as torch spells it in arguments and annotations; ``unknown`` if it is none of them."""
    word = spelling.rpartition(":")[2].lower().replace("_", "").replace(" ", "")
    return _SPELLINGS.get(word, "unknown")


def of_kind(template: KernelClass, kind: str) -> KernelClass:
    """The same implementation with the kind known from elsewhere."""
    return KernelClass("comm." + kind.replace("_", ""), kind, template.implementation, template.fused)


@dataclass(frozen=True, slots=True)
class ClassTable:
    """Classes of many ops: ``classes[code[i]]`` is the class of op ``i``."""

    classes: tuple[KernelClass, ...]
    code: npt.NDArray[np.int32]

    def activity(self) -> npt.NDArray[np.int8]:
        """Activity code per op."""
        return np.array([c.activity for c in self.classes] or [0], np.int8)[self.code]

    def mask(self, *names: str) -> npt.NDArray[np.bool_]:
        """Ops whose class is one of ``names`` or below it (``attn`` covers ``attn.mla``)."""
        hit = [any(c.name == n or c.name.startswith(n + ".") for n in names) for c in self.classes]
        return np.array(hit or [False], np.bool_)[self.code]

    def kinds(self) -> tuple[list[str], npt.NDArray[np.int32]]:
        """Collective kinds and, per op, the index of its kind; -1 for ops that are no collective."""
        kinds = sorted({c.kind for c in self.classes if c.kind is not None})
        index = [-1 if c.kind is None else kinds.index(c.kind) for c in self.classes]
        return kinds, np.array(index or [-1], np.int32)[self.code]


def class_table(names: Sequence[str], name: npt.NDArray[np.int32], category: Sequence[str]) -> ClassTable:
    """Classify ops given as a dictionary of names and one code per op; ``category`` is per dictionary entry."""
    unique: dict[KernelClass, int] = {}
    of_name = [unique.setdefault(classify(n, c), len(unique)) for n, c in zip(names, category, strict=True)]
    return ClassTable(tuple(unique), np.array(of_name or [0], np.int32)[name])
