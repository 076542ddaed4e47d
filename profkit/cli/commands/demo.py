"""``profkit demo``: a complete simulated example to try everything on, without a GPU."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from profkit.cli.console import Messages
from profkit.cli.options import ForceOption, QuietOption, VerboseOption, examples

_FULL_CYCLES = 60


class Scale(StrEnum):
    """How much to write."""

    SMALL = "small"
    FULL = "full"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "demo",
        short_help="Write a simulated example to try everything on.",
        epilog=examples("profkit demo example", "profkit demo example --weeks 10"),
    )(demo)


def demo(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write into; made if it is missing.")],
    scale: Annotated[
        Scale, typer.Option("--scale", help="small: 6 decode cycles per trace, 5 MB; full: 60 cycles, 33 MB.")
    ] = Scale.SMALL,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Another seed draws other jitter and acceptances.")] = (
        20261116
    ),
    weeks: Annotated[
        int, typer.Option("--weeks", min=0, max=52, help="Also write this many weeks of repeated launches.")
    ] = 0,
    force: ForceOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Write a simulated example: Kimi-K2.5 on eight PCIe GPUs, where speculation does not pay.

    Four runs, each with a server log, the traces of all eight ranks, a benchmark result and run.toml:
    baseline, eagle3, aq-medai and ngram. expected.toml beside them says what they must yield. Nothing is measured;
    the figures come from a simulation of hosts, streams and collectives. The same seed writes the same files.
    """
    from profkit.simulation import reference_story, simulate, write_run
    from profkit.simulation.files import check_target

    messages = Messages(quiet=quiet, verbose=verbose)
    cycles = _FULL_CYCLES if scale is Scale.FULL else 6
    story = reference_story(seed=seed, cycles=cycles)
    check_target(folder, force=force)
    launches = []
    if weeks:
        from profkit.simulation.history import history

        launches = list(history(weeks, seed=seed).launches)
    written, size = 0, 0
    with messages.progress("simulating", total=len(story) * cycles / 6 + len(launches) / 6) as advance:
        for name, scenario in story.items():
            paths = write_run(simulate(scenario), folder / name, force=force)
            written, size = written + len(paths), size + sum(p.stat().st_size for p in paths)
            messages.detail(f"{folder / name}: {len(paths)} files")
            advance(cycles / 6)
        if weeks:
            from profkit.simulation.history import history, write_history

            paths = write_history(history(weeks, seed=seed), folder / "weeks", force=force, each=lambda: advance(1 / 6))
            written, size = written + len(paths), size + sum(p.stat().st_size for p in paths)
    messages.note(f"{folder}: {', '.join(story)}{f', weeks ({weeks})' if weeks else ''}")
    messages.note(f"{written} files, {size / 1e6:.1f} MB, simulated (seed {seed}); expected.toml holds the truth")
    messages.note("Try next:")
    messages.note(f"  profkit attribute {folder / 'eagle3'}")
    messages.note(f"  profkit plan {folder / 'eagle3'} --baseline {folder / 'baseline'} -o plan")
    if weeks:
        store = folder / "store"
        messages.note(f"  profkit add {folder / 'weeks'} --store {store} && profkit weekly --store {store}")
