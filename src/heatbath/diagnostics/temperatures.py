"""Temperatures of a run beside their targets: kinetic ones of momenta, configurational ones of θ."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal.checks import choice, whole
from heatbath.diagnostics.gradients import gradient_moments, units_of_noise
from heatbath.diagnostics.mcmc import Array
from heatbath.diagnostics.statistics import Estimate, mean
from heatbath.diagnostics.weights import tensor_spans
from heatbath.methods.partition import Part
from heatbath.methods.schedules import at
from heatbath.runs.run import Run, check_run
from heatbath.runs.simulation import USUAL_CHAINS, full_gradients

Indices = NDArray[np.intp]
STEP = 0.03  # of differences of gradients: over the kinks of ReLU, too, ∇²U is right on average
AT_ONCE = 2**21  # parameters of all networks whose gradients are looked at together: 16 MB
COLUMNS = ("target", "temperature", "low", "high", "ratio", "p_value", "verdict")  # of a table
LEVEL = 0.01  # a temperature agrees while its difference from τ has at least this p-value


def equipartition(run: Run, burn_in: int = 0, by: Literal["part", "layer"] = "part") -> xr.Dataset:
    """Compare kinetic temperatures with their targets, for every part, or layer, that has a temperature.

    A part agrees only as far as its word does: the stepsize, gradient noise and heat from parts at other τ
    all make a difference.

    Parameters
    ----------
    run
        A run of one point.
    burn_in
        Records up to this step are left out. The others must be evenly spaced.
    by
        "part" for the mean of p·p/N where the thermostat reads it (before O, at E), over records and chains,
        with their correlation taken into account. "layer" for p·p/N of the final state, between two steps,
        over chains, because momenta aren't recorded: this needs several chains. On a quadratic kθ²/2 a
        rotated BAOAB has exactly τ there, ABOBA τ/(1 - h²k/4).

    Returns
    -------
    Dataset
        Along `part` or `layer`: `target` (τ at the last step), `temperature` with its 95 % interval `low` to
        `high`, `ratio` to the target, `p_value` of the difference, and `verdict`: "agrees" if the p-value is
        at least 0.01, "differs" below, "unknown" without one. `.to_pandas()` makes a table.
    """
    check_run(run, single=True)
    choice("by", by, ("part", "layer"))
    burn_in = whole("burn_in", burn_in, low=0, high=run.step)
    parts, is_alive = _thermal(run)
    targets = {part.name: _target(run, part) for part in parts}
    temperatures = {}
    if by == "part":
        records = _records(run, burn_in)
        for part in parts:
            recorded = run.data["temperature"].sel(part=part.name).values[is_alive]
            temperatures[part.name] = mean(recorded[:, records])
        return _table("part", targets, temperatures)

    spans = tensor_spans(run.plan.layers)
    momenta = run.p[is_alive]
    layer_targets = {}
    for part in parts:
        for layer in part.layers:
            layer_targets[layer] = targets[part.name]
            final_temperatures = (momenta[:, spans[layer]] ** 2).mean(axis=1)
            temperatures[layer] = mean(final_temperatures[:, None])
    return _table("layer", layer_targets, temperatures)


def configurational(run: Run) -> xr.Dataset:
    """Compare the configurational temperatures of a run's samples with τ, for every part that has one.

    The virial <θ·∇U>/N over samples and chains, with θ, ∇U and N of the part and U the loss on all training
    examples plus the Gaussian prior. It is τ under exp(-U/τ) for every part, if that density can be
    normalised. A prior on all parameters suffices; without one a classifier's weights grow without limit, and
    the virial is negative while they do. If the noise of the data is sampled, temperatures are in units of
    its variance, and that of the posterior is T/n, or T/Σw.

    Parameters
    ----------
    run
        A run of one point with samples: `train(..., samples=N)`.

    Returns
    -------
    Dataset
        Along `part`, with the variables of `equipartition`.
    """
    check_run(run, single=True)
    if "samples" not in run.data or not run.data.sizes["sample"]:
        raise ValueError("no samples were kept: train with samples=N, and long enough")
    parts, is_alive = _thermal(run)
    products = np.empty((np.count_nonzero(is_alive), *run.data["samples"].shape[1:]))
    for row, chain in enumerate(np.flatnonzero(is_alive).tolist()):
        for sample, theta in enumerate(run.data["samples"].values[chain].astype(np.float64)):
            products[row, sample] = theta * _gradient(run, chain, sample)(theta)

    targets = {part.name: _target(run, part) for part in parts}
    virials = {part.name: mean(products[:, :, _elements(part)].mean(axis=2)) for part in parts}
    return _table("part", targets, virials)


def thermal_ratio(run: Run, most: int = 200, threads: int | None = None) -> Estimate:
    """Measure the temperature of a run's samples with full gradients, divided by τ.

    The configurational temperature <|∇U|²>/<∇²U> over τ is 1 under exp(-U/τ). It's mostly that of the stiff
    directions, which are the first to be too hot where h is too large or mini-batches too small, and the
    first in equilibrium: unlike the virial of `configurational` it doesn't wait for the slow ones. ∇²U is
    found from differences of gradients along a random direction for each sample.

    Parameters
    ----------
    run
        A run of one point; without samples, its final states are used.
    most
        Largest number of samples to use, evenly chosen.
    threads
        As in `train`.

    Examples
    --------
    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> sampling = hb.Partition(hb.Langevin(gamma=1.0), h=0.1, posterior=hb.Posterior())
    >>> run = hb.train(problem, hb.MLP((5,)), sampling, 2000, "all", 4, samples=20, burn_in=1000)
    >>> 0.5 < hb.diagnostics.thermal_ratio(run).value < 1.5
    True
    """
    check_run(run, single=True)
    _, alive = _thermal(run)
    if not alive.any():
        raise ValueError("all chains of this run diverged: there is no temperature")
    return _thermal_ratios(run, [np.flatnonzero(alive)], most, threads)[0]


def thermal_ratios(run: Run, most: int, threads: int | None = None) -> list[Estimate]:
    """Return `thermal_ratio` of each point of a sweep over h, NaN for points where a chain diverged.

    Points are measured together, which gives the same bits as one after the other. The run may have other
    axes than h only if they change neither temperatures nor priors.
    """
    chains = np.arange(run.plan.total).reshape(-1, run.plan.chains)
    is_stable: NDArray[np.bool_] = np.all(run.died.reshape(chains.shape) < 0, axis=1)
    measured = iter(_thermal_ratios(run, list(chains[is_stable]), most, threads))
    return [next(measured) if stable else Estimate(math.nan, math.nan) for stable in is_stable]


def _thermal_ratios(run: Run, groups: list[Indices], most: int, threads: int | None) -> list[Estimate]:
    """Return the temperature over τ of the samples of each group of chains.

    All groups must have equally many chains. The random directions of a group depend on the run's seed only,
    so a group's result doesn't depend on the other groups. `most` limits the samples of a group.
    """
    if not groups:
        return []
    _, sample_count, parameter_count = _sampled_states(run).shape
    chain_count = len(groups[0])
    samples_per_chain = max(1, min(sample_count, most // chain_count))
    positions = np.linspace(0, sample_count - 1, samples_per_chain).astype(int)
    batch = max(USUAL_CHAINS, AT_ONCE // parameter_count)  # samples whose gradients are computed together
    groups_per_batch = max(1, batch // (chain_count * samples_per_chain))

    estimates = []
    for start in range(0, len(groups), groups_per_batch):
        batch_groups = np.stack(groups[start : start + groups_per_batch])
        chains = np.repeat(batch_groups, samples_per_chain, axis=1)
        samples = np.tile(positions, chain_count)
        forces, traces = _forces_and_traces(run, chains, samples, batch, threads)
        ratios = forces.mean(axis=1) / traces.mean(axis=1)
        for ratio, force, trace in zip(ratios, forces, traces, strict=True):
            # The delta method gives the error of a ratio of two means.
            errors = ((force - ratio * trace) / trace.mean()).reshape(-1, samples_per_chain)
            estimates.append(Estimate(float(ratio), mean(errors).error))
    return estimates


def _forces_and_traces(
    run: Run, chains: Indices, samples: Indices, batch: int, threads: int | None
) -> tuple[Array, Array]:
    """Return |∇U|²/τ and ∇²U, summed over parameters, of samples in groups, (groups, samples) each.

    ∇²U is the second difference z·(∇U(θ + εz) - ∇U(θ - εz))/(2ε) along random signs z.

    Parameters
    ----------
    run
        The run that has the samples.
    chains
        Chain of each sample, (groups, samples).
    samples
        Number of each sample within its chain, (samples,), the same in all groups.
    batch
        Number of samples of each group whose gradients are computed together.
    threads
        As in `train`.
    """
    inverse_tau = np.zeros(run.plan.parameters)
    for part in _thermal(run)[0]:
        inverse_tau[_elements(part)] = 1 / _target(run, part)
    states = _sampled_states(run)
    generators = [np.random.default_rng(run.plan.seed) for _ in chains]
    forces = np.empty(chains.shape)
    traces = np.empty(chains.shape)

    for start in range(0, chains.shape[1], batch):
        columns = slice(start, start + batch)
        batch_chains = chains[:, columns]
        batch_samples = np.broadcast_to(samples[columns], batch_chains.shape)
        theta = states[batch_chains, batch_samples].astype(np.float64)
        signs = np.stack([generator.choice([-1.0, 1.0], theta.shape[1:]) for generator in generators])
        z = signs * (inverse_tau > 0)
        points = np.stack([theta, theta + STEP * z, theta - STEP * z])
        at_theta, ahead, behind = _gradients_at(run, points, batch_chains, batch_samples, threads)
        forces[:, columns] = (at_theta**2) @ inverse_tau
        traces[:, columns] = np.sum(z * (ahead - behind), axis=2) / (2 * STEP)
    return forces, traces


def _gradients_at(run: Run, points: Array, chains: Indices, samples: Indices, threads: int | None) -> Array:
    """Return ∇U at several points for each sample, in the shape of `points`.

    Parameters
    ----------
    run
        The run that has the samples, whose data and noise variances U depends on.
    points
        Parameters, (points, groups, samples, parameters).
    chains, samples
        Chain of each sample and its number within the chain, (groups, samples) each.
    threads
        As in `train`.
    """
    flat_chains = chains.ravel()
    flat_points = points.reshape(len(points), len(flat_chains), -1)
    draws = run.data["draw"].values[flat_chains]
    variances, unit = _noise_of(run, flat_chains, samples.ravel())
    gradients = full_gradients(run.plan, flat_points, draws, variances, threads) / unit
    gradients += _decay(run) * flat_points
    return np.asarray(gradients.reshape(points.shape))


def _sampled_states(run: Run) -> NDArray[Any]:
    """Return the samples of a run, or its final states if it has none, (chains, samples, parameters)."""
    if run.data.sizes.get("sample", 0):
        return np.asarray(run.data["samples"].values)
    return np.asarray(run.theta[:, None])


def _noise_of(run: Run, chains: Indices, samples: Indices) -> tuple[NDArray[Any] | None, NDArray[Any]]:
    """Return the noise variances of the data at samples, and the unit of losses there.

    Parameters
    ----------
    run
        The run that has the samples.
    chains, samples
        Chain of each sample and its number within the chain, (samples,) each.

    Returns
    -------
    tuple
        The variances, (samples, targets), or None if the run has none; and the geometric mean of the
        variances, (samples, 1), if they are sampled, else ones.
    """
    if "noise_now" not in run.data:
        return None, np.ones((len(chains), 1))
    is_recorded = bool(run.data.sizes.get("sample", 0)) and "sample_noise" in run.data
    if is_recorded:
        recorded = run.data["sample_noise"].values[chains, samples]
    else:
        recorded = run.data["noise_now"].values[chains]
    variances = recorded.reshape(len(chains), -1)
    if "noise" not in run.data:
        return variances, np.ones((len(chains), 1))
    return variances, np.exp(np.log(variances).mean(axis=1, keepdims=True))


def _gradient(run: Run, chain: int, sample: int) -> Callable[[Array], Array]:
    """Return the gradient ∇U(θ) of the loss on all training examples plus the prior, as a function.

    It is in units of the data's noise, at the noise variances of one sample of a chain, or of the chain's
    final state if samples have none.
    """
    if "sample_noise" in run.data:
        unit, variances = units_of_noise(run, "sample_noise", chain, sample)
    else:
        unit, variances = units_of_noise(run, "noise_now", chain)
    draw = int(run.data["draw"].values[chain])
    decay = _decay(run)

    def gradient(theta: Array) -> Array:
        force, _ = gradient_moments(run.network, theta, run.plan.likelihood, draw, variances)
        return np.asarray(force / unit + decay * theta)

    return gradient


def virial(theta: Array, gradient: Callable[[Array], Array]) -> Estimate:
    """Return the configurational temperature <θ·∇U>/N of samples.

    It is τ under exp(-U/τ), if that density can be normalised, and needs no choice of a centre.

    Parameters
    ----------
    theta
        Samples, (chain, sample, N).
    gradient
        ∇U as a function of (..., N).
    """
    samples = np.asarray(theta, np.float64)
    if samples.ndim != 3:
        raise ValueError(f"theta must be (chain, sample, parameter), got an array of shape {samples.shape}")
    return mean((samples * gradient(samples)).mean(axis=2))


def _thermal(run: Run) -> tuple[list[Part], NDArray[np.bool_]]:
    """Return the parts whose method has a temperature, and a mask of the chains that are alive."""
    parts = [part for part in run.plan.parts() if part.method.measures_temperature]
    if not parts:
        raise ValueError("no part of this run has a temperature that is read: its methods have no τ")
    return parts, run.died < 0


def _target(run: Run, part: Part) -> float:
    """Return τ of a part at the last step; refuse a tempered part, which has several."""
    tau = part.method.temperature
    if part.method.tempering or tau is None:
        raise ValueError(f"part {part.name!r} is tempered, so it has no single temperature to compare with")
    return at(tau, run.step - 1)


def _records(run: Run, burn_in: int) -> Indices:
    """Return the numbers of the records after step `burn_in`.

    Raises
    ------
    ValueError
        If there is none, or they aren't evenly spaced, which the correlation of their values requires.
    """
    steps = run.data["step"].values
    records = np.flatnonzero(steps > burn_in)
    if not records.size:
        raise ValueError(f"there is no record after burn_in={burn_in}: the last is of step {steps[-1:]}")
    uneven = np.ptp(np.diff(steps[records])) if records.size > 2 else 0
    if uneven > 1:  # spacings differ by 1 if the number of records doesn't divide the steps
        raise ValueError(
            "the records after burn_in are not evenly spaced, so their correlation is not known: train with "
            "a number of records, or choose a burn_in after which they are"
        )
    return records


def _elements(part: Part) -> list[int]:
    """Return the positions of a part's parameters in θ."""
    return [element for span in part.tensors for element in span]


