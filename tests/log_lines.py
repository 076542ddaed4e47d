"""Batch lines of any dialect from values: an independent printer for round trips."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

DAY = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
RANK_NAMES = ("dp", "pp", "tp", "ep", "attn_cp", "moe_dp")
FOREIGN = (
    "",
    "sglang-1  | ",
    "(SGLangEngine pid=35555) ",
    "(SGLangEngine pid=111711, ip=10.0.0.6) ",
    "2026-01-02T03:04:05.123456789Z stderr F ",
    "[pod/sglang-0/server] ",
    "Jan  2 03:04:05 node7 sglang[4711]: ",
    "[rank0]: ",
    "3: ",
)


@dataclass(frozen=True, slots=True)
class Printed:
    """A line, and what a reader must find in it."""

    line: str
    kind: str
    values: dict[str, Any]


def hundredths(most: int) -> st.SearchStrategy[float]:
    """A number as two decimals print it."""
    return st.integers(0, most * 100).map(lambda n: n / 100)


@st.composite
def prefixes(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A prefix of any kind and the time and ranks in it."""
    second = draw(st.integers(0, 86_399))
    moment = DAY + dt.timedelta(seconds=second)
    names = draw(st.permutations(draw(st.lists(st.sampled_from(RANK_NAMES), unique=True, max_size=6))))
    ranks = {name: draw(st.integers(0, 127)) for name in names}
    shown = " ".join(f"{name.upper()}{rank}" for name, rank in ranks.items())
    form = draw(st.sampled_from(("dated", "milliseconds", "clock", "custom", "headless")))
    values: dict[str, Any] = {name: ranks.get(name) for name in RANK_NAMES}
    if form == "custom":
        inside = " ".join(filter(None, (shown, "scheduler_metrics_mixin.py:222")))
        values["time"] = moment.timestamp()
        return f"{moment:%Y-%m-%d %H:%M:%S} INFO 31223 [{inside}] ", values
    if form == "clock":
        values["time"] = float(second)
        return f"[{moment:%H:%M:%S}{' ' if shown else ''}{shown}] ", values
    if form == "headless":
        values["time"] = moment.timestamp()
        return f"{moment:%Y-%m-%d %H:%M:%S}"[1:] + f"{' ' if shown else ''}{shown}] ", values
    fraction = f".{draw(st.integers(0, 999)):03d}" if form == "milliseconds" else ""
    values["time"] = moment.timestamp() + float(f"0{fraction or '.0'}")
    foreign = draw(st.sampled_from(FOREIGN))
    return f"{foreign}[{moment:%Y-%m-%d %H:%M:%S}{fraction}{' ' if shown else ''}{shown}] ", values


def _pool(draw: st.DrawFn) -> tuple[list[str], dict[str, Any]]:
    form = draw(st.sampled_from(("plain", "swa", "swa_equal", "mamba", "swa_mamba")))
    token, usage = draw(st.integers(0, 10**9)), draw(hundredths(1))
    swa, swa_usage = draw(st.integers(0, 10**7)), draw(hundredths(1))
    mamba, mamba_usage = draw(st.integers(0, 999)), draw(hundredths(1))
    values: dict[str, Any] = {"token": token, "token_usage": usage}
    if form == "plain":
        return [f"#token: {token}", f"token usage: {usage:.2f}"], values
    if form == "swa_equal":
        values |= {"swa_token": swa, "swa_token_usage": swa_usage}
        return [f"#token: full={token}, swa={swa}", f"token usage: full={usage:.2f}, swa={swa_usage:.2f}"], values
    parts = [f"#full token: {token}", f"full token usage: {usage:.2f}"]
    if "swa" in form:
        parts += [f"#swa token: {swa}", f"swa token usage: {swa_usage:.2f}"]
        values |= {"swa_token": swa, "swa_token_usage": swa_usage}
    if "mamba" in form:
        parts += [f"mamba num: {mamba}", f"mamba usage: {mamba_usage:.2f}"]
        values |= {"mamba_num": mamba, "mamba_usage": mamba_usage}
    return parts, values


