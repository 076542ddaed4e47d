"""The attribution for a person: a terminal table that is read in ten seconds, and a markdown page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from profkit.attribution.idle import cause_words
from profkit.attribution.result import Attribution, ClockOffset, CollectiveSummary, CycleSummary, RankResult
from profkit.escape import markdown, visible
from profkit.finding import Finding
from profkit.reports.ansi import COLOUR, PLAIN, SIGNS, Style
from profkit.reports.columns import Column, table, wrapped
from profkit.reports.wording import at_least, at_most, part_name, prefills_only
from profkit.words import ACTIVITIES, PHASES, Activity

_EIGHTHS = " ▏▎▍▌▋▊▉"
BAR_WIDTH = 40
MOST_KERNELS = 12
MOST_RANKS = 16
CELL = 13
_LESS: Mapping[Activity, int] = {"memory": 2, "comm": 1}  # what a narrow terminal can do without


def bar(share: float, width: int = BAR_WIDTH) -> str:
    """A bar of eighths of a character; something above zero always shows."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0 and eighths == 0:
        eighths = 1
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def microseconds(value: float | None, digits: int = 1) -> str:
    """A figure in us; a dash where it is unknown, a dot where it is nothing."""
    if value is None:
        return "–"
    return "·" if value == 0 else f"{value:,.{digits}f}".replace(",", " ")


def _headline_rows(result: Attribution, cycle: CycleSummary) -> list[tuple[str, float, float]]:
    """Name, us and share of every part with time in it, the largest first."""
    total = cycle.wall_us.mean
    parts = [
        (part_name(part, cycle, prefills=prefills_only(result)), value)
        for part, value in cycle.headline_us.items()
        if value
    ]
    return [(n, v, v / total if total else 0.0) for n, v in sorted(parts, key=lambda p: -p[1])]


def _title(result: Attribution, cycle: CycleSummary) -> str:
    wall = cycle.wall_us
    size = f" of batch {cycle.batch_size}" if cycle.batch_size is not None else ""
    clock = ", recorded without a GPU: the CPU's times" if result.without_gpu else ""
    if result.cycle is None:
        return (
            f"No decode cycle: the whole recording lasts {wall.mean / 1000:.{2 if wall.mean >= 100 else 4}f} ms{clock}"
        )
    return f"Decode cycle{size}: {wall.mean / 1000:.2f} ms{clock}"


def _subtitle(result: Attribution, cycle: CycleSummary) -> list[str]:
    wall, ranks = cycle.wall_us, result.ranks
    plural = "s" * (len(ranks) != 1)
    if result.cycle is None:
        return [f"{len(ranks)} rank{plural}"]
    left = sum(sum(r.dropped.values()) for r in ranks)
    count = "one cycle" if cycle.count == 1 else f"mean of {cycle.count} cycles"
    spread = ", ".join(f"{p} {getattr(wall, p) / 1000:.2f}" for p in ("p10", "p50", "p90", "p99"))
    return [
        f"{count} on {len(ranks)} rank{plural}{f' ({spread})' if cycle.count > 1 else ''}"
        f"{f', {left} left out' if left else ''}",
        f"a cycle begins at the {'; '.join(sorted({r.boundary for r in ranks if r.cycles}))}",
    ]


