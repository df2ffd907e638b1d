"""Draw problems with two inputs: their examples, and what networks predict over the plane."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from heatbath._internal.checks import choice, whole
from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats, numbers
from heatbath.datasets.tasks import TASKS
from heatbath.plotting import style
from heatbath.plotting.style import Axes
from heatbath.prediction.ensemble_average import entropy_of
from heatbath.runs.run import Run

MARGIN = 0.06  # of the width of the examples, on each side
POINTS = 200  # of a grid, on a side
BOUNDARY_TICKS = 5  # numbers on an axis, at most
MAX_HEIGHT = 4.0  # inches, of a figure
AXES_WIDTH = 2.8  # inches
AXES_WIDTH_BESIDE_BAR = 2.2  # inches, of Axes with a colour bar
MAX_SIDE_RATIO = 10  # of the plane, up to which equal scales are readable
USUAL_ASPECT = 0.8  # height of Axes over their width
HEIGHT_OF_LABELS = 0.75  # inches, of a figure's labels and legend
ROUNDING = 1e-6  # by which probabilities may lie outside 0 to 1
CLASS_MARKERS = (  # marker, face and edge of each class: light and dark, to stand out from any map
    ("o", "#ffffff", "#000000"),
    ("^", "#000000", "#ffffff"),
    ("s", "#F0E442", "#000000"),
    ("D", "#009E73", "#ffffff"),
    ("v", "#E69F00", "#000000"),
    ("P", "#0072B2", "#ffffff"),
    ("X", "#CC79A7", "#000000"),
)


class PlaneLimits(NamedTuple):
    """Ends of the plane in the user's units: (low, high) of the first and of the second feature."""

    x: tuple[float, float]
    y: tuple[float, float]


def plane(problem: Problem, points: int = POINTS) -> Floats:
    """Return inputs on a grid over the examples of a problem with two inputs.

    They can be passed to `run.predict`, `run.outputs` and other predictions.

    Parameters
    ----------
    problem : Problem
        A problem with two inputs.
    points : int, optional
        Number of grid points on each side (default 200).

    Returns
    -------
    array (points², 2)
        Inputs in the user's units, row by row from the lowest values on; the first feature changes fastest.

    Examples
    --------
    >>> import heatbath as hb
    >>> hb.plotting.plane(hb.datasets.spirals(n_train=50, n_test=20), points=10).shape
    (100, 2)
    """
    points = whole("points", points, low=2)
    return np.stack(np.meshgrid(*_grid_axes(problem, points)), axis=-1).reshape(-1, 2)


