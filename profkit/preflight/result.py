"""What ``profkit doctor`` found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

State: TypeAlias = Literal["answerable", "partly", "not"]


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether one question can be answered; ``because`` says what is there and what is missing."""

    number: int
    question: str
    state: State
    because: tuple[str, ...]
    captures: tuple[str, ...] = ()  # ids of the captures that would help

    def to_json(self) -> dict[str, object]:
        """An entry of ``answers``."""
        return {
            "number": self.number,
            "question": self.question,
            "state": self.state,
            "because": list(self.because),
            "captures": list(self.captures),
        }


@dataclass(frozen=True, slots=True)
class Capture:
    """Something to record: why, and the commands."""

    id: str
    title: str
    why: str
    commands: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """An entry of ``captures``."""
        return {"id": self.id, "title": self.title, "why": self.why, "commands": list(self.commands)}


@dataclass(frozen=True, slots=True)
class TraceFound:
    """One trace among the inputs."""

    path: str
    kind: str
    rank: int | None
    stage: str | None
    gpu_ops: int
    python_frames: bool
    labels: Literal["annotations", "frames", "graphs"] | None
    decode_steps: int | None  # annotated target forwards; None where nothing annotates them
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunFound:
    """One run among the inputs, as far as it matters here. Unknown is ``None``."""

    name: str
    path: str
    engine: str | None
    version: str | None
    version_low: str | None
    version_high: str | None
    speculative: bool | None
    algorithm: str | None
    num_draft_tokens: int | None
    ranks: int | None  # processes that should have written a trace
    launches: int  # server starts in the logs; a log without a start counts as one
    decode_lines: int  # steady ones
    batch_sizes: tuple[int, ...]  # running requests with enough steady lines
    accept_length_known: bool
    bench_rows: int
    nccl_debug_rows: int
    nccl_test_rows: int
    traces: tuple[TraceFound, ...]
    hidden_size: int | None
    layers: int | None
    port: int | None
    warnings: tuple[str, ...] = ()
    contexts: Mapping[int, float] = field(default_factory=dict)  # KV tokens per request by batch size, where logged
    system: Mapping[str, str] = field(default_factory=dict)  # facts that identify it, see comparison.system

    def to_json(self) -> dict[str, object]:
        """An entry of ``runs``."""
        return {
            "name": self.name,
            "path": self.path,
            "engine": self.engine,
            "version": self.version,
            "version_range": [self.version_low, self.version_high],
            "speculative": self.speculative,
            "algorithm": self.algorithm,
            "num_draft_tokens": self.num_draft_tokens,
            "ranks": self.ranks,
            "launches": self.launches,
            "decode_lines": self.decode_lines,
            "batch_sizes": list(self.batch_sizes),
            "accept_length_known": self.accept_length_known,
            "bench_rows": self.bench_rows,
            "nccl_debug_rows": self.nccl_debug_rows,
            "nccl_test_rows": self.nccl_test_rows,
            "hidden_size": self.hidden_size,
            "layers": self.layers,
            "context_tokens": {str(size): tokens for size, tokens in self.contexts.items()},
            "system": {name: value or None for name, value in self.system.items()},
            "traces": [
                {
                    "path": t.path,
                    "kind": t.kind,
                    "rank": t.rank,
                    "stage": t.stage,
                    "gpu_ops": t.gpu_ops,
                    "python_frames": t.python_frames,
                    "labels": t.labels,
                    "decode_steps": t.decode_steps,
                    "problems": list(t.problems),
                }
                for t in self.traces
            ],
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The whole result."""

    runs: tuple[RunFound, ...]
    answers: tuple[Answer, ...]
    captures: tuple[Capture, ...]
    version_note: str
    warnings: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every question can be answered in full."""
        return all(a.state == "answerable" for a in self.answers)

    def to_json(self) -> dict[str, object]:
        """The document ``profkit.doctor/1``."""
        return {
            "schema": "profkit.doctor/1",
            "runs": list(self.runs),
            "answers": list(self.answers),
            "captures": list(self.captures),
            "version_note": self.version_note,
            "warnings": list(self.warnings),
        }
