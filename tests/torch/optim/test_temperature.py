"""Means over the steps of an optimiser: temperatures, friction and their labels."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import heatbath as hb
import heatbath.torch as ht
from heatbath.diagnostics.statistics import Estimate
from heatbath.methods.schedules import Linear
from heatbath.torch.optim.temperature import labels, mean_of_chains
from tests.torch.optim.models import TAU, constant_parameter, make_steps, small_network


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_divergence_shows_in_the_temperature_and_in_xi(fused, wrong):
    a, b = constant_parameter(1.0), constant_parameter(1.0, 40_000)
    optimizer = ht.AdaptiveLangevin([a, b], 0.1, TAU, 0.01, 0.1, fused=fused)
    for _ in range(3):
        a.grad, b.grad = torch.ones(4), torch.ones(40_000)
        b.grad[100] = wrong
        optimizer.step()
    assert not math.isfinite(optimizer.param_groups[0]["xi"])
    (temperature,) = optimizer.temperature().values()
    assert not math.isfinite(temperature.value)


def test_every_part_has_a_label_of_its_own():
    model = small_network()
    first, *others = model.parameters()
    groups = [
        {"params": [first], "part": "hidden"},
        {"params": others[:1], "part": "hidden"},
        {"params": others[1:], "part": "output"},
    ]
    optimizer = ht.AdLaLa(groups)
    make_steps(model, optimizer, 1)
    assert list(optimizer.temperature()) == ["hidden (0)", "hidden (1)", "output (2)"]
    body, head = nn.Sequential(nn.Linear(2, 3), nn.Tanh()), nn.Sequential(nn.Linear(3, 1))
    optimizer = ht.AdLaLa(hidden=body, output=head)
    make_steps(nn.Sequential(body, head), optimizer, 1)
    assert list(optimizer.temperature()) == ["hidden: 0", "output: 0"]


def test_means_are_of_the_coefficients_at_each_step():
    """Friction on a schedule is averaged, and the noise found does not depend on the stepsize of the end."""
    parameter = constant_parameter()
    optimizer = ht.Langevin([parameter], 0.1, Linear(10.0, 0.0, 100), TAU)
    for _ in range(100):
        parameter.grad = torch.zeros(4)
        optimizer.step()
    (friction,) = optimizer.friction().values()
    assert friction.value == pytest.approx(5.05)
    parameter, rng = constant_parameter(size=1000), np.random.default_rng(0)
    optimizer = ht.AdaptiveLangevin([parameter], 0.2, 0.5, 0.1, 0.01)
    for n in range(8000):
        if n == 2000:
            optimizer.forget_past()
        if n == 5000:
            optimizer.param_groups[0]["lr"] = 0.05
        noise = torch.from_numpy(2.0 * rng.standard_normal(1000, np.float32))
        parameter.grad = parameter.detach() + noise
        optimizer.step()
    (found,) = optimizer.gradient_noise().values()
    assert found.value == pytest.approx(4.0, rel=0.1)


def test_the_friction_of_a_part_with_several_thermostats_is_the_mean_over_its_parameters():
    one, many = constant_parameter(size=2), constant_parameter(size=100)
    optimizer = ht.AdaptiveLangevin([one, many], 0.1, 0.5, 0.1, 0.3, thermostat="tensor")
    optimizer.state[many]["momentum"] = torch.ones(100)
    for parameter in (one, many):
        parameter.grad = torch.full_like(parameter, 2.0)
    optimizer.step()
    xi = optimizer.param_groups[0]["xi"]
    assert abs(xi[0] - xi[1]) > 0.1
    (friction,) = optimizer.friction().values()
    assert friction.value == pytest.approx((2 * xi[0] + 100 * xi[1]) / 102)


def test_infinite_friction_is_reported():
    model = small_network()
    optimizer = ht.LOL(model)
    make_steps(model, optimizer, 3)
    assert list(optimizer.friction().values())[1].value == math.inf


@pytest.mark.parametrize("fused", [True, False])
def test_the_configurational_temperature_tells_where_the_kinetic_one_cannot(fused):
    """On a quadratic with exact gradients BACDEDCAB with ξ held is colder in θ than in p.

    It is compared with its exact law, within 4.5 standard errors.
    """
    k, h, tau, xi = 1.0, 0.5, 0.3, 2.0
    method = hb.AdaptiveLangevin(tau, math.sqrt(2 * tau * xi), epsilon=0.0, xi=xi, weight_decay=0.4)
    parameter = nn.Parameter(torch.zeros(20_000, dtype=torch.float64))
    optimizer = ht.Partitioned([{"params": [parameter], "method": method}], h, seed=1, fused=fused)
    for n in range(400):
        if n == 40:
            optimizer.forget_past()
        parameter.grad = (k - 0.4) * parameter.detach()  # the prior has the rest
        optimizer.step()
    (heat,) = optimizer.temperature().values()
    exact = k * hb.quadratic.covariance(hb.Partition(method, h), k - 0.4)[0, 0]
    assert abs(heat.configurational.value - exact) < 4.5 * heat.configurational.error
    assert heat.configurational.error < 0.01 * exact
    assert heat.value > 1.1 * exact


def test_the_configurational_temperature_knows_climbing_and_the_unit_of_the_noise():
    ends = []
    for sign in (1.0, -1.0):
        parameter = constant_parameter(2.0)
        optimizer = ht.Langevin([parameter], 0.1, 1.0, TAU, seed=1, maximize=sign < 0)
        parameter.grad = torch.full((4,), 3.0 * sign)
        optimizer.step()
        ends.append(optimizer.temperature()["0"].configurational.value)
    assert ends == [6.0, 6.0]
    parameter = constant_parameter(2.0)
    posterior = ht.LossPosterior("mse_loss", n=8, prior=1.0, variance=0.25)
    optimizer = ht.Langevin([parameter], 0.1, 1.0, posterior=posterior)
    parameter.grad = torch.full((4,), 3.0)
    decay = optimizer.param_groups[0]["weight_decay"]
    optimizer.step()
    assert optimizer.temperature()["0"].configurational.value == pytest.approx(6.0 / 0.25 + 4.0 * decay)


def test_a_temperature_never_reads_nan():
    """It is so after too few steps, and for a part that has diverged."""
    parameter = constant_parameter(1.0)
    optimizer = ht.AdaptiveLangevin([parameter], 0.1, TAU, 0.01, 0.1)
    assert optimizer.temperature() == {}
    parameter.grad = torch.ones(4)
    optimizer.step()
    (heat,) = optimizer.temperature().values()
    assert heat.error == heat.configurational.error == math.inf
    assert "too few steps for an error" in repr(heat)
    parameter.grad = torch.full((4,), math.nan)
    for _ in range(20):
        optimizer.step()
    assert repr(optimizer.temperature()["0"]).count("not finite: diverged") == 2
    for means in (optimizer.friction(), optimizer.gradient_noise()):
        assert not any(math.isnan(mean.error) for mean in means.values())


def test_the_mean_of_chains_leaves_out_those_that_diverged_unless_all_have():
    mean = mean_of_chains([Estimate(1.0, 0.3), Estimate(2.0, 0.4), Estimate(math.nan, 0.1)])
    assert mean == (1.5, pytest.approx(0.25))  # errors of independent chains
    assert math.isnan(mean_of_chains([Estimate(math.nan, 0.1)]).value)


def test_labels_are_the_shortest_that_tell_groups_apart():
    assert labels([{"name": "fc1", "part": "hidden"}, {"part": "output"}, {}]) == ["fc1", "output", "2"]
    assert labels([{"name": "a", "part": "hidden"}, {"name": "a", "part": "output"}]) == [
        "hidden: a",
        "output: a",
    ]
    assert labels([{"part": "hidden"}, {"part": "hidden"}]) == ["hidden (0)", "hidden (1)"]