def data(problem: Problem, split: str = "train", draw: int = 0, *, ax: Axes | None = None) -> Axes:
    """Draw the examples of a problem with two inputs, with a marker and a colour for each class.

    Parameters
    ----------
    problem : Problem
        A problem with two inputs and up to seven classes.
    split : str, optional
        "train" (default) or "test".
    draw : int, optional
        Index of the data set if the problem has several.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    from matplotlib.ticker import MaxNLocator

    limits = _plane_limits(problem)
    choice("split", split, ("train", "test"))
    draw = whole("draw", draw, low=0, high=problem.draws)
    if not TASKS[problem.task].classes or len(problem.targets) > len(CLASS_MARKERS):
        raise ValueError(f"data needs a problem with 2 to {len(CLASS_MARKERS)} classes, got {problem!r}")
    if split == "train":
        inputs, classes = problem.X_train[draw], problem.Y_train[draw, :, 0]
    else:
        inputs, classes = problem.X_test[draw], problem.Y_test[draw, :, 0]

    ax = style.axes_or_new(ax, _figure_height(problem, AXES_WIDTH))
    for index, name in enumerate(problem.targets):
        marker, face, edge = CLASS_MARKERS[index]
        x, y = (inputs[classes == index] * problem.scale + problem.shift).T  # in the user's units
        label = _class_label(name)
        ax.scatter(x, y, s=9, marker=marker, c=face, edgecolors=edge, linewidths=0.4, label=label, zorder=3)

    aspect = "equal" if _is_one_unit(problem) else "auto"
    ax.set(xlim=limits.x, ylim=limits.y, aspect=aspect)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(BOUNDARY_TICKS, steps=[1, 2, 5, 10]))
    x_label, y_label = map(style.quantity_label, problem.features)
    style.label_axes(ax, x_label, y_label, box=True)
    style.add_legend(ax)
    return ax


def classifier(
    problem: Problem,
    prediction: Run | ArrayLike,
    *,
    chain: int | None = None,
    bar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw the probability of the second class over the plane, its 1/2 contour and the training examples.

    Parameters
    ----------
    problem : Problem
        A problem with two inputs and two classes.
    prediction : Run or array
        A run, or probabilities on a grid: `run.outputs(plane(problem))[3]`, or the `mean` that
        `heatbath.torch.predict` returns for `plane(problem)`.
    chain : int, optional
        Chain of the run to draw, with the examples it was trained on; by default the mean over all chains
        that have not diverged.
    bar : bool, optional
        Add a colour bar (default True).
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    if isinstance(problem, Problem) and problem.task != "binary":
        raise ValueError(f"classifier needs a problem with two classes, got {problem!r}; see uncertainty")
    probability = _grid_probabilities(problem, prediction, chain)[..., 0]

    ax = _axes_for_map(problem, bar, ax)
    data(problem, draw=_draw_index(prediction, chain), ax=ax)
    bar_label = f"probability of {_class_label(problem.targets[1])}" if bar else None
    _draw_map(ax, problem, probability, "RdBu_r", 1.0, bar_label)

    has_boundary = probability.min() < 0.5 < probability.max()
    if has_boundary:
        x, y = _grid_axes(problem, len(probability))
        ax.contour(x, y, probability, levels=[0.5], colors="black", linewidths=0.9)
    return ax


def uncertainty(
    problem: Problem,
    prediction: Run | ArrayLike,
    *,
    chain: int | None = None,
    bar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw the entropy of the predicted class over the plane, in nats, and the training examples.

    Parameters
    ----------
    problem : Problem
        A problem with two inputs and any number of classes.
    prediction : Run or array
        As in `classifier`; with several classes, probabilities on the grid are (points², classes).
    chain : int, optional
        As in `classifier`.
    bar : bool, optional
        Add a colour bar (default True).
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    if isinstance(problem, Problem) and not TASKS[problem.task].classes:
        raise ValueError(f"uncertainty needs a problem with classes, got {problem!r}")
    entropy = entropy_of(_grid_probabilities(problem, prediction, chain), problem.task)
    highest_entropy = math.log(len(problem.targets))  # of equal probabilities

    ax = _axes_for_map(problem, bar, ax)
    data(problem, draw=_draw_index(prediction, chain), ax=ax)
    bar_label = "entropy (nats)" if bar else None
    _draw_map(ax, problem, entropy, "cividis", highest_entropy, bar_label)
    return ax


def _axes_for_map(problem: Problem, has_bar: bool, ax: Axes | None) -> Axes:
    """Return `ax`, or for None the Axes of a new figure with room for a map and, if needed, a colour bar."""
    width = AXES_WIDTH_BESIDE_BAR if has_bar else AXES_WIDTH
    return style.axes_or_new(ax, _figure_height(problem, width))


def _class_label(name: str) -> str:
    """Return a class's name as a label: "class 1" for a bare number, otherwise the name itself."""
    return f"class {name}" if name.isdigit() else name


def _plane_limits(problem: object) -> PlaneLimits:
    """Return the ends of the plane: all examples of all data sets, with a margin."""
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {problem!r} of type {type(problem).__name__}")
    if problem.inputs != 2:
        raise ValueError(f"a plane needs a problem with two inputs, got {problem!r}")
    X = np.concatenate([problem.X_train, problem.X_test], axis=1) * problem.scale + problem.shift
    lowest = X.min(axis=(0, 1))
    highest = X.max(axis=(0, 1))
    margin = np.where(highest > lowest, MARGIN * (highest - lowest), 1.0)
    left, bottom = (lowest - margin).tolist()
    right, top = (highest + margin).tolist()
    return PlaneLimits((left, right), (bottom, top))


def _side_ratio(problem: Problem) -> float:
    """Return the height of the plane over its width, in the units of the features."""
    (left, right), (bottom, top) = _plane_limits(problem)
    return (top - bottom) / (right - left)


def _grid_axes(problem: Problem, points: int) -> list[Floats]:
    """Return the `points` positions of a grid on the plane along each of the two features."""
    return [np.linspace(low, high, points) for low, high in _plane_limits(problem)]


def _is_one_unit(problem: Problem) -> bool:
    """Return True if both features seem to have the same unit, so that circles should look round."""
    is_similar = 1 / MAX_SIDE_RATIO < _side_ratio(problem) < MAX_SIDE_RATIO
    return bool(problem.scale[0] == problem.scale[1]) and is_similar


def _figure_height(problem: Problem, width: float) -> float:
    """Return the height in inches of a figure whose Axes have this width, with room for all labels."""
    aspect = _side_ratio(problem) if _is_one_unit(problem) else USUAL_ASPECT
    return min(HEIGHT_OF_LABELS + width * aspect, MAX_HEIGHT)


