"""Small models and their steps, for the tests of the optimisers."""

import torch
from torch import nn

TAU = 1e-3  # a temperature
BLOCKS = {  # shape of a parameter, and size and offset of a block of it
    "rows": ((300, 200), (150, 200), (150, 0)),
    "one row": ((300, 200), (1, 200), (299, 0)),
    "columns": ((300, 200), (300, 90), (0, 110)),
    "in the middle": ((30, 40, 50), (10, 7, 50), (3, 20, 0)),
    "of a vector": ((50_000,), (20_000,), (30_000,)),
    "empty": ((5, 4), (0, 4), (5, 0)),
    "whole": ((5, 4), (5, 4), (0, 0)),
    "a scalar": ((), (), ()),
}


def small_network(kind=torch.float32, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 1)).to(kind)


def compute_gradients(model, optimizer):
    optimizer.zero_grad()
    kind = next(model.parameters()).dtype
    loss = model(torch.ones(4, 2, dtype=kind)).square().mean()
    loss.backward()
    return loss


def make_steps(model, optimizer, count):
    for _ in range(count):
        compute_gradients(model, optimizer)
        optimizer.step()


def constant_parameter(value=0.0, size=4, kind=torch.float32):
    return nn.Parameter(torch.full((size,), value, dtype=kind))
