"""Check whether independent chains agree on a function, and the one rule for "converged"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath.datasets.problem import Floats
from heatbath.diagnostics.mcmc import rhat_and_ess
from heatbath.runs.run import Run, check_run

FEWEST_SAMPLES = 4  # of each chain, whose two halves R-hat compares


@dataclass(frozen=True)
class ConvergenceRule:
    """When the predictions of chains count as converged."""

    rhat: float = 1.1  # the worst R-hat over inputs, at most: a few single inputs may not disagree either
    ess: float = 100.0  # the median effective size, at least: means are known to a tenth of the spread
    inputs: int = 100  # examples at which predictions are compared; the worst R-hat grows with their number


RULE = ConvergenceRule()


class Convergence(NamedTuple):
    """R-hat and effective sample size of the function, over inputs: the median and the worst of each."""

    rhat: float
    rhat_worst: float
    ess: float
    ess_worst: float


def convergence(run: Run, X: ArrayLike | None = None) -> Convergence:
    """Measure how well the chains of a run agree on the function that they sample.

    Rank-normalised split R-hat (1 at convergence) and the effective size of the samples of all chains for the
    mean (bulk ESS), as ArviZ defines them, of `run.outputs(X, samples=True)`. Chains that diverged are left
    out.

    Parameters
    ----------
    run
        A run of one point, with at least two chains that didn't diverge and four samples.
    X
        Inputs (examples, features) at which outputs are compared; None for up to 100 training examples.

    Returns
    -------
    Convergence
        `rhat` and `ess` are medians over inputs and outputs, `rhat_worst` and `ess_worst` the worst.

    Raises
    ------
    ValueError
        If there are too few chains or samples, or the chains have different data sets and no X is given.

    Examples
    --------
    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> run = hb.train(problem, hb.MLP((5,)), hb.AdLaLa(h=0.25), steps=200, chains=3, samples=20)
    >>> hb.diagnostics.convergence(run).rhat > 1
    True
    """
    check_run(run, single=True)
    is_alive = run.died < 0
    chain_count = np.count_nonzero(is_alive)
    sample_count = run.data.sizes.get("sample", 0)
    if chain_count < 2 or sample_count < FEWEST_SAMPLES:
        raise ValueError(
            f"R-hat needs at least 2 chains and {FEWEST_SAMPLES} samples, got {chain_count} and "
            f"{sample_count}: train with more chains, or samples"
        )
    inputs = _evenly_spaced_inputs(run) if X is None else X
    return convergence_of(run.outputs(inputs, samples=True)[is_alive])


def _evenly_spaced_inputs(run: Run) -> NDArray[np.float64]:
    """Return the inputs of some training examples in the user's units, (examples, features)."""
    problem = run.problem
    draws = np.unique(run.data["draw"])
    if len(draws) > 1:
        raise ValueError(f"the chains have {len(draws)} different data sets: they sample different laws")
    rows = np.unique(np.linspace(0, problem.X_train.shape[1] - 1, RULE.inputs).astype(int))
    return np.asarray(problem.X_train[draws[0], rows] * problem.scale + problem.shift)


def convergence_of(outputs: Floats) -> Convergence:
    """Return the convergence of outputs (chains, samples, ...); the last axes are inputs and outputs."""
    traces = np.moveaxis(outputs.reshape(*outputs.shape[:2], -1), -1, 0)
    ratios, sizes = rhat_and_ess(traces)
    return Convergence(
        float(np.nanmedian(ratios)),
        float(np.nanmax(ratios)),
        float(np.nanmedian(sizes)),
        float(np.nanmin(sizes)),
    )


def has_converged(agreement: Convergence) -> bool:
    """Return True if the worst R-hat is at most 1.1 and the median effective size at least 100."""
    return agreement.rhat_worst <= RULE.rhat and agreement.ess >= RULE.ess
