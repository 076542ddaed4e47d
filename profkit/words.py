"""The vocabulary that files, tables, results and reports share."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Phase: TypeAlias = Literal["draft", "verify", "accept", "draft_extend", "decode", "other", "unlabelled"]
Activity: TypeAlias = Literal["compute", "allreduce", "comm", "memory", "idle"]
HeadlinePart: TypeAlias = Literal[
    "draft", "verify_compute", "allreduce", "other_comm", "memory", "idle", "other", "unlabelled"
]
LabelSource: TypeAlias = Literal["annotation", "frame", "graph", "gpu_annotation", "none"]

# The order is the order of a cycle and of every table, plot and legend.
PHASES: Final[tuple[Phase, ...]] = (
    "draft",
    "verify",
    "accept",
    "draft_extend",
    "decode",
    "other",
    "unlabelled",
)
# The order is the order of precedence: at each instant the first that runs wins.
ACTIVITIES: Final[tuple[Activity, ...]] = ("compute", "allreduce", "comm", "memory", "idle")
HEADLINE_PARTS: Final[tuple[HeadlinePart, ...]] = (
    "draft",
    "verify_compute",
    "allreduce",
    "other_comm",
    "memory",
    "idle",
    "other",
    "unlabelled",
)
LABEL_SOURCES: Final[tuple[LabelSource, ...]] = ("annotation", "frame", "graph", "gpu_annotation", "none")

# Phases whose GPU work is the target model's forward pass.
TARGET_FORWARD_PHASES: Final[frozenset[Phase]] = frozenset({"verify", "decode"})


def headline_part(phase: Phase, activity: Activity) -> HeadlinePart:
    """Map one cell of the phase x activity matrix to its part of the headline."""
    if activity == "allreduce":
        return "allreduce"
    if activity == "comm":
        return "other_comm"
    if activity == "memory":
        return "memory"
    if activity == "idle":
        return "idle"
    if phase in ("draft", "draft_extend"):
        return "draft"
    if phase in ("verify", "accept", "decode"):
        return "verify_compute"
    return "other" if phase == "other" else "unlabelled"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """``1 launch``, ``6 launches``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
