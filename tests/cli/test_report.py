"""What is said of a run when it ends: tables, the report, and whether people can read it."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import heatbath as hb
from heatbath import plotting
from heatbath.cli.errors import as_json
from heatbath.cli.report.contents import report_on_run
from heatbath.cli.report.figures import draw_figures
from heatbath.cli.report.html import report_to_html
from heatbath.cli.report.markdown import report_to_markdown
from heatbath.cli.report.tables import caption, confusion_table, format_estimate, results_table
from heatbath.cli.report.terminal import report_to_terminal
from heatbath.diagnostics.statistics import Measured
from heatbath.runs.run import Run
from tests.browsers import started, violations
from tests.evaluation.runs import METHOD, SGD, problem, table, trained

ODD = ("<script>alert(1)</script>", "$x$ & 'y'", "a name that is " + "very " * 20 + "long")


def page_of(run, folder=None, command="train"):
    report = report_on_run(command, run)
    figures = draw_figures(report, folder) if folder else []
    return report_to_html(report, figures, "command = 'train'\n")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a classification with names that are trouble."""
    own = replace(problem("classes"), features=ODD, targets=("a & b", "<b>", "$c$"), name="odd <i>names</i>")
    folder = tmp_path_factory.mktemp("report")
    run = hb.train(own, hb.MLP((8,)), METHOD["regression"], 60, 10, chains=3)
    path = folder / "report.html"
    path.write_text(page_of(run, folder))
    return path


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """The reports of a regression on a table with columns of all kinds, and of a sweep."""
    folder, rows = tmp_path_factory.mktemp("others"), np.arange(60)
    frame = pd.DataFrame({"size": np.sin(rows), "kind": np.array(["a", "b", "a long name"])[rows % 3]})
    frame["since"] = pd.date_range("2020-01-06", periods=60, freq="11D").strftime("%d.%m.%Y")
    own = hb.from_table(frame.assign(price=3000 * np.sin(rows) + 100 * (rows % 3)), "price")
    run = hb.train(own, hb.MLP((8,)), METHOD["regression"], 60, 10, chains=3)
    grid = hb.LOL(h=0.1, tau=[0.0, 1e-4], gamma=[0.1, 0.2])
    both = hb.sweep(problem("binary"), hb.MLP((8,)), grid, steps=60, batch=10, chains=3)
    paths = []
    for name, one, command in (("table", run, "train"), ("sweep", both, "sweep")):
        (folder / name).mkdir()
        paths.append(folder / f"{name}.html")
        paths[-1].write_text(page_of(one, folder / name, command))
    return paths


@pytest.fixture
def unsaved(monkeypatch, tmp_path):
    """A folder for pictures that are made, but not written, which takes longest."""
    monkeypatch.setattr(plotting, "save", lambda _, path: (path, path))
    return tmp_path


def test_a_report_needs_nothing_else_runs_nothing_and_shows_names_as_they_are(report):
    page = report.read_text()
    assert "<script" not in page
    assert "odd &lt;i&gt;names&lt;/i&gt;" in page
    assert not {"<i>", "<b>"} & set(re.findall(r"<\w+>", page))
    sources = re.findall(r'(?:src|href)="([^"]{5})', page)
    assert set(sources) == {"data:"}
    assert "http" not in re.sub(r'"data:[^"]*"', "", page)
    assert len(re.findall(r"<img", page)) == len(re.findall(r'<img[^>]* alt="\w+: ', page)) == 7
    assert "url(" not in page


# of all that may be scrolled: whether there is more to the right, and what is said of it
HINTS = "(all) => all.map((e) => [e.scrollWidth > e.clientWidth, getComputedStyle(e, '::before').content])"


