"""ArviZ reads runs, and what it says of them is plausible."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import heatbath as hb
from tests.runs import SMALL, SPIRALS

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    arviz = pytest.importorskip("arviz")
N = 200


def posterior(tau, **options):
    """Samples of a law at temperature τ with a standard normal prior if that is 1/n."""
    partition = hb.Partition(hb.Langevin(1.0, tau, weight_decay=tau), 0.2)
    settings = {"chains": 4, "samples": 200, "record": 10, "seed": 3} | options
    return hb.train(SPIRALS, SMALL, partition, 40_000, 50, burn_in=20_000, **settings)


@pytest.fixture(scope="module")
def warm():
    return posterior(1 / N)


def test_arviz_has_the_function_at_the_test_data_by_default(warm):
    data = warm.to_arviz()
    prediction = data.posterior["prediction"]
    assert prediction.dims == ("chain", "draw", "point", "output")
    assert prediction.shape == (4, 200, 100, 1)
    assert prediction["draw"].values.tolist() == warm.data["sample_step"].values.tolist()
    assert prediction["output"].values.tolist() == ["1"]
    assert "theta" not in data.posterior
    np.testing.assert_array_equal(prediction, warm.outputs(SPIRALS.X_test[0], samples=True))


def test_arviz_has_the_function_where_it_is_asked_for_and_the_parameters_too(warm):
    data = warm.to_arviz(X=[[0.0, 1.0], [1.0, 0.0]], parameters=True)
    np.testing.assert_array_equal(
        data.posterior["prediction"], warm.outputs([[0.0, 1.0], [1.0, 0.0]], samples=True)
    )
    np.testing.assert_array_equal(data.posterior["theta"], warm.data["samples"])
    assert len(arviz.summary(data, var_names=["prediction"])) == 2


def test_a_posterior_has_converged_and_a_cold_law_has_not(warm):
    """R-hat and ESS of the function on the 2-turn spiral; the control fails where it should."""
    rhat, ess = arviz.rhat(warm.to_arviz())["prediction"], arviz.ess(warm.to_arviz())["prediction"]
    assert float(rhat.max()) < 1.06
    assert float(rhat.median()) < 1.02
    assert 100 < float(ess.median()) <= 4 * 200 * 1.5  # of 800
    cold = posterior(1e-6).to_arviz()
    assert float(arviz.rhat(cold)["prediction"].max()) > 1.5
    assert float(arviz.ess(cold)["prediction"].median()) < 60


def test_chains_of_different_laws_are_not_mixed():
    options = {"steps": 20, "batch": 20, "samples": 4}
    sweep = hb.sweep(SPIRALS, SMALL, hb.LOL(tau=[1e-4, 1e-3]), chains=2, **options)
    with pytest.raises(ValueError, match="differ in tau: select one"):
        sweep.to_arviz()
    assert sweep.select(tau=1e-3).to_arviz().posterior.sizes["chain"] == 2
    drawn = hb.datasets.spirals(n_train=50, n_test=20, draws=2)
    with pytest.raises(ValueError, match="2 different data sets"):
        hb.train(drawn, SMALL, hb.LOL(), chains=2, **options).to_arviz()
    assert hb.train(drawn, SMALL, hb.LOL(), chains=1, **options).to_arviz().posterior.sizes["point"] == 20
    with pytest.raises(ValueError, match="there are no test examples: say X="):
        hb.train(hb.datasets.spirals(n_test=0), SMALL, hb.LOL(), **options).to_arviz()
    with pytest.raises(ValueError, match="train with samples=N"):
        hb.train(SPIRALS, SMALL, hb.LOL(), 20, 20).to_arviz()


def test_chains_that_diverged_are_left_out():
    start = np.tile(SMALL.start(2, 1, [0], 1), (3, 1))
    start[1, 60:] = 3e38
    with pytest.warns(RuntimeWarning, match="diverged"):
        run = hb.train(SPIRALS, SMALL, hb.LOL(), 40, 20, chains=3, samples=5, start=start)
    assert run.to_arviz().posterior.sizes["chain"] == 2


def test_without_arviz_the_error_names_the_extra(monkeypatch, warm):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'heatbath\[arviz\]'"):
        warm.to_arviz()


def test_what_arviz_announces_once_a_day_does_not_reach_the_user(tmp_path):
    """In a new process, with a cache folder in which ArviZ finds no trace of an announcement."""
    code = """
import heatbath as hb
problem = hb.datasets.spirals(n_train=50, n_test=10)
print(hb.train(problem, hb.Dense((5,)), hb.LOL(), 20, 5, chains=2, samples=5).to_arviz())
"""
    kernels = os.environ.get("HEATBATH_CACHE", str(Path.home() / ".cache" / "heatbath"))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "HEATBATH_CACHE": kernels}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "posterior" in done.stdout


def test_the_example_prints_its_table():
    example = Path(__file__).parents[2] / "examples" / "convergence.py"
    done = subprocess.run(
        [sys.executable, str(example), "--steps", "2000"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"Langevin, τ = .*│ +\d\.\d\d │ +\d+\.\d % │", done.stdout)) == 3
