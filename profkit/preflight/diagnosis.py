"""The four questions, each against what is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from profkit.comparison.result import MIN_LAUNCHES
from profkit.comparison.system import compare_systems
from profkit.preflight.captures import CAPTURES
from profkit.preflight.result import Answer, Diagnosis, RunFound, State, TraceFound
from profkit.preflight.versions import Release, release_of
from profkit.speculation.arm import other_context
from profkit.trace import NO_TIMELINE

QUESTIONS = {
    1: "Where do the milliseconds of one decode cycle go: draft, verify compute, all-reduce, idle?",
    2: "Does speculation pay here? At which accept length would it?",
    3: "What to try first, what will it gain, when to stop?",
    4: "Did a change help? Did something get worse?",
}
# With fewer complete cycles a mean says little: the first and the last of a trace are partial.
MIN_CYCLES = 4


class _Case:
    """Collects reasons; the state is the worst of them."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.captures: list[str] = []
        self._weak = self._barred = False

    def good(self, reason: str) -> None:
        self.reasons.append(reason)

    def weak(self, reason: str, *captures: str) -> None:
        self._weak = True
        self.reasons.append(reason)
        self.captures += captures

    def barred(self, reason: str, *captures: str) -> None:
        self._barred = True
        self.reasons.append(reason)
        self.captures += captures

    @property
    def state(self) -> State:
        return "not" if self._barred else "partly" if self._weak else "answerable"

    def answer(self, number: int) -> Answer:
        return Answer(number, QUESTIONS[number], self.state, tuple(self.reasons), tuple(dict.fromkeys(self.captures)))


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _useful(run: RunFound) -> list[TraceFound]:
    return [t for t in run.traces if t.kind == "gpu" and not _prefill(t)]


def _prefill(trace: TraceFound) -> bool:
    """Whether a trace shows prefills and no decode step."""
    return trace.stage == "prefill" or trace.decode_steps == 0


def _cycle(runs: Sequence[RunFound], release: Release) -> _Case:
    case = _Case()
    for run in runs:
        for kind, count in sorted(Counter(t.kind for t in run.traces if t.kind != "gpu").items()):
            these = f"{run.name}: {_number(count, 'trace')}"
            if kind == "cpu_only":
                case.good(
                    f"{these} recorded without GPU activity; profkit attribute splits the CPU's time, not a GPU's"
                )
            else:
                case.good(f"{these} cannot be used, being {NO_TIMELINE[kind]}")
        prefill = sum(t.kind == "gpu" and _prefill(t) for t in run.traces)
        if prefill:
            case.good(f"{run.name}: {_number(prefill, 'trace')} of prefill, which is no part of a decode cycle")
    traced = [r for r in runs if _useful(r)]
    if not traced:
        case.barred("no trace shows kernels of decode steps", "decode_trace")
        return case
    for run in traced:
        _trace_quality(case, run, release)
    if not any(r.decode_lines for r in traced):
        case.weak(
            "no log of the traced server: profiling costs time, and how much is unknown without unprofiled step times",
            "speculative_log" if any(r.speculative for r in traced) else "baseline_log",
        )
    return case


def _trace_quality(case: _Case, run: RunFound, release: Release) -> None:
    useful = _useful(run)
    ranks = sorted({t.rank for t in useful if t.rank is not None})
    expected = run.ranks
    if expected is not None and expected > 1 and len(ranks) < expected:
        absent = [r for r in range(expected) if r not in ranks]
        case.weak(
            f"{run.name}: {len(ranks) or 'unnamed'} of {expected} ranks "
            f"(missing: {', '.join(map(str, absent[:8]))}{' ...' if len(absent) > 8 else ''}): "
            "the transfer of a collective cannot be told from waiting for the slowest rank",
            "decode_trace",
        )
    elif expected is None and len(ranks) <= 1:
        case.weak(f"{run.name}: one rank, and nothing says how many there are")
    else:
        case.good(f"{run.name}: decode traces of {_number(max(len(ranks), 1), 'rank')}, all that there are")
    labels = {t.labels for t in useful}
    if labels == {"annotations"}:
        if run.speculative and not release.has("draft_annotations"):
            case.good(f"{run.name}: forwards are annotated; draft and acceptance follow from CUDA graphs and kernels")
    elif "frames" in labels:
        case.weak(f"{run.name}: phases follow from Python frames only; stacks stretch the idle time", "decode_trace")
    elif "graphs" in labels:
        reason = f"{run.name}: no annotation names the phases; they are guessed from the structure of CUDA graphs"
        if run.speculative is False:
            case.good(f"{run.name}: without speculation all of a cycle is one decode step")
        else:
            case.weak(reason, "phases")
    else:
        case.weak(f"{run.name}: nothing names the phases: no annotation, no frame, no CUDA graph", "phases")
    if any(t.python_frames and t.labels == "annotations" for t in useful):
        case.weak(f"{run.name}: recorded with Python stacks, which stretch the idle time", "decode_trace")
    steps = [t.decode_steps for t in useful if t.decode_steps]
    if steps and min(steps) < MIN_CYCLES:
        case.weak(f"{run.name}: only {_number(min(steps), 'decode step')} in a trace", "decode_trace")
    broken = sum(any(p.startswith(("truncated", "damaged")) for p in t.problems) for t in useful)
    if broken:
        case.weak(f"{run.name}: {_number(broken, 'trace')} cut off or damaged; what is sound is used", "decode_trace")


