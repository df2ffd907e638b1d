"""Calibration: intervals by where the training examples lie in laws that have not seen them.

A posterior's law of new data is right where its likelihood is. Where the noise is not normal, or not the same
everywhere, its 90 % intervals may hold 98 % of the data, or 80. So each training example is left out, and the
place at which it lies in the law of the others is noted: what share of them lies below a share of the law.

Nothing is fitted again for that. In a chain whose networks say μ with variance v of an example of weight w,
with noise s² at the temperature T, leaving it out changes the mean to μ - h r/(1 - h) and the variance to
v/(1 - h), with the residual r = y - μ and the leverage h = w v/(T s²); exactly so where networks are linear.
Each chain has its own μ; what the chains differ by is added to v, since a chain has not been everywhere.

Beside the places found there are PSEUDO ones that are uniform, so that few examples change little. Measured
on 14 tables that are in no benchmark, whose noise is nearly normal (84 splits), 90 % intervals hold 89.8 %
with it and 90.7 % without, at 0.98 of the width; the variance within chains alone gives 89.4 %, that of all
samples around one mean 90.3 %, at 1.01 of the width, and weights of importance in place of the formula are
too sure (87.9 % on 28 splits, where it is 88.9 % without).

Networks that go through the training examples, as they do where columns are many and rows few, have leverages
near 1, and by dividing by 1 - h nothing is known of what they would say without one. So where the mean
leverage is above MOST_LEVERAGE intervals are those of the law. On 64 drawn tables (80 to 300 rows, 5 to 20
columns; benchmarks/leverages.py) 90 % intervals by the formula held 89.2 % of new data and those of the law
90.0 % on the 31 whose leverage was below, and 72.6 % and 87.7 % on the 33 above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from heatbath.datasets.problem import Floats
from heatbath.prediction.predictive_distributions import Mixture, central, checked_shares

PSEUDO = 20.0
HIGHEST = 0.9  # leverage: beyond it the formula divides by what is not known
MOST_LEVERAGE = 0.7  # on the average: see above
FARTHEST = 1e-15  # from 0 and 1 is the share of a law


@dataclass(frozen=True, eq=False)
class Calibration:
    """`places` (examples, outputs) of data in laws that have not seen them, from 0 to 1, and the weights of
    the examples; without any examples, intervals are those of the law."""

    places: Floats
    weights: Floats

    def shares(self, wanted: Sequence[float]) -> Floats:
        """The shares of a law below which these shares of data lie, (shares, outputs)."""
        found = np.empty((len(wanted), self.places.shape[1]))
        if not len(self.places):
            found[:] = np.asarray(wanted)[:, None]
            return found
        for output, places in enumerate(self.places.T):
            order = np.argsort(places)
            total = self.weights.sum() + PSEUDO
            after = np.cumsum(self.weights[order])
            before = after - self.weights[order]
            steps = np.stack([before, after], axis=1).ravel()
            at = np.repeat(places[order], 2)
            below = np.concatenate([[0.0], (steps + PSEUDO * at) / total, [1.0]])
            found[:, output] = np.interp(wanted, below, np.concatenate([[0.0], at, [1.0]]))
        return np.clip(found, FARTHEST, 1 - FARTHEST)

    def quantiles(self, law: Mixture, shares: ArrayLike) -> Floats:
        """The values below which these shares of data lie, (shares, examples, outputs), by a law."""
        columns = [
            law.output(output).quantiles(each)[..., 0]
            for output, each in enumerate(self.shares(checked_shares(shares)).T)
        ]
        return np.stack(columns, axis=-1)

    def interval(self, law: Mixture, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """The lower and upper ends between which this share of data lies, by a law."""
        low, high = self.quantiles(law, central(coverage))
        return low, high


def leverages(variance: Floats, noise: Floats, weights: Floats, temperature: float) -> Floats:
    """How far each example determines what is said of it, (chains, examples, outputs); 1: nothing else does.

    They are as `left_out` has them. Estimates of leverages near 1 may be above.
    """
    return weights[:, None] * variance / (temperature * noise)


def left_out(
    mean: Floats, variance: Floats, noise: Floats, y: Floats, weights: Floats, temperature: float
) -> Floats:
    """The places of examples, y (examples, outputs), in the laws of chains that were left without each.

    `mean` and `variance` are of what the networks of each chain say, and `noise` of the data around it, all
    (chains, examples, outputs); `weights` are (examples,).
    """
    from scipy.special import ndtr

    leverage = np.minimum(leverages(variance, noise, weights, temperature), HIGHEST)
    residual, without = (y - mean) / (1 - leverage), variance / (1 - leverage)
    return np.asarray(ndtr(residual / np.sqrt(noise + without)).mean(axis=0))
