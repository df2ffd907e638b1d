"""Calibrate intervals by where training examples lie in predictive distributions that have not seen them.

The predictive distribution of a posterior is right if its likelihood is. If the noise isn't normal, or not
the same everywhere, its 90 % intervals may contain 98 % of the data, or 80 %. So each training example is
left out, and its position in the distribution of the others is recorded, as a probability between 0 and 1.

No network is fitted again for that. Let the networks of a chain predict μ with variance v for an example of
weight w, with noise s² at the temperature T. Leaving it out changes the mean to μ - h r/(1 - h) and the
variance to v/(1 - h), with the residual r = y - μ and the leverage h = w v/(T s²). This is exact for linear
networks. Each chain has its own μ. The variance between chains is added to v, since no single chain has
explored the whole posterior.

PSEUDO uniform positions are added to those of the examples, so that few examples change little. On 14 tables
that are in no benchmark, with nearly normal noise (84 splits), 90 % intervals contain 89.8 % of the data with
calibration and 90.7 % without, at 0.98 of the width. The variance within chains alone gives 89.4 %, that of
all samples around one mean 90.3 %, at 1.01 of the width. Importance weights instead of the formula make
intervals too narrow (87.9 % on 28 splits, where 88.9 % are reached without).

Networks that interpolate the training examples, which happens with many columns and few rows, have leverages
near 1. Then dividing by 1 - h says nothing about their predictions without an example. So if the mean
leverage is above MOST_LEVERAGE, intervals are not calibrated. On 64 random tables (80 to 300 rows, 5 to 20
columns; benchmarks/leverages.py) calibrated 90 % intervals contained 89.2 % of new data and the others 90.0 %
on the 31 tables with lower leverage, and 72.6 % and 87.7 % on the 33 with higher leverage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from heatbath.datasets.problem import Floats
from heatbath.prediction.predictive_distributions import Mixture, central, checked_shares

PSEUDO = 20.0  # number of uniform positions that are added
HIGHEST = 0.9  # leverages are cut there, because 1 - h is too uncertain above
MOST_LEVERAGE = 0.7  # mean leverage above which intervals are not calibrated
CLOSEST = 1e-15  # distance of probabilities from 0 and 1


@dataclass(frozen=True, eq=False)
class Calibration:
    """Positions of examples in predictive distributions that have not seen them.

    Attributes
    ----------
    places : array, (examples, outputs)
        Position of each example: the probability of smaller values, from 0 to 1. Without examples, intervals
        are not calibrated.
    weights : array, (examples,)
        How often each example counts.
    """

    places: Floats
    weights: Floats

    def shares(self, wanted: Sequence[float]) -> Floats:
        """Return the probabilities of the predictive distribution that calibrate shares of data.

        Parameters
        ----------
        wanted : sequence of float
            Shares of the data, between 0 and 1.

        Returns
        -------
        array, (shares, outputs)
            The probability p for each share of the data that lies below the p-quantile.
        """
        calibrated = np.empty((len(wanted), self.places.shape[1]))
        if not len(self.places):
            calibrated[:] = np.asarray(wanted)[:, None]
            return calibrated
        for output, places in enumerate(self.places.T):
            order = np.argsort(places)
            total = self.weights.sum() + PSEUDO
            upper = np.cumsum(self.weights[order])
            lower = upper - self.weights[order]
            cumulative = np.stack([lower, upper], axis=1).ravel()
            positions = np.repeat(places[order], 2)
            data_shares = np.concatenate([[0.0], (cumulative + PSEUDO * positions) / total, [1.0]])
            positions = np.concatenate([[0.0], positions, [1.0]])
            calibrated[:, output] = np.interp(wanted, data_shares, positions)
        return np.clip(calibrated, CLOSEST, 1 - CLOSEST)

    def quantiles(self, law: Mixture, shares: ArrayLike) -> Floats:
        """Return the calibrated quantiles of a predictive distribution.

        Parameters
        ----------
        law : Mixture
            The predictive distribution.
        shares : array_like
            Shares of the data, between 0 and 1.

        Returns
        -------
        array, (shares, examples, outputs)
            The values below which these shares of the data lie.
        """
        columns = [
            law.output(output).quantiles(calibrated)[..., 0]
            for output, calibrated in enumerate(self.shares(checked_shares(shares)).T)
        ]
        return np.stack(columns, axis=-1)

    def interval(self, law: Mixture, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """Return the calibrated central interval of a predictive distribution.

        Parameters
        ----------
        law : Mixture
            The predictive distribution.
        coverage : float, optional
            The share of the data between the ends.

        Returns
        -------
        low, high : array, (examples, outputs)
        """
        low, high = self.quantiles(law, central(coverage))
        return low, high


def leverages(variance: Floats, noise: Floats, weights: Floats, temperature: float) -> Floats:
    """Return how far each example determines its own prediction, (chains, examples, outputs).

    At 1 nothing else does. Estimates near 1 may exceed it. The arguments are those of `left_out`.
    """
    return weights[:, None] * variance / (temperature * noise)


def left_out(
    mean: Floats, variance: Floats, noise: Floats, y: Floats, weights: Floats, temperature: float
) -> Floats:
    """Return the position of each example in the predictive distribution without it, (examples, outputs).

    Parameters
    ----------
    mean, variance : array, (chains, examples, outputs)
        Mean and variance of the predictions of each chain's networks.
    noise : array, (chains, examples, outputs)
        Variance of the data around them.
    y : array, (examples, outputs)
        The examples' targets.
    weights : array, (examples,)
        How often each example counts.
    temperature : float
        Temperature T of the posterior.
    """
    from scipy.special import ndtr

    leverage = np.minimum(leverages(variance, noise, weights, temperature), HIGHEST)
    residual = (y - mean) / (1 - leverage)
    left_out_variance = variance / (1 - leverage)
    return np.asarray(ndtr(residual / np.sqrt(noise + left_out_variance)).mean(axis=0))
