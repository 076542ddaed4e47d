"""``profkit runs``: what the store holds; tags and removals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli.console import Messages
from profkit.cli.options import ForceOption, Format, FormatOption, OutputOption, QuietOption, examples
from profkit.cli.stores import ConfigFileOption, StoreOption, store_and_config

if TYPE_CHECKING:
    from profkit.store.marks import Action
    from profkit.store.reader import Store


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "runs",
        epilog=examples(
            "profkit runs --store perf --config eagle3 --week 2026-W47",
            "profkit runs --store perf 26431cb6 --add-tag reference",
        ),
    )(runs)


def runs(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Runs by id or its beginning; default: all selected.")
    ] = None,
    config: Annotated[str | None, typer.Option("--config", "-c", help="Only this configuration.")] = None,
    week: Annotated[str | None, typer.Option("--week", "-w", help="Only this week.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", "-t", help="Only runs with this tag.")] = None,
    add_tag: Annotated[str | None, typer.Option("--add-tag", help="Tag the named runs.")] = None,
    drop_tag: Annotated[str | None, typer.Option("--drop-tag", help="Take a tag off the named runs.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Hide the named runs everywhere.")] = False,
    restore: Annotated[bool, typer.Option("--restore", help="Undo --remove.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Delete removed runs for good.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Compare all files with their checksums.")] = False,
    form: FormatOption = Format.TABLE,
    output: OutputOption = None,
    force: ForceOption = False,
    store: StoreOption = None,
    config_file: ConfigFileOption = None,
    quiet: QuietOption = False,
) -> None:
    """List, filter, tag and remove the runs of the store."""
    from profkit.store.reader import Store

    messages = Messages(quiet)
    root, _ = store_and_config(store, config_file)
    opened = Store.open(root)
    if _changed(opened, ids or [], {"add_tag": add_tag, "drop_tag": drop_tag}, remove=remove, restore=restore):
        opened = Store.open(root)
    if purge:
        messages.note(f"{opened.purge()} removed runs deleted for good")
        ids = None  # those that were named may be gone
    if verify:
        _verify(opened)
    _list(opened, ids or [], config, week, tag, form, output, force=force)
    for problem in opened.problems:
        messages.warn(problem)


def _changed(store: Store, ids: list[str], tags: dict[str, str | None], *, remove: bool, restore: bool) -> bool:
    """Apply what was asked for; only to runs that were named, never to all."""
    from profkit.errors import UsageError

    wanted: list[tuple[Action, str | None]] = []
    if tags["add_tag"] is not None:
        wanted.append(("tag", tags["add_tag"]))
    if tags["drop_tag"] is not None:
        wanted.append(("untag", tags["drop_tag"]))
    if remove:
        wanted.append(("remove", None))
    if restore:
        wanted.append(("restore", None))
    if not wanted:
        return False
    if not ids:
        raise UsageError("name the runs to change by their ids; `profkit runs` lists them")
    if remove and restore:
        raise UsageError("--remove and --restore together make no sense; choose one")
    named = [store.record(run).id for run in ids]
    for action, tag in wanted:
        store.mark(named, action, tag)
    return True


def _verify(store: Store) -> None:
    from profkit.errors import InputError

    defects = store.verify()
    if defects:
        more = f" (and {len(defects) - 1} more)" if len(defects) > 1 else ""
        raise InputError(f"{defects[0]}{more}")


def _list(
    store: Store,
    ids: list[str],
    config: str | None,
    week: str | None,
    tag: str | None,
    form: Format,
    output: Path | None,
    *,
    force: bool,
) -> None:
    from profkit.cli.sinks import refuse_terminal, write
    from profkit.errors import UsageError
    from profkit.reports.runs import as_table, listing, terminal
    from profkit.store.reader import Selection
    from profkit.tableio import write_table
    from profkit.week import monday

    refuse_terminal(form, output)
    if week is not None:
        monday(week)
    records = store.records(Selection(config, week, tag))
    if ids:
        named = {store.record(run).id for run in ids}
        records = [r for r in records if r.id in named]
    rows = listing(records, {r.id: store.tags(r.id) for r in records})
    if form is Format.MARKDOWN:
        raise UsageError("runs has no markdown form; choose table, json, jsonl, csv or parquet")
    if form is Format.TABLE:
        write(output, lambda sink: sink.write(terminal(rows).encode()), force=force)
        return
    table = as_table(rows)
    write(
        output,
        lambda sink: write_table(table.schema, table.to_batches(), sink, form.value, name="runs"),
        force=force,
    )
