"""The local learning coefficient of a trained module, with its interval and the temperature it was found at.

The law that is sampled has the density exp(-nβ L(θ) - g/2 |θ - θ0|²), where L is the mean loss over the n
examples, θ0 the module as it is, β the inverse temperature and g the strength of the localisation, in the
units of nβ L: it is the precision of a Gaussian prior around θ0. The coefficient is

    λ = nβ (E[L(θ)] - L(θ0)).

Divided by nβ this is the loss L + g/(2nβ) |θ - θ0|² at the temperature τ = 1/(nβ), and so a sampler sees it:
the gradient of every step is that of the whole. For a quadratic L with minimum θ0, whose Hessian times nβ has
the eigenvalues k, λ = ½ Σ k/(k + g): without localisation half the number of parameters.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.optim import Optimizer

from heatbath._internal.checks import NON_NEGATIVE, POSITIVE, real, shown, whole
from heatbath._internal.warnings import CoarseStepsWarning
from heatbath.diagnostics import statistics
from heatbath.diagnostics.mcmc import ess, rhat
from heatbath.diagnostics.statistics import Estimate
from heatbath.torch.data import CHUNK_SIZE, LOADER, Data, check_batch, is_loader, is_pair, model_device
from heatbath.torch.optim import seeds
from heatbath.torch.optim.chains import Chains
from heatbath.torch.optim.classes import Langevin
from heatbath.torch.optim.optimizer import Partitioned
from heatbath.torch.sampling.batches import assign_turns

Loss: TypeAlias = Callable[[Any, Tensor], Tensor]
Sampler: TypeAlias = Callable[[Chains, float], Optimizer]

LR, GAMMA = 0.1, 1.0  # stable for curvatures of the mean loss below 400
SURE = 0.01  # the chance of a warning, at most, where the sampler is at its temperature
COARSE = 0.5  # of the curvature at which steps are unstable; see `CoarseStepsWarning`
LOOK = 100  # steps between two looks for chains that diverged


@dataclass(frozen=True, repr=False)
class LearningCoefficient:
    """A local learning coefficient, and all that tells what it is worth.

    - `value`, `interval`: the mean over chains and draws, and its 95 % interval, correlation taken into
      account (see `statistics.mean`). Where every step saw all examples it also has the interval of
      `corrected`, so that a bias which is too small for the temperatures to show is not left out.
    - `corrected`: the value at the right temperature, if the coefficient follows the temperature on the whole
      as it does from draw to draw: value - α (T - 1), T the configurational temperature and α the slope of
      the draws. For a quadratic loss without localisation it is just half the number of parameters. None
      where steps saw mini-batches, whose noise is in the slope.
    - `trace`: nβ (L(θ) - L(θ0)) of each draw, (chain, draw); of mini-batches both on the same batch.
    - `heat`: the configurational temperature of each draw, in units of the one it should have.
    - `temperatures`: what the sampler had, in units of the one it should have, so that all should be 1. The
      "configurational" one is that of (θ - θ0)·∇U/N with the gradients of the steps, and for a quadratic loss
      without localisation the coefficient is off by just this factor. Those of momenta are there for each
      part of an optimiser of ours, as "kinetic".
    - `off`: the names of those that are off by more than their errors allow.
    - `coarseness`: the largest h²k/4 on the way, k = |∇U(θ') - ∇U(θ)|/|θ' - θ| from draw to draw; steps are
      unstable from 1 on (`CoarseStepsWarning`). NaN with mini-batches, and for samplers that are not ours or
      have no momenta.
    - `n`, `beta`, `localization`: as above; `loss`: L(θ0); `size`: how many parameters moved.
    """

    trace: NDArray[np.float64] = field(compare=False)
    heat: NDArray[np.float64] = field(compare=False)
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
        """The coefficient."""
        return self._estimate.value

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval."""
        low, high = self._estimate.interval
        if self.corrected is None:
            return low, high
        least, most = self.corrected.interval
        return min(low, least), max(high, most)

    @property
    def corrected(self) -> Estimate | None:
        """The value at the right temperature, as far as the draws tell."""
        if self.batches:
            return None
        away = self.heat - self.heat.mean()
        spread = float(np.square(away).sum())
        slope = float((away * self.trace).sum()) / spread if spread else 0.0
        return statistics.mean(self.trace - slope * (self.heat - 1.0))

    @property
    def _estimate(self) -> Estimate:
        return statistics.mean(self.trace)

    @property
    def off(self) -> tuple[str, ...]:
        """Which temperatures are not the one that the sampler should have."""
        chance = SURE / len(self.temperatures)
        return tuple(name for name, heat in self.temperatures.items() if heat.p_value(1.0) < chance)

    def __repr__(self) -> str:
        low, high = self.interval
        known = math.isfinite(low)
        chains, draws = self.trace.shape
        wrong = f"OFF TEMPERATURE ({', '.join(self.off)})" if self.off else "none off by more than its error"
        heats = ", ".join(f"{name} {_text(heat)}" for name, heat in self.temperatures.items())
        return "\n".join(
            [
                f"LearningCoefficient({self.value:.4g}, "
                + (f"95 % interval {low:.4g} to {high:.4g}" if known else "of too few draws for an interval"),
                f"  n = {self.n}, β = {self.beta:.4g}, localisation {self.localization:g}, "
                f"{self.size} parameters, loss {self.loss:.4g} at the start",
                f"  {chains} chains of {draws} draws: {ess(self.trace):.0f} effective, "
                f"R-hat {rhat(self.trace):.3f}",
                f"  temperatures in units of 1/(nβ): {heats}: {wrong}",
                *([f"  h²k/4 = {self.coarseness:.2g} at most"] if math.isfinite(self.coarseness) else []),
                ")",
            ]
        )


def _text(heat: Estimate) -> str:
    return f"{heat.value:.3f} ± {heat.error:.3f}" if math.isfinite(heat.error) else f"{heat.value:.3f} ± ?"


def llc(
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
    """The local learning coefficient of a trained module: λ = nβ (E[L(θ)] - L(θ0)), θ0 the module as it is.

    >>> import torch
    >>> from heatbath.torch import llc
    >>> X = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> model = torch.nn.Linear(3, 1, bias=False)
    >>> torch.nn.init.ones_(model.weight).sum().item()
    3.0
    >>> found = llc(model, lambda f, y: 0.5 * (f - y).square().mean(), (X, X.sum(1, keepdim=True)), seed=1)
    >>> abs(found.value - 1.5) < 0.3, found.off  # half of three
    (True, ())

    The module itself is not changed. It is sampled in evaluation mode, so that L is a function of θ.

    - `loss`: of outputs and targets, the mean of -log likelihood over examples.
    - `data`: tensors (X, y), all of which every step sees, or with `batch` so many drawn at random for each
      chain; or a loader, of which each chain takes batches of its own (those that are shorter than the first
      are left out). Mini-batches heat a sampler, and with it the coefficient: `OffTemperatureWarning` warns
      of it.
    - `sampler`: makes an optimiser of the chains and the temperature τ = 1/(nβ), such as
      `lambda chains, tau: AdaptiveLangevin(chains, lr=0.05, tau=tau, sigma=0.1, epsilon=1.0)`. By default it
      is Langevin dynamics with friction 1 and stepsize `lr` (0.1).
    - `beta`: 1/log n unless given.
    - `localization`: g, the precision of a Gaussian around θ0 in the density exp(-nβ L - g/2 |θ - θ0|²), as
      in devinterp; 0 for none.
    - `burn_in`, `draws`: steps of each chain before the draws, and draws, one at each step.
    - `only`: the parameters that move, by name, each with a mask of its elements, or True for all of them.
    - `seed`: of the noise of the default sampler and of the batches drawn from tensors.
    """
    if not isinstance(model, nn.Module) or isinstance(model, Chains):
        raise TypeError(f"llc: a module is needed, got {shown(model)} of type {type(model).__name__}")
    if sampler is not None and lr is not None:
        raise ValueError(f"llc: lr is that of the default sampler: set yours in sampler=, got lr={shown(lr)}")
    g = real("llc: localization", localization, NON_NEGATIVE)
    burn_in, draws = whole("llc: burn_in", burn_in, low=0), whole("llc: draws", draws, low=4)
    seed = seeds.new_seed() if seed is None else whole("llc: seed", seed, low=0, high=2**63)
    centre = _restricted(deepcopy(model).eval(), only)
    if not any(p.requires_grad for p in centre.parameters()):
        raise ValueError("llc: no parameter moves: all have requires_grad=False, or only= has none")
    batches = _Batches(data, batch, whole("llc: chains", chains, low=1), seed, model_device(model))
    n, start = batches.judge(lambda x, y: _checked_loss(loss(centre(x), y)))
    if beta is None and n < 3:
        raise ValueError(f"llc: β = 1/log n needs 3 examples at least, got {n}: give beta=")
    beta = 1 / math.log(n) if beta is None else real("llc: beta", beta, POSITIVE)
    tau = 1 / (n * beta)
    walk = _Walk(Chains(centre, chains, "same"), loss, g * tau, start)
    if sampler is None:
        optimizer: Optimizer = Langevin(walk.chains, LR if lr is None else lr, GAMMA, tau, seed=seed)
    else:
        optimizer = sampler(walk.chains, tau)
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"llc: sampler(chains, tau) must make an optimiser, got {shown(optimizer)}")
    for step, (x, y) in zip(range(burn_in + draws), batches, strict=False):
        if step == burn_in and isinstance(optimizer, Partitioned):
            optimizer.forget_past()
        walk.step(optimizer, x, y, batches.are_own)
        if step < burn_in:
            walk.forget()
        if step % LOOK == 0 or step == burn_in + draws - 1:
            _check_alive(walk.chains, step)
    heat = walk.trace(walk.virials) / tau
    temperatures = {"configurational": statistics.mean(heat)}
    if isinstance(optimizer, Partitioned):
        heats = optimizer.temperature()
        for part, own in heats.items():
            name = "kinetic" if len(heats) == 1 else f"kinetic of {part}"
            temperatures[name] = Estimate(own.value / tau, own.error / tau)
    found = LearningCoefficient(
        walk.trace(walk.losses) / tau, heat, temperatures, walk.coarseness, batches.are_own, n, beta, g,
        start, walk.size,
    )  # fmt: skip
    _warn(found)
    return found


class _Walk:
    """Chains on their way, with the losses above that of θ0 and the virials (θ - θ0)·∇U/N of all steps."""

    def __init__(self, chains: Chains, loss: Loss, pull: float, start: float) -> None:
        self.chains, self.loss, self.pull, self.start = chains, loss, pull, start
        self.free = [p for p in chains.parameters() if p.requires_grad]
        self.centre = [p.detach()[:1].clone() for p in self.free]
        self.size = 0
        self.losses: list[Tensor] = []
        self.virials: list[Tensor] = []
        self.coarseness = math.nan
        self._last: list[tuple[Tensor, Tensor]] = []  # θ and gradients of the draw before

    def step(self, optimizer: Optimizer, x: Tensor, y: Tensor, own: bool) -> None:
        """A step, noted as the chains are at its first gradient."""
        seen = False

        def closure() -> Tensor:
            nonlocal seen
            optimizer.zero_grad()
            losses = torch.func.vmap(self.loss, in_dims=(0, 0 if own else None))(self.chains(x, each=own), y)
            away = [p - c for p, c in zip(self.free, self.centre, strict=True)]
            potentials = losses
            if self.pull:
                squares = torch.stack([d.square().flatten(1).sum(1) for d in away])
                potentials = losses + 0.5 * self.pull * squares.sum(0)
            torch.autograd.backward(potentials.sum())  # the sum: each chain has the gradient of its own
            if not seen:
                self._note(losses.detach() - self._at_centre(x, y, own), away)
                if not own:
                    self._look_at_curvature(_edge(optimizer))
            seen = True
            return potentials.detach()

        optimizer.step(closure)  # type: ignore[arg-type]

    def _note(self, losses: Tensor, away: list[Tensor]) -> None:
        moving = [(d.detach(), p.grad) for d, p in zip(away, self.free, strict=True) if p.grad is not None]
        self.size = sum(d[0].numel() for d, _ in moving)
        products = torch.stack([(d * gradient).flatten(1).sum(1) for d, gradient in moving])
        self.losses.append(losses)
        self.virials.append(products.sum(0) / self.size)

    def _look_at_curvature(self, edge: float) -> None:
        """Note the curvature between the draw before and this one, where the edge of stability is known."""
        if not math.isfinite(edge):
            return
        now = [(p.detach().clone(), p.grad.clone()) for p in self.free if p.grad is not None]
        if len(self._last) == len(now):
            pairs = [
                [a - b for a, b in zip(*both, strict=True)] for both in zip(now, self._last, strict=True)
            ]
            steps, changes = (
                sum(d.square().flatten(1).sum(1) for d in kind) for kind in zip(*pairs, strict=True)
            )
            largest = edge * float((changes / steps).nan_to_num(0.0, posinf=0.0).max().sqrt())
            self.coarseness = largest if math.isnan(self.coarseness) else max(self.coarseness, largest)
        self._last = now

    @torch.no_grad()
    def _at_centre(self, x: Tensor, y: Tensor, own: bool) -> Tensor | float:
        """The loss of θ0 on the same examples."""
        if not own:
            return self.start
        return torch.stack([self.loss(self.chains.model(a), b) for a, b in zip(x, y, strict=True)])

    def forget(self) -> None:
        """Forget the steps so far."""
        self.losses.clear()
        self.virials.clear()
        self.coarseness = math.nan

    @staticmethod
    def trace(values: list[Tensor]) -> NDArray[np.float64]:
        """Values of all steps, (chain, step)."""
        return torch.stack(values, dim=1).double().cpu().numpy()


def _edge(optimizer: Optimizer) -> float:
    """h²/4, times which a curvature is 1 where steps with momenta become unstable; NaN of other steps."""
    if not isinstance(optimizer, Partitioned):
        return math.nan
    sizes = [
        float(group["lr"]) if "A" in group.get("word", "") else math.nan for group in optimizer.param_groups
    ]
    return max(sizes) ** 2 / 4 if not any(map(math.isnan, sizes)) else math.nan


class _Batches:
    """What the chains see at each step: all examples, or batches of their own, (chains, examples, ...)."""

    def __init__(self, data: object, batch: object, chains: int, seed: int, device: torch.device) -> None:
        self.data: Any = data
        self.chains, self.device = chains, device
        self.generator = torch.Generator().manual_seed(seed)
        self.batch: int | None = None
        if is_pair(data):
            x, y = check_batch(data)
            if not len(x):
                raise ValueError("llc: data has no examples")
            self.data = x.to(device), y.to(device)
            size = len(x) if batch is None else whole("llc: batch", batch, low=1, high=len(x) + 1)
            self.batch = size if size < len(x) else None
            self.are_own = self.batch is not None
        elif not is_loader(data, repeatable=True):
            raise TypeError(f"llc: data must be tensors (X, y), or {LOADER}; got {shown(data)}")
        elif batch is not None:
            raise ValueError(f"llc: batch is for tensors, and a loader has its own; got batch={shown(batch)}")
        else:
            self.are_own = True

    @torch.no_grad()
    def judge(self, loss: Callable[[Tensor, Tensor], float]) -> tuple[int, float]:
        """How many examples there are, and the mean of their losses."""
        if is_pair(self.data):
            size = CHUNK_SIZE if self.are_own else len(self.data[0])
            batches: Any = zip(*(torch.split(tensor, size) for tensor in self.data), strict=True)
        else:
            batches = self._once()
        total, first, sizes = 0.0, None, list[int]()
        for x, y in batches:
            total += len(x) * loss(x, y)
            sizes.append(len(x))
            first = (x, y) if len(sizes) == 1 else None
        if not sum(sizes):
            raise ValueError("llc: the loader has no batches")
        if first is not None and not is_pair(self.data):  # it has all examples in one
            self.data, self.are_own = first, False
        self.length = sizes.count(sizes[0])
        return sum(sizes), total / sum(sizes)

    def _once(self) -> Iterator[tuple[Tensor, Tensor]]:
        for given in self.data:
            x, y = check_batch(given)
            yield x.to(self.device), y.to(self.device)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while not self.are_own:
            yield self.data
        if self.batch is not None:
            x, y = self.data
            while True:
                rows = torch.randint(len(x), (self.chains, self.batch), generator=self.generator)
                yield x[rows.to(self.device)], y[rows.to(self.device)]
        waiting: list[tuple[Tensor, Tensor]] = []
        size = step = 0
        while True:
            for x, y in self._once():
                size = size or len(x)
                if len(x) == size:
                    waiting.append((x, y))
                if len(waiting) == self.chains:
                    pairs = [waiting[place] for place in assign_turns(step, self.chains, self.length)]
                    yield torch.stack([a for a, _ in pairs]), torch.stack([b for _, b in pairs])
                    waiting, step = [], step + 1


class _Elements(nn.Module):
    """A tensor of which some elements move, from a vector of these."""

    def __init__(self, tensor: Tensor, mask: Tensor) -> None:
        super().__init__()
        self.shape, self.index = tensor.shape, mask.flatten().nonzero().flatten()
        self.rest = tensor.detach().clone().flatten()

    def forward(self, chosen: Tensor) -> Tensor:
        """The whole tensor."""
        return self.rest.scatter(0, self.index, chosen).view(self.shape)

    def right_inverse(self, tensor: Tensor) -> Tensor:
        """Those that move."""
        return tensor.detach().flatten()[self.index]


def _restricted(model: nn.Module, only: Mapping[str, Tensor | bool] | None) -> nn.Module:
    """A module of which only these elements of its parameters move: those are its parameters then."""
    if only is None:
        return model
    if not isinstance(only, Mapping):
        raise TypeError(f"llc: only must be a dict of masks by the names of parameters, got {shown(only)}")
    known = dict(model.named_parameters())
    if unknown := [name for name in only if name not in known]:
        raise ValueError(f"llc: only has {', '.join(map(repr, unknown))}; there are {', '.join(known)}")
    places: dict[int, int] = {}
    for _, parameter in model.named_parameters(remove_duplicate=False):
        places[id(parameter)] = places.get(id(parameter), 0) + 1
    for name, parameter in known.items():
        mask: Tensor | bool = only.get(name, False)
        if isinstance(mask, Tensor) and (mask.dtype != torch.bool or mask.shape != parameter.shape):
            raise ValueError(
                f"llc: the mask of {name!r} must be of bool, with shape {tuple(parameter.shape)}; got "
                f"{shown(mask)} of {mask.dtype}"
            )
        if not isinstance(mask, (Tensor, bool)):
            raise TypeError(f"llc: the mask of {name!r} must be a tensor of bool, or True; got {shown(mask)}")
        every = bool(mask.all()) if isinstance(mask, Tensor) else mask
        some = bool(mask.any()) if isinstance(mask, Tensor) else mask
        if some and not every and places[id(parameter)] > 1:
            raise ValueError(f"llc: {name!r} is shared between layers, so that it moves as a whole: say True")
        parameter.requires_grad_(some)
        if some and not every:
            assert isinstance(mask, Tensor)
            owner, _, own = name.rpartition(".")
            rule = _Elements(parameter, mask.to(parameter.device))
            parametrize.register_parametrization(model.get_submodule(owner), own, rule)
    return model


def _checked_loss(value: object) -> float:
    """The loss of a batch."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise TypeError(f"llc: the loss must be one number for a batch, such as a mean; got {shown(value)}")
    if not math.isfinite(float(value)):
        raise ValueError(f"llc: the loss of the module as it is must be finite, got {float(value)}")
    return float(value)


def _check_alive(chains: Chains, step: int) -> None:
    if not bool((alive := chains.alive()).all()):
        lost = ", ".join(str(k) for k, living in enumerate(alive.tolist()) if not living)
        raise RuntimeError(
            f"llc: chains {lost} have diverged by step {step}: take a smaller lr, or a stronger localization"
        )


def _warn(found: LearningCoefficient) -> None:
    """Warn of a sampler that is not at its temperature, or too coarse."""
    from heatbath._internal.warnings import OffTemperatureWarning  # which loads the engine

    if found.coarseness > COARSE:
        warnings.warn(
            f"h²k/4 was {found.coarseness:.2g}, and steps are unstable from 1 on: a smaller lr is needed, as "
            f"excursions may raise the coefficient {found.value:.4g}, and its interval need not show it",
            CoarseStepsWarning,
            stacklevel=3,
        )
    if not found.off:
        return
    heats = ", ".join(f"{name} {_text(found.temperatures[name])}" for name in found.off)
    remedy = f"{'larger batches, ' if found.batches else ''}a smaller lr or a longer burn_in bring it closer"
    if found.interval[1] < 0:
        remedy = "the loss falls below that of the module as it is: train it to a minimum before"
    warnings.warn(
        f"the sampler is not at its temperature, and the coefficient {found.value:.4g} is that of another "
        f"law: in units of 1/(nβ), {heats}; {remedy}",
        OffTemperatureWarning,
        stacklevel=3,
    )
