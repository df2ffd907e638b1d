"""Lines and surfaces of dense networks, in compiled code."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import reduce
from operator import add
from typing import Any, Literal, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import choice
from heatbath._internal.interrupts import PATIENCE, deferred_interrupts
from heatbath.analysis.landscape.grid import Grid, line_weights, surface_weights
from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS
from heatbath.engine.batches import beside
from heatbath.engine.dense import CHUNK
from heatbath.engine.dense_shape import Shape
from heatbath.engine.evaluate import evaluate_mixtures
from heatbath.engine.layouts import Alone, Wide
from heatbath.engine.simd import lanes
from heatbath.engine.threads import one_blas_thread, spread, thread_count
from heatbath.models.dense import ACTIVATIONS, MLP

Theta: TypeAlias = ArrayLike | xr.DataArray


def line(
    problem: Problem,
    network: MLP,
    theta_a: Theta,
    theta_b: Theta,
    alphas: ArrayLike,
    split: Literal["train", "test"] = "test",
    draw: ArrayLike | xr.DataArray = 0,
    threads: int | None = None,
) -> xr.Dataset:
    """`loss` and `accuracy` of a dense network over all examples of a split, by their weights, on the line
    from θ_a to θ_b.

    A θ is (parameters,) or (chains, parameters), such as `run.theta`, for a line of each chain; a labelled
    array, such as `run.data["theta"]`, has `parameter` as one dimension and keeps its others. They are
    broadcast against each other by name. The result is in float32 if all of them are, else in float64, and
    does not depend on the number of threads; it is NaN where a chain has diverged.

    `draw` is the number of the data set, one for all or one by chain: `run.data["draw"]` are those that the
    chains of a run were trained on.
    """
    grid, weights = line_weights(alphas)
    return _evaluate(problem, network, (theta_a, theta_b), grid, weights, split, draw, threads)


def surface(
    problem: Problem,
    network: MLP,
    theta_0: Theta,
    theta_a: Theta,
    theta_b: Theta,
    alphas: ArrayLike,
    betas: ArrayLike,
    split: Literal["train", "test"] = "test",
    draw: ArrayLike | xr.DataArray = 0,
    threads: int | None = None,
) -> xr.Dataset:
    """`loss` and `accuracy` by α and β on the surface through the start θ_0 and two minima; see `line`."""
    grid, weights = surface_weights(alphas, betas)
    return _evaluate(problem, network, (theta_0, theta_a, theta_b), grid, weights, split, draw, threads)


def _evaluate(
    problem: Problem,
    network: MLP,
    thetas: Sequence[Theta],
    grid: Grid,
    weights: Floats,
    split: Literal["train", "test"],
    draw: ArrayLike | xr.DataArray,
    threads: int | None,
) -> xr.Dataset:
    """Loss and accuracy at mixtures of θs, by their other dimensions and then by the axes of the grid."""
    if not isinstance(problem, Problem) or not isinstance(network, MLP):
        raise TypeError(f"a Problem and a Dense network are needed, got {problem!r} and {network!r}")
    choice("split", split, ("train", "test"))
    X, Y = (problem.X_train, problem.Y_train) if split == "train" else (problem.X_test, problem.Y_test)
    Y, weight = beside(Y, problem.relative_weights(split))
    if not X.shape[1]:
        raise ValueError("there are no test examples: say split='train'")
    size = network.parameters(problem.inputs, problem.outputs)
    labelled = [_labelled(theta, size) for theta in thetas]
    families, broadcast = _broadcast([*labelled, _draws(draw, problem.draws)])
    kind = np.float32 if np.result_type(*(theta.dtype for theta in labelled)) == np.float32 else np.float64
    corners = np.stack([theta.reshape(-1, size) for theta in broadcast[:-1]], axis=1).astype(kind, copy=False)
    sizes = network.sizes(problem.inputs, problem.outputs)
    shape = Shape(sizes, ACTIVATIONS[network.activation].number, TASKS[problem.task].number)
    loss, right = _compute(
        shape, X, Y, weight, corners, weights, broadcast[-1].ravel(), thread_count(threads)
    )
    rows, axes = X.shape[1], (*families.shape, *map(len, grid.values()))
    values = {"loss": loss.reshape(axes) / rows, "accuracy": right.reshape(axes) / rows}
    return xr.Dataset(
        {name: ((*families.dims, *grid), value) for name, value in values.items()},
        {**families.coords, **grid},
    )


def _labelled(theta: Theta, size: int) -> xr.DataArray:
    """Parameters as a labelled array with `parameter` as its last dimension."""
    if not isinstance(theta, xr.DataArray):
        array = np.asarray(theta)
        theta = xr.DataArray(
            array, dims=("chain", "parameter")[-array.ndim :] if 0 < array.ndim < 3 else None
        )
    if theta.sizes.get("parameter") != size or theta.dtype.kind not in "iuf":
        raise ValueError(
            f"θ must be numbers with shape ({size},) or (chains, {size}), or a labelled array with {size} "
            f"along 'parameter', got {theta.dtype} with {dict(theta.sizes)}"
        )
    return theta.transpose(..., "parameter")


def _draws(draw: ArrayLike | xr.DataArray, draws: int) -> xr.DataArray:
    """Numbers of data sets, one for all or one by chain."""
    if not isinstance(draw, xr.DataArray) and np.ndim(draw) < 2:
        draw = xr.DataArray(np.asarray(draw), dims=("chain",)[: np.ndim(draw)])
    if (
        not isinstance(draw, xr.DataArray)
        or draw.dtype.kind not in "iu"
        or not ((draw >= 0) & (draw < draws)).all()
    ):
        raise ValueError(
            f"draw must be the number of a data set, 0 to {draws - 1}, or one by chain, got {draw!r}"
        )
    return draw


def _broadcast(arrays: Sequence[xr.DataArray]) -> tuple[xr.DataArray, list[NDArray[Any]]]:
    """All dimensions but `parameter` together, and the values of the arrays by these (and `parameter`)."""
    shapes = [xr.zeros_like(array.isel(parameter=0, drop=True, missing_dims="ignore")) for array in arrays]
    try:
        together = reduce(add, xr.align(*shapes, join="exact", copy=False))
    except ValueError as error:
        raise ValueError(
            f"θ and draw do not fit together: {error}; give one of each, or all with the same chains"
        ) from None
    fitted = (array.broadcast_like(together).transpose(*together.dims, ...) for array in arrays)
    return together, [array.values for array in fitted]


def _compute(
    shape: Shape,
    X: Floats,
    Y: Floats,
    weight: int,
    corners: NDArray[Any],
    weights: Floats,
    draws: NDArray[Any],
    threads: int,
) -> tuple[Floats, Floats]:
    """The sum of the losses and the number of right answers, (families, mixtures); NaN for lost families.

    The examples are taken CHUNK at a time, so that little memory is needed; `weight` is a column of Y, or -1.
    """
    loss, right = np.full((2, len(corners), len(weights)), np.nan)
    finite = np.flatnonzero(np.isfinite(corners).all(axis=(1, 2))).tolist()
    loss[finite] = right[finite] = 0.0
    layout = Wide() if shape.uses_blas else Alone()
    network = shape.network(layout, lanes(corners.dtype), CHUNK, skip=int(len(shape.ways) > 1))

    def piece(f: int, first: int) -> tuple[Any, ...]:
        rows = slice(first, first + CHUNK)
        x, y = (np.ascontiguousarray(array[draws[f], rows], corners.dtype) for array in (X, Y))
        inputs = _inputs(shape, corners[f], weights, x)
        return corners[f], weights, *inputs, y, weight, network, loss[f], right[f]

    for f in finite[:1]:  # compiles, and loads BLAS, which cannot be limited before
        evaluate_mixtures(layout, 0, 0, *piece(f, 0))
    large = shape.uses_blas
    stride = threads
    with one_blas_thread() if large else nullcontext(), deferred_interrupts() as interrupted:
        for f in finite:
            for first in range(0, X.shape[1], CHUNK):
                stride = _in_calls((layout, *piece(f, first)), len(weights), stride, threads, interrupted)
    return loss, right


def _inputs(
    shape: Shape, corners: NDArray[Any], weights: Floats, x: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], int]:
    """What the layers after the first have as inputs: of each corner, their shares, and the activation.

    A network with a single layer has x itself.
    """
    if len(shape.ways) == 1:
        return x[None], np.ones((len(weights), 1), x.dtype), ACTIVATIONS["identity"].number
    width, out = shape.sizes[:2]
    W, bias = corners[:, : width * out].reshape(-1, out, width), corners[:, width * out : (width + 1) * out]
    with np.errstate(over="ignore", invalid="ignore"):
        inputs = x @ W.transpose(0, 2, 1) + bias[:, None]
    return inputs, weights.astype(x.dtype), shape.activation


def _in_calls(
    arguments: tuple[Any, ...], count: int, stride: int, threads: int, interrupted: Callable[[], bool]
) -> int:
    """Evaluate so many mixtures, a stride at a time; returns the stride that takes PATIENCE seconds."""
    done = 0
    while done < count:
        if interrupted():
            raise KeyboardInterrupt
        now = min(stride, count - done)

        def work(begin: int, end: int, first: int = done) -> None:
            evaluate_mixtures(arguments[0], first + begin, first + end, *arguments[1:])

        called = time.perf_counter()
        spread(work, now, threads)
        took = time.perf_counter() - called
        stride = max(threads, min(4 * stride, int(now * PATIENCE / max(took, 1e-9))))
        done += now
    return stride
