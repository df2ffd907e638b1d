"""Estimate the local learning coefficient of a trained module, with an interval and the measured temperature.

Legend: θ are the parameters, θ0 those of the module as it is, L is the mean loss over the n examples, β the
inverse temperature, τ the temperature, g the strength of the localisation, h the stepsize, U a potential.

The sampled law has the density exp(-nβ L(θ) - g/2 |θ - θ0|²). So g, in the units of nβ L, is the precision of
a Gaussian prior around θ0. The coefficient is

    λ = nβ (E[L(θ)] - L(θ0)).

Divided by nβ the exponent is the potential U = L + g/(2nβ) |θ - θ0|² at the temperature τ = 1/(nβ), and the
gradients of a sampler's steps are those of U. For a quadratic L with minimum θ0, whose Hessian times nβ has
the eigenvalues k, λ = ½ Σ k/(k + g): without localisation half the number of parameters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.optim import Optimizer

from heatbath._internal.checks import NON_NEGATIVE, POSITIVE, real, shown, whole
from heatbath._internal.warnings import CoarseStepsWarning, OffTemperatureWarning, warn
from heatbath.datasets.problem import Floats
from heatbath.diagnostics import statistics
from heatbath.diagnostics.mcmc import ess, rhat
from heatbath.diagnostics.statistics import Estimate
from heatbath.torch.data import (
    CHUNK_SIZE,
    LOADER,
    Data,
    check_batch,
    is_loader,
    is_pair,
    iterate_batches,
    iterate_chunks,
    model_device,
)
from heatbath.torch.optim import seeds
from heatbath.torch.optim.chains import Chains
from heatbath.torch.optim.classes import Langevin
from heatbath.torch.optim.optimizer import Partitioned
from heatbath.torch.sampling.batches import stack_in_turns

Loss: TypeAlias = Callable[[Any, Tensor], Tensor]
Sampler: TypeAlias = Callable[[Chains, float], Optimizer]

DEFAULT_LR = 0.1  # stable for curvatures of the mean loss below 400
DEFAULT_GAMMA = 1.0
FALSE_WARNINGS = 0.01  # chance of a warning, at most, where the sampler is at its temperature
COARSENESS_LIMIT = 0.5  # of h²k/4, which is 1 where steps become unstable; see `CoarseStepsWarning`
STEPS_PER_CHECK = 100  # between two checks for chains that diverged


@dataclass(frozen=True, repr=False)
class LearningCoefficient:
    """A local learning coefficient, with all that tells how good it is.

    Attributes
    ----------
    value : float
        Mean over chains and draws.
    interval : tuple of float
        Its 95 % interval, which takes correlation into account (see `statistics.mean`). Where every step saw
        all examples, it also contains the interval of `corrected`, so that a bias too small to show in the
        temperatures is not left out.
    corrected : Estimate or None
        Value at the right temperature, if the coefficient depends on the temperature as it does from draw to
        draw: value - α (T - 1), with the configurational temperature T and the slope α of the draws. For a
        quadratic loss without localisation it is exactly half the number of parameters. None where steps saw
        mini-batches, whose noise is in the slope.
    trace : numpy.ndarray
        nβ (L(θ) - L(θ0)) of each draw, (chain, draw); with mini-batches both on the same batch.
    heat : numpy.ndarray
        Configurational temperature of each draw over the right one, (chain, draw).
    temperatures : dict
        Mean temperatures of the sampler over the right one, so all should be 1. The "configurational" one is
        that of (θ - θ0)·∇U/N with the gradients of the steps; for a quadratic loss without localisation the
        coefficient is off by just this factor. Optimisers of heatbath also have the "kinetic" one of each
        part.
    off : tuple of str
        Names of the temperatures that are off by more than their errors allow.
    coarseness : float
        Largest h²k/4 on the way, k = |∇U(θ') - ∇U(θ)|/|θ' - θ| from draw to draw; steps are unstable from 1
        on (`CoarseStepsWarning`). NaN with mini-batches, and for optimisers of others or without momenta.
    batches : bool
        True if steps saw mini-batches.
    n : int
        Number of examples.
    beta, localization : float
        β and g.
    loss : float
        L(θ0).
    size : int
        Number of parameters that moved.

    Examples
    --------
    >>> import torch
    >>> from heatbath.torch import llc
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> X = torch.eye(2)
    >>> loss = torch.nn.functional.mse_loss
    >>> result = llc(model, loss, (X, model(X).detach()), beta=1.0, chains=2, burn_in=10, draws=20, seed=1)
    >>> result.trace.shape, result.size
    ((2, 20), 2)
    """

    trace: Floats = field(compare=False)
    heat: Floats = field(compare=False)
    temperatures: dict[str, Estimate]
    coarseness: float
    batches: bool
    n: int
    beta: float
    localization: float
    loss: float
    size: int

    @property
    def value(self) -> float:
        """Learning coefficient λ."""
        return self._estimate.value

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the learning coefficient."""
        low, high = self._estimate.interval
        if self.corrected is None:
            return low, high
        corrected_low, corrected_high = self.corrected.interval
        return min(low, corrected_low), max(high, corrected_high)

    @property
    def corrected(self) -> Estimate | None:
        """Learning coefficient at the right temperature, by regression on the draws."""
        if self.batches:
            return None
        deviations = self.heat - self.heat.mean()
        squares = float(np.square(deviations).sum())
        slope = 0.0
        if squares:
            slope = float((deviations * self.trace).sum()) / squares
        return statistics.mean(self.trace - slope * (self.heat - 1.0))

    @property
    def _estimate(self) -> Estimate:
        """Mean of the trace with its error."""
        return statistics.mean(self.trace)

    @property
    def off(self) -> tuple[str, ...]:
        """Names of the temperatures that differ from the right one by more than chance."""
        level = FALSE_WARNINGS / len(self.temperatures)
        return tuple(name for name, ratio in self.temperatures.items() if ratio.p_value(1.0) < level)

    def __repr__(self) -> str:
        """Return the coefficient with its interval, the settings, convergence and temperatures as text."""
        interval_text = "too few draws for an interval"
        low, high = self.interval
        if math.isfinite(low):
            interval_text = f"95 % interval {low:.4g} to {high:.4g}"
        verdict = "none off by more than its error"
        if self.off:
            verdict = f"OFF TEMPERATURE ({', '.join(self.off)})"

        chains, draws = self.trace.shape
        ratios = [f"{name} {_ratio_text(ratio)}" for name, ratio in self.temperatures.items()]
        lines = [
            f"LearningCoefficient({self.value:.4g}, {interval_text}",
            f"n = {self.n}, β = {self.beta:.4g}, localisation {self.localization:g}, {self.size} parameters, "
            f"loss {self.loss:.4g} at the start",
            f"{chains} chains of {draws} draws: {ess(self.trace):.0f} effective, "
            f"R-hat {rhat(self.trace):.3f}",
            f"temperatures in units of 1/(nβ): {', '.join(ratios)}: {verdict}",
        ]
        if math.isfinite(self.coarseness):
            lines.append(f"h²k/4 = {self.coarseness:.2g} at most")
        return "\n  ".join(lines) + "\n)"


def _ratio_text(ratio: Estimate) -> str:
    """Return an estimate with its error as text; "?" stands for an unknown error."""
    error = f"{ratio.error:.3f}" if math.isfinite(ratio.error) else "?"
    return f"{ratio.value:.3f} ± {error}"


def llc(  # noqa: PLR0913 # options by keyword
    model: nn.Module,
    loss: Loss,
    data: Data,
    *,
    sampler: Sampler | None = None,
    lr: float | None = None,
    beta: float | None = None,
    localization: float = 1.0,
    chains: int = 4,
    burn_in: int = 500,
    draws: int = 1000,
    batch: int | None = None,
    only: Mapping[str, Tensor | bool] | None = None,
    seed: int | None = None,
) -> LearningCoefficient:
    """Estimate the local learning coefficient of a trained module by sampling around it.

    It is λ = nβ (E[L(θ)] - L(θ0)), θ0 the module as it is. The module doesn't change. It is sampled in
    evaluation mode, so that the loss L is a function of θ.

    Parameters
    ----------
    model
        A module at a minimum of the loss.
    loss
        Function of outputs and targets: the mean of -log likelihood over examples.
    data
        Tensors (X, y), all of which every step sees unless `batch` is given; or a loader, from which each
        chain takes its own batches (those shorter than the first are left out). Mini-batches heat a sampler
        and raise the coefficient: `OffTemperatureWarning` warns of it.
    sampler
        Function that makes an optimiser of the chains and the temperature τ = 1/(nβ), for example
        `lambda chains, tau: AdaptiveLangevin(chains, lr=0.05, tau=tau, sigma=0.1, epsilon=1.0)`. By default
        Langevin dynamics with friction 1.
    lr
        Stepsize of the default sampler, by default 0.1.
    beta
        Inverse temperature β, by default 1/log n.
    localization
        g, the precision of a Gaussian around θ0 in the density exp(-nβ L - g/2 |θ - θ0|²), as in devinterp; 0
        for none.
    chains
        Number of chains.
    burn_in
        Steps of each chain before the draws.
    draws
        Draws of each chain, one at each step.
    batch
        Number of examples drawn at random for each chain and step, where data are tensors.
    only
        Parameters that move, by name, each with a mask of its elements, or True for all of them.
    seed
        Seed of the noise of the default sampler, and of the batches drawn from tensors.

    Returns
    -------
    LearningCoefficient
        The coefficient with its interval, its traces, and the temperatures of the sampler.

    Raises
    ------
    ValueError, TypeError
        If an argument is wrong.
    RuntimeError
        If a chain diverges.

    Examples
    --------
    >>> import torch
    >>> from heatbath.torch import llc
    >>> X = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> model = torch.nn.Linear(3, 1, bias=False)
    >>> torch.nn.init.ones_(model.weight).sum().item()
    3.0
    >>> result = llc(model, lambda f, y: 0.5 * (f - y).square().mean(), (X, X.sum(1, keepdim=True)), seed=1)
    >>> abs(result.value - 1.5) < 0.3, result.off  # half of three
    (True, ())
    """
    _check_model_and_sampler(model, sampler, lr)
    g = real("llc: localization", localization, NON_NEGATIVE)
    burn_in = whole("llc: burn_in", burn_in, low=0)
    draws = whole("llc: draws", draws, low=4)
    seed = seeds.new_seed() if seed is None else whole("llc: seed", seed, low=0, high=2**63)
    centre = _restrict_parameters(deepcopy(model).eval(), only)
    chains = whole("llc: chains", chains, low=1)
    batches = _Batches(data, batch, chains, seed, model_device(model))
    n, start_loss = batches.measure(lambda x, y: _checked_loss(loss(centre(x), y)))
    beta = _inverse_temperature(beta, n)
    tau = 1 / (n * beta)

    walk = _RandomWalk(Chains(centre, chains, "same"), loss, g * tau, start_loss)
    optimizer = _make_optimizer(sampler, walk.chains, tau, lr, seed)
    walk.run(optimizer, batches, burn_in, draws)

    ratios = walk.trace(walk.virials) / tau
    result = LearningCoefficient(
        trace=walk.trace(walk.losses) / tau,
        heat=ratios,
        temperatures={"configurational": statistics.mean(ratios)} | _kinetic_ratios(optimizer, tau),
        coarseness=walk.coarseness,
        batches=batches.separate,
        n=n,
        beta=beta,
        localization=g,
        loss=start_loss,
        size=walk.size,
    )
    _warn_of_problems(result)
    return result


def _check_model_and_sampler(model: object, sampler: Sampler | None, lr: float | None) -> None:
    """Refuse anything but a module, and a stepsize beside a sampler, which sets its own."""
    if not isinstance(model, nn.Module) or isinstance(model, Chains):
        raise TypeError(f"llc: a module is needed, got {shown(model)} of type {type(model).__name__}")
    if sampler is not None and lr is not None:
        raise ValueError(
            f"llc: lr belongs to the default sampler: set yours in sampler=, and leave out lr={shown(lr)}"
        )


def _make_optimizer(
    sampler: Sampler | None, chains: Chains, tau: float, lr: float | None, seed: int
) -> Optimizer:
    """Return the optimiser that the user's function makes at the temperature τ, or else Langevin dynamics."""
    if sampler is None:
        stepsize = DEFAULT_LR if lr is None else lr
        return Langevin(chains, stepsize, DEFAULT_GAMMA, tau, seed=seed)
    optimizer = sampler(chains, tau)
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"llc: sampler(chains, tau) must return an optimiser, got {shown(optimizer)}")
    return optimizer


