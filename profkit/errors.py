"""Errors a user sees, and problems that are counted instead of raised.

An error is one sentence that names the file, the place and the mend. A problem
is something wrong in the input that did not stop the rest from being computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the command line."""

    DONE = 0
    CHECK_FAILED = 1
    USAGE = 2
    UNUSABLE_INPUT = 3
    INTERRUPTED = 130


class ProfkitError(Exception):
    """Base of every error that is shown as one sentence; carries the exit code."""

    exit_code: ExitCode = ExitCode.UNUSABLE_INPUT


class InputError(ProfkitError):
    """The input cannot be used (exit 3)."""


class UsageError(ProfkitError):
    """The command was called wrongly (exit 2)."""

    exit_code = ExitCode.USAGE


class CheckFailedError(ProfkitError):
    """A check that the caller asked for failed (exit 1)."""

    exit_code = ExitCode.CHECK_FAILED


@dataclass(frozen=True, slots=True)
class Problem:
    """A counted, named defect of an input.

    ``kind`` is a stable snake_case name, ``count`` how often it was seen, ``detail`` one
    sentence for a person, ``where`` the first place (``line 12`` or ``byte 4096``).
    """

    kind: str
    count: int
    detail: str
    where: str | None = None

    def __str__(self) -> str:
        return f"{self.detail} ({self.count}{f', first at {self.where}' if self.where else ''})"
