"""Pictures: they show the data they are given, fit their figures, and touch nothing else."""

import base64
import dataclasses
import io
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from functools import cache
from itertools import pairwise

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image
from scipy import stats

import heatbath as hb
from heatbath import plotting
from heatbath.plotting import style
from tests.runs import SMALL, SPIRALS

METHODS = {
    "AdLaLa": hb.AdLaLa(h=0.2, tau=1e-3, tau_output=1e-4),
    "LOL": hb.LOL(h=0.2),
    "Adam": hb.Partition(hb.Adam(), h=0.005),
}


@cache
def both():
    plan = {"steps": 60, "batch": 20, "chains": 3, "record": 6, "losses_every": 2, "weights": True}
    return hb.compare(SPIRALS, SMALL, METHODS, **plan)


@cache
def sweep():
    grid = hb.AdLaLa(h=0.2, tau=[1e-4, 1e-3], sigma=[0, 1e-3, 4e-2])
    plan = {"steps": 40, "batch": 20, "chains": 2, "record": 2, "histogram": (-1, 1, 20)}
    return hb.sweep(SPIRALS, SMALL, grid, **plan)


def lined(values, steps=None, name="accuracy", **coords):
    """A trace of chains x records."""
    values = np.asarray(values, float)
    steps = 10 * np.arange(1, values.shape[1] + 1) if steps is None else steps
    return xr.DataArray(
        values, dims=("chain", "record"), coords={"step": ("record", steps), **coords}, name=name
    )


def on_line(values, alpha=(0.0, 0.25, 0.5, 0.75, 1.0)):
    dims = ("pair", "alpha")[2 - np.ndim(values) :]
    return xr.DataArray(values, dims=dims, coords={"alpha": list(alpha), "split": "test"}, name="loss")


def on_surface(function):
    alpha, beta = np.linspace(-1, 2, 31), np.linspace(0, 1, 21)
    values = function(alpha[:, None], beta[None, :])
    return xr.DataArray(values, dims=("alpha", "beta"), coords={"alpha": alpha, "beta": beta}, name="loss")


def forecasts(count=400, seed=0):
    rng = np.random.default_rng(seed)
    said = rng.random(count)
    return said, (rng.random(count) < said**1.5).astype(float)


SCORES = [
    plotting.Score("Adam", 0.84, (0.80, 0.88), 0.837),
    plotting.Score("AdLaLa, γ = 0.5", 0.93, (0.92, 0.94), (0.98, 0.99)),
    plotting.Score("LOL", 0.9, (0.85, 0.95)),
]
PICTURES = {
    "data": lambda ax: plotting.data(SPIRALS, ax=ax),
    "classifier": lambda ax: plotting.classifier(SPIRALS, both(), chain=0, ax=ax),
    "uncertainty": lambda ax: plotting.uncertainty(SPIRALS, both().select(method="LOL"), ax=ax),
    "curves": lambda ax: plotting.curves(both(), ax=ax),
    "loss": lambda ax: plotting.curves(both().loss("train"), band="range", log=True, ax=ax),
    "sweep": lambda ax: plotting.curves(sweep(), band="std", ax=ax),
    "temperatures": lambda ax: plotting.temperatures(both().select(method="AdLaLa"), ax=ax),
    "distributions": lambda ax: plotting.distributions(
        plotting.parameters(both(), "layer1")[:, [0, -1]], ax=ax
    ),
    "line": lambda ax: plotting.line(on_line([0.1, 1.0, 1.3, 0.9, 0.2]), ax=ax),
    "lines": lambda ax: plotting.line(
        {n: on_line([[0.1, 1.0, 1.3, 0.9, 0.2], [0.1, 0.6, 2, 1, 0.3]]) for n in ("Adam to AdLaLa", "LOL")},
        log=True,
        ax=ax,
    ),
    "surface": lambda ax: plotting.surface(
        on_surface(lambda a, b: 0.1 + a**2 + b), {"start": (0, 0), "Adam": (2, 1)}, log=True, ax=ax
    ),
    "heat_map": lambda ax: plotting.heat_map(sweep(), ax=ax),
    "scores": lambda ax: plotting.scores(SCORES, "test accuracy", percent=True, ax=ax),
    "reliability": lambda ax: plotting.reliability({"Adam": forecasts()[0]}, forecasts()[1], ax=ax),
}


def drawn(ax):
    """The lines with more than two points or a label, by label."""
    return {line.get_label(): line for line in ax.get_lines() if not line.get_label().startswith("_")}


def band(ax, place):
    """The lower and upper edges of a band, by step."""
    vertices = ax.collections[place].get_paths()[0].vertices
    steps = np.unique(vertices[:, 0])
    own = [vertices[vertices[:, 0] == step, 1] for step in steps]
    return steps, np.array([v.min() for v in own]), np.array([v.max() for v in own])


def ticks(axis):
    axis.axes.figure.figure.draw_without_rendering()
    return [label.get_text() for label in axis.get_ticklabels()]


