"""The loss of dense networks on lines and surfaces."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import heatbath as hb
from heatbath.analysis import landscape
from heatbath.analysis.landscape import line, surface
from tests.analysis.landscape.losses import ALPHAS, BETAS, thetas
from tests.runs import SMALL, SPIRALS


def random_problem(task, inputs, rows=300, draws=2, seed=1):
    """Return a problem of random data, more than the engine takes in one pass."""
    rng = np.random.default_rng(seed)
    columns = 3 if task == "regression" else 1
    X = rng.standard_normal((2, draws, rows, inputs))
    Y = rng.standard_normal((2, draws, rows, columns))
    if task != "regression":
        Y = rng.integers(0, 2 if task == "binary" else 3, Y.shape).astype(float)
    names = ("no", "yes") if task == "binary" else ("a", "b", "c")
    features = tuple(f"x{i}" for i in range(inputs))
    return hb.datasets.Problem("random", task, X[0], Y[0], X[1], Y[1], features, names)


def defined_losses(problem, network, theta, split="test", draw=0):
    """Return loss and accuracy by the definition, in NumPy."""
    X, Y = getattr(problem, f"X_{split}")[draw], getattr(problem, f"Y_{split}")[draw]
    weights = getattr(problem, f"weights_{split}")
    w = None if weights is None else weights[draw]
    z = network.forward(theta, X, problem.outputs)
    if problem.task == "regression":
        return np.average(0.5 * np.sum((z - Y) ** 2, axis=1), weights=w), np.nan
    if problem.task == "binary":
        z = np.hstack([np.zeros_like(z), z])
    labels = Y[:, 0].astype(int)
    log = z - np.logaddexp.reduce(z, axis=1, keepdims=True)
    right = z.argmax(axis=1) == labels
    return np.average(-log[np.arange(len(z)), labels], weights=w), np.average(right, weights=w)


CASES = [
    ("binary", 2, hb.MLP((20,))),
    ("binary", 3, hb.MLP(())),
    ("classes", 40, hb.MLP((30,), "tanh")),
    ("classes", 2, hb.MLP((20, 40, 5))),
    ("regression", 20, hb.MLP((33, 18), "tanh")),
    ("regression", 17, hb.MLP((), "identity")),
]


@pytest.mark.parametrize(("task", "inputs", "network"), CASES)
@pytest.mark.parametrize(("kind", "error"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_the_losses_on_a_line_follow_its_definition(task, inputs, network, kind, error):
    problem = random_problem(task, inputs)
    a, b = thetas(problem, network, 2, kind)
    alphas = [-0.3, 0.0, 0.4, 1.0, 1.2]
    told = line(problem, network, a, b, alphas, "train", draw=1)
    assert told["loss"].dims == told["accuracy"].dims == ("alpha",)
    for alpha in alphas:
        loss, accuracy = defined_losses(
            problem, network, (1 - alpha) * np.float64(a) + alpha * b, "train", draw=1
        )
        here = told.sel(alpha=alpha)
        assert float(here["loss"]) == pytest.approx(loss, rel=error)
        room = 0 if kind is np.float64 else 1 / 300  # a datum on the boundary
        assert float(here["accuracy"]) == pytest.approx(accuracy, abs=room, nan_ok=True)


@pytest.mark.parametrize(("task", "inputs", "network"), CASES[1::2])
def test_weighted_examples_count_by_their_weights(task, inputs, network):
    problem, rng = random_problem(task, inputs), np.random.default_rng(2)
    weights = {f"weights_{split}": rng.uniform(1.0, 5.0, (2, 300)) for split in ("train", "test")}
    problem = replace(problem, **weights)
    a, b = thetas(problem, network, 2)
    for split in ("train", "test"):
        told = line(problem, network, a, b, [0.3], split, draw=1).isel(alpha=0)
        loss, accuracy = defined_losses(problem, network, 0.7 * a + 0.3 * b, split, draw=1)
        assert float(told["loss"]) == pytest.approx(loss, rel=1e-12)
        assert float(told["accuracy"]) == pytest.approx(accuracy, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize(("task", "inputs", "network"), CASES)
@pytest.mark.parametrize(("kind", "error"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_the_losses_on_a_surface_follow_its_definition(task, inputs, network, kind, error):
    problem = random_problem(task, inputs)
    start, a, b = thetas(problem, network, 3, kind)
    told = surface(problem, network, start, a, b, ALPHAS, BETAS)
    assert told["loss"].dims == ("alpha", "beta")
    start, a, b = (np.float64(theta) for theta in (start, a, b))
    for alpha in ALPHAS[::2]:
        first, second = alpha * (a - start) + start, alpha * (b - start) + start
        for beta in BETAS:
            loss, _ = defined_losses(problem, network, beta * first + (1 - beta) * second)
            assert float(told["loss"].sel(alpha=alpha, beta=beta)) == pytest.approx(loss, rel=error)


def test_the_corners_of_a_surface_are_the_start_and_the_minima():
    start, a, b = thetas(SPIRALS, SMALL, 3)
    loss = surface(SPIRALS, SMALL, start, a, b, ALPHAS, BETAS)["loss"]
    assert (loss.sel(alpha=0) == loss.sel(alpha=0, beta=0)).all()
    assert float(loss.sel(alpha=0, beta=1)) == pytest.approx(
        defined_losses(SPIRALS, SMALL, start)[0], rel=1e-12
    )
    assert float(loss.sel(alpha=1, beta=1)) == pytest.approx(defined_losses(SPIRALS, SMALL, a)[0], rel=1e-12)
    assert float(loss.sel(alpha=1, beta=0)) == pytest.approx(defined_losses(SPIRALS, SMALL, b)[0], rel=1e-12)
    across = line(SPIRALS, SMALL, b, a, BETAS)["loss"]
    np.testing.assert_allclose(loss.sel(alpha=1), across, rtol=1e-12)


def test_float32_parameters_are_evaluated_in_float32_and_others_in_float64():
    a, b = thetas(SPIRALS, SMALL, 2, np.float32)
    single = line(SPIRALS, SMALL, a, b, ALPHAS)["loss"].values
    double = line(SPIRALS, SMALL, a.astype(float), b, ALPHAS)["loss"].values
    assert not np.array_equal(single, double)
    np.testing.assert_allclose(single, double, rtol=1e-5)


def trained(**options):
    problem = hb.datasets.spirals(turns=2, n_train=100, n_test=100, draws=2)
    return hb.train(problem, SMALL, hb.AdLaLa(h=0.25), steps=200, batch=20, chains=4, **options)


def test_lines_of_a_runs_chains_end_in_its_records_each_on_its_own_data():
    run = trained(samples=3, burn_in=100)
    start = SMALL.start(2, 1, run.data["repeat"].values, seed=0).astype(np.float32)
    for split in ("train", "test"):
        told = line(run.problem, SMALL, start, run.data["theta"], [0, 0.5, 1], split, run.data["draw"])
        assert told["loss"].dims == ("chain", "alpha")
        assert told["draw"].values.tolist() == [0, 1, 0, 1]
        end = told.sel(alpha=1)
        np.testing.assert_allclose(end["loss"], run.loss(split).isel(record=-1), rtol=1e-5)
        np.testing.assert_allclose(end["accuracy"], run.accuracy(split).isel(record=-1), atol=0.011)
    told = line(run.problem, SMALL, run.data["theta"], run.data["samples"], ALPHAS, draw=run.data["draw"])
    assert told["loss"].dims == ("chain", "sample", "alpha")
    one = line(run.problem, SMALL, run.theta[3], run.data["samples"].values[3, 1], ALPHAS, draw=1)
    assert np.array_equal(told["loss"].isel(chain=3, sample=1), one["loss"])


def test_two_methods_of_a_comparison_are_the_ends_of_lines_by_chain():
    methods = {"AdLaLa": hb.AdLaLa(h=0.25), "Adam": hb.Partition(hb.Adam(), h=0.005)}
    both = hb.compare(SPIRALS, SMALL, methods, steps=20, batch=20, chains=3)
    one, two = (both.select(method=name).data["theta"] for name in methods)
    told = line(SPIRALS, SMALL, one, two, ALPHAS)
    assert told["loss"].dims == ("chain", "alpha")
    own = line(SPIRALS, SMALL, one.values[2], two.values[2], ALPHAS)
    assert np.array_equal(told["loss"].isel(chain=2), own["loss"])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_many_pairs_at_once_give_the_same_bits_as_one_by_one(kind):
    problem = random_problem("classes", 40)
    network = hb.MLP((30,))
    start, *ends = thetas(problem, network, 7, kind)
    a, b = np.array(ends[:3]), np.array(ends[3:])
    draws = [1, 0, 1]
    lines = line(problem, network, a, b, ALPHAS, draw=draws)
    surfaces = surface(problem, network, start, a, b, ALPHAS, BETAS, draw=draws)
    assert surfaces["loss"].dims == ("chain", "alpha", "beta")
    for chain, draw in enumerate(draws):
        own = line(problem, network, a[chain], b[chain], ALPHAS, draw=draw)
        assert lines.isel(chain=chain).equals(own)
        own = surface(problem, network, start, a[chain], b[chain], ALPHAS, BETAS, draw=draw)
        assert surfaces.isel(chain=chain).equals(own)
    assert not np.array_equal(lines["loss"][0], line(problem, network, a[0], b[0], ALPHAS)["loss"])


@pytest.mark.parametrize(("inputs", "hidden"), [(40, (30,)), (2, (20, 20))])
def test_results_do_not_depend_on_threads_or_on_how_the_work_is_cut(inputs, hidden, monkeypatch):
    problem = random_problem("classes", inputs)
    network = hb.MLP(hidden)
    corners = thetas(problem, network, 3, np.float32)
    one = surface(problem, network, *corners, ALPHAS, BETAS, threads=1)
    for threads in (2, 3):
        assert surface(problem, network, *corners, ALPHAS, BETAS, threads=threads).identical(one)
    monkeypatch.setattr(landscape.dense, "PATIENCE", 0.0)
    assert surface(problem, network, *corners, ALPHAS, BETAS, threads=3).identical(one)


def test_a_pair_with_a_diverged_chain_has_nan_and_the_others_do_not():
    a, b, c = thetas(SPIRALS, SMALL, 3)
    for wrong in (np.nan, np.inf):
        lost = b.copy()
        lost[5] = wrong
        told = line(SPIRALS, SMALL, a, np.array([c, lost]), ALPHAS)
        assert told.isel(chain=1)["loss"].isnull().all()
        assert told.isel(chain=1)["accuracy"].isnull().all()
        assert told.isel(chain=0).equals(line(SPIRALS, SMALL, a, c, ALPHAS))


def test_ctrl_c_stops_between_two_calls(monkeypatch):
    calls = []

    def spread(work, count, threads):
        calls.append(count)
        work(0, count)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(landscape.dense, "spread", spread)
    monkeypatch.setattr(landscape.dense, "PATIENCE", 0.0)  # as if each call took very long
    with pytest.raises(KeyboardInterrupt):
        line(SPIRALS, SMALL, *thetas(SPIRALS, SMALL, 2), np.linspace(0, 1, 50), threads=2)
    assert calls == [2, 2, 2]


def test_blas_has_one_thread_from_the_first_call_of_a_process():
    code = """
