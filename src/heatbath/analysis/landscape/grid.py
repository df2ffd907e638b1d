"""The points of lines and surfaces, as weights of the parameters at their corners."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from heatbath.datasets.problem import Floats, numbers

Grid: TypeAlias = dict[str, Floats]  # the axes of a line or surface, by name


def line_weights(alphas: ArrayLike) -> tuple[Grid, Floats]:
    """The axis of a line, and for each of its points the weights of θ_a and θ_b."""
    alpha = _axis("alphas", alphas)
    return {"alpha": alpha}, np.stack([1 - alpha, alpha], axis=-1)


def surface_weights(alphas: ArrayLike, betas: ArrayLike) -> tuple[Grid, Floats]:
    """The axes of a surface, and for each of its points, row by row, the weights of θ_0, θ_a and θ_b."""
    grid = {"alpha": _axis("alphas", alphas), "beta": _axis("betas", betas)}
    alpha, beta = np.meshgrid(*grid.values(), indexing="ij")
    return grid, np.stack([1 - alpha, alpha * beta, alpha * (1 - beta)], axis=-1).reshape(-1, 3)


def _axis(label: str, given: ArrayLike) -> Floats:
    values = numbers(label, given, (1,))
    if not values.size or (np.diff(values) <= 0).any():
        raise ValueError(f"{label} must be one or more increasing numbers, got {values}")
    return values
