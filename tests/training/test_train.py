"""Training, as its users call it, and the traps of compiled code."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import heatbath as hb
from heatbath import Progress
from heatbath.models import dense
from heatbath.reference.quadratic import covariance
from tests.optional import optional
from tests.processes import run_in_copy

torch = optional("torch")

SPIRALS = hb.datasets.spirals(n_train=200, n_test=100)
SMALL = hb.MLP((20,))


def short(**options):
    settings = {"steps": 200, "batch": 20, "chains": 3, "record": 5, "seed": 1, **options}
    return hb.train(SPIRALS, SMALL, settings.pop("partition", hb.AdLaLa()), **settings)


def test_traces_are_labelled_and_end_with_the_last_step():
    run = short()
    assert run.data["step"].values.tolist() == [40, 80, 120, 160, 200]
    for trace in (run.loss("train"), run.accuracy("test"), run.temperature("hidden"), run.xi("hidden")):
        assert trace.dims == ("chain", "record")
        assert np.isfinite(trace).all()
    assert run.theta.shape == (3, 81)
    assert run.theta.dtype == np.float32


def test_records_are_where_they_are_asked_for_and_do_not_change_the_run():
    often, seldom = short(record=[0, 7, 100], weights=True), short(record=1)
    assert often.data["step"].values.tolist() == [0, 7, 100, 200]
    np.testing.assert_array_equal(often.theta, seldom.theta)
    start = SMALL.start(2, 1, np.arange(3), 1).astype(np.float32)
    np.testing.assert_array_equal(often.data["weights"].isel(record=0), start)
    np.testing.assert_array_equal(often.data["weights"].isel(record=-1), often.theta)
    np.testing.assert_array_equal(often.data["weights"].isel(record=1), short(steps=7, record=1).theta)


def test_a_record_has_the_loss_and_accuracy_of_the_networks_on_all_data():
    run = short(dtype="float64")
    for chain in range(3):
        logits = run.to_torch(chain)(torch.as_tensor(SPIRALS.X_test[0]))
        labels = torch.as_tensor(SPIRALS.Y_test[0])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
        assert float(run.loss("test")[chain, -1]) == pytest.approx(loss.item(), rel=1e-12)
        right = ((logits > 0) == (labels > 0.5)).double().mean()
        assert float(run.accuracy("test")[chain, -1]) == pytest.approx(right.item())


def test_the_outputs_are_the_network_in_the_users_units():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3)) * 10 + 5
    for y, task in ((X[:, 0] * 3, "regression"), (np.digitize(X[:, 0], [0, 5]), "classes")):
        problem = hb.datasets.from_arrays(X, y, task=task, standardise=True)
        run = hb.train(
            problem, SMALL, hb.Partition(hb.Adam(), 0.01), steps=50, batch=8, chains=2, dtype="float64"
        )
        outputs = run.outputs(X[:5])
        with torch.no_grad():
            logits = run.to_torch(1)(torch.as_tensor((X[:5] - problem.shift) / problem.scale))
        if task == "classes":
            np.testing.assert_allclose(outputs[1], torch.softmax(logits, dim=1).numpy(), rtol=1e-12)
        else:
            np.testing.assert_allclose(
                outputs[1], logits.numpy() * problem.target_scale + problem.target_shift, rtol=1e-12
            )
    with pytest.raises(ValueError, match=r"X must be \(examples, 3 features\)"):
        run.outputs(np.zeros((4, 2)))


def test_a_start_from_a_torch_module_and_back():
    module = torch.nn.Sequential(torch.nn.Linear(2, 20), torch.nn.ReLU(), torch.nn.Linear(20, 1)).double()
    vector = dense.from_torch(module)
    run = short(start=vector, record=[0], steps=1, dtype="float64", weights=True)
    np.testing.assert_array_equal(run.data["weights"].isel(chain=2, record=0), vector)
    again = SMALL.to_torch(vector, 2, 1)
    x = torch.randn(5, 2, dtype=torch.float64)
    assert torch.equal(again(x), module(x))


def test_temperature_and_xi_by_part_rule_and_tensor():
    deep = hb.MLP((20, 10))
    adaptive = hb.AdaptiveLangevin(1e-4, 0.01, 0.1, thermostat="tensor")
    partition = hb.Partition({"hidden": adaptive, "output": hb.Langevin(0.1, 1e-4)}, 0.1)
    run = hb.train(SPIRALS, deep, partition, steps=50, batch=20, chains=2, record=2)
    assert run.temperature("hidden").coords["part"].values.tolist() == ["hidden1", "hidden2"]
    assert run.temperature("hidden2").dims == ("chain", "record")
    assert run.xi("hidden1").coords["thermostat"].values.tolist() == ["hidden1/1", "hidden1/2"]
    with pytest.raises(ValueError, match=r"no xi of 'output': accepted are 'hidden1/1'"):
        run.xi("output")


def test_many_chains_use_their_own_data_sets():
    problem = hb.datasets.spirals(n_train=50, n_test=20, draws=2)
    run = hb.train(
        problem, SMALL, hb.Partition(hb.SGD(), 0.1), 20, 50, chains=4, start=np.full(81, 0.1), record=1
    )
    np.testing.assert_array_equal(run.theta[0], run.theta[2])
    assert np.any(run.theta[0] != run.theta[1])


def test_histograms_count_the_parameters_of_every_part():
    run = short(record=[0, 100], histogram=(-0.5, 0.5, 7), weights=True, dtype="float64")
    histogram, weights = run.data["histogram"], run.data["weights"]
    assert histogram.dims == ("part", "chain", "record", "bin")
    for part, columns in (("hidden", slice(0, 60)), ("output", slice(60, 81))):
        for chain, record in ((0, 0), (2, 1), (1, 2)):
            expected, edges = np.histogram(weights[chain, record, columns], bins=7, range=(-0.5, 0.5))
            counted = histogram.sel(part=part).isel(chain=chain, record=record)
            np.testing.assert_array_equal(counted, expected)
            np.testing.assert_allclose(histogram["bin"], (edges[1:] + edges[:-1]) / 2, atol=1e-15)
    assert "histogram" not in short().data


def test_losses_are_taken_at_every_kth_record_and_the_last():
    run = short(record=5, losses_every=2)
    assert np.isfinite(run.loss("test")[0]).values.tolist() == [False, True, False, True, True]
    assert np.isfinite(run.temperature("hidden")).all()


def test_progress_is_told_what_it_needs():
    seen: list[Progress] = []
    run = short(progress=seen.append)
    assert seen[-1].step == seen[-1].steps == 200
    assert seen[-1].left == 0
    assert seen[-1].speed > 0
    assert seen[-1].loss == pytest.approx(float(run.loss("test")[:, -1].mean()))
    assert seen[-1].accuracy == pytest.approx(float(run.accuracy("test")[:, -1].mean()))
    assert set(seen[-1].temperature) == {"hidden", "output"}


# The law, through the engine


def line_through_data():
    """Return a line through data at 0, a quadratic loss of slope and intercept, and its Hessian."""
    X = np.random.default_rng(0).standard_normal((40, 1))
    problem = hb.datasets.from_arrays(X, 0 * X[:, 0], X_test=X, y_test=0 * X[:, 0], task="regression")
    design = np.hstack([problem.X_train[0], np.ones((40, 1))])
    return problem, design.T @ design / 40


def z_scores(theta, V):
    """Return how far the second moments of the chains' θ are from V, in standard errors."""
    products = theta[:, :, None] * theta[:, None, :]
    return (products.mean(axis=0) - V) / (products.std(axis=0) / np.sqrt(len(products)))


