"""``profkit add``: keep runs, and the forecasts of plans, in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from profkit.cli.console import Messages
from profkit.cli.options import JobsOption, NoCacheOption, QuietOption, VerboseOption, examples
from profkit.cli.stores import ConfigFileOption, StoreOption, store_and_config


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "add",
        epilog=examples(
            "profkit add runs/2026-11-23/ --store perf",
            "profkit add runs/new --config eagle3 --label dataset=gsm8k",
            "profkit add --forecast plan/plan.json --config eagle3 --week 2026-W47",
        ),
    )(add)


def add(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN", help="Run folders, or folders that hold several, one per server launch."),
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", "-c", help="Name of the configuration; default: what run.toml says.")
    ] = None,
    week: Annotated[
        str | None, typer.Option("--week", "-w", help="ISO week such as 2026-W48; default: the week of the run's date.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", help="KEY=VALUE kept with the run, such as dataset=gsm8k.")
    ] = None,
    lever: Annotated[
        str | None, typer.Option("--lever", help="The run tries this lever of a plan; weekly scores its forecast.")
    ] = None,
    forecast: Annotated[
        list[Path] | None,
        typer.Option("--forecast", help="A plan.json whose forecasts later runs shall be scored against."),
    ] = None,
    store: StoreOption = None,
    config_file: ConfigFileOption = None,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Analyse runs and keep their results. Adding a run again changes nothing."""
    from profkit.errors import UsageError

    messages = Messages(quiet, verbose)
    root, _ = store_and_config(store, config_file)
    if not runs and not forecast:
        raise UsageError("nothing to add; name run folders, or a plan.json with --forecast")
    labels = _labels(label or (), lever)
    for plan in forecast or ():
        _add_forecast(root, plan, config, week)
    if runs:
        _add_runs(root, runs, config, week, labels, jobs, messages, cache=not no_cache)


def _labels(pairs: list[str] | tuple[str, ...], lever: str | None) -> dict[str, str]:
    from profkit.errors import UsageError

    labels = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip() or not value:
            raise UsageError(f"--label {pair!r}: write KEY=VALUE")
        labels[key.strip()] = value
    if lever:
        labels["lever"] = lever
    return labels


def _add_forecast(root: Path, plan: Path, config: str | None, week: str | None) -> None:
    from profkit.errors import InputError, UsageError
    from profkit.escape import visible
    from profkit.forecast import forecasts_of_plan
    from profkit.store.forecasts import add_forecast
    from profkit.week import monday

    if config is None or week is None:
        raise UsageError("--forecast needs --config and --week: a plan does not say whose it is")
    monday(week)
    try:
        data = plan.read_bytes()
    except OSError as error:
        raise InputError(f"{plan}: {error.strerror}; give the plan.json that `profkit plan` wrote") from error
    forecast, new = add_forecast(root, forecasts_of_plan(data, str(plan), config, week))
    state = "registered" if new else "already there"
    typer.echo(visible(f"forecast {forecast.id}  {config}  {week}  {len(forecast.levers)} levers  {state}"))


def _add_runs(
    root: Path,
    runs: list[Path],
    config: str | None,
    week: str | None,
    labels: dict[str, str],
    jobs: int | None,
    messages: Messages,
    *,
    cache: bool,
) -> None:
    from profkit.errors import InputError, UsageError
    from profkit.escape import visible
    from profkit.sources import analyse_runs, run_paths, several_servers
    from profkit.store.writer import add_run

    paths = [path for run in runs for path in run_paths(run)]
    failed = 0
    with messages.progress("analysing", len(paths)) as advance:
        for path in paths:
            try:
                [analysis] = analyse_runs([path], jobs=jobs, cache=cache, advance=advance)
                added = add_run(root, analysis, config=config, week=week, labels=labels)
            except (InputError, UsageError) as error:
                if len(paths) == 1:
                    raise
                # One broken run must not keep the others out.
                messages.warn(str(error))
                failed += 1
                continue
            record = added.record
            state = "added" if added.new else "already there"
            typer.echo(visible(f"{record.id}  {record.config}  {record.week}  {record.name}  {state}"))
            if warning := several_servers(analysis):
                messages.warn(warning)
            for warning in analysis.warnings:
                messages.warn(f"{record.name}: {warning}")
    if failed:
        raise InputError(f"{failed} of {len(paths)} runs could not be added; the warnings say why and how to mend it")
    messages.note(f"store: {root}")
