"""Sweeps and comparisons: many points in one run, each as if it had been alone."""

import numpy as np
import pytest

import heatbath as hb
from heatbath.methods.schedules import Linear, SimulatedTempering
from heatbath.runs.grid import points
from tests.runs import SMALL, SPIRALS, differences, same_bits

SHORT = {"steps": 60, "batch": 20, "record": 3, "seed": 5}


def test_the_lists_of_a_partition_span_a_grid_with_the_last_axis_fastest():
    partition = hb.AdLaLa(h=[0.1, 0.2], sigma=[0.0, 0.01, 0.02])
    grid = points(partition)
    assert [tuple(labels.values()) for labels, _ in grid] == [
        (0.1, 0.0), (0.1, 0.01), (0.1, 0.02), (0.2, 0.0), (0.2, 0.01), (0.2, 0.02),
    ]  # fmt: skip
    assert list(grid[0][0]) == ["h", "sigma"]
    for labels, own in grid:
        assert own == hb.AdLaLa(**labels)


def test_a_shared_list_is_one_axis_and_different_lists_are_two():
    assert [own for _, own in points(hb.AdLaLa(tau=[1e-5, 1e-4]))] == [
        hb.AdLaLa(tau=1e-5),
        hb.AdLaLa(tau=1e-4),
    ]
    grid = points(hb.AdLaLa(tau=[1e-5, 1e-4], tau_output=[0.0, 1e-3]))
    assert len(grid) == 4
    for labels, own in grid:
        assert own == hb.AdLaLa(tau=labels["hidden.tau"], tau_output=labels["output.tau"])


def test_a_partition_without_lists_is_one_point():
    assert points(hb.LOL()) == [({}, hb.LOL())]


def test_a_sweep_of_12_points_and_10_repeats_is_120_single_runs_bit_for_bit():
    sigmas, taus = [0.0, 1e-3, 1e-2, 4e-2], [1e-5, 1e-4, 1e-3]
    run = hb.sweep(SPIRALS, SMALL, hb.AdLaLa(sigma=sigmas, tau=taus), chains=10, **SHORT)
    assert run.data.sizes["chain"] == 120
    for sigma in sigmas:
        for tau in taus:
            alone = hb.train(SPIRALS, SMALL, hb.AdLaLa(sigma=sigma, tau=tau), chains=10, **SHORT)
            assert differences(run.select(sigma=sigma, tau=tau), alone) == []
    assert not same_bits(run.select(sigma=0.0, tau=1e-4), run.select(sigma=0.0, tau=1e-3))


def test_the_chains_of_a_sweep_bear_their_coefficients_and_repeats():
    problem = hb.datasets.spirals(n_train=50, n_test=20, draws=2)
    run = hb.sweep(problem, SMALL, hb.AdLaLa(sigma=[0.0, 0.01], tau=[1e-5, 1e-4]), chains=3, **SHORT)
    assert run.data["repeat"].values.tolist() == [0, 1, 2] * 4
    assert run.data["draw"].values.tolist() == [0, 1, 0] * 4
    assert run.data["tau"].values.tolist() == [1e-5] * 6 + [1e-4] * 6
    assert run.data["sigma"].values.tolist() == ([0.0] * 3 + [0.01] * 3) * 2
    chosen = run.accuracy("test").set_index(chain=["tau", "sigma", "repeat"])
    assert float(chosen.sel(tau=1e-4, sigma=0.0, repeat=2)[-1]) == float(run.accuracy("test")[8, -1])


def test_starts_noise_and_batches_depend_on_the_repeat_only():
    """Two points with the same value are the same run; with two draws, each repeat has its data."""
    problem = hb.datasets.spirals(n_train=50, n_test=20, draws=2)
    run = hb.sweep(problem, SMALL, hb.LOL(tau=[1e-3, 1e-3]), chains=3, momenta="thermal", **SHORT)
    np.testing.assert_array_equal(run.theta[:3], run.theta[3:])
    assert len({row.tobytes() for row in run.theta[:3]}) == 3


