"""Simulated tempering in an optimiser: rungs, moves, and what is refused."""

import numpy as np
import pytest
import torch

import heatbath as hb
import heatbath.torch as ht
from heatbath.methods.schedules import SimulatedTempering
from heatbath.torch.optim import simulated_tempering
from tests.torch.optim.models import constant_parameter, small_network


def test_a_tempered_group_shows_the_temperature_of_its_rung():
    parameter = constant_parameter()
    optimizer = ht.Langevin([parameter], 0.1, 1.0, SimulatedTempering([0.1, 0.2, 0.4], every=100))
    (group,) = optimizer.param_groups

    def closure():
        parameter.grad = torch.zeros(4)
        return torch.tensor(1.0)

    for rung, tau in ((0, 0.1), (2, 0.4), (1, 0.2)):
        group["rung"] = rung
        optimizer.step(closure)
        assert (group["rung"], group["tau"]) == (rung, tau)


def test_minimising_and_maximising_are_tempered_alike():
    """Maximising -L is minimising L: the same rungs."""
    rungs = []
    for sign, maximize in ((1, False), (-1, True)):
        parameter = constant_parameter(1.0)
        ladder = SimulatedTempering([1.0, 2.0], every=1)
        optimizer = ht.Langevin([parameter], 0.1, 1.0, ladder, seed=0, maximize=maximize)

        def closure(sign=sign, parameter=parameter):
            parameter.grad = sign * torch.ones(4)
            return sign * 3.0

        seen = rungs.append([]) or rungs[-1]
        for _ in range(40):
            optimizer.step(closure)
            seen.append(optimizer.param_groups[0]["rung"])
    assert rungs[0] == rungs[1]
    assert 0 < sum(rungs[0]) < 40


def test_tempering_is_refused_early_where_it_cannot_work():
    model = small_network()
    ladder = SimulatedTempering([1e-3, 1e-2], every=100)
    optimizer = ht.Langevin(model, 0.1, 1.0, ladder)
    with pytest.raises(RuntimeError, match="a closure that returns the loss of all data, got None"):
        optimizer.step(lambda: None)
    other = SimulatedTempering([1e-3, 1e-2, 1e-1], every=100)
    with pytest.raises(ValueError, match="all tempered groups must have the same ladder"):
        ht.Partitioned(
            [
                {"params": model[0].parameters(), "method": hb.Langevin(1.0, ladder)},
                {"params": model[2].parameters(), "method": hb.Langevin(1.0, other)},
            ],
            0.1,
        )


def test_losses_of_a_closure_are_one_for_each_chain_or_refused():
    losses = simulated_tempering._losses_of_chains
    np.testing.assert_array_equal(losses(torch.tensor([[1.0], [2.0]]), 2), [1.0, 2.0])
    np.testing.assert_array_equal(losses(3, 1), [3.0])
    with pytest.raises(RuntimeError, match="returns the 2 losses of all data, one of each chain"):
        losses(torch.tensor(1.0), 2)
    with pytest.raises(RuntimeError, match="returns the loss of all data, got None"):
        losses(None, 1)
