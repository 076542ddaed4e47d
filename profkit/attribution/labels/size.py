"""The last pass: what the sizes and the order of forwards tell, where nothing else has found one of the target's."""

from __future__ import annotations

from typing import Final

from profkit.attribution.kernels import UNKNOWN_CLASS
from profkit.attribution.labels import DECODE, VERIFY, Labels
from profkit.attribution.labels.plain import label_plain
from profkit.attribution.labels.ring import forwards, label_ring
from profkit.attribution.labels.sequence import read_sequence
from profkit.attribution.labels.streams import label_other_streams
from profkit.attribution.ops import Ops

# Sizes of forwards are not asked where kernels of unknown kind take more than this share of the time.
_UNKNOWN: Final = 0.1


def label_by_size(ops: Ops, labels: Labels, *, on_host: bool, speculative: bool | None) -> None:
    """Label by the sizes and the order of forwards, where no pass has found the target's.

    ``on_host``: the ops are host ops of a trace without a GPU. ``speculative``: whether the server is known to
    speculate; then a lone kind of forward is the verify of drafts that the host made.
    """
    if not len(ops) or not labels.open().any() or (labels.forward >= 0).any():
        return
    sequence = read_sequence(ops, labels)
    if not len(sequence.op):
        return
    # Forwards are told by what their kernels do: where many are unknown, sizes and order say nothing.
    unknown = int(ops.duration[ops.classes.mask(UNKNOWN_CLASS)].sum())
    if not on_host and unknown > _UNKNOWN * int(ops.duration.sum()):
        return
    before = labels.open()
    found = forwards(sequence, on_host=on_host) if speculative is not False else []
    ring = label_ring(sequence, labels, found, on_host=on_host) if found else False
    if ring is None and speculative:
        return  # drafts and verifies are there, but which are which cannot be told
    if not ring:
        label_plain(sequence, labels, target=VERIFY if speculative else DECODE)
    label_other_streams(ops, labels, sequence)
    if speculative is not False:
        labels.guessed |= before & ~labels.open()