def test_a_point_of_a_sweep_has_the_starts_of_its_own_chains():
    start = 0.1 * np.random.default_rng(0).standard_normal((4, 81))
    run = hb.sweep(SPIRALS, SMALL, hb.LOL(tau=[1e-4, 1e-3]), chains=2, start=start, **SHORT)
    for i, tau in enumerate([1e-4, 1e-3]):
        alone = hb.train(SPIRALS, SMALL, hb.LOL(tau=tau), chains=2, start=start[2 * i :][:2], **SHORT)
        assert differences(run.select(tau=tau), alone) == []
        assert differences(run.select(tau=tau).replay(), alone) == []


SWEEPS = {
    "h": hb.LOL(h=[0.05, 0.1]),
    "friction": hb.LaLa(0.1, gamma=[0.1, float("inf")], tau=1e-4),
    "where ξ starts": hb.Partition(hb.AdaptiveLangevin(1e-4, 0.01, 0.1, xi=[0.1, 1.0]), 0.1),
    "schedules": hb.LOL(tau=[1e-3, Linear(1e-3, 0.0, 50)]),
    "ladders": hb.Partition(hb.Langevin(0.5, [1e-3, SimulatedTempering([1e-3, 1e-2], every=5)]), 0.1),
    "Adam": hb.Partition(hb.Adam(beta1=[0.5, 0.9], weight_decay=[0.0, 0.1]), 0.01),
    "at the kick": hb.Partition(hb.Langevin(0.5, [1e-4, 1e-2], word="ABOBA"), 0.1),
    "several gradients": hb.Partition(hb.Langevin(0.5, [1e-4, 1e-2], word="BAOBA"), 0.1),
}


@pytest.mark.parametrize("partition", SWEEPS.values(), ids=SWEEPS)
def test_whatever_is_swept_a_point_is_what_train_gives_there(partition):
    options = SHORT | {"momenta": "thermal", "shuffled": True, "samples": 4, "average": SPIRALS.X_test[0, :5]}
    run = hb.sweep(SPIRALS, SMALL, partition, chains=2, **options)
    for labels, own in run.plan.points:
        assert differences(run.select(**labels), hb.train(SPIRALS, SMALL, own, chains=2, **options)) == []


METHODS = {
    "AdLaLa": hb.AdLaLa(),
    "by tensor": hb.Partition(
        {
            "hidden": hb.AdaptiveLangevin(1e-4, 0.01, 0.1, thermostat="tensor"),
            "output": hb.Langevin(0.1, 1e-4),
        },
        0.1,
    ),
    "Adam": hb.Partition(hb.Adam(), 0.005),
    "SGLD": hb.Partition(hb.SGLD(0.01), 0.1),
    "tempered": hb.Partition(hb.Langevin(0.5, SimulatedTempering([1e-3, 1e-2], every=5)), 0.1),
    "colder": hb.AdLaLa(tau=1e-5),
}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_comparison_is_every_method_alone_bit_for_bit(threads):
    options = SHORT | {"histogram": (-1.0, 1.0, 4), "weights": True}
    run = hb.compare(SPIRALS, SMALL, METHODS, chains=3, threads=threads, **options)
    assert run.data["method"].values.tolist() == [name for name in METHODS for _ in range(3)]
    for name, partition in METHODS.items():
        alone = hb.train(SPIRALS, SMALL, partition, chains=3, **options)
        assert differences(run.select(method=name), alone) == []
    adam = run.data["method"] == "Adam"
    assert np.isnan(run.temperature("hidden")[adam]).all()
    assert np.isfinite(run.temperature("hidden")[(run.data["method"] == "AdLaLa").values]).all()


def test_a_diverging_point_of_a_sweep_does_not_harm_the_others():
    partition = hb.Partition(hb.SGD(weight_decay=1.0), [0.1, 1e6])
    with pytest.warns(RuntimeWarning, match="diverged and stopped: chain 2 at step"):
        run = hb.sweep(SPIRALS, SMALL, partition, chains=2, **SHORT)
    assert (run.died >= 0).tolist() == [False, False, True, True]
    alone = hb.train(SPIRALS, SMALL, hb.Partition(hb.SGD(weight_decay=1.0), 0.1), chains=2, **SHORT)
    assert differences(run.select(h=0.1), alone) == []


