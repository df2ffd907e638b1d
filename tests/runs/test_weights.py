"""Runs on examples with weights: as on copies of them, in steps, records and posteriors."""

from dataclasses import replace

import numpy as np
import pytest

import heatbath as hb
from heatbath.models.likelihood import settle

N, CHAINS = 24, {"alone": 1, "in lanes": 9}
COUNTS = np.random.default_rng(1).integers(1, 5, N)
KNOWN = hb.Partition(hb.Langevin(gamma=1.0), 0.1, hb.Posterior(prior=0.7, noise=0.5, temperature=0.3))
SAMPLED = hb.LaLa(h=0.1, gamma=1.0, posterior=hb.Posterior(temperature=0.3))
CLASSES = hb.LaLa(h=0.1, gamma=1.0, posterior=hb.Posterior(prior=0.7, temperature=0.3))
TEMPERED = hb.LaLa(h=0.1, gamma=1.0, tau=hb.schedules.SimulatedTempering([0.01, 0.02], every=5))


def random_problem(task, inputs=3, **given):
    """Return a problem with random data, of which the first half is also the test set."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1, N, inputs))
    Y = rng.standard_normal((1, N, 2)) if task == "regression" else rng.integers(0, 2, (1, N, 1))
    names = {"regression": ("y", "z"), "binary": ("no", "yes"), "classes": ("a", "b", "c")}[task]
    features = tuple(f"x{i}" for i in range(inputs))
    half = X[:, :12], Y[:, :12]
    return hb.datasets.Problem("random", task, X, Y, *half, features, names, **given)


def with_copies(given):
    """Return a problem with every example as often as it counts."""
    rows, tests = np.repeat(np.arange(N), COUNTS), np.repeat(np.arange(12), COUNTS[:12])
    arrays = {"X_train": rows, "Y_train": rows, "X_test": tests, "Y_test": tests}
    return replace(given, **{name: getattr(given, name)[:, places] for name, places in arrays.items()})


def train_on_all_examples(given, network, partition, chains, steps=120, dtype="float64"):
    batch = given.X_train.shape[1]
    return hb.train(given, network, partition, steps, batch, chains, record=6, samples=6, dtype=dtype)


@pytest.mark.parametrize("chains", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize(
    ("given", "network", "partition"),
    [
        (random_problem("binary", 2), hb.MLP((20,)), CLASSES),  # that network has code of its own
        (random_problem("classes"), hb.MLP((5,), "tanh"), CLASSES),
        (random_problem("regression"), hb.MLP((5,), "tanh"), KNOWN),
        (random_problem("regression"), hb.MLP((5,), "tanh"), SAMPLED),
        (random_problem("binary"), hb.MLP((5,), "tanh"), hb.AdLaLa(h=0.1)),
        (random_problem("classes"), hb.MLP((5,), "tanh"), TEMPERED),
    ],
)
def test_weights_that_are_whole_numbers_are_copies_step_by_step(given, network, partition, chains):
    whole = {"weights_train": COUNTS[None], "weights_test": COUNTS[None, :12]}
    runs = [
        train_on_all_examples(p, network, partition, chains)
        for p in (replace(given, **whole), with_copies(given), given)
    ]
    weighted, copies, plain = (run.data for run in runs)
    for name in ("samples", "p", "loss", "accuracy", *(("noise",) if "noise" in copies else ())):
        np.testing.assert_allclose(weighted[name], copies[name], rtol=1e-10, atol=1e-10, err_msg=name)
    assert not np.allclose(weighted["samples"], plain["samples"], atol=1e-2)
    assert not np.allclose(weighted["loss"].sel(split="test"), plain["loss"].sel(split="test"), rtol=1e-2)


def test_weights_count_where_layers_are_left_to_blas():
    given, network = random_problem("regression"), hb.MLP((130, 130), "tanh")
    whole = {"weights_train": COUNTS[None], "weights_test": COUNTS[None, :12]}
    weighted, copies, plain = (
        train_on_all_examples(p, network, KNOWN, 1, 6, "float32").data
        for p in (replace(given, **whole), with_copies(given), given)
    )
    for name in ("p", "loss"):
        np.testing.assert_allclose(weighted[name], copies[name], rtol=1e-4, atol=1e-6, err_msg=name)
        assert not np.allclose(weighted[name], plain[name], rtol=1e-2, atol=1e-4)


def test_weights_that_are_all_1_change_no_bit_and_their_scale_only_what_a_posterior_is():
    given = random_problem("classes")
    for partition in (hb.AdLaLa(h=0.1), CLASSES):
        for dtype in ("float32", "float64"):
            one, same, thrice = (
                hb.train(p, hb.MLP((5,)), partition, 50, 7, 3, record=2, dtype=dtype).data
                for p in (
                    given,
                    replace(given, weights_train=np.ones((1, N))),
                    replace(given, weights_train=np.full((1, N), 3.0)),
                )
            )
            for name in ("theta", "p", "loss", "accuracy"):
                np.testing.assert_array_equal(one[name], same[name])
            assert np.array_equal(one["theta"], thrice["theta"]) == (partition is not CLASSES)


def test_weights_of_the_test_need_none_of_the_training_and_the_other_way_round():
    """Buffers have room for the wider of the two: in lanes, with small batches, there is none to spare."""
    given, weights = random_problem("binary"), COUNTS[None, :12] / 3
    theta = 0.1 * np.arange(26.0)
    runs = [
        hb.train(p, hb.MLP((5,)), hb.Partition(hb.Frozen(), 0.1), 1, 4, 16, start=theta, record=1)
        for p in (given, replace(given, weights_test=weights), replace(given, weights_train=COUNTS[None]))
    ]
    losses = [run.data["loss"].values[:, 0, -1] for run in runs]
    z = hb.MLP((5,)).forward(theta, given.X_train[0], 1)[:, 0]
    single = np.logaddexp(0, z) - z * given.Y_train[0, :, 0]
    plain, half = single.mean(), single[:12].mean()
    np.testing.assert_allclose(losses[0], [plain, half], rtol=1e-5)
    np.testing.assert_allclose(losses[1], [plain, np.average(single[:12], weights=weights[0])], rtol=1e-5)
    np.testing.assert_allclose(losses[2], [np.average(single, weights=COUNTS), half], rtol=1e-5)


def test_a_run_says_that_its_examples_have_weights_and_needs_none_to_test_on():
    given = hb.datasets.from_arrays(
        np.arange(9.0)[:, None], np.arange(9) % 2, test_share=0.0, weights=[2] * 9
    )
    run = hb.train(given, hb.MLP((5,)), hb.AdLaLa(), 2)
    assert "9 training and 0 test examples with weights" in repr(run)
    assert "with weights" not in repr(
        train_on_all_examples(random_problem("binary"), hb.MLP((5,)), hb.AdLaLa(), 1, 6)
    )


def test_several_draws_of_the_data_have_weights_of_their_own_and_one_sum_in_a_posterior():
    given = random_problem("binary")
    arrays = {
        name: np.tile(getattr(given, name), (2, 1, 1)) for name in ("X_train", "Y_train", "X_test", "Y_test")
    }
    weights = np.stack([COUNTS, COUNTS[::-1]]).astype(float)
    two = replace(given, **arrays, weights_train=weights)
    start = hb.MLP((5,), "tanh").start(3, 1, [0], 0)[0]
    loss = [
        hb.train(p, hb.MLP((5,), "tanh"), CLASSES, 1, N, 2, start=start, record=[0])
        .data["loss"][0, :, 0]
        .values
        for p in (two, replace(given, weights_train=weights[:1]), replace(given, weights_train=weights[1:]))
    ]
    np.testing.assert_array_equal(loss[0], [loss[1][0], loss[2][0]])
    assert loss[0][0] != loss[0][1]
    with pytest.raises(
        ValueError, match=f"the same sum of weights.* from {COUNTS.sum()} to {2 * COUNTS.sum()}"
    ):
        hb.train(replace(two, weights_train=weights * [[1], [2]]), hb.MLP((5,)), CLASSES, 1)
    hb.train(replace(two, weights_train=weights * [[1], [2]]), hb.MLP((5,)), hb.AdLaLa(), 1)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_sum_of_the_weights_is_the_number_of_examples_of_a_posterior(temperature):
    given, network, total = random_problem("regression"), hb.MLP((5,)), COUNTS.sum() / 4
    given = replace(given, weights_train=COUNTS[None] / 4)
    sampled = hb.Partition(hb.Langevin(gamma=1.0), 0.1, hb.Posterior(prior=0.5, temperature=temperature))
    settled = settle(sampled, network, given, 6)
    (part,) = settled.parts
    assert part.method.tau == pytest.approx(temperature / total)
    assert part.method.prior == pytest.approx(1 / (0.5**2 * total))
    assert settled.draws.shape == pytest.approx((2 + total / 2) / temperature - 1)
    many = replace(given, weights_train=np.full((1, N), 100.0))
    assert settle(sampled, network, many, 1).draws.every == 50  # what a draw costs is a matter of rows
    residuals = np.random.default_rng(0).standard_normal(N)
    relative = given.relative_weights("train")[0]
    factor = settled.draws.factor
    assert factor * (relative @ residuals**2) == pytest.approx(COUNTS / 4 @ residuals**2 / 2 / temperature)
    hot = hb.Partition(hb.Langevin(gamma=1.0), 0.1, hb.Posterior(temperature=9.0))
    few = replace(given, weights_train=np.full((1, N), 15 / N))
    with pytest.raises(ValueError, match=r"with 15 examples the temperature must be at most 4\.75, got 9"):
        settle(hot, network, few, 6)