def terminal(result: Attribution, *, colour: bool = False, width: int | None = None) -> str:
    """The attribution as text for a terminal of ``width`` columns; everything from files is made harmless.

    Without ``width`` no table loses a column and no sentence is broken.
    """
    style = COLOUR if colour else PLAIN
    blocks: list[list[str]] = []
    cycle = result.cycle or result.window
    if cycle is not None:
        title = wrapped(_title(result, cycle), width)
        subtitle = [part for line in _subtitle(result, cycle) for part in wrapped(line, width)]
        blocks.append(
            [
                *(f"{style.bold}{line}{style.end}" for line in title),
                *(f"{style.dim}{line}{style.end}" for line in subtitle),
            ]
        )
        blocks.append(_bars(result, cycle, style, width))
        blocks.append(_matrix(cycle, style, "us per cycle" if result.cycle else "us in all", width))
    if len(result.by_batch) > 1:
        blocks.append(_by_batch(result, style, width))
    if result.collectives:
        blocks.append(_collectives(result, style, width))
    blocks.append(_ranks(result, style, width))
    if result.findings:
        blocks.append([_finding(f, style, width) for f in result.findings])
    if notes := _notes(result):
        blocks.append([_signed(f"{style.yellow}!{style.end}", visible(note, 400), width) for note in notes])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _notes(result: Attribution) -> list[str]:
    """Warnings that are no findings: about the choice of files."""
    return [w for w in result.warnings if w not in {f.sentence for f in result.findings}]


def _signed(sign: str, sentence: str, width: int | None) -> str:
    """A sentence behind its sign, in lines of ``width``."""
    return f"{sign} " + "\n".join(wrapped(sentence, None if width is None else width - 2))


def _bars(result: Attribution, cycle: CycleSummary, style: Style, width: int | None) -> list[str]:
    room = BAR_WIDTH if width is None else max(min(BAR_WIDTH, width - 38), 4)
    return [
        f"  {name:<15}{us / 1000:>9.3f} ms {share:>6.1%}  {style.cyan}{bar(share, room)}{style.end}"
        for name, us, share in _headline_rows(result, cycle)
    ]


def _dimmed(lines: list[str], left_out: list[str], style: Style) -> list[str]:
    """A table with a dim header, and a word on what a narrow terminal hides."""
    lines = [f"{style.dim}{lines[0]}{style.end}", *lines[1:]]
    if left_out:
        lines.append(f"{style.dim}  no room for: {', '.join(left_out)}{style.end}")
    return lines


def _matrix_rows(cycle: CycleSummary) -> list[tuple[str, list[float | None]]]:
    rows: list[tuple[str, list[float | None]]] = []
    for phase in PHASES:
        cells = [cycle.parts_us[phase][a] for a in ACTIVITIES]
        if any(c is not None and c > 0 for c in cells):
            rows.append((phase, cells))
    return rows


def _unseen(cycle: CycleSummary) -> list[str]:
    return [p for p in PHASES if all(c is None for c in cycle.parts_us[p].values())]


def _matrix(cycle: CycleSummary, style: Style, unit: str, width: int | None) -> list[str]:
    columns = [
        Column(unit, 15, left=True),
        *(Column(a, CELL, _LESS.get(a, 0)) for a in ACTIVITIES),
        Column("sum", CELL),
    ]
    rows = [[phase, *(microseconds(c) for c in cells), _sum(cells)] for phase, cells in _matrix_rows(cycle)]
    lines = _dimmed(*table(columns, rows, width), style)
    if unseen := _unseen(cycle):
        said = wrapped(f"not observed: {', '.join(unseen)}", None if width is None else width - 2)
        lines += [f"  {style.dim}{line}{style.end}" for line in said]
    return lines


def _sum(cells: Sequence[float | None]) -> str:
    known = [c for c in cells if c is not None]
    return microseconds(sum(known)) if known else "–"


_BATCH_HEADS = ("batch size", "cycles", "mean ms", "p50 ms", "p90 ms")


def _batch_rows(result: Attribution) -> list[list[str]]:
    return [
        [
            "unknown" if r.batch_size is None else str(r.batch_size),
            str(r.cycles),
            *(f"{us / 1000:.3f}" for us in (r.wall_us.mean, r.wall_us.p50, r.wall_us.p90)),
        ]
        for r in result.by_batch
    ]


def _by_batch(result: Attribution, style: Style, width: int | None) -> list[str]:
    columns = [Column(h, 11 if i else 15, left=not i) for i, h in enumerate(_BATCH_HEADS)]
    return _dimmed(*table(columns, _batch_rows(result), width), style)


def _size(value: int | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1024:.1f} KiB" if value < 1 << 20 else f"{value / (1 << 20):.1f} MiB"


