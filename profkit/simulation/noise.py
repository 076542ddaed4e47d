"""Random numbers that are the same on every machine and with every NumPy version.

Only the raw 64-bit output of PCG64 is used, which NumPy guarantees; its ``Generator`` methods may change.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

# Four 16-bit fields of one draw: their sum has mean 4 * 65535 / 2 and variance 4 * (2**32 - 1) / 12.
_MEAN = 131070.0
_DEVIATION = 37837.2266
_BLOCK = 8192


class Noise:
    """A stream of draws, chosen by a seed and a path of integers (run, rank, purpose ...)."""

    def __init__(self, seed: int, *path: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence([seed, *path]))
        self._normals = np.empty(0, dtype=np.float64)
        self._used = 0

    def raw(self, count: int) -> npt.NDArray[np.uint64]:
        """``count`` raw 64-bit words."""
        return np.asarray(self._bits.random_raw(count), dtype=np.uint64)

    def uniform(self, count: int) -> npt.NDArray[np.float64]:
        """``count`` numbers in [0, 1)."""
        return (self.raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, *shape: int) -> npt.NDArray[np.float64]:
        """Near-normal draws (mean 0, deviation 1, never beyond 3.5): the sum of four 16-bit uniforms."""
        count = math.prod(shape)
        if self._used + count > self._normals.size:
            # Drawn in blocks: most calls want one number per rank.
            rest = self._normals[self._used :]
            self._normals = np.concatenate([rest, self._draw(max(count, _BLOCK))])
            self._used = 0
        taken = self._normals[self._used : self._used + count]
        self._used += count
        return taken.reshape(shape)

    def _draw(self, count: int) -> npt.NDArray[np.float64]:
        fields = self.raw(count).astype("<u8").view("<u2").reshape(count, 4)
        total: npt.NDArray[np.float64] = fields.sum(axis=1, dtype=np.float64)
        return (total - _MEAN) / _DEVIATION

    def shuffled(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The values in a random order."""
        return values[np.argsort(self.raw(values.size), kind="stable")]
