"""What a report on a run contains."""

from dataclasses import replace

import pytest

import heatbath as hb
from heatbath.cli.report.contents import report_on_run
from heatbath.cli.report.figures import draw_figures
from heatbath.cli.report.tables import caption, results_table
from heatbath.runs.run import Run
from tests.evaluation.runs import METHOD, problem


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_one_test_example_is_enough(task, unsaved_pictures):
    own = problem(task)
    own = replace(own, X_test=own.X_test[:, :1], Y_test=own.Y_test[:, :1])
    run = hb.train(own, hb.MLP((8,)), METHOD[task], 60, 10, chains=3)
    report = report_on_run("train", run)
    assert caption(report).startswith("1 test example;")
    assert not {"auc", "r2"} & set(report.points[0].averaged)
    names = {path.stem for path in draw_figures(report, unsaved_pictures)}
    assert names & {"roc", "calibration", "predicted"} == {"calibration" if task == "binary" else "predicted"}


def test_of_a_sweep_each_point_has_a_row_the_best_a_star_and_those_that_diverged_are_counted(
    unsaved_pictures,
):
    grid = hb.LOL(h=0.1, tau=[0.0, 1e-4, 1e-3], gamma=[0.1, 0.2, 1.0])  # nine: brief, but for the best
    run = hb.sweep(
        hb.datasets.spirals(n_train=60, n_test=50), hb.MLP((8,)), grid, steps=60, batch=10, chains=3
    )
    died = run.data["died"].copy()
    died[:3] = 5
    run = Run(run.plan, run.step, run.data.assign(died=died))
    report = report_on_run("sweep", run)
    results = report.to_json()
    assert results["rows"][0]["averaged"] == {}
    assert results["chosen"]["losses"][0] is None
    assert results["judged_on"] == {"split": "test", "examples": 25, "of": 50}
    long = [len(row["averaged"]) for row in results["rows"]]
    assert sorted(long) == [0, *[2] * 7, 6]
    columns, rows = results_table(report)
    starred = [row for row in rows if row[1].endswith("*")]
    assert [row[-1] for row in rows[:2]] == ["3 of 3", "0 of 3"]
    best = results["best"]
    assert [row[:2] for row in starred] == [[f"{best['gamma']:g}", f"{best['tau']:g} *"]]
    assert rows[-2][0] == "constant"
    assert columns[:3] == ["gamma", "tau", "accuracy, averaged"]
    names = {path.stem for path in draw_figures(report, unsaved_pictures)}
    assert {"sweep", "roc", "calibration", "confusion", "importance", "dependence"} == names
