"""Tables of text: measures, numbers and names."""

import json
from dataclasses import replace

import numpy as np
import pytest

import heatbath as hb
from heatbath.cli.errors import as_json
from heatbath.cli.report.contents import report_on_run
from heatbath.cli.report.markdown import report_to_markdown
from heatbath.cli.report.tables import caption, confusion_table, format_estimate, results_table
from heatbath.cli.report.terminal import report_to_terminal
from heatbath.diagnostics.statistics import Measured
from tests.evaluation.runs import METHOD, problem, trained


@pytest.mark.parametrize("task", ["binary", "classes", "regression", "counts", "two"])
def test_the_table_has_a_row_for_each_measure_and_a_column_for_each_prediction(task):
    report = report_on_run("train", trained(task))
    results = report.to_json()
    columns, rows = results_table(report)
    model = {"binary": "logistic", "classes": "logistic", "counts": "Poisson"}.get(task, "ridge")
    assert columns == ["", "averaged prediction", "one network", "constant", f"{model} regression"]
    assert len({len(row) for row in rows}) == 1
    names = [row[0] for row in rows]
    first = {"binary": "accuracy", "classes": "accuracy", "two": "R², y1"}.get(task, "R²")
    assert names[0] == first
    if task == "two":
        assert {"RMSE, y1", "RMSE, y2", "noise y1", "noise y2"} <= set(names)
    text = as_json(results)
    assert json.loads(text) == results
    assert max(map(len, text.splitlines())) < 150
    assert text.index('"averaged"') < text.index('"single"') < text.index('"baselines"')
    assert report_to_markdown(report).count("\n") > len(rows)
    assert report_to_terminal(report)[0].row_count == len(rows)


def test_the_caption_says_of_the_linear_model_only_that_it_has_fewer_examples(monkeypatch):
    report = report_on_run("train", trained("binary"))
    count = report.problem.X_train.shape[1]
    assert "fitted" not in caption(report)
    monkeypatch.setattr("heatbath.cli.report.tables.linear_training_size", lambda problem: count - 1)
    assert f"logistic regression is fitted to {count - 1:,} of {count:,} training examples" in caption(report)
    without_model = replace(report, baselines={"constant": report.baselines["constant"]})
    assert "fitted" not in caption(without_model)


def test_numbers_have_three_digits_and_no_more():
    def text(mean, low=np.nan, high=np.nan, name="rmse"):
        return format_estimate(name, Measured(mean, low, high))

    assert text(54.1234, 47.36, 61.77) == "54.1 (47.4 to 61.8)"
    assert text(43_812.0, 38_312.0, 50_075.0) == "43,800 (38,300 to 50,100)"
    assert text(-0.002, -0.2158, 0.1742) == "-0.002 (-0.216 to 0.174)"
    assert text(-0.0002, -0.2158, 0.1742) == "0.000 (-0.216 to 0.174)"
    assert text(0.00015, 0.00014, 0.00016) == "0.000150 (0.000140 to 0.000160)"
    assert text(1.5e-9) == "1.50e-09"
    assert text(2e-16) == "0"
    assert text(7.0, 7.0, 7.0) == "7.00"
    assert text(1.0, 0.9562, 1.0, "auc") == "1.000 (0.956 to 1.000)"
    assert text(0.94, 0.907, 0.962, "balanced_accuracy") == "94.0 % (90.7 to 96.2)"
    assert format_estimate("rmse", None) == "–"


def test_a_target_called_accuracy_has_an_rmse_in_its_units():
    own = replace(problem("two"), targets=("accuracy", "speed"))
    _, rows = results_table(
        report_on_run("train", hb.train(own, hb.MLP((8,)), METHOD["two"], 60, 10, chains=3))
    )
    by_name = {row[0]: row[1:] for row in rows}
    assert "%" not in "".join(by_name["RMSE, accuracy"] + by_name["noise accuracy"])
    assert "%" in by_name["coverage of 90 % intervals, accuracy"][0]
    assert format_estimate("noise_accuracy", Measured(3.2, np.nan, np.nan)) == "3.20"
    assert format_estimate("test_accuracy", Measured(0.5, np.nan, np.nan)) == "50.0 %"


def test_the_confusion_of_classes_is_a_table_in_markdown_and_in_the_terminal():
    report = report_on_run("train", trained("classes"))
    columns, rows = confusion_table(report)
    assert columns == ["true", "0", "1", "2"]
    assert sum(int(cell) for row in rows for cell in row[1:]) == len(report.examples)
    assert "| true | 0 | 1 | 2 |" in report_to_markdown(report)
    assert report_to_terminal(report)[2].row_count == 3
    assert confusion_table(report_on_run("train", trained("regression"))) is None
