"""Pass 3: structure."""

from __future__ import annotations

from profkit.attribution.labels import Labels
from profkit.attribution.ops import Ops
from profkit.trace import Trace


def label_by_structure(trace: Trace, ops: Ops, labels: Labels) -> None:
    """Label what is still open through structure."""
