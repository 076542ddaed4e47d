"""Traces named on a command line, read and attributed: shared by the commands that show an attribution."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profkit.attribution import Attribution
    from profkit.cli.console import Messages
    from profkit.run import Facts
    from profkit.trace import Trace


def attributed(
    paths: Sequence[str], messages: Messages, jobs: int | None, *, cache: bool
) -> tuple[Attribution, Facts, tuple[Trace, ...]]:
    """Read the traces behind ``paths``, Python frames only where nothing better names the phases, and attribute them.

    Raises:
        InputError: nothing usable there.
    """
    from profkit.attribution import attribute, needs_frames
    from profkit.cli.run_facts import facts_near
    from profkit.parsers.trace import read_traces

    with messages.progress("reading traces", 1.0) as advance:
        frames = any(map(_readable_once, paths))
        traces = read_traces(list(paths), frames=frames, jobs=jobs, cache=cache, progress=advance)
    if not frames and any(needs_frames(t) for t in traces):
        messages.detail("no annotation names the phases: reading the Python frames as well")
        with messages.progress("reading Python frames", 1.0) as advance:
            traces = read_traces(list(paths), frames=True, jobs=jobs, cache=cache, progress=advance)
    for problem in (p for t in traces for p in t.info.problems if p.kind == "same_file"):
        messages.note(str(problem))
    facts = facts_near(paths, traces)
    return attribute(traces, facts=facts, jobs=jobs), facts, traces


def _readable_once(path: str) -> bool:
    """Standard input, or a pipe: whether frames are needed is known only when it has been read."""
    return path == "-" or (Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir())
