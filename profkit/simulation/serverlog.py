"""The server's log of a launch in one release's format; its figures come from the simulated cycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from profkit.simulation.arguments import server_arguments
from profkit.simulation.kineto import start_seconds
from profkit.simulation.noise import Noise
from profkit.simulation.releases import CAPTURED_BATCHES, Release
from profkit.simulation.simulate import LogCycle, Simulation

_POOL_TOKENS = 412_736
_EXPORT_S = 1.9  # the scheduler stands still while the profiler writes


@dataclass(slots=True)
class Request:
    """One request that the bench client sent, with what it would have measured."""

    prompt: int
    sent_s: float
    first_token_s: float = 0.0
    token_times_s: list[float] = field(default_factory=list)  # one entry per cycle
    gained: list[int] = field(default_factory=list)
    done_s: float = 0.0

    @property
    def output(self) -> int:
        return 1 + sum(self.gained)


@dataclass(slots=True)
class LogTruth:
    """What the unflagged decode lines add up to."""

    lines: int = 0
    flagged: int = 0
    tokens: int = 0
    seconds: float = 0.0
    request_steps: int = 0
    steps: int = 0


@dataclass(slots=True)
class _Interval:
    """Counters since the last decode line."""

    last_s: float
    since: int = 0
    tokens: int = 0
    request_steps: int = 0
    lines: int = 0
    flag: bool = True

    def reset(self, now_s: float) -> None:
        self.last_s, self.since, self.tokens, self.request_steps, self.flag = now_s, 0, 0, 0, False


@dataclass(slots=True)
class ServerLog:
    """Lines of one launch, the requests it served and the truth about its decode lines."""

    simulation: Simulation
    profile_id: str
    lines: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    truth: LogTruth = field(default_factory=LogTruth)
    clock_s: float = 0.0
    profiled_at_s: float = 0.0
    _last_prefill_s: float = 0.0
    release: Release = field(init=False)
    _noise: Noise = field(init=False)

    def __post_init__(self) -> None:
        self.clock_s = float(start_seconds(self.simulation.scenario))
        self._noise = Noise(self.simulation.scenario.seed, 11)
        scenario = self.simulation.scenario
        # vLLM's log is not written; its requests and cycles are the same.
        version = "0.5.23" if scenario.serving.worker == "vllm" else scenario.recording.engine_version
        self.release = Release(version)
        self._startup()
        self._serve()

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    # Lines -----------------------------------------------------------------------------------------------------

    def _stamp(self) -> str:
        return datetime.fromtimestamp(int(self.clock_s), UTC).strftime("%Y-%m-%d %H:%M:%S")

    def say(self, message: str, rank: int | None = None, *, after_s: float = 0.0) -> None:
        self.clock_s += after_s
        self.lines.append(f"[{self._stamp()}{'' if rank is None else f' TP{rank}'}] {message}")

    def everywhere(self, message: str, *, after_s: float = 0.0) -> None:
        """A line of every rank, in the order in which they got there."""
        self.clock_s += after_s
        ranks = self.simulation.scenario.ranks
        keys = self._noise.raw(ranks)
        for rank in sorted(range(ranks), key=lambda r: int(keys[r])):
            self.say(message, rank)

    def _startup(self) -> None:
        scenario = self.simulation.scenario
        model, hardware, drafter = scenario.model, scenario.hardware, scenario.drafter
        release = self.release
        if scenario.speculative and not release.before("0.5.4"):
            self.say(
                "Max running requests is reset to 48 for speculative decoding. "
                "You can override this by explicitly setting --max-running-requests.",
                after_s=6.2,
            )
        if scenario.speculative and not scenario.serving.overlap and not release.before("0.5.13"):
            self.say("Non-overlap (synchronous) spec v2 is used for eagle/eagle3/standalone speculative decoding.")
        self.say(release.arguments_line(server_arguments(scenario, release)), after_s=2.1)
        self.say("Using default HuggingFace chat template with detected content format: openai", after_s=3.4)
        begin, ends = release.distributed(5.87, 1.02)
        self.everywhere(begin, after_s=14.3)
        if hardware.collective == "nccl" and hardware.link == "pcie" and scenario.ranks > 2:
            self.everywhere(release.custom_allreduce_disabled())
        for end in ends:
            self.everywhere(end, after_s=5.9 if end is ends[0] else 0.3)
        self.everywhere("Load weight begin. avail mem=93.31 GB", after_s=1.1)
        self.lines.append(
            "\rMulti-thread loading shards:   0% Completed | 0/64 [00:00<?, ?it/s]"
            "\rMulti-thread loading shards:  50% Completed | 32/64 [01:21<01:20,  2.52s/it]"
            "\rMulti-thread loading shards: 100% Completed | 64/64 [02:43<00:00,  2.55s/it]"
        )
        self.everywhere(release.weights(168.42, model.architecture, model.quantization, 22.16, 71.15), after_s=168.4)
        free = 22.16
        drafted = drafter.model is not None and scenario.serving.algorithm != "NGRAM" and scenario.speculative
        if drafted:
            self.everywhere(f"Load weight begin. avail mem={free:.2f} GB", after_s=0.8)
            free -= 0.71
            self.everywhere(release.weights(7.06, drafter.architecture, None, free, 0.71), after_s=7.1)
        if scenario.serving.algorithm == "DSPARK":
            rows = scenario.serving.num_draft_tokens
            self.say(
                f"Initialized DSpark draft runner. attention_backend=fa3, model={drafter.architecture}, "
                f"gamma={rows - 1}, verify_num_draft_tokens={rows}, mask_token_id=151666, markov_head=VanillaMarkov",
                0,
            )
        pools = [(9.02, "KV size: 9.02 GB")] + ([(3.14, "K size: 1.57 GB, V size: 1.57 GB")] if drafted else [])
        for size, sizes in pools:
            self.everywhere(release.pool(_POOL_TOKENS, sizes))
            free -= size
            self.everywhere(f"Memory pool end. avail mem={free:.2f} GB", after_s=0.4)
        free = self._captures(free)
        self.say(
            f"max_total_num_tokens={_POOL_TOKENS}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
            f"max_running_requests={48 if scenario.speculative else 2048}, context_len={model.context_length}, "
            f"available_gpu_mem={free:.2f} GB",
            0,
        )
        for line in release.tree_cache():
            self.everywhere(line)
        self.say("INFO:     Started server process [30817]", after_s=0.6)
        self.say("INFO:     Waiting for application startup.")
        self.say("INFO:     Application startup complete.")
        self.say("INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)")
        self.say('INFO:     127.0.0.1:51002 - "GET /model_info HTTP/1.1" 200 OK', after_s=1.0)
        self._prefill(7, after_s=1.3)
        self.say('INFO:     127.0.0.1:51010 - "POST /generate HTTP/1.1" 200 OK', after_s=0.9)
        self.say("The server is fired up and ready to roll!")

    def _captures(self, free: float) -> float:
        scenario = self.simulation.scenario
        serving = scenario.serving
        if not serving.target_graph:
            return free
        name = "target verify" if scenario.speculative else "target decode"
        jobs = [(name, scenario.rows_per_request, 11.84, 1.12)]
        if serving.algorithm in ("EAGLE", "EAGLE3", "STANDALONE"):
            if serving.num_steps > 1 and serving.draft_graph:
                jobs.append(("draft decode", serving.topk, 2.31, 0.21))
            if serving.extend_graph:
                jobs.append(("draft extend", serving.num_draft_tokens, 1.96, 0.18))
        for job, rows, seconds, used in jobs:
            begin, end = self.release.capture(job, rows, CAPTURED_BATCHES, seconds, free, used)
            free -= used
            for message, wait in ((begin[0], 0.3), *((more, 0.0) for more in begin[1:]), (end, seconds)):
                # Drafting graphs are announced by the first rank only, and so is the list of batch sizes.
                if job.startswith("target") and message not in begin[1:]:
                    self.everywhere(message, after_s=wait)
                else:
                    self.say(message, 0, after_s=wait)
        return free

    # Serving ---------------------------------------------------------------------------------------------------

    def _prefill(self, tokens: int, *, after_s: float = 0.0, used: int = 0, running: int = 0) -> None:
        seconds = 0.09 + tokens * 0.00021
        self.clock_s += after_s + seconds
        since = self.clock_s - self._last_prefill_s if self._last_prefill_s else 60.0
        self._last_prefill_s = self.clock_s
        self.say(self.release.prefill(1, tokens, used / _POOL_TOKENS, running, tokens / since), 0)

    def _serve(self) -> None:
        """Requests one after another until enough decode lines were printed; one of them is profiled."""
        scenario = self.simulation.scenario
        cycles = self.simulation.log_cycles()
        state = _Interval(last_s=self.clock_s)
        profile_after = max(2, scenario.recording.log_lines // 2)
        profiled = False
        while state.lines < scenario.recording.log_lines:
            first = len(self.requests) == 0
            batch = max(scenario.serving.batch_sizes)
            prompts = [900 + int(self._noise.raw(1)[0]) % 900 for _ in range(batch)]
            self.clock_s += 9.5 if first else 0.35
            running: list[Request] = []
            for prompt in prompts:
                request = Request(prompt, self.clock_s)
                self._prefill(prompt, used=sum(r.prompt for r in running), running=len(running))
                request.first_token_s = self.clock_s
                running.append(request)
            self.requests.extend(running)
            state.flag = True
            target = 1536
            context = sum(prompts)
            while sum(r.output for r in running) < target * batch and state.lines < scenario.recording.log_lines:
                cycle = next(cycles)
                self.clock_s += cycle.wall_ns / 1e9
                context += cycle.gained
                for request, gained in zip(running, _split(cycle), strict=False):
                    request.gained.append(gained)
                    request.token_times_s.append(self.clock_s)
                self._count(state, cycle, context)
                if not profiled and state.lines >= profile_after and state.since >= 11:
                    profiled = True
                    self._profile(state)
            port = 51_020 + 2 * len(self.requests)
            for request in running:
                request.done_s = self.clock_s
            for index in range(batch):
                self.say(f'INFO:     127.0.0.1:{port + 2 * index} - "POST /generate HTTP/1.1" 200 OK')

    def _count(self, state: _Interval, cycle: LogCycle, context: int) -> None:
        scenario = self.simulation.scenario
        state.since += 1
        state.tokens += cycle.gained
        state.request_steps += cycle.batch
        if state.since < scenario.recording.decode_log_interval:
            return
        seconds = self.clock_s - state.last_s
        serving = scenario.serving
        accept = (state.tokens, state.request_steps, serving.num_steps, serving.num_draft_tokens)
        message = self.release.decode(
            cycle.batch, context, context / _POOL_TOKENS, accept if scenario.speculative else None,
            state.tokens / seconds, graph=serving.target_graph,
            cap=float(serving.num_draft_tokens) if serving.ragged_verify else None,
        )  # fmt: skip
        self.say(message, 0)
        if state.flag:
            self.truth.flagged += 1
        else:
            self.truth.lines += 1
            self.truth.tokens += state.tokens
            self.truth.seconds += seconds
            self.truth.request_steps += state.request_steps
            self.truth.steps += state.since
        state.lines += 1
        state.reset(self.clock_s)

    def _profile(self, state: _Interval) -> None:
        """The profiler starts, records the cycles of the trace, and holds the scheduler while it writes."""
        recording = self.simulation.scenario.recording
        stage = " for DECODE" if recording.by_stage else ""
        self.say('INFO:     127.0.0.1:52344 - "POST /start_profile HTTP/1.1" 200 OK')
        self.profiled_at_s = self.clock_s
        self.everywhere(
            f"Profiling starts{stage}. Traces will be saved to: /data/traces/{self.profile_id} "
            f"(with profile id: {self.profile_id})",
            after_s=0.12,
        )
        pool = next(iter(self.simulation.walls_ns.values()))
        self.clock_s += (recording.cycles + 1) * float(pool.mean()) / 1e9
        self.everywhere(f"Stop profiling{'-DECODE' if recording.by_stage else ''}...")
        self.everywhere(f"Profiling done. Traces are saved to: /data/traces/{self.profile_id}", after_s=_EXPORT_S)
        state.flag = True


def _split(cycle: LogCycle) -> Iterator[int]:
    """Share a cycle's tokens over its requests."""
    base, rest = divmod(cycle.gained, cycle.batch)
    for index in range(cycle.batch):
        yield base + (1 if index < rest else 0)
