"""Diagnose samples of torch modules: configurational temperature, convergence, gradient noise, roughness.

In formulas θ are the parameters, U is the potential (the loss with the prior), and N the number of
parameters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from heatbath._internal.checks import choice
from heatbath.datasets.tasks import TASKS
from heatbath.diagnostics.convergence_check import FEWEST_SAMPLES, Convergence, convergence_of
from heatbath.diagnostics.statistics import Estimate, mean
from heatbath.diagnostics.weights import plane
from heatbath.torch.optim.chains import Chains
from heatbath.torch.prediction.batchnorm import evaluation_mode
from heatbath.torch.prediction.states import State


def module_configurational(
    model: nn.Module, samples: Iterable[State], loss: Callable[[], Tensor]
) -> dict[str, Estimate]:
    """Estimate the configurational temperature <θ·∇U>/N of samples, for each layer and for all parameters.

    The model is left as it was.

    Parameters
    ----------
    model
        The module that was sampled.
    samples
        Evenly spaced states of one chain, such as a `Samples`.
    loss
        A function that returns U of the model as it stands, on all examples and with the prior.

    Returns
    -------
    dict
        An `Estimate` for each layer, by the name of its module, and for "all"; see `configurational`.

    Raises
    ------
    ValueError
        If there are no samples.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> samples = [{"weight": torch.tensor([[w]])} for w in (-1.0, 0.5, 1.0, -0.5)]
    >>> module_configurational(model, samples, lambda: model.weight.square().sum() / 2)["all"].value
    0.625
    """
    previous = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    virials: list[dict[str, float]] = []  # θ·∇U of each sample, by the name of the parameter
    try:
        for state in samples:
            model.load_state_dict(state)
            virials.append(_parameter_virials(model, loss()))
    finally:
        model.load_state_dict(previous)
    if not virials:
        raise ValueError("there are no samples: take some after the burn-in")

    temperatures: dict[str, Estimate] = {}
    for layer, names in _names_by_layer(model).items():
        series = [[virial[name] for virial in virials] for name in names]
        temperatures[layer] = mean(np.sum(series, axis=0) / _count_elements(model, names))
    return temperatures


def _parameter_virials(model: nn.Module, potential: Tensor) -> dict[str, float]:
    """Return θ·∇U for each trained parameter by name, with U as a tensor that has a graph."""
    virials: dict[str, float] = {}
    for name, gradient in _gradients(model, potential).items():
        theta = model.get_parameter(name).detach().double()
        virials[name] = float((theta * gradient.double()).sum())
    return virials


def module_convergence(chains: Chains, samples: Iterable[State], x: object) -> Convergence:
    """Measure whether the chains of a module sample the same distribution of functions at the inputs x.

    Parameters
    ----------
    chains
        Chains, at least two of which have not diverged.
    samples
        At least four evenly spaced states of the chains, such as a `Samples`.
    x
        Inputs at which the outputs of the chains are compared.

    Returns
    -------
    Convergence
        R-hat and effective sample size; see `convergence`.

    Raises
    ------
    ValueError
        If there are too few chains or samples.

    Examples
    --------
    >>> import torch
    >>> from heatbath.torch import Chains, Samples
    >>> chains = Chains(torch.nn.Linear(2, 1), 2)
    >>> samples = Samples(chains)
    >>> for _ in range(10):  # in place of ten steps of a sampler
    ...     weight = torch.nn.init.normal_(next(chains.parameters()))
    ...     taken = samples.take()
    >>> convergence = module_convergence(chains, samples, torch.eye(2))
    >>> convergence.rhat > 0, convergence.ess > 0
    (True, True)
    """
    alive = chains.alive().nonzero().ravel().tolist()
    sample_outputs = []  # of each sample those of the chains, (chains, examples, ...)
    for sample in samples:
        states = list(chains.states(sample))
        sample_outputs.append(torch.stack([_outputs(chains.model, states[chain], x) for chain in alive]))
    if len(alive) < 2 or len(sample_outputs) < FEWEST_SAMPLES:
        raise ValueError(
            f"R-hat needs at least 2 chains and {FEWEST_SAMPLES} samples, got {len(alive)} chains that have "
            f"not diverged and {len(sample_outputs)} samples: run more chains, or take more samples"
        )
    return convergence_of(torch.stack(sample_outputs, dim=1).double().numpy())


def _outputs(model: nn.Module, state: Mapping[str, Tensor], x: object) -> Tensor:
    """Return the outputs of a model in a state, in evaluation mode, on the CPU."""
    with evaluation_mode(model), torch.no_grad():
        outputs: Tensor = torch.func.functional_call(model, dict(state), (x,))
    return outputs.cpu()


def module_gradient_noise(model: nn.Module, losses: Iterable[Callable[[], Tensor]]) -> dict[str, float]:
    """Estimate the variance s² of the mini-batch gradient of a model as it stands.

    It is the mean over parameters of the sample variance over batches (with the number of batches less one),
    which is right for batches drawn independently. The batches of one shuffled epoch, b of n examples each,
    have no example in common and so differ by more: multiply by 1 - b/n.

    Parameters
    ----------
    model
        The module.
    losses
        At least two functions, each returning the loss on one mini-batch.

    Returns
    -------
    dict
        The variance for each layer, by the name of its module, and for "all".

    Raises
    ------
    ValueError
        If there are fewer than two mini-batches.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> losses = [lambda x=x: model(torch.full((1, 1), x)).mean() for x in (1.0, 3.0)]
    >>> module_gradient_noise(model, losses)["all"]
    2.0
    """
    zero = torch.zeros(())
    batch_count = 0
    means: defaultdict[str, Tensor] = defaultdict(lambda: zero)
    squares: defaultdict[str, Tensor] = defaultdict(lambda: zero)  # squared deviations, by Welford's update
    for loss in losses:
        batch_count += 1
        for name, gradient in _gradients(model, loss()).items():
            exact_gradient = gradient.double()
            deviation = exact_gradient - means[name]
            means[name] = means[name] + deviation / batch_count
            squares[name] = squares[name] + deviation * (exact_gradient - means[name])
    if batch_count < 2:
        raise ValueError(f"a variance over mini-batches needs at least two, got {batch_count}")

    square_sums = {name: float(square.sum()) for name, square in squares.items()}
    variances: dict[str, float] = {}
    for layer, names in _names_by_layer(model).items():
        layer_sum = sum([square_sums[name] for name in names])
        variances[layer] = layer_sum / (batch_count - 1) / _count_elements(model, names)
    return variances


def module_roughness(
    model: nn.Module, low: float, high: float, points: int = 50, *, task: Literal["binary", "classes"]
) -> float:
    """Return the mean norm of the gradient of a classifier's probability over a square of the plane.

    As `roughness`, but with gradients by backpropagation instead of differences, and in the units of the
    model's inputs. The model is in evaluation mode meanwhile.

    Parameters
    ----------
    model
        A module of two inputs, with one logit for "binary" and one per class for "classes".
    low, high
        Ends of both sides of the square.
    points
        Number of points along each side.
    task
        "binary" or "classes".

    Returns
    -------
    float
        The mean norm of the gradient over the points of the square.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(2, 1)
    >>> with torch.no_grad():
    ...     weight = torch.nn.init.zeros_(model.weight)
    >>> module_roughness(model, -1.0, 1.0, points=5, task="binary")
    0.0
    """
    choice("task", task, ("binary", "classes"))
    reference = next(model.parameters())  # of the device and the type that the inputs need
    x = torch.as_tensor(plane(low, high, points)).to(reference.device, reference.dtype).requires_grad_()
    with evaluation_mode(model), torch.enable_grad():
        probabilities = TASKS[task].decode_torch(model(x))
        squares = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        for column in probabilities.reshape(len(x), -1).unbind(dim=1):
            (slope,) = torch.autograd.grad(column.sum(), x, retain_graph=True)
            squares += slope.double().square().sum(dim=1)
    return float(squares.sqrt().mean())


def _gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """Return the gradient of a loss for each trained parameter by name; zeros where it has no influence."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    slopes = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    gradients: dict[str, Tensor] = {}
    for (name, p), slope in zip(trained.items(), slopes, strict=True):
        gradients[name] = torch.zeros_like(p) if slope is None else slope
    return gradients


def _count_elements(model: nn.Module, names: list[str]) -> int:
    """Return the number of elements of the parameters with these names."""
    return sum(model.get_parameter(name).numel() for name in names)


def _names_by_layer(model: nn.Module) -> dict[str, list[str]]:
    """Return the names of the trained parameters of each layer, and of all under "all"."""
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    layers: dict[str, list[str]] = {}
    for name in trained:
        layer, _, _ = name.rpartition(".")
        layers.setdefault(layer or name, []).append(name)
    return layers | {"all": trained}
