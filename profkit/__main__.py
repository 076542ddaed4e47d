"""``python -m profkit``, and the entry point of the ``profkit`` script.

It imports next to nothing before it is ready for Ctrl-C: an interrupt while the rest is imported must be as quiet as
one later on.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130  # as profkit.errors.ExitCode says, which is not imported yet


def _end(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"profkit: interrupted\n")
    os._exit(INTERRUPTED)


def _settle_streams() -> None:
    """Results are UTF-8 whatever the locale; a stream that whoever started us closed is empty or goes nowhere."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 - for as long as the program runs
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - likewise
        elif stream.encoding.lower() != "utf-8":
            stream.reconfigure(encoding="utf-8")


def main() -> None:
    """Run the program and exit with its code."""
    _settle_streams()
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where a parent process ignores it
    if ours:
        signal.signal(signal.SIGINT, _end)
    from profkit.cli.app import run

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = run(sys.argv[1:])
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done and said; the interpreter is only taken down
    if code == INTERRUPTED:
        # An interrupt that arrived inside exec (dataclasses use it) is remembered there, although it was handled, and
        # would become the exit status; the next exec forgets it.
        exec("")  # noqa: S102 - nothing is run
    sys.exit(code)


if __name__ == "__main__":
    main()
