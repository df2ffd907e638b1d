"""Define the commands that run something: train, compare, sweep, tune, and resume, which continues a run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import copyfileobj
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer
from rich.console import Console

from heatbath._internal.checks import NON_NEGATIVE, real
from heatbath.cli.errors import FAILURE, INTERRUPTED, USAGE, Json, as_json, complain, emit, ending
from heatbath.cli.options import Setting, Settings, completing, sections_of, takes_settings

if TYPE_CHECKING:
    from rich.table import Table

    from heatbath.cli.report.contents import RunReport, SearchReport
    from heatbath.cli.tuning import Tuning
    from heatbath.datasets import Problem
    from heatbath.runs.plan import Plan
    from heatbath.runs.run import Run
    from heatbath.training.auto import AutomaticRun
    from heatbath.training.train import ExecutionOptions

    Prepared: TypeAlias = Plan | AutomaticRun | Tuning  # a run, or a search

File = Annotated[
    Path | None, typer.Option("--settings", help="TOML file with settings; options override it.")
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Folder for the results (default: a new folder runs/NAME-N).")
]
Threads = Annotated[
    int | None, typer.Option(help="Number of threads (default: HEATBATH_THREADS, or all cores).")
]
Workers = Annotated[
    str | None,
    typer.Option(
        "--executor",
        metavar="WORKERS",
        help="Where to compute: processes, processes:4 for four of them, ray, or tcp://HOST:PORT, the "
        "address of a Dask scheduler (default: in this process). With workers, --threads is the number of "
        "threads per task (default 1).",
    ),
]
WIDTH = 160  # letters of a line where there is no terminal
Every = Annotated[float, typer.Option(help="Seconds between checkpoints.")]
Compared = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        help="Method with its coefficients, such as sgld:h=0.1,sigma=0.01; repeat the option for each "
        "method.",
        autocompletion=completing("--method"),
    ),
]
Tuned = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        help="Method, such as adlala, perhaps with ranges and values, such as adam:h=1e-4..0.1,beta1=0.9; "
        "repeat the option for each method.",
        autocompletion=completing("--method"),
    ),
]


class RunOptions(NamedTuple):
    """Options of every command that starts a run; all but the first two never change its results.

    Attributes
    ----------
    settings
        A TOML file of settings, or None.
    out
        Folder for the results; None makes a new one below runs.
    threads
        Number of threads; None takes HEATBATH_THREADS, or all cores.
    executor
        Name of the workers, such as "processes:4"; None computes in this process.
    every
        Seconds between two checkpoints.
    json
        True to print JSON on stdout instead of tables.
    """

    settings: File = None
    out: Out = None
    threads: Threads = None
    executor: Workers = None
    every: Every = 60.0
    json: Json = False


@takes_settings("problem", "network", "method", "posterior", "training", without=("executor",))
def train(*, options: dict[Setting, Any], run_options: RunOptions) -> None:
    """Train or sample a network with one method, in several independent chains.

    Without --method, heatbath samples the posterior as its scikit-learn estimators do, with nothing to
    configure.

    heatbath train --data FILE.csv --target COLUMN

    heatbath train --problem spirals --turns 4 --method adlala --h 0.25 --steps 20000

    heatbath train --data FILE.csv --target COLUMN --method lol

    heatbath train --data FILE.csv --target COLUMN --method lala --h 0.2 --gamma 1 --prior 1 --samples 100

    heatbath train --data FILE.csv --target COLUMN --method lala --h auto --gamma 1 --prior 1 --steps auto
    """
    _start("train", options, [], run_options)


@takes_settings("problem", "network", "posterior", "training")
def compare(*, options: dict[Setting, Any], method: Compared = None, run_options: RunOptions) -> None:
    """Compare methods on one problem, from the same starts and with the same mini-batches.

    heatbath compare --problem spirals --turns 4 --method adlala:h=0.25 --method adam:h=0.005
    """
    _start("compare", options, method or [], run_options)


@takes_settings("problem", "network", "method", "posterior", "training")
def sweep(*, options: dict[Setting, Any], run_options: RunOptions) -> None:
    """Train at every point of a grid of coefficients.

    Write several values as a list, such as 1e-5,1e-4, or as a range FIRST:LAST:COUNT with logarithmic
    spacing: 1e-6:1e-2:5 is 1e-6, 1e-5, 1e-4, 1e-3, 1e-2.

    heatbath sweep --problem spirals --method lol --tau 0,1e-4,1e-3 --h 0.05:0.4:4
    """
    _start("sweep", options, [], run_options)


@takes_settings("problem", "network", "search")
def tune(*, options: dict[Setting, Any], method: Tuned = None, run_options: RunOptions) -> None:
    """Search for good coefficients of methods, then train again with the best of each method.

    A coefficient has its default range, a range that you choose, LOW..HIGH, or a fixed value. Candidates are
    compared on validation examples, which are set aside from the training examples. Bad candidates stop
    early, and every method gets the same number of steps. The best candidate of each method is then trained
    on all training examples, from new starts, and evaluated on the test examples.

    heatbath tune --problem spirals --turns 4 --method adlala --method adam --steps 50000 --by accuracy

    heatbath tune --data FILE.csv --target COLUMN --method lol --method adam:h=1e-4..0.1,beta1=0.9
    """
    _start("tune", options, method or [], run_options)


def resume(
    folder: Annotated[Path, typer.Argument(help="Folder of the run.")],
    steps: Annotated[int | None, typer.Option(help="Number of steps to add to a finished run.")] = None,
    threads: Threads = None,
    executor: Workers = None,
    every: Every = 60.0,
    json: Json = False,
) -> None:
    """Continue an interrupted run; the results are identical to those of an uninterrupted run.

    For a finished run, this writes the summary and the figures again. With --steps, it trains a finished run
    for more steps, keeps samples at the same intervals, and records the extension in its settings.

    heatbath resume my-run

    heatbath resume my-run --steps 5000
    """
    from heatbath._internal.atomic_write import write
    from heatbath.cli.run_folder import SETTINGS
    from heatbath.cli.settings import merge_settings, read_settings, write_settings

    run_options = RunOptions(threads=threads, executor=executor, every=every, json=json)
    with ending(USAGE):
        if not (folder / SETTINGS).is_file():
            raise FileNotFoundError(f"{folder} holds no run: there is no {SETTINGS} in it")
        _check_options(run_options)
        command, sections = read_settings(folder / SETTINGS)
        settings = merge_settings(sections, {}, [])
        if steps is not None:
            ends = _extended_ends(command, settings, folder, steps)
            settings["training"] = settings["training"] | {"continued": ends}
        prepared, complete = _prepare(command, settings)

    if steps is not None:
        with ending(FAILURE):
            write(folder / SETTINGS, write_settings(command, complete))
    _execute(command, prepared, complete, folder, run_options)


def _extended_ends(command: str, settings: Settings, folder: Path, steps: int) -> list[int]:
    """Return the steps at which a run ends after each of its extensions, with a new extension as the last.

    Parameters
    ----------
    command
        The command that made the run; a search by "tune" can't be extended.
    settings
        Sections of its settings.
    folder
        Folder of the run, which must be finished.
    steps
        Number of steps to add.
    """
    from heatbath._internal.checks import whole
    from heatbath.cli.plans import extension_ends
    from heatbath.cli.run_folder import RUN
    from heatbath.runs.run import load

    steps = whole("--steps", steps, low=1)
    if command == "tune":
        raise ValueError("--steps works for train, compare and sweep; a search can't be extended")

    path = folder / RUN
    run = load(path) if path.exists() else None
    ends = extension_ends(settings)
    is_finished = run is not None and run.finished and (not ends or run.step >= ends[-1])
    if run is None or not is_finished:
        raise ValueError(
            f"the run in {folder} is not finished, so it can't be extended: finish it first with heatbath "
            f"resume {shlex.quote(str(folder))}"
        )
    return [*ends, run.step + steps]


def _start(command: str, options: dict[Setting, Any], methods: list[str], run_options: RunOptions) -> None:
    """Start a new run in a folder of its own, and report on it.

    Wrong settings are refused before anything is written. Data from a pipe are the exception: a pipe can be
    read only once, so they are copied to the folder first, from which the run can be resumed and reproduced.
    If the run can't start, its folder is removed again.

    Parameters
    ----------
    command
        "train", "compare", "sweep" or "tune".
    options
        Values of the options that the user gave, which override the settings file.
    methods
        Methods of a comparison or search as text, such as sgld:h=0.1.
    run
        Settings file, folder, threads, checkpoints, workers and output.
    """
    from heatbath._internal.atomic_write import write
    from heatbath.cli.introduction import introduce
    from heatbath.cli.run_folder import SETTINGS, TABLE, check_free, claim_folder, open_pipe, release_folder
    from heatbath.cli.settings import merge_settings, read_settings, write_settings

    with ending(USAGE):
        _check_options(run_options)
        check_free(run_options.out)
        sections: Settings = {}
        if run_options.settings is not None:
            _, sections = read_settings(run_options.settings, command)
        settings = merge_settings(sections, sections_of(options), methods)
        pipe = open_pipe(settings["problem"].get("data"))

    suffix = _name_parts(command, settings)
    folder = None
    try:
        if pipe is not None:
            with ending(FAILURE), pipe as source:
                folder = claim_folder(run_options.out, "-".join([TABLE, *suffix]), "")
                write(folder / TABLE, lambda file: copyfileobj(source, file))
            settings = settings | {"problem": settings["problem"] | {"data": str(folder / TABLE)}}

        with ending(USAGE):
            prepared, complete = _prepare(command, settings)
            text = write_settings(command, complete)
        with ending(FAILURE):
            if folder is None:
                folder = claim_folder(run_options.out, "-".join([prepared.problem.name, *suffix]), text)
            else:
                write(folder / SETTINGS, text)

        introduce(prepared.problem, complete, is_default=command == "train" and not settings["method"])
        _execute(command, prepared, complete, folder, run_options)
    except (typer.Exit, KeyboardInterrupt) as stop:
        # An exit with INTERRUPTED comes from a run that can be resumed, so its folder must stay
        if folder is not None and getattr(stop, "exit_code", USAGE) in (FAILURE, USAGE):
            release_folder(folder)
        if isinstance(stop, KeyboardInterrupt):
            complain("interrupted before the run started")
            raise typer.Exit(INTERRUPTED) from None
        raise


def _name_parts(command: str, settings: Settings) -> list[str]:
    """Return what follows the problem in the name of a run's folder: the command or the method, if any."""
    if command in ("compare", "tune"):
        return [command]
    if "name" in settings["method"]:
        return [settings["method"]["name"]]
    return []


