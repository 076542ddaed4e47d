"""What-if: replay measured cycles with a change, on both arms."""

from profkit.projection.change import Change
from profkit.projection.project import Projector, project
from profkit.projection.result import ArmProjection, Projection

__all__ = ["ArmProjection", "Change", "Projection", "Projector", "project"]