def printed(figure):
    figure.draw_without_rendering()
    return figure.canvas.get_renderer() if hasattr(figure.canvas, "get_renderer") else figure._get_renderer()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn_on_the_axes_it_is_given_and_nothing_global_changes(name):
    before, open_figures = dict(matplotlib.rcParams), plt.get_fignums()
    ax = Figure(figsize=(4, 3), layout="constrained").subplots()
    made = PICTURES[name](ax)
    assert made is ax
    assert ax.has_data()
    new = PICTURES[name](None)
    assert new is not ax
    assert new.figure.get_figwidth() == 3.4
    plotting.embed(new)
    assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == open_figures


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("place", ["column", "page"])
def test_nothing_is_cut_off_and_the_legend_hides_nothing(name, place):
    ax = None if place == "column" else plotting.panels(columns=2)[1]
    ax = PICTURES[name](ax)
    figure = ax.figure
    renderer = printed(figure)
    inside = figure.get_tightbbox(renderer)  # in inches
    width, height = figure.get_size_inches()
    assert inside.x0 > -0.02
    assert inside.y0 > -0.02
    assert inside.x1 < width + 0.02
    assert inside.y1 < height + 0.02
    legend = ax.get_legend()
    if legend is not None:
        lowest = min(ax.get_window_extent(renderer).y0, ax.xaxis.label.get_window_extent(renderer).y0)
        assert legend.get_window_extent(renderer).y1 <= lowest + 1
    labels = ax.xaxis.get_ticklabels()
    spans = sorted(
        (t.get_window_extent(renderer).x0, t.get_window_extent(renderer).x1) for t in labels if t.get_text()
    )
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def test_matplotlib_is_loaded_by_the_first_picture_and_pyplot_never(tmp_path):
    code = (
        "import sys; from heatbath import plotting, datasets; assert 'matplotlib' not in sys.modules; "
        "plotting.save(plotting.data(datasets.rings()), 'rings'); assert 'matplotlib' in sys.modules; "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"rings.png", "rings.svg"}


def test_panels_are_in_reading_order_and_as_large_as_asked():
    axes = plotting.panels(2, 3, width=6.0, height=2.5)
    figure = axes[0].figure
    assert figure.get_size_inches().tolist() == [6.0, 2.5]
    assert axes == figure.axes
    assert axes[1].get_position().x0 > axes[0].get_position().x0
    assert axes[3].get_position().y1 < axes[0].get_position().y0
    assert plotting.panels()[0].figure.get_figwidth() == 7.0
    with pytest.raises(ValueError, match="rows must be a whole number >= 1"):
        plotting.panels(0)


def test_an_ax_that_is_none_of_matplotlib_s_is_refused():
    with pytest.raises(TypeError, match="ax must be an Axes of matplotlib, or None"):
        plotting.data(SPIRALS, ax="left")


def test_lines_differ_in_colour_and_dashes():
    looks = [(own["color"], own["linestyle"]) for own in map(style.look, range(49))]
    assert len(set(looks)) == 49
    assert len({c for c, _ in looks[:7]}) == len({d for _, d in looks[:7]}) == 7


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-4, "$10^{-4}$"),
        (0.01, "$10^{-2}$"),
        (4e-2, "0.04"),
        (2.5e-3, r"$2.5 \cdot 10^{-3}$"),
        (-1e-4, "$-10^{-4}$"),
        (0.1, "0.1"),
        (0, "0"),
        (250, "250"),
        (20000.0, r"$2 \cdot 10^{4}$"),
        (float("inf"), r"$\infty$"),
        ("Linear(...)", "Linear(...)"),
    ],
)
def test_numbers_are_printed_as_in_a_paper(value, text):
    assert style.number(value) == text


def test_quantities_have_the_symbols_of_the_paper():
    assert style.symbol("sigma") == r"$\sigma_A$"
    assert style.symbol("hidden.tau") == r"$\tau$ (hidden)"
    assert style.symbol("accuracy") == "accuracy"


# Curves


@pytest.mark.parametrize("kind", ["interval", "std", "range"])
def test_a_curve_is_the_middle_of_the_runs_with_the_band_it_names(kind):
    values = np.random.default_rng(1).random((5, 4)) ** 2 + 0.1
    ax = plotting.curves({"a": lined(values)}, band=kind)
    mean, std = values.mean(0), values.std(0, ddof=1)
    low, high = {
        "interval": stats.t.interval(0.95, 4, mean, stats.sem(values, axis=0)),
        "std": (mean - std, mean + std),
        "range": (values.min(0), values.max(0)),
    }[kind]
    line = drawn(ax)["a"]
    np.testing.assert_array_equal(line.get_xdata(), [10, 20, 30, 40])
    np.testing.assert_allclose(line.get_ydata(), np.median(values, 0) if kind == "range" else mean)
    steps, lower, upper = band(ax, 0)
    np.testing.assert_array_equal(steps, [10, 20, 30, 40])
    np.testing.assert_allclose(lower, low)
    np.testing.assert_allclose(upper, high)


def test_curves_have_a_line_for_each_method_of_a_comparison_at_the_records_that_noted_something():
    ax = plotting.curves(both())
    assert list(drawn(ax)) == ["AdLaLa", "LOL", "Adam"]
    for name, line in drawn(ax).items():
        own = both().select(method=name).accuracy("test")
        np.testing.assert_array_equal(line.get_xdata(), [20, 40, 60])
        np.testing.assert_allclose(line.get_ydata(), own.values[:, 1::2].mean(axis=0))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("steps", "test accuracy")
    assert plotting.curves(both().loss("train")).get_ylabel() == "train loss"
    assert plotting.curves(both().xi("hidden")[:3]).get_ylabel() == r"$\xi$"


def test_the_points_of_a_sweep_are_told_by_their_coefficients():
    labels = list(drawn(plotting.curves(sweep())))
    assert len(labels) == 6
    assert labels[1] == r"$\tau$ = $10^{-4}$, $\sigma_A$ = $10^{-3}$"
    mixed = {"LOL": both().accuracy()[3:6], "AdLaLa": sweep().accuracy()}
    labels = list(drawn(plotting.curves(mixed)))
    assert labels[:2] == ["LOL", r"AdLaLa, $\tau$ = $10^{-4}$, $\sigma_A$ = 0"]
    assert len(labels) == 7


