"""Attribution: every decode cycle of every rank, split by phase and activity."""

from profkit.attribution.engine import attribute, needs_frames
from profkit.attribution.result import Attribution

__all__ = ["Attribution", "attribute", "needs_frames"]
