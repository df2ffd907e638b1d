"""What a run samples, as a value: a `Posterior`; and what follows from it for one run (see `likelihood`)."""

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
    """What a run samples, in place of `tau` and `weight_decay`: the prior and the noise of the data.

    - `prior`: the standard deviation ς of all parameters, or one for each layer; "fan_in" is 1/√inputs;
      "auto" are those that `train` finds (see `evidence`).
    - `noise`: of a regression, the standard deviation of the targets around the network's values, in their
      units; one for each target; "sampled" together with the parameters; or "network": the network has a
      second output for each target, the logarithm of its variance, which then depends on the inputs. Classes
      and counts have none.
      A run notes a variance that is sampled in `run.data["noise"]`, of targets as they are scaled in the
      problem; `run.predict(X).noise` is its mean in the units of the user.
    - `degrees`: those of freedom, if the noise of a regression has Student's law and not a normal one. Then
      `noise` is its scale s, and its variance s² ν/(ν - 2), for more than two degrees.
    - `temperature`: T; 1 is the posterior, below it is a cold one.

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
        for name, words in (("prior", ("fan_in", "auto")), ("noise", ("sampled", "network"))):
            given = getattr(self, name)
            if isinstance(given, str):
                if given not in words:
                    raise ValueError(
                        f"Posterior: {name} must be a standard deviation, several, or "
                        f"{' or '.join(map(repr, words))}; got {given!r}"
                    )
            elif is_real(given):
                store(self, **{name: real(f"Posterior: {name}", given, POSITIVE)})
            else:
                values = reals(f"Posterior: {name}", given, POSITIVE)
                if not values:
                    raise ValueError(f"Posterior: {name} must be a standard deviation or several, got none")
                store(self, **{name: values})
        store(self, temperature=real("Posterior: temperature", self.temperature, POSITIVE))
        if self.degrees is not None:
            store(self, degrees=real("Posterior: degrees", self.degrees, POSITIVE))
            if self.noise == "network":
                raise ValueError(
                    "Posterior: degrees are for noise that is known or sampled: leave them out with "
                    f"noise='network', got {self.degrees:g}"
                )

    def deviations(self, widths: Sequence[int]) -> tuple[float, ...]:
        """The standard deviation of the prior of each layer; `widths` are the inputs of each."""
        if self.prior == "auto":
            raise ValueError(
                "Posterior: prior='auto' is found by train, for one partition: say a standard deviation "
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


class Draws(NamedTuple):
    """How variances are drawn: (scale[k] + factor Σr²)/Gamma(shape) of target k, at every so many steps.

    Where examples have weights, each r² is multiplied by its own over their mean. Where the noise has
    Student's law with ν degrees, r² is multiplied by Gamma(tails[set, example])/(ν + r²/s²) instead, with the
    s² that there was.
    """

    shape: float
    scale: NDArray[np.float64]
    factor: float
    every: int
    tails: NDArray[np.float64] = np.empty((0, 0))


class Settled(NamedTuple):
    """What a posterior says for a network and a problem: parts whose methods have temperatures and priors,
    the variances of the targets (None where there are none, or the network says them), and how they are
    drawn, if they are; the degrees of freedom of their law."""

    parts: tuple[Any, ...]
    variances: NDArray[np.float64] | None
    draws: Draws | None
    degrees: float = math.inf

    def for_chains(self, count: int) -> NDArray[np.float64] | None:
        """The variances (chains, targets) at the start."""
        return None if self.variances is None else np.tile(self.variances, (count, 1))