import numpy as np
from threadpoolctl import threadpool_info
import heatbath as hb
from heatbath import landscape

def spread(work, count, threads):
    work(0, count)  # whatever it needs is loaded now
    used = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
    assert used and set(used) == {1}, used
    print("checked")

landscape.dense.spread = spread
rng = np.random.default_rng(0)
problem = hb.datasets.from_arrays(rng.standard_normal((50, 40)), rng.integers(0, 2, 50))
network = hb.MLP((200, 200))  # wide enough for BLAS
landscape.line(problem, network, *network.start(40, 1, [0, 1], 0), [0, 1], "train")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "checked" in done.stdout


def test_invalid_arguments_are_refused():
    a, b = thetas(SPIRALS, SMALL, 2)
    for alphas in ([], [0, 0], [1, 0], [0, np.nan], 0.5, ["x"]):
        with pytest.raises(ValueError, match="alphas must be"):
            line(SPIRALS, SMALL, a, b, alphas)
    with pytest.raises(ValueError, match="betas must be one or more increasing numbers"):
        surface(SPIRALS, SMALL, a, a, b, ALPHAS, [1, 0.5])
    with pytest.raises(ValueError, match="split must be one of 'train', 'test', got 'validation'"):
        line(SPIRALS, SMALL, a, b, ALPHAS, "validation")
    for wrong in (a[:-1], a[None, None], 3.0, ["x"] * 81, a * 1j, xr.DataArray(a, dims="x")):
        with pytest.raises(ValueError, match=r"θ must be numbers with shape \(81,\) or \(chains, 81\)"):
            line(SPIRALS, SMALL, a, wrong, ALPHAS)
    with pytest.raises(ValueError, match="do not fit together"):
        line(SPIRALS, SMALL, np.array([a, b]), np.array([a, b, b]), ALPHAS)
    labelled = [
        xr.DataArray([a, b], {"chain": chains}, ("chain", "parameter")) for chains in ([0, 1], [1, 2])
    ]
    with pytest.raises(ValueError, match="do not fit together"):
        line(SPIRALS, SMALL, *labelled, ALPHAS)
    for draw in (1, -1, 0.0, [[0]], "x", True):
        with pytest.raises(ValueError, match="draw must be the index of a data set, 0 to 0"):
            line(SPIRALS, SMALL, a, b, ALPHAS, draw=draw)
    with pytest.raises(TypeError, match="a Problem and an MLP are needed"):
        line(SMALL, SPIRALS, a, b, ALPHAS)
    with pytest.raises(ValueError, match="threads must be"):
        line(SPIRALS, SMALL, a, b, ALPHAS, threads=0)
    bare = hb.datasets.spirals(n_train=10, n_test=0)
    with pytest.raises(ValueError, match="there are no test examples: pass split='train'"):
        line(bare, SMALL, a, b, ALPHAS)
