"""Pass 2: the Python functions that were open when an op was launched (recordings with stacks)."""

from __future__ import annotations

from profkit.attribution.labels import Labels
from profkit.attribution.ops import Ops
from profkit.trace import Trace


def label_by_frame(trace: Trace, ops: Ops, labels: Labels) -> None:
    """Label what is still open through Python frames."""
