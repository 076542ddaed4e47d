"""The summary of a log for a person: in the terminal and as markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from profkit.escape import markdown, visible
from profkit.reports.ansi import COLOUR, PLAIN, SIGNS, Style
from profkit.reports.wording import count
from profkit.run import release_span
from profkit.serving.result import BatchRow, LogSummary, ServerSummary, Spread

_BARS = "▁▂▃▄▅▆▇█"
_MOST_BATCH_ROWS = 12
_NOTHING = (
    "Nothing to summarise: the lines are known, but show no server at work and no benchmark result; "
    "--table nccl lists NCCL lines."
)


def terminal(summary: LogSummary, *, colour: bool = False) -> str:
    """The summary as text for a terminal; everything from the log is made harmless."""
    style = COLOUR if colour else PLAIN
    blocks = [_server(server, style) for server in summary.servers]
    blocks += [_bench(row) for row in summary.bench]
    if summary.warnings:
        blocks.append("\n".join(f"{style.yellow}warning:{style.end} {visible(w, 300)}" for w in summary.warnings))
    return "\n\n".join(blocks or [_NOTHING]) + "\n"


def sparkline(values: Sequence[float | None]) -> str:
    """One character per value, up from the lowest or from 80 % of the highest; a gap where there is none."""
    known = [v for v in values if v is not None]
    if not known:
        return ""
    high = max(known)
    low = min(*known, 0.8 * high)  # noise of a few percent stays small
    span = (high - low) or 1.0
    return "".join(" " if v is None else _BARS[min(7, int(8 * (v - low) / span))] for v in values)


def number(value: float | None, digits: int = 3) -> str:
    """A figure with about ``digits`` significant digits, without an exponent; ``-`` when unknown."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    size = len(str(int(abs(value))))
    decimals = max(0, digits - size) if abs(value) >= 1 else digits
    return f"{value:,.{decimals}f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _server(server: ServerSummary, style: Style) -> str:
    lines = [f"{style.bold}{_title(server)}{style.end}", f"{style.dim}{_subtitle(server)}{style.end}", ""]
    decode = server.decode
    if decode.lines:
        lines += [f"  {name:<16} {text}" for name, text in _figures(server)] + _shape(server)
    else:
        lines.append(f"  No decode line{_instead(server)}")
    if server.by_batch:
        lines += ["", *_batch_table(server.by_batch, speculative=server.speculative is not False)]
    happened = _events(server)
    if happened:
        lines += ["", f"  {style.dim}In the log: {happened}{style.end}"]
    for finding in server.findings:
        tint = {"problem": style.red, "warning": style.yellow}.get(finding.severity, "")
        shown = ", ".join(PurePath(place).name for place in finding.evidence[:3])
        place = f"  ({visible(shown, 120)})" if shown else ""
        lines.append(
            f"  {tint}{SIGNS[finding.severity]} {visible(finding.sentence, 400)}{style.end}"
            f"{style.dim}{place}{style.end}"
        )
    return "\n".join(line.rstrip() for line in lines)


def _instead(server: ServerSummary) -> str:
    """What a log without decode lines shows of the server."""
    prompts = server.prefill.get("lines")
    if not prompts:
        return ": the server answered nothing, or the log ends before it did."
    return f", but {count(int(prompts), 'prefill line')}: a prefill server's log, or an excerpt of one."


def _title(server: ServerSummary) -> str:
    model = visible(PurePath(server.model).name, 80) if server.model else "unknown model"
    if server.algorithm:
        how = f"{visible(server.algorithm, 40)} speculation"
    elif server.speculative is False:
        how = "no speculation"
    else:
        how = "speculation of a kind not stated" if server.speculative else "speculation unknown"
    return f"{model}, {how}"


def _subtitle(server: ServerSummary) -> str:
    parts = [f"server {server.server} at {visible(server.start_line or 'the start', 120)}"]
    if server.engine_version:
        parts.append(f"{server.engine} {visible(server.engine_version, 40)}")
    elif span := release_span(*server.version_range):
        words = "" if (server.version_evidence or "").endswith("exactly") else f" ({server.version_evidence})"
        parts.append(f"{server.engine} {span}{words}")
    parallel = [
        f"{n} {v}" for n, v in (("tp", server.tp), ("dp", server.dp), ("pp", server.pp), ("ep", server.ep)) if v
    ]
    parts += [" ".join(parallel)] if parallel else []
    drafts = [
        f"{name} {value}"
        for name, value in (
            ("steps", server.num_steps),
            ("topk", server.topk),
            ("draft tokens", server.num_draft_tokens),
        )
        if value is not None and server.algorithm
    ]
    return " · ".join([*parts, *([", ".join(drafts)] if drafts else [])])