def _decay(run: Run) -> Array:
    """Return the precision λ of the prior on every parameter at the last step, (parameters,)."""
    decay = np.zeros(run.plan.parameters)
    for part in run.plan.settled.parts:
        decay[_elements(part)] = at(part.method.prior, run.step - 1)
    return decay


def _table(dimension: str, targets: dict[str, float], temperatures: dict[str, Estimate]) -> xr.Dataset:
    """Return measured temperatures beside their targets; see `equipartition` for the variables.

    Parameters
    ----------
    dimension
        "part" or "layer".
    targets, temperatures
        τ and the measured temperature of each part or layer, by name.
    """
    rows = []
    for name, target in targets.items():
        temperature = temperatures[name]
        low, high = temperature.interval
        ratio = temperature.value / target if target else math.nan
        p_value = temperature.p_value(target)
        rows.append((target, temperature.value, low, high, ratio, p_value, _verdict(p_value)))

    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    variables = {name: (dimension, list(column)) for name, column in columns.items()}
    return xr.Dataset(variables, {dimension: list(targets)})


def _verdict(p_value: float) -> str:
    """Return "agrees" or "differs", by the p-value of a difference from τ, or "unknown" if it's NaN."""
    if math.isnan(p_value):
        return "unknown"
    return "agrees" if p_value >= LEVEL else "differs"
