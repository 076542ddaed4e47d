"""The doctor's findings as text and as markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from profkit.escape import markdown, visible
from profkit.preflight import Diagnosis
from profkit.preflight.result import RunFound, State
from profkit.run import release_span

WIDTH = 110
STATES: dict[State, str] = {"answerable": "yes", "partly": "partly", "not": "no"}


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _arm(run: RunFound) -> str:
    if run.speculative:
        return f"speculative ({run.algorithm})" if run.algorithm else "speculative"
    return "speculation unknown" if run.speculative is None else "no speculation"


def _contents(run: RunFound) -> str:
    """What a run holds, in one line."""
    parts = []
    if run.decode_lines:
        sizes = ", ".join(map(str, run.batch_sizes[:6])) + (" ..." if len(run.batch_sizes) > 6 else "")
        parts.append(
            f"{_plural(run.decode_lines, 'steady decode line')}" + (f" at batch size {sizes}" if sizes else "")
        )
    elif run.launches:
        parts.append("a log without steady decode lines")
    ranks = sorted({t.rank for t in run.traces if t.rank is not None})
    if run.traces:
        kinds = sorted({t.kind for t in run.traces})
        of = f" of {_plural(len(ranks), 'rank')}" if ranks else ""
        parts.append(f"{_plural(len(run.traces), 'trace')}{of} ({', '.join(kinds)})")
    for count, what in ((run.bench_rows, "benchmark row"), (run.nccl_debug_rows, "NCCL debug fact"),
                        (run.nccl_test_rows, "nccl-tests row")):  # fmt: skip
        if count:
            parts.append(_plural(count, what))
    return "; ".join(parts) or "nothing that helps"


def _engine(run: RunFound) -> str:
    if run.version:
        return f"{run.engine or 'engine'} {run.version}"
    if span := release_span(run.version_low, run.version_high):
        return f"{run.engine or 'engine'} {span} (inferred)"
    return f"{run.engine or 'engine unknown'}, version unknown" if run.engine else "engine unknown"


def as_text(diagnosis: Diagnosis) -> str:
    """For a terminal: no colours, wrapped except the commands, which are to be copied."""
    return "\n".join(_text_lines(diagnosis)) + "\n"


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        visible(text), WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False,
        break_on_hyphens=False,
    ) or [first]  # fmt: skip


def _text_lines(diagnosis: Diagnosis) -> Iterator[str]:
    yield "Found"
    for run in diagnosis.runs:
        yield from _wrapped(f"{run.name}: {_engine(run)}, {_arm(run)}; {_contents(run)}", "  ", "    ")
    if not diagnosis.runs:
        yield "  nothing that profkit can use"
    for warning in diagnosis.warnings:
        yield from _wrapped(f"warning: {warning}", "  ", "    ")
    yield ""
    yield "Questions"
    for answer in diagnosis.answers:
        yield from _wrapped(f"{answer.number}. {answer.question}", f"  {STATES[answer.state]:<7} ", " " * 13)
        for reason in answer.because:
            yield from _wrapped(reason, " " * 13 + "- ", " " * 15)
    if diagnosis.captures:
        yield ""
        yield from _wrapped(f"Record what is missing ({diagnosis.version_note})", "", "  ")
    for capture in diagnosis.captures:
        yield ""
        yield from _wrapped(f"{capture.title}: {capture.why}", "  # ", "  # ")
        for command in capture.commands:
            yield f"  {visible(command)}"


def as_markdown(diagnosis: Diagnosis) -> str:
    """For an issue or a page."""
    lines = ["# What these files can answer", "", "| run | engine | arm | holds |", "|---|---|---|---|"]
    for run in diagnosis.runs:
        cells = (run.name, _engine(run), _arm(run), _contents(run))
        lines.append("| " + " | ".join(markdown(c) for c in cells) + " |")
    lines += ["", *(f"> warning: {markdown(w)}" for w in diagnosis.warnings), ""]
    for answer in diagnosis.answers:
        lines += [f"## {answer.number}. {answer.question}", "", f"**{STATES[answer.state]}**", ""]
        lines += [f"- {markdown(reason)}" for reason in answer.because] + [""]
    if diagnosis.captures:
        lines += ["## Record what is missing", "", f"{_sentence(diagnosis.version_note)}", ""]
    for capture in diagnosis.captures:
        lines += [f"### {_capital(capture.title)}", "", _sentence(capture.why), "", "```sh"]
        lines += [visible(c).replace("```", "'''") for c in capture.commands] + ["```", ""]
    return "\n".join(lines).rstrip("\n").replace("\n\n\n", "\n\n") + "\n"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentence(text: str) -> str:
    return _capital(markdown(text)) + "."
