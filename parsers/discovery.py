"""Which files of a run folder are logs and traces: by their usual names first, by content where a name says nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profkit.errors import InputError
from profkit.escape import visible
from profkit.parsers.log.files import find_logs, in_rotation_order
from profkit.parsers.sniff import Content, content_of
from profkit.parsers.trace.many import find_traces

_CANDIDATE: Final = re.compile(r"(?P<json>.+\.json)|.+\.(?:log|txt|out)(?:\.\d+)?", re.IGNORECASE)
_PACKED: Final = re.compile(r"\.(?:gz|zst)\Z", re.IGNORECASE)
# Files with a meaning of their own, and folders beside the logs that usually hold traces.
_OTHERS: Final = frozenset(
    {"server_args.json", "server_info.json", "config.json", "model_config.json", "plan.json", "weekly.json"}
)
_TRACE_FOLDER: Final = re.compile(r"(?:torch[-_]?)?(?:trace|prof)", re.IGNORECASE)
_OF_NO_USE: Final[tuple[Content, ...]] = ("unknown", "unreadable")
_MOST: Final = 200
_NAMED: Final = 6
WORDS: Final[dict[Content, str]] = {
    "trace": "a trace",
    "server": "a server log",
    "bench": "benchmark output",
    "nccl": "NCCL output",
    "unknown": "no trace and no log that profkit knows",
    "unreadable": "unreadable",
}


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Logs (parts of a rotated one oldest first) and traces of a run folder.

    ``notes`` are sentences about files that were read because of their content, or look usable and were not read.
    ``seen`` are files of no use that a person may have meant, each with the reason.
    """

    logs: tuple[Path, ...]
    traces: tuple[Path, ...]
    notes: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.logs or self.traces)

    def nothing(self, folder: Path | str) -> str:
        """The sentence for a folder in which there is nothing to read."""
        text = f"{folder}: holds neither a server log (server*.log) nor a trace (*.trace.json[.gz])"
        return f"{text}; seen: {'; '.join(self.seen)}" if self.seen else text


def run_files(folder: Path | str) -> RunFiles:
    """The files of a run. Logs and traces with the usual names count, wherever they lie below the folder.

    Files of other names directly in it (``.json``, ``.log``, ``.txt``, ``.out``, also packed; traces also in a folder
    named like ``traces``) are looked into: a few hundred KiB each. They are used where no file of their kind has a
    usual name; output of NCCL and nccl-tests always is.
    """
    root = Path(folder)
    logs, traces = find_logs(root), find_traces(root)
    have: set[Content] = {_class_by_name(log) for log in logs}
    have |= {"trace"} if traces else set()
    known = {*logs, *traces}
    found = [(path, _content(path)) for path in _candidates(root) if path not in known]
    used = [(p, c) for p, c in found if c not in {*_OF_NO_USE, *(have - {"nccl"})}]
    left = [(p, c) for p, c in found if (p, c) not in used]
    spare = [(p, c) for p, c in left if c not in _OF_NO_USE]
    notes = []
    if used:
        notes.append(f"read because of their content: {_listed(used, root)}")
    if spare:
        why = (
            "since files with the usual names are there; rename them, or name them on the command line, if they belong"
        )
        notes.append(f"not read: {_listed(spare, root)}, {why}")
    return RunFiles(
        logs=tuple(in_rotation_order([*logs, *(p for p, c in used if c != "trace")])),
        traces=tuple(sorted([*traces, *(p for p, c in used if c == "trace")])),
        notes=tuple(notes),
        seen=tuple(_listed([one], root) for one in left[:_NAMED]) + (("...",) if len(left) > _NAMED else ()),
    )


def _class_by_name(log: Path) -> Content:
    name = log.name.lower()
    return "bench" if name.startswith("bench") else "nccl" if name.startswith("nccl") else "server"


def _candidates(root: Path) -> Iterator[Path]:
    """Files of no usual name that may be meant, in order."""
    inside = _listing(root)
    found = [p for p in inside if _may_be(p)]
    for sub in inside:
        if sub.is_dir() and not sub.name.startswith(".") and _TRACE_FOLDER.match(sub.name):
            found += [p for p in _listing(sub) if _may_be(p, only_json=True)]
    yield from found[:_MOST]


def _listing(folder: Path) -> list[Path]:
    """What lies in a folder, sorted; nothing where it cannot be looked into."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _may_be(path: Path, *, only_json: bool = False) -> bool:
    name = _PACKED.sub("", path.name)
    match = _CANDIDATE.fullmatch(name)
    if match is None or name.startswith(".") or name.lower() in _OTHERS or (only_json and not match["json"]):
        return False
    return path.is_file()


def _content(path: Path) -> Content:
    try:
        content = content_of(path)
    except InputError:
        return "unreadable"
    json = _PACKED.sub("", path.name).lower().endswith(".json")
    # A log under the name of a document is somebody's summary of one.
    return "unknown" if json and content != "trace" else content


def _listed(files: Sequence[tuple[Path, Content]], root: Path) -> str:
    shown = [f"{visible(p.relative_to(root).as_posix(), 80)} ({WORDS[c]})" for p, c in files[:_NAMED]]
    return ", ".join(shown) + (f" and {len(files) - _NAMED} more" if len(files) > _NAMED else "")
