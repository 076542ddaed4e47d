"""``profkit watch``: follow a live server log."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from profkit.cli.console import Messages, colour_wanted
from profkit.cli.options import Format, JsonOption, QuietOption, examples
from profkit.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from profkit.parsers.log.engine import LogReader
    from profkit.parsers.log.follow import Follower
    from profkit.serving.live import Alarm, Baseline, Monitor


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "watch",
        short_help="Follow a live log, with alarms.",
        epilog=examples(
            "profkit watch server.log --baseline 12.2", "profkit watch server.log --baseline baseline/server.log --json"
        ),
    )(watch)


def watch(
    log: Annotated[str, typer.Argument(metavar="LOG", help="The log that the server is writing.")],
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", "-b", help="Step time without speculation: milliseconds, or a log that shows it."),
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.05, help="Seconds between looks at the file.")
    ] = 1.0,
    every: Annotated[
        float, typer.Option("--every", min=0.0, help="Seconds between status lines when not on a terminal.")
    ] = 10.0,
    idle: Annotated[
        float | None, typer.Option("--stop-after-idle", min=0.0, help="Stop when the log has not grown for so long.")
    ] = None,
    form: Annotated[
        Format,
        typer.Option("--format", "-f", help="table, or json (the same as jsonl): an object per status and alarm."),
    ] = Format.TABLE,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Follow a live log: throughput, accept length, step time, break-even and alarms. Ctrl-C ends it."""
    from profkit.parsers.log.engine import LogReader
    from profkit.parsers.log.follow import Follower
    from profkit.serving.live import Monitor

    if form not in (Format.TABLE, Format.JSON, Format.JSONL):
        raise UsageError(f"a followed log has no {form} form; choose table, json or jsonl")
    if log == "-":
        raise UsageError("a pipe cannot be followed; give the name of the log file")
    _refuse_other_files(log)
    follower = Follower(log)
    view = _View(as_json=as_json or form is not Format.TABLE, every=every)
    monitor = Monitor(_baseline(baseline))
    try:
        reader = _catch_up(follower, monitor, LogReader(log))
        empty = "" if monitor.status() is not None else ", in which there is no decode line yet"
        Messages(quiet).note(f"following {log}{empty}; Ctrl-C ends it")
        view.show(monitor, [], force=True)
        _follow(follower, monitor, reader, view, interval, idle)
    except KeyboardInterrupt:
        view.close()
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        follower.close()
    view.close()


# How gzip, zstd, zip, bzip2 and xz begin.
PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"BZh", b"\xfd7zXZ")


def _refuse_other_files(log: str) -> None:
    """A trace and a packed log never grow into lines that could be followed.

    Raises:
        InputError: it is one of them.
    """
    from profkit.errors import InputError
    from profkit.parsers.sniff import is_trace

    try:
        with Path(log).open("rb") as file:
            packed = file.read(6).startswith(PACKED)
        trace = is_trace(log)
    except (InputError, OSError):
        return  # the follower says what is wrong with it, and waits for the lines of an empty file
    if trace:
        raise InputError(f"{log}: a trace, which cannot be followed; `profkit attribute` reads it")
    if packed:
        raise InputError(f"{log}: packed, so no server is writing it; `profkit parse` reads it")


def _catch_up(follower: Follower, monitor: Monitor, reader: LogReader) -> LogReader:
    """Read what is there already: the server's arguments and its usual speed; alarms of the past are not news."""
    known = 0
    while (block := follower.poll()) is not None:
        monitor.push(reader.feed(block), _servers(reader, known), history=True)
        known = len(reader.servers)
    return reader


def _follow(
    follower: Follower, monitor: Monitor, reader: LogReader, view: _View, interval: float, idle: float | None
) -> None:
    from profkit.parsers.log.engine import LogReader

    restarts, grown = follower.restarts, time.monotonic()
    while idle is None or time.monotonic() - grown <= idle:
        block = follower.poll()
        if follower.restarts != restarts:
            restarts = follower.restarts
            reader = LogReader(reader.name)
            monitor.restart()
        if block is None:
            time.sleep(interval)
            continue
        grown = time.monotonic()
        known = len(reader.servers)
        monitor.push(reader.feed(block), _servers(reader, known))
        view.show(monitor, monitor.alarms())


def _servers(reader: LogReader, known: int) -> list[tuple[str, dict[str, Any]]]:
    from profkit.parsers.log.engine import server_row

    return [(reader.name, server_row(reader.name, server)) for server in reader.servers[known:]]


def _baseline(text: str | None) -> Baseline | None:
    from profkit.serving.live import Baseline

    if text is None:
        return None
    try:
        step = float(text)
    except ValueError:
        step = -1.0
    if step > 0:
        return Baseline(step_ms=step)
    if not Path(text).exists():
        raise UsageError(f"--baseline {text}: neither a positive number of milliseconds nor a file")
    from profkit.cli.inputs import expand
    from profkit.parsers.log import LogStream
    from profkit.serving.stream import summarise_stream

    found = Baseline.of_summary(summarise_stream(LogStream(expand([text]))))
    if not found.by_running:
        raise UsageError(f"--baseline {text}: no step time in it; give the log of a server without speculation")
    return found


class _View:
    """Prints to standard output: on a terminal the status line is renewed in place."""

    def __init__(self, *, as_json: bool, every: float) -> None:
        self._json = as_json
        self._every = every
        self._live = sys.stdout.isatty() and not as_json
        self._shown = -1e9

    def show(self, monitor: Monitor, alarms: list[Alarm], *, force: bool = False) -> None:
        """Alarms, and the status when it is time."""
        from profkit.reports.live import alarm_line, status_line

        for alarm in alarms:
            self._line(self._document(alarm) if self._json else alarm_line(alarm, colour=colour_wanted()))
        status = monitor.status()
        now = time.monotonic()
        if status is None or not (force or self._live or now - self._shown >= self._every):
            return
        self._shown = now
        text = self._document(status) if self._json else status_line(status)
        if self._live:
            sys.stdout.write(f"\r\x1b[K{text}")
            sys.stdout.flush()
        else:
            self._line(text)

    def close(self) -> None:
        """Leave the terminal on a new line."""
        if self._live:
            print()

    def _line(self, text: str) -> None:
        print(f"\r\x1b[K{text}" if self._live else text, flush=True)

    @staticmethod
    def _document(what: object) -> str:
        from profkit.jsonio import dumps

        return dumps(what, indent=None).rstrip("\n")
