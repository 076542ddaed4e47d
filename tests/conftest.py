"""Tests keep parsed traces in a cache of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of the user's cache is read or written; processes started by tests inherit this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROFKIT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