def _figures(server: ServerSummary) -> list[tuple[str, str]]:
    decode = server.decode
    kept = decode.lines - decode.damaged - decode.flagged
    several = server.dp is not None and server.dp > 1
    speed = decode.cluster_throughput_tok_s if several else decode.gen_throughput_tok_s
    rows = [("throughput", f"{_range(speed)} tok/s" + (" over all DP ranks" if several else ""))]
    if decode.accept_len.p50 is not None:
        rows.append(("accept length", f"{number(decode.accept_len.mean)} mean, {_range(decode.accept_len)}"))
    if server.accepted_per_draft_token is not None:
        era = f", its accept rate by definition {server.accept_rate_era}" if server.accept_rate_era else ""
        share = f"{100 * server.accepted_per_draft_token:.0f} % of the draft tokens"
        rows.append(("accepted", f"{share}{era}"))
    rows.append(("step", f"{_range(decode.step_ms)} ms" if decode.step_ms.p50 is not None else "unknown"))
    if decode.cuda_graph_share is not None:
        rows.append(("graphs", f"{100 * decode.cuda_graph_share:.0f} % of the decode lines"))
    left_out = [f"{decode.flagged} after idle or prefill or while profiling"] if decode.flagged else []
    left_out += [f"{decode.damaged} damaged"] if decode.damaged else []
    rows.append(
        ("decode lines", f"{decode.lines}, {kept} averaged" + (f" ({', '.join(left_out)})" if left_out else ""))
    )
    return rows


def _shape(server: ServerSummary) -> list[str]:
    """The course of the log as sparklines."""
    shape = [
        f"  {label:<16} {sparkline(server.series[key])}"
        for key, label in (("gen_throughput_tok_s", "tok/s over time"), ("accept_len", "accept length"))
        if len([v for v in server.series.get(key, ()) if v is not None]) > 3
    ]
    return ["", *shape] if shape else []


def _range(spread: Spread) -> str:
    if spread.p50 is None:
        return "unknown"
    return f"{number(spread.p50)} median ({number(spread.p10)} to {number(spread.p90)})"


def _batch_table(rows: Sequence[BatchRow], *, speculative: bool) -> list[str]:
    shown = sorted(sorted(rows, key=lambda r: -r.lines)[:_MOST_BATCH_ROWS], key=lambda r: r.running_req)
    head = ["running", "lines", "tok/s", "step ms", *(["accept len"] if speculative else []), "KV used"]
    cells = [
        [
            str(row.running_req),
            str(row.lines),
            number(row.gen_throughput_tok_s.mean),
            number(row.step_ms.p50),
            *([number(row.accept_len.mean)] if speculative else []),
            "-" if row.token_usage is None else f"{100 * row.token_usage:.0f} %",
        ]
        for row in shown
    ]
    widths = [max(len(r[i]) for r in [head, *cells]) for i in range(len(head))]
    lines = ["  " + "  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in [head, *cells]]
    if len(rows) > len(shown):
        lines.append(f"  and {len(rows) - len(shown)} more batch sizes with fewer lines")
    return lines


def _events(server: ServerSummary) -> str:
    hidden = {"weight_load_begin", "graph_capture_begin", "memory_pool", "profile_stop"}
    parts = [f"{count} {kind.replace('_', ' ')}" for kind, count in server.events.items() if kind not in hidden]
    return ", ".join(parts)


_BENCH_SHOWN = (
    ("completed", "requests"),
    ("output_throughput", "output tok/s"),
    ("accept_len", "accept length"),
    ("mean_ttft", "mean TTFT ms"),
    ("mean_tpot", "mean TPOT ms"),
    ("mean_itl", "mean ITL ms"),
    ("mean_e2e_latency", "mean E2E ms"),
)


def _bench(row: object) -> str:
    assert isinstance(row, dict)
    figures = row.get("figures")
    assert isinstance(figures, dict)
    place = visible(f"{row.get('tool')} at {row.get('file')}:{row.get('line')}", 160)
    chosen = [(label, figures[key]) for key, label in _BENCH_SHOWN if figures.get(key) is not None]
    chosen = chosen or list(figures.items())[:8]
    texts = [f"{label} {_bench_value(v)}" for label, v in chosen]
    return f"{place}\n  {' · '.join(texts)}"


# Larger whole numbers are not written out.
LONGEST_WHOLE = 1e15


def _bench_value(value: object) -> str:
    if not isinstance(value, float | int):
        return visible(str(value), 40)
    if abs(value) < LONGEST_WHOLE and value == int(value):
        return f"{int(value):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return number(value)


def as_markdown(summary: LogSummary) -> str:
    """The summary as a markdown document."""
    parts = ["# Server log", ""]
    for server in summary.servers:
        parts += [f"## {markdown(_title(server))}", "", markdown(_subtitle(server)), ""]
        parts += [f"- {name}: {markdown(words)}" for name, words in _figures(server)] if server.decode.lines else []
        parts += ["", *_markdown_table(server.by_batch), ""]
        parts += [
            f"- **{f.severity}**: {markdown(f.sentence)} {markdown(', '.join(f.evidence[:3]))}" for f in server.findings
        ]
        parts.append("")
    parts += [line for row in summary.bench for line in (*map(markdown, _bench(row).split("\n")), "")]
    parts += [f"- {markdown(w)}" for w in summary.warnings]
    parts += [] if summary.servers or summary.bench else [_NOTHING]
    return "\n".join(parts).rstrip() + "\n"


def _markdown_table(rows: Iterable[BatchRow]) -> list[str]:
    rows = list(rows)
    if not rows:
        return []
    lines = ["| running | lines | tok/s | step ms | accept len |", "|--:|--:|--:|--:|--:|"]
    lines += [
        f"| {r.running_req} | {r.lines} | {number(r.gen_throughput_tok_s.mean)} | {number(r.step_ms.p50)} "
        f"| {number(r.accept_len.mean)} |"
        for r in rows
    ]
    return lines
