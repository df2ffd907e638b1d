"""`heatbath reproduce`: run the paper's experiments and say which of their claims hold."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from heatbath.cli.commands import Workers
from heatbath.cli.errors import FAILURE, INTERRUPTED, USAGE, Json, as_json, complain, emit, ending
from heatbath.paper import NAMES, find

if TYPE_CHECKING:
    from heatbath.paper.runner import ExperimentResult
    from heatbath.runs.progress import Progress as RunProgress

COLOURS = {"holds": "cyan", "holds in part": "yellow", "does not hold": "red"}
PAGE = "report.html"

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Experiments to run (default: all).",
        autocompletion=lambda incomplete: [name for name in NAMES if name.startswith(incomplete)],
    ),
]
Folder = Annotated[Path, typer.Option(help="Folder for the results and the report.")]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick", help="Take seconds instead of minutes, to check that everything runs; proves nothing."
    ),
]
Listing = Annotated[bool, typer.Option("--list", help="List the experiments and their claims.")]
OnlyReport = Annotated[
    bool, typer.Option("--only-report", help="Run nothing; write the report of finished experiments.")
]
Repeat = Annotated[bool, typer.Option("--again", help="Run finished experiments again.")]
Docs = Annotated[
    Path | None, typer.Option(help="Folder for a copy of the report in Markdown (default: none).")
]


def reproduce(
    names: Names = None,
    folder: Folder = Path("reproduction"),
    quick: Quick = False,
    show: Listing = False,
    only_report: OnlyReport = False,
    repeat: Repeat = False,
    docs: Docs = None,
    executor: Workers = None,
    json: Json = False,
) -> None:
    """Run the paper's experiments and say for every claim whether it holds.

    Results are kept: after Ctrl-C, the same command continues with the unfinished experiments. MNIST is read
    from the folder in HEATBATH_DATA, or downloaded once.
    """
    console = Console(stderr=json)  # with --json, stdout contains only the object
    chosen = _known_experiments(names or NAMES)
    if show:
        _list_experiments(console, chosen, json)
        return

    from heatbath.paper import report, runner
    from heatbath.runs.distributed.pools import check_name

    results_folder = folder / "quick" if quick else folder  # a quick run never replaces a full one
    lines = Console(highlight=False, soft_wrap=True, stderr=json)
    start = time.perf_counter()
    finished: dict[str, ExperimentResult] = {}
    failures: dict[str, str] = {}
    try:
        for path in filter(None, (results_folder, docs)):
            path.mkdir(parents=True, exist_ok=True)
        if executor is not None:
            check_name(executor)
        if not only_report:
            finished, failures = _run_experiments(console, chosen, results_folder, quick, repeat, executor)
        results = _with_earlier(finished, results_folder, quick)
        if not results:
            _refuse(f"no experiment is finished in {results_folder}: run heatbath reproduce first")
        missing = _write_reports(results, failures, results_folder, docs, quick)
    except KeyboardInterrupt:
        lines.print(f"stopped; continue with: {_command_to_continue()}", markup=False)
        raise typer.Exit(INTERRUPTED) from None
    except (OSError, ValueError, ImportError) as error:
        _refuse(str(error))

    summaries = [runner.summary(result) for result in results]
    page = str(results_folder / PAGE)
    if json:
        _emit_json({"report": page, "experiments": summaries, "missing": missing})
    seconds = time.perf_counter() - start
    lines.print(f"claims: {report.verdict_counts(summaries)}; {seconds:,.0f} s; report: {page}", markup=False)
    if failures:
        raise typer.Exit(FAILURE)


def _known_experiments(names: Sequence[str]) -> list[str]:
    """Return the names of experiments, each once, or exit with an error if there is no such experiment."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        _refuse(
            f"there is no experiment {', '.join(dict.fromkeys(unknown))}: accepted are {', '.join(NAMES)}"
        )
    return list(dict.fromkeys(names))


