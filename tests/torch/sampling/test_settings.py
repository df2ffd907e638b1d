"""Arguments and settings of a sampler: what is refused, and what the data tell."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F

import heatbath.torch as ht
from heatbath.torch.sampling.batches import ChainBatches
from heatbath.torch.sampling.settings import SamplerSettings, align_shapes, regression_variances
from tests.torch.sampling.models import class_examples, make_network, make_sampler


def test_an_error_names_all_wrong_arguments():
    x, y = class_examples()
    with pytest.raises(
        ValueError, match=r"model must be.*loss must be.*data must be.*chains must.*lr, unless"
    ):
        ht.Sampler(F.relu, "hinge", x, chains=0, lr=-1.0)
    frozen = make_network().requires_grad_(False)
    with pytest.raises(ValueError, match=r"no parameter.*task, which a loss function needs.*as many targets"):
        ht.Sampler(frozen, F.cross_entropy, (x, y[:3]))
    with pytest.raises(ValueError, match=r"one of them, or none.*steps must be.*progress must be"):
        make_sampler().run(steps=0, seconds=3.0, progress=3)


@pytest.mark.parametrize(("examples", "batch"), [(256, 256), (257, 128)])
def test_small_tables_are_seen_whole_at_every_step_and_larger_ones_in_batches(examples, batch):
    x, y = torch.randn(examples, 2), torch.randn(examples, 1)
    sampler = ht.Sampler(torch.nn.Linear(2, 1), F.mse_loss, (x, y), task="regression")
    assert sampler.settings.batch == batch


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"task": "binary"}, "the task of cross_entropy is 'classes'"),
        ({"loss": F.mse_loss, "task": "sums"}, "task, which a loss function needs, must be one of"),
        ({"data": [(class_examples())], "batch": 3}, "batch applies to tensors"),
        ({"data": []}, "no batches"),
        ({"batch": 0}, "batch must be"),
        ({"gamma": 0.0}, "gamma must be"),
        ({"temperature": 0.0}, "temperature must be"),
        ({"samples": 2}, "samples must be"),
        ({"seed": -1}, "seed must be"),
        ({"prior": -1.0}, "prior"),
        ({"noise": 0.1}, "noise is for mse_loss"),
        ({"model": make_network(1)}, "'classes' needs an output for each class"),
        ({"model": torch.nn.Linear(3, 2)}, "does not take inputs"),
        ({"data": (class_examples()[0], class_examples()[1] + 5)}, "whole numbers from 0 to 1"),
        ({"loss": "mse_loss"}, "targets of the shape of the outputs"),
        ({"loss": lambda f, y: f, "task": "classes"}, "one number for a batch"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(wrong, match):
    with pytest.raises(ValueError, match=match):
        make_sampler(**wrong)


def test_the_posterior_is_made_once():
    settings = make_sampler().settings
    assert settings.posterior is settings.posterior


def regression_data(count=40):
    """Return float64 examples (x, y) with targets 2 x + 1 and alternating residuals of ±0.5, as batches."""
    x = torch.linspace(-1, 1, count, dtype=torch.float64)[:, None]
    residuals = 0.5 * (-1.0) ** torch.arange(count, dtype=torch.float64)[:, None]
    return ChainBatches((x, 2 * x + 1 + residuals), None, chains=2, seed=0, device=torch.device("cpu"))


def line(slope=2.0, intercept=1.0):
    model = torch.nn.Linear(1, 1).double()
    torch.nn.init.constant_(model.weight, slope)
    torch.nn.init.constant_(model.bias, intercept)
    return model


def test_a_regression_has_the_variance_of_its_targets_and_the_mean_square_of_its_residuals():
    data = regression_data()
    variance, residual_variance = regression_variances(line(), data)
    assert variance == pytest.approx(data.data[1].var(correction=0).item())
    assert residual_variance == pytest.approx(0.25)


def test_a_perfect_fit_leaves_a_residual_variance_above_zero():
    x = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
    data = ChainBatches((x, 2 * x + 1), None, chains=1, seed=0, device=torch.device("cpu"))
    variance, residual_variance = regression_variances(line(), data)
    assert residual_variance == pytest.approx(1e-12 * variance, abs=0)


def test_targets_that_do_not_vary_and_outputs_that_are_not_finite_are_refused():
    x = torch.ones(9, 1, dtype=torch.float64)
    constant = ChainBatches((x, x), None, chains=1, seed=0, device=torch.device("cpu"))
    with pytest.raises(ValueError, match="the targets of a regression must vary"):
        regression_variances(line(), constant)
    with pytest.raises(ValueError, match="outputs must be finite"):
        regression_variances(line(slope=float("inf")), regression_data())


def test_settings_survive_a_file_under_the_names_that_files_have():
    kept = make_sampler(prior="fan_in").settings
    plain = kept.to_plain()
    assert plain["variance"] == kept.target_variance
    assert plain["squares"] == kept.residual_variance
    assert plain["own"] == kept.separate_batches
    assert SamplerSettings.from_plain(plain) == kept


def test_classes_have_a_row_for_each_target_and_values_a_row_for_each_example():
    rows, targets = align_shapes("classes", torch.zeros(5, 4, 3), torch.zeros(5, 4))
    assert (rows.shape, targets.shape) == ((20, 3), (20,))
    rows, targets = align_shapes("regression", torch.zeros(5, 4, 3), torch.zeros(5, 12))
    assert (rows.shape, targets.shape) == ((5, 12), (5, 12))


@pytest.mark.parametrize(("batch", "steps"), [(40, 4), (4, 34), (1, 134)])
def test_the_noise_is_drawn_so_rarely_that_it_costs_a_tenth_of_the_work_at_most(batch, steps):
    """A draw costs a forward pass over 40 examples, and a step three passes over its batch."""
    settings = dataclasses.replace(make_sampler().settings, batch=batch)
    assert settings.steps_per_draw == steps
    assert 0.1 * 3 * batch * (steps + 1) >= 40 or steps == 4
