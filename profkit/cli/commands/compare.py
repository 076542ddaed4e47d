"""``profkit compare``: better, worse, no detectable change, or cannot say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli.console import Messages, out
from profkit.cli.options import (
    ForceOption,
    Format,
    FormatOption,
    JobsOption,
    NoCacheOption,
    OutputOption,
    QuietOption,
    examples,
)
from profkit.cli.stores import ConfigFileOption, StoreOption, store_and_config

if TYPE_CHECKING:
    from profkit.comparison.checks import FailOn
    from profkit.comparison.result import Comparison, Settings
    from profkit.config import Config


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "compare",
        short_help="Better, worse or cannot say: runs against runs.",
        epilog=examples(
            "profkit compare runs/before/ runs/after/",
            "profkit compare store:tag=reference runs/new/ --fail-on worse:throughput:3%",
        ),
    )(compare)


def compare(
    base: Annotated[
        str,
        typer.Argument(
            metavar="BASE",
            help="A run folder, a folder of repeats (one per server launch), or store:config=NAME,week=2026-W47,tag=T.",
        ),
    ],
    candidate: Annotated[str, typer.Argument(metavar="CANDIDATE", help="What to set against it; the same forms.")],
    expect: Annotated[
        list[str] | None,
        typer.Option("--expect", "-e", help="A key that was meant to differ, such as driver.version or server_args.*."),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option("--fail-on", help="Exit 1 on worse, worse:METRIC, worse:METRIC:3%, cannot_say. Repeatable."),
    ] = None,
    primary: Annotated[
        str | None, typer.Option("--primary", help="The metric that the verdict is about; default: throughput.")
    ] = None,
    alpha: Annotated[float | None, typer.Option("--alpha", help="Significance level; default 0.05.")] = None,
    min_effect: Annotated[
        float | None, typer.Option("--min-effect", help="Smallest change that counts, in percent; default 3.")
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Heading of the markdown comment.")] = "profkit compare",
    form: FormatOption = Format.TABLE,
    output: OutputOption = None,
    force: ForceOption = False,
    store: StoreOption = None,
    config_file: ConfigFileOption = None,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare server launches with statistics that fit small samples."""
    from profkit.comparison.checks import parse_fail_on
    from profkit.errors import UsageError

    messages = Messages(quiet)
    conditions = [parse_fail_on(text) for text in fail_on or ()]
    root, config = store_and_config(store, config_file)
    settings = _settings(config, tuple(expect or ()), primary, alpha, min_effect)
    if form not in (Format.TABLE, Format.JSON, Format.MARKDOWN):
        raise UsageError(f"a comparison has no {form} form; choose table, json or markdown")
    comparison = _compare(base, candidate, root, settings, jobs, messages, cache=not no_cache)
    _show(comparison, title, form, output, force=force)
    for warning in comparison.warnings:
        messages.warn(warning)
    _check(comparison, conditions, messages)


def _settings(
    config: Config, expect: tuple[str, ...], primary: str | None, alpha: float | None, min_effect: float | None
) -> Settings:
    from dataclasses import replace

    from profkit.comparison.metrics import metric_kind
    from profkit.errors import UsageError

    settings = config.thresholds.settings(expect)
    if primary is not None and metric_kind(primary) is None:
        raise UsageError(f"--primary {primary!r} is no metric; the JSON output lists their names")
    try:
        return replace(
            settings,
            primary=primary or settings.primary,
            fallback=None if primary else settings.fallback,
            alpha=settings.alpha if alpha is None else alpha,
            min_effect=settings.min_effect if min_effect is None else min_effect / 100,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _compare(
    base: str, candidate: str, store: Path, settings: Settings, jobs: int | None, messages: Messages, *, cache: bool
) -> Comparison:
    from profkit.comparison.verdict import compare as compare_launches
    from profkit.sources import load_launches

    with messages.progress("reading runs") as advance:
        sides = [
            load_launches(text, store=store, jobs=jobs, cache=cache, advance=advance) for text in (base, candidate)
        ]
    for side in sides:
        for warning in side.warnings:
            messages.warn(warning)
    return compare_launches(sides[0].launches, sides[1].launches, settings)


def _show(comparison: Comparison, title: str, form: Format, output: Path | None, *, force: bool) -> None:
    from profkit.cli.sinks import write
    from profkit.jsonio import dumps
    from profkit.reports.compare import markdown_comment

    if form is Format.TABLE and output is None:
        _terminal(comparison)
        return
    text = dumps(comparison) if form is Format.JSON else markdown_comment(comparison, title)
    write(output, lambda sink: sink.write(text.encode()), force=force)


STYLES = {"better": "bold green", "worse": "bold red", "no_change": "bold", "cannot_say": "bold yellow"}


def _terminal(comparison: Comparison) -> None:
    from rich.console import Console

    from profkit.reports.compare import terminal

    console = out()
    assert isinstance(console, Console)
    lines, table = terminal(comparison)
    console.print(lines[0], style=STYLES[comparison.verdict], soft_wrap=True)
    for line in (*lines[1:], "", *table):
        console.print(line, soft_wrap=True)


def _check(comparison: Comparison, conditions: list[FailOn], messages: Messages) -> None:
    from profkit.comparison.checks import failures, undecided
    from profkit.errors import CheckFailedError

    found = failures(comparison, conditions)
    for sentence in undecided(comparison, conditions):
        messages.warn(sentence)
    if found:
        raise CheckFailedError("; ".join(found))
