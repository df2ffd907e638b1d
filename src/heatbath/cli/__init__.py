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

UsageError = cast(type[Any], typer.BadParameter.__base__)  # that of Click, or of Typer's own copy of it

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)
for command in (train, compare, sweep, tune, resume, predict, explore, reproduce, info):
    app.command()(command)


def _print_version(is_asked: bool) -> None:
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
            sys.path.insert(0, "")  # modules in this folder, as python -m finds them
        for module in modules or []:
            try:
                import_module(module)
            except Exception as error:  # a module of the user may raise anything
                raise ImportError(f"--import {module} failed: {type(error).__name__}: {error}") from error


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its code; mistakes in the options are one line on stderr.

    `arguments` are the words after `heatbath`; None takes those of the process, and no words print the help.
    """
    words = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(words or ["--help"], prog_name="heatbath", standalone_mode=False)
    except UsageError as error:
        complain(f"{error.format_message()} (see heatbath --help)")
        code = USAGE
    sys.exit(code if isinstance(code, int) else 0)
