"""Trajectories of a sampler: changes between steps are seen, records are merged, and steps are lean."""

import copy
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import heatbath
import heatbath.torch as ht
from heatbath.torch.optim.sharding import complete_sums
from heatbath.torch.sampling.records import SampleRecord
from heatbath.torch.sampling.trajectory import merge_dropped

pytestmark = pytest.mark.filterwarnings(
    "ignore::heatbath.torch.NotConvergedWarning", "ignore::heatbath._internal.warnings.OffTemperatureWarning"
)
STEPS_BEFORE, STEPS_AFTER = 5, 7


def make_examples():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, generator=generator)
    return x, (x[:, 0] > 0).long()


def make_network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


def make_sampler():
    return ht.Sampler(make_network(), "cross_entropy", make_examples(), chains=2, lr=0.1, seed=1)


def run_by_hand(change):
    """Return the chains of a training loop without a sampler, whose optimiser changes after some steps."""
    x, y = make_examples()
    chains = ht.Chains(copy.deepcopy(make_network()).eval(), 2, "same")
    optimizer = ht.Langevin(chains, 0.1, 0.3, posterior=ht.LossPosterior("cross_entropy", len(x)), seed=1)
    for step in range(STEPS_BEFORE + STEPS_AFTER):
        if step == STEPS_BEFORE:
            change(optimizer)
        optimizer.zero_grad()
        chains.each(F.cross_entropy, chains(x), y).sum().backward()
        optimizer.step()
    return chains


def halve_stepsize(optimizer):
    for group in optimizer.param_groups:
        group["lr"] = 0.05


def raise_friction_of_group(optimizer):
    optimizer.param_groups[0]["gamma"] = 2.0


def change_word(optimizer):
    for group in optimizer.param_groups:
        group["word"] = "OBABO"


def add_prior(optimizer):
    optimizer.param_groups[0]["weight_decay"] = 0.5


def raise_number_of_examples(optimizer):
    optimizer.set_examples(80)


@pytest.mark.parametrize(
    "change", [halve_stepsize, raise_friction_of_group, change_word, add_prior, raise_number_of_examples]
)
def test_a_change_of_the_optimiser_between_two_steps_is_seen(change):
    """It equals the loop by hand with the same change; the control without the change differs."""
    sampler = make_sampler().run(steps=STEPS_BEFORE)
    change(sampler._trajectory.optimizer)
    sampler.run(steps=STEPS_AFTER)
    expected, control = run_by_hand(change).state_dict(), run_by_hand(lambda optimizer: None).state_dict()
    for name, value in sampler.chains.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-6, atol=1e-7)
        assert not torch.allclose(value, control[name], rtol=1e-4)


@pytest.mark.parametrize(("key", "value"), [("lr", -1.0), ("gamma", -0.1), ("tau", -1e-3), ("word", "BAB")])
def test_a_wrong_value_between_two_steps_is_refused(key, value):
    sampler = make_sampler().run(steps=STEPS_BEFORE)
    sampler._trajectory.optimizer.param_groups[0][key] = value
    with pytest.raises(ValueError, match=key):
        sampler.run(steps=1)
    assert sampler.step == STEPS_BEFORE


def test_temperatures_are_in_units_of_the_present_temperature():
    first, second = (make_sampler().run(steps=STEPS_BEFORE) for _ in range(2))
    for group in second._trajectory.optimizer.param_groups:
        group["tau"] *= 4
    ratios = [sampler._trajectory._temperature_ratios() for sampler in (first, second)]
    assert np.isnan(ratios[0]).all()  # a record was just made, and the means start again
    for sampler in (first, second):
        sampler.run(steps=1)
    ratios = [sampler._trajectory.records[STEPS_BEFORE + 1].temperatures for sampler in (first, second)]
    np.testing.assert_allclose(ratios[1][:, 1], ratios[0][:, 1] / 4, rtol=1e-6)  # θ has not moved between


def test_temperatures_of_dropped_samples_are_merged_into_the_next_sample():
    records = {
        step: SampleRecord(np.zeros(1), np.full((1, 2, 1), float(step)), np.zeros(1)) for step in range(1, 8)
    }
    merged = merge_dropped(records, [2, 4, 7])
    assert list(merged) == [2, 4, 7]
    assert [record.temperatures.item(0) for record in merged.values()] == [1.5, 3.5, 6.0]
    assert records[2].temperatures.item(0) == 2.0  # the records given don't change


def test_a_chain_whose_terms_are_infinite_with_both_signs_has_no_temperature_and_stops_nothing():
    """θ·∇L of one layer is inf and of another -inf; the sum is NaN, and the other chain continues."""
    sampler = make_sampler().run(steps=STEPS_BEFORE)
    first, last = sampler.chains.model[0].weight, sampler.chains.model[2].bias
    with torch.no_grad():
        sampler.chains.of(first)[0, 0, 0] = math.inf
        sampler.chains.of(last)[0, 0] = -math.inf
    with pytest.warns(heatbath.DivergedWarning, match="chains 0 diverged"):
        sampler.run(steps=STEPS_AFTER)
    assert torch.isfinite(sampler.chains.of(first)[1]).all()


def test_sums_of_infinite_terms_are_nan():
    terms = [torch.tensor(math.inf), torch.tensor(-math.inf)]
    assert math.isnan(complete_sums([terms], [[None, None]])[0])
    assert complete_sums([[torch.tensor(1.5), torch.tensor(2.0)]], [[None, None]]) == [3.5]


def count_calls(steps):
    """Return the number of Python calls inside heatbath in a run of this many steps."""
    root, count = str(Path(heatbath.__file__).parent), 0

    def profile(frame, event, _):
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(root)

    sampler = make_sampler()
    sys.setprofile(profile)
    try:
        sampler.run(steps=steps)
    finally:
        sys.setprofile(None)
    return count


def test_steps_repeat_no_work():
    """110 calls per step and 3,300 of set-up; there were 437 and 16,500 when each step checked everything."""
    count_calls(10)  # imports and compilation
    first, second = count_calls(100), count_calls(200)
    assert second - first < 125 * 100
    assert 2 * first - second < 4000
