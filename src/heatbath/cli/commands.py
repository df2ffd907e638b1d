"""The commands that run something: train, compare, sweep, tune, and resume, which continues any of them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from heatbath.checks import NON_NEGATIVE, real
from heatbath.cli.errors import FAILURE, INTERRUPTED, USAGE, complain, emit, ending
from heatbath.cli.options import Setting, Settings, sections_of, takes_settings

if TYPE_CHECKING:
    from rich.table import Table

    from heatbath.automatic import Search
    from heatbath.cli.tuning import Tuning
    from heatbath.runs.plan import Plan
    from heatbath.runs.run import Run
    from heatbath.tuning import Tuned

File = Annotated[
    Path | None, typer.Option("--settings", help="A TOML file of settings; options win over it.")
]
Out = Annotated[
    Path | None, typer.Option("--out", help="The folder for the results (default: a new runs/NAME-N).")
]
Threads = Annotated[int | None, typer.Option(help="Threads (default: HEATBATH_THREADS, or all cores).")]
Every = Annotated[float, typer.Option(help="Seconds between two checkpoints.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")]
Named = Annotated[
    list[str] | None,
    typer.Option("--method", help="A method, such as sgld:h=0.1,sigma=0.01; say this several times."),
]
Searched = Annotated[
    list[str] | None,
    typer.Option("--method", help="A method, such as adlala or adam:h=1e-4..0.1,beta1=0.9; several times."),
]


@takes_settings("problem", "network", "method", "posterior", "training")
def train(
    given: dict[Setting, Any],
    settings: File = None,
    out: Out = None,
    threads: Threads = None,
    every: Every = 60.0,
    json: Json = False,
) -> None:
    """Train or sample a network by one method: many chains, from different starts.

    heatbath train --problem spirals --turns 4 --method adlala --h 0.25 --steps 20000

    heatbath train --data FILE.csv --target COLUMN --method lol

    heatbath train --data FILE.csv --target COLUMN --method lala --h 0.2 --gamma 1 --prior 1 --samples 100

    heatbath train --data FILE.csv --target COLUMN --method lala --h auto --gamma 1 --prior 1 --steps auto
    """
    _start("train", settings, given, [], out, threads, every, json)


@takes_settings("problem", "network", "posterior", "training")
def compare(
    given: dict[Setting, Any],
    method: Named = None,
    settings: File = None,
    out: Out = None,
    threads: Threads = None,
    every: Every = 60.0,
    json: Json = False,
) -> None:
    """Compare methods on one problem, from the same starts and on the same mini-batches.

    heatbath compare --problem spirals --turns 4 --method adlala:h=0.25 --method adam:h=0.005
    """
    _start("compare", settings, given, method or [], out, threads, every, json)


@takes_settings("problem", "network", "method", "posterior", "training")
def sweep(
    given: dict[Setting, Any],
    settings: File = None,
    out: Out = None,
    threads: Threads = None,
    every: Every = 60.0,
    json: Json = False,
) -> None:
    """Train at every point of a grid of coefficients.

    Several values are written as a list, 1e-5,1e-4, or as a range FIRST:LAST:HOW_MANY, evenly spaced in
    logarithms: 1e-6:1e-2:5 is 1e-6, 1e-5, 1e-4, 1e-3, 1e-2.

    heatbath sweep --problem spirals --method lol --tau 0,1e-4,1e-3 --h 0.05:0.4:4
    """
    _start("sweep", settings, given, [], out, threads, every, json)


@takes_settings("problem", "network", "search")
def tune(
    given: dict[Setting, Any],
    method: Searched = None,
    settings: File = None,
    out: Out = None,
    threads: Threads = None,
    every: Every = 60.0,
    json: Json = False,
) -> None:
    """Find coefficients of methods by trying many, and train anew with the best of each.

    A coefficient has its usual range, one of your own, LOW..HIGH, or a value. Candidates are judged on
    examples that are set aside of the training examples, those that are worse end early, and every method
    gets the same number of steps. The best of each is then trained on all training examples, from other
    starts, and judged on the test examples.

    heatbath tune --problem spirals --turns 4 --method adlala --method adam --steps 50000 --by accuracy

    heatbath tune --data FILE.csv --target COLUMN --method lol --method adam:h=1e-4..0.1,beta1=0.9
    """
    _start("tune", settings, given, method or [], out, threads, every, json)


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that was interrupted.")],
    threads: Threads = None,
    every: Every = 60.0,
    json: Json = False,
) -> None:
    """Continue a run that was interrupted or killed; it ends as if nothing had happened.

    Of a finished run the summary and the figures are made again.
    """
    from heatbath.cli.folders import SETTINGS
    from heatbath.cli.settings import merged, read_settings

    with ending(USAGE):
        if not (folder / SETTINGS).is_file():
            raise FileNotFoundError(f"{folder} holds no run: there is no {SETTINGS} in it")
        _check_manner(threads, every)
        command, sections = read_settings(folder / SETTINGS)
        prepared, _ = _prepared(command, merged(sections, {}, []))
    _carry_out(command, prepared, folder, threads, every, json)


def _start(
    command: str,
    file: Path | None,
    given: dict[Setting, Any],
    methods: list[str],
    out: Path | None,
    threads: int | None,
    every: float,
    json: bool,
) -> None:
    """Begin a new run, or refuse to before anything is written."""
    from heatbath.cli.folders import check_free, claim_folder, release_folder
    from heatbath.cli.settings import merged, read_settings, write_settings

    with ending(USAGE):
        _check_manner(threads, every)
        check_free(out)
        sections = read_settings(file, command)[1] if file else {}
        prepared, complete = _prepared(command, merged(sections, sections_of(given), methods))
        text = write_settings(command, complete)
        name = complete["method"]["name"] if "method" in complete else command
    with ending(FAILURE):
        folder = claim_folder(out, f"{prepared.problem.name}-{name}", text)
    try:
        _carry_out(command, prepared, folder, threads, every, json)
    except typer.Exit as end:
        if end.exit_code == FAILURE:
            release_folder(folder)
        raise


def _prepared(command: str, settings: Settings) -> tuple[Plan | Search | Tuning, Settings]:
    """What a command carries out, and all its settings; what is wrong is refused."""
    from heatbath.cli.settings import plan_of
    from heatbath.cli.tuning import tuning_of

    return tuning_of(settings) if command == "tune" else plan_of(command, settings)


def _check_manner(threads: int | None, every: float) -> None:
    """Refuse what says how to run, and not what, where it is wrong."""
    from heatbath.engine.threads import thread_count

    thread_count(threads)
    real("every", every, NON_NEGATIVE)


def _carry_out(
    command: str,
    prepared: Plan | Search | Tuning,
    folder: Path,
    threads: int | None,
    every: float,
    json: bool,
) -> None:
    """Run what was prepared from its start, or from where its folder stands, and write what comes of it."""
    from heatbath.cli.tuning import Tuning

    try:
        with ending(FAILURE):
            if isinstance(prepared, Tuning):
                _report_search(prepared, *_searched(prepared, folder, threads, every), folder, json)
                return
            run = _simulated(prepared, folder, threads, every)
            if not run.finished:
                raise KeyboardInterrupt
            _report(command, run, folder, json)
    except KeyboardInterrupt:
        complain(f"interrupted; continue with: heatbath resume {shlex.quote(str(folder))}")
        raise typer.Exit(INTERRUPTED) from None


def _simulated(plan: Plan | Search, folder: Path, threads: int | None, every: float) -> Run:
    """The run of a plan, which is in its file when it ends, or stops."""
    from heatbath.cli.display import Display
    from heatbath.cli.folders import RUN
    from heatbath.training import carry_out

    path = folder / RUN
    with Display(plan, Console(stderr=True)) as display:
        run = carry_out(plan, threads=threads, progress=display, checkpoint=path, every=every)
    run.save(path)  # a checkpoint that fails is a warning, but this must not
    return run


def _report(command: str, run: Run, folder: Path, json: bool) -> None:
    """Write the summary and the figures, and print the summary."""
    from heatbath.cli.pictures import draw_all
    from heatbath.cli.summaries import as_json, as_markdown, as_table, notes, summary
    from heatbath.writing import write

    results = summary(command, run)
    write(folder / "summary.json", as_json(results))
    write(folder / "summary.md", as_markdown(results))
    figures = draw_all(command, run, results, folder)
    if json:
        emit(as_json({"folder": str(folder), "figures": [str(path) for path in figures], **results}))
    else:
        _print(as_table(results), *notes(results), f"results: {folder}")


def _searched(tuning: Tuning, folder: Path, threads: int | None, every: float) -> tuple[Tuned, Run | None]:
    """What a search has found, and the fresh runs with it, if there are to be any."""
    from heatbath.cli.display import Display

    manner, console = {"threads": threads, "every": every}, Console(stderr=True)
    with Display(tuning.plan, console, "searching") as display:
        tuned = tuning.find(folder, manner, display)
    if not tuning.fresh:
        return tuned, None
    plan = tuning.fresh_plan(tuned.partitions)
    with Display(plan, console) as display:
        return tuned, tuning.train(plan, folder, manner, display)


def _report_search(tuning: Tuning, tuned: Tuned, run: Run | None, folder: Path, json: bool) -> None:
    """Write the table, the summary and the figures of a search, and print the summary."""
    from heatbath.cli.pictures import draw_search
    from heatbath.cli.searches import search_markdown, search_summary, search_tables
    from heatbath.cli.summaries import as_json
    from heatbath.writing import write

    results = search_summary(tuning, tuned, run)
    write(folder / "table.csv", tuned.table.to_csv(index=False))
    write(folder / "summary.json", as_json(results))
    write(folder / "summary.md", search_markdown(results))
    figures = draw_search(tuned, run, results, folder)
    if json:
        emit(as_json({"folder": str(folder), "figures": [str(path) for path in figures], **results}))
    else:
        _print(*search_tables(results), f"results: {folder}")


def _print(*lines: Table | str) -> None:
    """Tables and lines on stdout."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    with console.capture() as text:
        for line in lines:
            console.print(line, highlight=False, soft_wrap=isinstance(line, str))
    emit(text.get())