LANGEVIN = [hb.Langevin(1.0, 0.3, word) for word in ("BAOAB", "OBABO", "OBA", "ABOBA", "BAOBA")]
HELD = hb.AdaptiveLangevin(0.3, 0.8, epsilon=0.0, xi=1.1)


@pytest.mark.parametrize("method", [*LANGEVIN, hb.Langevin(np.inf, 0.3), HELD])
def test_the_engine_samples_the_exact_law_on_a_linear_network(method):
    """The covariance over 20,000 chains is that of the Lyapunov equation.

    Statistical: three entries within 4.5 standard errors (error rate 2e-5); a tenth off would be seen.
    """
    problem, hessian = line_through_data()
    partition = hb.Partition(method, 0.9)
    run = hb.train(problem, hb.MLP(()), partition, steps=60, batch=40, chains=20_000, record=1, seed=3)
    V = covariance(partition, hessian, rotated=getattr(method, "word", "") != "BAOBA")[:2, :2]
    assert np.abs(z_scores(run.theta, V)).max() < 4.5
    assert np.abs(z_scores(run.theta, 0.9 * V)).max() > 4.5


def test_the_engines_adaptive_langevin_is_at_its_temperature_whatever_the_mini_batches_do():
    """p² at E, over 4,000 steps and 50 chains, is τ to 1%, and ξ has found the heat of the batches."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    problem = hb.datasets.from_arrays(X, X[:, 0] + rng.standard_normal(200), task="regression")
    partition = hb.Partition(hb.AdaptiveLangevin(0.01, 0.02, 0.5), 0.1)
    run = hb.train(
        problem, hb.MLP(()), partition, 8000, 5, chains=50, record=range(4001, 8001), losses_every=9999
    )
    assert float(run.temperature("all").mean()) == pytest.approx(0.01, rel=0.01)
    assert float(run.xi("all").mean()) > 2 * 0.02**2 / (2 * 0.01)


# Bad input


@pytest.mark.parametrize("bad", [5, (0,), ("a",), (2.5,)])
def test_bad_networks_are_refused(bad):
    with pytest.raises((TypeError, ValueError), match="MLP: "):
        hb.MLP(bad)


# Threads, forks and caches


def test_two_python_threads_can_train_at_once():
    alone = [short(seed=seed, threads=2).theta for seed in (1, 2)]
    results: dict[int, np.ndarray] = {}

    def work(seed):
        results[seed] = short(seed=seed, threads=2).theta

    workers = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    np.testing.assert_array_equal(results[1], alone[0])
    np.testing.assert_array_equal(results[2], alone[1])


TRAIN = """
import numpy as np, heatbath as hb
def final(seed=1):
    problem = hb.datasets.spirals(n_train=200, n_test=100)
    run = hb.train(problem, hb.MLP((20,)), hb.AdLaLa(), 200, 20, chains=3, seed=seed, record=1, threads=2)
    return run.theta
