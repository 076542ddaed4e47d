"""Simulations that several test modules look at, run once."""

from __future__ import annotations

from functools import cache

from profkit.simulation import Simulation, simulate
from profkit.simulation.modes import mode_scenarios

MODES = mode_scenarios()


@cache
def simulated(mode: str) -> Simulation:
    """The simulation of a mode."""
    return simulate(MODES[mode])