def test_a_single_run_is_a_line_without_band_or_legend():
    ax = plotting.curves(both().accuracy().isel(chain=4))
    assert ax.get_legend() is None
    (line,) = ax.get_lines()
    np.testing.assert_array_equal(line.get_ydata(), both().accuracy().values[4, 1::2])
    assert not np.isfinite(band(ax, 0)[1]).any() if ax.collections[0].get_paths() else True


def test_runs_that_diverged_count_up_to_there_and_are_told():
    values = [[0.5, 0.6, 0.7], [0.7, np.nan, np.nan], [0.9, 1.0, np.nan], [np.nan] * 3]
    ax = plotting.curves(lined(values, method=("chain", ["a", "a", "a", "b"])))
    lines = drawn(ax)
    assert list(lines) == ["a (2 of 3 diverged)", "b (1 of 1 diverged)"]
    np.testing.assert_allclose(lines["a (2 of 3 diverged)"].get_ydata(), [0.7, 0.8, 0.7])
    assert np.isnan(lines["b (1 of 1 diverged)"].get_ydata()).all()


def test_steps_have_separators_and_accuracies_are_percentages_up_to_100():
    ax = plotting.curves(lined([[0.5, 1.0], [0.7, 0.98]], steps=[0, 50_000]))
    assert "20,000" in ticks(ax.xaxis)
    assert "80 %" in ticks(ax.yaxis)
    assert ax.get_ylim()[1] <= 1.005  # the interval of two runs goes far beyond
    loss = plotting.curves(lined([[0.5, 0.004]], name="loss"), log=True)
    assert loss.get_yscale() == "log"
    assert {"0.1", "0.01"} <= set(ticks(loss.yaxis))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([1, 2], TypeError, "a DataArray with the dimensions chain, record is needed"),
        ({}, TypeError, "at least one array is needed"),
        ({1: lined([[1.0]])}, TypeError, "in a dict by name"),
        (xr.DataArray(np.ones((2, 3)), dims=("chain", "record")), ValueError, "need a coordinate `step`"),
        (lined(np.ones((2, 3))).expand_dims(part=3), ValueError, "got {'part': 3"),
        (lined([[np.nan, np.nan]]), ValueError, "all values are NaN"),
    ],
)
def test_curves_refuse_what_is_no_trace(given, error, words):
    with pytest.raises(error, match=words):
        plotting.curves(given)


def test_curves_refuse_a_band_that_is_not_there():
    with pytest.raises(ValueError, match="band must be one of 'interval', 'range', 'std', got 'iqr'"):
        plotting.curves(both(), band="iqr")


# Temperatures


def test_temperatures_are_means_over_chains_beside_the_tau_of_each_part():
    run = both().select(method="AdLaLa")
    ax = plotting.temperatures(run)
    lines = ax.get_lines()
    assert [line.get_label() for line in lines[::2]] == [
        r"hidden, dashed: $\tau$ = $10^{-3}$",
        r"output, dashed: $\tau$ = $10^{-4}$",
    ]
    for part, trace, target, tau in zip(
        ("hidden", "output"), lines[::2], lines[1::2], (1e-3, 1e-4), strict=True
    ):
        np.testing.assert_allclose(trace.get_ydata(), run.temperature(part).mean("chain"))
        np.testing.assert_array_equal(target.get_ydata(), np.full(6, tau))
        assert target.is_dashed()
        assert trace.get_color() == target.get_color()
    assert ax.get_yscale() == "log"


def test_a_tau_of_zero_is_told_and_not_drawn():
    ax = plotting.temperatures(both().select(method="LOL"))
    assert list(drawn(ax)) == [r"hidden, dashed: $\tau$ = $10^{-3}$", r"output, $\tau$ = 0"]
    assert len(ax.get_lines()) == 3


def test_a_scheduled_tau_is_that_of_the_step_before_the_record_and_a_ladder_all_its_rungs():
    plan = {"steps": 40, "batch": 20, "record": [0, 10, 40]}
    falling = hb.schedules.Linear(1e-2, 1e-3, steps=30)
    run = hb.train(SPIRALS, SMALL, hb.Partition(hb.Langevin(1.0, falling), h=0.1), **plan)
    ax = plotting.temperatures(run)
    assert ax.get_lines()[0].get_label() == r"all, dashed: scheduled $\tau$"
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata()[-2:], [falling(9), 1e-3])
    ladder = hb.schedules.SimulatedTempering([1e-4, 1e-3, 1e-2])
    run = hb.train(SPIRALS, SMALL, hb.Partition(hb.Langevin(1.0, ladder), h=0.1), **plan)
    rungs = plotting.temperatures(run).get_lines()[1:]
    assert [line.get_ydata()[0] for line in rungs] == [1e-4, 1e-3, 1e-2]


def test_temperatures_refuse_several_methods_and_methods_without_one():
    with pytest.raises(ValueError, match="select one of"):
        plotting.temperatures(both())
    with pytest.raises(ValueError, match="no part of this run has a temperature"):
        plotting.temperatures(both().select(method="Adam"))
    with pytest.raises(TypeError, match="needs a Run"):
        plotting.temperatures(both().data)


# The plane


def test_the_plane_covers_all_data_and_its_first_feature_changes_fastest():
    grid = plotting.plane(hb.datasets.trigonometric(a=6), points=50)
    assert grid.shape == (2500, 2)
    assert grid[:, 0].min() < 0.01 < 5.99 < grid[:, 0].max()
    assert grid[:, 1].min() < -1 < 1 < grid[:, 1].max()
    assert np.all(np.diff(grid[:50, 0]) > 0)
    assert np.all(grid[:50, 1] == grid[0, 1])


