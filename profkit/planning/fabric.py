"""The run's all-reduce against nccl-tests on the same host: whether the fabric or the server makes it dear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profkit.analysis import RunAnalysis
from profkit.collectives.cost import KIB, MeasuredCurve
from profkit.planning.calls import message_bytes, transfer_us
from profkit.quantity import Quantity
from profkit.run import Facts
from profkit.speculation import arm as arms

# Calls of a server within this factor of nccl-tests cost what the fabric gives; graphs and neighbours cost something.
AS_DEAR: Final = 1.5
# nccl-tests says nothing about messages this much smaller or larger than it sent.
BEYOND: Final = 2.0


@dataclass(frozen=True, slots=True)
class FabricTest:
    """What nccl-tests needs for the target forward's message, and what the server's calls take without waiting: at most
    that, where ``bound`` says that not all ranks were compared."""

    test_us: float
    server_us: float
    size_bytes: float
    source: str
    bound: bool = False

    @property
    def ratio(self) -> float:
        """The server's call over nccl-tests'."""
        return self.server_us / self.test_us

    @property
    def as_dear(self) -> bool:
        """Whether nccl-tests is as dear as the server: then the fabric is the limit."""
        return self.ratio <= AS_DEAR

    @property
    def sentence(self) -> str:
        """Both figures and what follows from them."""
        text = (
            f"{self.source}: {self.test_us:.0f} us at {self.size_bytes / KIB:.0f} KiB outside the server, "
            f"{'at most ' * self.bound}{self.server_us:.0f} us in it ({self.ratio:.2f} x)"
        )
        if self.as_dear:
            return f"{text}: the fabric is the limit, not the server"
        return f"{text}: the fabric can do better, so look inside the server (graphs, late ranks, NCCL's choice)"


def tested(candidate: RunAnalysis, baseline: RunAnalysis | None) -> MeasuredCurve | None:
    """Points of nccl-tests beside the candidate, else beside its baseline."""
    found = candidate.allreduce_test
    return found if found is not None or baseline is None else baseline.allreduce_test


def fabric_test(candidate: RunAnalysis, baseline: RunAnalysis | None) -> FabricTest | str:
    """The comparison, or why there is none."""
    curve = tested(candidate, baseline)
    if curve is None:
        return "no output of nccl-tests (all_reduce_perf) lies in the run's folder"
    size, server = message_bytes(candidate), transfer_us(candidate)
    if size is None or server is None:
        return f"{curve.source}: the size or the time of the target's all-reduces is not known"
    if why := _not_comparable(curve, size, candidate.facts):
        return f"{curve.source}: {why}"
    bound = any(call.transfer_is != "measured" for call in arms.target_allreduce(candidate))
    return FabricTest(curve.at(size), server, size, curve.source, bound)


def _not_comparable(curve: MeasuredCurve, size: float, facts: Facts) -> str:
    ranks = facts.integer("parallel.tp")
    if curve.ranks is not None and ranks is not None and curve.ranks != ranks:
        return f"it ran on {curve.ranks} ranks, the server reduces over {ranks}"
    low, high = curve.points[0][0], curve.points[-1][0]
    if size * BEYOND < low or size > high * BEYOND:
        return f"it sent {low / KIB:.4g} to {high / KIB:.4g} KiB, the server sends {size / KIB:.4g} KiB"
    return ""


def over_nccl_tests(found: FabricTest | str) -> Quantity:
    """The ratio as a quantity that gates may ask for."""
    if isinstance(found, str):
        return Quantity.unknown("ratio", found)
    return Quantity(found.ratio, "ratio", "derived", f"all-reduce of the target's forward / {found.source}")
