"""What a run's networks say together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath.checks import choice
from heatbath.datasets.problem import Floats, numbers
from heatbath.prediction.averages import Average, Prediction, entropy_of, normal_entropy

if TYPE_CHECKING:
    from heatbath.results import Run

CHUNK = 1 << 17  # numbers in the widest layer at a time: 1 MB, much faster than large arrays


def predict_run(
    run: Run, X: ArrayLike | None = None, *, over: Literal["samples", "chains", "steps"] = "samples"
) -> Prediction[Floats]:
    """Mean, variance and entropies of what a run's networks say of X, in the user's units.

    - over "samples": all samples of all chains (`train(..., samples=N)`);
    - over "chains": the networks of the chains as they are now;
    - over "steps": all that `train(..., average=X, burn_in=steps - k)` averaged, over its chains too, at the
      X given there; the entropy is not split, as only means were kept.

    Chains that diverged do not count. Memory does not grow with the number of networks.
    """
    from heatbath.results import Run

    if not isinstance(run, Run):
        raise TypeError(f"run must be a Run, as train returns; got {run!r} (for a torch model: predict)")
    choice("over", over, ("samples", "chains", "steps"))
    if len(run.plan.points) > 1:
        raise ValueError(
            f"this run has {len(run.plan.points)} points or methods, and a mean over them says nothing: "
            f"select one first, such as {run.plan.points[0][0]}"
        )
    if not (run.died < 0).any():
        raise ValueError("all chains of this run diverged: there is nothing to average")
    if over == "steps":
        return _over_steps(run, X)
    problem, x = run.problem, _inputs(run, X)
    rows = max(1, CHUNK // max(run.network.sizes(problem.inputs, problem.outputs)))
    average, decoded = Average(problem.task), np.empty((len(x), problem.outputs))
    for theta in _networks(run, over):
        for chunk in (slice(first, first + rows) for first in range(0, len(x), rows)):
            decoded[chunk] = problem.decode(run.network.forward(theta, x[chunk], problem.outputs))
        average.add(decoded)
    return average.prediction()


def _inputs(run: Run, X: ArrayLike | None) -> Floats:
    """The inputs as the networks take them, standardised."""
    if X is None:
        raise TypeError("X is needed: inputs (examples, features), of which the networks are asked")
    raw = np.atleast_2d(numbers("X", X, (1, 2)))
    if raw.shape[1] != run.problem.inputs:
        raise ValueError(f"X must be (examples, {run.problem.inputs} features), got shape {np.shape(X)}")
    return np.asarray((raw - run.problem.shift) / run.problem.scale)


def _networks(run: Run, over: str) -> Iterator[NDArray[Any]]:
    """The parameters of one network after the other, of the chains that did not diverge."""
    alive = np.flatnonzero(run.died < 0)
    if over == "chains":
        yield from (run.theta[chain] for chain in alive)
        return
    if "samples" not in run.data or not run.data.sizes["sample"]:
        raise ValueError("no samples were kept: train with samples=N, and long enough, or say over='chains'")
    samples = run.data["samples"].values
    for chain in alive:
        yield from samples[chain]


def _over_steps(run: Run, X: ArrayLike | None) -> Prediction[Floats]:
    """The chains' running averages, joined: the variance is within chains and between them."""
    if X is not None:
        raise TypeError("over='steps' has the X that train averaged at: leave X out")
    averages = run.averages()
    if not run.plan.samples_by(run.step):
        raise ValueError(
            f"nothing is averaged yet: the run is at step {run.step}, in the burn-in of {run.plan.burn_in}; "
            "resume it"
        )
    alive = run.died < 0
    means, variances = averages["mean"].values[alive], averages["variance"].values[alive]
    mean, variance = means.mean(axis=0), variances.mean(axis=0) + means.var(axis=0)
    task = run.problem.task
    entropy = normal_entropy(variance) if task == "regression" else entropy_of(mean, task)
    return Prediction(mean, variance, entropy, None, None)
