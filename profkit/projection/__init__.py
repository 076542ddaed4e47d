"""What-if: replay measured cycles with a change, on both arms."""

from profkit.projection.change import Change
from profkit.projection.project import Projector, project
from profkit.projection.result import Alone, ArmProjection, Projection

__all__ = ["Alone", "ArmProjection", "Change", "Projection", "Projector", "project"]
