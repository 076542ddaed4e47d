"""The catalogue of levers: what people can change, as data that is validated when it is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, Literal, TypeAlias

import msgspec

from profkit.rules import load_rules
from profkit.words import Phase

FILES: Final = ("levers_speculation", "levers_allreduce", "levers_serving")
# Relative cost of an effort class: restart with other flags, install or upgrade, host or hardware, train or build.
EFFORT_COST: Final[Mapping[int, int]] = {1: 1, 2: 2, 3: 4, 4: 8}
EFFORT_WORDS: Final[Mapping[int, str]] = {
    1: "a restart",
    2: "an install or upgrade",
    3: "work on the host or a build",
    4: "training or days of work",
}
PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")
# Placeholders that the plan fills from the run; the others a person must choose.
FILLED: Final = frozenset({"steps", "rows", "tp", "half_tp", "batch", "break_even"})

Role: TypeAlias = Literal["lever", "fallback", "experiment"]
Evidence: TypeAlias = Literal["measured", "elsewhere_same_sm", "elsewhere", "model", "claim", "none"]
Risk: TypeAlias = Literal["low", "medium", "high"]
EffectModel: TypeAlias = Literal[
    "rows", "baseline", "accept_len", "curves", "nccl_model", "wait", "idle", "compute", "to_floor", "reported", "none"
]


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A condition on a measured quantity of the run; bounds are inclusive."""

    quantity: str
    why: str
    at_least: float | None = None
    at_most: float | None = None
    if_known: bool = False  # says nothing where the quantity is unknown


class ArgumentIs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"value": "is"}):
    """A condition on a server argument."""

    name: str
    value: str | int | bool
    why: str


class Gate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a lever can be pulled. ``since`` and ``until`` are sampled SGLang releases, both inclusive."""

    since: str | None = None
    until: str | None = None
    released: bool = True
    sm: tuple[str, ...] = ()
    tp: tuple[int, ...] = ()
    tp_at_least: int | None = None
    link: Literal["pcie", "nvlink"] | None = None
    vendor: Literal["nvidia", "amd"] | None = None
    dtype: str | None = None
    nccl_since: str | None = None
    speculative: bool | None = None
    algorithms: tuple[str, ...] = ()
    not_algorithms: tuple[str, ...] = ()
    topk: int | None = None
    topk_at_least: int | None = None
    dp_attention: bool | None = None
    moe: bool | None = None
    implementation: str | None = None
    custom_allreduce: bool | None = None
    gpu: bool | None = None
    arguments: tuple[ArgumentIs, ...] = ()
    asks: tuple[str, ...] = ()
    measured: tuple[Measured, ...] = ()


class Effect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the gain is computed. ``removed`` and ``factor`` run from the least to the most favourable case.

    ``causes`` are the causes of idle time that a lever can remove; all when none is named.
    """

    model: EffectModel
    why: str = ""
    curves: tuple[str, ...] = ()
    slack: float = 1.0
    removed: tuple[float, float, float] | None = None
    factor: tuple[float, float, float] | None = None
    relative: tuple[float, float, float] | None = None
    phases: tuple[Phase, ...] = ()
    causes: tuple[str, ...] = ()
    most: float | None = None


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody else measured or found out, with the address, date and hardware."""

    what: str
    hardware: str
    date: str
    address: str
    sm: str | None = None


class Lever(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to change. ``flags`` and ``env`` are added to the server's start, ``drop_flags`` taken out, ``host``
    are commands for a shell."""

    id: str
    title: str
    mechanism: str
    effort: int
    risk: Risk
    risk_why: str
    acceptance: str
    kill: str
    evidence: Evidence
    added: str
    gate: Gate
    effect: Effect
    role: Role = "lever"
    flags: tuple[str, ...] = ()
    drop_flags: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    needs_input: str | None = None
    depends: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    correctness: tuple[str, ...] = ()
    report: tuple[Report, ...] = ()

    @property
    def cost(self) -> int:
        """Relative cost of trying it."""
        return EFFORT_COST[self.effort]


class FlagTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """First and last sampled release that knows a server flag or an environment variable, and NCCL's documentation."""

    sampled: tuple[str, ...]
    flag: Mapping[str, tuple[str, str]]
    variable: Mapping[str, tuple[str, str]]
    nccl: Mapping[str, str]


@cache
def load_levers() -> tuple[Lever, ...]:
    """All levers, in the order of the files.

    Raises:
        ValueError: an entry that is incomplete or misspelt, or an id that is there twice.
    """
    levers: list[Lever] = []
    for name in FILES:
        for entry in load_rules(name)["lever"]:
            try:
                levers.append(msgspec.convert(entry, Lever, strict=False))
            except msgspec.ValidationError as error:
                raise ValueError(f"{name}.toml, lever {entry.get('id', '?')!r}: {error}") from error
    ids = [lever.id for lever in levers]
    if doubled := {i for i in ids if ids.count(i) > 1}:
        raise ValueError(f"levers with the same id: {', '.join(sorted(doubled))}")
    return tuple(levers)


@cache
def flag_table() -> FlagTable:
    """The table of ``flags.toml``."""
    return msgspec.convert(load_rules("flags"), FlagTable, strict=False)


def named_flags(lever: Lever) -> Iterator[str]:
    """Server flags that a lever names."""
    for text in (*lever.flags, *lever.drop_flags):
        yield text.split()[0]


def named_variables(lever: Lever) -> Iterator[str]:
    """Environment variables that a lever sets for the server."""
    for text in lever.env:
        yield text.partition("=")[0]


def version_key(version: str) -> tuple[int, ...]:
    """Order of releases: ``0.4.6.post5`` lies between ``0.4.6`` and ``0.4.7``; a candidate before its release."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", re.split(r"rc|dev|\+", version)[0]))
    padded = (*numbers, *([0] * (4 - len(numbers))))
    return (*padded, 0 if re.search(r"rc|dev", version) else 1)
