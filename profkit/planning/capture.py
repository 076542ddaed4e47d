"""What these files cannot say, and the commands that capture what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from profkit.attribution.result import Attribution
from profkit.planning.checks import Check
from profkit.planning.situation import Situation
from profkit.speculation import arm as arms
from profkit.words import count

PROFILE = (
    "export SGLANG_TORCH_PROFILER_DIR=traces  # before the server starts\n"
    "curl -X POST http://127.0.0.1:30000/start_profile -H 'Content-Type: application/json' \\\n"
    '    -d \'{"num_steps": 10, "activities": ["CPU", "GPU"]}\'  # during steady decoding, no stacks, no shapes'
)


@dataclass(frozen=True, slots=True)
class Limit:
    """Something the plan cannot say, why, and how to fill the gap (empty where no command helps)."""

    what: str
    why: str
    command: str = ""


def _ranks_short(attribution: Attribution) -> str:
    """How many ranks of a group are there, where some are missing; empty where none is."""
    for group in sorted({r.group for r in attribution.ranks}):
        members = [r for r in attribution.ranks if r.group == group]
        if (members[0].group_size or 1) > len(members):
            return f"traces of {len(members)} of {members[0].group_size} ranks only"
    return ""


def _missing_files(at: Situation) -> Iterator[Limit]:
    run = at.candidate
    if run.log is None or run.server() is None:
        yield Limit(
            "accept length, throughput and whether speculation pays",
            "no server log: a trace alone does not say how many tokens a cycle yields",
            "python -m sglang.launch_server ... --decode-log-interval 10 2>&1 | tee server.log",
        )
    if at.cycles is None:
        yield Limit(
            "where the time inside a cycle goes, the cost of one all-reduce, and what cheaper all-reduce would bring",
            f"{run.name}: {arms.why_untraced(run, at.economics.candidate.running_req)}",
            PROFILE,
        )
    elif run.attribution is not None and run.attribution.without_gpu:
        yield Limit(
            "where the GPU's time goes and what any kernel costs",
            f"{run.name}: the traces were recorded without a GPU, so all times are the CPU's",
            PROFILE,
        )
    if run.attribution is not None and (short := _ranks_short(run.attribution)):
        yield Limit(
            "how much of an all-reduce is waiting for a late rank, and what a cheaper one would gain at least",
            f"{short}; all ranks write one each",
            PROFILE,
        )
    if at.baseline is None:
        yield Limit(
            "whether speculation pays, the break-even accept length and what each lever does to the baseline",
            "no baseline run was given",
            "python -m sglang.launch_server ...  # the same command without the --speculative-* flags\n"
            "profkit plan RUN --baseline BASELINE -o PLAN",
        )
    elif at.baseline.attribution is None or at.baseline.attribution.cycle is None:
        why = f"{at.baseline.name}: {arms.why_untraced(at.baseline, None)}"
        yield Limit("what each lever does to the baseline", why, PROFILE)
    elif at.economics.baseline_step.value is None:
        yield Limit(
            "whether speculation pays",
            at.economics.baseline_step.source,
            "# run both with the same benchmark and concurrency, for example\n"
            "python -m sglang.bench_serving --backend sglang --max-concurrency 1 --num-prompts 8",
        )


def _missing_facts(at: Situation) -> Iterator[Limit]:
    needed = {
        "model.layers": "the count of 2 all-reduces per layer",
        "model.hidden_size": "message sizes",
        "link.kind": "NCCL's latency model and the gates on PCIe or NVLink",
        "gpu.sm": "the gates on the GPU generation",
        "gpu.memory_bandwidth_gb_s": "the floor of compute",
        "engine.version": "the gates on the release",
    }
    absent = [(key, what) for key, what in needed.items() if at.facts.get(key) is None]
    if at.facts.text("engine.version_low") == at.facts.text("engine.version_high") is not None:
        absent = [(key, what) for key, what in absent if key != "engine.version"]  # one release fits the log
    if absent:
        names = ", ".join(key for key, _ in absent)
        yield Limit(
            "; ".join(what for _, what in absent),
            f"the run does not state {names}",
            f"# in run.toml of the run, one value each: {names}",
        )


def limits(at: Situation, checks: tuple[Check, ...]) -> tuple[Limit, ...]:
    """What was not measured and cannot be concluded, most important first."""
    found = [*_missing_files(at), *_missing_facts(at)]
    if at.speculative and at.economics.accept_len.value is not None:
        found.append(
            Limit(
                "acceptance per position: a forecast for other numbers of draft tokens is a range",
                "the log prints the mean accept length only",
                "# --log-requests with the level that prints spec_accept_histogram (SGLang 0.5.9 to 0.5.20)",
            )
        )
    if "nccl" in at.implementations:
        found.append(
            Limit(
                "the algorithm, protocol and transport that NCCL chose",
                "a kernel's name does not tell",
                "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING,ENV  # in the server's environment, to nccl.log",
            )
        )
    if at.economics.by_load and len(at.economics.by_load) == 1:
        load = at.economics.by_load[0].running_req
        found.append(
            Limit(f"other loads than {count(load, 'running request')}", "both runs were measured at this load only")
        )
    abstained = [c.title for c in checks if c.state == "abstain"]
    if abstained:
        found.append(Limit(f"checks without inputs: {'; '.join(abstained)}", "see section 7"))
    if at.candidate.attribution is not None and not arms.target_allreduce(at.candidate):
        found.append(Limit("the cost of an all-reduce", "the trace shows no all-reduce in the target's forward"))
    return tuple(found)
