"""``profkit export``: the attribution in the viewers that people already use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from profkit.cli.console import Messages
from profkit.cli.options import ForceOption, JobsOption, NoCacheOption, QuietOption, VerboseOption, examples
from profkit.words import count

if TYPE_CHECKING:
    from profkit.attribution import Attribution
    from profkit.trace import Trace

PathsArgument: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="PATH", help="Trace files of all ranks, or folders that hold them.")
]
DEFAULT_TRACE = Path("profkit-cycle.trace.json.gz")
DEFAULT_PAGE = Path("profkit.html")
DEFAULT_LOG_DIRECTORY = Path("profkit-tensorboard")


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(
        name="export",
        help="Show the attribution in TensorBoard, Perfetto or one HTML page.",
        short_help="Show it in TensorBoard, Perfetto or one page.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command(
        "tensorboard",
        short_help="Write a log directory for TensorBoard.",
        epilog=examples("profkit export tensorboard runs/eagle3 -o tb"),
    )(tensorboard)
    group.command(
        "perfetto",
        short_help="Cut cycles out for ui.perfetto.dev.",
        epilog=examples("profkit export perfetto runs/eagle3 --cycle worst -o worst.trace.json.gz"),
    )(perfetto)
    group.command(
        "html",
        short_help="Write one self-contained page.",
        epilog=examples("profkit export html runs/eagle3 --baseline runs/baseline -o eagle3.html"),
    )(html)
    app.add_typer(group)


def tensorboard(
    paths: PathsArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Log directory to write into.")
    ] = DEFAULT_LOG_DIRECTORY,
    name: Annotated[str | None, typer.Option("--name", help="Name of the run in TensorBoard.")] = None,
    force: ForceOption = False,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Write a log directory for TensorBoard's PyTorch profiler plug-in and print the line that starts it."""
    import shlex

    messages = Messages(quiet, verbose)
    result, traces = _attributed(paths, messages, jobs, not no_cache)
    from profkit.reports.tensorboard import write_tensorboard

    with messages.progress("writing TensorBoard files", float(len(traces))) as advance:
        written = write_tensorboard(
            result, traces, output, run=name or _run_name(paths), force=force, progress=lambda: advance(1.0)
        )
    for note in written.notes:
        messages.warn(note)
    messages.note(f"wrote {count(len(written.files), 'file')} to {written.folder}")
    print(f"tensorboard --logdir {shlex.quote(str(output))}")


def perfetto(
    paths: PathsArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write, .json or .json.gz.")] = DEFAULT_TRACE,
    cycle: Annotated[
        str, typer.Option("--cycle", "-c", help="Which cycles: median, worst, all, or the number of one.")
    ] = "median",
    force: ForceOption = False,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Cut cycles of all ranks out for ui.perfetto.dev, with lanes for phase, activity and collectives."""
    messages = Messages(quiet, verbose)
    result, traces = _attributed(paths, messages, jobs, not no_cache)
    from profkit.export.selection import choose
    from profkit.reports.perfetto import write_perfetto

    chosen = choose(result, cycle)
    events = write_perfetto(result, traces, chosen, output, force=force)
    many = len(chosen) > 3
    numbers = f"s {chosen[0].number} to {chosen[-1].number}" if many else f" {', '.join(str(c.number) for c in chosen)}"
    size = output.stat().st_size / 1e6
    messages.note(f"wrote cycle{numbers} of {count(len(result.inputs), 'rank')}, {events} events, {size:.2f} MB")
    print(output)


def html(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run, or one trace.")],
    baseline: Annotated[
        str | None, typer.Option("--baseline", "-b", help="The same load without speculation: the other arm.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = DEFAULT_PAGE,
    cycle: Annotated[
        list[str] | None,
        typer.Option("--cycle", "-c", help="Cycles in the timeline, first shown first; repeatable."),
    ] = None,
    force: ForceOption = False,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Write one self-contained page: verdict, split, timeline, all-reduces, economics with sliders."""
    from profkit.cli.page import write_page

    write_page(
        run, baseline, output, Messages(quiet, verbose), cycles=cycle, force=force, jobs=jobs, cache=not no_cache
    )
    print(output)


def _attributed(
    paths: Sequence[str], messages: Messages, jobs: int | None, cache: bool
) -> tuple[Attribution, tuple[Trace, ...]]:
    from profkit.cli.attributed import attributed

    result, _, traces = attributed(paths, messages, jobs, cache=cache)
    for warning in result.warnings:
        messages.warn(warning)
    return result, traces


def _run_name(paths: Sequence[str]) -> str:
    """The folder that holds the traces, without its own ``traces`` level."""
    place = Path(paths[0]).resolve()
    folder = place if place.is_dir() else place.parent
    return folder.parent.name if folder.name == "traces" else folder.name
