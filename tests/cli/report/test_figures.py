"""Figures of runs, sweeps and searches."""

from pathlib import Path

import pytest

import heatbath as hb
from heatbath.cli.report.contents import report_on_run
from heatbath.cli.report.figures import draw_figures
from tests.cli.arguments import SMALL
from tests.evaluation.runs import METHOD, table


def test_a_table_of_one_column_has_a_picture_of_what_depends_on_it(unsaved_pictures):
    X, targets = table()
    own = hb.datasets.from_arrays(X[:, :1], targets["regression"], standardise=True)
    report = report_on_run("train", hb.train(own, hb.MLP((8,)), METHOD["regression"], 60, 10, chains=3))
    names = {path.stem for path in draw_figures(report, unsaved_pictures)}
    assert names & {"importance", "dependence"} == {"dependence"}


@pytest.mark.parametrize(
    "values", [["--tau", "0,1e-4"], ["--tau", "0,1e-4", "--h", ".1,.2", "--gamma", "1,2"]]
)
def test_sweeps_over_one_axis_and_over_three_are_drawn(values, tmp_path, call, svg_only):
    assert call("sweep", *SMALL, "--method", "lol", *values, "--out", tmp_path / "grid")[0] == 0
    assert (tmp_path / "grid" / "sweep.svg").stat().st_size > 5000


def test_many_classes_in_a_plane_have_no_classifier_picture_and_all_else(call, in_empty_folder, svg_only):
    rows = [f"{i % 7},{i % 5},{'abcdefgh'[i % 8]}" for i in range(80)]
    Path("eight.csv").write_text("\n".join(["a,b,t", *rows]) + "\n")
    settings = ("--method", "adlala", "--steps", "20", "--hidden", "5", "--chains", "2")
    assert call("train", "--data", "eight.csv", "--target", "t", *settings, "--out", "r8")[0] == 0
    assert Path("r8/curves.svg").exists()
    assert not Path("r8/classifier.svg").exists()
