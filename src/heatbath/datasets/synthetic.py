"""Problems in the plane that are drawn at random: spirals, trigonometric, rings, blobs."""

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
    """Two spiral arms, equation (16) of the paper with b = `turns`.

    x = r (cos φ, sin φ) + c N(0, 1) with r = a t^p, φ = 2π turns t^p and t uniform in (0, 1); class 1 has
    φ + π. Every other point is of class 1.
    """
    b, a, p = (real(f"spirals: {k}", v, POSITIVE) for k, v in (("turns", turns), ("a", a), ("p", p)))
    c = real("spirals: c", c, NON_NEGATIVE)

    def arm(t: Floats, label: Floats) -> Floats:
        return _polar(a * t**p, 2 * np.pi * b * t**p + np.pi * label)

    recipe = {"name": "spirals", "turns": b, "n_train": n_train, "n_test": n_test, "a": a, "p": p, "c": c}
    return _drawn({**recipe, "draws": draws, "seed": seed}, ("0", "1"), arm, (c, c))


def trigonometric(
    a: float = 6,
    b: float = 1,
    c: float = 0.02,
    n_train: int = 1000,
    n_test: int = 1000,
    draws: int = 1,
    seed: int = 0,
) -> Problem:
    """A cosine and a sine that cross, equation (17) of the paper.

    x₁ = a t with t uniform in (0, 1), and x₂ = cos(b π x₁) + c N(0, 1); class 1 has the sine. The paper
    writes cos(b t π): read so, a would only stretch the picture, and not make the problem harder.
    """
    a, b = (real(f"trigonometric: {k}", v, POSITIVE) for k, v in (("a", a), ("b", b)))
    c = real("trigonometric: c", c, NON_NEGATIVE)

    def wave(t: Floats, label: Floats) -> Floats:
        angle = np.pi * b * a * t
        return np.stack([a * t, np.where(label, np.sin(angle), np.cos(angle))], axis=1)

    recipe = {"name": "trigonometric", "a": a, "b": b, "c": c, "n_train": n_train, "n_test": n_test}
    return _drawn({**recipe, "draws": draws, "seed": seed}, ("cosine", "sine"), wave, (0.0, c))


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
    """Two rings about the origin whose margin is pinched, so that every good classifier is a sharp minimum.

    At the angle φ the rings have the radii 1 ± m/2, plus c N(0, 1) in both coordinates. The margin m(φ) is
    `pinch` at `pinches` evenly spaced angles, φ = 0 among them, and widens to `gap` halfway between.
    """
    gap = real("rings: gap", gap, Interval(low=0.0, high=2.0, open=True))
    pinch = real("rings: pinch", pinch, NON_NEGATIVE)
    if pinch > gap:
        raise ValueError(f"rings: pinch must be at most the gap, {gap:g}, got {pinch:g}")
    pinches = whole("rings: pinches", pinches, low=1)
    c = real("rings: c", c, NON_NEGATIVE)

    def ring(t: Floats, label: Floats) -> Floats:
        angle = 2 * np.pi * t
        margin = pinch + (gap - pinch) * (1 - np.cos(pinches * angle)) / 2
        return _polar(1 + (label - 0.5) * margin, angle)

    recipe = {"name": "rings", "gap": gap, "pinch": pinch, "pinches": pinches, "c": c}
    sizes = {"n_train": n_train, "n_test": n_test, "draws": draws, "seed": seed}
    return _drawn({**recipe, **sizes}, ("inner", "outer"), ring, (c, c))


def blobs(
    centres: int = 4,
    c: float = 0.3,
    n_train: int = 1000,
    n_test: int = 1000,
    draws: int = 1,
    seed: int = 0,
) -> Problem:
    """Clouds of points around centres that are evenly spaced on the unit circle, the classes in turns.

    A point is one of the centres of its class, all alike, plus c N(0, 1) in both coordinates.
    """
    centres = whole("blobs: centres", centres, low=2)
    c = real("blobs: c", c, NON_NEGATIVE)

    def cloud(t: Floats, label: Floats) -> Floats:
        count = (centres + 1 - label) // 2  # centres 0, 2, ... are of class 0
        return _polar(np.ones_like(t), 2 * np.pi * (2 * np.floor(t * count) + label) / centres)

    recipe = {"name": "blobs", "centres": centres, "c": c, "n_train": n_train, "n_test": n_test}
    return _drawn({**recipe, "draws": draws, "seed": seed}, ("even", "odd"), cloud, (c, c))


def _drawn(
    recipe: dict[str, Any],
    targets: tuple[str, str],
    curve: Callable[[Floats, Floats], Floats],
    noise: tuple[float, float],
) -> Problem:
    """Points of `curve`, a function of t in (0, 1) and the label, with noise added to its coordinates."""
    for key, low, high in (("n_train", 1, None), ("n_test", 0, None), ("draws", 1, None), ("seed", 0, 2**64)):
        recipe[key] = whole(f"{recipe['name']}: {key}", recipe[key], low, high)

    def points(part: int, rows: int) -> tuple[Floats, Floats]:
        label = np.arange(rows, dtype=np.float64) % 2
        sets = []
        for draw in range(recipe["draws"]):
            rng = np.random.default_rng(np.random.SeedSequence(recipe["seed"], spawn_key=(draw, part)))
            sets.append(curve(rng.random(rows), label) + noise * rng.standard_normal((rows, 2)))
        return np.stack(sets), np.tile(label[:, None], (len(sets), 1, 1))

    train, test = points(0, recipe["n_train"]), points(1, recipe["n_test"])
    return Problem(recipe["name"], "binary", *train, *test, ("x1", "x2"), targets, recipe=recipe)


def _polar(radius: Floats, angle: Floats) -> Floats:
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
