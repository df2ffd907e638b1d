"""Compute the weights with which the points of lines and surfaces mix the parameters at their corners.

Letters: θ are parameters; α is the position on a line, α and β are the coordinates of a surface.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from heatbath.datasets.problem import Floats, numbers

Grid: TypeAlias = dict[str, Floats]  # the axes of a line or surface, by name


def line_weights(alphas: ArrayLike) -> tuple[Grid, Floats]:
    """Return the axis of a line, and the weights (point, 2) of θ_a and θ_b at its points."""
    alpha = _checked_axis("alphas", alphas)
    return {"alpha": alpha}, np.stack([1 - alpha, alpha], axis=-1)


def surface_weights(alphas: ArrayLike, betas: ArrayLike) -> tuple[Grid, Floats]:
    """Return the axes of a surface, and the weights (point, 3) of θ_0, θ_a, θ_b at its points, row by row."""
    grid = {"alpha": _checked_axis("alphas", alphas), "beta": _checked_axis("betas", betas)}
    alpha, beta = np.meshgrid(*grid.values(), indexing="ij")
    return grid, np.stack([1 - alpha, alpha * beta, alpha * (1 - beta)], axis=-1).reshape(-1, 3)


def _checked_axis(label: str, values: ArrayLike) -> Floats:
    """Return values as an array after checking that they increase."""
    axis = numbers(label, values, (1,))
    if not axis.size or (np.diff(axis) <= 0).any():
        raise ValueError(f"{label} must be one or more increasing numbers, got {axis}")
    return axis
