"""Whether independent chains agree on a function."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from heatbath.runs.run import Run, check_run


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
    data: Any = run.to_arviz(X, groups=["posterior"])
    sizes = data.posterior.sizes
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
