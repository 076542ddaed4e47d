"""What was running when the recording began, told by the cycle later in the recording that repeats it.

Ops launched before the window have no annotation and no function, but decoding repeats itself kernel by kernel: going
back from the first op whose phase is known, the same kernels in the same order are the same work.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from profkit.attribution.labels import NO_FORWARD, NO_SOURCE, Labels
from profkit.attribution.labels.sequence import Sequence

Ints = npt.NDArray[np.int64]
# So many equally good repetitions are asked; where they disagree, nothing is said.
_WITNESSES: Final = 16


def label_repeated(sequence: Sequence, labels: Labels, known: int, *, all_known: bool = False) -> None:
    """Label what is open before position ``known`` as the ops that repeat it are labelled.

    ``all_known``: only if each of those is labelled; a later pass may yet label the others.
    """
    length, places = _repetitions(sequence, labels.phase[sequence.op], known)
    whole = places[places - length >= known]
    places = (whole if len(whole) else places)[:_WITNESSES]
    if not length:
        return
    back = np.arange(-length, 0)
    mine, told = sequence.op[known + back], sequence.op[places[:, None] + back]
    phase = labels.phase[told]
    if all_known and (labels.source[told[0]] == NO_SOURCE).any():
        return
    agreed = (phase == phase[0]).all(axis=0) & (labels.source[told[0]] != NO_SOURCE)
    fresh = agreed & (labels.source[mine] == NO_SOURCE)
    for code in np.unique(phase[0][fresh]).tolist():
        labels.set_at(mine[fresh & (phase[0] == code)], code, "graph")
    # Target forwards are numbered: that which goes on at ``known`` is already, one that the recording cut gets none.
    forward, ours = labels.forward[told[0]], labels.forward[sequence.op[known]]
    same = forward == labels.forward[sequence.op[places[0]]]
    before = int(labels.forward[sequence.op[places[0] - length - 1]])
    for instance in np.unique(forward[fresh & (forward != NO_FORWARD)]).tolist():
        where = fresh & (forward == instance)
        if ours != NO_FORWARD and same[where][0]:
            labels.forward[mine[where]] = ours
        elif instance != before:
            labels.forward[mine[where]] = len(labels.batch)
            labels.batch.append(-1)


def _repetitions(sequence: Sequence, phase: npt.NDArray[np.int8], known: int) -> tuple[int, Ints]:
    """How many ops before ``known`` are repeated at most, and the later positions before which they are.

    What ran before a prompt does not lead up to what comes after it.
    """
    name = sequence.name
    most = known - sequence.after_prompt(0, known)
    places = known + 1 + np.flatnonzero((name[known + 1 :] == name[known]) & (phase[known + 1 :] == phase[known]))
    length = 0
    while length < most and len(places):
        alike = places[name[places - length - 1] == name[known - length - 1]]
        if not len(alike):
            break
        places, length = alike, length + 1
    return length, places
