"""Small samplers with their modules and data."""

import pytest
import torch

import heatbath.torch as ht

QUIET = pytest.mark.filterwarnings(
    "ignore::heatbath.torch.NotConvergedWarning", "ignore::heatbath._internal.warnings.OffTemperatureWarning"
)  # of runs that are short on purpose  # of runs that are short on purpose


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def class_examples(n=40):
    x = torch.randn(n, 2, generator=generator())
    return x, (x[:, 0] + 0.5 * torch.randn(n, generator=generator(1)) > 0).long()


def regression_examples(n=60):
    x = torch.randn(n, 2, dtype=torch.float64, generator=generator())
    noise = 0.5 * torch.randn(n, 1, dtype=torch.float64, generator=generator(1))
    return x, x @ torch.tensor([[1.0], [-0.5]], dtype=torch.float64) + 0.3 + noise


def make_network(outputs=2):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.Tanh(), torch.nn.Linear(5, outputs))


def make_sampler(data=None, model=None, loss="cross_entropy", **options):
    options = {"chains": 2, "lr": 0.1, "samples": 8, "seed": 1} | options
    data = class_examples() if data is None else data
    return ht.Sampler(make_network() if model is None else model, loss, data, **options)
