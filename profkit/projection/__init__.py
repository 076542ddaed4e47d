"""What-if: replay measured cycles with a change, on both arms."""

from profkit.projection.change import Change
from profkit.projection.project import Projector, project
from profkit.projection.result import Alone, ArmProjection, Projection
from profkit.projection.sweep import DepthRow, DepthSweep, sweep_depth

__all__ = [
    "Alone",
    "ArmProjection",
    "Change",
    "DepthRow",
    "DepthSweep",
    "Projection",
    "Projector",
    "project",
    "sweep_depth",
]
