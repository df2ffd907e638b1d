"""Running statistics of batch norms: finding, copying and renewing them, and the modes of submodules."""

import pytest
import torch
from torch import nn

from heatbath._internal.warnings import StaleStatisticsWarning
from heatbath.torch.prediction.batchnorm import (
    copy_statistics,
    evaluation_mode,
    find_norms,
    has_training_norms,
    renew_statistics,
    warn_of_stale_statistics,
)
from heatbath.torch.prediction.samples import Samples


def model_with_norms():
    """Return a model with a batch norm, an instance norm, and norms without running statistics."""
    return nn.Sequential(
        nn.Linear(2, 3),
        nn.BatchNorm1d(3, momentum=0.3),
        nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False), nn.LayerNorm(3)),
        nn.InstanceNorm1d(3, track_running_stats=True).eval(),
    )


def test_norms_with_running_statistics_are_found_by_name():
    assert list(find_norms(model_with_norms())) == ["1", "3"]
    assert list(find_norms(nn.BatchNorm1d(3))) == [""]


def test_statistics_are_copied_under_their_names_in_the_state():
    norm = nn.BatchNorm1d(3)
    copies = copy_statistics(nn.Sequential(norm))
    assert list(copies) == ["0.running_mean", "0.running_var", "0.num_batches_tracked"]
    norm.running_mean += 1.0
    assert copies["0.running_mean"].tolist() == [0.0, 0.0, 0.0]
    assert "running_mean" in copy_statistics(norm)


def test_only_norms_in_training_mode_change_their_statistics():
    model = model_with_norms()
    assert has_training_norms(model)
    model[1].eval()
    assert not has_training_norms(model)  # the rest of the model is still in training mode


def test_momenta_and_modes_are_restored_and_an_error_restores_the_statistics():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, momentum=0.3), nn.Dropout())
    model[1].eval()
    renew_statistics(model, torch.randn(10, 2, generator=torch.Generator().manual_seed(0)))
    assert model[1].momentum == 0.3
    assert [module.training for module in model] == [True, False, True]
    renewed = copy_statistics(model)
    with pytest.raises(ValueError, match="the loader has no batches: give one that has"):
        renew_statistics(model, iter([]))
    torch.testing.assert_close(copy_statistics(model), renewed, rtol=0, atol=0)
    assert model[1].momentum == 0.3


def test_every_submodule_gets_its_mode_back_after_an_error():
    model = model_with_norms()
    modes = [module.training for module in model.modules()]
    with evaluation_mode(model):
        assert not any(module.training for module in model.modules())

    @evaluation_mode(model)
    def fail():
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [module.training for module in model.modules()] == modes


def test_samples_taken_in_training_mode_are_warned_of_until_they_are_renewed():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    samples = Samples(model)
    samples.take()
    with pytest.warns(StaleStatisticsWarning, match="1 of 1 samples of Sequential"):
        warn_of_stale_statistics(model, samples)
    samples.renew(torch.randn(5, 2, generator=torch.Generator().manual_seed(0)))
    warn_of_stale_statistics(model, samples)
    warn_of_stale_statistics(model, iter([model.state_dict()]))