def check_legible(page):
    """At both widths, in both schemes: nothing is wider than the page, and nothing too small."""
    for width, scheme in ((1280, "light"), (400, "dark")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        shown = page.evaluate("[...document.images].map((i) => [i.naturalWidth, i.clientWidth])")
        assert all(natural > 0 for natural, _ in shown)
        assert min(client for _, client in shown) > 230  # of a column of a paper, 3.4 inches
        size = "(e) => parseFloat(getComputedStyle(e).fontSize)"
        text = page.locator("td, p, li, figcaption, small")
        assert min(text.evaluate_all(f"(all) => all.map({size})")) >= 12
        assert violations(page) == []
        hints = page.locator(".wide").evaluate_all(HINTS)
        assert all(scrolled == (hint != "none") for scrolled, hint in hints)
        assert width == 1280 or hints


@pytest.mark.slow
def test_reports_are_legible_at_1280_and_400_pixels_and_axe_finds_nothing(report, others):
    with started() as browser:
        page = browser.new_page()
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        for path in (*others, report):
            page.goto(path.as_uri())
            check_legible(page)
        assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
        page.evaluate("document.images[0].removeAttribute('alt')")
        assert violations(page) != []  # it would be seen


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


def test_training_numbers_are_called_so():
    run = hb.train(problem("regression", test_share=0), hb.MLP((8,)), SGD, 60, 10, chains=3)
    report = report_on_run("train", run)
    assert report.to_json()["judged_on"] == {"split": "train", "examples": 80, "of": 80}
    assert caption(report).startswith("80 TRAINING examples, as there are no test examples: expect larger")
    assert "There are no test examples" in page_of(run)
    assert "There are no test examples" not in page_of(trained("regression"))  # a control


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_one_test_example_is_enough(task, unsaved):
    own = problem(task)
    own = replace(own, X_test=own.X_test[:, :1], Y_test=own.Y_test[:, :1])
    run = hb.train(own, hb.MLP((8,)), METHOD[task], 60, 10, chains=3)
    report = report_on_run("train", run)
    assert caption(report).startswith("1 test example;")
    assert not {"auc", "r2"} & set(report.points[0].averaged)
    names = {path.stem for path in draw_figures(report, unsaved)}
    assert names & {"roc", "calibration", "predicted"} == {"calibration" if task == "binary" else "predicted"}


def test_of_a_sweep_each_point_has_a_row_the_best_a_star_and_those_that_diverged_are_counted(unsaved):
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
    names = {path.stem for path in draw_figures(report, unsaved)}
    assert {"sweep", "roc", "calibration", "confusion", "importance", "dependence"} == names


def test_chains_with_different_data_have_means_over_chains_and_nothing_else():
    own = hb.datasets.spirals(n_train=20, n_test=10, draws=2)
    run = hb.train(own, hb.MLP((8,)), SGD, 60, 10, chains=4)
    report = report_on_run("train", run)
    columns, rows = results_table(report)
    assert columns == ["", "one network"]
    assert [row[0] for row in rows] == ["test accuracy", "train accuracy", "test loss", "train loss"]
    assert "different data sets" in caption(report)
    assert "different data sets" in page_of(run)


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


def test_json_is_readable_and_says_the_same():
    values = {
        "a": {"mean": 1.0, "low": None, "high": 2},
        "b": [[1, 2], [3, 4]],
        "c": {"odd  {name\n": "x", "[": "\n  ]", "d": []},
        "long": ["text"] * 40,
    }
    text = as_json(values)
    assert json.loads(text) == values
    assert '"a": {"mean": 1.0, "low": null, "high": 2},\n' in text
    assert "    [1, 2],\n    [3, 4]\n" in text


def test_the_report_says_whether_a_constant_would_do():
    """Networks that have learned nothing are no better; those of a law that is easy to learn are."""
    own = problem("regression")
    idle = hb.train(own, hb.MLP((8,), init="zeros"), hb.Partition(hb.SGD(), 1e-9), 1, 10, chains=3)
    doubt = "These examples do not show that it is better than a constant prediction."
    assert doubt in page_of(idle)
    learned = trained("regression")
    assert doubt not in page_of(learned)
    report = report_on_run("train", learned)
    worse = replace(report, gains={"constant": Measured(-2.0, -3.0, -1.0)})
    page = report_to_html(worse, [], "")
    assert "A constant prediction would be better." in page
    assert doubt not in page
    assert "Its mean squared error is below that of a constant prediction" in page_of(learned)
    gain = report.to_json()["loss_less_than"]["constant"]
    assert gain["low"] > 0
    assert np.isclose(gain["mean"], report.gains["constant"].value)


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


def test_probabilities_of_classes_that_count_alike_are_called_so():
    own = problem("binary", class_weight="balanced")
    run = hb.train(own, hb.MLP((8,)), SGD, 60, 10, chains=3)
    assert "all classes are equally frequent (--class-weight balanced)" in caption(
        report_on_run("train", run)
    )
    assert "The predicted probabilities hold where all classes" in page_of(run)
    assert "equally frequent" not in caption(report_on_run("train", trained("binary")))  # a control


def test_a_table_of_one_column_has_a_picture_of_what_depends_on_it(unsaved):
    X, targets = table()
    own = hb.datasets.from_arrays(X[:, :1], targets["regression"], standardise=True)
    report = report_on_run("train", hb.train(own, hb.MLP((8,)), METHOD["regression"], 60, 10, chains=3))
    names = {path.stem for path in draw_figures(report, unsaved)}
    assert names & {"importance", "dependence"} == {"dependence"}
