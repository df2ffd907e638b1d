"""The commands that run something: train, compare, sweep, tune, and resume, which continues any of them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import copyfileobj
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from heatbath._internal.checks import NON_NEGATIVE, real
from heatbath.cli.errors import FAILURE, INTERRUPTED, USAGE, Json, complain, emit, ending
from heatbath.cli.options import Setting, Settings, completing, sections_of, takes_settings

if TYPE_CHECKING:
    from rich.table import Table

    from heatbath.cli.report.contents import Told
    from heatbath.cli.tuning import Tuning
    from heatbath.datasets import Problem
    from heatbath.runs.plan import Plan
    from heatbath.runs.run import Run
    from heatbath.training.auto import AutomaticRun
    from heatbath.tuning.trials import TuningResult

MOST_NOTES = 20  # on the columns of a table

File = Annotated[
    Path | None, typer.Option("--settings", help="A TOML file of settings; options win over it.")
]
Out = Annotated[
    Path | None, typer.Option("--out", help="The folder for the results (default: a new runs/NAME-N).")
]
Threads = Annotated[int | None, typer.Option(help="Threads (default: HEATBATH_THREADS, or all cores).")]
Workers = Annotated[
    str | None,
    typer.Option(
        "--executor",
        metavar="WORKERS",
        help="Who computes: processes, or processes:4 for so many, ray, or the address of a scheduler of "
        "Dask, tcp://HOST:PORT (this process). --threads are then those of each of their tasks (1).",
    ),
]
Every = Annotated[float, typer.Option(help="Seconds between two checkpoints.")]
Named = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        help="A method, such as sgld:h=0.1,sigma=0.01; say this several times.",
        autocompletion=completing("--method"),
    ),
]
Searched = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        help="A method, such as adlala or adam:h=1e-4..0.1,beta1=0.9; several times.",
        autocompletion=completing("--method"),
    ),
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

    Without --method the posterior is sampled as the estimators for scikit-learn do, and nothing has to be
    chosen.

    heatbath train --data FILE.csv --target COLUMN

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
    executor: Workers = None,
    every: Every = 60.0,
    json: Json = False,
) -> None:
    """Compare methods on one problem, from the same starts and on the same mini-batches.

    heatbath compare --problem spirals --turns 4 --method adlala:h=0.25 --method adam:h=0.005
    """
    _start("compare", settings, given, method or [], out, threads, every, json, executor)


@takes_settings("problem", "network", "method", "posterior", "training")
def sweep(
    given: dict[Setting, Any],
    settings: File = None,
    out: Out = None,
    threads: Threads = None,
    executor: Workers = None,
    every: Every = 60.0,
    json: Json = False,
) -> None:
    """Train at every point of a grid of coefficients.

    Several values are written as a list, 1e-5,1e-4, or as a range FIRST:LAST:HOW_MANY, evenly spaced in
    logarithms: 1e-6:1e-2:5 is 1e-6, 1e-5, 1e-4, 1e-3, 1e-2.

    heatbath sweep --problem spirals --method lol --tau 0,1e-4,1e-3 --h 0.05:0.4:4
    """
    _start("sweep", settings, given, [], out, threads, every, json, executor)


@takes_settings("problem", "network", "search")
def tune(
    given: dict[Setting, Any],
    method: Searched = None,
    settings: File = None,
    out: Out = None,
    threads: Threads = None,
    executor: Workers = None,
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
    _start("tune", settings, given, method or [], out, threads, every, json, executor)


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    steps: Annotated[
        int | None, typer.Option(help="Go on for so many more steps, beyond the end of a finished run.")
    ] = None,
    threads: Threads = None,
    executor: Workers = None,
    every: Every = 60.0,
    json: Json = False,
) -> None:
    """Continue a run that was interrupted or killed; it ends as if nothing had happened.

    Of a finished run the summary and the figures are made again. With --steps it goes on beyond its end, and
    keeps samples as before; that is in its settings, too.

    heatbath resume my-run

    heatbath resume my-run --steps 5000
    """
    from heatbath._internal.atomic_write import write
    from heatbath.cli.run_folder import SETTINGS
    from heatbath.cli.settings import merged, read_settings, write_settings

    with ending(USAGE):
        if not (folder / SETTINGS).is_file():
            raise FileNotFoundError(f"{folder} holds no run: there is no {SETTINGS} in it")
        _check_manner(threads, every, executor)
        command, sections = read_settings(folder / SETTINGS)
        settings = merged(sections, {}, [])
        if steps is not None:
            ends = _ends_with(command, settings, folder, steps)
            settings["training"] = settings["training"] | {"continued": ends}
        prepared, complete = _prepared(command, settings)
    if steps is not None:
        with ending(FAILURE):
            write(folder / SETTINGS, write_settings(command, complete))
    _carry_out(command, prepared, complete, folder, threads, every, json, executor)


def _ends_with(command: str, settings: Settings, folder: Path, steps: int) -> list[int]:
    """The last steps of what was added to a run, with so many more."""
    from heatbath._internal.checks import whole
    from heatbath.cli.run_folder import RUN
    from heatbath.cli.settings import continued
    from heatbath.runs.run import load

    steps = whole("--steps", steps, low=1)
    if command == "tune":
        raise ValueError("--steps is for train, compare and sweep: a search has its steps in its settings")
    run = load(folder / RUN) if (folder / RUN).exists() else None
    ends = continued(settings)
    if run is None or not run.finished or (ends and run.step < ends[-1]):
        raise ValueError(
            f"the run in {folder} is not finished: first say heatbath resume {shlex.quote(str(folder))}"
        )
    return [*ends, run.step + steps]


def _start(
    command: str,
    file: Path | None,
    given: dict[Setting, Any],
    methods: list[str],
    out: Path | None,
    threads: int | None,
    every: float,
    json: bool,
    executor: str | None = None,
) -> None:
    """Begin a new run, or refuse to before anything is written.

    Data from the standard input, or another pipe, are kept in its folder, so that it can be resumed and done
    again.
    """
    from heatbath._internal.atomic_write import write
    from heatbath.cli.run_folder import SETTINGS, TABLE, check_free, claim_folder, release_folder, stream_of
    from heatbath.cli.settings import merged, read_settings, write_settings

    with ending(USAGE):
        _check_manner(threads, every, executor)
        check_free(out)
        sections = read_settings(file, command)[1] if file else {}
        settings = merged(sections, sections_of(given), methods)
        after = _named(command, settings)
        stream = stream_of(settings["problem"].get("data"))
    folder = None
    try:
        if stream is not None:
            with ending(FAILURE), stream as source:
                folder = claim_folder(out, "-".join([TABLE, *after]), "")
                write(folder / TABLE, lambda file: copyfileobj(source, file))
                settings["problem"] |= {"data": str(folder / TABLE)}
        with ending(USAGE):
            prepared, complete = _prepared(command, settings)
            text = write_settings(command, complete)
        with ending(FAILURE):
            if folder is None:
                folder = claim_folder(out, "-".join([prepared.problem.name, *after]), text)
            else:
                write(folder / SETTINGS, text)
        _introduce(prepared.problem, complete, usual=command == "train" and not settings["method"])
        _carry_out(command, prepared, complete, folder, threads, every, json, executor)
    except (typer.Exit, KeyboardInterrupt) as end:
        if folder is not None and getattr(end, "exit_code", USAGE) in (FAILURE, USAGE):
            release_folder(folder)
        if isinstance(end, KeyboardInterrupt):
            complain("interrupted before it began")
            raise typer.Exit(INTERRUPTED) from None
        raise


def _introduce(problem: Problem, settings: Settings, usual: bool) -> None:
    """Say how a table is read, what is to be predicted, and what was chosen where no method was named."""
    from heatbath.cli.report.baseline import BALANCED
    from heatbath.cli.report.tables import target_note

    lines = [] if problem.encoder is None else problem.encoder.brief_notes()
    for line in lines[:MOST_NOTES]:
        complain(line)
    if len(lines) > MOST_NOTES:
        complain(f"and {len(lines) - MOST_NOTES:,} more columns, which report.html will have")
    if problem.encoder is not None:
        complain(target_note(problem, settings["problem"]))
    if problem.class_factors is not None:
        complain(f"warning: {BALANCED}")
    if usual:
        said, rows = settings["training"], problem.X_train.shape[1]
        batch = "full gradients" if said["batch"] == rows else f"batches of {said['batch']:,}"
        steps = f"at most {said['budget']:,}" if "budget" in said else f"{said['steps']:,}"
        complain(
            f"the posterior is sampled, as no method is named: {said['chains']} chains of {steps} steps with "
            f"{batch}, after {said['warm']:,} of Adam"
        )


def _named(command: str, settings: Settings) -> list[str]:
    """What the folder of a run is called after, beside its problem: the method, if there is one."""
    if command in ("compare", "tune"):
        return [command]
    return [settings["method"]["name"]] if "name" in settings["method"] else []


def _prepared(command: str, settings: Settings) -> tuple[Plan | AutomaticRun | Tuning, Settings]:
    """What a command carries out, and all its settings; what is wrong is refused."""
    from heatbath.cli.settings import plan_of
    from heatbath.cli.tuning import tuning_of

    return tuning_of(settings) if command == "tune" else plan_of(command, settings)


def _check_manner(threads: int | None, every: float, executor: str | None) -> None:
    """Refuse what says how to run, and not what, where it is wrong."""
    from heatbath.engine.threads import thread_count
    from heatbath.runs.distributed.pools import check_name

    if executor is not None:
        check_name(executor)

    thread_count(threads)
    real("every", every, NON_NEGATIVE)


def _carry_out(
    command: str,
    prepared: Plan | AutomaticRun | Tuning,
    settings: Settings,
    folder: Path,
    threads: int | None,
    every: float,
    json: bool,
    executor: str | None = None,
) -> None:
    """Run what was prepared from its start, or from where its folder stands, and write what comes of it."""
    from heatbath.cli.settings import continued
    from heatbath.cli.tuning import Tuning
    from heatbath.runs.distributed.pools import using_named

    try:
        with ending(FAILURE), using_named(executor):
            if isinstance(prepared, Tuning):
                _report_search(prepared, *_searched(prepared, folder, threads, every), folder, json)
                return
            run = _simulated(prepared, continued(settings), folder, threads, every)
            if not run.finished:
                raise KeyboardInterrupt
            _report(command, run, folder, json)
    except KeyboardInterrupt:
        complain(f"interrupted; continue with: heatbath resume {shlex.quote(str(folder))}")
        raise typer.Exit(INTERRUPTED) from None


def _simulated(
    prepared: Plan | AutomaticRun, ends: list[int], folder: Path, threads: int | None, every: float
) -> Run:
    """The run of a plan, and on to the `ends` that were added later; it is in its file when it ends, or
    stops."""
    from heatbath.cli.display import Display
    from heatbath.cli.report.baseline import constant_of
    from heatbath.cli.run_folder import RUN
    from heatbath.runs.distributed.pools import chosen_pool
    from heatbath.runs.plan import Plan
    from heatbath.runs.run import load
    from heatbath.training.train import Manner, carry_out

    path = folder / RUN
    plan = prepared if isinstance(prepared, Plan) else prepared.first_plan()
    constant = constant_of(plan)
    with Display(prepared, Console(stderr=True), constant=constant) as display:
        manner: Manner = {"threads": threads, "progress": display, "checkpoint": path, "every": every}
        there = load(path, plan.problem) if ends and path.exists() else None
        if there is not None and there.plan.steps in ends:
            run = there if there.finished else there.resume(**manner)
        else:
            run = carry_out(prepared, pool=chosen_pool(None), **manner)
        for end in ends:
            if run.finished and run.step < end:
                run = run.resume(end - run.step, **manner)
    run.save(path)  # a checkpoint that fails is a warning, but this must not
    if run.finished and constant is not None and (word := constant.against_average(run)):
        complain(f"warning: {word}")
    return run


def _report(command: str, run: Run, folder: Path, json: bool) -> None:
    """Write the summary and the figures, and print the summary."""
    from heatbath._internal.atomic_write import write
    from heatbath.cli.report.contents import summary, tell
    from heatbath.cli.report.figures import draw_all
    from heatbath.cli.report.html import html_report
    from heatbath.cli.report.tables import as_json, as_markdown, as_table, confusion_tables, notes
    from heatbath.cli.run_folder import SETTINGS

    told = tell(command, run)
    results = summary(told)
    if told.choice is not None and told.choice.best is not None:
        _complain_of_best(told, run.plan.points[told.choice.best].labels)
    write(folder / "summary.json", as_json(results))
    write(folder / "summary.md", as_markdown(results))
    figures = draw_all(told, results, folder)
    settings = (folder / SETTINGS).read_text(encoding="utf-8")
    write(folder / "report.html", html_report(told, results, figures, settings))
    if json:
        emit(as_json({"folder": str(folder), "figures": [str(path) for path in figures], **results}))
    else:
        _print(as_table(results), *confusion_tables(results), *notes(results), f"results: {folder}")


def _complain_of_best(told: Told, best: Mapping[str, Any]) -> None:
    from heatbath.cli.report.contents import warn_of_best

    if word := warn_of_best(told, best):
        complain(f"warning: even of the best {word}")


def _searched(
    tuning: Tuning, folder: Path, threads: int | None, every: float
) -> tuple[TuningResult, Run | None]:
    """What a search has found, and the fresh runs with it, if there are to be any."""
    from heatbath.cli.display import Display
    from heatbath.runs.distributed.pools import chosen_pool

    manner = {"threads": threads, "every": every, "pool": chosen_pool(None)}
    console = Console(stderr=True)
    with Display(tuning.plan, console, "searching") as display:
        tuned = tuning.find(folder, manner, display)
    if not tuning.fresh:
        return tuned, None
    plan = tuning.fresh_plan(tuned.partitions)
    with Display(plan, console) as display:
        return tuned, tuning.train(plan, folder, manner, display)


def _report_search(tuning: Tuning, tuned: TuningResult, run: Run | None, folder: Path, json: bool) -> None:
    """Write the table, the summary, the figures and the report of a search, and print the summary."""
    from heatbath._internal.atomic_write import write
    from heatbath.cli.report.contents import search_summary, tell
    from heatbath.cli.report.figures import draw_search
    from heatbath.cli.report.html import search_report
    from heatbath.cli.report.tables import as_json, search_markdown, search_tables
    from heatbath.cli.run_folder import SETTINGS

    told = None if run is None else tell("tune", run)
    results = search_summary(tuning, tuned, told)
    if told is not None:
        _complain_of_best(told, {"method": tuned.winner})
    write(folder / "table.csv", tuned.table.to_csv(index=False))
    write(folder / "summary.json", as_json(results))
    write(folder / "summary.md", search_markdown(results))
    figures = draw_search(tuned, run, results, folder)
    settings = (folder / SETTINGS).read_text(encoding="utf-8")
    write(folder / "report.html", search_report(tuning.problem, results, figures, settings))
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
