"""``profkit cache``: what the cache of parsed traces holds, and how to empty it."""

from __future__ import annotations

from typing import Annotated

import typer

from profkit.cli.options import Format, FormatOption, examples


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("cache", epilog=examples("profkit cache", "profkit cache --clear"))(cache)


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove everything that is kept.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show or clear the cache of parsed traces."""
    from profkit.errors import UsageError
    from profkit.jsonio import dumps
    from profkit.parsers.trace.cache import FOLDER_VARIABLE, SIZE_VARIABLE, TraceCache

    if form not in (Format.TABLE, Format.JSON):
        raise UsageError(f"the cache has no {form} form; use --format json")
    store = TraceCache()
    held = store.clear() if clear else store.usage()
    if form is Format.JSON:
        document = {
            "schema": "profkit.cache/1",
            "folder": str(held.folder),
            "entries": held.entries,
            "bytes": held.bytes,
            "limit_bytes": held.limit,
            "cleared": clear,
        }
        typer.echo(dumps(document), nl=False)
        return
    traces = "1 trace" if held.entries == 1 else f"{held.entries} traces"
    typer.echo(
        f"{'removed' if clear else 'holds'} {traces}, {held.bytes / 1e6:.1f} MB of at most {held.limit / 1e9:g} GB"
    )
    typer.echo(f"in {held.folder} (choose with {FOLDER_VARIABLE}, limit with {SIZE_VARIABLE})")
