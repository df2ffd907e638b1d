"""Posteriors for an optimiser: the temperatures and priors that follow from a prior and the loss in use.

The loss that a training loop minimises is κ times the mean over n training examples of -log likelihood, but
for a constant. At temperature τ = Tκ/n with `weight_decay` κ/(ς²n) the posterior is sampled, where for means
over n examples with K targets each (as torch's losses are by default)

| loss | likelihood of a target | κ |
| --- | --- | --- |
| `binary_cross_entropy_with_logits` | p^y (1 - p)^(1 - y), p = 1/(1 + exp(-f)) | 1/K |
| `cross_entropy` | exp(f_y)/Σ_k exp(f_k) | 1/K |
| `mse_loss` | N(y; f, s²) | 2s²/K |
| `gaussian_nll_loss` | N(y; f, v), v what the network says | 1/K |
| `poisson_nll_loss` | Poisson(y; exp(f)) | 1/K |
| `negative_log_likelihood` | your own: the loss is the mean of its -log | 1/K |

With `reduction="sum"` the loss is the sum over all n examples, and n stands in place of 1/K. The sum over a
mini-batch is to be multiplied by n over its size.

Where examples have weights w, the likelihood of each has the power w: n is Σw, the loss Σwℓ/Σw with ℓ the
mean over an example's targets (or Σwℓ, with the sum), and Σr² is Σwr². The loss of a mini-batch of b examples
is Σwℓ/(b x mean w), with the mean of all weights.

A noise s² that is not known is common to all targets and has the prior IG(a, b v), v the variance of the
targets. `draw_noise` draws it from its law given the residuals, IG((a + 1 + nK/2)/T - 1, (b v + Σr²/2)/T).
As in `likelihood`, momenta are in units of s: all else is as for s = 1, so that groups show τ and
`weight_decay` for s = 1, and `temperature()` is to be compared with that τ.

Where there are more examples than before, or fewer (`set_examples`, see `streams`), τ and `weight_decay` are
multiplied by n/n', momenta by sqrt(n/n'), so that p/sqrt(τ) stays, and adaptive parts keep σ²/τ and ετ.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from heatbath._internal.checks import POSITIVE, choice, is_real, real, shown, store, whole
from heatbath.methods import Method, coefficients, names, posterior
from heatbath.methods.partition import Part, Partition
from heatbath.methods.schedules import scaled
from heatbath.models.likelihood import law_of_variance, settle_part
from heatbath.reference import random
from heatbath.torch.optim.layers import ModuleLayer
from heatbath.torch.optim.param_groups import chain_count, current, of_chain, to_method
from heatbath.torch.optim.state import is_lazy

Loss = Literal[
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "mse_loss",
    "gaussian_nll_loss",
    "poisson_nll_loss",
    "negative_log_likelihood",
]

PATIENCE = 1000  # steps without a draw of the noise
ROUNDING = 1e-5  # relative, of a sum of weights in float32


@dataclass(frozen=True)
class LossPosterior:
    """What an optimiser samples, in place of `tau` and `weight_decay`; for which losses, see `posteriors`.

    - `loss`: what the loop minimises, by the name of torch's function, without class weights or smoothing; or
      "negative_log_likelihood", of your own.
    - `n`: how many training examples there are, in all and not in a mini-batch; or the sum of their weights.
    - `prior`, `temperature`: as in `heatbath.Posterior`. A prior for each layer needs a module, or a group
      for each layer; "fan_in" takes the inputs of a layer from its first matrix.
    - `noise`: of `mse_loss`, the standard deviation of the targets around the model's values, or "sampled",
      by `optimizer.draw_noise`. One for all targets: where each has its own, divide targets and outputs by
      theirs.
    - `targets`: how many an example has: the mean of a loss is over these, too.
    - `reduction`: as the loss has it: the "mean", or the "sum" over all examples.
    - `variance`: of the targets over the training examples, 1 where they are standardised. The noise that is
      sampled starts there, and its prior is in units of it.

    >>> import torch
    >>> from heatbath.torch import Langevin, LossPosterior
    >>> model = torch.nn.Linear(3, 2)
    >>> optimizer = Langevin(model, 0.1, 1.0, posterior=LossPosterior("mse_loss", 50, noise=0.1, targets=2))
    >>> optimizer.param_groups[0]["tau"] == 2 * 0.1**2 / (50 * 2)
    True
    """

    loss: Loss
    n: float
    prior: float | Sequence[float] | Literal["fan_in"] = 1.0
    noise: float | Literal["sampled"] = "sampled"
    temperature: float = 1.0
    targets: int = 1
    reduction: Literal["mean", "sum"] = "mean"
    variance: float = 1.0

    def __post_init__(self) -> None:
        choice("LossPosterior: loss", self.loss, get_args(Loss))
        choice("LossPosterior: reduction", self.reduction, ("mean", "sum"))
        store(self, n=real("LossPosterior: n", self.n, POSITIVE))
        store(self, targets=whole("LossPosterior: targets", self.targets, low=1))
        store(self, variance=real("LossPosterior: variance", self.variance, POSITIVE))
        if isinstance(self.prior, str) and str(self.prior) == "auto":
            raise ValueError(
                "LossPosterior: prior='auto' is for heatbath.train: say a standard deviation here"
            )
        known = not (isinstance(self.noise, str) and self.noise == "sampled")
        if known and self.loss != "mse_loss":
            raise ValueError(
                f"LossPosterior: noise is for mse_loss, and this is {self.loss}; got {shown(self.noise)}"
            )
        if known and not is_real(self.noise):
            raise ValueError(
                "LossPosterior: mse_loss has one noise for all targets, a number or 'sampled'; got "
                f"{shown(self.noise)}: where each has its own, divide targets and outputs by theirs; where "
                "the model says it, take gaussian_nll_loss"
            )
        values = self.values
        if self.samples_noise:  # a temperature that is too high is refused
            law_of_variance(self.residuals, values.temperature, np.ones(1))
        store(self, prior=values.prior, noise=values.noise, temperature=values.temperature)

    @property
    def values(self) -> posterior.Posterior:
        """Prior, noise and temperature alone."""
        return posterior.Posterior(prior=self.prior, noise=self.noise, temperature=self.temperature)

    @property
    def samples_noise(self) -> bool:
        """Whether there is a noise to be drawn."""
        return self.loss == "mse_loss" and self.noise == "sampled"

    @property
    def residuals(self) -> float:
        """How many residuals the training examples have, by their weights."""
        return self.n * self.targets

    @property
    def scale(self) -> float:
        """κ: what the mean of -log likelihood is multiplied by in the loss; for s = 1 where s is drawn."""
        factor = self.n if self.reduction == "sum" else 1 / self.targets
        if self.loss == "mse_loss":
            factor *= 2.0 if isinstance(self.noise, str) else 2 * self.noise**2
        return factor


class Noise(NamedTuple):
    """How the variance of so many residuals is drawn: (scale + factor Σr²)/Gamma(shape)."""

    residuals: float
    shape: float
    scale: float
    factor: float


def check(given: object) -> None:
    """Refuse what is not a posterior of an optimiser."""
    if not isinstance(given, LossPosterior | None):
        raise TypeError(
            "posterior must be a heatbath.torch.LossPosterior, which knows the loss and how many examples "
            f"there are, such as LossPosterior('mse_loss', n=len(x)); got {shown(given)}"
        )


def settle(given: LossPosterior, groups: list[dict[str, Any]], methods: list[Method]) -> list[dict[str, Any]]:
    """Groups with methods that have the temperature and the prior; where the layers of a group have different
    priors, one for each layer. A group may have its `Layer`s as "layers", and is otherwise one."""
    Partition(dict(enumerate(methods)), 1.0, given.values)  # refuses temperatures of their own, and priors
    if given.samples_noise:
        check_words(methods)
    layers = [group.get("layers") or [ModuleLayer("", _listed(group["params"]))] for group in groups]
    everywhere = [layer for of_group in layers for layer in of_group]
    widths = [_width(layer) if given.prior == "fan_in" else 1 for layer in everywhere]
    deviations = iter(given.values.deviations(widths))
    settled = []
    for place, (group, method, of_group) in enumerate(zip(groups, methods, layers, strict=True)):
        by_name = {str(i): layer for i, layer in enumerate(of_group)}
        precisions = {name: given.scale / (next(deviations) ** 2 * given.n) for name in by_name}
        spans = {name: [_size(p) for p in layer.params] for name, layer in by_name.items()}
        ranges = tuple(range(size) for sizes in spans.values() for size in sizes)
        label = str(group.get("name", group.get("part", place)))
        part = Part(label, place, method, tuple(by_name), ranges)
        pieces = settle_part(part, given.temperature * given.scale / given.n, precisions, spans)
        kept = {key: value for key, value in group.items() if key not in ("layers", *names(type(method)))}
        for piece in pieces:
            params = [p for name in piece.layers for p in by_name[name].params]
            own = {"name": by_name[piece.layers[0]].name} if len(pieces) > 1 else {}
            settled.append(own | kept | {"params": params, "method": piece.method} | _size_of(given))
            settled[-1] |= _noise(given)
    return settled


def _size_of(given: LossPosterior) -> dict[str, float]:
    """What a group has to know to follow n, if it can: its n, and nτ. A sum would itself change with n."""
    return {"n": given.n, "heat": given.temperature * given.scale} if given.reduction == "mean" else {}


def set_examples(group: dict[str, Any], n: float) -> float:
    """Put a group at the temperature and prior of a posterior of n examples, and return what its momenta are
    to be multiplied by."""
    ratio = group["n"] / n
    if ratio == 1:
        return 1.0
    one = of_chain(group, 0)
    method = to_method(one, current(one))
    if "xi" in group:
        method = replace(method, xi=1.0)  # type: ignore[call-arg]
    method = method.at_temperature(group["heat"] / n)
    if "xi" in group:
        group["xi"] = scaled(group["xi"], getattr(method, "xi", 1.0))
    if method.has_prior:
        method = method.with_prior(float(group["weight_decay"]) * ratio)
    group |= {name: getattr(method, name) for name in coefficients(type(method)) if name in group}
    group["n"] = n
    if "draws" in group:
        law = Noise(*group["draws"])
        more = law.residuals * (1 / ratio - 1)
        law = law._replace(residuals=law.residuals + more, shape=law.shape + law.factor * more)
        if law.shape < 1:
            raise ValueError(
                f"LossPosterior: with {n:g} examples its temperature is too high for a noise to be sampled"
            )
        group["draws"] = list(law)
    return math.sqrt(ratio) if "tau" in group else 1.0


def _noise(given: LossPosterior) -> dict[str, Any]:
    """What a group has of a noise that is drawn: the variance now, how it is drawn, and how often it was."""
    if not given.samples_noise:
        return {}
    law = law_of_variance(given.residuals, given.temperature, np.array([given.variance]))
    drawn = Noise(given.residuals, law.shape, float(law.scale[0]), law.factor)
    return {"noise": given.variance, "draws": list(drawn), "drawn": 0}


def check_drawn(group: dict[str, Any]) -> None:
    """Warn where a noise that is to be drawn never is."""
    if group.get("drawn") == 0 and group["step"] == PATIENCE:
        warnings.warn(
            f"the noise is to be sampled, and was not drawn in {PATIENCE} steps: call "
            "optimizer.draw_noise(residuals) now and then, or give the posterior noise= a number",
            RuntimeWarning,
            stacklevel=2,
        )


def draw(
    group: dict[str, Any], residuals: Tensor | Iterable[Tensor], weights: Tensor | Iterable[Tensor] | None
) -> list[float]:
    """The variance of the data from its law given the residuals of all of them, at the group's step: for each
    chain, if there are several, of whose residuals the first axis is the chain. That of chains which have
    diverged stays, as there is a law for the others all the same."""
    law = Noise(*group["draws"])
    chains = chain_count(group)
    count, squares = 0.0, np.zeros(chains)
    others = () if weights is None else weights
    for batch, given in zip_longest(_tensors("residuals", residuals), _tensors("weights", others)):
        if weights is not None and (batch is None or given is None):
            raise ValueError("weights must have one tensor for each of residuals, got more of one of them")
        if group["chains"] and (batch.ndim < 2 or len(batch) != chains):
            raise ValueError(
                f"residuals must be (chains, examples, ...) of {chains} chains, got {tuple(batch.shape)}"
            )
        several = batch if group["chains"] else (batch if batch.ndim else batch[None])[None]
        if not several.numel():
            several = several.new_empty(chains, 0, 1)
        rows = several.reshape(*several.shape[:2], -1) if several.numel() else several
        rows = rows.transpose(0, 1)  # (examples, chains, targets)
        w = rows.new_ones(len(rows)) if given is None else given.ravel().to(rows)
        if len(w) != len(rows) or not ((w >= 0) & w.isfinite()).all():
            raise ValueError(
                f"weights must be finite and >= 0, one for each of {len(rows)} examples, got {shown(given)}"
            )
        count += float(w.sum()) * rows.shape[2]
        squares += torch.einsum("e,ect->c", w, rows.square()).cpu().numpy()
    if abs(count - law.residuals) > (0.0 if weights is None else ROUNDING * law.residuals):
        raise ValueError(
            f"residuals of all {law.residuals:.10g} targets of the training examples are needed, got "
            f"{count:.10g}: of several batches give one after the other, such as (model(x) - y for x, y in "
            "loader); where examples have weights, n is their sum and they are given as weights="
        )
    alive = np.isfinite(squares)
    if not alive.any():
        given = squares if group["chains"] else squares[0]
        raise ValueError(f"the squares of the residuals must be finite, got {given}: has it diverged?")
    numbers = np.arange(group["chain"], group["chain"] + chains)
    gamma = random.gammas(law.shape, group["seed"], random.VARIANCE, 0, numbers, group["step"])
    drawn = (law.scale + law.factor * squares) / gamma
    return [float(value) for value in (np.where(alive, drawn, group["noise"]) if group["chains"] else drawn)]


def _tensors(label: str, given: object) -> Iterator[Tensor]:
    """One tensor, or those of an iterable, in double."""
    batches = [given] if isinstance(given, Tensor) else given
    if not isinstance(batches, Iterable):
        raise TypeError(f"{label} must be a tensor, or one for each batch, got {shown(given)}")
    for batch in batches:
        if not isinstance(batch, Tensor):
            raise TypeError(f"{label} must be a tensor, or one for each batch, got {shown(batch)}")
        yield batch.detach().double()


def check_words(methods: Iterable[Method]) -> None:
    """Refuse words of which a step of an optimiser ends in the middle: a draw is between two words."""
    if at_kick := [method.spelling for method in methods if method.seen_at_kick]:
        raise ValueError(
            "LossPosterior: noise is drawn between two steps of the word, and between the steps of an "
            f"optimiser {', '.join(at_kick)} is at the kick: choose a word such as 'BAOAB', or give noise a "
            "number"
        )


def _width(layer: ModuleLayer) -> int:
    """The inputs of a layer: a row of its first matrix."""
    tensors = map(_tensor, layer.params)
    matrices = [p for p in tensors if not is_lazy(p) and p.dim() > 1 and p.numel()]
    if not matrices:
        raise ValueError(
            f"LossPosterior: prior='fan_in' needs layers with a matrix (lazy ones after a first call), and "
            f"{layer.name or 'one'!r} has none: give a standard deviation for each layer"
        )
    return matrices[0].numel() // matrices[0].shape[0]


def _listed(params: Any) -> list[Any]:
    return [params] if isinstance(params, Tensor) else list(params)


def _tensor(entry: Any) -> Tensor:
    """A parameter that may have a name beside it."""
    tensor: Tensor = entry[1] if isinstance(entry, tuple) else entry
    return tensor


def _size(entry: Any) -> int:
    return 0 if is_lazy(_tensor(entry)) else _tensor(entry).numel()
