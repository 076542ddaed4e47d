"""``profkit weekly``: the report of a week from the store."""

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
    JsonOption,
    QuietOption,
    document_form,
    examples,
)
from profkit.cli.stores import ConfigFileOption, StoreOption, store_and_config

if TYPE_CHECKING:
    from profkit.config import Config
    from profkit.weekly.model import Weekly


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "weekly",
        short_help="Write the weekly report from the store.",
        epilog=examples("profkit weekly --store perf -o reports/2026-W47"),
    )(weekly)


def weekly(
    week: Annotated[
        str | None, typer.Option("--week", "-w", help="ISO week such as 2026-W48; default: the latest in the store.")
    ] = None,
    output: FolderOption = None,
    form: DocumentFormatOption = Format.TABLE,
    json: JsonOption = False,
    html: Annotated[
        bool, typer.Option("--html", help="Also write weekly.html: one page with charts that needs no network.")
    ] = False,
    force: ForceOption = False,
    store: StoreOption = None,
    config_file: ConfigFileOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write weekly.md, weekly.json and plots; print the first screen."""
    from profkit.jsonio import dumps
    from profkit.reports.weekly import document, terminal

    form = document_form(form, json, "a weekly report", unused={"--output": output, "--html": html})
    messages = Messages(quiet)
    root, config = store_and_config(store, config_file)
    report = _report(root, config, week)
    for problem in report.problems:
        messages.warn(problem)
    if form is not Format.TABLE:
        typer.echo(dumps(report) if form is Format.JSON else document(report, store=root.name), nl=False)
        return
    folder = output or Path(f"weekly-{report.week}")
    _write(report, folder, root, html=html, force=force)
    typer.echo("\n".join(terminal(report)))
    messages.note(f"written: {folder}/weekly.md, weekly.json{', weekly.html' if html else ''} and plots")


def _report(root: Path, config: Config, week: str | None) -> Weekly:
    from profkit.store.forecasts import read_forecasts
    from profkit.store.reader import Store
    from profkit.week import monday
    from profkit.weekly.report import weekly as weekly_of

    if week is not None:
        monday(week)
    opened = Store.open(root)
    launches = opened.launches()
    plans, damaged = read_forecasts(opened.layout)
    return weekly_of(launches, config, week, plans=plans, problems=[*opened.problems, *damaged])


def _write(report: Weekly, folder: Path, store: Path, *, html: bool, force: bool) -> None:
    """All files or none: a report is not half overwritten, and nothing of the report before stays behind."""
    from profkit.files import write_text, writing_together
    from profkit.jsonio import dumps
    from profkit.reports.weekly import document
    from profkit.reports.weekly_plots import budget_plot, throughput_plot, traced

    possible = ["weekly.md", "weekly.json", "weekly.html", "throughput.png", "budget.png"]
    with writing_together(folder, possible, force=force) as aside:
        plots = ["throughput.png", *(["budget.png"] if traced(report) else [])]
        throughput_plot(report, aside / "throughput.png")
        budget_plot(report, aside / "budget.png")
        write_text(aside / "weekly.json", dumps(report))
        write_text(aside / "weekly.md", document(report, plots=tuple(plots), store=store.name))
        if html:
            from profkit.reports.html.weekly import render

            write_text(aside / "weekly.html", render(report, store=store.name))
