"""What an all-reduce costs: models, NCCL's own latency table, and fits to measured sizes.

Sizes are bytes of one rank's buffer, times microseconds, n ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import numpy as np

from profkit.quantity import Quantity
from profkit.rules import load_rules
from profkit.words import count

KIB = 1024.0


def bus_bandwidth_factor(ranks: int) -> float:
    """Bus over algorithm bandwidth of an all-reduce: 2 (n - 1) / n (nccl-tests' definition)."""
    if ranks < 2:
        raise ValueError("an all-reduce needs at least two ranks")
    return 2.0 * (ranks - 1) / ranks


def bus_bandwidth_gb_s(size_bytes: float, time_us: float, ranks: int) -> float:
    """(size / time) x 2 (n - 1) / n in GB/s."""
    return size_bytes / time_us * 1e-3 * bus_bandwidth_factor(ranks)


@dataclass(frozen=True, slots=True)
class NcclLatency:
    """NCCL's own latency estimate for one algorithm and protocol, without the bandwidth term."""

    algorithm: str
    protocol: str
    time_us: float


def _table(version: str | None) -> dict[str, Any] | None:
    """The table of an NCCL release; the newest when the release is not known, none when it is older than all."""
    tables: list[dict[str, Any]] = load_rules("hardware")["nccl_latency"]
    numbers = _numbers(version or "")
    if len(numbers) < 2:
        return tables[0]
    return next((table for table in tables if numbers >= _numbers(table["since"])), None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def nccl_latencies(ranks: int, link: str, version: str | None = None) -> tuple[NcclLatency, ...]:
    """NCCL's latency of every (algorithm, protocol) inside one node: base + 2 (n - 1) hops.

    NCCL's tree within a node is a chain, so both algorithms walk 2 (n - 1) hops. ``link`` is ``pcie`` or ``nvlink``.

    Raises:
        ValueError: another link, fewer than two ranks, or a release older than the tables.
    """
    table = _table(version)
    if table is None or link not in table["hop_us"] or ranks < 2:
        raise ValueError(f"NCCL's table has no entry for {count(ranks, 'rank')} over {link}")
    found = []
    for algorithm, protocol in product(("ring", "tree"), ("LL", "LL128", "Simple")):
        hop = table["hop_us"][link].get(algorithm, {}).get(protocol)
        base = table["base_us"].get(algorithm, {}).get(protocol)
        if hop is not None and base is not None:
            found.append(NcclLatency(algorithm, protocol, base + 2 * (ranks - 1) * hop))
    return tuple(found)


def nccl_model(ranks: int | None, link: str | None, version: str | None = None) -> Quantity:
    """NCCL's latency of a small all-reduce: the fastest protocol it may choose, in microseconds.

    LL128 is left out on PCIe, where NCCL does not enable it by default. The range ends at the dearest protocol.
    """
    if ranks is None or ranks < 2 or link not in ("pcie", "nvlink"):
        return Quantity.unknown("us", "the number of ranks or the kind of link is not known")
    table = _table(version)
    if table is None:
        return Quantity.unknown("us", f"no latency table of NCCL {version} is at hand")
    found = [x for x in nccl_latencies(ranks, link, version) if not (link == "pcie" and x.protocol == "LL128")]
    times = sorted(found, key=lambda x: x.time_us)
    parts = ", ".join(f"{x.algorithm}/{x.protocol} {x.time_us:.1f}" for x in found)
    return Quantity(
        times[0].time_us,
        "us",
        "modelled",
        f"NCCL's latency table ({table['source']}), {ranks} ranks over {link}: {parts}",
        times[0].time_us,
        times[-1].time_us,
        "model",
    )


class Curve(Protocol):
    """Time of an all-reduce over its size."""

    @property
    def source(self) -> str:
        """Where the curve came from."""

    def at(self, size_bytes: float) -> float:
        """Microseconds for ``size_bytes``."""


@dataclass(frozen=True, slots=True)
class SizeLatency:
    """T(s) = alpha + beta s: ``alpha_us``, ``beta_us_per_kib``, and where it came from.

    ``residual_us`` is the standard deviation of the points about the line, ``alpha_se_us`` and ``beta_se`` the
    standard errors of both parameters and ``covariance`` theirs together; ``None`` with two points, which any line
    fits.
    """

    alpha_us: float
    beta_us_per_kib: float
    source: str
    points: int = 0
    residual_us: float | None = None
    smallest_bytes: float | None = None
    largest_bytes: float | None = None
    alpha_se_us: float | None = None
    beta_se: float | None = None
    covariance: float | None = None

    def at(self, size_bytes: float) -> float:
        """Time of one all-reduce of ``size_bytes``, in microseconds."""
        return self.alpha_us + self.beta_us_per_kib * size_bytes / KIB

    def predict(self, size_bytes: float) -> Quantity:
        """The time at a size, with the 95 % interval of the line (Student's t, points - 2 degrees of freedom); no
        interval with two points."""
        value = self.at(size_bytes)
        text = f"{self.alpha_us:.1f} us + {self.beta_us_per_kib:.2f} us/KiB x {size_bytes / KIB:.1f} KiB, {self.source}"
        if self.smallest_bytes and self.largest_bytes and not self.smallest_bytes <= size_bytes <= self.largest_bytes:
            text += ", outside the measured sizes"
        if self.alpha_se_us is None or self.beta_se is None or self.covariance is None:
            return Quantity(value, "us", "modelled", text, n=self.points or None)
        kib = size_bytes / KIB
        variance = self.alpha_se_us**2 + 2 * kib * self.covariance + (kib * self.beta_se) ** 2
        half = student_quantile(self.points - 2) * float(np.sqrt(max(variance, 0.0)))
        return Quantity(value, "us", "modelled", text, value - half, value + half, "ci95", self.points)


def student_quantile(freedom: int) -> float:
    """97.5 % quantile of Student's t distribution."""
    from scipy.stats import t

    return float(t.ppf(0.975, freedom))


def fit_size_latency(points: Sequence[tuple[float, float]], source: str) -> SizeLatency | None:
    """Least squares through (bytes, microseconds); ``None`` below two different sizes or with a falling line."""
    sizes = {size for size, _ in points}
    if len(sizes) < 2:
        return None
    x = np.array([size / KIB for size, _ in points])
    y = np.array([time for _, time in points])
    design = np.stack([np.ones_like(x), x], axis=1)
    (alpha, beta), *_ = np.linalg.lstsq(design, y, rcond=None)
    if beta < 0:
        return None
    residual = alpha_se = beta_se = covariance = None
    if len(points) > 2:
        residual = float(np.sqrt(((y - design @ [alpha, beta]) ** 2).sum() / (len(points) - 2)))
        spread = residual**2 * np.linalg.inv(design.T @ design)
        alpha_se, beta_se = (float(np.sqrt(max(spread[i, i], 0.0))) for i in (0, 1))
        covariance = float(spread[0, 1])
    return SizeLatency(
        float(alpha), float(beta), source, len(points), residual, min(sizes), max(sizes), alpha_se, beta_se, covariance
    )


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """Measured (bytes, microseconds), in rising size: linear between points, flat below the first, and beyond the
    last with the slope of the last two."""

    points: tuple[tuple[float, float], ...]
    source: str
    ranks: int | None = None  # that took part, where it is known

    def at(self, size_bytes: float) -> float:
        """Time of one all-reduce of ``size_bytes``, in microseconds."""
        sizes, times = zip(*self.points, strict=True)
        if size_bytes <= sizes[-1] or len(sizes) < 2:
            return float(np.interp(size_bytes, sizes, times))
        slope = max((times[-1] - times[-2]) / (sizes[-1] - sizes[-2]), 0.0)
        return float(times[-1] + slope * (size_bytes - sizes[-1]))


def curve_of_nccl_tests(
    rows: Sequence[tuple[str, int | None, float | None]], source: str, ranks: int | None = None
) -> MeasuredCurve | None:
    """A curve from rows of nccl-tests: (test, bytes, microseconds); of several times at one size the least counts.

    Rows of other tests than all-reduce are left out; ``None`` when nothing is left.
    """
    best: dict[int, float] = {}
    for test, size, time in rows:
        if size and time and time > 0 and (not test or "all_reduce" in test.replace("AllReduce", "all_reduce")):
            best[size] = min(best.get(size, time), time)
    return MeasuredCurve(tuple((float(s), best[s]) for s in sorted(best)), source, ranks) if best else None


def curve_of_nccl_rows(rows: Sequence[Mapping[str, Any]]) -> MeasuredCurve | None:
    """The same from rows of the ``nccl`` table; the number of ranks from the devices that the tests list.

    Of several outputs those with the most ranks count: a test of two cards says little about eight.
    """
    ranks: dict[str, set[int]] = {}
    for row in rows:
        if row["kind"] == "test_device" and row["rank"] is not None:
            ranks.setdefault(str(row["file"]), set()).add(int(row["rank"]))
    most = max((len(found) for found in ranks.values()), default=None)
    chosen = [row for row in rows if row["kind"] == "test_row" and len(ranks.get(str(row["file"]), ())) in (0, most)]
    names = ", ".join(sorted({str(row["file"]).rpartition("/")[2] for row in chosen}))
    found = [(dict(row["fields"]).get("test") or "", row["size_bytes"], row["time_us"]) for row in chosen]
    known = most if all(ranks.get(str(row["file"])) for row in chosen) else None
    return curve_of_nccl_tests(found, f"nccl-tests in {names}", known)


def reference_curves() -> dict[str, SizeLatency]:
    """Named all-reduce curves of other people's hosts, by id; see ``profkit/rules/hardware.toml`` for host and
    source."""
    return {
        entry["id"]: SizeLatency(
            entry["alpha_us"], entry["beta_us_per_kib"], f"{entry['host']}; {entry['source']}, {entry['date']}"
        )
        for entry in load_rules("hardware")["allreduce_curve"]
    }
