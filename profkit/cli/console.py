"""Standard error: messages and progress. Results never go here, messages never to standard output."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from profkit.escape import visible

Advance = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Messages:
    """What a command may say on standard error."""

    quiet: bool = False
    verbose: int = 0

    def note(self, sentence: str) -> None:
        """Something a user wants to know, such as a file that was written."""
        if not self.quiet:
            print(visible(sentence), file=sys.stderr)

    def warn(self, sentence: str) -> None:
        """A warning; shown even with ``--quiet``, since it changes what the result means."""
        print(f"warning: {visible(sentence)}", file=sys.stderr)

    def detail(self, sentence: str) -> None:
        """Shown with ``-v``."""
        if self.verbose and not self.quiet:
            print(visible(sentence), file=sys.stderr)

    @contextlib.contextmanager
    def progress(self, what: str, total: float | None = None) -> Iterator[Advance]:
        """A progress bar for work that lasts over a second; yields ``advance(amount)``."""
        if self.quiet or not sys.stderr.isatty():
            yield lambda _amount: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=Console(stderr=True),
            transient=True,
        )  # fmt: skip
        task = bar.add_task(visible(what), total=total)
        started, shown = time.monotonic(), False

        def advance(amount: float) -> None:
            nonlocal shown
            if not shown and time.monotonic() - started > 1.0:
                bar.start()
                shown = True
            bar.advance(task, amount)

        try:
            yield advance
        finally:
            if shown:
                bar.stop()


def colour_wanted() -> bool:
    """Colours only on a terminal, and never when ``NO_COLOR`` is set."""
    import os

    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def terminal_width() -> int | None:
    """Columns of the terminal on standard output; ``None`` where it is none."""
    import shutil

    return shutil.get_terminal_size((110, 40)).columns if sys.stdout.isatty() else None


def out() -> object:
    """A rich console on standard output, plain when it is no terminal."""
    from rich.console import Console

    width = terminal_width() or 110
    return Console(no_color=not colour_wanted(), highlight=False, markup=False, emoji=False, width=width)