def _prepare(command: str, settings: Settings) -> tuple[Prepared, Settings]:
    """Check the settings; return what to run, and the settings completed with all defaults."""
    from heatbath.cli.plans import prepare_run
    from heatbath.cli.tuning import prepare_tuning

    if command == "tune":
        return prepare_tuning(settings)
    return prepare_run(command, settings)


def _check_options(run_options: RunOptions) -> None:
    """Raise an error for wrong threads, unknown workers, or a negative time between checkpoints."""
    from heatbath.engine.threads import thread_count
    from heatbath.runs.distributed.pools import check_name

    if run_options.executor is not None:
        check_name(run_options.executor)
    thread_count(run_options.threads)
    real("every", run_options.every, NON_NEGATIVE)


def _execute(
    command: str, prepared: Prepared, settings: Settings, folder: Path, run_options: RunOptions
) -> None:
    """Run what was prepared, or continue it from the state in its folder, and write the report.

    Parameters
    ----------
    command
        "train", "compare", "sweep" or "tune".
    prepared
        The run or search.
    settings
        Its complete settings, which list the extensions of the run.
    folder
        Folder for the state, the results and the report.
    run_options
        Threads, checkpoints, workers and output.
    """
    from heatbath.cli.plans import extension_ends
    from heatbath.cli.tuning import Tuning
    from heatbath.runs.distributed.pools import using_named

    try:
        with ending(FAILURE), using_named(run_options.executor):
            if isinstance(prepared, Tuning):
                report: RunReport | SearchReport = _search(prepared, folder, run_options)
            else:
                report = _train(command, prepared, extension_ends(settings), folder, run_options)
            _write_report(report, folder, run_options.json)
    except KeyboardInterrupt:
        complain(f"interrupted; continue with: heatbath resume {shlex.quote(str(folder))}")
        raise typer.Exit(INTERRUPTED) from None


