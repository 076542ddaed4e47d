"""ISO weeks as text, ``2026-W48``: the unit of the store's history."""

from __future__ import annotations

import re
from datetime import date, timedelta

from profkit.errors import UsageError

_FORM = re.compile(r"(\d{4})-W(\d{2})\Z")


def monday(week: str) -> date:
    """The Monday of a week.

    Raises:
        UsageError: not of the form ``2026-W48``, or no such week.
    """
    match = _FORM.match(week)
    try:
        if match is None:
            raise ValueError(week)
        return date.fromisocalendar(int(match[1]), int(match[2]), 1)
    except ValueError as error:
        raise UsageError(f"{week!r} is no ISO week; write it as 2026-W48") from error


def week_of(day: str) -> str | None:
    """The week of an ISO date or date-time, ``None`` when it is neither."""
    try:
        parsed = date.fromisoformat(day[:10])
    except ValueError:
        return None
    year, number, _ = parsed.isocalendar()
    return f"{year:04d}-W{number:02d}"


def shift(week: str, weeks: int) -> str:
    """The week ``weeks`` later (earlier when negative)."""
    found = week_of((monday(week) + timedelta(weeks=weeks)).isoformat())
    assert found is not None
    return found


def between(first: str, last: str) -> list[str]:
    """All weeks from ``first`` to ``last``, both included."""
    weeks = (monday(last) - monday(first)).days // 7
    return [shift(first, n) for n in range(weeks + 1)]
