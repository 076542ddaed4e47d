"""The command line's frame: light start, exit codes, one-sentence errors."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from profkit import __version__
from profkit.cli import app
from profkit.errors import CheckFailedError, InputError, UsageError
from tests.paths import ROOT, SAMPLES

HEAVY = ("pandas", "pyarrow", "matplotlib", "numpy", "scipy", "msgspec", "jinja2", "torch_tb_profiler")


def profkit(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "profkit", *arguments], capture_output=True, text=True, check=False)


def test_version() -> None:
    done = profkit("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"profkit {__version__}\n", "")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom profkit.cli.app import run\nassert run(['--help']) == 0\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage: profkit" in done.stdout
    assert done.stderr.strip() == "[]"


def test_unknown_command_is_wrong_usage() -> None:
    done = profkit("no-such-command")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("a.log: empty"), 3),
        (UsageError("choose"), 2),
        (CheckFailedError("worse"), 1),
        (KeyboardInterrupt(), 130),
        (OSError(2, "No such file or directory", "x.log"), 3),
        (ZeroDivisionError("division by zero"), 3),
    ],
)
def test_errors_are_one_sentence_and_an_exit_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build() -> typer.Typer:
        failing = typer.Typer(pretty_exceptions_enable=False)

        @failing.command()
        def fail() -> None:
            raise error

        return failing

    monkeypatch.setattr(app, "build_app", build)
    assert app.run([]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("profkit: ")
    assert "Traceback" not in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["attribute", ""], "the one after attribute"),
        (["parse", "", "-q"], "the one after parse"),
        (["plan", "run", "--baseline", ""], "the one after --baseline"),
        (["plan", "run", "--baseline="], "the value of --baseline"),
        ([""], "the first one"),
    ],
)
def test_an_empty_argument_is_not_the_current_folder(
    arguments: list[str], place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"profkit: an argument is empty ({place}); is a variable of the shell unset?\n"


def test_a_value_that_ends_with_an_equals_sign_is_not_empty() -> None:
    app._refuse_empty(["add", "run", "--label=key=", "--label", "key=", "--table==", "a="])


def with_modules_of(folder: Path, *module: str) -> subprocess.CompletedProcess[str]:
    """Run a module that may import what lies in a folder."""
    paths = [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", *module],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )


@pytest.mark.parametrize("module", ["typer", "profkit.cli.app", "profkit.errors"])
def test_an_interrupt_while_the_program_is_imported_is_quiet(module: str, tmp_path: Path) -> None:
    """A module that interrupts its own import, as a person who presses Ctrl-C at once does."""
    code = (
        "import os, signal, sys, time\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "            time.sleep(20)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
    )
    (tmp_path / "sitecustomize.py").write_text(code)
    done = with_modules_of(tmp_path, "profkit", "parse", "no.log")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "profkit: interrupted\n")


def test_an_interrupt_inside_exec_ends_with_the_same_code(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, time\n"
        "import profkit.__main__ as main, profkit.cli.app as app\n"
        "def run(arguments):\n"
        "    try:\n"
        "        exec('os.kill(os.getpid(), signal.SIGINT); time.sleep(20)')\n"
        "    except KeyboardInterrupt:\n"
        "        return 130\n"
        "app.run = run\n"
        "main.main()\n"
    )
    (tmp_path / "interrupted_once.py").write_text(code)
    done = with_modules_of(tmp_path, "interrupted_once")
    assert (done.returncode, done.stderr) == (130, "")


def test_the_script_and_the_module_start_alike() -> None:
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["profkit"]
    assert entry == "profkit.__main__:main"
    code = "import sys, profkit.__main__\nprint('typer' in sys.modules, 'profkit.cli' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> typer.Typer:
        raise InputError("broken")

    monkeypatch.setattr(app, "build_app", build)
    assert app.run([]) == 3
    with pytest.raises(InputError):
        app.run(["--debug"])


def test_no_cache_is_offered_wherever_traces_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFKIT_CACHE_DIR", str(tmp_path / "cache"))
    run_folder = str(SAMPLES / "kimi-k2.5-tp8" / "baseline")
    commands = {
        "attribute": ["attribute", run_folder],
        "whatif": ["whatif", run_folder, "--idle", "0"],
        "compare": ["compare", run_folder, run_folder],
        "doctor": ["doctor", run_folder],
        "add": ["add", run_folder, "--store", str(tmp_path / "store")],
        "plan": ["plan", run_folder, "-o", str(tmp_path / "plan")],
        "export": ["export", "perfetto", run_folder, "-o", str(tmp_path / "cut.json.gz")],
    }
    for name, arguments in commands.items():
        assert app.run([*arguments, "--no-cache"]) == 0, name
        assert not (tmp_path / "cache").exists(), name
    assert app.run(commands["attribute"]) == 0
    assert (tmp_path / "cache").exists()


HELP = [*app.ORDER, *(f"export {form}" for form in ("html", "perfetto", "tensorboard"))]


@pytest.mark.parametrize("command", [c for c in HELP if c != "export"])
def test_help_shows_calls_whose_options_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    head, _, tail = text.partition("Examples:")
    shown = [line.strip() for line in tail.splitlines() if line.strip()]
    assert shown, f"no example in the help of {command}"
    known = set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", head))
    for line in shown:
        call = line.rpartition("| ")[2].split()
        assert call[: 1 + len(command.split())] == ["profkit", *command.split()], line
        assert {word for word in call if re.match(r"--?[a-z]", word)} <= known, line
        assert len(line) <= 78
    assert "...]..." not in text
    assert "...}..." not in text
    assert "[default: 0]" not in text.partition("--verbose")[2].partition("\n  -h")[0]


def test_the_list_of_commands_fits_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for call in (["--help"], ["export", "--help"]):
        assert app.run(call) == 0
        assert "...\n" not in capsys.readouterr().out.partition("Commands:")[2]


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    line = f"exec {shlex.quote(sys.executable)} -m profkit {command}"
    return subprocess.run(
        ["/bin/sh", "-c", line], cwd=ROOT, capture_output=True, check=False, env=os.environ | environment
    )


def test_results_are_utf8_in_a_locale_that_knows_ascii_only() -> None:
    run = "sample_logs/kimi-k2.5-tp8"
    command = f"compare {run}/baseline/server.log {run}/eagle3/server.log"
    done = shell(command, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="")
    assert (done.returncode, done.stderr.decode().count("internal error")) == (0, 0)
    assert "→" in done.stdout.decode()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_no_internal_error(closed: str) -> None:
    done = shell(f"parse sample_logs/kimi-k2.5-tp8/eagle3/server.log {closed}")
    assert (done.returncode, done.stderr) == (0, b"")
    assert (b"EAGLE3" in done.stdout) == (closed != ">&-")
    assert shell("parse - <&-").returncode == 3
