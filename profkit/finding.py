"""A finding: something an engineer should know, with the evidence that shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["info", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    ``kind`` is a stable snake_case name, ``sentence`` says it to a person, ``evidence`` points
    to it (``server.log:120``, ``rank0.json.gz cycle 7``), ``numbers`` are bare figures whose keys end in
    their unit.
    """

    kind: str
    severity: Severity
    sentence: str
    evidence: tuple[str, ...] = ()
    numbers: dict[str, float | int | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The finding as JSON."""
        return {
            "kind": self.kind,
            "severity": self.severity,
            "sentence": self.sentence,
            "evidence": list(self.evidence),
            "numbers": dict(self.numbers),
        }
