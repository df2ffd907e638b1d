"""What a run has for ArviZ: groups, each made where it is wanted and what it needs is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal.memory import free_memory
from heatbath.datasets.problem import Floats
from heatbath.models.dense import MLP
from heatbath.models.likelihood import Likelihood, draw_prior
from heatbath.prediction import Mixture
from heatbath.prediction.ensemble import laws
from heatbath.prediction.predictive_distributions import Categorical

PRIOR = 500  # networks of the prior
WORK = 3  # arrays of all that the networks say of the examples, that are needed on the way
OF_LIKELIHOOD = ("log_likelihood", "posterior_predictive", "predictions")
OF_PRIOR = ("prior", "prior_predictive")
GROUPS = ("posterior", *OF_LIKELIHOOD, *OF_PRIOR, "observed_data")


@dataclass(frozen=True, eq=False)
class Places:
    """Where networks are asked: at points, and at the examples they were trained on, both standardised. The
    latter have targets y (examples, columns), in the user's units, and perhaps weights."""

    likelihood: Likelihood
    network: MLP
    points: Floats
    examples: Floats
    y: NDArray[Any]
    weights: Floats | None


@dataclass(frozen=True, eq=False)
class Networks:
    """Networks of one law: θ (chain, draw, parameter), and the variances of the targets around each, (chain,
    draw, target), or None; what the draws are called, and the seed of new data."""

    places: Places
    theta: NDArray[Any]
    variances: Floats | None
    draws: NDArray[np.int64]
    seed: int

    @cached_property
    def at_points(self) -> Mixture | Categorical:
        """The laws of new data at the points."""
        return self._laws(self.places.points)

    @cached_property
    def at_examples(self) -> Mixture | Categorical:
        """The laws of new data at the training examples."""
        return self._laws(self.places.examples)

    def function(self, parameters: bool) -> xr.Dataset:
        """What they say of the points, their noise where it is sampled, and their parameters if asked for."""
        likelihood, law = self.places.likelihood, self.at_points
        problem, posterior = likelihood.problem, likelihood.posterior
        said = problem.decode(law.logits) if isinstance(law, Categorical) else law.means
        found = {"prediction": self._by_chain(said, "point", "output")}
        if self.variances is not None and posterior is not None and posterior.noise == "sampled":
            sigma = np.sqrt(self.variances) * problem.target_scale
            found["sigma"] = self._by_chain(*_columns(sigma, "target"))
        if parameters:
            found["theta"] = self._by_chain(self.theta, "parameter")
        outputs = problem.targets[1:] if problem.task == "binary" else problem.targets
        return self._labelled(found, output=list(outputs))

    def new_data(self, law: Mixture | Categorical, along: str, seed: int) -> xr.Dataset:
        """Data drawn from each, along points or examples."""
        drawn: NDArray[Any] = law.draw(self.seed + seed)
        if isinstance(law, Mixture) and law.law.whole and drawn.max(initial=0) < 2**63:
            drawn = drawn.astype(np.int64)
        return self._labelled({"y": self._by_chain(*_columns(drawn, along, "target"))})

    def log_likelihood(self) -> xr.Dataset:
        """Of every training example, to the power that is its weight."""
        each = self.at_examples.log_likelihood(self.places.y).sum(axis=-1)
        if self.places.weights is not None:
            each = each * self.places.weights
        return self._labelled({"y": self._by_chain(each, "example")})

    def _laws(self, x: Floats) -> Mixture | Categorical:
        rows = self.theta.shape[0] * self.theta.shape[1]
        variances = None if self.variances is None else self.variances.reshape(rows, -1)
        thetas = self.theta.reshape(rows, -1)
        return laws(self.places.likelihood, self.places.network, thetas, x, variances)

    def _by_chain(self, values: NDArray[Any], *dims: str) -> xr.Variable:
        """An array (chain and draw, ...) or (chain, draw, ...)."""
        own = values.shape[values.ndim - len(dims) :]
        return xr.Variable(("chain", "draw", *dims), values.reshape(*self.theta.shape[:2], *own))

    def _labelled(self, variables: dict[str, xr.Variable], **labels: Any) -> xr.Dataset:
        data = xr.Dataset(variables)
        names = {name: np.arange(size) for name, size in data.sizes.items()} | {"draw": self.draws}
        if "target" in data.sizes:
            names["target"] = np.array(self.places.likelihood.problem.targets)
        return data.assign_coords(names | labels)