def _what(row: CollectiveSummary) -> str:
    return f"{row.phase} {row.kind}{' (fused)' if row.fused else ''}"


def _calls(row: CollectiveSummary) -> str:
    """Without a counted cycle the calls are those of cut-off recordings, and no number per cycle."""
    return "–" if row.calls_per_cycle is None else f"{row.calls_per_cycle:.4g}"


def _times(row: CollectiveSummary) -> tuple[str, str, str]:
    """Transfer, wait and bandwidth; marked as bounds where ranks of the group are missing."""
    bandwidth = "–" if row.bus_bandwidth_gb_s is None else f"{row.bus_bandwidth_gb_s:.2f}"
    wait = microseconds(row.wait_us)
    return at_most(microseconds(row.transfer_us), row), at_least(wait, row), at_least(bandwidth, row)


def _collectives(result: Attribution, style: Style, width: int | None) -> list[str]:
    columns = [
        Column("us per call", 30, left=True),
        Column("calls/cycle", 11, 2),
        Column("mean", 9),
        Column("transfer", 9),
        Column("wait", 8),
        Column("size", 11, 1),
        Column("bus GB/s", 9, 3),
        Column("implementation", 16, 4, left=True),
    ]
    rows = []
    for row in result.collectives[:MOST_KERNELS]:
        transfer, wait, bandwidth = _times(row)
        made_by = visible(row.implementation, 20)
        rows.append(
            [
                _what(row), _calls(row), microseconds(row.mean_us), transfer, wait, _size(row.message_bytes), bandwidth,
                made_by,
            ]
        )  # fmt: skip
    lines = _dimmed(*table(columns, rows, width), style)
    if len(result.collectives) > MOST_KERNELS:
        lines.append(f"{style.dim}  {len(result.collectives) - MOST_KERNELS} more in the JSON form{style.end}")
    return lines


def _sources(rank: RankResult) -> str:
    used = [f"{name} {share:.0%}" for name, share in rank.labelled_by.items() if share >= 0.0005]
    return ", ".join(used) or "–"


def _rank_sum(rank: RankResult, activity: str) -> float | None:
    """Mean us per cycle of one activity over all phases; ``None`` without a counted cycle."""
    if not rank.cycles:
        return None
    cells = [v for phase in rank.parts_ns.values() for a, v in phase.items() if a == activity and v is not None]
    return sum(cells) / rank.cycles / 1000


def _rank_row(rank: RankResult, clock: ClockOffset) -> list[str]:
    per_cycle = [
        microseconds(ns / rank.cycles / 1000) if rank.cycles else "–" for ns in (rank.wall_ns, rank.overlapped_comm_ns)
    ]
    offset = "–" if clock.offset is None or clock.spread is None else f"{clock.offset:+.1f} ±{clock.spread:.1f}"
    return [
        visible(rank.name, 15), str(rank.cycles), str(sum(rank.dropped.values())), per_cycle[0],
        microseconds(_rank_sum(rank, "allreduce")), microseconds(_rank_sum(rank, "idle")), per_cycle[1], offset,
        _sources(rank),
    ]  # fmt: skip


def _ranks(result: Attribution, style: Style, width: int | None) -> list[str]:
    columns = [
        Column("rank", 15, left=True),
        Column("cycles", 7),
        Column("left out", 9),
        Column("cycle us", 12),
        Column("all-reduce", 12),
        Column("idle", 10, 1),
        Column("hidden comm", 12, 4),
        Column("clock us", 16, 3),
        Column("labelled by", 17, 2, left=True),
    ]
    shown = list(zip(result.ranks, result.clock_offsets_us, strict=True))[:MOST_RANKS]
    lines = _dimmed(*table(columns, [_rank_row(*pair) for pair in shown], width), style)
    if len(result.ranks) > MOST_RANKS:
        lines.append(f"{style.dim}  {len(result.ranks) - MOST_RANKS} more in the JSON form{style.end}")
    return lines


