"""Results to standard output or to a file that nobody loses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from profkit.errors import UsageError
from profkit.files import naming, writing


def refuse_terminal(form: str, output: Path | None) -> None:
    """A terminal shows no Parquet, and obeys the control characters in it.

    Raises:
        UsageError: that is where the bytes would go.
    """
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise UsageError("parquet is not for reading on a terminal; name a file with --output, or choose csv")


def write(output: Path | None, produce: Callable[[IO[bytes]], Any], *, force: bool) -> None:
    """Let ``produce`` write bytes to standard output, or to a temporary file that becomes ``output``."""
    if output is None:
        with naming(Path("standard output")):
            produce(sys.stdout.buffer)
            sys.stdout.buffer.flush()
        return
    with writing(output, force=force) as temporary, temporary.open("wb") as sink:
        produce(sink)
