"""``profkit plan``: what to do about a slow run, in which order, and how to know that it worked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli.console import Messages
from profkit.cli.options import (
    DocumentFormatOption,
    FolderOption,
    ForceOption,
    Format,
    JobsOption,
    JsonOption,
    NoCacheOption,
    QuietOption,
    document_form,
    examples,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profkit.analysis import RunAnalysis
    from profkit.forecast import PlanForecast
    from profkit.planning.plan import Plan
    from profkit.trace import Trace


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "plan",
        short_help="Write an optimisation plan with ranked levers.",
        epilog=examples(
            "profkit plan runs/eagle3 --baseline runs/baseline -o plan",
            "profkit plan runs/eagle3 -b runs/baseline --also runs/ngram --goal 100",
        ),
    )(plan)


def plan(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run to improve: a folder with its log and traces.")],
    baseline: Annotated[
        Path | None, typer.Option("--baseline", "-b", help="The same server without speculation.")
    ] = None,
    also: Annotated[
        list[Path] | None, typer.Option("--also", help="A further run against the same baseline; repeatable.")
    ] = None,
    output: FolderOption = None,
    goal: Annotated[float | None, typer.Option("--goal", min=0.0, help="Throughput wanted, in tok/s.")] = None,
    require: Annotated[
        list[str] | None, typer.Option("--require", help="A hard constraint in words; repeatable.")
    ] = None,
    previous: Annotated[
        Path | None, typer.Option("--previous", help="plan.json of the plan before; its forecasts are scored.")
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="Also write plan.html: one page with the timeline.")] = False,
    form: DocumentFormatOption = Format.TABLE,
    json: JsonOption = False,
    force: ForceOption = False,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write an optimisation plan: plan.md, plan.json and plots; print its first screen."""
    from profkit.jsonio import dumps
    from profkit.reports.plan import document, terminal

    form = document_form(form, json, "a plan", unused={"--output": output, "--html": html})
    messages = Messages(quiet)
    paths = [run, *([baseline] if baseline else []), *(also or [])]
    _refuse_twice(paths)
    made, traces = _made(paths, baseline is not None, goal, require or [], previous, jobs, not no_cache, messages)
    names = [path.resolve().name for path in paths]
    if form is not Format.TABLE:
        typer.echo(dumps(made) if form is Format.JSON else document(made, names=names), nl=False)
        return
    folder = output or Path(f"plan-{_slug(made.situation.candidate.name)}")
    written = _write(made, folder, names, traces if html else None, force=force)
    typer.echo("\n".join(terminal(made)))
    messages.note(f"written: {', '.join(str(folder / name) for name in written)}")


def _refuse_twice(paths: Sequence[Path]) -> None:
    """A run set against itself shows nothing."""
    from profkit.errors import UsageError
    from profkit.files import each_once

    again = each_once(paths)[1] or [p for p in paths if paths.count(p) > 1]
    if again:
        raise UsageError(f"{again[0]}: this run is named twice; RUN, --baseline and --also are different runs")


def _slug(name: str) -> str:
    kept = "".join(c if c.isalnum() or c in "._-" else "-" for c in name).strip("-.")
    return kept[:80] or "run"


def _previous(path: Path | None) -> tuple[PlanForecast | None, str | None]:
    """Forecasts and id of an earlier plan."""
    import msgspec

    from profkit.errors import InputError
    from profkit.forecast import forecasts_of_plan

    if path is None:
        return None, None
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give the plan.json that `profkit plan` wrote") from error
    found = forecasts_of_plan(data, str(path), "", "")
    return found, str(msgspec.json.decode(data).get("id") or found.plan)


def _made(
    paths: Sequence[Path],
    with_baseline: bool,
    goal: float | None,
    require: Sequence[str],
    previous: Path | None,
    jobs: int | None,
    cache: bool,
    messages: Messages,
) -> tuple[Plan, tuple[Trace, ...]]:
    """The plan, and the traces of the run to improve."""
    from profkit.errors import UsageError
    from profkit.pipeline import load_and_analyse
    from profkit.planning.plan import Goal, make_plan
    from profkit.sources import run_paths

    forecasts, supersedes = _previous(previous)
    runs: list[RunAnalysis] = []
    traces: tuple[Trace, ...] = ()
    with messages.progress("reading runs", len(paths)) as advance:
        for path in paths:
            found = run_paths(path)
            if len(found) > 1:
                inside = ", ".join(p.name for p in found[:3])
                raise UsageError(f"{path} holds {len(found)} runs ({inside} ...); name one of them")
            loaded, analysis = load_and_analyse(found[0], jobs=jobs, cache=cache)
            traces = traces if runs else loaded.traces
            runs.append(analysis)
            advance(1.0)
    for run in runs:
        for warning in run.warnings:
            messages.warn(f"{run.name}: {warning}")
    candidate, rest = runs[0], runs[1:]
    made = make_plan(
        candidate,
        rest[0] if with_baseline else None,
        rest[1:] if with_baseline else rest,
        goal=Goal(goal, tuple(require)),
        previous=forecasts,
        supersedes=supersedes,
    )
    return made, traces


def _write(made: Plan, folder: Path, names: list[str], traces: tuple[Trace, ...] | None, *, force: bool) -> list[str]:
    """All files or none: a plan is not half overwritten, and no plot of the plan before stays behind."""
    from profkit.files import write_text, writing_together
    from profkit.jsonio import dumps
    from profkit.reports.plan import document
    from profkit.reports.plan_plots import PLOTS

    possible = ["plan.md", "plan.json", "plan.html", *(name for name, _, _ in PLOTS)]
    with writing_together(folder, possible, force=force) as aside:
        drawn = [(name, shows) for name, shows, draw in PLOTS if draw(made, aside / name)]
        write_text(aside / "plan.json", dumps(made))
        write_text(aside / "plan.md", document(made, plots=drawn, names=names))
        if traces is not None:
            write_text(aside / "plan.html", _page(made, traces))
    pages = ["plan.md", "plan.json", *(["plan.html"] if traces is not None else [])]
    return [*pages, *(name for name, _ in drawn)]


def _page(made: Plan, traces: tuple[Trace, ...]) -> str:
    from profkit.export.page import page_content
    from profkit.jsonio import plain
    from profkit.reports.html import render

    situation = made.situation
    return render(page_content(situation.candidate, traces=traces, baseline=situation.baseline, plan=plain(made)))
