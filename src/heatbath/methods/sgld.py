"""Stochastic gradient Langevin dynamics (SGLD).

θ are the parameters, G is the negative gradient, h the stepsize, σ the driving noise, R are normal numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from heatbath._internal.checks import NON_NEGATIVE
from heatbath.methods import operations
from heatbath.methods.base import Method, gaussian_prior, varying
from heatbath.methods.letters import Array, Columns, Letter, Moment, Values
from heatbath.methods.ranges import Between, between
from heatbath.methods.schedules import Coefficient


def sgld(theta: Array, G: Array, R: Array, h: float, sigma: float) -> Array:
    """Return θ after a step of SGLD: θ += h G + σ sqrt(h) R."""
    return theta + h * G + sigma * math.sqrt(h) * R


def _act(moment: Moment) -> None:
    """Move θ along the negative gradient, and add noise."""
    moment.theta = sgld(moment.theta, moment.force, moment.unit * moment.R, moment.h, moment["sigma"])


def _columns(values: Values) -> Columns:
    """Return the columns of DESCEND: the factors on G, on θ (the prior) and on the noise."""
    return [values.t, values.t * values.prior, values["sigma"] * np.sqrt(values.t)]


@dataclass(frozen=True, repr=False)
class SGLD(Method):
    """Stochastic gradient Langevin dynamics: θ += h G + σ sqrt(h) R.

    This discretises dθ = G dt + σ dW, and samples exp(-L/τ) at τ = σ²/2, to first order in h. Algorithm 3 of
    the paper.

    Parameters
    ----------
    sigma : float, schedule or list, optional
        Driving noise σ. Leave it out if the partition has a posterior.
    weight_decay : float, schedule or list, optional
        Precision λ of the Gaussian prior, which adds λ|θ|²/2 to the loss.

    Examples
    --------
    >>> import heatbath as hb
    >>> hb.SGLD(sigma=0.01)
    SGLD(sigma=0.01)
    """

    sigma: Coefficient | None = varying(NON_NEGATIVE, "Driving noise.", None, symbol="σ")
    weight_decay: Coefficient = gaussian_prior()

    searched: ClassVar[dict[str, Between]] = {"h": between(0.01, 2.0), "sigma": between(1e-4, 0.1)}

    word = "G"
    thermal = "sigma"

    def at_temperature(self, tau: float) -> Self:
        """Return the method with the σ that samples temperature τ: σ² = 2τ."""
        return replace(self, sigma=math.sqrt(2 * tau))

    letters: ClassVar[dict[str, Letter]] = {
        "G": Letter(_act, ((operations.DESCEND, _columns),), draws=True, moves=True, kicks=True)
    }
