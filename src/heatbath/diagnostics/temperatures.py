"""Temperatures of a run beside their targets: kinetic ones of momenta, configurational ones of θ."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal.checks import choice, whole
from heatbath.diagnostics.gradients import gradient_moments, units_of_noise
from heatbath.diagnostics.statistics import Estimate, mean
from heatbath.methods.partition import Part
from heatbath.methods.schedules import at
from heatbath.runs.run import Run, check_run
from heatbath.runs.simulation import USUAL_CHAINS, full_gradients

Array = NDArray[np.float64]
STEP = 0.03  # of differences of gradients: over the kinks of ReLU, too, ∇²U is right on average
AT_ONCE = 2**21  # parameters of all networks whose gradients are looked at together: 16 MB
LEVEL = 0.01  # a temperature agrees while its difference from τ has at least this p-value


def equipartition(run: Run, burn_in: int = 0, by: Literal["part", "layer"] = "part") -> xr.Dataset:
    """Kinetic temperatures beside their targets, for every part, or layer, whose method has a temperature.

    A data set along `part` or `layer`: `target` (τ at the last step), `temperature`, its 95 % interval `low`
    to `high`, `ratio` to the target, `p_value` of the difference, and a `verdict`: "agrees" with τ where that
    is at least 0.01, "differs" below, "unknown" where there is too little to tell. `.to_pandas()` is a table.

    - Parts: the mean of p·p/N where the thermostat reads it (before O, at E), over the records after step
      `burn_in` and over chains, correlation taken into account. The records must be evenly spaced.
    - Layers: momenta are not recorded, so this is p·p/N of the final state, between two steps, over chains,
      and needs several. On a quadratic kθ²/2 a rotated BAOAB has exactly τ there, ABOBA τ/(1 - h²k/4).

    A part agrees only as far as the word does: h, gradient noise and heat from parts at other τ all count.
    """
    check_run(run, single=True)
    choice("by", by, ("part", "layer"))
    burn_in = whole("burn_in", burn_in, low=0, high=run.step)
    parts, alive = _thermal(run)
    if by == "part":
        chosen = _records(run, burn_in)
        traces = run.data["temperature"]
        means = [mean(traces.sel(part=part.name).values[alive][:, chosen]) for part in parts]
        return _table("part", [part.name for part in parts], [_target(run, part) for part in parts], means)
    layers = [(layer, part) for part in parts for layer in part.layers]
    spans = _layer_spans(run)
    means = [mean((run.p[alive][:, spans[layer]] ** 2).mean(axis=1)[:, None]) for layer, _ in layers]
    return _table("layer", [layer for layer, _ in layers], [_target(run, part) for _, part in layers], means)


def configurational(run: Run) -> xr.Dataset:
    """Configurational temperatures of a run's samples on all training examples, for every part that has a τ.

    The virial <θ·∇U>/N over samples and chains, with θ, ∇U and N of the part and U the loss plus the
    Gaussian prior: it is τ under exp(-U/τ) for every part, wherever that law can be normalised (a prior on
    all parameters suffices; without one a classifier's weights grow for ever, and it is negative while they
    do). The loss is that of the run, by the weights of the examples. Where the noise of the data is sampled,
    temperatures are in units of its variance, and that of the posterior is T/n, or T/Σw. A data set as that
    of `equipartition`. Needs `train(..., samples=N)`.
    """
    check_run(run, single=True)
    if "samples" not in run.data or not run.data.sizes["sample"]:
        raise ValueError("no samples were kept: train with samples=N, and long enough")
    parts, alive = _thermal(run)
    products = np.empty((np.count_nonzero(alive), *run.data["samples"].shape[1:]))
    for row, chain in enumerate(np.flatnonzero(alive).tolist()):
        for place, theta in enumerate(run.data["samples"].values[chain].astype(np.float64)):
            products[row, place] = theta * _gradient(run, chain, place)(theta)
    means = [mean(products[:, :, _elements(part)].mean(axis=2)) for part in parts]
    return _table("part", [part.name for part in parts], [_target(run, part) for part in parts], means)


def thermal_ratio(run: Run, most: int = 200, threads: int | None = None) -> Estimate:
    """The configurational temperature <|∇U|²>/<∇²U> of a run's samples, over τ, with full gradients.

    It is 1 under exp(-U/τ), and is mostly of the stiff directions, which are the first to be too hot where h
    is too large or mini-batches too small, and the first in equilibrium: unlike the virial of
    `configurational` it does not wait for the slow ones. ∇²U is found from differences of gradients along a
    random direction for each sample. At most so many samples, evenly chosen, are looked at; where none were
    kept, the chains as they are.
    """
    check_run(run, single=True)
    parts, alive = _thermal(run)
    if not alive.any():
        raise ValueError("all chains of this run diverged: there is no temperature")
    kept = bool(run.data.sizes.get("sample", 0))
    states = run.data["samples"].values if kept else run.theta[:, None]
    count = max(1, min(states.shape[1], most // np.count_nonzero(alive)))
    looks = np.linspace(0, states.shape[1] - 1, count).astype(int)
    theta = states[np.flatnonzero(alive)[:, None], looks].reshape(-1, states.shape[2])
    inverse = np.zeros(run.plan.parameters)
    for part in parts:
        inverse[_elements(part)] = 1 / _target(run, part)
    draw = np.repeat(run.data["draw"].values[alive], count)
    variances, unit = None, np.ones((len(theta), 1))
    if "noise_now" in run.data:
        known = run.data["noise_now"].values[:, None].repeat(states.shape[1], axis=1)
        if kept and "sample_noise" in run.data:
            known = run.data["sample_noise"].values
        variances = known[alive][:, looks].reshape(len(theta), -1)
        if "noise" in run.data:
            unit = np.exp(np.log(variances).mean(axis=1, keepdims=True))

    rng, pairs = np.random.default_rng(run.plan.seed), []
    some = max(USUAL_CHAINS, AT_ONCE // theta.shape[1])
    for rows in (slice(first, first + some) for first in range(0, len(theta), some)):
        here = theta[rows].astype(np.float64)
        z = rng.choice([-1.0, 1.0], here.shape) * (inverse > 0)
        places = np.stack([here, here + STEP * z, here - STEP * z])
        noise = None if variances is None else variances[rows]
        gradients = full_gradients(run.plan, places, draw[rows], noise, threads) / unit[rows]
        gradients += _decay(run) * places
        slopes = np.sum(z * (gradients[1] - gradients[2]), axis=1) / (2 * STEP)
        pairs.append(((gradients[0] ** 2) @ inverse, slopes))
    forces, traces = (np.concatenate(each) for each in zip(*pairs, strict=True))
    ratio = forces.mean() / traces.mean()
    errors = ((forces - ratio * traces) / traces.mean()).reshape(-1, count)
    return Estimate(float(ratio), mean(errors).error)


def _gradient(run: Run, chain: int, place: int) -> Callable[[Array], Array]:
    """∇U of a chain at its noise as of a sample, on all training examples."""
    sampled = "sample_noise" in run.data
    places = (chain, place) if sampled else (chain,)
    unit, variances = units_of_noise(run, "sample_noise" if sampled else "noise_now", *places)
    draw, decay = int(run.data["draw"].values[chain]), _decay(run)

    def gradient(theta: Array) -> Array:
        force, _ = gradient_moments(run.network, theta, run.plan.likelihood, draw, variances)
        return np.asarray(force / unit + decay * theta)

    return gradient


def virial(theta: Array, gradient: Callable[[Array], Array]) -> Estimate:
    """The configurational temperature <θ·∇U>/N of samples (chain, sample, N); ∇U is a function of (..., N).

    It is τ under exp(-U/τ), wherever that can be normalised: a definition without any choice of a centre.
    """
    samples = np.asarray(theta, np.float64)
    if samples.ndim != 3:
        raise ValueError(f"theta must be (chain, sample, parameter), got an array of shape {samples.shape}")
    return mean((samples * gradient(samples)).mean(axis=2))


def _thermal(run: Run) -> tuple[list[Part], NDArray[np.bool_]]:
    """The parts whose method has a temperature, and which chains are alive."""
    parts = [part for part in run.plan.parts() if part.method.measures_temperature]
    if not parts:
        raise ValueError("no part of this run has a temperature that is read: its methods have no τ")
    return parts, run.died < 0


def _target(run: Run, part: Part) -> float:
    """τ of a part at the last step."""
    tau = part.method.temperature
    if part.method.tempering or tau is None:
        raise ValueError(f"part {part.name!r} is tempered, so it has no single temperature to compare with")
    return at(tau, run.step - 1)


def _records(run: Run, burn_in: int) -> NDArray[np.intp]:
    """The records after `burn_in`, which must be evenly spaced."""
    steps = run.data["step"].values
    chosen = np.flatnonzero(steps > burn_in)
    if not chosen.size:
        raise ValueError(f"there is no record after burn_in={burn_in}: the last is of step {steps[-1:]}")
    if chosen.size > 2 and np.ptp(np.diff(steps[chosen])) > 1:  # a number of records may not divide the steps
        raise ValueError(
            "the records after burn_in are not evenly spaced, so their correlation is not known: train with "
            "a number of records, or choose a burn_in after which they are"
        )
    return chosen


def _layer_spans(run: Run) -> dict[str, slice]:
    """Where each layer's parameters lie."""
    layers = run.plan.layers
    ends = list(accumulate(map(sum, layers.values()), initial=0))
    return {name: slice(*ends) for name, ends in zip(layers, pairwise(ends), strict=True)}


def _elements(part: Part) -> list[int]:
    return [element for span in part.tensors for element in span]


def _decay(run: Run) -> Array:
    """The precision λ of the prior on every parameter, at the last step."""
    decay = np.zeros(run.plan.parameters)
    for part in run.plan.settled().parts:
        decay[_elements(part)] = at(part.method.prior, run.step - 1)
    return decay


def _table(dimension: str, names: list[str], targets: list[float], means: list[Estimate]) -> xr.Dataset:
    p_values = [estimate.p_value(target) for estimate, target in zip(means, targets, strict=True)]
    ratios = [estimate.value / tau if tau else math.nan for estimate, tau in zip(means, targets, strict=True)]
    columns = {
        "target": targets,
        "temperature": [estimate.value for estimate in means],
        "low": [estimate.interval[0] for estimate in means],
        "high": [estimate.interval[1] for estimate in means],
        "ratio": ratios,
        "p_value": p_values,
        "verdict": ["unknown" if math.isnan(p) else "agrees" if p >= LEVEL else "differs" for p in p_values],
    }
    return xr.Dataset({name: (dimension, values) for name, values in columns.items()}, {dimension: names})
