"""What is said of a run when it ends: tables, the report, and whether people can read it."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import heatbath as hb
from heatbath.cli.report.contents import report_on_run
from heatbath.cli.report.figures import draw_figures
from heatbath.cli.report.html import report_to_html
from heatbath.cli.report.tables import caption, results_table
from heatbath.diagnostics.statistics import Measured
from tests.browsers import accessibility_violations, start_browser
from tests.evaluation.runs import METHOD, SGD, problem, trained

ODD = ("<script>alert(1)</script>", "$x$ & 'y'", "a name that is " + "very " * 20 + "long")


def page_of(run, folder=None, command="train"):
    report = report_on_run(command, run)
    figures = draw_figures(report, folder) if folder else []
    return report_to_html(report, figures, "command = 'train'\n")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Return the report of a classification whose names could break the page."""
    own = replace(problem("classes"), features=ODD, targets=("a & b", "<b>", "$c$"), name="odd <i>names</i>")
    folder = tmp_path_factory.mktemp("report")
    run = hb.train(own, hb.MLP((8,)), METHOD["regression"], 60, 10, chains=3)
    path = folder / "report.html"
    path.write_text(page_of(run, folder))
    return path


@pytest.fixture(scope="module")
def other_reports(tmp_path_factory):
    """Return the reports of a regression on columns of all kinds, and of a sweep."""
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


def test_the_prediction_that_counts_is_highlighted_in_the_results_of_one_run_only(report, other_reports):
    _, sweep = other_reports
    assert 'class="first"' in report.read_text()
    assert 'class="first"' not in sweep.read_text()


def check_legible(page):
    """Check that nothing is too wide or too small, at both widths and in both colour schemes."""
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
        assert accessibility_violations(page) == []
        hints = page.locator(".wide").evaluate_all(HINTS)
        assert all(scrolled == (hint != "none") for scrolled, hint in hints)
        assert width == 1280 or hints


@pytest.mark.slow
def test_reports_are_legible_at_1280_and_400_pixels_and_axe_finds_nothing(report, other_reports):
    with start_browser() as browser:
        page = browser.new_page()
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        for path in (*other_reports, report):
            page.goto(path.as_uri())
            check_legible(page)
        assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
        page.evaluate("document.images[0].removeAttribute('alt')")
        assert accessibility_violations(page) != []  # it would be seen


def test_training_numbers_are_called_so():
    run = hb.train(problem("regression", test_share=0), hb.MLP((8,)), SGD, 60, 10, chains=3)
    report = report_on_run("train", run)
    assert report.to_json()["judged_on"] == {"split": "train", "examples": 80, "of": 80}
    assert caption(report).startswith("80 TRAINING examples, as there are no test examples: expect larger")
    assert "There are no test examples" in page_of(run)
    assert "There are no test examples" not in page_of(trained("regression"))  # a control


def test_chains_with_different_data_have_means_over_chains_and_nothing_else():
    own = hb.datasets.spirals(n_train=20, n_test=10, draws=2)
    run = hb.train(own, hb.MLP((8,)), SGD, 60, 10, chains=4)
    report = report_on_run("train", run)
    columns, rows = results_table(report)
    assert columns == ["", "one network"]
    assert [row[0] for row in rows] == ["test accuracy", "train accuracy", "test loss", "train loss"]
    assert "different data sets" in caption(report)
    assert "different data sets" in page_of(run)


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


def test_probabilities_of_classes_that_count_alike_are_called_so():
    own = problem("binary", class_weight="balanced")
    run = hb.train(own, hb.MLP((8,)), SGD, 60, 10, chains=3)
    assert "all classes are equally frequent (--class-weight balanced)" in caption(
        report_on_run("train", run)
    )
    assert "The predicted probabilities hold where all classes" in page_of(run)
    assert "equally frequent" not in caption(report_on_run("train", trained("binary")))  # a control
