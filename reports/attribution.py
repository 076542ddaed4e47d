"""The attribution for a person: a terminal table that is read in ten seconds, and a markdown page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from profkit.attribution.idle import cause_words
from profkit.attribution.result import Attribution, CollectiveSummary, CycleSummary, RankResult
from profkit.escape import markdown, visible
from profkit.finding import Finding
from profkit.reports.ansi import COLOUR, PLAIN, SIGNS, Style
from profkit.reports.wording import at_least, at_most, part_name
from profkit.words import ACTIVITIES, PHASES

_EIGHTHS = " ▏▎▍▌▋▊▉"
BAR_WIDTH = 40
MOST_KERNELS = 12
MOST_RANKS = 16
CELL = 13


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


def _headline_rows(cycle: CycleSummary) -> list[tuple[str, float, float]]:
    """Name, us and share of every part with time in it, the largest first."""
    total = cycle.wall_us.mean
    parts = [(part_name(part, cycle), value) for part, value in cycle.headline_us.items() if value]
    return [(n, v, v / total if total else 0.0) for n, v in sorted(parts, key=lambda p: -p[1])]


def _title(result: Attribution, cycle: CycleSummary) -> str:
    wall = cycle.wall_us
    size = f" of batch {cycle.batch_size}" if cycle.batch_size is not None else ""
    clock = ", recorded without a GPU: the CPU's times" if result.without_gpu else ""
    if result.cycle is None:
        return f"No decode cycle: the whole recording lasts {wall.mean / 1000:.2f} ms{clock}"
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


def terminal(result: Attribution, *, colour: bool = False) -> str:
    """The attribution as text for a terminal; everything from files is made harmless."""
    style = COLOUR if colour else PLAIN
    blocks: list[list[str]] = []
    cycle = result.cycle or result.window
    if cycle is not None:
        blocks.append(
            [
                f"{style.bold}{_title(result, cycle)}{style.end}",
                *(f"{style.dim}{line}{style.end}" for line in _subtitle(result, cycle)),
            ]
        )
        blocks.append(_bars(cycle, style))
        blocks.append(_matrix(cycle, style, "us per cycle" if result.cycle else "us in all"))
    if len(result.by_batch) > 1:
        blocks.append(_by_batch(result, style))
    if result.collectives:
        blocks.append(_collectives(result, style))
    blocks.append(_ranks(result, style))
    if result.findings:
        blocks.append([_finding(f, style) for f in result.findings])
    notes = [w for w in result.warnings if w not in {f.sentence for f in result.findings}]
    if notes:
        blocks.append([f"{style.yellow}!{style.end} {visible(w, 400)}" for w in notes])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _bars(cycle: CycleSummary, style: Style) -> list[str]:
    return [
        f"  {name:<15}{us / 1000:>9.3f} ms {share:>6.1%}  {style.cyan}{bar(share)}{style.end}"
        for name, us, share in _headline_rows(cycle)
    ]


def _matrix_rows(cycle: CycleSummary) -> list[tuple[str, list[float | None]]]:
    rows: list[tuple[str, list[float | None]]] = []
    for phase in PHASES:
        cells = [cycle.parts_us[phase][a] for a in ACTIVITIES]
        if any(c is not None and c > 0 for c in cells):
            rows.append((phase, cells))
    return rows


def _unseen(cycle: CycleSummary) -> list[str]:
    return [p for p in PHASES if all(c is None for c in cycle.parts_us[p].values())]


def _matrix(cycle: CycleSummary, style: Style, unit: str) -> list[str]:
    lines = [f"{style.dim}  {unit:<15}" + "".join(f"{a:>{CELL}}" for a in ACTIVITIES) + f"{'sum':>{CELL}}{style.end}"]
    for phase, cells in _matrix_rows(cycle):
        known = [c for c in cells if c is not None]
        total = f"{microseconds(sum(known)):>{CELL}}" if known else f"{'–':>{CELL}}"
        lines.append(f"  {phase:<15}" + "".join(f"{microseconds(c):>{CELL}}" for c in cells) + total)
    if unseen := _unseen(cycle):
        lines.append(f"  {style.dim}not observed: {', '.join(unseen)}{style.end}")
    return lines


def _by_batch(result: Attribution, style: Style) -> list[str]:
    lines = [f"{style.dim}  {'batch size':<15}{'cycles':>11}{'mean ms':>11}{'p50 ms':>11}{'p90 ms':>11}{style.end}"]
    for row in result.by_batch:
        size = "unknown" if row.batch_size is None else str(row.batch_size)
        lines.append(
            f"  {size:<15}{row.cycles:>11}{row.wall_us.mean / 1000:>11.3f}{row.wall_us.p50 / 1000:>11.3f}"
            f"{row.wall_us.p90 / 1000:>11.3f}"
        )
    return lines


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


def _collectives(result: Attribution, style: Style) -> list[str]:
    rows = result.collectives
    lines = [
        f"{style.dim}  {'us per call':<30}{'calls/cycle':>11}{'mean':>9}{'transfer':>9}{'wait':>8}{'size':>11}"
        f"{'bus GB/s':>9}  implementation{style.end}"
    ]
    for row in rows[:MOST_KERNELS]:
        transfer, wait, bandwidth = _times(row)
        lines.append(
            f"  {_what(row):<30}{_calls(row):>11}{microseconds(row.mean_us):>9}{transfer:>9}{wait:>8}"
            f"{_size(row.message_bytes):>11}"
            f"{bandwidth:>9}  {visible(row.implementation, 20)}"
        )
    if len(rows) > MOST_KERNELS:
        lines.append(f"{style.dim}  {len(rows) - MOST_KERNELS} more in the JSON form{style.end}")
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


def _ranks(result: Attribution, style: Style) -> list[str]:
    lines = [
        f"{style.dim}  {'rank':<15}{'cycles':>7}{'left out':>9}{'cycle us':>12}{'all-reduce':>12}{'idle':>10}"
        f"{'hidden comm':>12}{'clock us':>16}  labelled by{style.end}"
    ]
    shown = list(zip(result.ranks, result.clock_offsets_us, strict=True))[:MOST_RANKS]
    for rank, clock in shown:
        wall = microseconds(rank.wall_ns / rank.cycles / 1000) if rank.cycles else "–"
        hidden = microseconds(rank.overlapped_comm_ns / rank.cycles / 1000) if rank.cycles else "–"
        offset = "–" if clock.offset is None or clock.spread is None else f"{clock.offset:+.1f} ±{clock.spread:.1f}"
        lines.append(
            f"  {visible(rank.name, 15):<15}{rank.cycles:>7}{sum(rank.dropped.values()):>9}{wall:>12}"
            f"{microseconds(_rank_sum(rank, 'allreduce')):>12}{microseconds(_rank_sum(rank, 'idle')):>10}{hidden:>12}"
            f"{offset:>16}  {_sources(rank)}"
        )
    if len(result.ranks) > MOST_RANKS:
        lines.append(f"{style.dim}  {len(result.ranks) - MOST_RANKS} more in the JSON form{style.end}")
    return lines


def _finding(finding: Finding, style: Style) -> str:
    tint = {"problem": style.red, "warning": style.yellow}.get(finding.severity, style.dim)
    names = [visible(PurePath(e).name, 60) for e in finding.evidence[:2]]
    more = f" and {len(finding.evidence) - 2} more" if len(finding.evidence) > 2 else ""
    place = f" {style.dim}({', '.join(names)}{more}){style.end}" if names else ""
    return f"{tint}{SIGNS[finding.severity]}{style.end} {visible(finding.sentence, 500)}{place}"


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
            [[name, microseconds(us), f"{share:.1%}"] for name, us, share in _headline_rows(cycle)],
        )
    for caption, path in (plots or {}).items():
        lines += [f"![{markdown(caption)}]({path})", ""]
    if cycle is not None:
        lines += [f"## Phase and activity, us per {unit}", ""]
        lines += _table(
            ["phase", *ACTIVITIES],
            [[phase.replace("_", "\\_"), *(microseconds(c) for c in cells)] for phase, cells in _matrix_rows(cycle)],
        )
        causes = [(k, v) for k, v in cycle.idle_causes_us.items() if v > 0]
        if causes:
            title = "Why nothing runs" if result.without_gpu else "Why the GPU waits"
            lines += [f"## {title}, us per {unit}", ""]
            lines += _table(
                ["cause", "us"], [[cause_words(k, without_gpu=result.without_gpu), microseconds(v)] for k, v in causes]
            )
    if len(result.by_batch) > 1:
        lines += ["## By batch size", ""]
        lines += _table(
            ["batch size", "cycles", "mean ms", "p50 ms", "p90 ms"],
            [
                [
                    "unknown" if r.batch_size is None else str(r.batch_size),
                    str(r.cycles),
                    f"{r.wall_us.mean / 1000:.3f}",
                    f"{r.wall_us.p50 / 1000:.3f}",
                    f"{r.wall_us.p90 / 1000:.3f}",
                ]
                for r in result.by_batch
            ],
        )
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
    lines += _table(
        ["rank", "cycles", "left out", "cycle us", "all-reduce us", "idle us", "labelled by"],
        [
            [
                r.name,
                str(r.cycles),
                str(sum(r.dropped.values())),
                microseconds(r.wall_ns / r.cycles / 1000) if r.cycles else "–",
                microseconds(_rank_sum(r, "allreduce")),
                microseconds(_rank_sum(r, "idle")),
                _sources(r).replace("_", "\\_"),
            ]
            for r in result.ranks
        ],
    )
    if result.findings:
        lines += ["## Findings", ""]
        lines += [f"- **{f.severity}**: {markdown(f.sentence)}" for f in result.findings]
        lines.append("")
    return "\n".join(lines)
