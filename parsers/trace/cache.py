"""Parsed traces kept on disk, by content: the second command on the same files reads them at once.

An entry is a folder of Arrow files, written under a temporary name and renamed, so that concurrent and interrupted
runs never see half of one. An index remembers the content hash of files by size, time and inode, so that a large
file is not hashed again. Everything here may fail without harm: then the trace is simply parsed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import ipc

from profkit import tables
from profkit.errors import Problem
from profkit.escape import encodable
from profkit.parsers.trace.info import coordinates, file_name
from profkit.parsers.trace.names import coordinates_of_label
from profkit.parsers.trace.single import ReadOptions
from profkit.trace import Trace, TraceInfo

# Raise it whenever the reader yields something else for the same file.
FORMAT = 3
FOLDER_VARIABLE, SIZE_VARIABLE = "PROFKIT_CACHE_DIR", "PROFKIT_CACHE_GB"
DEFAULT_GB = 4.0
# Entries of other versions of profkit are never read, but count and are removed like its own.
_OF_ANY_VERSION = "traces-v"
_ENTRIES, _INDEX, _INFO = f"{_OF_ANY_VERSION}{FORMAT}", "index", "entry.json"
_TEMPORARY = ".tmp-"
_ABANDONED_AFTER_S = 3600
# A file that changed this shortly before it was hashed could change again without a new time stamp.
_SETTLED_NS = 2_000_000_000
_BLOCK = 1 << 20
# What an entry may raise when it is damaged, removed meanwhile or from another version.
UNREADABLE = (
    OSError, pa.ArrowException, msgspec.MsgspecError, ValueError, KeyError, TypeError, AttributeError, RecursionError,
)  # fmt: skip


def folder() -> Path:
    """The cache's folder: ``PROFKIT_CACHE_DIR``, else ``profkit`` in the user's cache folder."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "profkit"
    try:
        return Path.home() / ".cache" / "profkit"
    except RuntimeError:  # a container's user without HOME and without an entry of its own
        place = Path(tempfile.gettempdir()) / f"profkit-cache-{os.getuid()}"
        with contextlib.suppress(OSError):
            if place.lstat().st_uid != os.getuid():  # anyone may have made it: then nothing is kept
                return Path(os.devnull) / "profkit"
        return place


def size_limit() -> int:
    """The size in bytes that the cache is kept below: ``PROFKIT_CACHE_GB``, else 4 GB."""
    try:
        return int(float(os.environ.get(SIZE_VARIABLE, "") or DEFAULT_GB) * 1e9)
    except (ValueError, OverflowError):
        return int(DEFAULT_GB * 1e9)


