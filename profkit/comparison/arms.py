"""Making a configuration with speculation and one without comparable phase by phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from profkit.comparison.kernels import KernelRow
from profkit.comparison.launch import Launch
from profkit.comparison.metrics import TARGET_FORWARD, Measurement
from profkit.words import TARGET_FORWARD_PHASES


def _forward_phases(launches: Sequence[Launch]) -> set[str]:
    """The phases of the target forward in which any launch spent time."""
    cells = [m.name.partition(".")[0] for x in launches for m in x.measurements if m.value > 0 and "." in m.name]
    return {phase for phase in cells if phase in TARGET_FORWARD_PHASES}


def _merged_cells(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    merged: dict[tuple[str, int | None], Measurement] = {}
    for m in measurements:
        phase, dot, activity = m.name.partition(".")
        name = f"{TARGET_FORWARD}.{activity}" if dot and phase in TARGET_FORWARD_PHASES else m.name
        key = (name, m.running_req)
        if key in merged and name != m.name:
            merged[key] = replace(merged[key], value=merged[key].value + m.value)
        else:
            merged[key] = replace(m, name=name)
    return tuple(merged.values())


def _merged_kernels(rows: Sequence[KernelRow]) -> tuple[KernelRow, ...]:
    merged: dict[tuple[str, str, str | None], KernelRow] = {}
    for row in rows:
        phase = TARGET_FORWARD if row.phase in TARGET_FORWARD_PHASES else row.phase
        key = (phase, row.kernel_class, row.implementation)
        other = merged.get(key)
        merged[key] = (
            replace(row, phase=phase)
            if other is None
            else replace(
                other,
                calls_per_cycle=other.calls_per_cycle + row.calls_per_cycle,
                us_per_cycle=other.us_per_cycle + row.us_per_cycle,
            )
        )
    return tuple(merged.values())


def same_phases(base: Sequence[Launch], candidate: Sequence[Launch]) -> tuple[Sequence[Launch], Sequence[Launch]]:
    """Both sides with ``verify`` and ``decode`` joined to the target forward, if one verifies and the other decodes.

    Otherwise both sides as they are.
    """
    phases = _forward_phases(base), _forward_phases(candidate)
    if not all(phases) or phases[0] & phases[1]:
        return base, candidate

    def joined(side: Sequence[Launch]) -> list[Launch]:
        return [
            replace(x, measurements=_merged_cells(x.measurements), kernels=_merged_kernels(x.kernels)) for x in side
        ]

    return joined(base), joined(candidate)
