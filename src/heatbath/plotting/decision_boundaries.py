"""Pictures of the plane of a problem with two inputs: its examples, and what networks say there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import choice, whole
from heatbath.datasets import Problem
from heatbath.datasets.problem import numbers
from heatbath.datasets.tasks import TASKS
from heatbath.plotting.style import axes_or_new, colour_bar, dress, key, symbol
from heatbath.prediction.averages import entropy_of
from heatbath.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
MARGIN = 0.06  # of the width of the examples, on each side
POINTS = 200
DOTS = (  # marker, face and edge of each class: light and dark, to stand out from any map
    ("o", "#ffffff", "#000000"),
    ("^", "#000000", "#ffffff"),
    ("s", "#F0E442", "#000000"),
    ("D", "#009E73", "#ffffff"),
    ("v", "#E69F00", "#000000"),
    ("P", "#0072B2", "#ffffff"),
    ("X", "#CC79A7", "#000000"),
)


def plane(problem: Problem, points: int = POINTS) -> Floats:
    """Inputs (points², 2) on a grid over the examples, in the user's units, for `run.predict` and others.

    They go row by row, from the lowest first and second feature on; the first changes fastest.
    """
    points = whole("points", points, low=2)
    x, y = (np.linspace(low, high, points) for low, high in _limits(problem))
    return np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)


def data(problem: Problem, split: str = "train", draw: int = 0, *, ax: Axes | None = None) -> Axes:
    """The examples of a problem with two inputs, with a marker and a colour for each class."""
    from matplotlib.ticker import MaxNLocator

    across, up = _limits(problem)
    choice("split", split, ("train", "test"))
    draw = whole("draw", draw, low=0, high=problem.draws)
    if not TASKS[problem.task].classes or len(problem.targets) > len(DOTS):
        raise ValueError(f"data needs a problem with 2 to {len(DOTS)} classes, got {problem!r}")
    X, Y = (getattr(problem, f"{name}_{split}")[draw] for name in "XY")
    ax = axes_or_new(ax, _height(problem, 2.8))
    for place, (name, (marker, face, edge)) in enumerate(zip(problem.targets, DOTS, strict=False)):
        points = X[Y[:, 0] == place] * problem.scale + problem.shift
        style: Any = {"s": 9, "marker": marker, "c": face, "edgecolors": edge, "linewidths": 0.4}
        ax.scatter(*points.T, label=f"class {name}" if name.isdigit() else name, zorder=3, **style)
    ax.set(xlim=across, ylim=up, aspect="equal" if _one_unit(problem) else "auto")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    dress(ax, symbol(problem.features[0]), symbol(problem.features[1]), box=True)
    key(ax)
    return ax


def classifier(
    problem: Problem,
    prediction: Run | ArrayLike,
    *,
    chain: int | None = None,
    bar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """The probability of the second class over the plane, its 1/2 contour and the examples.

    The problem is binary. `prediction` is a run, of which one `chain` is drawn with the examples it saw, or
    the mean over all its chains that did not diverge; or the probabilities on a grid, as
    `run.outputs(plane(problem))[3]` or the `mean` of `heatbath.torch.predict` gives them. `bar`: whether
    there is a colour bar.
    """
    if isinstance(problem, Problem) and problem.task != "binary":
        raise ValueError(f"classifier needs a problem with two classes, got {problem!r}; see uncertainty")
    probability = _probabilities(problem, prediction, chain)[..., 0]
    ax = axes_or_new(ax, _height(problem, 2.2 if bar else 2.8))
    data(problem, draw=_draw_of(prediction, chain), ax=ax)
    name = problem.targets[1]
    label = f"probability of {f'class {name}' if name.isdigit() else name}"
    _shade(ax, problem, probability, "RdBu_r", 1.0, label if bar else None)
    if probability.min() < 0.5 < probability.max():
        x, y = (np.linspace(*ends, len(probability)) for ends in _limits(problem))
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
    """The entropy of the predicted class over the plane, in nats, and the examples.

    `prediction` is as in `classifier`; with several classes the probabilities on the grid are (points²,
    classes).
    """
    if isinstance(problem, Problem) and not TASKS[problem.task].classes:
        raise ValueError(f"uncertainty needs a problem with classes, got {problem!r}")
    entropy = entropy_of(_probabilities(problem, prediction, chain), problem.task)
    ax = axes_or_new(ax, _height(problem, 2.2 if bar else 2.8))
    data(problem, draw=_draw_of(prediction, chain), ax=ax)
    _shade(ax, problem, entropy, "cividis", math.log(len(problem.targets)), "entropy (nats)" if bar else None)
    return ax


def _limits(problem: object) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ends of the plane in both features: all examples, of all draws, and a margin."""
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {problem!r} of type {type(problem).__name__}")
    if problem.inputs != 2:
        raise ValueError(f"a plane needs a problem with two inputs, got {problem!r}")
    X = np.concatenate([problem.X_train, problem.X_test], axis=1) * problem.scale + problem.shift
    low, high = X.min(axis=(0, 1)), X.max(axis=(0, 1))
    margin = np.where(high > low, MARGIN * (high - low), 1.0)
    (left, bottom), (right, top) = (low - margin).tolist(), (high + margin).tolist()
    return (left, right), (bottom, top)


