"""``profkit whatif``: what throughput would be if something were different, on both arms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli.console import Messages
from profkit.cli.options import (
    ForceOption,
    Format,
    FormatOption,
    JobsOption,
    NoCacheOption,
    OutputOption,
    QuietOption,
    VerboseOption,
    examples,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profkit.collectives.cost import Curve
    from profkit.words import Phase


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "whatif",
        short_help="Replay the measured cycles with a change.",
        epilog=examples(
            "profkit whatif runs/eagle3 -b runs/baseline --allreduce-us 20",
            "profkit whatif runs/eagle3 -b runs/baseline --draft-tokens 2 --idle 0.5",
            "profkit whatif runs/eagle3 -b runs/baseline --sweep-depth 8",
            "profkit whatif runs/eagle3 --allreduce-curve list",
        ),
    )(whatif)


def whatif(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The speculative run: a folder with log and traces.")],
    baseline: Annotated[
        Path | None, typer.Option("--baseline", "-b", help="The run without speculation; it is projected too.")
    ] = None,
    allreduce_us: Annotated[
        float | None, typer.Option("--allreduce-us", help="Transfer of one all-reduce, in microseconds.")
    ] = None,
    allreduce_curve: Annotated[
        str | None,
        typer.Option(
            "--allreduce-curve",
            help="A curve over the message size: a file with output of nccl-tests, nccl-tests for the output in RUN's "
            "folder, or a known host.",
        ),
    ] = None,
    wait_us: Annotated[
        float | None, typer.Option("--wait-us", help="Wait for late ranks per all-reduce, in microseconds.")
    ] = None,
    accept_len: Annotated[
        float | None, typer.Option("--accept-len", help="Tokens per request and cycle, the bonus token counted.")
    ] = None,
    draft_tokens: Annotated[
        int | None, typer.Option("--draft-tokens", help="Verified rows per request (--speculative-num-draft-tokens).")
    ] = None,
    acceptance: Annotated[
        str | None,
        typer.Option("--acceptance", help="Share of cycles that accept the 1st, 2nd ... draft, such as 0.6,0.3,0.1."),
    ] = None,
    sweep_depth: Annotated[
        int | None,
        typer.Option("--sweep-depth", metavar="N", help="Try every number of draft tokens from 2 to N."),
    ] = None,
    idle: Annotated[
        float | None, typer.Option("--idle", help="Share of today's idle time that stays: 0 removes all, 1 keeps it.")
    ] = None,
    compute: Annotated[
        list[str] | None, typer.Option("--compute", metavar="PHASE=FACTOR", help="Scale a phase's compute; repeatable.")
    ] = None,
    form: FormatOption = Format.TABLE,
    output: OutputOption = None,
    force: ForceOption = False,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Replay the measured cycles with a change: both arms, before and after."""
    if allreduce_curve == "list":
        _list_curves()
        return
    from profkit.cli.sinks import write
    from profkit.errors import UsageError
    from profkit.jsonio import dumps
    from profkit.pipeline import analyse_path
    from profkit.projection import Change, Projector
    from profkit.projection.sweep import check_sweep
    from profkit.projection.sweep import sweep_depth as sweep_depths
    from profkit.reports import whatif as report

    if form not in (Format.TABLE, Format.JSON, Format.MARKDOWN):
        raise UsageError(f"a projection has no {form} form; choose table, json or markdown")
    change = Change(
        allreduce_us=allreduce_us,
        allreduce_curve=_curve(allreduce_curve, run),
        wait_us=wait_us,
        accept_len=accept_len,
        draft_tokens=draft_tokens,
        acceptance=_rates(acceptance),
        idle=idle,
        compute_scale=_scales(compute or []),
    )
    if change == Change() and sweep_depth is None:
        raise UsageError("say what would be different, for example --allreduce-us 20 or --draft-tokens 2")
    change.check(None)
    if sweep_depth is not None:
        check_sweep(change, sweep_depth)
    messages = Messages(quiet, verbose)
    with messages.progress("reading runs", 2.0) as advance:
        candidate = analyse_path(run, jobs=jobs, cache=not no_cache, progress=advance)
        base = None
        if baseline is not None:
            base = analyse_path(baseline, jobs=jobs, cache=not no_cache, progress=advance)
    projector = Projector(candidate, base)
    sweep = sweep_depths(projector, change, sweep_depth) if sweep_depth is not None else None
    projection = projector.project(change)
    if form is Format.JSON:
        text = dumps(projection.to_json() | ({"sweep": sweep} if sweep is not None else {}))
    else:
        text = report.terminal(projection, sweep) if form is Format.TABLE else report.as_markdown(projection, sweep)
    write(output, lambda sink: sink.write(text.encode()), force=force)
    for analysis in (candidate, *([base] if base else [])):
        for warning in analysis.warnings:
            messages.warn(warning)


OF_THE_RUN = "nccl-tests"


def _curve(name: str | None, run: Path) -> Curve | None:
    if name is None:
        return None
    if name == OF_THE_RUN and not Path(name).is_file():
        return _curve_beside(run)
    from profkit.collectives.cost import reference_curves
    from profkit.errors import UsageError

    curves = reference_curves()
    if name in curves:
        return curves[name]
    if not Path(name).is_file():
        raise UsageError(
            f"{name} is neither a file with output of nccl-tests nor a known all-reduce curve "
            f"({', '.join((OF_THE_RUN, *curves))})"
        )
    return _measured_curve([Path(name)], name)


def _curve_beside(run: Path) -> Curve:
    """The output of nccl-tests in a run's folder."""
    from profkit.errors import InputError
    from profkit.parsers.discovery import run_files
    from profkit.parsers.sniff import content_of

    files = [p for p in run_files(run).logs if content_of(p) == "nccl"] if run.is_dir() else []
    if not files:
        raise InputError(
            f"{run}: no output of nccl-tests in this folder; put that of all_reduce_perf there, or name the file"
        )
    return _measured_curve(files, str(run))


def _measured_curve(paths: Sequence[Path], place: str) -> Curve:
    from profkit.collectives.cost import curve_of_nccl_rows
    from profkit.errors import InputError
    from profkit.parsers.log import read_log

    curve = curve_of_nccl_rows(read_log(paths).nccl.to_pylist())
    if curve is None:
        raise InputError(f"{place}: holds no rows of all_reduce_perf (nccl-tests); give its whole output")
    return curve


def _rates(text: str | None) -> tuple[float, ...] | None:
    from profkit.errors import UsageError

    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--acceptance {text}: give numbers between commas, such as 0.6,0.3,0.1") from None


def _list_curves() -> None:
    from profkit.collectives.cost import reference_curves

    for name, curve in sorted(reference_curves().items()):
        typer.echo(f"{name}: {curve.alpha_us:g} us + {curve.beta_us_per_kib:g} us/KiB ({curve.source})")


def _scales(texts: list[str]) -> dict[Phase, float]:
    from profkit.errors import UsageError
    from profkit.words import PHASES

    scales: dict[Phase, float] = {}
    for text in texts:
        name, _, factor = text.partition("=")
        phase = next((p for p in PHASES if p == name), None)
        try:
            if phase is None:
                raise ValueError
            scales[phase] = float(factor)
        except ValueError:
            known = ", ".join(PHASES)
            raise UsageError(f"--compute {text}: give PHASE=FACTOR, such as verify=0.9; phases are {known}") from None
    return scales
