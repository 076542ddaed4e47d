"""The walls of the house: the import contracts hold, and they would notice a breach."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    code = "from importlinter.cli import lint_imports_command as c; c()"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=root, capture_output=True, text=True, check=False,
        env=os.environ | {"COLUMNS": "200"},  # it wraps its lines
    )  # fmt: skip


def test_the_street_is_kept() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_a_parser_that_imports_analysis_is_caught(tmp_path: Path) -> None:
    for name in ("profkit", "parsers", "reports"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "parsers" / "intruder.py").write_text("from profkit.attribution import result as result\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert "profkit.parsers.intruder -> profkit.attribution.result" in done.stdout


def test_no_file_grows_beyond_one_head() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for folder in ("profkit", "parsers", "reports", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if (lines := path.read_text(encoding="utf-8").count("\n")) > 450
    }
    assert long == {}
