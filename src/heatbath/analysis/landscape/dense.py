"""Compute the loss of dense networks on lines and surfaces, in compiled code.

Letters: θ are the parameters of a network; α is the position on a line, α and β are the coordinates of a
surface. A mixture is a weighted sum of the θs at the corners of a line or surface. A family is one such set
of corners.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import reduce
from operator import add
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import choice
from heatbath._internal.interrupts import PATIENCE, deferred_interrupts
from heatbath.analysis.landscape.grid import Grid, line_weights, surface_weights
from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS
from heatbath.engine.batches import append_weights
from heatbath.engine.dense import CHUNK
from heatbath.engine.dense_shape import Shape
from heatbath.engine.evaluate import MixtureData, evaluate_mixtures
from heatbath.engine.layouts import Alone, Wide
from heatbath.engine.simd import lane_count
from heatbath.engine.threads import one_blas_thread, spread, thread_count
from heatbath.models.dense import ACTIVATIONS, MLP

Theta: TypeAlias = ArrayLike | xr.DataArray
Split: TypeAlias = Literal["train", "test"]

MAX_STRIDE_GROWTH = 4  # factor from the mixtures of a call to those of the next one


class SplitData(NamedTuple):
    """Examples of a split: inputs X and targets Y (draw, example, column).

    `weight_column` is the column of Y that holds the weights of the examples, or -1.
    """

    X: Floats
    Y: Floats
    weight_column: int


def line(
    problem: Problem,
    network: MLP,
    theta_a: Theta,
    theta_b: Theta,
    alphas: ArrayLike,
    split: Split = "test",
    draw: ArrayLike | xr.DataArray = 0,
    threads: int | None = None,
) -> xr.Dataset:
    """Compute the loss and accuracy of a dense network on the line from θ_a to θ_b.

    They are means over all examples of a split, by their weights, and don't depend on the number of threads.

    Parameters
    ----------
    problem : Problem
        The examples.
    network : MLP
        The network.
    theta_a, theta_b : array or DataArray
        Parameters (parameter,) or (chain, parameter), such as `run.theta`, for a line of each chain. A
        labelled array, such as `run.data["theta"]`, has `parameter` as one dimension and keeps its others;
        both are broadcast against each other by name.
    alphas : array (point,)
        Increasing positions: 0 is θ_a, 1 is θ_b.
    split : str, optional
        "test" (default) or "train".
    draw : int, array or DataArray, optional
        Index of the data set, one for all or one for each chain: `run.data["draw"]` has those that the chains
        of a run were trained on. Default 0.
    threads : int, optional
        Number of threads; by default as many as there are cores.

    Returns
    -------
    Dataset
        `loss` and `accuracy` by the dimensions of θ and `alpha`, in float32 if all θs are, else in float64.
        They are NaN where a chain has diverged.

    Raises
    ------
    ValueError
        If shapes don't fit, or the split has no examples.

    Examples
    --------
    >>> import heatbath as hb
    >>> problem, network = hb.datasets.spirals(n_train=50, n_test=20), hb.MLP((5,))
    >>> theta_a, theta_b = network.start(2, 1, [0, 1], 0)
    >>> hb.landscape.line(problem, network, theta_a, theta_b, [0.0, 0.5, 1.0])["loss"].dims
    ('alpha',)
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
    split: Split = "test",
    draw: ArrayLike | xr.DataArray = 0,
    threads: int | None = None,
) -> xr.Dataset:
    """Compute the loss and accuracy of a dense network on the surface through a start and two minima.

    Parameters
    ----------
    problem, network
        As in `line`.
    theta_0, theta_a, theta_b : array or DataArray
        Parameters of the start and of the minima at (α, β) = (1, 1) and (1, 0), as in `line`.
    alphas, betas : array
        Increasing coordinates.
    split, draw, threads
        As in `line`.

    Returns
    -------
    Dataset
        `loss` and `accuracy` by the dimensions of θ, `alpha` and `beta`.
    """
    grid, weights = surface_weights(alphas, betas)
    return _evaluate(problem, network, (theta_0, theta_a, theta_b), grid, weights, split, draw, threads)