"""


def python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", TRAIN + code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_forked_child_can_train_after_its_parent_has():
    before = short(threads=2).theta

    def again():
        np.testing.assert_array_equal(short(threads=2).theta, before)

    done = run_in_copy(again)
    assert done.returncode == 0, done.stderr
    again()


def test_without_a_cache_folder_it_compiles_and_says_so_once(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    code = "import heatbath.engine.kernels, heatbath.engine.dense"
    done = python(code, HEATBATH_CACHE=str(blocked))
    assert done.stderr.count("compiled code cannot be kept in") == 1
    assert "set HEATBATH_CACHE" in done.stderr


PROBE = """
import numpy as np
from heatbath.engine.batches import shuffle
from heatbath.engine.compile import compiled
from heatbath.engine.simd import pointer_to
from heatbath.engine.layouts import Alone

@compiled(cache=True)
def probe(like, order, words, numbers):
    numbers, words, count = pointer_to(numbers), pointer_to(words), order.shape[0]
    shuffle(Alone(1), pointer_to(like), pointer_to(order), numbers, np.uint64(1), 0, words, count)
"""


def test_an_edited_kernel_does_not_run_stale(tmp_path):
    """A number in a file that is inlined into another: Numba's own cache would miss the edit."""
    package = tmp_path / "heatbath"
    shutil.copytree(Path(hb.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "engine" / "probe.py").write_text(PROBE)
    code = """
import numpy as np
from heatbath.engine.probe import probe
order = np.zeros(50, np.uint32)
probe(np.zeros(1), order, np.empty(256, np.uint32), np.zeros(1, np.uint64))
print(order.tolist(), sum(probe.stats.cache_hits.values()))
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HEATBATH_CACHE": str(tmp_path / "cache")}

    def run():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        result, _, hits = done.stdout.strip().rpartition(" ")
        return result, int(hits)

    first, hits = run()
    assert hits == 0
    assert run() == (first, 1)
    source = (package / "engine" / "random.py").read_text()
    assert "0xD2511F53" in source
    (package / "engine" / "random.py").write_text(source.replace("0xD2511F53", "0xD2511F55"))
    edited, hits = run()
    assert edited != first
    assert hits == 0


def test_results_depend_neither_on_the_process_nor_on_what_is_in_the_cache(tmp_path):
    """Compiled for the first time, from the cache in joblib's workers, and here: the same bits."""
    pytest.importorskip("joblib")
    code = """
from joblib import Parallel, delayed

def final_of_worker(seed):
    from heatbath.engine.loop import run_chains
    return final(seed), sum(run_chains.stats.cache_hits.values())

compiled_now = final(1), final(2)
found = Parallel(n_jobs=2)(delayed(final_of_worker)(seed) for seed in (1, 2))
for expected, (theta, hits) in zip(compiled_now, found, strict=True):
    assert np.array_equal(theta, expected) and hits == 1, hits
from heatbath.engine.loop import run_chains
assert not run_chains.stats.cache_hits
print(compiled_now[0].tobytes().hex())
"""
    done = python(code, HEATBATH_CACHE=str(tmp_path))
    here = hb.train(SPIRALS, SMALL, hb.AdLaLa(), 200, 20, chains=3, seed=1, record=1, threads=1)
    assert here.theta.tobytes().hex() == done.stdout.strip()
