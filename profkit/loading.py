"""Loading a run: a folder (or single files) of logs and traces becomes a :class:`profkit.run.Run`."""

from __future__ import annotations

import datetime as dt
import hashlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from profkit import facts as gather
from profkit.errors import InputError
from profkit.escape import encodable
from profkit.files import each_once, named_again
from profkit.jsonio import loads
from profkit.logs import LogTables
from profkit.parsers.discovery import RunFiles, run_files
from profkit.parsers.log import find_logs, read_log
from profkit.parsers.server_args import read_server_args_json
from profkit.parsers.sniff import is_trace
from profkit.parsers.trace import read_traces
from profkit.run import Fact, Run
from profkit.tables import LOG_TABLES
from profkit.trace import Trace

RUN_FILE = "run.toml"
ARGUMENT_FILES = ("server_args.json", "server_info.json")
CONFIG_FILES = ("config.json", "model_config.json")


@dataclass(frozen=True, slots=True)
class _Description:
    """What ``run.toml`` says."""

    document: Mapping[str, Any] = field(default_factory=dict)

    def text(self, key: str) -> str | None:
        value = self.document.get(key)
        if isinstance(value, dt.date):
            return value.isoformat()[:10]
        return None if value is None else str(value)

    def labels(self) -> dict[str, str]:
        labels = self.document.get("labels")
        return {str(k): str(v) for k, v in labels.items()} if isinstance(labels, Mapping) else {}


def _describe(folder: Path) -> _Description:
    path = folder / RUN_FILE
    if not path.is_file():
        return _Description()
    try:
        return _Description(tomllib.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid TOML ({error}); mend or remove the file") from error


def _json_object(path: Path) -> dict[str, Any]:
    try:
        document = loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error}); mend or remove the file") from error
    return document if isinstance(document, dict) else {}


