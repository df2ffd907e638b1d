"""Reports in the terminal."""

from dataclasses import replace

from heatbath.cli import commands
from heatbath.cli.report.contents import report_on_run
from heatbath.cli.report.terminal import report_to_terminal
from tests.evaluation.runs import trained


def test_names_that_look_like_markup_are_printed_as_they_are(capsys):
    run = trained("classes")
    names = ("[bold]a", ":smile:", "[/]")
    run = replace(run, plan=replace(run.plan, problem=replace(run.problem, name="[red]data", targets=names)))
    commands._print([*report_to_terminal(report_on_run("train", run)), "results: [red]data-1"])
    printed = capsys.readouterr().out
    assert [name for name in (*names, "[red]data, 8", "results: [red]data-1") if name not in printed] == []


def test_numbers_are_aligned_on_the_right_and_names_on_the_left():
    tables = report_to_terminal(report_on_run("train", trained("classes")))
    results, confusion = tables[0], tables[2]
    for table in (results, confusion):
        assert [column.justify for column in table.columns] == ["left"] + ["right"] * (len(table.columns) - 1)
