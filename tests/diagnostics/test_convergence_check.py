"""Whether chains agree on a function."""

import warnings

import numpy as np
import pytest

from heatbath import diagnostics as d
from tests.diagnostics.linear import run_on_quadratic


def test_convergence_is_arviz_s_over_test_points_and_sees_chains_that_differ():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        arviz = pytest.importorskip("arviz")
    run = run_on_quadratic(0.05, chains=4, steps=4000, samples=200, burn_in=1000)
    X = [[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.5, 0.5, 0.5]]
    told = d.convergence(run, X)
    data = run.to_arviz(X)
    rhat, ess = (f(data)["prediction"].values.ravel() for f in (arviz.rhat, arviz.ess))
    assert told[:2] == pytest.approx((np.median(rhat), rhat.max()), rel=1e-6)
    assert told[2:] == pytest.approx((np.median(ess), ess.min()), rel=0.05)
    assert told.rhat_worst < 1.05
    assert told.ess_worst > 100
    cold = run_on_quadratic(1e-9, h=0.01, chains=4, steps=400, samples=100, burn_in=200)
    assert d.convergence(cold, X).rhat > 1.5
    with pytest.raises(ValueError, match="at least 2 chains and 4 samples, got 1 and 5"):
        d.convergence(run_on_quadratic(0.05, chains=1, steps=10, samples=5), X)
    with pytest.raises(ValueError, match="got 2 and 3"):
        d.convergence(run_on_quadratic(0.05, chains=2, steps=12, samples=3), X)
