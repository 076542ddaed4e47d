"""``profkit doctor``: which questions these files can answer, and how to record what is missing."""

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
    JsonOption,
    NoCacheOption,
    OutputOption,
    QuietOption,
    VerboseOption,
    document_form,
    examples,
)

if TYPE_CHECKING:
    from profkit.preflight import Diagnosis


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "doctor",
        short_help="Say which questions these files can answer.",
        epilog=examples("profkit doctor runs/eagle3 runs/baseline", "profkit doctor server.log traces/*.trace.json.gz"),
    )(doctor)


def doctor(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH", help="Run folders, a folder of runs, logs, traces, or quoted globs."),
    ],
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 unless every question can be answered in full.")
    ] = False,
    form: FormatOption = Format.TABLE,
    json: JsonOption = False,
    output: OutputOption = None,
    force: ForceOption = False,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Say per question whether these files can answer it, and print the commands that record what is missing."""
    from profkit.cli.run_sets import load_runs
    from profkit.cli.sinks import write
    from profkit.errors import CheckFailedError
    from profkit.preflight import diagnose
    from profkit.preflight.evidence import run_found
    from profkit.serving.summary import summarise

    form = document_form(form, json, "the doctor", unused={})
    messages = Messages(quiet, verbose)
    with messages.progress("reading", 1.0) as advance:
        runs, problems = load_runs(paths, jobs=jobs, cache=not no_cache, progress=advance)
    found = [run_found(run, summarise(run.log) if run.log is not None else None) for run in runs]
    diagnosis = diagnose(found, problems)
    text = _rendered(diagnosis, form)
    write(output, lambda sink: sink.write(text.encode()), force=force)
    if strict and not diagnosis.complete:
        numbers = ", ".join(str(a.number) for a in diagnosis.answers if a.state != "answerable")
        raise CheckFailedError(f"{_name(paths)}: question {numbers} cannot be answered in full; record what is listed")


def _name(paths: list[str]) -> str:
    return str(Path(paths[0])) if len(paths) == 1 else f"{len(paths)} paths"


def _rendered(diagnosis: Diagnosis, form: Format) -> str:
    from profkit.jsonio import dumps
    from profkit.reports.doctor import as_markdown, as_text

    if form is Format.JSON:
        return dumps(diagnosis)
    return as_markdown(diagnosis) if form is Format.MARKDOWN else as_text(diagnosis)
