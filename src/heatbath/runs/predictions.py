"""Compute what the networks of a run predict: averages, laws of new data and their calibration.

`Run.predict`, `Run.predictive`, `Run.calibration`, `Run.outputs` and `Run.averages` are documented there.
Chains that diverged take no part.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import whole
from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats, numbers
from heatbath.prediction import Calibration, Mixture, Prediction
from heatbath.prediction.calibration import MOST_LEVERAGE, left_out, leverages
from heatbath.prediction.ensemble import average_networks, join_averages, laws
from heatbath.prediction.predictive_distributions import NORMAL
from heatbath.runs.record_steps import sample_count

if TYPE_CHECKING:
    from heatbath.runs.run import Run

Networks: TypeAlias = Literal["samples", "chains"]

MOST_PLACES = 10_000  # examples of a calibration: shares are known to 0.003


def predict_together(run: Run, X: ArrayLike, over: Networks, latest: int | None) -> Prediction[Floats]:
    """Return the average of the networks' predictions at X; one network at a time is in memory.

    Parameters
    ----------
    run
        A run of a single point.
    X
        Inputs (examples, features) in the user's units.
    over
        Average over the kept samples of all chains, or over the chains as they are now.
    latest
        The number of latest samples of each chain; None for all.
    """
    thetas, variances = _living_networks(run, over, latest)
    x = standardised_inputs(run.problem, X)
    return average_networks(run.plan.likelihood, run.network, thetas, x, variances)


def predict_over_steps(run: Run) -> Prediction[Floats]:
    """Return the prediction that the running averages of all chains give together."""
    averages = running_averages(run)
    if not sample_count(run.plan, run.step):
        raise ValueError(
            f"nothing is averaged yet: the run is at step {run.step}, in the burn-in of "
            f"{run.plan.burn_in}; resume it"
        )
    alive = run.died < 0
    means = averages["mean"].values[alive]
    variances = averages["variance"].values[alive]
    noise = averages["noise"].values[alive].mean(axis=0) if "noise" in averages else _mean_noise(run)
    return join_averages(run.problem.task, means, variances, noise)


def predictive_law(run: Run, X: ArrayLike, latest: int | None) -> Mixture:
    """Return the law of new data at X: a mixture with a component for each network.

    The networks are the kept samples of all chains, or the `latest` of each; without samples, those of the
    chains as they are now.
    """
    takes_samples = "samples" in run.data or latest is not None
    over: Networks = "samples" if takes_samples else "chains"
    thetas, variances = _living_networks(run, over, latest)
    theta = np.array(list(thetas))
    x = standardised_inputs(run.problem, X)
    noise = None if variances is None else np.array(list(variances))
    law = laws(run.plan.likelihood, run.network, theta, x, noise)
    assert isinstance(law, Mixture)
    return law


def calibrate(run: Run, latest: int | None) -> Calibration:
    """Return where the training examples lie in laws that have not seen them: see `Run.calibration`.

    Parameters
    ----------
    run
        A run of a single point.
    latest
        The number of latest samples of each chain; None for all.

    Returns
    -------
    Calibration
        The places of every n-th example, so that there are at most 10,000, with their weights; empty where
        nothing can be known.
    """
    problem = run.problem
    posterior = run.plan.points[0].partition.posterior
    data_sets = np.unique(run.data["draw"])
    data_set = int(data_sets[0])
    example_count = problem.X_train.shape[1]
    every_nth = slice(None, None, -(-example_count // MOST_PLACES))  # n rounded up

    law = run.predictive(problem.X_train[data_set, every_nth] * problem.scale + problem.shift, latest)
    unknown = Calibration(np.empty((0, problem.outputs)), np.empty(0))
    if posterior is None or law.law is not NORMAL:
        return unknown
    if len(law.means) < 2 or len(data_sets) > 1:
        return unknown

    living_chains = int(np.count_nonzero(run.died < 0))
    chain_means, variance, noise = _chain_moments(law, living_chains)
    all_weights = np.ones(example_count)
    if problem.weights_train is not None:
        all_weights = problem.weights_train[data_set]
    weights = all_weights[every_nth]
    leverage = leverages(variance, noise, weights, posterior.temperature)
    if np.minimum(leverage, 1).mean() > MOST_LEVERAGE:  # the networks interpolate the examples
        return unknown

    y = problem.Y_train[data_set, every_nth] * problem.target_scale + problem.target_shift
    places = left_out(chain_means, variance, noise, y, weights, posterior.temperature)
    return Calibration(places, weights * (example_count / len(y)))


def _chain_moments(law: Mixture, alive: int) -> tuple[Floats, Floats, Floats]:
    """Return the means of predictions by chain, their variances, and those of the noise.

    All three are (chain, example, target), in the units of the user's data. A variance is that of the
    predictions of a chain, plus that between the means of chains.

    Parameters
    ----------
    law
        A mixture with a component for each network, those of a chain in a row.
    alive
        The number of chains. If there is one network of each, all of them count as one chain, as a variance
        needs two.
    """
    chains = alive if len(law.means) > alive else 1
    means = law.means.reshape(chains, -1, *law.means.shape[1:])
    noise = (law.scales**2).reshape(chains, -1, *law.scales.shape[1:]).mean(axis=1)
    chain_means = means.mean(axis=1)
    variance = means.var(axis=1, ddof=1)
    if chains > 1:
        variance = variance + chain_means.var(axis=0, ddof=1)
    return chain_means, variance, noise


def network_outputs(run: Run, X: ArrayLike, samples: bool) -> NDArray[np.float64]:
    """Return the outputs of every network at X, (chains, examples, outputs), or with samples after chains."""
    theta = kept_samples(run).values if samples else run.theta
    x = standardised_inputs(run.problem, X)
    likelihood = run.plan.likelihood
    return likelihood.values(run.network.forward(theta, x, likelihood.outputs))


def running_averages(run: Run) -> xr.Dataset:
    """Return `mean` and `variance` of the outputs over all samples, at the inputs of `average`.

    Both are chain x point x output, in the user's units, and NaN for chains that diverged or have no sample
    yet. If the network predicts the variance of new data, its mean is `noise`; the engine averages it, and
    not its logarithm, behind the values.
    """
    if "average" not in run.data:
        raise ValueError("nothing was averaged: train with average=X, the inputs to average at")
    problem = run.problem
    scale = problem.target_scale
    samples = sample_count(run.plan, run.step)
    of_values = slice(problem.outputs)
    mean = run.data["average"].isel(output=of_values)
    variance = run.data["deviations"].isel(output=of_values) / max(samples, 1)
    if problem.task == "regression":
        mean = mean * scale + problem.target_shift
        variance = variance * scale**2

    averages = {"mean": mean, "variance": variance}
    if run.plan.likelihood.varying:
        of_variances = slice(problem.outputs, None)
        averages["noise"] = run.data["average"].isel(output=of_variances) * scale**2

    is_known = (run.data["died"] < 0) & (samples > 0)
    return xr.Dataset({name: average.where(is_known) for name, average in averages.items()})


def kept_samples(run: Run) -> xr.DataArray:
    """Return the samples of all chains (chain, sample, parameter), or raise if none were kept."""
    if "samples" not in run.data or not run.data.sizes["sample"]:
        raise ValueError(
            "no samples were kept: train with samples=N, and long enough, or predict over='chains'"
        )
    return run.data["samples"]


def standardised_inputs(problem: Problem, X: ArrayLike) -> Floats:
    """Return standardised inputs; X may be a data frame of raw cells if the problem has an encoder."""
    if problem.encoder is not None and isinstance(X, pd.DataFrame):
        X = problem.encoder.transform(X)
    raw = np.atleast_2d(numbers("X", X, (1, 2)))
    if raw.shape[1] != problem.inputs:
        raise ValueError(
            f"X must be (examples, {problem.inputs} features), got an array of shape {np.shape(X)}"
        )
    return np.asarray((raw - problem.shift) / problem.scale)


def noise_variances(run: Run, over: Networks) -> NDArray[np.float64] | None:
    """Return the variances of the targets around each network; None where the run has none.

    The shape is (chain, target), or (chain, sample, target) over samples.
    """
    if "noise_now" not in run.data:
        return None
    of_chains = np.asarray(run.data["noise_now"].values)
    if over == "chains":
        return of_chains
    if "sample_noise" in run.data:
        return np.asarray(run.data["sample_noise"].values)
    return np.repeat(of_chains[:, None], run.data.sizes["sample"], axis=1)


def _mean_noise(run: Run) -> NDArray[np.float64] | None:
    """Return the variance of new data, in the user's units: a mean over the records after the burn-in.

    Without such records it is the mean over the chains as they are. None where the run has no variance.
    """
    variances = noise_variances(run, "chains")
    if variances is None:
        return None
    alive = run.died < 0
    mean = variances[alive].mean(axis=0)
    is_late = run.data["step"].values > run.plan.burn_in
    if "noise" in run.data and is_late.any():
        mean = run.data["noise"].values[alive][:, is_late].mean(axis=(0, 1))
    return run.plan.likelihood.in_units(mean)


def _living_networks(
    run: Run, over: Networks, latest: int | None
) -> tuple[Iterator[NDArray[Any]], Iterator[NDArray[Any]] | None]:
    """Return the parameters of all networks, and the variances of the targets around each if there are any.

    The arguments are those of `predict_together`; networks of chains that diverged are left out.
    """
    first_sample = 0 if latest is None else -whole("latest", latest, low=1)
    theta = kept_samples(run) if over == "samples" else run.data["theta"]
    thetas = _of_living_chains(run, theta, first_sample)
    variances = noise_variances(run, over)
    if variances is None:
        return thetas, None
    return thetas, _of_living_chains(run, variances, first_sample)


def _of_living_chains(run: Run, values: xr.DataArray | NDArray[Any], first: int) -> Iterator[NDArray[Any]]:
    """Yield the values of one network at a time, those of chains that diverged left out.

    Parameters
    ----------
    run
        The run of these chains.
    values
        An array (chain, number) or (chain, sample, number).
    first
        The index of the first sample.
    """
    has_samples = values.ndim > 2
    for of_chain, died in zip(_by_chain(values), run.died, strict=True):
        if died >= 0:
            continue
        if has_samples:
            yield from of_chain[first:]
        else:
            yield of_chain


def _by_chain(values: xr.DataArray | NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the values of each chain; those in a folder are read a block of chains at a time."""
    counts = values.chunksizes.get("chain") if isinstance(values, xr.DataArray) else None
    edges = np.cumsum([0, *(counts or (len(values),))])
    for first, stop in pairwise(edges):
        yield from np.asarray(values[first:stop])
