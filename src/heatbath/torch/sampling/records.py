"""Diagnose a sampler by the records of its samples: burn-in, convergence and temperatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets.problem import Floats
from heatbath.diagnostics import convergence_check, statistics
from heatbath.diagnostics.convergence_check import Convergence, convergence_of, has_converged
from heatbath.diagnostics.statistics import Estimate
from heatbath.training.stepsize import is_surely_off

BURN_IN_SHARES = (1 / 8, 1 / 4, 1 / 2)  # of the steps, tried in this order; the last needs no reason


@dataclass
class SampleRecord:
    """Measurements at a sample.

    Attributes
    ----------
    outputs
        Predictions for the probe examples, (chains, probes, ...).
    temperatures
        Kinetic and configurational temperature over τ, means since the last sample: (parts, 2, chains).
    noise
        Variance of the data, (chains,); empty where it is not sampled.
    """

    outputs: Floats
    temperatures: Floats
    noise: Floats


class PartTemperatures(NamedTuple):
    """Temperatures of a part over τ: both are 1 where the law is right."""

    kinetic: Estimate
    configurational: Estimate


class Diagnosis(NamedTuple):
    """The burn-in of a sampler, with convergence and temperatures of the samples after it.

    `alive` is True for chains that are finite in all of these samples. `convergence` is None where there are
    too few samples or chains. `temperatures` has the parts by name, and is empty without samples.
    """

    burn_in: int
    alive: NDArray[np.bool_]
    convergence: Convergence | None
    temperatures: dict[str, PartTemperatures]

    @property
    def chains_agree(self) -> bool:
        """True if the median R-hat meets that rule: enough for a burn-in.

        By the worst R-hat, short runs would always lose half of their samples: on small tables that made the
        log score of their averages up to 4 % worse.
        """
        return self.convergence is not None and self.convergence.rhat <= convergence_check.RULE.rhat

    @property
    def has_converged(self) -> bool:
        """True if R-hat and effective sample size meet the rule of `heatbath.diagnostics`."""
        return self.convergence is not None and has_converged(self.convergence)


def diagnose(records: Mapping[int, SampleRecord], step: int, chains: int, parts: Sequence[str]) -> Diagnosis:
    """Choose the burn-in, and diagnose the samples after it.

    The burn-in is an eighth or a quarter of the steps if the chains agree after it (median R-hat at most 1.1)
    at the right kinetic temperature, otherwise half of them.

    Parameters
    ----------
    records
        Records by the step of their sample.
    step
        Number of steps made so far.
    chains
        Number of chains.
    parts
        Names of the parts of the optimiser.

    Returns
    -------
    Diagnosis
        The burn-in, living chains, convergence and temperatures.
    """
    for share in BURN_IN_SHARES:
        burn_in = int(share * step)
        kept = [record for sample_step, record in records.items() if sample_step > burn_in]
        alive = _find_alive(kept, chains)
        convergence = _measure_convergence(kept, alive)
        diagnosis = Diagnosis(burn_in, alive, convergence, _mean_temperatures(kept, alive, parts))
        if diagnosis.chains_agree and not parts_off_temperature(diagnosis.temperatures, "kinetic"):
            break
    return diagnosis


def parts_off_temperature(temperatures: Mapping[str, PartTemperatures], kind: str) -> dict[str, Estimate]:
    """Return the parts whose temperature of this kind, "kinetic" or "configurational", is surely wrong."""
    estimates = {part: getattr(pair, kind) for part, pair in temperatures.items()}
    return {part: estimate for part, estimate in estimates.items() if is_surely_off(estimate)}


def _find_alive(records: Sequence[SampleRecord], chains: int) -> NDArray[np.bool_]:
    """Return which chains have finite outputs in all records, (chains,)."""
    alive = np.ones(chains, bool)
    for record in records:
        alive &= np.isfinite(record.outputs.reshape(chains, -1)).all(axis=1)
    return alive


def _measure_convergence(records: Sequence[SampleRecord], alive: NDArray[np.bool_]) -> Convergence | None:
    """Return R-hat and effective sample size over the probe examples; None with too little to tell."""
    if len(records) < convergence_check.FEWEST_SAMPLES or np.count_nonzero(alive) < 2:
        return None
    outputs = np.stack([record.outputs for record in records], axis=1)
    return convergence_of(outputs[alive])


def _mean_temperatures(
    records: Sequence[SampleRecord], alive: NDArray[np.bool_], parts: Sequence[str]
) -> dict[str, PartTemperatures]:
    """Return the mean temperatures of each part over samples and living chains; {} if there are none.

    Parameters
    ----------
    records
        Records of the samples after the burn-in.
    alive
        True for the chains whose outputs are finite, (chains,). Chains without finite temperatures are left
        out too.
    parts
        Names of the parts, in the order of the records.
    """
    if not records:
        return {}
    series = np.stack([record.temperatures for record in records], axis=-1)  # (parts, 2, chains, samples)
    counted = alive & np.isfinite(series).all(axis=(0, 1, 3))
    if not counted.any():
        return {}
    temperatures: dict[str, PartTemperatures] = {}
    for part, (kinetic, configurational) in zip(parts, series[:, :, counted], strict=True):
        temperatures[part] = PartTemperatures(statistics.mean(kinetic), statistics.mean(configurational))
    return temperatures
