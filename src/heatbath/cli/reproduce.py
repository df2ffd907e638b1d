"""`heatbath reproduce` runs the paper's experiments and says which of their claims hold."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from heatbath.cli.commands import Workers
from heatbath.cli.errors import FAILURE, INTERRUPTED, USAGE, Json, complain, emit, ending
from heatbath.paper import NAMES, find

if TYPE_CHECKING:
    from heatbath.runs.progress import Progress as Moment

COLOURS = {"holds": "cyan", "holds in part": "yellow", "does not hold": "red"}


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Experiments; all of them if none is named.",
            autocompletion=lambda incomplete: [name for name in NAMES if name.startswith(incomplete)],
        ),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where results and report go.")] = Path("reproduction"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Seconds instead of minutes: shows that it works, proves nothing.")
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="List the experiments and what they claim.")] = False,
    only_report: Annotated[
        bool, typer.Option("--only-report", help="Write the report of what is finished.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Run finished experiments again.")] = False,
    docs: Annotated[
        Path | None, typer.Option(help="Also write the report as Markdown into this folder.")
    ] = None,
    executor: Workers = None,
    json: Json = False,
) -> None:
    """Run the paper's experiments and say of every claim whether it holds.

    Results are kept: after Ctrl-C the same command continues with those that are not finished. MNIST is
    read from the folder in HEATBATH_DATA, or fetched once.
    """
    console = Console(stderr=json)  # stdout has the object alone
    chosen = list(dict.fromkeys(names or NAMES))
    if unknown := [name for name in chosen if name not in NAMES]:
        _refuse(f"there is no experiment {', '.join(unknown)}: accepted are {', '.join(NAMES)}")
    if show:
        _list(console, chosen, json)
        return
    from heatbath.paper import report, runner
    from heatbath.runs.distributed.pools import check_name, using_named

    place = folder / "quick" if quick else folder  # a quick run never replaces a full one
    lines = Console(highlight=False, soft_wrap=True, stderr=json)
    begin = time.perf_counter()
    failed: dict[str, str] = {}
    done: dict[str, runner.ExperimentResult] = {}
    try:
        for needed in filter(None, (place, docs)):
            needed.mkdir(parents=True, exist_ok=True)
        if executor is not None:
            check_name(executor)
        if not only_report:
            with _bars(console) as bars, using_named(executor):
                for outcome in runner.reproduce(
                    chosen, place, quick, again, lambda name: _teller(bars, name)
                ):
                    if isinstance(outcome, runner.ExperimentResult):
                        done[outcome.experiment.name] = outcome
                        _tell(bars.console, outcome)
                    else:
                        failed[outcome[0]] = str(outcome[1])
                        bars.console.print(
                            f"[red]{outcome[0]} was not run[/red]: {escape(str(outcome[1]))}", soft_wrap=True
                        )
        for name in NAMES:
            if name not in done and (before := runner.load_result(find(name), place / name, quick)):
                runner.publish(before)
                done[name] = before
        results = [done[name] for name in NAMES if name in done]
        if not results:
            _refuse(f"nothing is finished in {place}: run heatbath reproduce first")
        missing = {name: failed.get(name, "not finished yet") for name in NAMES if name not in done}
        arguments = ["reproduce", *(["--quick"] if quick else [])]
        command = shlex.join(["heatbath", *arguments])
        report.write_html(results, missing, place / "report.html", command)
        if docs is not None:
            report.write_markdown(results, missing, docs, f"{command} --docs {docs}")
    except KeyboardInterrupt:
        again_with = [argument for argument in sys.argv[1:] if argument != "--again"]
        lines.print(f"stopped; continue with: {shlex.join(['heatbath', *again_with])}", markup=False)
        raise typer.Exit(INTERRUPTED) from None
    except (OSError, ValueError, ImportError) as error:
        _refuse(str(error))
    summaries = [runner.summary(result) for result in results]
    counts = report.verdict_counts(summaries)
    if json:
        _emit({"report": str(place / "report.html"), "experiments": summaries, "missing": missing})
    lines.print(
        f"claims: {counts}; {time.perf_counter() - begin:,.0f} s; report: {place / 'report.html'}",
        markup=False,
    )
    if failed:
        raise typer.Exit(FAILURE)


def _emit(values: dict[str, Any]) -> None:
    from heatbath.cli.report.tables import as_json

    with ending(FAILURE):
        emit(as_json(values))


def _list(console: Console, names: list[str], json: bool) -> None:
    if json:
        experiments = {name: find(name) for name in names}
        _emit(
            {
                name: {"title": one.title, "claims": [claim.text for claim in one.claims]}
                for name, one in experiments.items()
            }
        )
        return
    table = Table(box=None)
    for column in ("name", "experiment", "claims"):
        table.add_column(column)
    for name in names:
        experiment = find(name)
        table.add_row(name, experiment.title, "\n".join(f"• {claim.text}" for claim in experiment.claims))
    console.print(table)


def _bars(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description:16}"),
        BarColumn(24),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _teller(bars: Progress, name: str) -> Callable[[Moment], None]:
    """What the progress of an experiment is told to: one bar, which its runs fill one after the other."""
    for old in bars.task_ids:
        bars.remove_task(old)
    task: TaskID = bars.add_task(name, total=None, text="")
    if bars.disable:
        print(f"{name} ...", file=sys.stderr, flush=True)

    def tell(now: Moment) -> None:
        text = f"{now.speed:,.0f} steps/s  test loss {now.loss:.3f}"
        bars.update(task, total=now.steps, completed=now.step, text=text)

    return tell


def _tell(console: Console, result: object) -> None:
    """The verdicts on an experiment."""
    from heatbath.paper.runner import ExperimentResult

    assert isinstance(result, ExperimentResult)
    console.print(
        f"[bold]{result.experiment.name}[/bold]  {result.experiment.title}  ({result.seconds:.0f} s)",
        highlight=False,
    )
    for claim, finding in zip(result.experiment.claims, result.findings, strict=True):
        verdict = f"[{COLOURS[finding.verdict]}]{finding.verdict}[/]"
        console.print(f"  {verdict}: {claim.text}: {escape(finding.ours)}", highlight=False, soft_wrap=True)


def _refuse(message: str) -> NoReturn:
    """One line on stderr, and a code that says that it went wrong."""
    complain(message)
    raise typer.Exit(USAGE)
