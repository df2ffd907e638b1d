"""States of modules: fingerprints of tensors, and what counts as a tensor of a state."""

import pytest
import torch
from torch import nn

from heatbath.torch.optim.chains import Chains
from heatbath.torch.prediction.states import (
    fingerprint,
    has_fingerprint,
    is_chains,
    names_text,
    select_tensors,
    single_module,
)


def test_a_fingerprint_is_sum_and_norm_of_real_complex_and_empty_tensors():
    assert fingerprint(torch.tensor([3.0, -4.0])) == (-1.0, 5.0)
    assert fingerprint(torch.tensor([3 - 4j])) == (-1.0, 5.0)
    assert fingerprint(torch.tensor([2**60, 1, -(2**60)])).total == 1.0
    assert fingerprint(torch.zeros(0)) == (0.0, 0.0)


@pytest.mark.parametrize(("change", "is_same"), [(0.0, True), (1e-14, True), (1e-9, False)])
def test_a_fingerprint_allows_for_rounding_only(change, is_same):
    value = torch.ones(50, dtype=torch.float64)
    assert has_fingerprint(value + change, fingerprint(value)) is is_same


def test_chains_are_known_by_their_class_and_not_by_an_attribute():
    model = nn.Linear(2, 1)
    chains = Chains(model, 2)
    model.are_chains = True
    assert is_chains(chains)
    assert not is_chains(model)
    assert single_module(chains) is chains.model
    assert single_module(model) is model


def test_extra_state_and_other_objects_are_no_tensors_of_a_state():
    state = {"weight": torch.ones(1), "a._extra_state": torch.ones(1), "_extra_state": 3, "text": "x"}
    assert list(select_tensors(state)) == ["weight"]


def test_names_beyond_the_limit_are_counted():
    assert names_text([]) == "none"
    assert names_text(["a", "b", "c"], limit=2) == "'a', 'b' and 1 more"
