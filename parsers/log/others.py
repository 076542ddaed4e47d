"""Lines of other programs in the same file: benchmark clients, NCCL and nccl-tests, vLLM."""

from __future__ import annotations

import re
from typing import Any, Final

from profkit.parsers.bench import BenchReader
from profkit.parsers.nccl import NcclReader
from profkit.parsers.vllm_log import VllmReader

# A line without one of these is none of theirs, unless it follows one directly.
_HINT = re.compile(
    rb"NCCL |tokens/s|_perf\b|latency|acc_length: |Finish i=|Serving Benchmark Result|Acc Length|"
    rb"^\{|^#|^\s*\d+\s+\d+\s+[a-z]"
)
_NEAR: Final = 3


class OtherReaders:
    """Offer it every line that SGLang did not write."""

    def __init__(self, name: str) -> None:
        self._bench = BenchReader(name)
        self._nccl = NcclReader(name)
        self._vllm = VllmReader(name)
        self._taken_at = -_NEAR - 1
        self.kinds: set[str] = set()
        self.cut = False

    def feed(self, number: int, line: bytes) -> bool:
        """Take a line; False when it belongs to none of them."""
        if number - self._taken_at > _NEAR and not _HINT.search(line):
            return False
        text = line.decode("utf-8", "replace")
        for kind, reader in (("bench", self._bench), ("nccl", self._nccl), ("vllm", self._vllm)):
            if reader.feed(number, text):
                self._taken_at = number
                if reader.rows:
                    self.kinds.add(kind)
                return True
        return False

    def take(self, *, end: bool = False) -> dict[str, list[dict[str, Any]]]:
        """Rows since the last call by table; the newest vLLM row waits, for the next line may complete it."""
        if end:
            self.cut = self._bench.close()
            if self._bench.rows:
                self.kinds.add("bench")
        bench, self._bench.rows = self._bench.rows, []
        nccl, self._nccl.rows = self._nccl.rows, []
        cut = len(self._vllm.rows) - (0 if end else 1)
        vllm, self._vllm.rows = self._vllm.rows[: max(cut, 0)], self._vllm.rows[max(cut, 0) :]
        return {"bench": bench, "nccl": nccl, "decode": vllm}
