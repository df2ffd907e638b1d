"""Pictures of the plane: examples, classifiers, uncertainty."""

import dataclasses

import numpy as np
import pytest
from matplotlib.colors import to_hex
from scipy import stats

import heatbath as hb
from heatbath import plotting
from tests.plotting.pictures import METHODS, three_methods
from tests.runs import SMALL, SPIRALS


def test_the_plane_covers_all_data_and_its_first_feature_changes_fastest():
    grid = plotting.plane(hb.datasets.trigonometric(a=6), points=50)
    assert grid.shape == (2500, 2)
    assert grid[:, 0].min() < 0.01 < 5.99 < grid[:, 0].max()
    assert grid[:, 1].min() < -1 < 1 < grid[:, 1].max()
    assert np.all(np.diff(grid[:50, 0]) > 0)
    assert np.all(grid[:50, 1] == grid[0, 1])


def own_units(standardise):
    """Return data whose first feature is about 100 and whose second is about 0.01."""
    X = SPIRALS.X_train[0] * [10, 0.001] + [100, 0.01]
    return X, hb.datasets.from_arrays(X, SPIRALS.Y_train[0, :, 0], standardise=standardise)


@pytest.mark.parametrize("standardise", [False, True])
def test_data_are_drawn_by_class_in_the_users_units(standardise):
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


def test_classes_differ_in_marker_and_colour_and_circles_look_round():
    ax = plotting.data(SPIRALS, "test")
    faces = {to_hex(dots.get_facecolor()[0]) for dots in ax.collections}
    markers = {len(dots.get_paths()[0].vertices) for dots in ax.collections}
    assert len(faces) == len(markers) == 2
    np.testing.assert_array_equal(ax.collections[1].get_offsets(), SPIRALS.X_test[0, 1::2])
    assert ax.get_aspect() == 1.0
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["class 0", "class 1"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("$x_1$", "$x_2$")


def test_a_classifier_map_is_aligned_with_its_inputs():
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


def test_the_second_feature_is_on_the_vertical_axis():
    grid = plotting.plane(SPIRALS, points=30)
    ax = plotting.classifier(SPIRALS, 1 / (1 + np.exp(-9 * grid[:, 1])))
    np.testing.assert_allclose(ax.collections[-1].get_paths()[0].vertices[:, 1], 0, atol=1e-3)


def test_a_run_is_drawn_as_one_chain_or_as_the_mean_of_living_chains():
    run = three_methods().select(method="LOL")
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


def test_a_chain_is_drawn_with_its_own_training_data():
    problem = hb.datasets.spirals(n_train=50, n_test=10, draws=2)
    run = hb.train(problem, SMALL, METHODS["LOL"], steps=5, batch=5, chains=4)
    for chain in (2, 3):
        ax = plotting.classifier(problem, run, chain=chain)
        np.testing.assert_array_equal(ax.collections[0].get_offsets(), problem.X_train[chain % 2, ::2])
    with pytest.raises(ValueError, match="trained on different data sets: pass chain"):
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


def test_the_colour_bar_can_be_omitted():
    said = np.full(400, 0.3)
    assert len(plotting.classifier(SPIRALS, said).child_axes) == 1
    assert not plotting.classifier(SPIRALS, said, bar=False).child_axes


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((SPIRALS, np.ones(401)), {}, "got 401 numbers"),
        ((SPIRALS, np.full(400, 1.5)), {}, "must hold probabilities, got values from 1.5"),
        ((SPIRALS, [np.nan] * 400), {}, "prediction must be finite"),
        ((SPIRALS, np.ones(400)), {"chain": 1}, "chain is for a run"),
        ((hb.datasets.from_arrays(np.eye(4), [0, 1, 0, 1]), np.ones(400)), {}, "two inputs"),
    ],
)
def test_a_classifier_refuses_probabilities_that_do_not_fit_the_plane(arguments, options, words):
    with pytest.raises(ValueError, match=words):
        plotting.classifier(*arguments, **options)


def test_a_classifier_refuses_chains_of_several_methods_and_missing_chains():
    with pytest.raises(ValueError, match=r"the chains of this run differ: pass chain=.*, or select one of"):
        plotting.classifier(SPIRALS, three_methods())
    with pytest.raises(ValueError, match="chain must be a whole number >= 0 and < 9"):
        plotting.classifier(SPIRALS, three_methods(), chain=9)
    with pytest.raises(TypeError, match="problem must be a Problem"):
        plotting.classifier(None, three_methods())


def test_plane_and_data_refuse_unsuitable_problems():
    with pytest.raises(TypeError, match="problem must be a Problem"):
        plotting.plane("spirals")
    with pytest.raises(ValueError, match="split must be one of 'train', 'test'"):
        plotting.data(SPIRALS, "both")
    with pytest.raises(ValueError, match="draw must be"):
        plotting.data(SPIRALS, draw=1)
    regression = hb.datasets.from_arrays(np.random.default_rng(0).random((9, 2)), np.linspace(0, 1, 9))
    with pytest.raises(ValueError, match="2 to 7 classes"):
        plotting.data(regression)