def _grid_probabilities(problem: Problem, prediction: Run | ArrayLike, chain: int | None) -> Floats:
    """Return predicted probabilities on a square grid over the plane of a problem.

    Parameters
    ----------
    problem : Problem
        A problem with two inputs.
    prediction : Run or array
        A run, evaluated on `plane(problem)`, or probabilities that were computed there.
    chain : int or None
        Chain of the run, or None for the mean over all chains that have not diverged.

    Returns
    -------
    array (points, points, outputs)
        Probabilities; rows go with the second feature, columns with the first.

    Raises
    ------
    ValueError
        If an array doesn't have the size of a square grid, or holds values that aren't probabilities.
    """
    _plane_limits(problem)  # raises if the problem has no plane
    if isinstance(prediction, Run):
        averaged = prediction.data.isel(chain=_included_chains(prediction, chain))
        outputs = Run(prediction.plan, prediction.step, averaged).outputs(plane(problem))
        probabilities: Floats = outputs.mean(axis=0)
    elif chain is not None:
        raise ValueError(f"chain is for a run, got chain={chain}: select it in the array of probabilities")
    else:
        probabilities = numbers("prediction", prediction, (1, 2, 3)).reshape(-1)

    points = math.isqrt(probabilities.size // problem.outputs)
    if probabilities.size != points**2 * problem.outputs or points < 2:
        raise ValueError(
            f"prediction must hold {problem.outputs} probabilities for each input of plane(problem), such as "
            f"{POINTS**2} inputs; got {probabilities.size} numbers"
        )
    lowest = probabilities.min()
    highest = probabilities.max()
    if lowest < -ROUNDING or highest > 1 + ROUNDING:
        raise ValueError(f"prediction must hold probabilities, got values from {lowest} to {highest}")
    return np.clip(probabilities, 0, 1).reshape(points, points, problem.outputs)


def _included_chains(run: Run, chain: int | None) -> list[int]:
    """Return the indices of the chains to average: `chain` alone, or for None all that have not diverged.

    Raises
    ------
    ValueError
        If these chains have diverged, or can't be averaged because they differ.
    """
    has_diverged = run.died >= 0
    if chain is not None:
        if has_diverged[whole("chain", chain, low=0, high=len(has_diverged))]:
            raise ValueError(f"chain {chain} diverged at step {run.died[chain]}: choose another")
        return [chain]
    if len(run.plan.points) > 1:
        setting = run.plan.points[0][0]
        raise ValueError(f"the chains of this run differ: pass chain=..., or select one of {setting}")
    if len(np.unique(run.data["draw"])) > 1:
        raise ValueError("the chains were trained on different data sets: pass chain=...")
    if has_diverged.all():
        raise ValueError("all chains diverged: there is no classifier to draw")
    return np.flatnonzero(~has_diverged).tolist()


def _draw_index(prediction: Run | ArrayLike, chain: int | None) -> int:
    """Return the index of the data set that a chain was trained on; 0 for an array of probabilities."""
    if not isinstance(prediction, Run):
        return 0
    return int(prediction.data["draw"].values[chain or 0])


def _draw_map(
    ax: Axes, problem: Problem, values: Floats, colours: str, highest: float, bar_label: str | None
) -> None:
    """Draw values on the plane as a colour map, below everything that the Axes already show.

    Parameters
    ----------
    ax : Axes
        Where to draw; its limits and aspect stay as they are.
    problem : Problem
        The problem whose plane the values cover.
    values : array (points, points)
        Values on the grid; rows go with the second feature, columns with the first.
    colours : str
        Name of a colour map of matplotlib, from 0 to `highest`.
    highest : float
        Value of the last colour.
    bar_label : str or None
        Label of a colour bar, or None for no colour bar.
    """
    (left, right), (bottom, top) = _plane_limits(problem)
    # Values are at the centres of the pixels, so that the image reaches half a pixel beyond the plane
    half_width = (right - left) / (len(values) - 1) / 2
    half_height = (top - bottom) / (len(values) - 1) / 2
    extent = (left - half_width, right + half_width, bottom - half_height, top + half_height)

    limits = ax.axis()
    aspect = ax.get_aspect()
    image = ax.imshow(values, origin="lower", extent=extent, cmap=colours, vmin=0, vmax=highest, zorder=0)
    ax.axis(limits)  # imshow has changed both
    ax.set_aspect(aspect)
    if bar_label is not None:
        style.add_colour_bar(ax, image, bar_label)
