"""Run the command line: train, compare, sweep, tune, resume, predict, explore, info, reproduce."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version as version_of
from typing import Annotated, Any, cast

import typer

from heatbath.cli.commands import compare, resume, sweep, train, tune
from heatbath.cli.errors import USAGE, complain, emit, ending
from heatbath.cli.info import explore, info
from heatbath.cli.predict import predict
from heatbath.cli.reproduce import reproduce

# Newer versions of Typer contain their own copy of Click, so the class is taken from there
UsageError = cast(type[Any], typer.BadParameter.__base__)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)
for command in (train, compare, sweep, tune, resume, predict, explore, reproduce, info):
    app.command()(command)


def _print_version(is_asked: bool) -> None:
    """Print the version and exit if the user asked for it; Typer calls this with the value of --version."""
    if is_asked:
        emit(f"heatbath {version_of('heatbath')}\n")
        raise typer.Exit


@app.callback()
def heatbath(
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="A Python module that registers your own methods; repeat it for several.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, help="Print the version and exit.", callback=_print_version),
    ] = False,
) -> None:
    """Train and sample neural networks with thermodynamic methods."""
    with ending(USAGE):
        if modules:
            sys.path.insert(0, "")  # as python -m does, to find modules in the current folder
        for module in modules or []:
            try:
                import_module(module)
            except Exception as error:  # a user's module may raise anything
                raise ImportError(f"--import {module} failed: {type(error).__name__}: {error}") from error


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its code; a wrong option is one line on stderr, without a traceback.

    Parameters
    ----------
    arguments
        The words after `heatbath`. None takes those of the process; an empty list prints the help.
    """
    words = sys.argv[1:] if arguments is None else arguments

    try:
        result = app(words or ["--help"], prog_name="heatbath", standalone_mode=False)
    except UsageError as error:
        complain(f"{error.format_message()} (see heatbath --help)")
        sys.exit(USAGE)

    exit_code = result if isinstance(result, int) else 0
    sys.exit(exit_code)
