"""Options that several commands share, spelled once."""

from __future__ import annotations

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


def examples(*calls: str) -> str:
    """The end of a command's help: calls as a person would type them."""
    return "Examples:\n\n\b\n" + "\n".join(f"  {call}" for call in calls)