def _command_to_continue() -> str:
    """Return the command line of this process without --again, which would repeat finished experiments."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--again"]
    return shlex.join(["heatbath", *arguments])


def _run_experiments(
    console: Console, names: list[str], folder: Path, quick: bool, repeat: bool, executor: str | None
) -> tuple[dict[str, ExperimentResult], dict[str, str]]:
    """Run experiments one after another, and print the verdict on each claim as soon as it is known.

    Parameters
    ----------
    console
        Where to print verdicts and progress.
    names
        Names of the experiments.
    folder
        Folder of the results. Experiments that are finished there aren't run.
    quick
        True for short runs that prove nothing.
    repeat
        True to run finished experiments, too.
    executor
        Name of the workers, or None for this process.

    Returns
    -------
    dict
        Results of the experiments, by name.
    dict
        Messages of the experiments that failed, by name.
    """
    from heatbath.paper import runner
    from heatbath.runs.distributed.pools import using_named

    finished: dict[str, ExperimentResult] = {}
    failures: dict[str, str] = {}
    with _progress_bars(console) as bars, using_named(executor):
        outcomes = runner.reproduce(names, folder, quick, repeat, partial(_start_bar, bars))
        for outcome in outcomes:
            if isinstance(outcome, runner.ExperimentResult):
                finished[outcome.experiment.name] = outcome
                _print_verdicts(bars.console, outcome)
                continue

            name, error = outcome
            failures[name] = str(error)
            bars.console.print(f"[red]{name} was not run[/red]: {escape(str(error))}", soft_wrap=True)
    return finished, failures


def _with_earlier(finished: dict[str, ExperimentResult], folder: Path, quick: bool) -> list[ExperimentResult]:
    """Return these results and earlier ones from a folder, in the order of the paper.

    The figures and tables of earlier results are published again.

    Parameters
    ----------
    finished
        Results of experiments that were run just now, by name.
    folder
        Folder of all results.
    quick
        True if these are results of --quick.
    """
    from heatbath.paper import runner

    results = []
    for name in NAMES:
        if name in finished:
            results.append(finished[name])
            continue
        earlier = runner.load_result(find(name), folder / name, quick)
        if earlier is not None:
            runner.publish(earlier)
            results.append(earlier)
    return results


def _write_reports(
    results: list[ExperimentResult], failures: dict[str, str], folder: Path, docs: Path | None, quick: bool
) -> dict[str, str]:
    """Write the report as a page of HTML, and as Markdown if there is a folder for it.

    Parameters
    ----------
    results
        Results of the finished experiments.
    failures
        Messages of the experiments that failed, by name.
    folder, docs
        Folders of the page, and of the copy in Markdown, or None.
    quick
        True for results of --quick, which the report mentions.

    Returns
    -------
    dict
        For each experiment without results, by name, why it has none.
    """
    from heatbath.paper import report

    finished = {result.experiment.name for result in results}
    missing = {}
    for name in NAMES:
        if name not in finished:
            missing[name] = failures.get(name, "not finished yet")
    command = "heatbath reproduce --quick" if quick else "heatbath reproduce"
    report.write_html(results, missing, folder / PAGE, command)
    if docs is not None:
        report.write_markdown(results, missing, docs, f"{command} --docs {docs}")
    return missing


def _emit_json(values: dict[str, Any]) -> None:
    """Print values as JSON on stdout; if that fails, print one line on stderr and exit."""
    with ending(FAILURE):
        emit(as_json(values))


def _list_experiments(console: Console, names: list[str], json: bool) -> None:
    """Print names, titles and claims of experiments.

    Parameters
    ----------
    console
        Where to print a table.
    names
        Names of the experiments.
    json
        True to print JSON on stdout instead.
    """
    experiments = {name: find(name) for name in names}
    if json:
        descriptions = {}
        for name, experiment in experiments.items():
            claims = [claim.text for claim in experiment.claims]
            descriptions[name] = {"title": experiment.title, "claims": claims}
        _emit_json(descriptions)
        return

    table = Table("name", "experiment", "claims", box=None)
    for name, experiment in experiments.items():
        table.add_row(name, experiment.title, "\n".join(f"• {claim.text}" for claim in experiment.claims))
    console.print(table)


def _progress_bars(console: Console) -> Progress:
    """Return an empty display of progress bars, which stays silent unless the console is a terminal."""
    columns = (
        TextColumn("{task.description:16}"),
        BarColumn(24),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _start_bar(bars: Progress, name: str) -> Callable[[RunProgress], None]:
    """Replace the progress bar by one for an experiment, and return the function that fills it.

    Parameters
    ----------
    bars
        Display of progress bars. Where it is disabled, the name is printed on stderr instead.
    name
        Name of the experiment.

    Returns
    -------
    callable
        Takes the progress of each run of the experiment.
    """
    for previous in bars.task_ids:
        bars.remove_task(previous)
    task: TaskID = bars.add_task(name, total=None, text="")
    if bars.disable:
        print(f"{name} ...", file=sys.stderr, flush=True)

    def show(progress: RunProgress) -> None:
        """Fill the bar up to the current step of a run."""
        text = f"{progress.speed:,.0f} steps/s  test loss {progress.loss:.3f}"
        bars.update(task, total=progress.steps, completed=progress.step, text=text)

    return show


def _print_verdicts(console: Console, result: ExperimentResult) -> None:
    """Print the title of an experiment, and below it the verdict and the finding for each claim."""
    experiment = result.experiment
    heading = f"[bold]{experiment.name}[/bold]  {experiment.title}  ({result.seconds:.0f} s)"
    console.print(heading, highlight=False)
    for claim, finding in zip(experiment.claims, result.findings, strict=True):
        verdict = f"[{COLOURS[finding.verdict]}]{finding.verdict}[/]"
        console.print(f"  {verdict}: {claim.text}: {escape(finding.ours)}", highlight=False, soft_wrap=True)


def _refuse(message: str) -> NoReturn:
    """Print the message as one line on stderr, and exit with the code for wrong usage."""
    complain(message)
    raise typer.Exit(USAGE)
