"""What independent chains say together: their spread, and whether they agree on a function."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from heatbath.diagnostics.series import mean
from heatbath.runs.run import Run, check_run


class OverChains(NamedTuple):
    """The mean over chains with its 95 % interval, the standard deviation, the extremes and their gap."""

    mean: float
    low: float
    high: float
    std: float
    best: float
    worst: float
    gap: float


def over_chains(values: ArrayLike, *, lower_is_better: bool = False) -> OverChains:
    """Independent chains' values, such as their last test accuracies, as mean, interval, spread and extremes.

    The interval is Student's t, std² the variance over chains (divided by their number less one); the gap is
    what the worst chain is away from the best. For a loss say `lower_is_better`. One chain alone has no
    interval and no spread: NaN.
    """
    array = np.asarray(values)
    if array.ndim != 1 or not array.size:
        raise ValueError(
            f"values must be one number for each chain, got an array of shape {array.shape}: choose "
            "a record, as in run.accuracy('test').isel(record=-1)"
        )
    estimate = mean(array[:, None])
    best, worst = float(array.max()), float(array.min())
    if lower_is_better:
        best, worst = worst, best
    std = float(array.std(ddof=1)) if len(array) > 1 else float("nan")
    return OverChains(estimate.value, *estimate.interval, std, best, worst, abs(best - worst))


class Convergence(NamedTuple):
    """R-hat and effective sample size of the function, over inputs: the median and the worst of each."""

    rhat: float
    rhat_worst: float
    ess: float
    ess_worst: float


def convergence(run: Run, X: ArrayLike | None = None) -> Convergence:
    """Whether the chains of a run sample one law of functions: at X, or at the test examples.

    Rank-normalised split R-hat (1 at convergence) and the effective size of the samples of all chains for the
    mean (bulk ESS), by ArviZ, of what `run.to_arviz(X)` has; median and worst are over inputs and outputs.
    Needs the extra `heatbath[arviz]`, and at least two chains and four samples.
    """
    check_run(run)
    data = run.to_arviz(X)
    sizes = data.posterior.sizes  # type: ignore[attr-defined]
    if sizes["chain"] < 2 or sizes["draw"] < 4:
        raise ValueError(
            f"R-hat needs at least 2 chains and 4 samples, got {sizes['chain']} and {sizes['draw']}: train "
            "with more chains, or samples"
        )
    with warnings.catch_warnings():  # once a day it announces its next version
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    rhat = arviz.rhat(data, var_names=["prediction"], method="rank")["prediction"].values  # type: ignore[no-untyped-call]
    ess = arviz.ess(data, var_names=["prediction"], method="bulk")["prediction"].values  # type: ignore[no-untyped-call]
    return Convergence(float(np.median(rhat)), float(rhat.max()), float(np.median(ess)), float(ess.min()))