def _inverse_temperature(beta: float | None, n: int) -> float:
    """Return β as given, or 1/log n for n examples."""
    if beta is not None:
        return real("llc: beta", beta, POSITIVE)
    if n < 3:
        raise ValueError(f"llc: β = 1/log n needs at least 3 examples, got {n}: give beta=")
    return 1 / math.log(n)


def _kinetic_ratios(optimizer: Optimizer, tau: float) -> dict[str, Estimate]:
    """Return the kinetic temperatures over τ of each part of an optimiser; {} for those of others."""
    if not isinstance(optimizer, Partitioned):
        return {}
    temperatures = optimizer.temperature()
    has_one_part = len(temperatures) == 1
    ratios: dict[str, Estimate] = {}
    for part, temperature in temperatures.items():
        name = "kinetic" if has_one_part else f"kinetic of {part}"
        ratios[name] = Estimate(temperature.value / tau, temperature.error / tau)
    return ratios


class _RandomWalk:
    """Chains that move around θ0, and traces of their losses and virials.

    Parameters
    ----------
    chains
        The chains, all at θ0.
    loss
        Function of outputs and targets.
    pull
        g/(nβ), the precision of the localisation in the units of the mean loss.
    start_loss
        L(θ0) over all examples.

    Attributes
    ----------
    moving, centre
        Parameters that move, stacked over chains; and their θ0, with one chain.
    size
        Number N of parameters that have a gradient.
    losses, virials
        For each draw L(θ) - L(θ0) on the examples of the step, and (θ - θ0)·∇U/N, both (chains,).
    coarseness
        Largest h²k/4 so far, k the curvature between two draws; NaN where it is not known.
    """

    def __init__(self, chains: Chains, loss: Loss, pull: float, start_loss: float) -> None:
        self.chains = chains
        self.loss = loss
        self.pull = pull
        self.start_loss = start_loss
        self.moving = [p for p in chains.parameters() if p.requires_grad]
        self.centre = [p.detach()[:1].clone() for p in self.moving]
        self.size = 0
        self.losses: list[Tensor] = []
        self.virials: list[Tensor] = []
        self.coarseness = math.nan
        self._previous: list[tuple[Tensor, Tensor]] = []  # parameters and gradients of the last draw

    def run(self, optimizer: Optimizer, batches: _Batches, burn_in: int, draws: int) -> None:
        """Make all steps, and keep the traces of the draws after the burn-in.

        Parameters
        ----------
        optimizer
            Optimiser of the chains.
        batches
            Examples of each step.
        burn_in, draws
            Numbers of steps.

        Raises
        ------
        RuntimeError
            If a chain diverges.
        """
        steps = burn_in + draws
        for step, (x, y) in zip(range(steps), batches, strict=False):
            if step == burn_in and isinstance(optimizer, Partitioned):
                optimizer.forget_past()
            self.step(optimizer, x, y, batches.separate)
            if step < burn_in:
                self._forget()
            if step % STEPS_PER_CHECK == 0 or step == steps - 1:
                _check_alive(self.chains, step)

    def step(self, optimizer: Optimizer, x: Tensor, y: Tensor, separate: bool) -> None:
        """Make a step, and record losses, virials and curvature at its first gradient.

        Parameters
        ----------
        optimizer
            Optimiser of the chains.
        x, y
            Inputs and targets: (chains, examples, ...) with separate batches, otherwise (examples, ...).
        separate
            True if each chain has its own batch.
        """
        is_recorded = False
        target_axis = 0 if separate else None
        losses_of_chains = torch.func.vmap(self.loss, in_dims=(0, target_axis))

        def closure() -> Tensor:
            """Compute the gradient of U = L + pull/2 |θ - θ0|² of each chain, and return U, (chains,)."""
            nonlocal is_recorded
            optimizer.zero_grad()
            losses = losses_of_chains(self.chains(x, each=separate), y)
            offsets = [p - centre for p, centre in zip(self.moving, self.centre, strict=True)]
            potentials = losses
            if self.pull:
                squares = torch.stack([offset.square().flatten(1).sum(1) for offset in offsets])
                potentials = losses + 0.5 * self.pull * squares.sum(0)
            torch.autograd.backward(potentials.sum())  # the sum: each chain has its own gradient

            if not is_recorded:
                self._record(losses.detach() - self._loss_at_centre(x, y, separate), offsets)
                if not separate:
                    self._record_curvature(_stability_factor(optimizer))
            is_recorded = True
            return potentials.detach()

        optimizer.step(closure)  # type: ignore[arg-type]

    def _record(self, losses: Tensor, offsets: list[Tensor]) -> None:
        """Record losses and virials, and count the parameters that have a gradient.

        Parameters
        ----------
        losses
            L(θ) - L(θ0), (chains,).
        offsets
            θ - θ0 of each parameter that moves, stacked over chains.
        """
        self.size = 0
        products: list[Tensor] = []
        for offset, p in zip(offsets, self.moving, strict=True):
            if p.grad is None:
                continue
            self.size += offset[0].numel()
            products.append((offset.detach() * p.grad).flatten(1).sum(1))
        self.losses.append(losses)
        self.virials.append(torch.stack(products).sum(0) / self.size)

    def _record_curvature(self, factor: float) -> None:
        """Update the coarseness by the curvature between the last draw and this one.

        The curvature of a chain is |∇U(θ') - ∇U(θ)|/|θ' - θ|, and the coarseness is `factor` times the
        largest one of all. Nothing happens if the factor is not known.
        """
        if not math.isfinite(factor):
            return
        current = [(p.detach().clone(), p.grad.clone()) for p in self.moving if p.grad is not None]
        if len(self._previous) == len(current):
            coarseness = factor * _largest_curvature(self._previous, current)
            if math.isnan(self.coarseness) or coarseness > self.coarseness:
                self.coarseness = coarseness
        self._previous = current

    @torch.no_grad()
    def _loss_at_centre(self, x: Tensor, y: Tensor, separate: bool) -> Tensor | float:
        """Return the loss of θ0 on the same examples, of each chain's batch if they are separate."""
        if not separate:
            return self.start_loss
        batches = zip(x, y, strict=True)
        return torch.stack([self.loss(self.chains.model(inputs), targets) for inputs, targets in batches])

    def _forget(self) -> None:
        """Forget the records of all steps so far."""
        self.losses.clear()
        self.virials.clear()
        self.coarseness = math.nan

    @staticmethod
    def trace(records: list[Tensor]) -> Floats:
        """Return the records of all steps as an array, (chain, step)."""
        return np.asarray(torch.stack(records, dim=1).double().cpu().numpy())