def own_units(standardise):
    """Data in units of their own: the first feature about 100, the second about 0.01."""
    X = SPIRALS.X_train[0] * [10, 0.001] + [100, 0.01]
    return X, hb.datasets.from_arrays(X, SPIRALS.Y_train[0, :, 0], standardise=standardise)


@pytest.mark.parametrize("standardise", [False, True])
def test_data_are_drawn_by_class_in_the_units_of_the_user(standardise):
    X, problem = own_units(standardise)
    ax = plotting.data(problem)
    labels = SPIRALS.Y_train[0, :, 0]
    seen = 0
    for place, dots in enumerate(ax.collections):
        rows = np.asarray(dots.get_offsets())
        assert all(np.isclose(X[labels == place], row).all(axis=1).any() for row in rows[:20])
        seen += len(rows)
    assert seen == problem.X_train.shape[1]
    assert ax.get_aspect() == "auto"
    left, right = ax.get_xlim()
    assert left < X[:, 0].min() < X[:, 0].max() < right


def test_classes_differ_in_marker_and_colour_and_a_circle_is_a_circle():
    ax = plotting.data(SPIRALS, "test")
    faces = {to_hex(dots.get_facecolor()[0]) for dots in ax.collections}
    markers = {len(dots.get_paths()[0].vertices) for dots in ax.collections}
    assert len(faces) == len(markers) == 2
    np.testing.assert_array_equal(ax.collections[1].get_offsets(), SPIRALS.X_test[0, 1::2])
    assert ax.get_aspect() == 1.0
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["class 0", "class 1"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("$x_1$", "$x_2$")


def test_a_classifier_lies_where_the_inputs_are():
    """Class 1 to the right of x1 = 0.5, in a narrow band of which the 1/2 contour is the middle."""
    grid = plotting.plane(SPIRALS, points=80)
    said = 1 / (1 + np.exp(-40 * (grid[:, 0] - 0.5)))
    ax = plotting.classifier(SPIRALS, said)
    (image,) = ax.get_images()
    np.testing.assert_array_equal(image.get_array(), said.reshape(80, 80))
    left, right, low, high = image.get_extent()
    middles = left + (np.arange(80) + 0.5) * (right - left) / 80
    np.testing.assert_allclose(middles, grid[:80, 0])
    assert image.origin == "lower"
    assert image.norm(0.5) == 0.5
    contour = ax.collections[-1].get_paths()[0].vertices
    np.testing.assert_allclose(contour[:, 0], 0.5, atol=0.02)
    assert np.ptp(contour[:, 1]) > 3.5
    assert ax.get_aspect() == 1.0
    assert ax.get_xlim() == pytest.approx((grid[0, 0], grid[-1, 0]))
    assert (high - low) == pytest.approx(np.ptp(grid[:, 1]) * 80 / 79)


def test_up_is_the_second_feature():
    grid = plotting.plane(SPIRALS, points=30)
    ax = plotting.classifier(SPIRALS, 1 / (1 + np.exp(-9 * grid[:, 1])))
    np.testing.assert_allclose(ax.collections[-1].get_paths()[0].vertices[:, 1], 0, atol=1e-3)


def test_a_run_is_drawn_by_one_chain_or_the_mean_of_those_that_did_not_diverge():
    run = both().select(method="LOL")
    said = run.outputs(plotting.plane(SPIRALS))[..., 0].reshape(3, 200, 200)
    image = plotting.classifier(SPIRALS, run, chain=2).get_images()[0]
    np.testing.assert_allclose(image.get_array(), said[2])
    np.testing.assert_allclose(
        plotting.classifier(SPIRALS, run).get_images()[0].get_array(), said.mean(axis=0)
    )
    died = run.data["died"].copy(data=[-1, 7, -1])
    theta = run.data["theta"].copy()
    theta[1] = np.nan
    lost = hb.Run(run.plan, run.step, run.data.assign(died=died, theta=theta))
    image = plotting.classifier(SPIRALS, lost).get_images()[0]
    np.testing.assert_allclose(image.get_array(), said[[0, 2]].mean(axis=0))
    with pytest.raises(ValueError, match="chain 1 diverged at step 7"):
        plotting.classifier(SPIRALS, lost, chain=1)
    all_lost = hb.Run(run.plan, run.step, run.data.assign(died=died * 0 + 3))
    with pytest.raises(ValueError, match="all chains diverged"):
        plotting.classifier(SPIRALS, all_lost)


def test_a_chain_is_drawn_with_the_data_it_saw():
    problem = hb.datasets.spirals(n_train=50, n_test=10, draws=2)
    run = hb.train(problem, SMALL, METHODS["LOL"], steps=5, batch=5, chains=4)
    for chain in (2, 3):
        ax = plotting.classifier(problem, run, chain=chain)
        np.testing.assert_array_equal(ax.collections[0].get_offsets(), problem.X_train[chain % 2, ::2])
    with pytest.raises(ValueError, match="the chains have different data sets: say which chain"):
        plotting.classifier(problem, run)


def test_uncertainty_is_the_entropy_of_the_predicted_class():
    said = np.full((20, 20), 0.5)
    said[3, 5], said[4, 4] = 0.9, 1.0
    ax = plotting.uncertainty(SPIRALS, said)
    seen = np.asarray(ax.get_images()[0].get_array())
    assert seen[0, 0] == pytest.approx(np.log(2))
    assert seen[3, 5] == pytest.approx(stats.entropy([0.9, 0.1]))
    assert seen[4, 4] == 0
    three = dataclasses.replace(
        SPIRALS, task="classes", targets=("a", "b", "c"), Y_train=SPIRALS.Y_train * 2, recipe=None
    )
    ax = plotting.uncertainty(three, np.tile([0.2, 0.3, 0.5], (25, 1)))
    assert np.asarray(ax.get_images()[0].get_array())[2, 2] == pytest.approx(stats.entropy([0.2, 0.3, 0.5]))
    assert ax.get_images()[0].norm.vmax == pytest.approx(np.log(3))
    with pytest.raises(ValueError, match="a problem with two classes"):
        plotting.classifier(three, np.ones(25))


def test_without_a_colour_bar_there_is_none():
    said = np.full(400, 0.3)
    assert len(plotting.classifier(SPIRALS, said).child_axes) == 1
    assert not plotting.classifier(SPIRALS, said, bar=False).child_axes


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((SPIRALS, np.ones(401)), {}, "got 401 numbers"),
        ((SPIRALS, np.full(400, 1.5)), {}, "must hold probabilities, got values from 1.5"),
        ((SPIRALS, [np.nan] * 400), {}, "said must be finite"),
        ((SPIRALS, np.ones(400)), {"chain": 1}, "chain is for a run"),
        ((hb.datasets.from_arrays(np.eye(4), [0, 1, 0, 1]), np.ones(400)), {}, "two inputs"),
    ],
)
def test_a_classifier_refuses_what_is_not_on_the_plane(arguments, options, words):
    with pytest.raises(ValueError, match=words):
        plotting.classifier(*arguments, **options)


