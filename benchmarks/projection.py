"""How often a projection holds in worlds that nothing was tuned on.

Usage: python benchmarks/projection.py [--worlds 26] [--seed 7]

Each world is drawn at random (model, machine, link, host, algorithm, disturbances). Its files are analysed and another
all-reduce is projected onto both arms; then the world is simulated anew with that all-reduce, and the truth is taken
from its log. A projection holds if the truth lies in its range (half a percent beyond it allowed) or within 3 % of its
value. The seed is chosen before a run, not looked for.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from profkit.analysis import RunAnalysis
from profkit.pipeline import analyse_path
from profkit.projection import Change, project
from profkit.quantity import Quantity
from profkit.simulation import Drafter, Hardware, Model, Recording, Scenario, Serving, simulate, write_run

ACCEPTANCE = (0.65, 0.55, 0.5, 0.45, 0.4, 0.4, 0.35)


@dataclass(frozen=True)
class World:
    """A scenario with speculation, the same without, and the all-reduce to project."""

    candidate: Scenario
    baseline: Scenario
    allreduce_us: float


def draw(seed: int) -> World:
    """A world by its number."""
    rng = random.Random(seed)
    layers, ranks = rng.randint(8, 20), rng.choice((2, 2, 4))
    hardware = Hardware(
        dense_compute_us=rng.uniform(15, 40) * layers, expert_compute_us=rng.uniform(0.5, 2.0) * layers,
        allreduce_alpha_us=rng.uniform(6, 150), allreduce_us_per_kib=rng.choice((0.1, 0.6, 3.0)),
        host_speed=rng.uniform(0.6, 1.6), graph_launch_us=rng.choice((120.0, 190.0, 600.0, 2000.0)),
        transfer_jitter=rng.choice((0.01, 0.08)), compute_jitter=rng.choice((0.02, 0.08)),
        rank_slowdown=(1.0, rng.choice((1.0, 1.0, 1.04, 1.12))), clock_offset_us=(0.0, rng.uniform(-300, 300)),
    )  # fmt: skip
    algorithm, rows, steps = rng.choice(
        (("EAGLE3", 4, 3), ("EAGLE3", 2, 1), ("EAGLE", 6, 5), ("NGRAM", 8, 2), ("DFLASH", 8, 1), ("DSPARK", 8, 7))
    )
    shared = {
        "overlap": rng.random() < 0.8, "target_graph": rng.random() < 0.8, "side_stream": rng.random() < 0.3,
        "batch_sizes": (rng.choice((1, 1, 2, 4)),),
    }  # fmt: skip
    base = Scenario(
        name="world", config="world", seed=seed, ranks=ranks,
        model=Model(layers=layers, moe_layers=layers - 1, dense_weight_bytes=21.7e9 * layers / 61),
        drafter=Drafter(conditional_acceptance=ACCEPTANCE[: rows - 1], layers=rng.choice((1, 3))),
        hardware=hardware,
        recording=Recording(cycles=6, log_lines=40, log_cycles=48, op_overhead_ns=rng.choice((0.0, 0.0, 800.0))),
    )  # fmt: skip
    speculating = Serving(algorithm=algorithm, num_draft_tokens=rows, num_steps=steps, **shared)
    return World(
        replace(base, serving=speculating),
        replace(base, serving=Serving(**shared), seed=seed + 50_000),
        rng.choice((8.0, 20.0, 50.0, 110.0, 260.0)),
    )


def analysed(scenario: Scenario) -> RunAnalysis:
    """The analysis of a scenario's files."""
    with tempfile.TemporaryDirectory() as folder:
        write_run(simulate(scenario), Path(folder) / "run")
        return analyse_path(Path(folder) / "run", cache=False)


def steps_per_second(analysis: RunAnalysis) -> float:
    """Cycles per second in the log: the luck of acceptance is not the projector's business."""
    server = analysis.server()
    assert server is not None
    row = server.by_batch[0]
    assert row.gen_throughput_tok_s.mean is not None
    return row.gen_throughput_tok_s.mean / (row.accept_len.mean or 1.0)


def holds(after: Quantity, accept: float, truth: float) -> tuple[bool, float]:
    """Whether the projection holds, and its error."""
    value = after.require() / accept
    inside = after.low is not None and after.high is not None
    inside = inside and after.low / accept * 0.995 <= truth <= after.high / accept * 1.005
    return inside or abs(value / truth - 1) <= 0.03, value / truth - 1


def changed(scenario: Scenario, us: float, seed: int) -> Scenario:
    """The scenario with another all-reduce, recorded without the profiler's cost."""
    hardware = replace(scenario.hardware, allreduce_alpha_us=us, allreduce_us_per_kib=0.0)
    return replace(scenario, hardware=hardware, seed=scenario.seed + seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--worlds", type=int, default=26)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    held = total = 0
    for number in range(arguments.worlds):
        world = draw(1000 * arguments.seed + number)
        candidate, baseline = analysed(world.candidate), analysed(world.baseline)
        projected = project(candidate, baseline, Change(allreduce_us=world.allreduce_us))
        assert projected.baseline is not None
        accept = projected.accept_len_before.require()
        arms = (
            (world.candidate, projected.candidate.throughput_after, accept),
            (world.baseline, projected.baseline.throughput_after, 1.0),
        )
        for scenario, after, divisor in arms:
            if after.value is None:
                print(f"{number:3d} {scenario.serving.algorithm:7s} abstains: {after.source}")
                continue
            truth = steps_per_second(analysed(changed(scenario, world.allreduce_us, 3)))
            ok, error = holds(after, divisor, truth)
            held, total = held + ok, total + 1
            before = scenario.hardware.allreduce_alpha_us
            print(
                f"{number:3d} {scenario.serving.algorithm:7s} {before:5.0f} -> {world.allreduce_us:5.0f} us "
                f"{error:+7.1%} {'holds' if ok else 'MISSES'}"
            )
    print(f"{held} of {total} projections hold")


if __name__ == "__main__":
    main()
