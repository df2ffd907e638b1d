"""Gradients of dense networks by the engine and by torch, on random data."""

from itertools import pairwise

import numpy as np

import heatbath as hb
from heatbath.datasets.tasks import TASKS
from heatbath.engine.batches import tabulate
from heatbath.engine.dense_shape import Shape
from heatbath.engine.ensemble import Ensemble
from heatbath.engine.program import compile_program
from heatbath.models.dense import ACTIVATIONS
from tests.optional import optional

torch = optional("torch")

DATA = 30


def random_problem(sizes, task, sets=2, seed=1):
    """Return a problem of random data; the networks need not learn anything here."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((sets, DATA, sizes[0]))
    if task == "binary":
        Y = rng.integers(0, 2, (sets, DATA, 1)).astype(float)
    elif task == "classes":
        Y = rng.integers(0, sizes[-1], (sets, DATA, 1)).astype(float)
    elif task == "counts":
        Y = rng.integers(0, 4, (sets, DATA, sizes[-1])).astype(float)
    else:
        Y = rng.standard_normal((sets, DATA, sizes[-1]))
    return X, Y


def torch_loss(theta, sizes, activation, task, x, y):
    """Return the loss of a dense network, written in torch."""
    act = {"relu": torch.relu, "tanh": torch.tanh, "identity": lambda z: z}[activation]
    at, z = 0, torch.as_tensor(x)
    for layer, (width, out) in enumerate(pairwise(sizes)):
        weight = theta[at : at + width * out].reshape(out, width)
        bias = theta[at + width * out : at + (width + 1) * out]
        at += (width + 1) * out
        z = z @ weight.T + bias
        z = act(z) if layer < len(sizes) - 2 else z
    y = torch.as_tensor(y)
    if task == "binary":
        return torch.nn.functional.binary_cross_entropy_with_logits(z, y, reduction="sum") / len(y)
    if task == "classes":
        return torch.nn.functional.cross_entropy(z, y[:, 0].long())
    if task == "counts":
        return torch.sum(z.exp() - y * z) / len(y)
    return 0.5 * torch.sum((z - y) ** 2) / len(y)


def torch_gradient(theta, *arguments):
    """Return the loss of a dense network and its gradient, by torch."""
    parameters = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    loss = torch_loss(parameters, *arguments)
    loss.backward()
    return loss.item(), parameters.grad.numpy()


def engine_gradient(theta, sizes, activation, task, x, y, layout=None):
    """Return the loss of a dense network and its gradient, by a step of gradient descent with h = 1."""
    shape = Shape(sizes, ACTIVATIONS[activation].number, TASKS[task].number)
    widths = {f"layer{i}": (width * out, out) for i, (width, out) in enumerate(pairwise(sizes), start=1)}
    program = compile_program(hb.Partition(hb.SGD(), 1.0), widths)
    count = 1 if layout is None else 3
    data = tabulate(x[None], y[None], theta.dtype)
    engine = Ensemble(program, shape, np.tile(theta, (count, 1)), data, len(x), layout=layout)
    notes = engine.take_notes((0,), (True,))
    engine.advance(1)
    assert (engine.chains.theta == engine.chains.theta[0]).all()
    return notes.loss[0, 0, 0], theta - engine.chains.theta[0]
