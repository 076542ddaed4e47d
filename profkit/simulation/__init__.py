"""A physical simulator of serving runs: the demo, the samples and tests with known truth."""

from profkit.simulation.files import write_run
from profkit.simulation.scenario import Drafter, Hardware, Model, Recording, Scenario, Serving
from profkit.simulation.simulate import Simulation, simulate
from profkit.simulation.story import reference_story

__all__ = [
    "Drafter", "Hardware", "Model", "Recording", "Scenario", "Serving", "Simulation",
    "reference_story", "simulate", "write_run",
]  # fmt: skip
