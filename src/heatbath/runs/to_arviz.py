"""Make the groups of a run for ArviZ, each only if it is wanted and what it needs is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import whole
from heatbath._internal.memory import GIGABYTE, free_memory
from heatbath.datasets.problem import Floats
from heatbath.models.dense import MLP
from heatbath.models.likelihood import Likelihood, draw_prior
from heatbath.prediction import Mixture
from heatbath.prediction.ensemble import laws
from heatbath.prediction.predictive_distributions import Categorical
from heatbath.runs.predictions import kept_samples, noise_variances, standardised_inputs

if TYPE_CHECKING:
    from heatbath.runs.run import Run

PRIOR_DRAWS = 500  # networks of the prior
WORKING_COPIES = 3  # arrays of all outputs at the examples that are in memory at the same time
BYTES_PER_NUMBER = 8
INT64_END = 2**63  # larger numbers do not fit in an int64
LIKELIHOOD_GROUPS = ("log_likelihood", "posterior_predictive", "predictions")
PRIOR_GROUPS = ("prior", "prior_predictive")
GROUPS = ("posterior", *LIKELIHOOD_GROUPS, *PRIOR_GROUPS, "observed_data")


@dataclass(frozen=True, eq=False)
class PredictionInputs:
    """Inputs at which networks predict: points, and the training examples, both standardised.

    The examples have targets y (examples, columns) in the user's units, and perhaps weights.
    """

    likelihood: Likelihood
    network: MLP
    points: Floats
    examples: Floats
    y: NDArray[Any]
    weights: Floats | None


@dataclass(frozen=True, eq=False)
class NetworkSamples:
    """Networks that sample one law, the posterior or the prior.

    Attributes
    ----------
    inputs
        Where they predict.
    theta
        Parameters (chain, draw, parameter).
    variances
        Variances of the targets around each network (chain, draw, target), or None.
    draws
        The labels of the draws.
    seed
        The seed of new data.
    """

    inputs: PredictionInputs
    theta: NDArray[Any]
    variances: Floats | None
    draws: NDArray[np.int64]
    seed: int

    @cached_property
    def law_at_points(self) -> Mixture | Categorical:
        """Laws of new data at the points."""
        return self._laws(self.inputs.points)

    @cached_property
    def law_at_examples(self) -> Mixture | Categorical:
        """Laws of new data at the training examples."""
        return self._laws(self.inputs.examples)

    def function_group(self, with_parameters: bool) -> xr.Dataset:
        """Return `prediction` at the points, `sigma` if the noise is sampled, and `theta` if asked for.

        Each is chain x draw x ..., in the units of the user's data; `sigma` is the standard deviation of the
        noise, and `theta` are the parameters.
        """
        problem = self.inputs.likelihood.problem
        posterior = self.inputs.likelihood.posterior
        law = self.law_at_points
        outputs = problem.decode(law.logits) if isinstance(law, Categorical) else law.means
        variables = {"prediction": self._by_chain(outputs, "point", "output")}

        samples_noise = posterior is not None and posterior.noise == "sampled"
        if samples_noise and self.variances is not None:
            sigma = np.sqrt(self.variances) * problem.target_scale
            variables["sigma"] = self._by_chain(*_without_single_column(sigma, "target"))
        if with_parameters:
            variables["theta"] = self._by_chain(self.theta, "parameter")

        output_names = problem.targets
        if problem.task == "binary":  # the output is the probability of the second class
            output_names = output_names[1:]
        return self._labelled(variables, output=list(output_names))

    def new_data_group(self, law: Mixture | Categorical, dimension: str, seed: int) -> xr.Dataset:
        """Return `y`, data drawn from the law of each network; counts are integers where they fit.

        Parameters
        ----------
        law
            The laws of new data, with a component for each network, at points or examples.
        dimension
            The name of the dimension of these: "point" or "example".
        seed
            A number that is added to the seed of these networks, so that every group has other draws.
        """
        y: NDArray[Any] = law.draw(self.seed + seed)
        are_counts = isinstance(law, Mixture) and law.law.is_discrete
        if are_counts and y.max(initial=0) < INT64_END:
            y = y.astype(np.int64)
        return self._labelled({"y": self._by_chain(*_without_single_column(y, dimension, "target"))})

    def log_likelihood_group(self) -> xr.Dataset:
        """Return `y`, the log likelihood of every training example, times its weight if it has one."""
        log_likelihood = self.law_at_examples.log_likelihood(self.inputs.y).sum(axis=-1)
        if self.inputs.weights is not None:
            log_likelihood = log_likelihood * self.inputs.weights
        return self._labelled({"y": self._by_chain(log_likelihood, "example")})

    def _laws(self, x: Floats) -> Mixture | Categorical:
        """Return the laws of new data at standardised inputs, with a component for each network."""
        chain_count, draw_count, _ = self.theta.shape
        theta = self.theta.reshape(chain_count * draw_count, -1)
        variances = None if self.variances is None else self.variances.reshape(len(theta), -1)
        return laws(self.inputs.likelihood, self.inputs.network, theta, x, variances)

    def _by_chain(self, values: NDArray[Any], *dims: str) -> xr.Variable:
        """Return values (networks, ...) or (chain, draw, ...) as a variable by chain, draw and `dims`."""
        shape = values.shape[values.ndim - len(dims) :]
        return xr.Variable(("chain", "draw", *dims), values.reshape(*self.theta.shape[:2], *shape))

    def _labelled(self, variables: dict[str, xr.Variable], **labels: Any) -> xr.Dataset:
        """Return a data set with a label for each dimension: a number, or what is given in `labels`."""
        data = xr.Dataset(variables)
        coordinates = {name: np.arange(size) for name, size in data.sizes.items()}
        coordinates["draw"] = self.draws
        if "target" in data.sizes:
            coordinates["target"] = np.array(self.inputs.likelihood.problem.targets)
        return data.assign_coords(coordinates | labels)


def samples_of_run(run: Run, X: ArrayLike | None, latest: int | None) -> NetworkSamples:
    """Return the samples of the chains of a run that have not diverged, all of which sample one law.

    Parameters
    ----------
    run
        A run of a single point.
    X
        Inputs (examples, features) in the user's units; None for the test examples, or for the training
        examples where there are none.
    latest
        The number of latest samples of each chain; None for all.

    Raises
    ------
    ValueError
        If chains have different data sets, all of them diverged, or no samples were kept.
    """
    draws = np.unique(run.data["draw"])
    if len(draws) > 1:
        raise ValueError(f"the chains have {len(draws)} different data sets, so they sample different laws")
    alive = run.died < 0
    if not alive.any():
        raise ValueError("all chains of this run diverged: there are no samples to give")

    first_sample = 0 if latest is None else -whole("latest", latest, low=1)
    latest_samples = slice(first_sample, None)
    theta = kept_samples(run)[alive, latest_samples]
    variances = noise_variances(run, "samples")
    if variances is not None:
        variances = variances[alive, latest_samples]
    return NetworkSamples(
        inputs=_prediction_inputs(run, X, int(draws[0])),
        theta=theta.values,
        variances=variances,
        draws=theta["sample_step"].values,
        seed=run.plan.seed,
    )


def _prediction_inputs(run: Run, X: ArrayLike | None, draw: int) -> PredictionInputs:
    """Return the points, X or else the test or training examples, and the training examples of a data set.

    `draw` is the number of the data set, and X is in the user's units.
    """
    problem = run.problem
    if X is not None:
        points = standardised_inputs(problem, X)
    elif problem.X_test.size:
        points = problem.X_test[draw]
    else:
        points = problem.X_train[draw]

    y = problem.Y_train[draw]
    if problem.task == "regression":
        y = y * problem.target_scale + problem.target_shift
    else:
        y = y.astype(np.int64)
    weights = None if problem.weights_train is None else problem.weights_train[draw]
    return PredictionInputs(
        likelihood=run.plan.likelihood,
        network=run.network,
        points=points,
        examples=problem.X_train[draw],
        y=y,
        weights=weights,
    )


def make_groups(
    samples: NetworkSamples, wanted: Sequence[str] | None, with_parameters: bool
) -> dict[str, xr.Dataset]:
    """Return groups of results for ArviZ by name: see `Run.to_arviz`.

    Parameters
    ----------
    samples
        Networks that sample the posterior.
    wanted
        The names of the groups to make; None for all that can be known.
    with_parameters
        True to include the parameters of the networks.
    """
    chosen = _chosen_groups(wanted, samples)
    _check_memory(chosen, samples, with_parameters)
    groups: dict[str, Callable[[], xr.Dataset]] = {
        "posterior": lambda: samples.function_group(with_parameters),
        "predictions": lambda: samples.new_data_group(samples.law_at_points, "point", 0),
        "log_likelihood": samples.log_likelihood_group,
        "posterior_predictive": lambda: samples.new_data_group(samples.law_at_examples, "example", 1),
        "observed_data": lambda: _observed_group(samples.inputs),
    }
    if set(chosen) & set(PRIOR_GROUPS):
        prior = _prior_samples(samples.inputs, samples.seed + 2)
        groups["prior"] = lambda: prior.function_group(with_parameters)
        groups["prior_predictive"] = lambda: prior.new_data_group(prior.law_at_examples, "example", 3)
    return {name: groups[name]() for name in chosen}


def _chosen_groups(wanted: Sequence[str] | None, samples: NetworkSamples) -> list[str]:
    """Return the names of the groups to make, in the order of `GROUPS`.

    None for `wanted` chooses all that can be known: those of the likelihood need the variance of the noise in
    a regression, and those of the prior need one. Raises ValueError if a wanted group cannot be known, or
    does not exist.
    """
    known = _known_groups(samples)
    if wanted is None:
        return known
    if isinstance(wanted, str) or not wanted or not set(wanted) <= set(GROUPS):
        raise ValueError(
            f"groups must be a list of some of {', '.join(GROUPS)}, or None for all; got {wanted!r}"
        )

    chosen = [name for name in GROUPS if name in wanted]
    missing = [name for name in chosen if name not in known]
    if missing:
        raise ValueError(
            f"{', '.join(missing)} cannot be known without a posterior: train with posterior=Posterior()"
        )
    return chosen


def _known_groups(samples: NetworkSamples) -> list[str]:
    """Return the names of the groups that can be known, in the order of `GROUPS`."""
    likelihood = samples.inputs.likelihood
    unknown: list[str] = []
    if likelihood.problem.task == "regression" and samples.variances is None and not likelihood.varying:
        unknown += LIKELIHOOD_GROUPS
    if likelihood.posterior is None:
        unknown += PRIOR_GROUPS
    return [name for name in GROUPS if name not in unknown]


def _check_memory(chosen: list[str], samples: NetworkSamples, with_parameters: bool) -> None:
    """Raise MemoryError if the chosen groups would not fit in the memory that is free.

    Counted are the numbers in each group, 8 bytes each, and the working memory of the largest set of outputs.
    """
    inputs = samples.inputs
    outputs = inputs.likelihood.outputs
    at_points = len(inputs.points) * outputs
    at_examples = len(inputs.examples) * outputs
    chain_count, draw_count, parameter_count = samples.theta.shape
    sample_count = chain_count * draw_count
    parameters = parameter_count if with_parameters else 0
    numbers = {
        "posterior": sample_count * (at_points + parameters),
        "predictions": sample_count * at_points,
        "log_likelihood": sample_count * len(inputs.examples),
        "posterior_predictive": sample_count * at_examples,
        "prior": PRIOR_DRAWS * (at_points + parameters),
        "prior_predictive": PRIOR_DRAWS * at_examples,
    }
    in_results = sum(numbers.get(name, 0) for name in chosen)

    network_count = sample_count
    if set(chosen) & set(PRIOR_GROUPS):
        network_count = max(sample_count, PRIOR_DRAWS)
    in_work = WORKING_COPIES * network_count * max(at_points, at_examples)
    needed = BYTES_PER_NUMBER * (in_results + in_work)
    free = free_memory()
    if needed > free:
        raise MemoryError(
            f"{sample_count} samples of {outputs} outputs at {len(inputs.points)} points and "
            f"{len(inputs.examples)} training examples need {needed / GIGABYTE:,.1f} GB, and "
            f"{free / GIGABYTE:,.1f} GB are free: take the latest= few of each chain, fewer points X, or "
            "only some groups="
        )


def _prior_samples(inputs: PredictionInputs, seed: int) -> NetworkSamples:
    """Return networks that are drawn from the prior, as one chain."""
    theta, variances = draw_prior(inputs.likelihood, inputs.network, PRIOR_DRAWS, seed)
    of_chain = None if variances is None else variances[None]
    return NetworkSamples(inputs, theta[None], of_chain, np.arange(PRIOR_DRAWS), seed)


def _observed_group(inputs: PredictionInputs) -> xr.Dataset:
    """Return `y`, the targets of the training examples."""
    y, *dimensions = _without_single_column(inputs.y, "example", "target")
    data = xr.Dataset({"y": (dimensions, y)}, {"example": np.arange(len(y))})
    if "target" not in dimensions:
        return data
    return data.assign_coords(target=np.array(inputs.likelihood.problem.targets))


def _without_single_column(values: NDArray[Any], *dims: str) -> tuple[Any, ...]:
    """Return an array and the names of its last dimensions, without the last one if that has length 1."""
    if values.shape[-1] == 1:
        return (values[..., 0], *dims[:-1])
    return (values, *dims)
