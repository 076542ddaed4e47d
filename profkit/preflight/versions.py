"""Which features an SGLang release has; the table is ``rules/capture.toml``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from profkit.preflight.result import RunFound
from profkit.rules import load_rules
from profkit.run import release_span


def version_key(version: str) -> tuple[int, ...]:
    """A sortable form of ``0.4.6.post5``."""
    return tuple(int(n[:18]) for n in re.findall(r"\d+", version))  # no version has longer numbers


def has_feature(version: str, name: str) -> bool:
    """Whether a release has a feature of ``capture.toml``; ``KeyError`` for a feature that is not listed."""
    for feature in load_rules("capture")["feature"]:
        if feature["name"] == name:
            return version_key(version) >= version_key(feature["since"])
    raise KeyError(name)


def least_release(annotations: Iterable[str]) -> str | None:
    """The oldest release that writes such host annotations; ``None`` if they tell nothing."""
    names = list(annotations)
    for dialect in load_rules("capture")["dialect"]:
        pattern = re.compile(dialect["pattern"])
        if any(pattern.search(name) for name in names):
            return str(dialect["since"])
    return None


@dataclass(frozen=True, slots=True)
class Release:
    """The release that commands are written for, and how it is known."""

    version: str
    note: str

    def has(self, feature: str) -> bool:
        """Whether it has a feature."""
        return has_feature(self.version, feature)


def release_of(runs: Sequence[RunFound]) -> Release:
    """The oldest release among the runs: what it can do, newer ones can."""
    exact = [r.version for r in runs if r.version and r.engine in (None, "sglang")]
    if exact:
        oldest = min(exact, key=version_key)
        return Release(oldest, f"commands are for SGLang {oldest}, as the files state")
    lows = [r for r in runs if r.version_low and r.engine in (None, "sglang")]
    if lows:
        run = min(lows, key=lambda r: version_key(r.version_low or ""))
        span = release_span(run.version_low, run.version_high)
        note = f"commands are for SGLang {run.version_low}: the files look like {span}"
        return Release(run.version_low or "", note)
    newest = load_rules("capture")["newest_known"]
    return Release(newest, f"the files do not tell SGLang's version: commands are for {newest}; older ones may differ")
