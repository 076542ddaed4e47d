"""Recordings that random searches found to be split or counted wrongly, each for the cause that its name says."""

from __future__ import annotations

from tests.independent_cycles import Case, Item


def turns(text: str) -> tuple[Item, ...]:
    """``d4 d4:3 p300``: decode steps of a batch size (and of a number of draft steps), prefills of so many tokens."""
    items: list[Item] = []
    for word in text.split():
        size, _, steps = word[1:].partition(":")
        items.append((word[0], int(size), int(steps)) if steps else (word[0], int(size)))
    return tuple(items)


BATCHES = turns("d4 d4 d4 d2 d2 d1 d1 d1")
OFTEN = turns("d4 p300 d4 p300 d4 p1024 d4 p300 d4 p300 d4 d4 d4")
FOUND: dict[str, Case] = {
    "plain-piecewise": Case("0.5.9", "none", ranks=2, family="blackwell", overlap=False, branches=True, pieces=5),
    "plain-piecewise-often": Case("0.5.23", "none", "launches", ranks=2, pieces=5, script=OFTEN),
    "plain-often": Case(
        "0.5.20", "none", "launches", ranks=2, family="mla", greedy=False, overlap=False, pieces=5, script=OFTEN
    ),
    "plain-eager-between": Case(
        "0.5.20", "none", "launches", ranks=2, family="mla", layers=10, target_graph=False, greedy=False,
        script=turns("d1 d1 p1024 p1024 d1 d1 d1 d1"),
    ),
    "plain-launched-before": Case(
        "0.5.23", "none", "frames", family="marlin", greedy=False, start="cut", cut_us=1500.0, script=turns("d4 " * 9)
    ),
    "plain-cut-whole": Case(
        "0.5.11", "none", ranks=2, family="triton", greedy=False, overlap=False, pieces=5, start="cut", cut_us=120.0,
        script=turns("d4 d4 d4 d4 d4 p512"),
    ),
    "plain-cut-last": Case(
        "0.5.11", "none", "gpu_annotations", ranks=2, layers=8, branches=True, start="cut", cut_us=2500.0,
        script=turns("d4 d4 d4 d4 d4 p512"),
    ),
    "ngram-first-prompt": Case(
        "0.5.11", "ngram", "stacks", family="blackwell", early=True, start="idle",
        script=turns("p1024 d1 d1 d1 d1 d1 d1"),
    ),
    "ngram-host-drafts": Case(
        "0.5.20", "ngram", "frames", 5, layers=16, drafter="blackwell", draft_graph=False, extend_graph=False,
        branches=True, early=True, start="idle",
    ),
    "ngram-cut-batches": Case(
        "0.5.20", "ngram", "gpu_annotations", 5, family="blackwell", layers=8, target_graph=False, overlap=False,
        early=True, start="cut", cut_us=497.7, drafter="blackwell", extend_graph=False, script=BATCHES,
    ),
    "eagle-launched-before": Case(
        "0.5.14", "eagle", "launches", 1, topk=4, family="hybrid", layers=10, target_graph=False, start="cut",
        cut_us=2500.0, drafter="blackwell", script=BATCHES,
    ),
    "eagle-cut-branch": Case(
        "0.5.11", "eagle", "launches", topk=4, ranks=2, family="marlin", layers=16, drafter="marlin", greedy=False,
        worker="v2", branches=True, pieces=5, script=turns("d1 " * 9),
    ),
    "eagle-plan-stream": Case(
        "0.5.14", "eagle", "gpu", family="blackwell", layers=8, drafter="mla", extend_graph=False, plan_stream=True,
        start="cut", cut_us=2500.0, script=turns("d1 " * 7),
    ),
    "eagle-plan-stream-adaptive": Case(
        "0.5.20", "eagle", "gpu_annotations", 5, ranks=2, family="triton", drafter="blackwell", draft_graph=False,
        plan_stream=True, start="idle", script=turns("d1:3 d1:3 d1:3 d1:0 d1:0 d1:0 d1:0 d1:5 d1:3"),
    ),
    "eagle-cut-region": Case(
        "0.5.9", "eagle", "frames", family="blackwell", drafter="blackwell", grammar=True, start="cut", cut_us=2443.4,
        script=BATCHES,
    ),
    "eagle-cut-stage": Case(
        "0.5.23", "eagle", "stacks", ranks=4, layers=8, drafter="mla", target_graph=False, extend_graph=False,
        branches=True, start="cut", cut_us=8336.8,
        script=turns("d4:3 d4:0 d4:3 d4:3 d4:0 d4:0 d4:3 d4:0 d4:3 d4:0 d4:0"),
    ),
    "standalone-cut-prompt": Case(
        "0.5.11", "standalone", "frames", 2, topk=4, family="marlin", layers=10, drafter="blackwell", draft_layers=12,
        extend_graph=False, greedy=False, worker="v1", early=True, start="cut", cut_us=8639.6,
        script=turns("d1 d1 p4096 p4096 d1 d1 d1 d1"),
    ),
    "mtp-positions": Case(
        "0.5.23", "mtp", steps=2, family="marlin", layers=8, drafter="blackwell", extend_graph=False, grammar=True,
        start="idle", script=turns("p1024 d4 d4 d4 d4"),
    ),
    "dflash-often": Case(
        "0.5.23", "dflash", "gpu_annotations", 2, ranks=2, family="marlin", layers=8, draft_layers=5, pieces=5,
        early=True, start="idle", script=OFTEN,
    ),
    "eagle-plan-stream-no-drafts": Case(
        "0.5.23", "eagle", "launches", 1, family="blackwell", layers=10, drafter="blackwell", draft_graph=False,
        plan_stream=True, branches=True, grammar=True, script=turns("d4:3 d4:3 d4:3 d4:0 d4:0 d4:0 d4:0 d4:5 d4:3"),
    ),
    "dflash-cut-prompt": Case(
        "0.5.16", "dflash", "frames", 2, family="triton", layers=16, drafter="mla", draft_layers=5, target_graph=False,
        start="cut", cut_us=2500.0, script=turns("d1 d1 p1024 d1 d1 d1 d1"),
    ),
    "mixed-cut": Case(
        "0.5.23", "none", ranks=2, family="blackwell", layers=16, greedy=False, early=True, start="cut", cut_us=400.0,
        script=turns("d4 d4 m4 m4 m4 d4 d4 d4 d4 d4"),
    ),
    "frozen-often": Case("0.5.23", "frozen", "gpu", 5, layers=16, draft_layers=4, drafter="mla", script=OFTEN),
    "frozen-adaptive": Case(
        "0.5.16", "frozen", "launches", 2, layers=16, draft_layers=2, draft_graph=False, branches=True, grammar=True,
        script=turns("d1:3 d1:3 d1:3 d1:5 d1:5 d1:1 d1:1 d1:3 d1:3"),
    ),
}  # fmt: skip
