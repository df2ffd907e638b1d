"""Whether independent chains agree on a function."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from heatbath.datasets.problem import Floats
from heatbath.diagnostics.mcmc import rhat_and_ess
from heatbath.runs.run import Run, check_run

MOST = 100  # examples that are looked at where none are named


class Convergence(NamedTuple):
    """R-hat and effective sample size of the function, over inputs: the median and the worst of each."""

    rhat: float
    rhat_worst: float
    ess: float
    ess_worst: float


def convergence(run: Run, X: ArrayLike | None = None) -> Convergence:
    """Whether the chains of a run sample one law of functions: at X, or at up to 100 training examples.

    Rank-normalised split R-hat (1 at convergence) and the effective size of the samples of all chains for the
    mean (bulk ESS), as ArviZ defines them, of what `run.outputs(X, samples=True)` has; median and worst are
    over inputs and outputs. Needs at least two chains and four samples.
    """
    check_run(run, single=True)
    alive = run.died < 0
    count = run.data.sizes.get("sample", 0)
    if np.count_nonzero(alive) < 2 or count < 4:
        raise ValueError(
            f"R-hat needs at least 2 chains and 4 samples, got {np.count_nonzero(alive)} and {count}: train "
            "with more chains, or samples"
        )
    problem = run.problem
    if X is None:
        draws = np.unique(run.data["draw"])
        if len(draws) > 1:
            raise ValueError(f"the chains have {len(draws)} different data sets: they sample different laws")
        rows = np.unique(np.linspace(0, problem.X_train.shape[1] - 1, MOST).astype(int))
        X = problem.X_train[draws[0], rows] * problem.scale + problem.shift
    return converged(run.outputs(X, samples=True)[alive])


def converged(outputs: Floats) -> Convergence:
    """Of what chains say, (chains, samples, ...)."""
    traces = np.moveaxis(outputs.reshape(*outputs.shape[:2], -1), -1, 0)
    ratios, sizes = rhat_and_ess(traces)
    return Convergence(
        float(np.nanmedian(ratios)),
        float(np.nanmax(ratios)),
        float(np.nanmedian(sizes)),
        float(np.nanmin(sizes)),
    )


CONVERGED, EFFECTIVE = 1.1, 100.0  # the worst R-hat of the predictions, and their median effective size


def has_converged(told: Convergence) -> bool:
    """Whether R-hat and the effective size of the predictions are good enough."""
    return told.rhat_worst <= CONVERGED and told.ess >= EFFECTIVE