def _pays(runs: Sequence[RunFound]) -> _Case:
    case = _Case()
    fast = [r for r in runs if r.speculative and r.decode_lines]
    base = [r for r in runs if r.speculative is False and r.decode_lines]
    unknown = [r for r in runs if r.speculative is None and r.decode_lines]
    for run in unknown:
        case.good(f"{run.name}: its log does not tell whether it speculates; add its first lines, or server_info.json")
    if not fast and not base and not unknown:
        case.barred("no log with steady decode lines of either arm", "speculative_log", "baseline_log")
        return case
    if fast:
        if any(r.accept_length_known for r in fast):
            case.good(f"accept length and step time of {', '.join(r.name for r in fast)}")
        else:
            case.weak("the speculative log states no accept length", "speculative_log")
    else:
        case.weak("no log of a speculative server", "speculative_log")
    if not base:
        case.weak(
            "no log of the server without speculation: break-even is the cycle over the baseline's step", "baseline_log"
        )
    if fast and base:
        _same_load(case, _same_systems(case, fast, base))
    return case


def _same_systems(case: _Case, fast: Sequence[RunFound], base: Sequence[RunFound]) -> list[tuple[RunFound, RunFound]]:
    """The pairs of arms that belong together; a speculative run without a baseline of its own system is said."""
    pairs: list[tuple[RunFound, RunFound]] = []
    for run in fast:
        against = [(other, compare_systems(run.system, other.system)) for other in base]
        fitting = [other for other, match in against if match.stated and not match.differing and not match.one_sided]
        pairs += [(run, other) for other in fitting]
        for other, match in against if not fitting else ():
            if match.differing:
                case.weak(f"{other.name} is no baseline of {run.name}: {match.differences()}", "baseline_log")
                continue
            pairs.append((run, other))
            said = match.open_questions() or "neither states model, GPUs or parallelism; add server_info.json to both"
            case.weak(f"whether {other.name} is the same system as {run.name} cannot be told: {said}")
    return pairs


def _same_load(case: _Case, pairs: Sequence[tuple[RunFound, RunFound]]) -> None:
    """Break-even needs both arms at the same number of running requests, with contexts of like length."""
    found = [
        (size, other_context(size, run.contexts.get(size), other.contexts.get(size)))
        for run, other in pairs
        for size in sorted(set(run.batch_sizes) & set(other.batch_sizes))
    ]
    shared = sorted({size for size, why in found if not why})
    if shared:
        case.good(f"both arms ran at batch size {', '.join(map(str, shared[:6]))}, with contexts of like length")
    elif found:
        size, why = min(found)
        case.weak(f"both arms ran at batch size {size}, but {why}", "speculative_log", "baseline_log")
    elif pairs:
        case.weak("the arms never ran the same number of requests at once", "speculative_log", "baseline_log")


def _first_lever(runs: Sequence[RunFound], cycle: State) -> _Case:
    case = _Case()
    if cycle == "not":
        case.barred("needs the split of the cycle (question 1)", "decode_trace")
    elif cycle == "partly":
        case.weak("the split of the cycle is incomplete (question 1)")
    if not any(r.decode_lines for r in runs):
        case.barred("needs unprofiled step times from a log", "speculative_log", "baseline_log")
    if any((r.ranks or 1) > 1 for r in runs):
        if not any(r.hidden_size and r.layers for r in runs):
            case.weak(
                "the model's hidden size and layers are not known: no message sizes, no latency model", "model_config"
            )
        if any(r.nccl_test_rows for r in runs):
            case.good("nccl-tests show what an all-reduce costs on this machine")
        else:
            case.weak("no nccl-tests: what an all-reduce should cost here is modelled, not measured", "nccl_tests")
        if not any(r.nccl_debug_rows for r in runs):
            case.weak("no NCCL log: which links and algorithms it uses is not known", "nccl_debug")
    return case


def _changes(runs: Sequence[RunFound]) -> _Case:
    case = _Case()
    logged = [r for r in runs if r.decode_lines]
    groups = Counter((r.speculative, r.algorithm) for r in logged)
    launches = sum(r.launches for r in logged)
    if not logged:
        case.barred("no log with steady decode lines", "repeats")
    elif launches < 2:
        case.barred("one launch: there is nothing to compare it with", "repeats")
    else:
        enough = launches >= 2 * MIN_LAUNCHES
        text = f"{launches} launches of {_number(len(groups), 'configuration')}"
        if enough:
            case.good(f"{text}; profkit compare BEFORE AFTER says whether they differ")
        else:
            case.weak(
                f"{text}: a difference can be seen, but {MIN_LAUNCHES} launches of each version are needed to tell it "
                "from the luck of one start",
                "repeats",
            )
    return case


def diagnose(runs: Sequence[RunFound], warnings: Sequence[str] = ()) -> Diagnosis:
    """Say for each question whether the runs can answer it, and what to record otherwise."""
    release = release_of(runs)
    cycle = _cycle(runs, release)
    cases = {1: cycle, 2: _pays(runs), 3: _first_lever(runs, cycle.state), 4: _changes(runs)}
    wanted = {capture for case in cases.values() for capture in case.captures}
    said = [f"{run.name}: {text}" for run in runs for text in run.warnings]
    foreign = sorted({r.engine for r in runs if r.engine not in (None, "sglang")})
    if foreign:
        said.append(f"commands are known for SGLang only, not for {', '.join(str(e) for e in foreign)}")
    return Diagnosis(
        runs=tuple(runs),
        answers=tuple(case.answer(number) for number, case in cases.items()),
        captures=tuple(make(runs, release) for name, make in CAPTURES.items() if name in wanted),
        version_note=release.note,
        warnings=(*warnings, *said),
    )
