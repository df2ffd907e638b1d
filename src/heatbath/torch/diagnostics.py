"""Of PyTorch models: configurational temperature, gradient noise, roughness."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from heatbath._internal.checks import choice
from heatbath.datasets.tasks import TASKS
from heatbath.diagnostics.convergence_check import Convergence, converged
from heatbath.diagnostics.statistics import Estimate, mean
from heatbath.diagnostics.weights import plane
from heatbath.torch.prediction.batchnorm import evaluating

if TYPE_CHECKING:
    from torch import Tensor, nn


def module_configurational(
    model: nn.Module, samples: Iterable[Mapping[str, Any]], loss: Callable[[], Tensor]
) -> dict[str, Estimate]:
    """The configurational temperature of samples of a model, for every layer and for "all" parameters.

    The virial <θ·∇U>/N (see `configurational`): `samples` are evenly spaced state dicts of one chain, such as
    a `Samples`, and `loss()` is U of the model as it stands, on all examples, with the prior in it. Layers
    are called as their modules. The model is left as it was.
    """
    before = {name: value.detach().clone() for name, value in model.state_dict().items()}
    products: dict[str, list[float]] = {}
    sizes = _sizes(model)
    try:
        for state in samples:
            model.load_state_dict(state)
            for name, gradient in _gradients(model, loss()).items():
                theta = model.get_parameter(name).detach().double()
                products.setdefault(name, []).append(float((theta * gradient.double()).sum()))
    finally:
        model.load_state_dict(before)
    if not products:
        raise ValueError("there are no samples: take some after the burn-in")
    return {
        layer: mean(np.sum([products[name] for name in names], axis=0) / sum(sizes[name] for name in names))
        for layer, names in _layers(model).items()
    }


def module_convergence(chains: Any, samples: Iterable[Mapping[str, Any]], x: Any) -> Convergence:
    """Whether the chains of a module sample one law of functions: at the inputs x.

    `samples` are evenly spaced states of `heatbath.torch.Chains`, such as a `Samples`: at least four, of two
    chains or more that have not diverged. See `convergence`.
    """
    import torch

    kept = chains.alive().nonzero().ravel().tolist()
    said = []
    for state in samples:
        states = list(chains.states(state))
        said.append([_said(chains.model, states[k], x) for k in kept])
    if len(kept) < 2 or len(said) < 4:
        raise ValueError(
            f"R-hat needs at least 2 chains and 4 samples, got {len(kept)} and {len(said)}: take more of them"
        )
    outputs = torch.stack([torch.stack(row) for row in said], dim=1)
    return converged(outputs.double().numpy())


def _said(model: nn.Module, state: Mapping[str, Tensor], x: Any) -> Tensor:
    """What a model in a state says, in evaluation mode."""
    import torch

    with evaluating(model), torch.no_grad():
        said: Tensor = torch.func.functional_call(model, dict(state), (x,))
    return said.cpu()


def module_gradient_noise(model: nn.Module, losses: Iterable[Callable[[], Tensor]]) -> dict[str, float]:
    """The variance s² of the mini-batch gradient of a model as it stands, for every layer and for "all".

    `losses` are functions, each giving the loss on one mini-batch; at least two. The mean over parameters of
    the variance over batches (squares divided by their number less one), right for batches that are drawn
    independently. For the batches of one shuffled epoch, b of n examples each, multiply by 1 - b/n: they
    have no example in common, and so differ by more than independent ones.
    """
    count = 0
    means: dict[str, Any] = {}
    squares: dict[str, Any] = {}
    for loss in losses:
        count += 1
        for name, gradient in _gradients(model, loss()).items():
            value = gradient.double()
            difference = value - means.get(name, 0.0)
            means[name] = means.get(name, 0.0) + difference / count
            squares[name] = squares.get(name, 0.0) + difference * (value - means[name])
    if count < 2:
        raise ValueError(f"a variance over mini-batches needs at least two, got {count}")
    sizes = _sizes(model)
    return {
        layer: sum(float(squares[name].sum()) for name in names) / (count - 1) / sum(sizes[n] for n in names)
        for layer, names in _layers(model).items()
    }


def module_roughness(
    model: nn.Module, low: float, high: float, points: int = 50, *, task: Literal["binary", "classes"]
) -> float:
    """The mean norm of the gradient of a model's predicted probability over a square of the plane.

    As `roughness`, but by exact backpropagation, and in the units of the model's own inputs. The model ends
    in one logit for "binary", in one for each class for "classes". It is in evaluation mode for the time.
    """
    import torch

    choice("task", task, ("binary", "classes"))
    first = next(model.parameters())
    x = torch.as_tensor(plane(low, high, points)).to(first.device, first.dtype).requires_grad_()
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.enable_grad():
            logits = model(x)
            probabilities = TASKS[task].decode_torch(logits)
            squares = torch.zeros(len(x), dtype=torch.float64, device=x.device)
            for output in probabilities.reshape(len(x), -1).unbind(dim=1):
                (slope,) = torch.autograd.grad(output.sum(), x, retain_graph=True)
                squares += slope.double().square().sum(dim=1)
    finally:
        for module, mode in training.items():
            module.training = mode
    return float(squares.sqrt().mean())


def _gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """The gradient of a loss by every parameter that is trained; 0 where it does not matter."""
    import torch

    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    pairs = zip(named.items(), gradients, strict=True)
    return {name: torch.zeros_like(value) if slope is None else slope for (name, value), slope in pairs}


def _sizes(model: nn.Module) -> dict[str, int]:
    return {name: value.numel() for name, value in model.named_parameters() if value.requires_grad}


def _layers(model: nn.Module) -> dict[str, list[str]]:
    """The parameters of each layer, and of all."""
    layers: dict[str, list[str]] = {}
    for name in _sizes(model):
        layers.setdefault(name.rpartition(".")[0] or name, []).append(name)
    return layers | {"all": list(_sizes(model))}
