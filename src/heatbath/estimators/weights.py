"""Weights of examples, as copies.

The engine's loss has no weights, so they decide how often each example stands in the training set. Then the
loss that a run reports, saves and is diagnosed by is the one that it samples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets.problem import Floats

MOST = 16  # copies for each example, on average


def check_weights(weights: Floats) -> None:
    """Refuse weights below 0, and none above it."""
    if (weights < 0).any() or not weights.any():
        raise ValueError(
            "weights (of samples times classes) must be >= 0, and positive for some examples; they are from "
            f"{weights.min():g} to {weights.max():g}"
        )


def copies(weights: Floats) -> NDArray[np.int64]:
    """How often each example is to stand in the training set, in proportion to its weight.

    Weights that are whole multiples of the smallest positive one are met exactly, as long as that takes at
    most 16 copies on average. Otherwise there are 16 on average, by systematic resampling: an example has its
    share of them rounded up or down, such that the sum over all examples of one weight is off by one at most.
    Those with little of the average weight may then have none.
    """
    positive = np.count_nonzero(weights)
    if not positive:
        return np.zeros(len(weights), np.int64)
    relative = weights / weights.max()
    smallest = relative[relative > 0].min()
    if relative.sum() <= MOST * positive * smallest:
        exact: NDArray[np.int64] = np.rint(relative / smallest).astype(np.int64)
        if np.allclose(exact, relative / smallest, rtol=0, atol=1e-6):
            return exact
    order = np.argsort(relative, kind="stable")
    sums = np.cumsum(relative[order])
    ends = np.floor(MOST * positive * (sums / sums[-1]) + 0.5).astype(np.int64)
    counts = np.empty(len(weights), np.int64)
    counts[order] = np.diff(ends, prepend=0)
    return counts
