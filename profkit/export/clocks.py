"""One clock for all ranks: what to subtract from a rank's times to read them on the first rank's clock."""

from __future__ import annotations

from profkit.attribution.result import Attribution


def corrections_ns(result: Attribution) -> tuple[tuple[int, ...], bool]:
    """Nanoseconds to subtract per input, in the order of ``result.inputs``; whether every rank's offset is known.

    A rank whose offset is unknown is left on its own clock (0).
    """
    if len(result.clock_offsets_us) != len(result.inputs):
        return (0,) * len(result.inputs), len(result.inputs) < 2
    offsets = [c.offset for c in result.clock_offsets_us]
    known = len(offsets) < 2 or all(o is not None for o in offsets)
    return tuple(round((o or 0.0) * 1000.0) for o in offsets), known


def base_shifts_ns(result: Attribution) -> tuple[int, ...]:
    """Nanoseconds to add per input so that all count from the first input's ``base_ns``.

    Traces of one profile share their base; a base of 0 stands for an unknown one and is taken as equal.
    """
    if not result.inputs:
        return ()
    first = result.inputs[0].base_ns
    return tuple((i.base_ns - first) if i.base_ns and first else 0 for i in result.inputs)