def test_a_resumed_sweep_may_change_its_coefficients():
    sweep = hb.AdLaLa(sigma=[0.0, 0.01], tau=[1e-5, 1e-4])
    run = hb.sweep(SPIRALS, SMALL, sweep, chains=2, **SHORT)
    cooled = run.resume(40, hb.AdLaLa(h=0.1, sigma=[0.0, 0.01], tau=0.0))
    assert cooled.data["tau"].values.tolist() == run.data["tau"].values.tolist()  # the names stay
    for labels, own in points(sweep):
        alone = hb.train(SPIRALS, SMALL, own, chains=2, **SHORT)
        alone = alone.resume(40, hb.AdLaLa(h=0.1, sigma=labels["sigma"], tau=0.0))
        assert differences(cooled.select(**labels), alone) == []


def test_a_replayed_sweep_has_the_names_of_its_points():
    run = hb.sweep(SPIRALS, SMALL, hb.LOL(tau=[1e-4, 1e-3]), **SHORT).resume(20, hb.LOL(tau=1e-2))
    assert differences(run.replay(), run) == []
    assert run.replay().select(tau=1e-4).step == 80


def test_a_change_comes_in_each_method_of_a_comparison_as_in_that_method_alone():
    """Where θ is seen at the kick the step that has begun is ended first; elsewhere it comes at once."""
    words = {word: hb.Partition(hb.Langevin(0.5, 1e-3, word), 0.1) for word in ("BAOAB", "ABOBA")}
    later = {word: hb.Partition(hb.Langevin(0.5, 1e-2, word), 0.1) for word in words}
    run = hb.compare(SPIRALS, SMALL, words, chains=2, **SHORT).resume(20, later)
    for word, partition in words.items():
        alone = hb.train(SPIRALS, SMALL, partition, chains=2, **SHORT).resume(20, later[word])
        assert differences(run.select(method=word), alone) == []


def test_weights_of_a_part_that_differs_between_methods_are_those_of_a_selected_one():
    methods = {
        "a": hb.Partition({"layer1": hb.SGD(), "rest": hb.SGLD(0.1)}, 0.1),
        "b": hb.Partition({"layer3": hb.SGD(), "rest": hb.SGLD(0.1)}, 0.1),
    }
    run = hb.compare(SPIRALS, hb.MLP((5, 4)), methods, weights=True, **SHORT)
    assert run.select(method="a").weights("rest").sizes["parameter"] == 24 + 5
    with pytest.raises(
        ValueError, match="'rest' has other parameters in each method: select one method first"
    ):
        run.weights("rest")


def test_an_axis_may_be_an_array():
    assert hb.LOL(tau=np.array([1e-4, 1e-3])) == hb.LOL(tau=[1e-4, 1e-3])


def test_one_partition_for_all_methods_of_a_comparison_must_fit_each():
    run = hb.compare(SPIRALS, SMALL, {"warm": hb.LOL(), "hot": hb.LOL(tau=1e-2)}, chains=2, **SHORT)
    cold = run.resume(20, hb.LOL(tau=0.0))
    alone = hb.train(SPIRALS, SMALL, hb.LOL(tau=1e-2), chains=2, **SHORT).resume(20, hb.LOL(tau=0.0))
    assert differences(cold.select(method="hot"), alone) == []
    with pytest.raises(ValueError, match="partition must be a dict for warm, hot"):
        run.resume(20, {"warm": hb.LOL()})


def test_the_error_of_select_lists_the_points():
    run = hb.sweep(SPIRALS, SMALL, hb.AdLaLa(sigma=[0.0, 0.01], tau=[1e-5, 1e-4]), chains=1, **SHORT)
    with pytest.raises(ValueError, match="no axis gamma: this run has tau, sigma"):
        run.select(gamma=1.0)
    with pytest.raises(
        ValueError, match=r"selects 2 points, and one is needed; there are tau: 1e-05, 0.0001; sigma"
    ):
        run.select(tau=1e-4)
    with pytest.raises(ValueError, match="selects 0 points"):
        run.select(tau=3.0, sigma=0.0)
    mixed = hb.sweep(SPIRALS, SMALL, hb.LOL(tau=[1, Linear(1.0, 0.0, 50)]), **SHORT)
    assert mixed.select(tau=1).partition == hb.LOL(tau=1.0)
    assert mixed.select(tau=Linear(1.0, 0.0, 50)).partition == hb.LOL(tau=Linear(1.0, 0.0, 50))
