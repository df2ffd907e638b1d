"""Draw random problems in the plane: spirals, trigonometric, rings, blobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from heatbath._internal.checks import NON_NEGATIVE, POSITIVE, Interval, real, whole
from heatbath.datasets.problem import Floats, Problem


def spirals(
    turns: float = 2,
    n_train: int = 1000,
    n_test: int = 1000,
    a: float = 2,
    p: float = 0.5,
    c: float = 0.02,
    draws: int = 1,
    seed: int = 0,
) -> Problem:
    """Draw two spiral arms, equation (16) of the paper with b = `turns`.

    x = r (cos φ, sin φ) + c N(0, 1) with r = a t^p, φ = 2π turns t^p and t uniform in (0, 1). Class 1 has
    φ + π. Every second point belongs to class 1.

    Parameters
    ----------
    turns : float, optional
        Turns of each arm.
    n_train, n_test : int, optional
        Number of training and test examples.
    a, p, c : float, optional
        Radius at the end of an arm, exponent of t, and standard deviation of the noise.
    draws : int, optional
        Number of independent data sets, which the chains of a run use in turn.
    seed : int, optional
        Seed of the data.

    Returns
    -------
    Problem
        A binary problem with the inputs x1 and x2.

    Examples
    --------
    >>> spirals(turns=1, n_train=100, n_test=50)
    Problem('spirals', binary, 100 training and 50 test examples, 2 inputs, 1 outputs)
    """
    b, a, p = (real(f"spirals: {k}", v, POSITIVE) for k, v in (("turns", turns), ("a", a), ("p", p)))
    c = real("spirals: c", c, NON_NEGATIVE)

    def arm(t: Floats, label: Floats) -> Floats:
        """Return the points at t on the arm of each label, (rows, 2)."""
        return _polar(a * t**p, 2 * np.pi * b * t**p + np.pi * label)

    recipe = {"name": "spirals", "turns": b, "n_train": n_train, "n_test": n_test, "a": a, "p": p, "c": c}
    return _draw({**recipe, "draws": draws, "seed": seed}, ("0", "1"), arm, (c, c))


def trigonometric(
    a: float = 6,
    b: float = 1,
    c: float = 0.02,
    n_train: int = 1000,
    n_test: int = 1000,
    draws: int = 1,
    seed: int = 0,
) -> Problem:
    """Draw a cosine and a sine that cross, equation (17) of the paper.

    x₁ = a t with t uniform in (0, 1), and x₂ = cos(b π x₁) + c N(0, 1); class 1 has the sine. The paper
    writes cos(b t π). With that reading, a would only stretch the picture and not make the problem harder.

    Parameters
    ----------
    a, b, c : float, optional
        Range of x₁, frequency, and standard deviation of the noise.
    n_train, n_test : int, optional
        Number of training and test examples.
    draws : int, optional
        Number of independent data sets, which the chains of a run use in turn.
    seed : int, optional
        Seed of the data.

    Returns
    -------
    Problem
        A binary problem with the inputs x1 and x2.
    """
    a, b = (real(f"trigonometric: {k}", v, POSITIVE) for k, v in (("a", a), ("b", b)))
    c = real("trigonometric: c", c, NON_NEGATIVE)

    def wave(t: Floats, label: Floats) -> Floats:
        """Return the points at t on the curve of each label, (rows, 2)."""
        angle = np.pi * b * a * t
        return np.stack([a * t, np.where(label, np.sin(angle), np.cos(angle))], axis=1)

    recipe = {"name": "trigonometric", "a": a, "b": b, "c": c, "n_train": n_train, "n_test": n_test}
    return _draw({**recipe, "draws": draws, "seed": seed}, ("cosine", "sine"), wave, (0.0, c))


def rings(
    gap: float = 0.5,
    pinch: float = 0.1,
    pinches: int = 4,
    c: float = 0.02,
    n_train: int = 1000,
    n_test: int = 1000,
    draws: int = 1,
    seed: int = 0,
) -> Problem:
    """Draw two rings with a margin that narrows at some angles, so that good classifiers are sharp minima.

    At the angle φ the rings have the radii 1 ± m/2, plus c N(0, 1) in both coordinates. The margin m(φ) is
    `pinch` at `pinches` evenly spaced angles, one of which is φ = 0, and widens to `gap` halfway between.

    Parameters
    ----------
    gap, pinch : float, optional
        Largest and smallest margin.
    pinches : int, optional
        Number of angles with the smallest margin.
    c : float, optional
        Standard deviation of the noise.
    n_train, n_test : int, optional
        Number of training and test examples.
    draws : int, optional
        Number of independent data sets, which the chains of a run use in turn.
    seed : int, optional
        Seed of the data.

    Returns
    -------
    Problem
        A binary problem with the inputs x1 and x2.
    """
    gap = real("rings: gap", gap, Interval(low=0.0, high=2.0, open=True))
    pinch = real("rings: pinch", pinch, NON_NEGATIVE)
    if pinch > gap:
        raise ValueError(f"rings: pinch must be at most the gap, {gap:g}, got {pinch:g}")
    pinches = whole("rings: pinches", pinches, low=1)
    c = real("rings: c", c, NON_NEGATIVE)

    def ring(t: Floats, label: Floats) -> Floats:
        """Return the points at t, in turns, on the ring of each label, (rows, 2)."""
        angle = 2 * np.pi * t
        margin = pinch + (gap - pinch) * (1 - np.cos(pinches * angle)) / 2
        return _polar(1 + (label - 0.5) * margin, angle)

    recipe = {"name": "rings", "gap": gap, "pinch": pinch, "pinches": pinches, "c": c}
    sizes = {"n_train": n_train, "n_test": n_test, "draws": draws, "seed": seed}
    return _draw({**recipe, **sizes}, ("inner", "outer"), ring, (c, c))


def blobs(
    centres: int = 4,
    c: float = 0.3,
    n_train: int = 1000,
    n_test: int = 1000,
    draws: int = 1,
    seed: int = 0,
) -> Problem:
    """Draw clouds of points around centres on the unit circle, whose classes alternate.

    A point is one of the centres of its class, each equally likely, plus c N(0, 1) in both coordinates.

    Parameters
    ----------
    centres : int, optional
        Number of evenly spaced centres.
    c : float, optional
        Standard deviation of the noise.
    n_train, n_test : int, optional
        Number of training and test examples.
    draws : int, optional
        Number of independent data sets, which the chains of a run use in turn.
    seed : int, optional
        Seed of the data.

    Returns
    -------
    Problem
        A binary problem with the inputs x1 and x2.
    """
    centres = whole("blobs: centres", centres, low=2)
    c = real("blobs: c", c, NON_NEGATIVE)

    def cloud(t: Floats, label: Floats) -> Floats:
        """Return a centre of the class of each label, (rows, 2), all equally likely for t in (0, 1)."""
        centres_of_class = (centres + 1 - label) // 2  # centres 0, 2, ... are of class 0
        index = 2 * np.floor(t * centres_of_class) + label
        return _polar(np.ones_like(t), 2 * np.pi * index / centres)

    recipe = {"name": "blobs", "centres": centres, "c": c, "n_train": n_train, "n_test": n_test}
    return _draw({**recipe, "draws": draws, "seed": seed}, ("even", "odd"), cloud, (c, c))


def _draw(
    recipe: dict[str, Any],
    targets: tuple[str, str],
    curve: Callable[[Floats, Floats], Floats],
    noise: tuple[float, float],
) -> Problem:
    """Draw a binary problem with points on two curves.

    Every second point belongs to class 1. The training and test examples of each draw have random streams of
    their own.

    Parameters
    ----------
    recipe : dict
        Name and arguments of the public function, with `n_train`, `n_test`, `draws` and `seed`.
    targets : tuple of str
        Names of the two classes.
    curve : callable
        Returns points, (rows, 2), from t in (0, 1) and labels 0 or 1, both (rows,).
    noise : tuple of float
        Standard deviation of the noise of each coordinate.
    """
    name = recipe["name"]
    checked = dict(recipe)
    limits = {"n_train": (1, None), "n_test": (0, None), "draws": (1, None), "seed": (0, 2**64)}
    for argument, (low, high) in limits.items():
        checked[argument] = whole(f"{name}: {argument}", recipe[argument], low, high)

    def points(stream: int, rows: int) -> tuple[Floats, Floats]:
        """Draw the examples for training or for the test.

        Parameters
        ----------
        stream : int
            Number of the random stream of each draw: 0 for training, 1 for the test.
        rows : int
            Number of examples of each draw.

        Returns
        -------
        X, Y : array, (draws, rows, 2) and (draws, rows, 1)
        """
        labels = np.arange(rows, dtype=np.float64) % 2
        points_of_draws = []
        for draw in range(checked["draws"]):
            seeds = np.random.SeedSequence(checked["seed"], spawn_key=(draw, stream))
            rng = np.random.default_rng(seeds)
            on_curve = curve(rng.random(rows), labels)
            points_of_draws.append(on_curve + noise * rng.standard_normal((rows, 2)))
        return np.stack(points_of_draws), np.tile(labels[:, None], (checked["draws"], 1, 1))

    X_train, Y_train = points(0, checked["n_train"])
    X_test, Y_test = points(1, checked["n_test"])
    return Problem(name, "binary", X_train, Y_train, X_test, Y_test, ("x1", "x2"), targets, recipe=checked)


def _polar(radius: Floats, angle: Floats) -> Floats:
    """Return the points, (rows, 2), that have these polar coordinates, (rows,)."""
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
