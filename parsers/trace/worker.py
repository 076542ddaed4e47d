"""Reads files in processes of their own, so that ranks are read side by side.

A worker is started as ``python -c``; it takes one JSON task per line on standard input, and prints one JSON object per
line: progress, then the result.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import profkit
from profkit.errors import InputError

_CODE = "from profkit.parsers.trace.worker import main; main()"
_REPORT_EVERY = 1 << 24


class UnwrittenError(OSError):
    """A worker read its file and could not write the tables: the disk is full, or the folder was removed."""


class _Worker:
    """One process; it is started again after it died."""

    def __init__(self) -> None:
        self._opened = contextlib.ExitStack()
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            environment = dict(os.environ)
            home = str(Path(profkit.__file__).resolve().parent.parent)
            environment["PYTHONPATH"] = os.pathsep.join(p for p in (home, environment.get("PYTHONPATH")) if p)
            errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - entered here
            self._errors = self._opened.enter_context(errors)
            self._process = self._opened.enter_context(
                subprocess.Popen(  # noqa: S603 - this very program
                    [sys.executable, "-P", "-c", _CODE],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    text=True,
                    env=environment,
                )
            )
        return self._process

    def run(self, task: dict[str, Any], progress: Callable[[int], None]) -> None:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # it died at once; said below
                process.stdin.write(json.dumps(task) + "\n")
                process.stdin.flush()
            for line in process.stdout:
                message = json.loads(line)
                if "error" in message:
                    raise InputError(message["error"])
                if "unwritten" in message:
                    raise UnwrittenError(message["unwritten"])
                progress(message["read"])
                if message.get("done"):
                    return
        except (InputError, UnwrittenError):
            raise
        except BaseException:
            process.kill()
            raise
        process.wait()
        assert self._errors is not None
        self._errors.seek(0)
        last = (self._errors.read().strip().splitlines() or ["it was killed"])[-1]
        self.close()
        raise InputError(f"{task['path']}: the process that read it ended early ({last}); try --jobs 1")

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process = None
        self._opened.close()


class Workers:
    """A process for each thread that asks for one; to be closed by a ``with`` block."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: list[_Worker] = []

    def run(self, task: dict[str, Any], progress: Callable[[int], None]) -> None:
        """Run a task in this thread's process: ``path``, ``member``, ``frames``, ``cpu_ops``, ``key``, ``out`` (a
        folder) and ``compressed`` (whether the tables are written so).

        ``progress`` is called with the bytes read so far.

        Raises:
            InputError: the worker could not read its file, or died.
            UnwrittenError: it read the file, but there is no room for the tables.
        """
        worker: _Worker | None = getattr(self._local, "worker", None)
        if worker is None:
            worker = self._local.worker = _Worker()
            with self._lock:
                self._all.append(worker)
        worker.run(task, progress)

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._all:
            worker.close()


def main() -> None:
    """The worker itself."""
    # Whoever started it is the one to be interrupted.
    with contextlib.suppress(KeyboardInterrupt):
        for line in sys.stdin:
            _serve(json.loads(line))


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _serve(task: dict[str, Any]) -> None:
    import pyarrow as pa

    from profkit.parsers.trace.cache import write_entry
    from profkit.parsers.trace.columns import CpuOps
    from profkit.parsers.trace.single import ReadOptions, read_file

    reported = 0

    def progress(read: int) -> None:
        nonlocal reported
        if read - reported >= _REPORT_EVERY:
            reported = read
            _say({"read": read})

    cpu_ops: CpuOps = "collectives" if task["cpu_ops"] == "collectives" else "all"
    try:
        traces = read_file(
            task["path"],
            ReadOptions(frames=task["frames"], cpu_ops=cpu_ops),
            member=task["member"],
            content_key=task["key"],
            progress=progress,
        )
    except InputError as error:
        _say({"error": str(error)})
        return
    try:
        write_entry(Path(task["out"]), traces, compressed=task["compressed"])
    except (OSError, pa.ArrowException) as error:
        _say({"unwritten": str(error)})
        return
    _say({"read": traces[0].info.bytes, "done": True})