def _train(
    command: str, prepared: Plan | AutomaticRun, ends: list[int], folder: Path, run_options: RunOptions
) -> RunReport:
    """Run a plan and its extensions, save the run, and report on it.

    Parameters
    ----------
    command
        "train", "compare" or "sweep".
    prepared
        The plan, or the automatic run that finds what is "auto".
    ends
        Steps at which the run ends after each extension, in order; empty if there are none.
    folder
        Folder in which the run is saved.
    run_options
        Threads, checkpoints and output.

    Raises
    ------
    KeyboardInterrupt
        If the run was stopped. It is saved, and can be resumed.
    """
    from heatbath.cli.display import Display
    from heatbath.cli.report.baseline import constant_baseline
    from heatbath.cli.report.contents import report_on_run
    from heatbath.cli.run_folder import RUN
    from heatbath.runs.plan import Plan

    path = folder / RUN
    plan = prepared if isinstance(prepared, Plan) else prepared.first_plan()
    constant = constant_baseline(plan)
    with Display(prepared, Console(stderr=True), constant=constant) as display:
        options: ExecutionOptions = {
            "threads": run_options.threads,
            "progress": display,
            "checkpoint": path,
            "every": run_options.every,
        }
        run = _run_with_extensions(prepared, plan.problem, ends, path, options)
    run.save(path)  # checkpoints only warn when they fail, so the final state is saved again, with an error
    if not run.finished:
        raise KeyboardInterrupt

    warning = None if constant is None else constant.warn_of_average(run)
    if warning is not None:
        complain(f"warning: {warning}")
    report = report_on_run(command, run)
    _complain_if_constant_is_better(report)
    return report


