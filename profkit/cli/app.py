"""The ``profkit`` program: commands, exit codes and the one place where errors are printed."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated

import typer

from profkit._version import __version__
from profkit.cli import commands
from profkit.errors import ExitCode, ProfkitError, UsageError
from profkit.escape import visible

# The order in --help: the way a newcomer walks. Commands not listed come last.
ORDER = (
    "demo",
    "parse",
    "attribute",
    "plan",
    "whatif",
    "compare",
    "add",
    "runs",
    "weekly",
    "export",
    "watch",
    "doctor",
    "cache",
)
DEBUG_FLAG = "--debug"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"profkit {__version__}")
        raise typer.Exit


def build_app() -> typer.Typer:
    """The Typer application with every command found in :mod:`profkit.cli.commands`."""
    app = typer.Typer(
        name="profkit",
        help="Where the time of SGLang decode cycles goes, whether speculation pays, and what to try first.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        version: Annotated[
            bool,
            typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
        ] = False,
        debug: Annotated[
            bool, typer.Option(DEBUG_FLAG, help="Show a traceback when something fails; any position works.")
        ] = False,
    ) -> None:
        del version, debug  # read from the arguments in main(), before any command runs

    names = sorted(m.name for m in iter_modules(commands.__path__))
    for name in sorted(names, key=lambda n: ORDER.index(n) if n in ORDER else len(ORDER)):
        import_module(f"{commands.__name__}.{name}").register(app)
    return app


def _refuse_empty(arguments: list[str]) -> None:
    """An empty argument names nothing; as a path it would silently be the current folder.

    Raises:
        UsageError: there is one.
    """
    for number, argument in enumerate(arguments):
        option = argument.removesuffix("=") if argument.startswith("--") else argument
        before = arguments[number - 1] if number else ""
        if not argument or (option != argument and option[2:].replace("-", "").isalnum()):
            place = f"the value of {option}" if option else f"the one after {before}" if number else "the first one"
            raise UsageError(f"an argument is empty ({place}); is a variable of the shell unset?")


def _fail(sentence: str, code: int) -> int:
    print(f"profkit: {visible(sentence)}", file=sys.stderr)
    return code


def run(arguments: list[str]) -> int:
    """Run the program on ``arguments`` and return its exit code."""
    debug = DEBUG_FLAG in arguments
    arguments = [a for a in arguments if a != DEBUG_FLAG]
    try:
        _refuse_empty(arguments)
        build_app()(args=arguments, prog_name="profkit")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else ExitCode.DONE if end.code is None else ExitCode.USAGE
        if code == ExitCode.CHECK_FAILED:  # so click ends when the reader of our output went away (``| head``)
            return ExitCode.DONE
        return _fail("interrupted", code) if code == ExitCode.INTERRUPTED else code
    except ProfkitError as error:
        if debug:
            raise
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output went away (``| head``): not an error, and nothing more to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except MemoryError:
        return _fail("out of memory; try --jobs 1 or fewer files", ExitCode.UNUSABLE_INPUT)
    except OSError as error:
        if debug:
            raise
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{error.strerror or error}", ExitCode.UNUSABLE_INPUT)
    except Exception as error:
        if debug:
            raise
        return _fail(
            f"internal error ({type(error).__name__}: {error}); run again with --debug and report the traceback",
            ExitCode.UNUSABLE_INPUT,
        )
    return ExitCode.DONE