def _first_file(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _argument_file(folder: Path) -> Path | None:
    found = _first_file(folder, ARGUMENT_FILES)
    # SGLang's profiler leaves server_args.json beside its traces, below the run.
    return found or next(iter(sorted(folder.rglob("server_args.json"))), None)


def _main_server_row(log: LogTables | None) -> dict[str, Any] | None:
    """The server that most decode lines belong to."""
    if log is None or log.server.num_rows == 0:
        return None
    lines: dict[int | None, int] = {}
    for server in log.decode.column("server").to_pylist():
        lines[server] = lines.get(server, 0) + 1
    rows: list[dict[str, Any]] = log.server.to_pylist()
    return max(rows, key=lambda row: lines.get(row["server"], 0))


def _several_logs(log: LogTables | None) -> str | None:
    """Two logs of decoding servers that are no parts of one another, in one folder: a run is one launch."""
    if log is None:
        return None
    goes_on = {row["file"] for row in log.server.to_pylist() if row.get("continues")}
    counted: Any = pc.value_counts(log.decode.column("file"))
    lines = {str(found["values"]): int(found["counts"]) for found in counted.to_pylist()}
    logs = sorted(set(lines) - goes_on)
    if len(logs) < 2:
        return None
    shown = ", ".join(logs[:4]) + (", ..." if len(logs) > 4 else "")
    most = max(logs, key=lambda name: lines[name])
    return (
        f"logs of {len(logs)} servers in one run ({shown}): figures of the log are those of the launch with most "
        f"decode lines, in {most}; give each launch a folder of its own"
    )


def _first_date(log: LogTables | None) -> str | None:
    if log is None:
        return None
    for table in (log.decode, log.prefill, log.event, log.server):
        for moment in table.column("timestamp").drop_null().slice(0, 1).to_pylist():
            if isinstance(moment, dt.datetime):
                return moment.date().isoformat()
    return None


def _content_key(logs: Sequence[Path], traces: Sequence[Trace], extra: Sequence[Path], root: Path) -> str:
    digest = hashlib.sha256()

    def name(path: Path) -> str:
        return encodable(path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name)

    for path in sorted([*logs, *extra]):
        with path.open("rb") as stream:
            digest.update(f"{name(path)}\0{hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
    for trace in traces:
        digest.update(f"{trace.info.path}\0{trace.info.content_key}\n".encode())
    return digest.hexdigest()


def _shown(path: str, root: Path) -> str:
    """A path as seen from the run, so that a document does not depend on where the run lies."""
    found, root = Path(path), Path(encodable(str(root)))
    return found.relative_to(root).as_posix() if found.is_relative_to(root) else found.name


def _relative_traces(traces: Sequence[Trace], root: Path) -> tuple[Trace, ...]:
    return tuple(replace(t, info=replace(t.info, path=_shown(t.info.path, root))) for t in traces)


def _relative_log(log: LogTables, root: Path) -> LogTables:
    def relative(table: pa.Table) -> pa.Table:
        position = table.schema.get_field_index("file")
        column = table.column("file").combine_chunks().dictionary_encode()
        names = pa.array([_shown(str(name), root) for name in column.dictionary.to_pylist()], pa.string())
        field = table.schema.field(position)
        return table.set_column(position, field, pa.DictionaryArray.from_arrays(column.indices, names).cast(field.type))

    return replace(
        log,
        files=tuple(replace(file, path=_shown(file.path, root)) for file in log.files),
        **{name: relative(log.table(name)) for name in LOG_TABLES},
    )


def _refuse_several_runs(root: Path, logs: Sequence[Path]) -> None:
    """One run's trace set against another's log gives figures of neither."""
    if (root / RUN_FILE).is_file():
        return
    inside = {p.relative_to(root).parts[0] for p in root.rglob(RUN_FILE)}
    if len(inside) < 2:
        inside = {p.relative_to(root).parts[0] for p in logs if p.parent != root}
    if len(inside) > 1 and all(p.parent != root for p in logs):
        shown = ", ".join(sorted(inside)[:4]) + (", ..." if len(inside) > 4 else "")
        raise InputError(
            f"{root}: holds {len(inside)} runs ({shown}); name one of them, or put a {RUN_FILE} here if all are one run"
        )


def load_run(
    path: Path | str,
    *,
    frames: bool = False,
    jobs: int | None = None,
    cache: bool = True,
    progress: Callable[[float], None] | None = None,
) -> Run:
    """Load a run folder, a single log or a single trace.

    Args:
        path: a folder with ``server*.log``, ``*.trace.json[.gz]`` (anywhere below), optional ``bench*.jsonl``,
            ``nccl*.log``, ``server_args.json``, ``config.json`` and ``run.toml``; or one file. Files directly in the
            folder whose names say nothing are told by their content.
        frames: read Python frames of traces too.
        jobs: processes for reading traces; as many as fit when ``None``.
        cache: keep and use parsed traces.
        progress: called with the share of the traces read since the last call.

    Raises:
        InputError: nothing usable at ``path``, or several runs.
    """
    root = Path(path)
    if not root.exists():
        raise InputError(f"{root}: no such file or folder")
    folder = root if root.is_dir() else root.parent
    if root.is_dir():
        _refuse_several_runs(root, find_logs(root))
        files = run_files(root)
        if not files:
            raise InputError(files.nothing(root))
    else:
        if not root.is_file():
            raise InputError(f"{root}: is a pipe or a device, and a run is read more than once; save it as a file")
        files = RunFiles((), (root,)) if is_trace(root) else RunFiles((root,), ())
    (logs, again), (trace_files, again_traced) = each_once(files.logs), each_once(files.traces)
    said = [*files.notes, *(str(named_again(left_out)) for left_out in (again, again_traced) if left_out)]
    log = read_log(logs) if logs else None
    traces = read_traces(trace_files, frames=frames, jobs=jobs, cache=cache, progress=progress) if trace_files else ()
    traces = _relative_traces(traces, folder)
    log = _relative_log(log, folder) if log is not None else None
    if several := _several_logs(log):
        said.append(several)
    description = _describe(root) if root.is_dir() else _Description()
    extra: list[Path] = []
    places: list[Mapping[str, Fact]] = [gather.from_run_toml(description.document, RUN_FILE)]
    if root.is_dir():
        if description.document:
            extra.append(root / RUN_FILE)
        if arguments := _argument_file(root):
            extra.append(arguments)
            places.append(gather.from_server_args(read_server_args_json(arguments), arguments.name))
    if row := _main_server_row(log):
        places.append(gather.from_server_row(row))
    if root.is_dir() and (config := _first_file(root, CONFIG_FILES)):
        extra.append(config)
        places.append(gather.from_model_config(_json_object(config), config.name))
    places.append(gather.from_traces(traces))
    return Run(
        name=description.text("name") or encodable(root.resolve().name if root.is_dir() else root.name),
        path=encodable(str(path)),
        facts=gather.merge(places),
        log=log,
        traces=traces,
        config=description.text("config"),
        date=description.text("date") or _first_date(log),
        labels=description.labels(),
        warnings=tuple(said),
        content_key=_content_key(logs, traces, extra, folder),
    )
