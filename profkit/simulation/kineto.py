"""Writes one rank's recording as Kineto's own JSON writer lays it out (CUDA 13, February 2026)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from profkit.simulation.dialects import outer_frames
from profkit.simulation.engine import SCHEDULE_STREAM, Block, Host
from profkit.simulation.ops import Op
from profkit.simulation.scenario import Scenario
from profkit.simulation.simulate import Simulation, recorded_offset_ns

# Kineto counts from the start of a period of three average Gregorian months (3 x 2629746 s).
_PERIOD_S = 7_889_238


def start_seconds(scenario: Scenario) -> int:
    """Wall clock of the server's start, UTC seconds."""
    text = f"{scenario.recording.date} {scenario.recording.time}"
    return int(datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp())


def base_ns(seconds: int) -> int:
    """``baseTimeNanoseconds`` for a recording at this time."""
    return seconds // _PERIOD_S * _PERIOD_S * 1_000_000_000


@dataclass(slots=True)
class TraceWriter:
    """The text of one rank's trace. ``recorded_at_s`` is the wall clock of true time 0."""

    simulation: Simulation
    rank: int
    recorded_at_s: int
    trace_name: str
    _static: dict[tuple[int, int], tuple[str, str, str]] = field(default_factory=dict)

    @property
    def scenario(self) -> Scenario:
        return self.simulation.scenario

    @property
    def pid(self) -> int:
        return 31_200 + 7 * self.rank

    def chunks(self) -> Iterator[str]:
        """The file in pieces."""
        yield self._header()
        yield from self._host_events()
        yield from self._device_events()
        yield from self._footer()

    # Pieces ----------------------------------------------------------------------------------------------------

    def _shift(self) -> int:
        return (
            self.recorded_at_s * 1_000_000_000
            - base_ns(self.recorded_at_s)
            + recorded_offset_ns(self.scenario, self.rank)
        )

    @staticmethod
    def _us(ns: int) -> str:
        return f"{ns // 1000}.{ns % 1000:03d}"

    def _identity(self) -> str:
        text = f"{self.scenario.name}/{self.scenario.seed}/{self.rank}"
        return hashlib.sha256(text.encode()).hexdigest()[:32].upper()

    def _header(self) -> str:
        hardware, ranks = self.scenario.hardware, self.scenario.ranks
        devices = ",".join(
            f"""
    {{
      "id": {device}, "name": "{hardware.gpu}", "totalGlobalMem": {hardware.memory_bytes},
      "computeMajor": {hardware.sm // 10}, "computeMinor": {hardware.sm % 10},
      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 1536,
      "regsPerBlock": 65536, "warpSize": 32,
      "sharedMemPerBlock": 49152, "numSms": {hardware.multiprocessors}
    , "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 101376, "sharedMemPerMultiprocessor": 102400
    }}"""
            for device in range(ranks)
        )
        cuda = int(float(hardware.cuda) * 1000)
        everyone = list(range(ranks))
        groups = [
            {"pg_name": name, "pg_desc": desc, "backend_config": backend, "pg_size": ranks, "ranks": everyone}
            for name, desc, backend in (
                ("0", "default_pg", "cuda:nccl"), ("1", "world:device", "cuda:nccl"), ("2", "world:cpu", "cpu:gloo"),
                ("3", "tp:device", "cuda:nccl"), ("4", "tp:cpu", "cpu:gloo"),
            )
        ]  # fmt: skip
        distributed = {
            "backend": "nccl", "rank": self.rank, "world_size": ranks, "pg_count": len(groups), "pg_config": groups,
            "nccl_version": hardware.nccl,
        }  # fmt: skip
        stack = '\n      "with_stack": 1,' if self.scenario.recording.python_stacks else ""
        return f"""
  {{
    "schemaVersion": 1,
    "deviceProperties": [{devices}
    ],
      "cupti_version": 130000,
      "cuda_runtime_version": {cuda},
      "cuda_driver_version": {cuda},{stack}
      "trace_id": "{self._identity()}",
      "distributedInfo": {json.dumps(distributed)},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": {base_ns(self.recorded_at_s)},
  "traceEvents": ["""

    def _kept_host(self) -> list[Host]:
        evidence = self.scenario.recording.evidence
        if evidence not in ("host", "launches"):
            return []
        first = self.simulation.recorded.start_ns[self.rank]
        return [
            h
            for h in self.simulation.machine.host
            if int(h.start[self.rank]) >= first and (evidence == "host" or h.category.startswith("cuda_"))
        ]

    def _host_events(self) -> Iterator[str]:
        """Operators, annotations and frames, in the order in which they began."""
        shift, pid, rank = self._shift(), self.pid, self.rank
        events = sorted(
            (h for h in self._kept_host() if not h.category.startswith("cuda_")), key=lambda h: int(h.start[rank])
        )
        index = 0
        frames: list[tuple[int, int]] = []  # id and end of the frames around
        python = 0

        def event_text(category: str, name: str, start: int, end: int, external: int) -> str:
            nonlocal index, python
            if category == "python_function":
                while frames and frames[-1][1] <= start:
                    frames.pop()
                python += 1
                args = f'"Python parent id": {frames[-1][0] if frames else "null"}, "Python id": {python}'
                frames.append((python, end))
            else:
                args = f'"External id": {external},"Record function id": 0'
            text = f"""
  {{
    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {pid},
    "ts": {self._us(start + shift)}, "dur": {self._us(end - start)},
    "args": {{
      {args}, "Ev Idx": {index}
    }}
  }},"""
            index += 1
            return text

        if self.scenario.recording.python_stacks and self.scenario.recording.evidence == "host":
            recorded = self.simulation.recorded
            begin, stop = recorded.start_ns[rank], recorded.stop_ns[rank]
            for place, name in enumerate(outer_frames()):
                yield event_text("python_function", name, begin - 900 + 200 * place, stop - 200 * place, 0)
            for event in self.simulation.machine.host:
                if event.category == "python_function" and event.start[rank] < begin < event.end[rank]:
                    yield event_text(event.category, event.name, begin - 200, int(event.end[rank]), 0)
        for event in events:
            yield event_text(event.category, event.name, int(event.start[rank]), int(event.end[rank]), event.external)

    def _runtime(self, event: Host, shift: int) -> str:
        start = int(event.start[self.rank])
        link = f'"External id": {event.external},' if event.external else ""
        text = f"""
  {{
    "ph": "X", "cat": "{event.category}", "name": "{event.name}", "pid": {self.pid}, "tid": {self.pid},
    "ts": {self._us(start + shift)}, "dur": {self._us(int(event.end[self.rank]) - start)},
    "args": {{
      {link}      "cbid": {event.cbid}, "correlation": {event.correlation}
    }}
  }},"""
        flows = event.name.startswith(("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cudaMem"))
        if self.scenario.recording.flows and flows:
            text += f"""
  {{
    "ph": "s", "id": {event.correlation}, "pid": {self.pid}, "tid": {self.pid}, "ts": {self._us(start + shift)},
    "cat": "ac2g", "name": "ac2g"
  }},"""
        return text

    def _pieces(self, op: Op, stream: int) -> tuple[str, str, str]:
        """The unchanging text of an operation: before ts, before the correlation, after it."""
        key = (id(op), stream)
        known = self._static.get(key)
        if known is not None:
            return known
        device = self.rank
        head = (
            f'\n  {{\n    "ph": "X", "cat": "{op.kind}", "name": "{op.name}", "pid": {device}, "tid": {stream},'
            '\n    "ts": '
        )
        if op.kind == "kernel":
            blocks = op.grid / self.scenario.hardware.multiprocessors
            warps = blocks * op.block / 32
            occupancy = min(100, int(0.5 + 100 * warps / 48))
            middle = f'      "queued": 0, "device": {device}, "context": 1,      "stream": {stream}, "correlation": '
            tail = (
                f',      "registers per thread": {op.registers},      "shared memory": {op.shared},'
                f'      "blocks per SM": {blocks:.6f},      "warps per SM": {warps:.6f},'
                f'      "grid": [{op.grid}, 1, 1],      "block": [{op.block}, 1, 1],'
                f'      "est. achieved occupancy %": {occupancy}'
            )
        else:
            middle = f'      "device": {device}, "context": 1,      "stream": {stream}, "correlation": '
            tail = f',      "bytes": {op.bytes}, "memory bandwidth (GB/s)": '
        self._static[key] = (head, middle, tail)
        return self._static[key]

    def _device_events(self) -> Iterator[str]:
        """GPU operations by their begin, the runtime calls between them, then the annotations on the GPU."""
        rank, shift = self.rank, self._shift()
        first = self.simulation.recorded.start_ns[rank]
        rows: list[tuple[int, int, Block, int]] = []
        sequence = 0
        for block in self.simulation.machine.blocks:
            recorded = block.recorded[:, rank].tolist()
            for index, start in enumerate(recorded):
                sequence += 1
                if start >= first:
                    rows.append((start, sequence, block, index))
        rows.sort(key=lambda row: row[:2])
        calls = sorted((h for h in self._kept_host() if h.category.startswith("cuda_")), key=lambda h: int(h.end[rank]))
        hulls: dict[tuple[int, int], list[int]] = {}
        place = 0
        for start, _, block, index in rows:
            while place < len(calls) and int(calls[place].end[rank]) <= start:
                yield self._runtime(calls[place], shift)
                place += 1
            yield self._device(block, index, start, shift)
            if block.annotation:
                end = int(block.end[index, rank])
                hull = hulls.setdefault((block.annotation, block.stream), [start, end])
                hull[1] = max(hull[1], end)
        for call in calls[place:]:
            yield self._runtime(call, shift)
        yield from self._gpu_annotations(hulls, shift)

    def _device(self, block: Block, index: int, start: int, shift: int) -> str:
        op = block.ops[index]
        head, middle, tail = self._pieces(op, block.stream)
        external = int(block.external[index])
        host = self.scenario.recording.evidence == "host"
        link = f'"External id": {external},' if external and host else ""
        duration = int(block.end[index, self.rank]) - start
        if op.kind != "kernel":
            tail += f"{op.bytes / duration!r}" if duration else '"N/A"'
        elif self.scenario.recording.graph_ids:
            node = int(block.nodes[index]) if block.nodes is not None else 0
            tail += f',      "graph id": {block.graph}, "graph node id": {node}'
        if op.collective and external and self.scenario.recording.collective_arguments:
            tail += self._collective(op)
        text = (
            f'{head}{self._us(start + shift)}, "dur": {self._us(duration)},\n    "args": {{\n      '
            f"{link}{middle}{int(block.correlation[index])}{tail}\n    }}\n  }},"
        )
        if self.scenario.recording.flows:
            text += (
                f'\n  {{\n    "ph": "f", "id": {int(block.correlation[index])}, "pid": {self.rank}, '
                f'"tid": {block.stream}, "ts": {self._us(start + shift)},\n'
                '    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  },'
            )
        return text

    def _collective(self, op: Op) -> str:
        elements = op.message_bytes // self.scenario.model.activation_bytes
        ranks = self.scenario.ranks
        name, sent = ("allreduce", elements) if op.collective == "allreduce" else ("_allgather_base", elements // ranks)
        return (
            f', "Collective name": "{name}", "In msg nelems": {sent}, "Out msg nelems": {elements}, '
            f'"Group size": {ranks}, "dtype": "BFloat16", "Process Group Name": "3", '
            f'"Process Group Description": "tp:device", "Process Group Ranks": "{list(range(ranks))}"'
        )

    def _gpu_annotations(self, hulls: dict[tuple[int, int], list[int]], shift: int) -> Iterator[str]:
        if self.scenario.recording.evidence in ("markers", "launches"):
            return
        names = {h.external: h.name for h in self.simulation.machine.host if h.category == "user_annotation"}
        for (external, stream), (start, end) in sorted(hulls.items(), key=lambda item: item[1]):
            yield f"""
  {{
    "ph": "X", "cat": "gpu_user_annotation", "name": "{names[external]}", "pid": {self.rank}, "tid": {stream},
    "ts": {self._us(start + shift - 1)}, "dur": {self._us(end - start + 2)},
    "args": {{
      "External id": {external}
    }}
  }},"""

    def _footer(self) -> Iterator[str]:
        shift, pid = self._shift(), self.pid
        begin = self.simulation.recorded.start_ns[self.rank] + shift - 61_412
        stop = self.simulation.recorded.stop_ns[self.rank] + shift
        at = self._us(begin + 35_120)
        for number, name, label, order in (
            (pid, f"sglang::scheduler_TP{self.rank}", "CPU", pid),
            *((d, f"sglang::scheduler_TP{self.rank}", f"GPU {d}", 0x1000000 + d) for d in range(self.scenario.ranks)),
        ):
            for key, field_name, value in (
                ("process_name", "name", f'"{name}"'), ("process_labels", "labels", f'"{label}"'),
                ("process_sort_index", "sort_index", str(order)),
            ):  # fmt: skip
                yield self._meta(key, at, number, 0, field_name, value)
        streams = sorted({b.stream for b in self.simulation.machine.blocks} | {SCHEDULE_STREAM})
        for process, thread, name in (
            *((self.rank, stream, f"stream {stream} ") for stream in streams),
            (pid, pid, f"thread {pid} (sglang::schedul)"),
        ):
            yield self._meta("thread_name", at, process, thread, "name", f'"{name}"')
            yield self._meta("thread_sort_index", at, process, thread, "sort_index", str(thread))
        yield f"""
  {{
    "ph": "X", "cat": "Trace", "ts": {self._us(begin)}, "dur": {self._us(stop - begin)},
    "pid": "Spans", "tid": "PyTorch Profiler",
    "name": "PyTorch Profiler (0)",
    "args": {{
      "Op count": 0
    }}
  }},
  {{
    "name": "process_sort_index", "ph": "M", "ts": {self._us(begin)},
    "pid": "Spans", "tid": 0,
    "args": {{
      "sort_index": 536870912
    }}
  }},
  {{
    "name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g",
    "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": {self._us(begin)}
  }},
  {{
    "name": "Record Window End", "ph": "i", "s": "g",
    "pid": "", "tid": "", "ts": {self._us(stop + 2_310_442)}
  }}
  ],
  "traceName": "{self.trace_name}"
}}"""

    @staticmethod
    def _meta(key: str, at: str, pid: int, tid: int, field_name: str, value: str) -> str:
        return f"""
  {{
    "name": "{key}", "ph": "M", "ts": {at}, "pid": {pid}, "tid": {tid},
    "args": {{
      "{field_name}": {value}
    }}
  }},"""
