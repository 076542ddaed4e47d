"""The distribution: sdist -> wheel -> a clean environment in which every module imports."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.paths import ROOT

IMPORT_ALL = """
import importlib, pkgutil, sys, profkit
names = [m.name for m in pkgutil.walk_packages(profkit.__path__, "profkit.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
assert profkit.__file__.startswith(sys.prefix), profkit.__file__
print(len(names))
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source") / "profkit"
    ignore = shutil.ignore_patterns(".*", "build", "dist", "out", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, symlinks=True, ignore=ignore)
    out = tmp_path_factory.mktemp("dist")
    # Without isolation: the test needs no network.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source, cwd=out)
    return out


@pytest.mark.packaging
def test_sdist_carries_what_a_reader_needs(distributions: Path) -> None:
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"parsers/__init__.py", "reports/__init__.py", "README.md", "LICENSE", "tests/paths.py"} <= names
    assert any(name.startswith("sample_logs/") for name in names)
    assert not any("__pycache__" in name for name in names)


@pytest.mark.packaging
def test_wheel_holds_one_top_level_package_and_its_data(distributions: Path) -> None:
    (wheel,) = distributions.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {name.split("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"profkit"}
    assert "profkit/py.typed" in names
    source = {
        f"profkit/{path.relative_to(ROOT / 'profkit')}"
        for path in (ROOT / "profkit").rglob("*")
        if path.suffix in {".toml", ".json", ".j2", ".css", ".js"}
    }
    for folder in ("parsers", "reports"):
        source |= {
            f"profkit/{folder}/{path.relative_to(ROOT / folder)}"
            for path in (ROOT / folder).rglob("*")
            if path.suffix in {".py", ".toml", ".json", ".j2", ".css", ".js"} and "__pycache__" not in path.parts
        }
    assert source - names == set()


@pytest.mark.packaging
def test_every_module_imports_from_the_installed_wheel(distributions: Path, tmp_path: Path) -> None:
    (wheel,) = distributions.glob("*.whl")
    environment = tmp_path / "env"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python = environment / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # Dependencies come from the environment that runs the tests; a path line in a .pth file
    # does not process the .pth files there, so an editable profkit cannot leak in.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert int(run(python, "-c", IMPORT_ALL, cwd=tmp_path)) > 10
    assert run(python, "-m", "profkit", "--version", cwd=tmp_path).startswith("profkit ")


def test_checkout_has_its_links() -> None:
    for folder in ("parsers", "reports"):
        link = ROOT / "profkit" / folder
        assert (link / "__init__.py").is_file(), "this checkout has no symbolic links"
        assert link.resolve() == (ROOT / folder).resolve()