def test_a_classifier_refuses_chains_of_several_methods_and_chains_that_are_not_there():
    with pytest.raises(ValueError, match="say which chain, or select one of"):
        plotting.classifier(SPIRALS, both())
    with pytest.raises(ValueError, match="chain must be a whole number >= 0 and < 9"):
        plotting.classifier(SPIRALS, both(), chain=9)
    with pytest.raises(TypeError, match="problem must be a Problem"):
        plotting.classifier(None, both())


def test_a_plane_and_data_refuse_what_they_cannot_draw():
    with pytest.raises(TypeError, match="problem must be a Problem"):
        plotting.plane("spirals")
    with pytest.raises(ValueError, match="split must be one of 'train', 'test'"):
        plotting.data(SPIRALS, "both")
    with pytest.raises(ValueError, match="draw must be"):
        plotting.data(SPIRALS, draw=1)
    regression = hb.datasets.from_arrays(np.random.default_rng(0).random((9, 2)), np.linspace(0, 1, 9))
    with pytest.raises(ValueError, match="2 to 7 classes"):
        plotting.data(regression)


# Distributions


def stairs(ax):
    return {patch.get_label(): patch.get_data() for patch in ax.patches}


def test_parameters_are_those_of_the_tensor_the_layer_or_the_part():
    weights, spans = (
        both().weights().values,
        {"layer1.weight": (0, 40), "layer1.bias": (40, 60), "layer1": (0, 60)},
    )
    spans |= {"layer2.weight": (60, 80), "layer2.bias": (80, 81), "hidden": (0, 60), "output": (60, 81)}
    for name, (begin, end) in spans.items():
        np.testing.assert_array_equal(plotting.parameters(both(), name).values, weights[..., begin:end])
    with pytest.raises(ValueError, match=r"no 'layer3' in this run: accepted are 'layer1', 'layer1.weight'"):
        plotting.parameters(both(), "layer3")
    with pytest.raises(ValueError, match="train with weights=True"):
        plotting.parameters(sweep(), "layer1.bias")
    with pytest.raises(TypeError, match="needs a Run"):
        plotting.parameters(both().data, "layer1")


def test_outlines_count_the_parameters_of_one_network_in_shared_bins():
    own = plotting.parameters(both(), "layer1.weight").isel(record=-1)
    ax = plotting.distributions(own, bins=15)
    edges = np.linspace(own.values.min(), own.values.max(), 16)
    assert list(stairs(ax)) == list(METHODS)
    for place, drawn_ in enumerate(stairs(ax).values()):
        np.testing.assert_allclose(drawn_.edges, edges, rtol=1e-6)
        assert drawn_.values.sum() == pytest.approx(40)
        expected = np.histogram(own.values[3 * place : 3 * place + 3], drawn_.edges)[0] / 3
        np.testing.assert_allclose(drawn_.values, expected)
    assert ax.get_yscale() == "log"
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"$\theta$", "parameters per bin")


def test_outlines_over_time_bear_their_steps_and_recorded_histograms_need_no_parameters():
    own = sweep().data["histogram"].sel(part="hidden").isel(chain=slice(0, 2))
    ax = plotting.distributions(own)
    assert list(stairs(ax)) == [r"$\tau$ = $10^{-4}$, $\sigma_A$ = 0, step " + n for n in ("20", "40")]
    for record, drawn_ in enumerate(stairs(ax).values()):
        np.testing.assert_allclose(drawn_.edges, np.linspace(-1, 1, 21), atol=1e-12)
        np.testing.assert_allclose(drawn_.values, own.values[:, record].mean(axis=0))


def test_chains_that_diverged_are_not_counted_nor_what_lies_outside_the_limits():
    values = np.array([[[0.1, 0.2, 5.0]], [[np.nan] * 3]])
    own = xr.DataArray(values, dims=("chain", "record", "parameter"), coords={"step": ("record", [3000])})
    (drawn_,) = stairs(plotting.distributions({"a": own}, bins=2, limits=(0, 1))).values()
    np.testing.assert_array_equal(drawn_.values, [2, 0])
    np.testing.assert_array_equal(drawn_.edges, [0, 0.5, 1])
    counts = xr.DataArray([[[4, 2]], [[0, 0]]], dims=("chain", "record", "bin"), coords={"bin": [0.5, 1.5]})
    counts = counts.assign_coords(step=("record", [10]))
    (drawn_,) = stairs(plotting.distributions(counts)).values()
    np.testing.assert_array_equal(drawn_.values, [4, 2])
    np.testing.assert_array_equal(drawn_.edges, [0, 1, 2])
    with pytest.raises(ValueError, match="no parameter lies in the bins"):
        plotting.distributions(own, limits=(7, 8))
    with pytest.raises(ValueError, match="no parameter is finite"):
        plotting.distributions({"a": own, "lost": own * np.nan})
    with pytest.raises(ValueError, match="lost has no parameters in these bins"):
        plotting.distributions({"a": counts, "lost": counts * 0})
    with pytest.raises(ValueError, match="all be parameters or all histograms"):
        plotting.distributions({"a": own, "b": counts})


