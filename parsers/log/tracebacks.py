"""Tracebacks span lines: the error named at the end belongs to the event that began it."""

from __future__ import annotations

import re
from typing import Any, Final

from profkit.escape import visible
from profkit.parsers.server_args import text_without_secrets

_ERROR = re.compile(rb"([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Failure)\w*)(?:: (.*))?$")
_LONGEST: Final = 2000
_KEPT: Final = 300
_LONG_LINE: Final = 600  # the pattern may look at every character twice


class TracebackReader:
    """Collects the lines behind ``Traceback (most recent call last):`` until the log goes on."""

    def __init__(self) -> None:
        self._row: dict[str, Any] | None = None
        self._lines = 0

    def begin(self, row: dict[str, Any], line: int) -> None:
        """A traceback begins; ``row`` is the event that it will become."""
        del line
        self._row = row
        self._lines = 0

    def add(self, line: bytes) -> None:
        """A line without a prefix."""
        if self._row is None:
            return
        self._lines += 1
        if self._lines > _LONGEST or line[:1] in (b" ", b"\t"):
            return
        error = _ERROR.match(line[:_LONG_LINE].strip())
        if error:
            fields = self._row["fields"]
            fields["type"] = visible(error[1].decode("utf-8", "replace"), 100)
            fields["message"] = visible(text_without_secrets((error[2] or b"").decode("utf-8", "replace")), _KEPT)

    def end(self) -> dict[str, Any] | None:
        """The finished event, if one was open."""
        row, self._row = self._row, None
        return row
