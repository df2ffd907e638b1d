"""Problems that are drawn at random."""

import subprocess
import sys

import numpy as np
import pytest

from heatbath import datasets
from heatbath.datasets import blobs, from_arrays, rings, spirals, trigonometric
from tests.datasets.problems import ones, same

DRAWN = [spirals, trigonometric, rings, blobs]


@pytest.mark.parametrize(("turns", "a", "p"), [(1, 2, 0.5), (4, 2, 1), (2.5, 3, 0.7)])
def test_spirals_without_noise_lie_on_the_papers_curve(turns, a, p):
    problem = spirals(turns=turns, a=a, p=p, c=0, draws=2, n_train=20000, n_test=20000)
    for X, Y in ((problem.X_train, problem.Y_train), (problem.X_test, problem.Y_test)):
        radius = np.hypot(X[..., 0], X[..., 1])  # a t^p
        angle = 2 * turns * (radius / a) * np.pi + np.pi * Y[..., 0]
        np.testing.assert_allclose(
            X, np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1), atol=1e-12
        )
        # t is uniform: Kolmogorov's distance of 40,000 points exceeds 0.012 with probability 2e-5
        t = np.sort((radius / a).ravel() ** (1 / p))
        assert np.abs(t - (np.arange(t.size) + 0.5) / t.size).max() < 0.012


def test_trigonometric_data_without_noise_are_a_cosine_and_a_sine_of_the_first_coordinate():
    problem = trigonometric(a=3, b=2, c=0)
    x1, x2 = problem.X_train[0].T
    label = problem.Y_train[0, :, 0] == 1
    np.testing.assert_allclose(x2[~label], np.cos(2 * np.pi * x1[~label]), atol=1e-12)
    np.testing.assert_allclose(x2[label], np.sin(2 * np.pi * x1[label]), atol=1e-12)
    assert 2.95 < x1.max() < 3
    assert 0 < x1.min() < 0.05


def test_the_margin_of_the_rings_is_pinched_where_it_says():
    problem = rings(gap=0.6, pinch=0.2, pinches=3, c=0, n_train=4000)
    X, label = problem.X_train[0], problem.Y_train[0, :, 0]
    radius, angle = np.hypot(*X.T), np.arctan2(X[:, 1], X[:, 0])
    assert (radius[label == 0] <= 0.9 + 1e-12).all()
    assert (radius[label == 1] >= 1.1 - 1e-12).all()
    half = np.abs(radius - 1)
    pinched, wide = np.cos(3 * angle) > 0.99, np.cos(3 * angle) < -0.99
    np.testing.assert_allclose(half[pinched], 0.1, atol=0.002)
    np.testing.assert_allclose(half[wide], 0.3, atol=0.002)


@pytest.mark.parametrize("centres", [2, 3, 4, 7])
def test_blobs_without_noise_are_the_centres_of_their_class_all_alike(centres):
    problem = blobs(centres=centres, c=0, n_train=4000)
    X, label = problem.X_train[0], problem.Y_train[0, :, 0]
    np.testing.assert_allclose(np.hypot(*X.T), 1, atol=1e-12)
    turns = np.rint(np.arctan2(X[:, 1], X[:, 0]) / (2 * np.pi) * centres) % centres
    np.testing.assert_allclose(X[:, 0], np.cos(2 * np.pi * turns / centres), atol=1e-12)
    assert (turns % 2 == label).all()
    for kind in (0, 1):
        counts = np.bincount(turns[label == kind].astype(int), minlength=centres)[kind::2]
        share = 2000 / len(counts)  # six standard deviations of a count, and one more at the least
        assert np.abs(counts - share).max() <= 6 * np.sqrt(share) * (len(counts) > 1)


@pytest.mark.parametrize(
    ("make", "noisy"), [(spirals, (1, 1)), (trigonometric, (0, 1)), (rings, (1, 1)), (blobs, (1, 1))]
)
def test_the_noise_has_standard_deviation_c(make, noisy):
    clean, noised = make(c=0, n_train=20000), make(c=0.3, n_train=20000)
    added = noised.X_train[0] - clean.X_train[0]  # the same t: the noise is drawn after it
    # the standard error of a standard deviation is c / sqrt(2n), 0.0015: five of them
    np.testing.assert_allclose(added.std(axis=0), 0.3 * np.array(noisy), atol=0.0075)
    np.testing.assert_allclose(added.mean(axis=0), 0, atol=0.011)


