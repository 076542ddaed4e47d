"""What an engineer should know about a server's log, with the lines that show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from profkit.finding import Finding
from profkit.serving.result import ServerSummary


def find(
    summary: ServerSummary,
    file: str,
    decode: pa.Table,
    events: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Any],
) -> tuple[Finding, ...]:
    """All findings of one server, the worst first."""
    del summary, file, decode, events, facts
    return ()
