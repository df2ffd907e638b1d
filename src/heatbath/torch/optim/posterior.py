"""Temperatures and priors of an optimiser that follow from a prior and the loss in use.

The loss that a training loop minimises is, up to a constant, κ times the mean over n training examples of
-log likelihood. At temperature τ = Tκ/n with `weight_decay` κ/(ς²n) the posterior at temperature T with prior
standard deviation ς is sampled. For means over n examples with K targets each (as torch's losses are by
default)

| loss | likelihood of a target | κ |
| --- | --- | --- |
| `binary_cross_entropy_with_logits` | p^y (1 - p)^(1 - y), p = 1/(1 + exp(-f)) | 1/K |
| `cross_entropy` | exp(f_y)/Σ_k exp(f_k) | 1/K |
| `mse_loss` | N(y; f, s²) | 2s²/K |
| `gaussian_nll_loss` | N(y; f, v), v what the network says | 1/K |
| `poisson_nll_loss` | Poisson(y; exp(f)) | 1/K |
| `negative_log_likelihood` | your own: the loss is the mean of its -log | 1/K |

With `reduction="sum"` the loss is the sum over all n examples, and n stands in place of 1/K. Multiply the sum
over a mini-batch by n over its size.

Where examples have weights w, the likelihood of each has the power w: n is Σw, the loss Σwℓ/Σw with ℓ the
mean over an example's targets (or Σwℓ, with the sum), and Σr² is Σwr². The loss of a mini-batch of b examples
is Σwℓ/(b x mean w), with the mean of all weights.

An unknown noise variance s² is common to all targets and has the prior IG(a, b v), v the variance of the
targets. `draw_noise` draws it from its law given the residuals, IG((a + 1 + nK/2)/T - 1, (b v + Σr²/2)/T).
As in `likelihood`, momenta are in units of s: all else is as for s = 1, so that groups show τ and
`weight_decay` for s = 1, and `temperature()` is to be compared with that τ.

When the number of examples changes from n to n' (`set_examples`, see `streaming`), τ and `weight_decay` are
multiplied by n/n', momenta by sqrt(n/n'), so that p/sqrt(τ) stays, and adaptive parts keep σ²/τ and ετ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heatbath._internal.checks import POSITIVE, choice, is_real, real, shown, store, whole
from heatbath._internal.warnings import warn
from heatbath.methods import Method, coefficients, names, posterior
from heatbath.methods.partition import Part, Partition
from heatbath.methods.schedules import scaled
from heatbath.models.likelihood import law_of_variance, settle_part
from heatbath.reference import random
from heatbath.torch.optim import param_groups
from heatbath.torch.optim.layers import ModuleLayer
from heatbath.torch.optim.param_groups import NewGroup, ParamGroup, PlainValues
from heatbath.torch.optim.state import is_lazy

Loss = Literal[
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "mse_loss",
    "gaussian_nll_loss",
    "poisson_nll_loss",
    "negative_log_likelihood",
]

STEPS_WITHOUT_DRAW = 1000  # steps without a draw of the noise after which a warning says so
ROUNDING = 1e-5  # relative, of a sum of weights in float32
ROUNDING_OF_COUNTS = 1e-9  # relative, of a number of residuals after many changes of n


@dataclass(frozen=True)
class LossPosterior:
    """The posterior that an optimiser samples, in place of `tau` and `weight_decay`.

    Parameters
    ----------
    loss : str
        The loss that the training loop minimises: the name of torch's function (without class weights or
        smoothing), or "negative_log_likelihood" for your own. `heatbath.torch.optim.posterior` has the table.
    n : float
        Number of training examples, in all and not in a mini-batch; or the sum of their weights.
    prior : float, sequence of float or "fan_in", default 1.0
        Standard deviation of the weights, as in `heatbath.Posterior`. One for each layer needs a module, or a
        group for each layer; "fan_in" takes the inputs of a layer from its first matrix.
    noise : float or "sampled", default "sampled"
        Of `mse_loss`, the standard deviation of the targets around the model's values, or "sampled", by
        `optimizer.draw_noise`. It is one for all targets: where each has its own, divide targets and outputs
        by theirs.
    temperature : float, default 1.0
        As in `heatbath.Posterior`; below 1 the posterior is a cold one.
    targets : int, default 1
        Number of targets of an example: the mean of a loss is over these, too.
    reduction : "mean" or "sum", default "mean"
        As the loss has it: the mean, or the sum over all examples.
    variance : float, default 1.0
        Variance of the targets over the training examples, 1 where they are standardised. The noise that is
        sampled starts there, and its prior is in units of it.

    Raises
    ------
    ValueError
        If an option is out of its range, if a noise is given for another loss than `mse_loss`, or if the
        temperature is too high for a noise to be sampled.

    Examples
    --------
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
        """Check all fields, and store numbers as floats."""
        choice("LossPosterior: loss", self.loss, get_args(Loss))
        choice("LossPosterior: reduction", self.reduction, ("mean", "sum"))
        store(self, n=real("LossPosterior: n", self.n, POSITIVE))
        store(self, targets=whole("LossPosterior: targets", self.targets, low=1))
        store(self, variance=real("LossPosterior: variance", self.variance, POSITIVE))
        self._check_prior_and_noise()

        values = self.values  # checks these three
        if self.samples_noise:  # refuses a temperature that is too high
            law_of_variance(self.residuals, values.temperature, np.ones(1))
        store(self, prior=values.prior, noise=values.noise, temperature=values.temperature)

    def _check_prior_and_noise(self) -> None:
        """Refuse a prior or a noise that `heatbath.Posterior` accepts but an optimiser does not."""
        if isinstance(self.prior, str) and str(self.prior) == "auto":
            raise ValueError(
                "LossPosterior: prior='auto' is for heatbath.train only: give a standard deviation here"
            )
        is_given = not (isinstance(self.noise, str) and self.noise == "sampled")
        if is_given and self.loss != "mse_loss":
            raise ValueError(
                f"LossPosterior: noise is for mse_loss only, and the loss is {self.loss}; got noise="
                f"{shown(self.noise)}: leave noise out"
            )
        if is_given and not is_real(self.noise):
            raise ValueError(
                "LossPosterior: mse_loss has one noise for all targets, a number or 'sampled'; got "
                f"{shown(self.noise)}: where each target has its own, divide targets and outputs by theirs; "
                "where the model predicts it, use gaussian_nll_loss"
            )

    @property
    def values(self) -> posterior.Posterior:
        """Prior, noise and temperature as a `heatbath.Posterior`."""
        return posterior.Posterior(prior=self.prior, noise=self.noise, temperature=self.temperature)

    @property
    def samples_noise(self) -> bool:
        """True if the variance of the data is to be drawn."""
        return self.loss == "mse_loss" and self.noise == "sampled"

    @property
    def residuals(self) -> float:
        """Number of residuals of the training examples, by their weights."""
        return self.n * self.targets

    @property
    def scale(self) -> float:
        """κ, the factor of the mean of -log likelihood in the loss; for s = 1 where s is drawn."""
        factor = self.n if self.reduction == "sum" else 1 / self.targets
        if self.loss == "mse_loss":
            factor *= 2.0 if isinstance(self.noise, str) else 2 * self.noise**2
        return factor