def _finding(finding: Finding, style: Style, width: int | None) -> str:
    tint = {"problem": style.red, "warning": style.yellow}.get(finding.severity, style.dim)
    names = [visible(PurePath(e).name, 60) for e in finding.evidence[:2]]
    more = f" and {len(finding.evidence) - 2} more" if len(finding.evidence) > 2 else ""
    place = f" ({', '.join(names)}{more})" if names else ""
    sentence, sign = visible(finding.sentence, 500), f"{tint}{SIGNS[finding.severity]}{style.end}"
    if width is None or len(sentence + place) <= width - 2:
        return f"{sign} {sentence}{f'{style.dim}{place}{style.end}' if place else ''}"
    return _signed(sign, sentence + place, width)


# --- markdown ----------------------------------------------------------------------------------------


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return [_row(head), _row(rule), *(_row(r) for r in rows), ""]


def as_markdown(result: Attribution, *, plots: Mapping[str, str] | None = None) -> str:
    """The attribution as a markdown page; ``plots`` maps captions to paths relative to the page."""
    cycle = result.cycle or result.window
    unit = "cycle" if result.cycle is not None else "recording"
    lines = ["# Where a decode cycle goes", ""]
    if cycle is not None:
        lines += [f"**{_title(result, cycle)}** — {'; '.join(_subtitle(result, cycle))}.", ""]
        lines += _table(
            ["part", "us", "share"],
            [[name, microseconds(us), f"{share:.1%}"] for name, us, share in _headline_rows(result, cycle)],
        )
    for caption, path in (plots or {}).items():
        lines += [f"![{markdown(caption)}]({path})", ""]
    if cycle is not None:
        lines += [f"## Phase and activity, us per {unit}", ""]
        lines += _table(
            ["phase", *ACTIVITIES, "sum"],
            [[markdown(phase), *(microseconds(c) for c in cells), _sum(cells)] for phase, cells in _matrix_rows(cycle)],
        )
        if unseen := _unseen(cycle):
            lines += [f"Not observed: {markdown(', '.join(unseen))}.", ""]
        causes = [(k, v) for k, v in cycle.idle_causes_us.items() if v > 0]
        if causes:
            title = "Why nothing runs" if result.without_gpu else "Why the GPU waits"
            lines += [f"## {title}, us per {unit}", ""]
            lines += _table(
                ["cause", "us"], [[cause_words(k, without_gpu=result.without_gpu), microseconds(v)] for k, v in causes]
            )
    if len(result.by_batch) > 1:
        lines += ["## By batch size", ""]
        lines += _table(_BATCH_HEADS, _batch_rows(result))
    if result.collectives:
        lines += ["## Collectives, us per call", ""]
        lines += _table(
            [
                "collective",
                "calls per cycle",
                "mean",
                "transfer",
                "wait",
                "size",
                "bus GB/s",
                "written by",
                "kernel",
            ],
            [
                [
                    _what(r).replace("_", "\\_"),
                    _calls(r),
                    microseconds(r.mean_us),
                    *_times(r)[:2],
                    _size(r.message_bytes),
                    _times(r)[2],
                    markdown(r.implementation),
                    markdown(r.kernel, 80),
                ]
                for r in result.collectives
            ],
        )
    lines += ["## Ranks", ""]
    heads = ["rank", "cycles", "left out", "cycle us", "all-reduce us", "idle us", "hidden comm us", "clock us"]
    lines += _table(
        [*heads, "labelled by"],
        [
            [markdown(cell) for cell in _rank_row(rank, clock)]
            for rank, clock in zip(result.ranks, result.clock_offsets_us, strict=True)
        ],
    )
    if result.findings:
        lines += ["## Findings", ""]
        lines += [f"- **{f.severity}**: {markdown(f.sentence)}" for f in result.findings]
        lines.append("")
    if notes := _notes(result):
        lines += ["## Files", "", *(f"- {markdown(note)}" for note in notes), ""]
    return "\n".join(lines)
