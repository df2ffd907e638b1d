"""Define `Posterior`, the prior and the noise of a Bayesian run, and what follows from it for one run.

`models.likelihood` computes the latter: temperatures, priors and draws of variances.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.checks import POSITIVE, is_real, real, reals, store

Prior: TypeAlias = float | Sequence[float] | Literal["fan_in", "auto"]


@dataclass(frozen=True)
class Posterior:
    """Posterior that a run samples: the prior of the parameters and the noise of the data.

    It replaces `tau` and `weight_decay` in all parts of a partition.

    Parameters
    ----------
    prior : float, list of float, "fan_in" or "auto", optional
        Standard deviation ς of all parameters, or one for each layer. "fan_in" is 1/√inputs. With "auto",
        `train` finds one for each layer (see `training.prior`).
    noise : float, list of float, "sampled" or "network", optional
        Standard deviation of a regression's targets around the network's outputs, in their units, or one for
        each target. "sampled" samples it together with the parameters. With "network", the network has a
        second output for each target, the logarithm of its variance, which then depends on the inputs.
        Classes and counts have no noise. A run records a sampled variance in `run.data["noise"]`, for targets
        as they are scaled in the problem; `run.predict(X).noise` is its mean in the user's units.
    temperature : float, optional
        Temperature T. 1 is the posterior, and below 1 it is a cold posterior.
    degrees : float, optional
        Degrees of freedom ν, if the noise of a regression has Student's distribution. Then `noise` is its
        scale s, and its variance is s² ν/(ν - 2) for ν > 2. The default is a normal distribution.

    Raises
    ------
    TypeError, ValueError
        If a value is not valid, or `degrees` is combined with noise="network".

    Examples
    --------
    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> sampling = hb.Partition(hb.Langevin(gamma=1.0), h=0.1, posterior=hb.Posterior(prior=2.0))
    >>> run = hb.train(problem, hb.MLP((5,)), sampling, steps=100, record=1)
    """

    prior: Prior = 1.0
    noise: float | Sequence[float] | Literal["sampled", "network"] = "sampled"
    temperature: float = 1.0
    degrees: float | None = None

    def __post_init__(self) -> None:
        """Check all fields, and store them as numbers, tuples of numbers, or words."""
        store(
            self,
            prior=_check_deviations("prior", self.prior, ("fan_in", "auto")),
            noise=_check_deviations("noise", self.noise, ("sampled", "network")),
            temperature=real("Posterior: temperature", self.temperature, POSITIVE),
        )
        if self.degrees is None:
            return
        store(self, degrees=real("Posterior: degrees", self.degrees, POSITIVE))
        if self.noise == "network":
            raise ValueError(
                "Posterior: degrees are for noise that is known or sampled: leave them out with "
                f"noise='network'; got {self.degrees:g}"
            )

    def deviations(self, widths: Sequence[int]) -> tuple[float, ...]:
        """Return the standard deviation of the prior of each layer.

        Parameters
        ----------
        widths : sequence of int
            The number of inputs of each layer.

        Raises
        ------
        ValueError
            If the prior is still "auto", or has another number of layers.
        """
        if self.prior == "auto":
            raise ValueError(
                "Posterior: only train, with one partition, finds prior='auto': give a standard deviation "
                "here, such as prior=1.0"
            )
        if self.prior == "fan_in":
            return tuple(1 / math.sqrt(width) for width in widths)
        if isinstance(self.prior, float):
            return (self.prior,) * len(widths)
        if len(self.prior) != len(widths):
            raise ValueError(
                f"Posterior: prior has {len(self.prior)} standard deviations, and the network has "
                f"{len(widths)} layers"
            )
        return tuple(float(deviation) for deviation in self.prior)


def _check_deviations(name: str, value: object, words: tuple[str, str]) -> str | float | tuple[float, ...]:
    """Check a field that takes a standard deviation, several of them, or one of two words; return it.

    Parameters
    ----------
    name : str
        The name of the field, for error messages.
    value : object
        What was given.
    words : tuple of str
        The two words.
    """
    label = f"Posterior: {name}"
    if isinstance(value, str) and value in words:
        return value
    if isinstance(value, str):
        accepted_words = " or ".join(map(repr, words))
        raise ValueError(f"{label} must be a standard deviation, several, or {accepted_words}; got {value!r}")
    if is_real(value):
        return real(label, value, POSITIVE)
    deviations = reals(label, value, POSITIVE)
    if not deviations:
        raise ValueError(f"{label} must be a standard deviation or several, got none")
    return deviations


class Draws(NamedTuple):
    """Settings for drawing the variances s² of targets: (scale[k] + factor Σr²)/Gamma(shape) for target k.

    r are the residuals. If examples have weights, each r² is multiplied by its weight over the mean weight.
    If the noise has Student's distribution with ν degrees of freedom, r² is multiplied by Gamma(tails[set,
    example])/(ν + r²/s²) instead, with the previous s².

    Attributes
    ----------
    shape, scale, factor : float, array (targets,), float
        As in the formula.
    every : int
        Steps between draws.
    tails : array, (data sets, examples)
        As in the formula; empty for normal noise.
    """

    shape: float
    scale: NDArray[np.float64]
    factor: float
    every: int
    tails: NDArray[np.float64] = np.empty((0, 0))


class Settled(NamedTuple):
    """What a posterior sets for a network and a problem.

    Attributes
    ----------
    parts : tuple of Part
        Parts whose methods have temperatures and priors.
    variances : array (targets,) or None
        Noise variances of the targets. None if there are none, or the network predicts them.
    draws : Draws or None
        How variances are drawn. None if they are fixed.
    degrees : float
        Degrees of freedom of the noise, infinite for a normal distribution.
    """

    parts: tuple[Any, ...]
    variances: NDArray[np.float64] | None
    draws: Draws | None
    degrees: float = math.inf

    def for_chains(self, count: int) -> NDArray[np.float64] | None:
        """Return the initial variances, (chains, targets), or None without variances."""
        return None if self.variances is None else np.tile(self.variances, (count, 1))