def _largest_curvature(previous: list[tuple[Tensor, Tensor]], current: list[tuple[Tensor, Tensor]]) -> float:
    """Return the largest curvature of a chain between two draws; 0 for chains that have not moved.

    Parameters
    ----------
    previous, current
        Parameters and gradients at both draws, stacked over chains.
    """
    distances = torch.zeros(())  # squared, of each chain, as the changes of the gradient
    changes = torch.zeros(())
    for (theta, gradient), (old_theta, old_gradient) in zip(current, previous, strict=True):
        distances = distances + (theta - old_theta).square().flatten(1).sum(1)
        changes = changes + (gradient - old_gradient).square().flatten(1).sum(1)
    ratios = (changes / distances).nan_to_num(0.0, posinf=0.0)
    return float(ratios.max().sqrt())


def _stability_factor(optimizer: Optimizer) -> float:
    """Return h²/4, which times the curvature is 1 where steps become unstable; NaN without momenta."""
    groups = optimizer.param_groups
    have_momenta = all("A" in group.get("word", "") for group in groups)
    if not isinstance(optimizer, Partitioned) or not have_momenta:
        return math.nan
    largest_stepsize = max(float(group["lr"]) for group in groups)
    return largest_stepsize**2 / 4


class _Batches:
    """Examples that the chains see at each step: all of them, or separate batches (chains, examples, ...)."""

    def __init__(self, data: object, batch: object, chains: int, seed: int, device: torch.device) -> None:
        """Check data and batch size, and move tensors to the device."""
        self.data: Any = data
        self.chains = chains
        self.device = device
        self.generator = torch.Generator().manual_seed(seed)
        self.batch: int | None = None  # examples drawn for each chain
        self.batches_per_epoch = 0
        self.separate = True
        if is_pair(data):
            self._take_tensors(data, batch)
        elif not is_loader(data, repeatable=True):
            raise TypeError(f"llc: data must be tensors (X, y), or {LOADER}; got {shown(data)}")
        elif batch is not None:
            raise ValueError(
                f"llc: batch applies to tensors, and a loader has its own batches; got batch={shown(batch)}"
            )

    def _take_tensors(self, pair: tuple[Tensor, Tensor], batch: object) -> None:
        """Move tensors (X, y) to the device; chains have separate batches if these have fewer examples."""
        x, y = check_batch(pair)
        if not len(x):
            raise ValueError("llc: data has no examples")
        self.data = x.to(self.device), y.to(self.device)
        batch_size = len(x) if batch is None else whole("llc: batch", batch, low=1, high=len(x) + 1)
        self.separate = batch_size < len(x)
        if self.separate:
            self.batch = batch_size

    @torch.no_grad()
    def measure(self, loss: Callable[[Tensor, Tensor], float]) -> tuple[int, float]:
        """Go through all examples once; return their number and the mean of their losses.

        A loader with all examples in one batch is replaced by its tensors, and complete batches of any other
        loader are counted. `loss` returns the mean over a batch.
        """
        loss_sum = 0.0
        sizes: list[int] = []
        chunks = iterate_batches(self.data, self.device)
        if is_pair(self.data):  # at once if the steps see them so
            chunks = iterate_chunks(self.data, CHUNK_SIZE if self.separate else len(self.data[0]))
        for x, y in chunks:
            loss_sum += len(x) * loss(x, y)
            sizes.append(len(x))
        example_count = sum(sizes)
        if not example_count:
            raise ValueError("llc: the loader has no batches")

        if len(sizes) == 1 and not is_pair(self.data):
            self.data = x, y
            self.separate = False
        self.batches_per_epoch = sizes.count(sizes[0])
        return example_count, loss_sum / example_count

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the examples of each step, without end."""
        if not self.separate:
            while True:
                yield self.data
        if self.batch is None:
            yield from self._batches_in_turn()
        x, y = self.data
        while True:
            rows = torch.randint(len(x), (self.chains, self.batch or 0), generator=self.generator)
            yield x[rows.to(self.device)], y[rows.to(self.device)]

    def _batches_in_turn(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield complete batches of the loader, one for each chain, over epochs without end.

        Inputs and targets are (chains, examples, ...). Batches shorter than the first are left out.
        """
        batches = self._complete_batches()
        for step in count():
            pairs = list(islice(batches, self.chains))
            yield stack_in_turns(pairs, step, self.batches_per_epoch)

    def _complete_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of the loader over epochs without end, without those shorter than the first."""
        complete_size = 0  # of the first batch
        while True:
            for x, y in iterate_batches(self.data, self.device):
                complete_size = complete_size or len(x)
                if len(x) == complete_size:
                    yield x, y


# Parameters that move


class _MaskedTensor(nn.Module):
    """Parametrization of a tensor by the vector of those elements that move."""

    def __init__(self, tensor: Tensor, mask: Tensor) -> None:
        super().__init__()
        self.shape = tensor.shape
        self.index = mask.flatten().nonzero().flatten()
        self.values = tensor.detach().clone().flatten()

    def forward(self, elements: Tensor) -> Tensor:
        """Return the complete tensor."""
        return self.values.scatter(0, self.index, elements).view(self.shape)

    def right_inverse(self, tensor: Tensor) -> Tensor:
        """Return the elements that move."""
        return tensor.detach().flatten()[self.index]


def _restrict_parameters(model: nn.Module, only: Mapping[str, Tensor | bool] | None) -> nn.Module:
    """Let only some elements of a module's parameters move, in place; return the module.

    Parameters
    ----------
    model
        The module. Parameters that move in part are replaced by vectors of the elements that do.
    only
        Masks by the names of parameters, True for a complete parameter; None for all parameters.
    """
    if only is not None:
        _apply_masks(model, only)
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("llc: no parameter moves: all have requires_grad=False, or only= has none")
    return model


def _apply_masks(model: nn.Module, only: Mapping[str, Tensor | bool]) -> None:
    """Let only the masked elements of a module's parameters move, in place.

    A parameter without a mask is frozen. One that moves in part becomes a parametrised tensor, whose
    parameter is the vector of the elements that move; it must not be shared between layers.

    Parameters
    ----------
    model
        The module, which is changed.
    only
        Masks by the names of parameters, of bool and of the parameter's shape; True for all elements.
    """
    if not isinstance(only, Mapping):
        raise TypeError(f"llc: only must be a dict of masks by the names of parameters, got {shown(only)}")
    parameters = dict(model.named_parameters())
    unknown_names = [repr(name) for name in only if name not in parameters]
    if unknown_names:
        raise ValueError(
            f"llc: only has {', '.join(unknown_names)}; the parameters are {', '.join(parameters)}"
        )

    occurrences = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    for name, parameter in parameters.items():
        mask = _checked_mask(name, only.get(name, False), parameter)
        moves = bool(mask.any())
        parameter.requires_grad_(moves)
        if not moves or bool(mask.all()):
            continue

        if occurrences[id(parameter)] > 1:
            raise ValueError(f"llc: {name!r} is shared between layers and moves as a whole: give it True")
        owner, _, attribute = name.rpartition(".")
        rule = _MaskedTensor(parameter, mask)
        parametrize.register_parametrization(model.get_submodule(owner), attribute, rule)


def _checked_mask(name: str, mask: object, parameter: Tensor) -> Tensor:
    """Return a mask as a tensor of bool on the device of the parameter.

    Parameters
    ----------
    name
        Name of the parameter, for messages.
    mask
        A tensor of bool of the parameter's shape; or True or False for all elements.
    parameter
        The parameter.
    """
    if isinstance(mask, bool):
        return torch.full_like(parameter, mask, dtype=torch.bool)
    if not isinstance(mask, Tensor):
        raise TypeError(f"llc: the mask of {name!r} must be a tensor of bool, or True; got {shown(mask)}")
    if mask.dtype != torch.bool or mask.shape != parameter.shape:
        raise ValueError(
            f"llc: the mask of {name!r} must be of bool, with shape {tuple(parameter.shape)}; got "
            f"{shown(mask)} of {mask.dtype}"
        )
    return mask.to(parameter.device)


# Checks and warnings


def _checked_loss(value: object) -> float:
    """Return the loss of a batch as a float; refuse what isn't one finite number."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise TypeError(f"llc: the loss must be one number for a batch, such as a mean; got {shown(value)}")
    if not math.isfinite(float(value)):
        raise ValueError(f"llc: the loss of the module as it is must be finite, got {float(value)}")
    return float(value)