def _evaluate(
    problem: Problem,
    network: MLP,
    thetas: Sequence[Theta],
    grid: Grid,
    weights: Floats,
    split: Split,
    draw: ArrayLike | xr.DataArray,
    threads: int | None,
) -> xr.Dataset:
    """Return loss and accuracy at weighted sums of parameters, as means over the examples of a split.

    Parameters
    ----------
    thetas : sequence of arrays
        Parameters at the corners of a line or surface.
    grid : dict from name to array
        Axes of the line or surface.
    weights : array (mixture, corner)
        Weights of the corners at all points of the grid, row by row.
    problem, network, split, draw, threads
        As in `line`.

    Returns
    -------
    Dataset
        `loss` and `accuracy` by the dimensions of the θs, then by the axes of the grid.
    """
    if not isinstance(problem, Problem) or not isinstance(network, MLP):
        raise TypeError(f"a Problem and an MLP are needed, got {problem!r} and {network!r}")
    data = _split_data(problem, split)
    theta_size = network.parameters(problem.inputs, problem.outputs)
    labelled_thetas = [_labelled_theta(theta, theta_size) for theta in thetas]
    labelled_draws = _labelled_draws(draw, problem.draws)
    families, (*corner_thetas, draws) = _broadcast([*labelled_thetas, labelled_draws])

    is_single = np.result_type(*(theta.dtype for theta in labelled_thetas)) == np.float32
    dtype = np.float32 if is_single else np.float64
    by_corner = [theta.reshape(-1, theta_size) for theta in corner_thetas]
    corners = np.stack(by_corner, axis=1).astype(dtype, copy=False)
    sizes = network.sizes(problem.inputs, problem.outputs)
    shape = Shape(sizes, ACTIVATIONS[network.activation].number, TASKS[problem.task].number)
    sums = _sum_losses(shape, data, corners, weights, draws.ravel(), thread_count(threads))

    example_count = data.X.shape[1]
    lengths = (*families.shape, *map(len, grid.values()))
    dims = (*families.dims, *grid)
    means = {name: (dims, total.reshape(lengths) / example_count) for name, total in sums.items()}
    return xr.Dataset(means, {**families.coords, **grid})


def _split_data(problem: Problem, split: Split) -> SplitData:
    """Return the examples of a split, with their weights as a column of Y if they have any."""
    choice("split", split, ("train", "test"))
    if split == "train":
        X, Y = problem.X_train, problem.Y_train
    else:
        X, Y = problem.X_test, problem.Y_test
    if not X.shape[1]:
        raise ValueError("there are no test examples: pass split='train'")
    return SplitData(X, *append_weights(Y, problem.relative_weights(split)))


def _labelled_theta(theta: Theta, size: int) -> xr.DataArray:
    """Return parameters as a labelled array with `parameter`, of this size, as its last dimension."""
    if not isinstance(theta, xr.DataArray):
        array = np.asarray(theta)
        dims = ("chain", "parameter")[-array.ndim :] if 0 < array.ndim < 3 else None
        theta = xr.DataArray(array, dims=dims)
    if theta.sizes.get("parameter") != size or theta.dtype.kind not in "iuf":
        raise ValueError(
            f"θ must be numbers with shape ({size},) or (chains, {size}), or a labelled array with {size} "
            f"along 'parameter', got {theta.dtype} with {dict(theta.sizes)}"
        )
    return theta.transpose(..., "parameter")


def _labelled_draws(draw: ArrayLike | xr.DataArray, draws: int) -> xr.DataArray:
    """Return indices of data sets, one for all or one for each chain, as a labelled array.

    `draws` is the number of data sets.
    """
    if not isinstance(draw, xr.DataArray) and np.ndim(draw) < 2:
        draw = xr.DataArray(np.asarray(draw), dims=("chain",)[: np.ndim(draw)])
    if isinstance(draw, xr.DataArray) and draw.dtype.kind in "iu" and ((draw >= 0) & (draw < draws)).all():
        return draw
    raise ValueError(
        f"draw must be the index of a data set, 0 to {draws - 1}, or one for each chain, got {draw!r}"
    )


def _broadcast(arrays: Sequence[xr.DataArray]) -> tuple[xr.DataArray, list[NDArray[Any]]]:
    """Broadcast arrays against each other by the names of their dimensions, except `parameter`.

    Returns
    -------
    DataArray
        Zeros with the common dimensions and coordinates.
    list of arrays
        Values of each array by the common dimensions, then by `parameter` if it has that.
    """
    templates = [xr.zeros_like(array.isel(parameter=0, drop=True, missing_dims="ignore")) for array in arrays]
    try:
        common = reduce(add, xr.align(*templates, join="exact", copy=False))
    except ValueError as error:
        raise ValueError(
            f"θ and draw do not fit together: {error}; pass one of each, or all with the same chains"
        ) from None
    fitted = (array.broadcast_like(common).transpose(*common.dims, ...) for array in arrays)
    return common, [array.values for array in fitted]