@pytest.mark.parametrize("make", DRAWN)
def test_classes_are_balanced(make):
    problem = make(n_train=101, n_test=50, draws=3)
    assert problem.Y_train.sum(axis=(1, 2)).tolist() == [50] * 3
    assert problem.Y_test.sum(axis=(1, 2)).tolist() == [25] * 3


@pytest.mark.parametrize("make", DRAWN)
def test_a_draw_does_not_depend_on_the_number_of_draws(make):
    one, three = make(seed=5), make(seed=5, draws=3)
    assert three.X_train.shape == (3, 1000, 2)
    assert np.array_equal(one.X_train[0], three.X_train[0])
    assert np.array_equal(one.X_test[0], three.X_test[0])


@pytest.mark.parametrize("make", DRAWN)
def test_train_and_test_do_not_depend_on_one_anothers_size(make):
    usual = make()
    assert np.array_equal(usual.X_train, make(n_test=7).X_train)
    assert np.array_equal(usual.X_test, make(n_train=7).X_test)


@pytest.mark.parametrize("make", DRAWN)
def test_draws_seeds_and_parts_all_differ(make):
    seeds = (0, 1, 2**32, 2**64 - 1)
    made = [make(draws=3, seed=seed) for seed in seeds]
    first = {X[0, 0] for problem in made for part in (problem.X_train, problem.X_test) for X in part}
    assert len(first) == 3 * 2 * len(seeds)


@pytest.mark.parametrize("make", DRAWN)
def test_a_recipe_makes_the_same_problem_again(make):
    problem = make(n_train=np.int64(20), n_test=0, c=0.1, draws=2, seed=3)
    recipe = dict(problem.recipe)
    assert all(type(value) in (str, int, float) for value in recipe.values())
    again = getattr(datasets, recipe.pop("name"))(**recipe)
    assert same(problem, again)
    assert again.recipe == problem.recipe
    assert again.X_test.shape == (2, 0, 2)


def test_the_defaults_are_the_papers():
    assert same(spirals(), spirals(2, 1000, 1000, 2, 0.5, 0.02, 1, 0))
    assert same(trigonometric(), trigonometric(6, 1, 0.02, 1000, 1000, 1, 0))
    assert spirals().X_train.shape == spirals().X_test.shape == (1, 1000, 2)


@pytest.mark.parametrize(
    ("make", "given", "says"),
    [
        (spirals, {"turns": 0}, r"spirals: turns must be > 0 and finite, got 0"),
        (spirals, {"a": "2"}, r"spirals: a must be a number .* got '2' of type str"),
        (spirals, {"p": -1}, r"spirals: p must be > 0"),
        (spirals, {"c": float("nan")}, r"spirals: c must be >= 0 and finite, got nan"),
        (spirals, {"n_train": 0}, r"spirals: n_train must be a whole number >= 1, got 0"),
        (spirals, {"n_test": -1}, r"spirals: n_test must be a whole number >= 0"),
        (trigonometric, {"draws": 0}, r"trigonometric: draws must be a whole number >= 1"),
        (trigonometric, {"seed": -1}, r"trigonometric: seed must be a whole number >= 0"),
        (trigonometric, {"b": [1, 2]}, r"trigonometric: b must be a number"),
        (rings, {"gap": 2}, r"rings: gap must be > 0 and < 2, got 2"),
        (rings, {"pinch": 0.6}, r"rings: pinch must be at most the gap, 0.5, got 0.6"),
        (rings, {"pinches": 1.5}, r"rings: pinches must be a whole number"),
    ],
)
def test_bad_settings_of_drawn_data_are_refused(make, given, says):
    with pytest.raises((ValueError, TypeError), match=says):
        make(**given)


def test_importing_the_module_loads_nothing_heavy_and_touches_no_network():
    code = """
import sys
called = []
sys.addaudithook(lambda event, _: called.append(event) if event.startswith("socket.") else None)
import heatbath.datasets
assert not called, called
print(*{m.partition(".")[0] for m in sys.modules})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"torch", "scipy", "numba", "pandas", "matplotlib"}


def test_the_global_generator_is_not_touched():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for make in DRAWN:
        make(n_train=10)
    from_arrays(ones(4, 1), [0, 1, 0, 1])
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
