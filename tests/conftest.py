"""Tests keep parsed traces in a cache of their own, and the programs they start can be interrupted."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.paths import ROOT

# A time limit per example would be a test of the machine. Examples that failed are remembered in the checkout, where it
# can be written.
settings.register_profile("any_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("read_only", settings.get_profile("any_machine"), database=None)
settings.load_profile("any_machine" if os.access(ROOT, os.W_OK) else "read_only")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of the user's cache is read or written; processes started by tests inherit this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROFKIT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """Programs inherit that interrupts are ignored, as a shell has it for what runs in its background."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
