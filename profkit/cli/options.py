"""Options that several commands share, spelled once."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer


class Format(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    MARKDOWN = "markdown"


FormatOption: TypeAlias = Annotated[Format, typer.Option("--format", "-f", help="How to print the result.")]
DocumentFormatOption: TypeAlias = Annotated[
    Format, typer.Option("--format", "-f", help="table writes the files; json and markdown print that one instead.")
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Short for --format json.")]
OutputOption: TypeAlias = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write here instead of to standard output.")
]
FolderOption: TypeAlias = Annotated[
    Path | None, typer.Option("--output", "-o", help="Folder to write into (its name is printed on stderr).")
]
ForceOption: TypeAlias = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
JobsOption: TypeAlias = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Processes to use; default: as many as fit.")
]
NoCacheOption: TypeAlias = Annotated[
    bool, typer.Option("--no-cache", help="Read traces anew; neither use nor keep parsed ones.")
]
QuietOption: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no messages.")]
VerboseOption: TypeAlias = Annotated[
    int, typer.Option("--verbose", "-v", count=True, show_default=False, help="Say more on stderr; twice for details.")
]


def document_form(form: Format, short: bool, what: str, *, unused: Mapping[str, object]) -> Format:
    """How a command shows a document that it otherwise writes as files: TABLE writes them, JSON and MARKDOWN print it.

    ``short`` is ``--json``; ``unused`` are options about the files, and what the caller gave for them.

    Raises:
        UsageError: no such form, two forms at once, or an option about files that are not written.
    """
    from profkit.errors import UsageError

    if short and form not in (Format.TABLE, Format.JSON):
        raise UsageError(f"--json and --format {form} exclude each other")
    form = Format.JSON if short else form
    if form not in (Format.TABLE, Format.JSON, Format.MARKDOWN):
        raise UsageError(f"{what} has no {form} form; choose table, json or markdown")
    given = [name for name, value in unused.items() if value]
    if form is not Format.TABLE and given:
        raise UsageError(
            f"{given[0]} is about files, and --format {form} prints instead of writing them; leave one out"
        )
    return form


def examples(*calls: str) -> str:
    """The end of a command's help: calls as a person would type them."""
    return "Examples:\n\n\b\n" + "\n".join(f"  {call}" for call in calls)
