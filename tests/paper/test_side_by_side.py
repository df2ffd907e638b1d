"""Methods trained side by side, and their results by method and run."""

import numpy as np
import pytest

import heatbath as hb
from heatbath.runs.continuation import extend_plan


def test_the_axes_of_a_sweep_become_dimensions():
    """Methods and runs where `select` finds them."""
    from heatbath.paper.side_by_side import scores_by_axes, unstack_chains

    run = hb.sweep(
        hb.datasets.spirals(n_train=50, n_test=50), hb.MLP((5,)),
        hb.AdLaLa(tau=[1e-5, 1e-4], sigma=[0.0, 0.1]),
        steps=20, batch=5, chains=3, record=[10, 20],
    )  # fmt: skip
    found = scores_by_axes(run)["accuracy"]
    assert found.dims == ("tau", "sigma", "run", "record")
    own = run.select(tau=1e-4, sigma=0.0).accuracy()
    assert np.array_equal(found.sel(tau=1e-4, sigma=0.0), own)
    theta = unstack_chains(run, run.data["theta"])
    assert np.array_equal(theta.sel(tau=1e-5, sigma=0.1), run.select(tau=1e-5, sigma=0.1).theta)


def test_a_run_stopped_by_ctrl_c_is_no_result():
    from heatbath.paper.side_by_side import require_finished

    run = hb.train(hb.datasets.spirals(n_train=50), hb.MLP((5,)), hb.LOL(), steps=10, batch=5)
    assert require_finished(run) is run
    longer = hb.Run(extend_plan(run.plan, 10, 10), run.step, run.data)
    with pytest.raises(KeyboardInterrupt):
        require_finished(longer)