def test_distributions_refuse_too_many_outlines_and_wrong_limits():
    with pytest.raises(ValueError, match="18 outlines cannot be told apart, 14 can"):
        plotting.distributions(plotting.parameters(both(), "layer1"))
    own = plotting.parameters(both(), "layer1").isel(record=-1)
    with pytest.raises(ValueError, match="limits must go from low to high"):
        plotting.distributions(own, limits=(1, -1))
    with pytest.raises(TypeError, match=r"limits must be two numbers such as \(-3, 3\)"):
        plotting.distributions(own, limits=3)


# Landscapes


def test_a_line_has_its_ends_marked_and_its_barrier_told():
    ax = plotting.line(on_line([0.1, 1.0, 1.3, 0.9, 0.2]))
    curve, dots = ax.get_lines()[:2]
    np.testing.assert_array_equal(curve.get_ydata(), [0.1, 1.0, 1.3, 0.9, 0.2])
    np.testing.assert_array_equal(dots.get_xydata(), [[0, 0.1], [1, 0.2]])
    assert curve.get_label() == "barrier 1.1"
    (arrow,) = ax.texts
    assert arrow.xy == (0.5, 1.3)
    assert arrow.xyann == pytest.approx((0.5, 0.2))
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"$\alpha$", "test loss")


def test_the_barrier_lies_between_the_ends_and_the_ends_need_no_point_of_their_own():
    ax = plotting.line(on_line([9.0, 0.4, 0.6, 0.2, 9.0], alpha=(-0.5, 0.25, 0.5, 0.75, 1.5)))
    ends = np.interp([0, 1], [-0.5, 0.25, 0.5, 0.75, 1.5], [9.0, 0.4, 0.6, 0.2, 9.0])
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), ends)
    assert ax.get_lines()[0].get_label() == "no barrier"
    assert not ax.texts
    falling = on_line([0.5, 0.4, 0.3, 0.2, 0.1]).isel(alpha=slice(None, None, -1))
    line = plotting.line(falling).get_lines()[0]
    np.testing.assert_array_equal(line.get_xdata(), [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_array_equal(line.get_ydata(), [0.5, 0.4, 0.3, 0.2, 0.1])


def test_several_pairs_are_thin_lines_and_a_thick_mean():
    pairs = np.array([[0.1, 1.0, 1.3, 0.9, 0.2], [0.1, 0.6, 2.0, 1.0, 0.3]])
    ax = plotting.line({"a to b": on_line(pairs), "a to c": on_line(pairs.T.copy().T[:1])})
    lines = ax.get_lines()
    for thin, pair in zip(lines[:2], pairs, strict=True):
        np.testing.assert_array_equal(thin.get_ydata(), pair)
    np.testing.assert_allclose(lines[2].get_ydata(), pairs.mean(axis=0))
    assert lines[2].get_linewidth() > 2 * lines[0].get_linewidth()
    assert list(drawn(ax)) == ["a to b: barrier 1.4 (1.1 to 1.7)", "a to c: barrier 1.1"]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([1.0, 2.0], TypeError, "must be a DataArray"),
        ({}, TypeError, "an empty dict"),
        (xr.DataArray([1.0, 2.0], dims="beta"), ValueError, "needs the coordinate alpha"),
        (on_line([1.0, 2.0], alpha=(0.0, 0.9)), ValueError, "must reach from alpha = 0 to 1.* got 0 to 0.9"),
        ({"a": on_line([1.0, np.inf], alpha=(0, 1))}, ValueError, "of 'a' has values that are not finite"),
    ],
)
def test_a_line_refuses_what_is_none(given, error, words):
    with pytest.raises(error, match=words):
        plotting.line(given)


@pytest.mark.parametrize("log", [False, True])
def test_a_surface_has_alpha_to_the_right_and_beta_upwards(log):
    slope = on_surface(lambda a, b: 2.0 + a + 3.0 * b)
    ax = plotting.surface(slope, log=log)
    filled, contours = ax.collections[:2]
    levels = filled.levels
    assert len(levels) >= 11
    steps = np.diff(np.log(levels) if log else levels)
    np.testing.assert_allclose(steps, steps[0])
    assert levels[0] <= 1.0 < 7.0 <= levels[-1]
    assert filled.get_cmap().name == "viridis"
    for low, high, path in zip(levels, levels[1:], filled.get_paths(), strict=False):
        height = 2.0 + path.vertices @ [1.0, 3.0]
        assert np.all((height > low - 0.02) & (height < high + 0.02))
    for level, path in zip(contours.levels, contours.get_paths(), strict=True):
        np.testing.assert_allclose(2.0 + path.vertices @ [1.0, 3.0], level, atol=0.02)
    assert ax.get_xlim() == (-1, 2)
    assert ax.get_ylim() == (0, 1)
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"$\alpha$", r"$\beta$")
    turned = plotting.surface(slope.transpose("beta", "alpha"), log=log).collections[1].get_paths()
    np.testing.assert_array_equal(turned[3].vertices, contours.get_paths()[3].vertices)


