"""Regressions with their bands, coverage, and what ought to be uniform."""

import numpy as np
import pytest
from scipy import stats

import heatbath as hb
from heatbath import plotting
from tests.plotting.pictures import labelled_lines, regression_run, three_methods


def band_ends(band, x):
    """Return the lower and upper end of a band at x."""
    outline = band.get_paths()[0].vertices
    at = outline[np.isclose(outline[:, 0], x)][:, 1]
    return at.min(), at.max()


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_regression_has_its_mean_and_bands_of_networks_and_of_new_data(temperature):
    run = regression_run(temperature=temperature)
    ax = plotting.regression(run, coverage=0.8)
    lines = labelled_lines(ax)
    problem = run.problem
    np.testing.assert_allclose(
        lines["training examples"].get_xydata(),
        np.column_stack(
            [
                problem.X_train[0] * problem.scale + problem.shift,
                problem.Y_train[0] * problem.target_scale + problem.target_shift,
            ]
        ),
    )
    x = lines["mean"].get_xdata()[[20, 100, 180]]
    law = run.predictive(x[:, None])
    np.testing.assert_allclose(lines["mean"].get_ydata()[[20, 100, 180]], law.mean[:, 0])
    data, networks = ax.collections
    assert (data.get_label(), networks.get_label()) == ("new data, 80 %", "networks, 80 %")
    low, high = law.interval(0.8)
    for place, at in enumerate(x):
        assert band_ends(data, at) == pytest.approx((low[place, 0], high[place, 0]))
        said = np.sort(law.means[:, place, 0])
        assert band_ends(networks, at) == pytest.approx(tuple(np.quantile(said, [0.1, 0.9])))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("$x_1$", "y")


def test_without_noise_there_is_no_band_of_new_data():
    run = regression_run()
    plain = hb.train(run.problem, run.network, hb.LaLa(0.2, 1.0, 1e-3), 200, 50, 3, samples=5)
    assert [band.get_label() for band in plotting.regression(plain).collections] == ["networks, 90 %"]
    with pytest.raises(ValueError, match="the noise of the data is not known"):
        plotting.coverage(plain)


def test_a_run_without_samples_is_drawn_from_its_chains():
    run = regression_run()
    sampling = hb.LaLa(h=0.2, gamma=1.0, posterior=hb.Posterior(temperature=0.5))
    bare = hb.train(run.problem, run.network, sampling, 100, 50, 3)
    line = labelled_lines(plotting.regression(bare))["mean"]
    np.testing.assert_allclose(line.get_ydata(), bare.outputs(line.get_xdata()[:, None])[..., 0].mean(axis=0))
    assert plotting.coverage(bare).lines


def test_coverage_is_the_fraction_of_the_data_in_central_intervals():
    run = regression_run()
    problem = run.problem
    ax = plotting.coverage(run)
    (line,) = labelled_lines(ax).values()
    X = problem.X_test[0] * problem.scale + problem.shift
    y = problem.Y_test[0] * problem.target_scale + problem.target_shift
    for place in (50, 100, 160):
        low, high = run.predictive(X).interval(line.get_xdata()[place])
        assert line.get_ydata()[place] == pytest.approx(np.mean((low <= y) & (y <= high)))
    (band,) = ax.collections
    for share in (0.25, 0.5, 0.9):
        assert band_ends(band, share) == pytest.approx(tuple(stats.binom.ppf([0.025, 0.975], 30, share) / 30))
    assert line.get_label() == f"90 % intervals hold {100 * line.get_ydata()[180]:.3g} %"


def test_coverage_of_a_prediction_that_is_too_narrow_is_below_the_diagonal():
    y = np.random.default_rng(0).standard_normal(500)
    said = {"right": stats.norm.cdf(y), "narrow": stats.norm.cdf(2 * y), "wide": stats.norm.cdf(y / 2)}
    lines = labelled_lines(plotting.coverage(said))
    at = {name.partition(":")[0]: line.get_ydata()[100] for name, line in lines.items()}
    assert at["narrow"] < 0.4 < at["right"] < 0.6 < at["wide"]


def test_uniformity_is_a_histogram_of_mean_1_with_the_band_of_chance():
    values = np.random.default_rng(0).random(400) ** 1.2
    ax = plotting.uniformity({"a": values}, bins=8)
    (outline,) = [patch for patch in ax.patches if patch.get_label() == "a"]
    density, edges, _ = outline.get_data()
    np.testing.assert_allclose(density, np.histogram(values, 8, (0, 1), density=True)[0])
    np.testing.assert_allclose(edges, np.linspace(0, 1, 9))
    (band,) = [patch for patch in ax.patches if patch is not outline]
    low, high = stats.binom.ppf([0.025, 0.975], 400, 1 / 8) / 50
    assert (band.get_y(), band.get_y() + band.get_height()) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("draw", "error", "words"),
    [
        (lambda: plotting.regression("run"), TypeError, "run must be a Run"),
        (lambda: plotting.regression(three_methods()), ValueError, "select one"),
        (lambda: plotting.regression(three_methods().select(method="LOL")),
         ValueError, "one input and one target"),
        (lambda: plotting.regression(regression_run(), coverage=1.0), ValueError, "coverage must be"),
        (lambda: plotting.coverage(three_methods().select(method="LOL")),
         ValueError, "regression with test examples"),
        (lambda: plotting.coverage({}), ValueError, "at least one array"),
        (lambda: plotting.coverage({"a": [0.5, 1.5]}), ValueError, r"'a' must be .*got 2 from 0.5 to 1.5"),
        (lambda: plotting.uniformity([]), ValueError, "got 0 from"),
        (lambda: plotting.uniformity([0.5], bins=1), ValueError, "bins"),
    ],
)  # fmt: skip
def test_unsuitable_regressions_are_refused(draw, error, words):
    with pytest.raises(error, match=words):
        draw()


def test_chains_of_several_data_sets_are_not_drawn_as_one():
    x = np.zeros((2, 10, 1))
    problem = hb.datasets.Problem("two", "regression", x, x, x, x, ("x",), ("y",))
    sampling = hb.LaLa(h=0.2, gamma=1.0, posterior=hb.Posterior())
    run = hb.train(problem, hb.MLP((6,), "tanh"), sampling, 100, 10, 2, samples=2)
    for draw in (plotting.regression, plotting.coverage):
        with pytest.raises(ValueError, match="2 different data sets"):
            draw(run)