def hash_file(path: Path) -> str:
    """The sha256 of a file's content; ``OSError`` if it cannot be read."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Usage:
    """What the cache holds."""

    folder: Path
    entries: int
    bytes: int
    limit: int


class TraceCache:
    """The cache below one folder."""

    def __init__(self, root: Path | None = None, limit: int | None = None) -> None:
        self.root = folder() if root is None else root
        self.limit = size_limit() if limit is None else limit

    # --- keys -------------------------------------------------------------------------------------

    def content_key(self, path: Path) -> str:
        """The file's content hash, from the index when size, time and inode are unchanged."""
        stat = path.stat()
        known = {
            "size": stat.st_size,
            "mtime_ns": stat.st_mtime_ns,
            "inode": stat.st_ino,
            "device": stat.st_dev,
        }
        place = self.root / _INDEX / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]}.json"
        with contextlib.suppress(*UNREADABLE):
            found = json.loads(place.read_text(encoding="utf-8"))
            if {k: found[k] for k in known} == known and isinstance(found["sha256"], str):
                return str(found["sha256"])
        key = hash_file(path)
        if time.time_ns() - stat.st_mtime_ns > _SETTLED_NS:
            with contextlib.suppress(OSError):
                self._write_text(place, json.dumps(known | {"sha256": key}))
        return key

    @staticmethod
    def _write_text(place: Path, text: str) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=_TEMPORARY, dir=place.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(place)

    def entry(self, key: str, options: ReadOptions, member: str | None) -> Path:
        """The folder of an entry."""
        text = json.dumps([key, options.frames, options.cpu_ops, member])
        return self.root / _ENTRIES / hashlib.sha256(text.encode()).hexdigest()[:40]

    # --- entries ----------------------------------------------------------------------------------

    def load(self, path: str, key: str, options: ReadOptions, member: str | None) -> tuple[Trace, ...] | None:
        """The traces of a file, or ``None`` if they are not kept. ``path`` is the file's name for messages."""
        place = self.entry(key, options, member)
        if not place.is_dir():
            return None
        try:
            traces = read_entry(place, path)
        except UNREADABLE:
            self._discard(place)
            return None
        with contextlib.suppress(OSError):
            os.utime(place)
        return traces

    @contextlib.contextmanager
    def staging(
        self, key: str, options: ReadOptions, member: str | None, sound: Callable[[], bool] = lambda: True
    ) -> Iterator[Path]:
        """A temporary folder that becomes the entry when the block ends well and ``sound``, and is removed otherwise.

        Where the cache cannot be written the folder lies elsewhere and is removed in any case.
        """
        place = self.entry(key, options, member)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=place.parent))
        except OSError:
            with tempfile.TemporaryDirectory(prefix="profkit-") as elsewhere:
                yield Path(elsewhere)
            return
        try:
            yield temporary
            if sound():
                with contextlib.suppress(OSError):  # a concurrent run was first
                    temporary.rename(place)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._shrink(keep=place)

    def store(
        self,
        key: str,
        options: ReadOptions,
        member: str | None,
        traces: Sequence[Trace],
        sound: Callable[[], bool] = lambda: True,
    ) -> None:
        """Keep the traces of a file, if they are ``sound``; does nothing where there is no room for it."""
        with contextlib.suppress(OSError, pa.ArrowException), self.staging(key, options, member, sound) as place:
            write_entry(place, traces)

    def _discard(self, place: Path) -> None:
        """Remove an entry at once under its name, then its files."""
        with contextlib.suppress(OSError):
            away = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=place.parent))
            with contextlib.suppress(OSError):
                place.rename(away / "entry")
            shutil.rmtree(away, ignore_errors=True)

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Time of last use, size and folder of each entry; abandoned temporary folders are removed on the way."""
        with contextlib.suppress(OSError):
            for place in sorted(self.root.glob(f"{_OF_ANY_VERSION}*/*")):
                with contextlib.suppress(OSError):
                    used = place.stat().st_mtime
                    if place.name.startswith(_TEMPORARY):
                        if time.time() - used > _ABANDONED_AFTER_S:
                            shutil.rmtree(place, ignore_errors=True)
                    else:
                        yield used, sum(f.stat().st_size for f in place.iterdir()), place

    def _shrink(self, keep: Path) -> None:
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for _, size, place in entries:
            if total <= self.limit:
                break
            if place != keep:
                self._discard(place)
                total -= size

    def usage(self) -> Usage:
        """What the cache holds now."""
        entries = list(self._entries())
        return Usage(self.root, len(entries), sum(size for _, size, _ in entries), self.limit)

    def clear(self) -> Usage:
        """Remove everything that this program keeps below the folder; returns what was there."""
        before = self.usage()
        if self.root.is_dir():
            for place in self.root.iterdir():
                if place.is_dir() and (place.name == _INDEX or place.name.startswith(_OF_ANY_VERSION)):
                    shutil.rmtree(place, ignore_errors=True)
        return before


# --- entries as files -----------------------------------------------------------------------------


def write_entry(place: Path, traces: Sequence[Trace], *, compressed: bool = True) -> None:
    """Write traces into an existing folder; what is read once and removed need not be ``compressed`` and is not
    protected by checksums."""
    options = ipc.IpcWriteOptions(compression="zstd" if compressed else None)
    sums: dict[str, str] = {}
    for number, trace in enumerate(traces):
        for name in tables.TRACE_TABLES:
            table = getattr(trace, name)
            if table is not None:
                file = place / f"{number}.{name}.arrow"
                with ipc.new_file(str(file), table.schema, options=options) as sink:
                    sink.write_table(table)
                if compressed:
                    sums[file.name] = hash_file(file)
    listed = [{"label": t.extra.get("label"), "info": msgspec.to_builtins(t.info)} for t in traces]
    text = json.dumps({"sums": sums, "traces": listed})
    (place / _INFO).write_text(f"{_sum(text)}\n{text}", encoding="utf-8")


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read_entry(place: Path, path: str) -> tuple[Trace, ...]:
    """Read what :func:`write_entry` wrote, for a file that is now called ``path``.

    A table with a flipped bit would often be read without an error, as other figures: everything is compared with its
    checksum first.

    Raises:
        UNREADABLE: the entry is damaged.
    """
    own, _, text = (place / _INFO).read_text(encoding="utf-8").partition("\n")
    if own != _sum(text):
        raise ValueError(f"{place}: damaged")
    entry = json.loads(text)
    return tuple(_read_one(place, number, found, path, entry["sums"]) for number, found in enumerate(entry["traces"]))


def _table(file: Path, checksum: str | None) -> pa.Table:
    if checksum is None:
        with pa.OSFile(str(file), "rb") as source, ipc.open_file(source) as reader:
            return reader.read_all()
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != checksum:
        raise ValueError(f"{file}: damaged")
    with ipc.open_file(pa.BufferReader(data)) as reader:
        return reader.read_all()


def _read_one(place: Path, number: int, found: dict[str, Any], path: str, sums: dict[str, str]) -> Trace:
    made: dict[str, pa.Table] = {}
    for name, schema in tables.TRACE_TABLES.items():
        file = place / f"{number}.{name}.arrow"
        if name == "frames" and not file.exists():
            continue
        made[name] = _table(file, sums.get(file.name))
        if made[name].schema != schema:
            raise ValueError(f"{file}: another schema")
    info = _info(found["info"], found["label"], path)
    return Trace(
        info=info,
        gpu_ops=made["gpu_ops"],
        launches=made["launches"],
        annotations=made["annotations"],
        cpu_ops=made["cpu_ops"],
        collectives=made["collectives"],
        processes=made["processes"],
        frames=made.get("frames"),
        extra={"label": found["label"]} if found["label"] else {},
    )


def _info(values: dict[str, Any], label: str | None, path: str) -> TraceInfo:
    """The facts of an entry; what a file's name says is read from its present name."""
    problems = tuple(Problem(**p) for p in values.pop("problems"))
    devices = tuple(values.pop("devices"))
    info = TraceInfo(**values, problems=problems, devices=devices)
    where = coordinates(
        file_name(path), coordinates_of_label(label) if label else None, {"distributedInfo": info.distributed}
    )
    return replace(
        info,
        path=encodable(path),
        rank=where.rank,
        dp=where.dp,
        tp=where.tp,
        pp=where.pp,
        ep=where.ep,
        stage=where.stage,
        profile_id=where.profile,
        engine=where.engine or info.engine,
    )