class NoiseLaw(NamedTuple):
    """The law of the variance of the data: (scale + factor Σr²)/Gamma(shape), for this many residuals r."""

    residuals: float
    shape: float
    scale: float
    factor: float


def check_posterior(posterior: object) -> None:
    """Refuse a posterior that is neither a `LossPosterior` nor None."""
    if not isinstance(posterior, LossPosterior | None):
        raise TypeError(
            "posterior must be a heatbath.torch.LossPosterior, which knows the loss and the number of "
            f"examples, such as LossPosterior('mse_loss', n=len(x)); got {shown(posterior)}"
        )


def groups_with_posterior(
    posterior: LossPosterior, groups: list[NewGroup], methods: list[Method]
) -> list[NewGroup]:
    """Return new groups whose methods have the temperature and the prior of a posterior.

    Where the layers of a group have different priors, it is divided into one group for each layer.

    Parameters
    ----------
    posterior : LossPosterior
        The posterior that the optimiser samples.
    groups : list of dict
        New groups. One may have its layers, a list of `ModuleLayer`, as "layers", and is otherwise one layer.
    methods : list of Method
        Their methods, without temperatures and priors of their own.

    Returns
    -------
    list of dict
        Groups with "params", "method", the values that the posterior needs, and all other values of theirs.
    """
    Partition(dict(enumerate(methods)), 1.0, posterior.values)  # refuses other temperatures and priors
    if posterior.samples_noise:
        check_words(methods)
    layers_of_groups: list[list[ModuleLayer]] = []
    for group in groups:
        layers = group.get("layers") or [ModuleLayer("", param_groups.listed(group["params"]))]
        layers_of_groups.append(layers)
    priors = iter(_priors_of_layers(posterior, list(chain.from_iterable(layers_of_groups))))

    settled = []
    for index, (group, method) in enumerate(zip(groups, methods, strict=True)):
        layers = layers_of_groups[index]
        priors_of_group = [next(priors) for _ in layers]
        settled += _settle_group(posterior, index, group, method, layers, priors_of_group)
    return settled