def _sum_losses(
    shape: Shape, data: SplitData, corners: NDArray[Any], weights: Floats, draws: NDArray[Any], threads: int
) -> dict[str, Floats]:
    """Return the sums over examples of `loss` and `accuracy`, each (family, mixture).

    They are NaN for families with a θ that isn't finite. Examples are evaluated CHUNK at a time, which needs
    little memory.

    Parameters
    ----------
    shape : Shape
        Layers of the network.
    data : SplitData
        The examples.
    corners : array (family, corner, parameter)
        Parameters at the corners.
    weights : array (mixture, corner)
        Weights of the corners.
    draws : array (family,)
        Index of the data set of each family, which is a set of corners.
    threads : int
        Number of threads.
    """
    is_finite = np.isfinite(corners).all(axis=(1, 2))
    finite_families = np.flatnonzero(is_finite).tolist()
    loss = np.full((len(corners), len(weights)), np.nan)
    loss[is_finite] = 0.0
    correct = loss.copy()
    if not finite_families:
        return {"loss": loss, "accuracy": correct}

    layout = Wide() if shape.uses_blas else Alone()
    skipped_layers = 1 if _has_second_layer(shape) else 0  # their outputs are mixed instead
    network = shape.network(layout, lane_count(corners.dtype), CHUNK, skip=skipped_layers)

    def chunk_evaluation(family: int, first_example: int) -> Callable[[int, int], None]:
        """Return a function that adds a chunk of examples to the sums of a range of mixtures."""
        examples = slice(first_example, first_example + CHUNK)
        x = np.ascontiguousarray(data.X[draws[family], examples], corners.dtype)
        y = np.ascontiguousarray(data.Y[draws[family], examples], corners.dtype)
        inputs, *mixed = _second_layer_inputs(shape, corners[family], weights, x)
        mixture = MixtureData(corners[family], inputs, y, data.weight_column)
        arguments = (mixture, weights, *mixed, network, loss[family], correct[family])
        return lambda start, end: evaluate_mixtures(layout, start, end, *arguments)

    # Compile, and load BLAS, whose threads can't be limited before
    evaluate_none = chunk_evaluation(finite_families[0], 0)
    evaluate_none(0, 0)
    blas_limit = one_blas_thread() if shape.uses_blas else nullcontext()
    stride = threads
    with blas_limit, deferred_interrupts() as interrupted:
        for family in finite_families:
            for first_example in range(0, data.X.shape[1], CHUNK):
                evaluate = chunk_evaluation(family, first_example)
                stride = _evaluate_in_calls(evaluate, len(weights), stride, threads, interrupted)
    return {"loss": loss, "accuracy": correct}


def _has_second_layer(shape: Shape) -> bool:
    """Return True if a network has more than one layer."""
    return len(shape.schemes) > 1


def _second_layer_inputs(
    shape: Shape, corners: NDArray[Any], weights: Floats, x: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Return the first layer's outputs, which all mixtures share because they are linear in its parameters.

    A network with a single layer has no second one: its own inputs x are returned.

    Returns
    -------
    array (corner, example, unit)
        Outputs of the first layer at each corner, before the activation.
    array (mixture, corner)
        Their weights.
    int
        Number of the activation.
    """
    if not _has_second_layer(shape):
        return x[None], np.ones((len(weights), 1), x.dtype), ACTIVATIONS["identity"].number
    inputs, units = shape.sizes[:2]
    first_bias = inputs * units
    W = corners[:, :first_bias].reshape(-1, units, inputs)
    bias = corners[:, first_bias : first_bias + units]
    with np.errstate(over="ignore", invalid="ignore"):
        outputs = x @ W.transpose(0, 2, 1) + bias[:, None]
    return outputs, weights.astype(x.dtype), shape.activation


def _evaluate_in_calls(
    evaluate: Callable[[int, int], None],
    count: int,
    stride: int,
    threads: int,
    interrupted: Callable[[], bool],
) -> int:
    """Evaluate all mixtures in several calls of compiled code, so that Ctrl-C is noticed between them.

    Parameters
    ----------
    evaluate : callable
        Evaluates the mixtures from the first index up to the second one, and adds to their sums.
    count : int
        Number of mixtures.
    stride : int
        Number of mixtures of the first call.
    threads : int
        Number of threads.
    interrupted : callable
        Returns True once Ctrl-C was pressed.

    Returns
    -------
    int
        Number of mixtures that take PATIENCE seconds.
    """
    evaluated = 0
    while evaluated < count:
        if interrupted():
            raise KeyboardInterrupt
        call_size = min(stride, count - evaluated)

        def work(start: int, end: int, offset: int = evaluated) -> None:
            """Evaluate one thread's share of this call, whose first mixture is `offset`."""
            evaluate(offset + start, offset + end)

        start_time = time.perf_counter()
        spread(work, call_size, threads)
        seconds = time.perf_counter() - start_time
        patient_size = int(call_size * PATIENCE / max(seconds, 1e-9))
        stride = max(threads, min(MAX_STRIDE_GROWTH * stride, patient_size))
        evaluated += call_size
    return stride
