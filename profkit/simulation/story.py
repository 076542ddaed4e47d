"""The reference story: Kimi-K2.5 int4 on eight PCIe GPUs, where speculation did not pay."""

from __future__ import annotations

from dataclasses import replace

from profkit.simulation.scenario import Drafter, Hardware, Recording, Scenario, Serving

_ASSUMED = (
    "allreduce size curve (36.4 us + 3.01 us/KiB)",
    "allgather size curve",
    "split of compute into dense and expert parts",
)


def reference_story(*, seed: int = 20261116, cycles: int = 6) -> dict[str, Scenario]:
    """The four runs by name: ``baseline``, ``eagle3``, ``aq-medai``, ``ngram``."""
    hardware = Hardware(
        allreduce_alpha_us=36.4,
        rank_slowdown=(1.0, 1.003, 0.998, 1.02, 1.001, 0.999, 1.004, 1.002),
        clock_offset_us=(0.0, 3.1, -2.4, 5.6, -1.2, 0.8, -4.5, 2.2),
    )
    base = Scenario(
        name="kimi-k2.5-tp8 baseline", config="kimi-k2.5-tp8/baseline", seed=seed, hardware=hardware,
        recording=Recording(cycles=cycles, time="09:12:04"),
        labels=(("story", "eagle-fast-verify"),), assumed=_ASSUMED,
    )  # fmt: skip
    eagle3 = replace(
        base, name="kimi-k2.5-tp8 eagle3", config="kimi-k2.5-tp8/eagle3", seed=seed + 1,
        drafter=Drafter(
            model="/models/kimi-k2.5-eagle3-own", forward_compute_us=650.0, extend_compute_us=880.0,
            conditional_acceptance=(0.545, 0.545, 0.535),
        ),
        serving=Serving(algorithm="EAGLE3", num_steps=3, num_draft_tokens=4),
        recording=Recording(cycles=cycles, time="11:40:31"),
        assumed=(*_ASSUMED, "4 verified rows", "times of the drafter's forwards"),
    )  # fmt: skip
    medai = replace(
        base, name="kimi-k2.5-tp8 aq-medai", config="kimi-k2.5-tp8/aq-medai", seed=seed + 2,
        drafter=Drafter(
            model="AQ-MedAI/Kimi-K2-Instruct-eagle3", vocabulary=163840, forward_compute_us=1600.0,
            extend_compute_us=2190.0, conditional_acceptance=(0.366, 0.366),
        ),
        serving=Serving(algorithm="EAGLE3", num_steps=2, num_draft_tokens=3),
        recording=Recording(cycles=cycles, time="14:05:47"),
        assumed=(*_ASSUMED, "3 verified rows", "times of the drafter's forwards"),
    )  # fmt: skip
    ngram = replace(
        base, name="kimi-k2.5-tp8 ngram", config="kimi-k2.5-tp8/ngram", seed=seed + 3,
        drafter=Drafter(conditional_acceptance=(0.586, 0.545, 0.53, 0.52, 0.5, 0.5, 0.5)),
        serving=Serving(algorithm="NGRAM", num_steps=2, topk=4, num_draft_tokens=8),
        recording=Recording(cycles=cycles, time="16:22:18"),
        assumed=(*_ASSUMED, "accept length", "host time of a corpus lookup"),
    )  # fmt: skip
    return {"baseline": base, "eagle3": eagle3, "aq-medai": medai, "ngram": ngram}