@st.composite
def decode_bodies(draw: st.DrawFn) -> tuple[list[str], dict[str, Any]]:
    """The fields of a decode line in SGLang's order."""
    running = draw(st.integers(0, 100_000))
    parts = [f"#running-req: {running}"]
    values: dict[str, Any] = {"running_req": running}
    pool, found = _pool(draw)
    parts += pool
    values |= found
    if draw(st.booleans()):
        values["accept_len"] = draw(hundredths(64))
        parts.append(f"accept len: {values['accept_len']:.2f}")
        if draw(st.booleans()):
            values["accept_rate"] = draw(hundredths(2))
            parts.append(f"accept rate: {values['accept_rate']:.2f}")
    if draw(st.booleans()):
        values |= {"preallocated_usage": draw(hundredths(1)), "retracted_req": draw(st.integers(0, 99))}
        parts += [
            f"pre-allocated usage: {values['preallocated_usage']:.2f}",
            f"#retracted-req: {values['retracted_req']}",
        ]
    if draw(st.booleans()):
        word, graph = draw(st.sampled_from(("cuda", "cpu", "npu", "musa"))), draw(st.booleans())
        values |= {"cuda_graph": graph, "graph_kind": word}
        parts.append(f"{word} graph: {graph}")
    values["gen_throughput_tok_s"] = draw(hundredths(10**6))
    values["queue_req"] = draw(st.integers(0, 10**6))
    parts += [f"gen throughput (token/s): {values['gen_throughput_tok_s']:.2f}", f"#queue-req: {values['queue_req']}"]
    return parts, values


@st.composite
def prefill_bodies(draw: st.DrawFn) -> tuple[list[str], dict[str, Any]]:
    """The fields of a prefill line in SGLang's order."""
    values: dict[str, Any] = {"new_seq": draw(st.integers(0, 999)), "new_token": draw(st.integers(0, 10**6))}
    values["cached_token"] = draw(st.integers(0, 10**6))
    parts = [f"#{n.replace('_', '-')}: {values[n]}" for n in ("new_seq", "new_token", "cached_token")]
    if draw(st.booleans()):
        values["cache_hit_rate"] = draw(hundredths(100))
        parts.append(f"cache hit rate: {values['cache_hit_rate']:.2f}%")
    values |= {"token_usage": draw(hundredths(1)), "running_req": draw(st.integers(0, 9999))}
    values["queue_req"] = draw(st.integers(0, 9999))
    parts += [
        f"token usage: {values['token_usage']:.2f}",
        f"#running-req: {values['running_req']}",
        f"#queue-req: {values['queue_req']}",
    ]
    if draw(st.booleans()):
        values |= {
            "graph_kind": "cuda",
            "cuda_graph": draw(st.booleans()),
            "input_throughput_tok_s": draw(hundredths(10**6)),
        }
        parts += [
            f"cuda graph: {values['cuda_graph']}",
            f"input throughput (token/s): {values['input_throughput_tok_s']:.2f}",
        ]
    return parts, values


@st.composite
def batch_lines(draw: st.DrawFn) -> Printed:
    """A whole batch line of any dialect."""
    prefix, values = draw(prefixes())
    kind = draw(st.sampled_from(("decode", "prefill")))
    parts, found = draw(decode_bodies() if kind == "decode" else prefill_bodies())
    values |= found
    opening = "Decode batch" if kind == "decode" else "Prefill batch"
    if draw(st.integers(0, 4)) == 0:
        values["iteration"] = draw(st.integers(0, 10**9))
        opening += f" [{values['iteration']}]"
    extra = {}
    if draw(st.integers(0, 4)) == 0:
        extra = {"iter latency (ms)": "20.0000"}
        parts.append("iter latency (ms): 20.0000")
    separator, tail = draw(st.sampled_from((". ", ", "))), draw(st.sampled_from(("", ", ", ",", " ")))
    values["extra"] = extra
    return Printed(f"{prefix}{opening}{separator}{', '.join(parts)}{tail}", kind, values)
