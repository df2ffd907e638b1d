"""Kinetic and configurational temperatures of runs."""

import math
from statistics import NormalDist

import numpy as np
import pytest

import heatbath as hb
from heatbath import diagnostics as d
from tests.diagnostics.linear import LINEAR, QUADRATIC, interval_holds, run_on_quadratic
from tests.runs import SMALL, SPIRALS


@pytest.mark.parametrize("tau", [1e-3, 0.4])
@pytest.mark.parametrize("word", ["BAOAB", "OBA"])
def test_a_langevin_part_has_the_kinetic_temperature_of_the_exact_law(tau, word):
    """Before O: τ for BAOAB at any h, and far from it for OBA, which is seen. Error rate 1e-5."""
    partition = hb.Partition(hb.Langevin(1.0, tau, word, weight_decay=0.2), 0.8)
    options = {"chains": 16, "record": 500, "dtype": "float64", "seed": 1}
    run = hb.train(QUADRATIC, LINEAR, partition, 5000, 40, **options)
    X = np.column_stack([QUADRATIC.X_train[0], np.ones(40)])
    K = X.T @ X / 40 + 0.2 * np.eye(4)
    law = hb.quadratic.covariance(hb.Partition(hb.Langevin(1.0, tau, word), 0.8), K, rotated=False)
    exact = tau if word == "BAOAB" else np.trace(law[4:, 4:]) / 4  # the end of OBA is before the next O
    table = d.equipartition(run, burn_in=500)
    assert table["part"].values.tolist() == ["all"]
    assert table["target"].values.tolist() == [tau]
    assert interval_holds(table, "all", exact, width=2.3)
    assert float(table["high"][0] - table["low"][0]) < 0.1 * tau
    assert float(table["ratio"][0]) == pytest.approx(float(table["temperature"][0]) / tau)
    off = float(abs(table["temperature"] - tau)[0] / (table["high"] - table["low"])[0]) * 2 * 1.96
    assert float(table["p_value"][0]) == pytest.approx(2 * NormalDist().cdf(-off), rel=1e-6, abs=1e-12)
    assert table["verdict"].values.tolist() == ["differs" if word == "OBA" else "agrees"]


def test_small_steps_agree_with_the_target_and_a_wrong_target_does_not():
    run = run_on_quadratic(0.05, h=0.1)
    table = d.equipartition(run, burn_in=2000)
    assert table["verdict"].values.tolist() == ["agrees"]
    assert interval_holds(table, "all", 0.05)
    late = hb.schedules.Piecewise([0.05, 0.07], [19_999])
    table = d.equipartition(run_on_quadratic(late, h=0.1), burn_in=2000)
    assert table["target"].values.tolist() == [0.07]  # the target at the last step
    assert table["verdict"].values.tolist() == ["differs"]


def test_the_burn_in_does_not_count():
    """A hot start: what was before burn_in, in steps, would be far off."""
    run = run_on_quadratic(0.01, start=np.full(4, 100.0), gamma=0.5)
    assert float(d.equipartition(run, burn_in=1000)["temperature"][0]) == pytest.approx(0.01, rel=0.1)
    assert float(d.equipartition(run)["temperature"][0]) > 0.02


@pytest.mark.parametrize("word", ["BAOAB", "ABOBA"])
def test_final_momenta_have_the_law_between_two_steps(word):
    """τ for a rotated BAOAB at any h, and more for ABOBA, which is seen at the kick. Error rate 1e-5."""
    partition = hb.Partition(hb.Langevin(1.0, 0.02, word), 0.9)
    run = hb.train(QUADRATIC, LINEAR, partition, 200, 40, chains=1500, record=1, dtype="float64")
    X = np.column_stack([QUADRATIC.X_train[0], np.ones(40)])
    exact = np.trace(hb.quadratic.covariance(partition, X.T @ X / 40)[4:, 4:]) / 4
    assert (exact == pytest.approx(0.02)) == (word == "BAOAB")
    table = d.equipartition(run, by="layer")
    assert interval_holds(table, "layer1", exact, width=2.3)
    assert table["verdict"].values.tolist() == ["agrees" if word == "BAOAB" else "differs"]