def _one_unit(problem: Problem) -> bool:
    """Whether both features seem to be in one unit, so that a circle should be a circle."""
    (left, right), (low, high) = _limits(problem)
    alike = 0.1 < (high - low) / (right - left) < 10
    return bool(problem.scale[0] == problem.scale[1]) and alike


def _height(problem: Problem, width: float) -> float:
    """The height in inches of a figure whose Axes have this width, with room for labels and legend."""
    (left, right), (low, high) = _limits(problem)
    shape = (high - low) / (right - left) if _one_unit(problem) else 0.8
    return min(0.75 + width * shape, 4.0)


def _probabilities(problem: Problem, prediction: Run | ArrayLike, chain: int | None) -> Floats:
    """The probabilities (points, points, outputs) on the plane."""
    _limits(problem)  # refuses what has no plane
    if isinstance(prediction, Run):
        values = _mean_of(prediction, plane(problem), chain)
    elif chain is not None:
        raise ValueError("chain is for a run: select it in the array of probabilities")
    else:
        values = numbers("prediction", prediction, (1, 2, 3)).reshape(-1)
    rows, rest = divmod(values.size, problem.outputs)
    points = math.isqrt(rows)
    if rest or points**2 != rows or points < 2:
        raise ValueError(
            f"prediction must hold {problem.outputs} probabilities for each of the inputs that "
            f"plane(problem) gives, such as {POINTS**2} of them; got {values.size} numbers"
        )
    if values.min() < -1e-6 or values.max() > 1 + 1e-6:
        raise ValueError(
            f"prediction must hold probabilities, got values from {values.min()} to {values.max()}"
        )
    return np.clip(values, 0, 1).reshape(points, points, problem.outputs)


def _mean_of(run: Run, X: Floats, chain: int | None) -> Floats:
    """What one chain says, or, on average, the chains that did not diverge."""
    lost = run.died >= 0
    if chain is not None:
        if lost[whole("chain", chain, low=0, high=len(lost))]:
            raise ValueError(f"chain {chain} diverged at step {run.died[chain]}: choose another")
        lost = np.arange(len(lost)) != chain
    elif len(run.plan.points) > 1:
        raise ValueError(f"these chains differ: say which chain, or select one of {run.plan.points[0][0]}")
    elif len(np.unique(run.data["draw"])) > 1:
        raise ValueError("the chains have different data sets: say which chain")
    keep = np.flatnonzero(~lost)
    if not len(keep):
        raise ValueError("all chains diverged: there is no classifier to draw")
    each = Run(run.plan, run.step, run.data.isel(chain=keep)).outputs(X)
    return np.asarray(each.mean(axis=0))


def _draw_of(prediction: Run | ArrayLike, chain: int | None) -> int:
    """The number of the data set that a chain saw."""
    return int(prediction.data["draw"].values[chain or 0]) if isinstance(prediction, Run) else 0


def _shade(ax: Axes, problem: Problem, values: Floats, colours: str, top: float, label: str | None) -> None:
    """A map from 0 to `top` under what is drawn already."""
    (left, right), (low, high) = _limits(problem)
    x, y = ((end - begin) / (len(values) - 1) / 2 for begin, end in _limits(problem))
    before, aspect = ax.axis(), ax.get_aspect()
    image = ax.imshow(
        values,
        origin="lower",
        extent=(left - x, right + x, low - y, high + y),  # the values are at the middle of the pixels
        cmap=colours,
        vmin=0,
        vmax=top,
        zorder=0,
    )
    ax.axis(before)
    ax.set_aspect(aspect)
    if label is not None:
        colour_bar(ax, image, label)