def _priors_of_layers(posterior: LossPosterior, layers: list[ModuleLayer]) -> list[float]:
    """Return the `weight_decay` of each layer of a model, κ/(ς²n)."""
    widths = [1] * len(layers)
    if posterior.prior == "fan_in":
        widths = list(map(_inputs_of, layers))
    deviations = posterior.values.deviations(widths)
    return [posterior.scale / (deviation**2 * posterior.n) for deviation in deviations]


def _settle_group(
    posterior: LossPosterior,
    index: int,
    group: NewGroup,
    method: Method,
    layers: list[ModuleLayer],
    priors: list[float],
) -> list[NewGroup]:
    """Return a group with the temperature and the prior of a posterior, divided where its layers differ.

    Parameters
    ----------
    posterior : LossPosterior
        The posterior that the optimiser samples.
    index : int
        Position of the group, its label in errors if it has no name.
    group : dict
        The new group.
    method : Method
        Its method, without temperature and prior.
    layers : list of ModuleLayer
        Its layers.
    priors : list of float
        The `weight_decay` of each layer.
    """
    layers_by_key = {str(i): layer for i, layer in enumerate(layers)}
    sizes = {key: list(map(_size_of, layer.params)) for key, layer in layers_by_key.items()}
    ranges = tuple(map(range, chain.from_iterable(sizes.values())))
    label = str(group.get("name", group.get("part", index)))
    part = Part(label, index, method, tuple(layers_by_key), ranges)
    tau = posterior.temperature * posterior.scale / posterior.n
    pieces = settle_part(part, tau, dict(zip(layers_by_key, priors, strict=True)), sizes)

    replaced_keys = ("layers", *names(type(method)))
    kept = {key: value for key, value in group.items() if key not in replaced_keys}
    groups = []
    for piece in pieces:
        layers_of_piece = [layers_by_key[key] for key in piece.layers]
        params = [parameter for layer in layers_of_piece for parameter in layer.params]
        settled = kept | {"params": params, "method": piece.method}
        settled |= _values_of_posterior(posterior)
        if len(pieces) > 1:
            settled.setdefault("name", layers_of_piece[0].name)
        groups.append(settled)
    return groups


def _values_of_posterior(posterior: LossPosterior) -> PlainValues:
    """Return what a group needs to follow a change of n ("n", and nτ as "heat"), and to sample the noise.

    A summed loss changes with n by itself, so it has no "n" and "heat". A fixed noise has no "noise", "draws"
    and "drawn".
    """
    values: PlainValues = {}
    if posterior.reduction == "mean":
        values |= {"n": posterior.n, "heat": posterior.temperature * posterior.scale}
    if posterior.samples_noise:
        law = law_of_variance(posterior.residuals, posterior.temperature, np.array([posterior.variance]))
        draws = NoiseLaw(posterior.residuals, law.shape, float(law.scale[0]), law.factor)
        values |= {"noise": posterior.variance, "draws": list(draws), "drawn": 0}
    return values


