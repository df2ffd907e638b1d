"""The command that runs the paper's experiments: what it lists, refuses and counts as finished."""

import io
import json
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from heatbath.cli.reproduce import _command_to_continue, _known_experiments, _print_verdicts, _write_reports
from heatbath.paper import NAMES, find
from heatbath.paper.claims import Finding


def test_names_are_run_once_in_the_order_in_which_they_are_given():
    last, first = NAMES[-1], NAMES[0]
    assert _known_experiments([last, first, last]) == [last, first]


def test_an_unknown_experiment_is_refused_with_the_names_of_all(refused):
    line = refused("reproduce", "nothing", NAMES[0], "nothing")
    assert line == f"heatbath: there is no experiment nothing: accepted are {', '.join(NAMES)}"


def test_the_list_has_the_claims_of_the_named_experiments_only(call):
    code, out, err = call("reproduce", "data", "--list", "--json")
    assert (code, err) == (0, "")
    claims = [claim.text for claim in find("data").claims]
    assert json.loads(out) == {"data": {"title": find("data").title, "claims": claims}}


def test_verdicts_are_coloured_and_the_numbers_of_a_title_are_not():
    experiment = find("compare-4turn")
    findings = [Finding("0.5 points", verdict) for verdict in ("holds", "does not hold")]
    console = Console(file=io.StringIO(), force_terminal=True, width=200, color_system="standard")
    result = SimpleNamespace(experiment=experiment, seconds=12.0, findings=findings)
    _print_verdicts(console, result)
    title, *verdicts = console.file.getvalue().splitlines()
    assert title == f"\x1b[1m{experiment.name}\x1b[0m  {experiment.title}  (12 s)"
    assert all("\x1b[3" in line for line in verdicts)


def test_a_report_of_nothing_is_refused(refused, tmp_path):
    line = refused("reproduce", "--only-report", "--quick", "--folder", tmp_path)
    assert (
        line == f"heatbath: no experiment is finished in {tmp_path / 'quick'}: run heatbath reproduce first"
    )


def test_the_command_that_continues_does_not_run_finished_experiments_again(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["heatbath", "reproduce", "--again", "--folder", "a folder"])
    assert _command_to_continue() == "heatbath reproduce --folder 'a folder'"


@pytest.mark.parametrize("docs", [None, "docs"])
def test_experiments_without_results_are_listed_with_the_reason(docs, tmp_path, monkeypatch):
    from heatbath.paper import report

    written = []
    monkeypatch.setattr(report, "write_html", lambda *arguments: written.append(arguments))
    monkeypatch.setattr(report, "write_markdown", lambda *arguments: written.append(arguments))
    missing = _write_reports([], {NAMES[0]: "no disk"}, tmp_path, docs and tmp_path / docs, True)
    assert list(missing) == list(NAMES)
    assert set(missing.values()) == {"no disk", "not finished yet"}
    assert [arguments[2] for arguments in written] == [tmp_path / "report.html", tmp_path / "docs"][
        : len(written)
    ]
    assert len(written) == 1 + (docs is not None)