def test_an_adaptive_part_is_at_its_temperature_on_mini_batches_and_a_langevin_part_is_not():
    """Gradient noise heats the one, and the thermostat removes it from the other."""
    run = hb.train(
        SPIRALS,
        SMALL,
        hb.AdLaLa(h=0.1, tau=1e-3, gamma=0.1, tau_output=1e-4),
        20_000,
        5,
        chains=8,
        record=1000,
    )
    table = d.equipartition(run, burn_in=5000)
    assert table["verdict"].values.tolist() == ["agrees", "differs"]
    assert float(table.sel(part="output")["ratio"]) > 1.5


def test_layers_are_read_from_the_final_momenta_over_chains():
    """At small h each has the τ of the part it belongs to; the hidden layers each have a row."""
    methods = {"hidden": hb.Langevin(1.0, 0.02, weight_decay=0.1), "output": hb.Langevin(1.0, 0.001)}
    run = hb.train(
        SPIRALS, hb.MLP((10, 10)), hb.Partition(methods, 0.002), 500, 20, chains=40, momenta="thermal"
    )
    table = d.equipartition(run, by="layer")
    assert table["layer"].values.tolist() == ["layer1", "layer2", "layer3"]
    assert table["target"].values.tolist() == [0.02, 0.02, 0.001]
    ends = [0, 30, 140, 151]
    for place, name in enumerate(table["layer"].values):
        own = (run.p[:, ends[place] : ends[place + 1]].astype(float) ** 2).mean(axis=1)
        assert float(table["temperature"][place]) == pytest.approx(own.mean(), rel=1e-5)
        assert interval_holds(table, name, float(table["target"][place]), width=2)
        assert not interval_holds(table, name, 1.5 * float(table["target"][place]), width=2)
    parts = d.equipartition(run, burn_in=100)
    assert parts["part"].values.tolist() == ["hidden1", "hidden2", "output"]
    assert len(table.to_pandas()) == 3


def test_parts_without_a_temperature_are_left_out_and_dead_chains_too():
    start = np.tile(SMALL.start(2, 1, [0], 1), (3, 1))
    start[1, 60:] = 3e38
    partition = hb.Partition({"hidden": hb.LOL().methods["hidden"], "output": hb.SGD()}, 0.1)
    with pytest.warns(RuntimeWarning, match="diverged"):
        run = hb.train(SPIRALS, SMALL, partition, 400, 20, chains=3, start=start)
    for by, name in (("part", "hidden"), ("layer", "layer1")):
        table = d.equipartition(run, by=by)
        assert table[by].values.tolist() == [name]
        assert np.isfinite(table["temperature"].values).all()
    left = (run.p[[0, 2], :60] ** 2).mean()
    assert float(d.equipartition(run, by="layer")["temperature"][0]) == pytest.approx(left, rel=1e-5)
    noise = d.gradient_noise(run)
    assert np.isnan(noise.sel(chain=1)).all()
    assert (noise.sel(chain=[0, 2]) > 0).all()


def test_a_single_short_chain_is_unknown_and_what_has_no_target_is_refused():
    run = hb.train(SPIRALS, SMALL, hb.LOL(), 20, 20, record=10)
    table = d.equipartition(run, burn_in=4)
    assert set(table["verdict"].values) == {"unknown"}
    assert math.isnan(table.sel(part="output")["ratio"])  # of τ = 0
    with pytest.raises(ValueError, match="burn_in must be a whole number >= 0 and < 20"):
        d.equipartition(run, burn_in=20)
    with pytest.raises(ValueError, match="no part of this run has a temperature"):
        d.equipartition(hb.train(SPIRALS, SMALL, hb.Partition(hb.Adam(), 0.005), 20, 20))
    with pytest.raises(ValueError, match="not evenly spaced"):
        d.equipartition(hb.train(SPIRALS, SMALL, hb.LOL(), 20, 20, record=[1, 2, 10]))
    swept = hb.sweep(SPIRALS, SMALL, hb.LOL(tau=[1e-4, 1e-3]), 20, 20, samples=5)
    for function in (d.equipartition, d.configurational, d.gradient_noise):
        with pytest.raises(ValueError, match=r"differ in tau: select one of its 2 points first"):
            function(swept)
        function(swept.select(tau=1e-3))
    for function in (d.equipartition, d.configurational, d.gradient_noise, d.convergence):
        with pytest.raises(TypeError, match="run must be a Run"):
            function(run.theta)
    ladder = hb.schedules.SimulatedTempering([1e-4, 1e-3])
    tempered = hb.train(SPIRALS, SMALL, hb.Partition(hb.Langevin(1.0, ladder), 0.1), 20, 20)
    with pytest.raises(ValueError, match="'all' is tempered"):
        d.equipartition(tempered)
    with pytest.raises(ValueError, match="by must be one of 'part', 'layer'"):
        d.equipartition(run, by="tensor")
    with pytest.raises(ValueError, match="train with samples=N"):
        d.configurational(run)