def set_examples_of_group(group: ParamGroup, n: float) -> float:
    """Set a group, in place, to the temperature and prior of a posterior of n examples.

    Temperature and prior are multiplied by the previous n over the new one, adaptive parts keep the law of
    their thermostat, and the law of a noise that is sampled gets the number of residuals of n examples.

    Returns
    -------
    float
        The factor on the momenta of the group, which its caller has to apply.

    Raises
    ------
    ValueError
        If n is too small for a noise to be sampled at the temperature of the posterior.
    """
    ratio = group["n"] / n
    if ratio == 1:
        return 1.0

    method = param_groups.build_method(param_groups.group_of_chain(group, 0))
    if "xi" in group:
        method = replace(method, xi=1.0)  # type: ignore[call-arg]  # becomes the factor on every ξ
    method = method.at_temperature(group["heat"] / n)
    values = param_groups.values_of(group)
    if "xi" in group:
        values["xi"] = scaled(group["xi"], getattr(method, "xi", 1.0))
    if method.has_prior:
        method = method.with_prior(float(group["weight_decay"]) * ratio)
    values |= {name: getattr(method, name) for name in coefficients(type(method)) if name in group}
    group["n"] = n

    if "draws" in group:
        previous_law = NoiseLaw(*group["draws"])
        added = previous_law.residuals * (1 / ratio - 1)
        shape = previous_law.shape + previous_law.factor * added
        if shape < 1:
            raise ValueError(
                f"LossPosterior: with {n:g} examples its temperature is too high for a noise to be sampled"
            )
        law = previous_law._replace(residuals=previous_law.residuals + added, shape=shape)
        group["draws"] = list(law)
    return math.sqrt(ratio) if "tau" in group else 1.0


def warn_if_never_drawn(group: ParamGroup) -> None:
    """Warn once, at step `STEPS_WITHOUT_DRAW`, if a noise that is to be sampled was never drawn."""
    if group.get("drawn") == 0 and group["step"] == STEPS_WITHOUT_DRAW:
        warn(
            f"the noise is to be sampled, but was not drawn in {STEPS_WITHOUT_DRAW} steps: call "
            "optimizer.draw_noise(residuals) from time to time, or give the posterior a number as noise="
        )


def draw_variance(
    group: ParamGroup, residuals: Tensor | Iterable[Tensor], weights: Tensor | Iterable[Tensor] | None
) -> list[float]:
    """Draw the variance of the data from its law given all residuals; the group is not changed.

    It is (scale + factor Σr²)/g with g ~ Gamma(shape), where scale, factor and shape are those of the group's
    `NoiseLaw` and r are the residuals. The step of the group is the address of the random numbers.

    Parameters
    ----------
    group : ParamGroup
        A group with a drawn noise.
    residuals : Tensor or iterable of Tensor
        Residuals of all training examples, (examples, ...), or with chains (chains, examples, ...); in one
        tensor or one for each batch.
    weights : Tensor, iterable of Tensor or None
        Weights of the examples, in as many tensors.

    Returns
    -------
    list of float
        A variance for each chain. That of a chain that has diverged stays as it is.

    Raises
    ------
    ValueError
        If the residuals are not those of all examples, have another number of chains, or are finite in none.
    """
    law = NoiseLaw(*group["draws"])
    count, squares = _sum_squares(group, residuals, weights)
    tolerance = ROUNDING_OF_COUNTS if weights is None else ROUNDING
    if abs(count - law.residuals) > tolerance * law.residuals:
        raise ValueError(
            f"residuals of all {law.residuals:.10g} targets of the training examples are needed, got "
            f"{count:.10g}: give those of several batches one after the other, such as (model(x) - y for "
            "x, y in loader); where examples have weights, n is their sum and they are given as weights="
        )
    is_finite = np.isfinite(squares)
    if not is_finite.any():
        sums = squares if group["chains"] else squares[0]
        raise ValueError(f"the squares of the residuals must be finite, got {sums}: has the model diverged?")

    chain_numbers = np.arange(group["chain"], group["chain"] + len(squares))
    gamma = random.gammas(law.shape, group["seed"], random.VARIANCE, 0, chain_numbers, group["step"])
    variances = (law.scale + law.factor * squares) / gamma
    if group["chains"]:
        variances = np.where(is_finite, variances, group["noise"])
    return [float(variance) for variance in variances]


