"""Reads one file in a process of its own, so that ranks are read side by side and their memory is given back.

Run as ``python -c`` with a JSON task on standard input; prints one JSON object per line: progress, then the result.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import profkit
from profkit.errors import InputError

_CODE = "from profkit.parsers.trace.worker import main; main()"
_REPORT_EVERY = 1 << 24


def run(task: dict[str, Any], progress: Callable[[int], None]) -> None:
    """Run a task in a process: ``path``, ``member``, ``frames``, ``cpu_ops``, ``key`` and ``out`` (a folder).

    ``progress`` is called with the bytes read so far.

    Raises:
        InputError: the worker could not read its file, or died.
    """
    environment = dict(os.environ)
    home = str(Path(profkit.__file__).resolve().parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(p for p in (home, environment.get("PYTHONPATH")) if p)
    done = False
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, "-P", "-c", _CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        ) as process,
    ):
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(BrokenPipeError):  # it died at once; said below
                process.stdin.write(json.dumps(task))
                process.stdin.close()
            for line in process.stdout:
                message = json.loads(line)
                if "error" in message:
                    raise InputError(message["error"])
                progress(message["read"])
                done = message.get("done", False)
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        if code or not done:
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["it was killed"])[-1]
            raise InputError(f"{task['path']}: the process that read it ended early ({last}); try --jobs 1")


def main() -> None:
    """The worker itself."""
    from profkit.parsers.trace.cache import write_entry
    from profkit.parsers.trace.columns import CpuOps
    from profkit.parsers.trace.single import ReadOptions, read_file

    task = json.load(sys.stdin)
    reported = 0

    def say(message: dict[str, object]) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    def progress(read: int) -> None:
        nonlocal reported
        if read - reported >= _REPORT_EVERY:
            reported = read
            say({"read": read})

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
        say({"error": str(error)})
        return
    write_entry(Path(task["out"]), traces)
    say({"read": traces[0].info.bytes, "done": True})