def _run_with_extensions(
    prepared: Plan | AutomaticRun, problem: Problem, ends: list[int], path: Path, options: ExecutionOptions
) -> Run:
    """Run a plan, or resume it from its file, and continue it to the end of each extension.

    Parameters
    ----------
    prepared, problem
        What to run, and its problem, which the file of the run needs.
    ends
        Steps at which the run ends after each extension, in order.
    path
        File of the run and its checkpoints.
    options
        Options of execution, with this path for the checkpoints.

    Returns
    -------
    Run
        The finished run, or an unfinished one if it was stopped by Ctrl-C.
    """
    from heatbath.runs.distributed.pools import chosen_pool
    from heatbath.runs.run import load
    from heatbath.training.train import carry_out

    # The file of an extension is continued here; `carry_out` itself resumes that of the first part
    saved = load(path, problem) if ends and path.exists() else None
    if saved is None or saved.plan.steps not in ends:
        run = carry_out(prepared, pool=chosen_pool(None), **options)
    elif saved.finished:
        run = saved
    else:
        run = saved.resume(**options)

    for end in ends:
        if run.finished and run.step < end:
            run = run.resume(end - run.step, **options)
    return run


def _search(tuning: Tuning, folder: Path, run_options: RunOptions) -> SearchReport:
    """Search for the best candidates, train them in fresh runs, and report on both.

    The state of the search, the fresh runs and the table of candidates, table.csv, are written to the folder.

    Raises
    ------
    KeyboardInterrupt
        If the search or the fresh runs were stopped; their state is in the folder.
    """
    from heatbath._internal.atomic_write import write
    from heatbath.cli.display import Display
    from heatbath.cli.report.contents import report_on_search
    from heatbath.runs.distributed.pools import chosen_pool

    options = {"threads": run_options.threads, "every": run_options.every, "pool": chosen_pool(None)}
    console = Console(stderr=True)
    with Display(tuning.plan, console, "searching") as display:
        result = tuning.find(folder, options, display)

    run = None
    if tuning.fresh_chains:
        plan = tuning.fresh_plan(result.partitions)
        with Display(plan, console) as display:
            run = tuning.train(plan, folder, options, display)

    report = report_on_search(tuning, result, run)
    if report.fresh is not None:
        _complain_if_constant_is_better(report.fresh)
    write(folder / "table.csv", result.table.to_csv(index=False))
    return report


def _write_report(report: RunReport | SearchReport, folder: Path, json: bool) -> None:
    """Write summary.json, summary.md, the figures and report.html into the folder, and print the results.

    Parameters
    ----------
    report
        The evaluated run or search.
    folder
        Folder of the run, which contains its settings.
    json
        True to print the summary as JSON instead of tables.
    """
    from heatbath._internal.atomic_write import write
    from heatbath.cli.report.figures import draw_figures
    from heatbath.cli.report.html import report_to_html
    from heatbath.cli.report.markdown import report_to_markdown
    from heatbath.cli.report.terminal import report_to_terminal
    from heatbath.cli.run_folder import SETTINGS

    summary = report.to_json()
    write(folder / "summary.json", as_json(summary))
    write(folder / "summary.md", report_to_markdown(report))

    figures = draw_figures(report, folder)
    settings = (folder / SETTINGS).read_text(encoding="utf-8")
    write(folder / "report.html", report_to_html(report, figures, settings))

    if json:
        emit(as_json({"folder": str(folder), "figures": [str(path) for path in figures], **summary}))
    else:
        _print([*report_to_terminal(report), f"results: {folder}"])


def _complain_if_constant_is_better(report: RunReport) -> None:
    """Warn on stderr if a constant prediction is better than the best of several methods or points."""
    from heatbath.cli.report.contents import warning_of_best

    warning = warning_of_best(report)
    if warning is not None:
        complain(f"warning: even for the best one {warning}")


def _print(lines: Sequence[Table | str]) -> None:
    """Print tables and lines on stdout, 160 letters wide if it isn't a terminal."""
    width = None if sys.stdout.isatty() else WIDTH
    console = Console(width=width, markup=False, emoji=False)  # names of the user's are printed as they are
    with console.capture() as text:
        for line in lines:
            console.print(line, highlight=False, soft_wrap=isinstance(line, str))
    emit(text.get())