def _sum_squares(
    group: ParamGroup, residuals: Tensor | Iterable[Tensor], weights: Tensor | Iterable[Tensor] | None
) -> tuple[float, NDArray[np.float64]]:
    """Return the number of residuals of each chain and the sums of their squares, (chains,), by weights.

    For the arguments see `draw_variance`.
    """
    count = 0.0
    squares = np.zeros(param_groups.chain_count(group))
    batches = _tensors("residuals", residuals)
    weight_batches = _tensors("weights", () if weights is None else weights)
    for batch, batch_weights in zip_longest(batches, weight_batches):
        is_unpaired = batch is None or batch_weights is None
        if weights is not None and is_unpaired:
            raise ValueError("residuals and weights must have the same number of tensors, one for each batch")
        rows = _rows_of_examples(group, batch)
        w = _weights_of_examples(rows, batch_weights)
        count += float(w.sum()) * rows.shape[2]
        squares += torch.einsum("e,ect->c", w, rows.square()).cpu().numpy()
    return count, squares


def _rows_of_examples(group: ParamGroup, batch: Tensor) -> Tensor:
    """Return residuals of a batch as (examples, chains, targets).

    Parameters
    ----------
    group : ParamGroup
        The group whose chains the residuals are of.
    batch : Tensor
        Residuals, (examples, ...), or with chains (chains, examples, ...).
    """
    chain_count = param_groups.chain_count(group)
    by_chain = batch
    if not group["chains"]:  # one chain, whose residuals may be a single number
        by_chain = batch[None] if batch.ndim else batch[None, None]
    if by_chain.ndim < 2 or len(by_chain) != chain_count:
        raise ValueError(
            f"residuals must be (chains, examples, ...) of {chain_count} chains, got {tuple(batch.shape)}"
        )
    if not by_chain.numel():
        return by_chain.new_empty(0, chain_count, 1)
    return by_chain.reshape(*by_chain.shape[:2], -1).transpose(0, 1)


def _weights_of_examples(rows: Tensor, weights: Tensor | None) -> Tensor:
    """Return the weights of a batch of examples, checked: one for each row, 1 without weights."""
    w = rows.new_ones(len(rows)) if weights is None else weights.ravel().to(rows)
    if len(w) != len(rows) or not ((w >= 0) & w.isfinite()).all():
        raise ValueError(
            f"weights must be finite and >= 0, one for each of {len(rows)} examples, got {shown(weights)}"
        )
    return w


def _tensors(label: str, batches: object) -> Iterator[Tensor]:
    """Yield the tensor, or the tensors of an iterable, in double; refuse other values by their label."""
    tensors = [batches] if isinstance(batches, Tensor) else batches
    if not isinstance(tensors, Iterable):
        raise TypeError(f"{label} must be a tensor, or one for each batch, got {shown(tensors)}")
    for batch in tensors:
        if not isinstance(batch, Tensor):
            raise TypeError(f"{label} must be a tensor, or one for each batch, got {shown(batch)}")
        yield batch.detach().double()


def check_words(methods: Iterable[Method]) -> None:
    """Refuse methods whose step ends in the middle of the word, because a draw must be between two words."""
    seen_at_kick = [method.spelling for method in methods if method.seen_at_kick]
    if seen_at_kick:
        raise ValueError(
            "LossPosterior: noise is drawn between two steps of the word, but an optimiser with "
            f"{', '.join(seen_at_kick)} sees θ at the kick between its steps: choose a word such as 'BAOAB', "
            "or give noise a number"
        )


def _inputs_of(layer: ModuleLayer) -> int:
    """Return the number of inputs of a layer: the size of a row of its first matrix."""
    for parameter in map(param_groups.tensor_of, layer.params):
        if not is_lazy(parameter) and parameter.dim() > 1 and parameter.numel():
            return parameter.numel() // parameter.shape[0]
    raise ValueError(
        f"LossPosterior: prior='fan_in' needs layers with a matrix (lazy ones after a first call), and "
        f"{layer.name or 'one'!r} has none: give a standard deviation for each layer"
    )


def _size_of(entry: object) -> int:
    """Return the number of elements of an entry of "params", 0 for a lazy parameter."""
    parameter = param_groups.tensor_of(entry)
    return 0 if is_lazy(parameter) else parameter.numel()