def make_groups(samples: Networks, wanted: Sequence[str] | None, parameters: bool) -> dict[str, xr.Dataset]:
    """The groups that are wanted, or all that are known."""
    chosen = _chosen(wanted, samples)
    _check_memory(chosen, samples, parameters)
    groups: dict[str, Callable[[], xr.Dataset]] = {
        "posterior": lambda: samples.function(parameters),
        "predictions": lambda: samples.new_data(samples.at_points, "point", 0),
        "log_likelihood": samples.log_likelihood,
        "posterior_predictive": lambda: samples.new_data(samples.at_examples, "example", 1),
        "observed_data": lambda: _observed(samples.places),
    }
    if set(chosen) & set(OF_PRIOR):
        prior = _networks_of_prior(samples.places, samples.seed + 2)
        groups["prior"] = lambda: prior.function(parameters)
        groups["prior_predictive"] = lambda: prior.new_data(prior.at_examples, "example", 3)
    return {name: groups[name]() for name in chosen}


def _chosen(wanted: Sequence[str] | None, samples: Networks) -> list[str]:
    likelihood, unknown = samples.places.likelihood, set[str]()
    if likelihood.problem.task == "regression" and samples.variances is None and not likelihood.varying:
        unknown |= set(OF_LIKELIHOOD)
    if likelihood.posterior is None:
        unknown |= set(OF_PRIOR)
    if wanted is None:
        return [name for name in GROUPS if name not in unknown]
    if isinstance(wanted, str) or not wanted or not set(wanted) <= set(GROUPS):
        raise ValueError(
            f"groups must be a list of some of {', '.join(GROUPS)}, or None for all; got {wanted!r}"
        )
    if missing := [name for name in GROUPS if name in wanted and name in unknown]:
        raise ValueError(
            f"{', '.join(missing)} cannot be known without a posterior: train with posterior=Posterior()"
        )
    return [name for name in GROUPS if name in wanted]


def _check_memory(chosen: list[str], samples: Networks, parameters: bool) -> None:
    """Refuse what would not fit in the memory that is free."""
    places = samples.places
    count, outputs = samples.theta.shape[0] * samples.theta.shape[1], places.likelihood.outputs
    at_points, at_examples = (len(x) * outputs for x in (places.points, places.examples))
    own = samples.theta.shape[2] if parameters else 0
    numbers = {
        "posterior": count * (at_points + own),
        "predictions": count * at_points,
        "log_likelihood": count * len(places.examples),
        "posterior_predictive": count * at_examples,
        "prior": PRIOR * (at_points + own),
        "prior_predictive": PRIOR * at_examples,
    }
    results = sum(numbers.get(name, 0) for name in chosen)
    most = max(count, PRIOR if set(chosen) & set(OF_PRIOR) else 0)
    needed, free = 8 * (results + WORK * most * max(at_points, at_examples)), free_memory()
    if needed > free:
        raise MemoryError(
            f"{count} samples of {outputs} outputs at {len(places.points)} points and "
            f"{len(places.examples)} training examples need {needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB "
            "are free: take the latest= few of each chain, fewer points X, or only some groups="
        )


def _networks_of_prior(places: Places, seed: int) -> Networks:
    theta, variances = draw_prior(places.likelihood, places.network, PRIOR, seed)
    of_chain = None if variances is None else variances[None]
    return Networks(places, theta[None], of_chain, np.arange(PRIOR), seed)


def _observed(places: Places) -> xr.Dataset:
    values, *dims = _columns(places.y, "example", "target")
    data = xr.Dataset({"y": (dims, values)}, {"example": np.arange(len(values))})
    return data if len(dims) == 1 else data.assign_coords(target=np.array(places.likelihood.problem.targets))


def _columns(values: NDArray[Any], *dims: str) -> tuple[Any, ...]:
    """An array with these as its last dimensions, without the last where that is a single column."""
    return (values[..., 0], *dims[:-1]) if values.shape[-1] == 1 else (values, *dims)
