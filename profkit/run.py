"""A run: one folder with the logs and traces of one server launch, and what is known about it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from profkit.logs import LogTables
from profkit.trace import Trace


@dataclass(frozen=True, slots=True)
class Fact:
    """A value of the system under test and where it was read (``run.toml``, ``server.log:12``)."""

    value: str | int | float | bool
    source: str


@dataclass(frozen=True, slots=True)
class Facts(Mapping[str, Fact]):
    """What is known about the system under test, by dotted name; a missing key is unknown.

    Names in use: ``model.name``, ``model.layers``, ``model.moe_layers``, ``model.hidden_size``, ``model.experts``,
    ``model.experts_per_token``, ``model.expert_intermediate_size``, ``model.activation_bytes`` (of one activation
    element), ``model.weight_bytes`` (per routed-expert parameter), ``model.dense_weight_bytes`` (of all weights read by
    every token, all ranks together), ``model.kv_bytes_per_token`` (that one GPU reads per cached token, all layers;
    else from ``model.kv_latent_size`` and ``model.kv_rope_size``, or ``model.kv_heads`` and ``model.head_size``),
    ``speculative.algorithm``, ``speculative.num_steps``, ``speculative.topk``,
    ``speculative.num_draft_tokens``, ``speculative.draft_model``, ``parallel.tp|dp|pp|ep``, ``parallel.dp_attention``,
    ``engine.name``, ``engine.version``, ``engine.version_low``, ``engine.version_high``, ``gpu.name``, ``gpu.count``,
    ``gpu.sm`` (as ``120``), ``gpu.memory_bandwidth_gb_s``, ``gpu.power_cap_w``, ``link.kind`` (``pcie`` or ``nvlink``),
    ``link.p2p`` (bool), ``nccl.version``, ``driver.version``, ``model.quantization``, ``model.dtype``, and
    ``server_args.<name>`` for each server argument.
    """

    facts: Mapping[str, Fact] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Fact:
        return self.facts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.facts)

    def __len__(self) -> int:
        return len(self.facts)

    def number(self, key: str) -> float | None:
        """The fact as a finite number, or ``None`` when it is unknown or no number."""
        fact = self.facts.get(key)
        if fact is None or isinstance(fact.value, bool | str):
            return None
        try:
            number = float(fact.value)
        except OverflowError:  # TOML and JSON hold integers of any length
            return None
        return number if math.isfinite(number) else None

    def integer(self, key: str) -> int | None:
        """The fact as an integer, or ``None``."""
        number = self.number(key)
        return int(number) if number is not None and number == int(number) else None

    def text(self, key: str) -> str | None:
        """The fact as text, or ``None``."""
        fact = self.facts.get(key)
        return None if fact is None else str(fact.value)

    def flag(self, key: str) -> bool | None:
        """The fact as a truth value, or ``None`` when it is unknown or no truth value."""
        fact = self.facts.get(key)
        return fact.value if fact is not None and isinstance(fact.value, bool) else None


def release_span(low: str | None, high: str | None) -> str | None:
    """Releases from ``low`` to ``high``, both included, in words: one release, a range, or open at one end."""
    if low is None or high is None:
        return f"{low} or later" if low else f"up to {high}" if high else None
    return low if low == high else f"{low} to {high}"


def engine_release(facts: Mapping[str, Fact]) -> str | None:
    """The engine's version as stated, else the range that was inferred, in words; ``None`` when nothing is known."""
    known = {key: str(fact.value) for key, fact in facts.items()}
    return known.get("engine.version") or release_span(
        known.get("engine.version_low"), known.get("engine.version_high")
    )


@dataclass(frozen=True, slots=True)
class Run:
    """A loaded run. ``path`` is as the user gave it; paths inside are relative to it."""

    name: str
    path: str
    facts: Facts
    log: LogTables | None
    traces: tuple[Trace, ...]
    config: str | None = None
    date: str | None = None  # ISO date from run.toml, else of the first dated log line; never the clock
    labels: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    content_key: str | None = None  # sha256 over names and contents of the files read
