"""Which server a line belongs to: one file may hold several starts, restarts and interleaved servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from profkit.parsers.server_args import VersionRange, infer_version


@dataclass(slots=True)
class ServerStart:
    """One server of a file: where it starts and what its lines say about it."""

    number: int
    line: int
    time: float | None
    dated: bool
    source: str
    engine: str = "sglang"
    arguments: dict[str, Any] | None = None
    seen_start: bool = False
    ready: bool = False
    batches: bool = False
    rank_names: frozenset[str] | None = None
    features: set[str] = field(default_factory=set)
    version: str | None = None
    continues: str | None = None

    def argument_range(self) -> VersionRange | None:
        """Releases by the names of the arguments."""
        return infer_version(frozenset(self.arguments)) if self.arguments else None


class Segmenter:
    """Assigns lines to servers, per source (the foreign prefix that tells interleaved programs apart).

    A printed argument list starts a server, unless it repeats the one that is still starting up. Batch lines with other
    kinds of ranks than before come from another server too, for the ranks shown never change while one runs.
    """

    def __init__(self, settle: Callable[[int], None]) -> None:
        """``settle(line)`` is called before a line changes what later lines belong to."""
        self._settle = settle
        self.servers: list[ServerStart] = []
        self._current: dict[str, ServerStart] = {}
        self._by_ranks: dict[tuple[str, frozenset[str]], ServerStart] = {}

    def follow(self, earlier: Segmenter, file: str) -> None:
        """This file continues another: its servers go on until a new one starts."""
        for source, server in earlier._current.items():
            again = replace(server, number=len(self.servers), line=1, seen_start=True, features=set(server.features))
            again.continues = f"{file}:{server.number}"
            self.servers.append(again)
            self._current[source] = again
            if again.rank_names is not None:
                self._by_ranks[source, again.rank_names] = again

    def start(
        self, source: str, line: int, time: float | None, dated: bool, arguments: dict[str, Any] | None
    ) -> ServerStart:
        """A server's argument list was printed."""
        self._settle(line)
        current = self._current.get(source)
        if current is not None and not current.batches and not current.ready:
            if current.arguments is None and not current.seen_start:
                current.arguments, current.seen_start = arguments, True
                return current
            if current.arguments == arguments:
                return current
        server = self._new(source, line, time, dated)
        server.arguments, server.seen_start = arguments, True
        for key in [k for k in self._by_ranks if k[0] == source]:
            del self._by_ranks[key]
        return server

    def of_line(self, source: str, line: int, time: float | None, dated: bool) -> ServerStart:
        """The server of a line that is no batch line."""
        self._settle(line)
        return self._current.get(source) or self._new(source, line, time, dated)

    def of_batch(
        self, source: str, rank_names: frozenset[str], line: int, time: float | None, dated: bool
    ) -> ServerStart:
        """The server of a batch line that shows these kinds of ranks."""
        current = self.of_line(source, line, time, dated)
        if current.rank_names != rank_names:
            self._settle(line)
            current = self.of_line(source, line, time, dated)
        if current.rank_names is None:
            current.rank_names = rank_names
            self._by_ranks[source, rank_names] = current
        elif current.rank_names != rank_names:
            known = self._by_ranks.get((source, rank_names))
            if known is None:
                known = self._new(source, line, time, dated)
                known.rank_names = rank_names
                self._by_ranks[source, rank_names] = known
            self._current[source] = current = known
        current.batches = True
        return current

    def _new(self, source: str, line: int, time: float | None, dated: bool) -> ServerStart:
        server = ServerStart(len(self.servers), line, time, dated, source)
        self.servers.append(server)
        self._current[source] = server
        return server