def test_the_minima_are_marked_where_they_are():
    ax = plotting.surface(on_surface(lambda a, b: a**2 + b), {"start": (0, 0.5), "Adam": (1.5, 1)})
    assert [tuple(map(float, line.get_xydata()[0])) for line in ax.get_lines()] == [(0, 0.5), (1.5, 1)]
    assert [(text.get_text(), text.xy) for text in ax.texts] == [("start", (0, 0.5)), ("Adam", (1.5, 1))]


@pytest.mark.parametrize(
    ("given", "options", "error", "words"),
    [
        (np.ones((3, 3)), {}, TypeError, "must be a DataArray, got ndarray"),
        (on_line([[1.0, 2, 3, 4, 5]]), {}, ValueError, "coordinates alpha and beta, got {'pair': 1"),
        (on_surface(lambda a, b: a + b), {"log": True}, ValueError, "> 0 on a logarithmic scale"),
        (on_surface(lambda a, b: 2 + 0 * a * b), {}, ValueError, "the loss is 2 everywhere"),
        (on_surface(lambda a, b: a + b), {"marks": {"x": (0, None)}}, TypeError, "the place of 'x' must be"),
    ],
)
def test_a_surface_refuses_what_has_no_contours(given, options, error, words):
    with pytest.raises(error, match=words):
        plotting.surface(given, **options)


# Summaries


def test_a_heat_map_has_the_mean_accuracy_of_each_point_written_in_its_cell():
    ax = plotting.heat_map(sweep())
    last = sweep().accuracy("test").values[:, -1].reshape(2, 3, 2).mean(axis=-1)  # τ, σ, repeat
    np.testing.assert_allclose(ax.get_images()[0].get_array(), last)
    written = {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in ax.texts}
    assert written == {place: f"{100 * value:.0f}" for place, value in np.ndenumerate(last)}
    assert ticks(ax.yaxis) == ["$10^{-4}$", "$10^{-3}$"]
    assert ticks(ax.xaxis) == ["0", "$10^{-3}$", "0.04"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"$\sigma_A$", r"$\tau$")
    assert ax.child_axes[0].get_ylabel() == "test accuracy"
    assert ax.get_images()[0].origin == "lower"
    assert ticks(ax.child_axes[0].yaxis)[0].endswith(" %")


def test_points_where_repeats_diverged_have_a_star_and_a_dash_where_all_did():
    accuracy = sweep().data["accuracy"].copy()
    accuracy[:, 0, 1] = np.nan  # one repeat of the first point
    accuracy[:, 2:4, 1] = np.nan  # both of the second
    ax = plotting.heat_map(hb.Run(sweep().plan, sweep().step, sweep().data.assign(accuracy=accuracy)))
    texts = [text.get_text() for text in ax.texts]
    assert texts[0] == f"{100 * accuracy.values[1, 1, 1]:.0f}*"
    assert texts[1] == "–*"
    assert "*" not in "".join(texts[2:])
    assert "some runs diverged" in ax.child_axes[0].get_ylabel()


def test_a_heat_map_of_any_table_has_its_first_dimension_upwards_and_legible_numbers():
    table = xr.DataArray(
        [[0.0123456, 5.0], [9.99, 10.0]],
        dims=("h", "gamma"),
        coords={"h": [0.1, 0.2], "gamma": [1.0, np.inf]},
        name="loss",
    )
    ax = plotting.heat_map(table)
    assert [text.get_text() for text in ax.texts] == ["0.0123", "5", "9.99", "10"]
    assert [text.get_color() for text in ax.texts] == ["white", "white", "black", "black"]
    assert ticks(ax.xaxis) == ["1", r"$\infty$"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"$\gamma$", "$h$")


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (np.ones((2, 2)), TypeError, "needs a DataArray, or a sweep"),
        (xr.DataArray(np.ones((2, 2)), dims=("a", "b")), ValueError, "both with coordinates"),
        (xr.DataArray([[np.nan]], coords={"a": [1], "b": [2]}), ValueError, "no value is finite"),
    ],
)
def test_a_heat_map_refuses_what_has_not_two_axes(given, error, words):
    with pytest.raises(error, match=words):
        plotting.heat_map(given)
    with pytest.raises(ValueError, match="a sweep over two axes, this run has method"):
        plotting.heat_map(both())


def test_scores_are_dots_with_intervals_and_hollow_diamonds_for_the_paper():
    ax = plotting.scores(SCORES, "test accuracy", percent=True)
    lines = drawn(ax)
    np.testing.assert_array_equal(
        lines["measured, 95 % interval"].get_xydata(), [[0.84, 0], [0.93, 1], [0.9, 2]]
    )
    segments = [segment.tolist() for segment in ax.collections[0].get_segments()]
    assert segments == [[[0.80, 0], [0.88, 0]], [[0.92, 1], [0.94, 1]], [[0.85, 2], [0.95, 2]]]
    diamonds = [line for line in ax.get_lines() if line.get_marker() == "D"]
    assert [line.get_xdata().tolist() for line in diamonds] == [[0.837], [0.98, 0.99]]
    assert {line.get_markerfacecolor() for line in diamonds} == {"white"}
    assert [0 < line.get_ydata()[0] - row < 0.5 for row, line in enumerate(diamonds)] == [True, True]
    assert lines["paper"] is diamonds[0]
    assert ticks(ax.yaxis) == ["Adam", "AdLaLa, γ = 0.5", "LOL"]
    low, high = ax.get_ylim()
    assert low > high  # the first is at the top
    assert "80 %" in ticks(ax.xaxis)
    assert "paper" not in drawn(plotting.scores(SCORES[2:], "steps"))


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        ([], ValueError, "at least one score"),
        ([("a", 1.0, (0.0, 2.0))], TypeError, r"of the kind Score\(label, value, interval, paper\)"),
        ([plotting.Score("a", float("nan"), (0.0, 1.0))], ValueError, "the value of 'a' must be finite"),
        ([plotting.Score("a", 1.0, (2.0, 0.0))], ValueError, "must go from low to high"),
        (
            [plotting.Score("a", 1.0, (0.0, 2.0), "0.9")],
            TypeError,
            "the paper's value of 'a' must be a number",
        ),
    ],
)
def test_scores_refuse_what_is_none(rows, error, words):
    with pytest.raises(error, match=words):
        plotting.scores(rows, "accuracy")