def _check_alive(chains: Chains, step: int) -> None:
    """Raise an error if chains are not finite after a step."""
    diverged = (~chains.alive()).nonzero().flatten().tolist()
    if diverged:
        raise RuntimeError(
            f"llc: chains {', '.join(map(str, diverged))} have diverged by step {step}: choose a smaller lr, "
            "or a stronger localization"
        )


def _warn_of_problems(result: LearningCoefficient) -> None:
    """Warn if the steps were too coarse, or if the sampler was not at its temperature.

    Both make the coefficient wrong; the warnings have the remedies.
    """
    if result.coarseness > COARSENESS_LIMIT:
        warn(
            f"h²k/4 was {result.coarseness:.2g}, and steps are unstable from 1 on: choose a smaller lr, "
            f"because excursions may raise the coefficient {result.value:.4g} without showing in its "
            "interval",
            CoarseStepsWarning,
        )
    if not result.off:
        return

    ratios = [f"{name} {_ratio_text(result.temperatures[name])}" for name in result.off]
    remedy = "a smaller lr or a longer burn_in bring it closer"
    if result.batches:
        remedy = f"larger batches, {remedy}"
    _, high = result.interval
    if high < 0:
        remedy = "the loss falls below that of the module as it is: train it to a minimum first"
    warn(
        f"the sampler is not at its temperature, so the coefficient {result.value:.4g} is that of another "
        f"law: in units of 1/(nβ), {', '.join(ratios)}; {remedy}",
        OffTemperatureWarning,
    )
