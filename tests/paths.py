"""Where test inputs lie. Public reference files are optional: tests that need them are skipped without them."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "sample_logs"


def _find_shared() -> Path:
    # Beside the checkout; a worktree may lie one folder deeper.
    for base in (ROOT.parent, ROOT.parent.parent):
        if (base / "shared" / "data").is_dir():
            return base / "shared" / "data"
    return ROOT.parent / "shared" / "data"


SHARED = _find_shared()

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the public reference files are not here")