def test_reliability_is_the_observed_frequency_of_each_bin_with_wilsons_interval():
    said, truth = forecasts()
    said[:3], truth[:3] = [0.0, 1.0, 0.2], [0, 1, 0]  # at the edges of bins
    ax = plotting.reliability({"a": said}, truth, bins=5)
    (line,) = drawn(ax).values()
    error = 0.0
    for place, (x, y) in enumerate(line.get_xydata()):
        own = (said >= place / 5) & ((said < (place + 1) / 5) | (place == 4))
        assert x == pytest.approx(said[own].mean())
        assert y == pytest.approx(truth[own].mean())
        error += own.sum() / 400 * abs(x - y)
        interval = stats.binomtest(int(truth[own].sum()), int(own.sum())).proportion_ci(method="wilson")
        (_, low), (_, high) = ax.collections[0].get_segments()[place]
        assert (low, high) == pytest.approx((interval.low, interval.high), abs=1e-4)
    assert place == 4
    assert line.get_label() == f"a (ECE {error:.3f})"
    np.testing.assert_array_equal(ax.get_lines()[0].get_xydata(), [[0, 0], [1, 1]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("predicted probability", "observed frequency")


def test_bins_without_data_are_left_out():
    ax = plotting.reliability([0.1, 0.12, 0.9], [0, 1, 1])
    np.testing.assert_allclose(drawn(ax)["ECE 0.293"].get_xydata(), [[0.11, 0.5], [0.9, 1.0]])


@pytest.mark.parametrize(
    ("said", "truth", "words"),
    [
        ([0.1, 0.2], [0, 1, 1], "must hold 3 numbers from 0 to 1.* got 2"),
        ({"a": [0.1, 1.2]}, [0, 1], "probability of 'a' must hold 2 numbers from 0 to 1.* to 1.2"),
        ([0.1, 0.2], [0, 2], "happened must hold 0 and 1"),
        ({}, [0, 1], "at least one forecast"),
        ([], [0, 1], "must hold 2 numbers"),
    ],
)
def test_reliability_refuses_what_are_no_probabilities(said, truth, words):
    with pytest.raises(ValueError, match=words):
        plotting.reliability(said, truth)


# Files


def test_a_picture_is_saved_as_png_and_svg_with_the_same_bytes_every_time(tmp_path):
    first, again = PICTURES["classifier"](None), PICTURES["classifier"](None)
    figures = {"one": first, "two": first, "three.png": again}
    files = {name: plotting.save(ax, tmp_path / name) for name, ax in figures.items()}
    png, svg = files["one"]
    assert (png, svg) == (tmp_path / "one.png", tmp_path / "one.svg")
    assert files["three.png"] == (tmp_path / "three.png", tmp_path / "three.svg")
    for made in files.values():
        assert [path.read_bytes() for path in made] == [png.read_bytes(), svg.read_bytes()]
    with Image.open(png) as image:
        image.load()
        assert image.width == 680
        assert "Software" not in image.info
    assert ET.parse(svg).getroot().tag.endswith("svg")
    assert "<dc:date>" not in svg.read_text()
    assert len(list(tmp_path.iterdir())) == 6


def test_other_endings_of_a_name_are_kept(tmp_path):
    made = plotting.save(PICTURES["line"](None).figure, tmp_path / "tau.0.1")
    assert [path.name for path in made] == ["tau.0.1.png", "tau.0.1.svg"]
    made = plotting.save(PICTURES["line"](None), str(tmp_path / "x.SVG"))
    assert [path.name for path in made] == ["x.png", "x.svg"]


def test_a_picture_that_cannot_be_written_leaves_what_was_there(tmp_path, monkeypatch):
    (tmp_path / "x.png").write_bytes(b"before")

    def fails(*names):
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="no space"):
        plotting.save(PICTURES["line"](None), tmp_path / "x")
    assert (tmp_path / "x.png").read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        plotting.save(PICTURES["line"](None), tmp_path / "nowhere" / "x")
    with pytest.raises(TypeError, match="a Figure or an Axes of matplotlib is needed, got 'x'"):
        plotting.save("x", tmp_path / "x")


@pytest.mark.parametrize(("asked", "wide"), [(300, 300), (5000, 680)])
def test_an_embedded_picture_is_a_png_of_at_most_the_width_asked_for(asked, wide):
    text = plotting.embed(PICTURES["line"](None), width=asked)
    head, _, body = text.partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(body))) as image:
        assert image.width == wide
    with pytest.raises(ValueError, match="width must be a whole number >= 1"):
        plotting.embed(PICTURES["line"](None), width=0)


def test_axes_of_a_subfigure_are_saved_with_the_whole_figure():
    figure = Figure(figsize=(4, 2), layout="constrained")
    left, _ = figure.subfigures(1, 2)
    ax = plotting.line(on_line([0.1, 1.0, 1.3, 0.9, 0.2]), ax=left.subplots())
    text = plotting.embed(ax, width=200)
    with Image.open(io.BytesIO(base64.b64decode(text.partition(",")[2]))) as image:
        assert image.size == (200, 100)