@pytest.mark.parametrize(("tau", "h"), [(0.003, 0.2), (0.003, 1.0), (0.5, 1.0), (2.0, 0.6)])
def test_the_virial_of_baoab_is_its_tau_on_a_quadratic_at_any_h(tau, h):
    """Exact there for BAOAB; OBABO is at τ/(1 - h²k/4), which is found as well. Error rate 1e-5."""
    K = np.array([[2.0, 0.4], [0.4, 1.0]])
    centre = np.array([0.1, -0.2])

    def gradient(theta, batch=None):
        return (theta - centre) @ K

    for word in ("BAOAB", "OBABO"):
        partition = hb.Partition(hb.Langevin(1.5, tau, word=word), h)
        chains = hb.Reference(gradient, np.tile(centre, (400, 1)), partition, {"fc": (2,)}, seed=3)
        chains.advance(50)
        samples = []
        for _ in range(12):
            chains.advance(6)
            samples.append(chains.state.theta.copy())
        found = d.virial(np.stack(samples, axis=1), gradient)
        exact = np.trace(K @ hb.quadratic.covariance(partition, K, {"fc": (2,)})[:2, :2]) / 2
        assert abs(found.value - exact) < 4.5 * found.error
        assert found.error < 0.1 * tau
        if word == "OBABO" and h == 1.0:
            assert abs(found.value - tau) > 4.5 * found.error
        if word == "BAOAB":
            assert exact == pytest.approx(tau, rel=1e-10)


@pytest.mark.parametrize(("tau", "h"), [(0.01, 0.3), (0.01, 1.0), (0.3, 1.0)])
def test_the_samples_of_a_run_have_the_configurational_temperature_tau(tau, h):
    """The prior is part of U, and the minimum is not at 0. BAOAB is exact here. Error rate 1e-5."""
    run = run_on_quadratic(tau, h=h, chains=40, steps=6000, samples=100, burn_in=1000)
    table = d.configurational(run)
    assert interval_holds(table, "all", tau, width=2.3)
    assert float(table["high"][0] - table["low"][0]) < 0.3 * tau
    assert table["target"].values.tolist() == [tau]
    theta = run.data["samples"].values
    X, Y = QUADRATIC.X_train[0], QUADRATIC.Y_train[0]
    errors = theta[..., :3] @ X.T + theta[..., 3:] - Y[:, 0]
    force = np.concatenate([errors @ X, errors.sum(axis=-1, keepdims=True)], axis=-1) / 40 + 0.2 * theta
    expected = d.virial(theta, lambda _: force)
    assert float(table["temperature"][0]) == pytest.approx(expected.value, rel=1e-9)
    assert float(table["high"][0]) == pytest.approx(expected.interval[1], rel=1e-9)


def test_without_a_prior_weights_grow_and_the_virial_is_negative():
    run = hb.train(SPIRALS, SMALL, hb.AdLaLa(h=0.25), 4000, 20, chains=4, samples=40, burn_in=2000)
    assert (d.configurational(run)["high"] < 0).all()
    sizes = (run.data["samples"] ** 2).sum("parameter")
    assert (sizes.isel(sample=-1) > 1.2 * sizes.isel(sample=0)).all()
