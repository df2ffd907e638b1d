"""Langevin dynamics.

θ are the parameters, p their momenta, G is the negative gradient, h the stepsize, γ the friction, τ the
temperature, t the time for which a letter acts, W a Wiener process, R are normal numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from heatbath._internal.checks import FRICTION, NON_NEGATIVE
from heatbath.methods import operations
from heatbath.methods.base import Method, gaussian_prior, varying
from heatbath.methods.letters import DRIFT, KICK, Array, Columns, Letter, Moment, Values
from heatbath.methods.ranges import Between, between
from heatbath.methods.schedules import Coefficient, bounds
from heatbath.methods.splitting import WordError, erases_force, require


def O(p: Array, R: Array, t: float, gamma: float, tau: float | Array) -> Array:
    """Return p after an Ornstein-Uhlenbeck step, dp = -γ p dt + sqrt(2γτ) dW; γ = inf redraws p."""
    if math.isinf(gamma):
        return np.sqrt(tau) * R
    return math.exp(-gamma * t) * p + np.sqrt(tau * -math.expm1(-2 * gamma * t)) * R


def _act(moment: Moment) -> None:
    """Ornstein-Uhlenbeck: apply friction and noise of one temperature."""
    moment.p = O(moment.p, moment.R, moment.t, moment["gamma"], moment.tau)


def _columns(values: Values) -> Columns:
    """Return the columns of operation S: the factor on p, the width of the noise, and √τ.

    For γ = inf the first two are 0 and 1.
    """
    exponent = values["gamma"] * values.t
    return [np.exp(-exponent), np.sqrt(-np.expm1(-2 * exponent)), values.root_tau]


@dataclass(frozen=True, repr=False)
class Langevin(Method):
    """Langevin dynamics: dθ = p dt, dp = G dt - γ p dt + sqrt(2γτ) dW.

    It samples exp(-(L(θ) + |p|²/2)/τ). The default word `BAOAB` needs one gradient per step, has order 2 and
    is exact in θ for a quadratic loss. See equations (6) and (7) of the paper, and section 2.2 for the words.

    Parameters
    ----------
    gamma : float, schedule or list
        Friction γ. γ = inf redraws p at every O, which in BAOAB is overdamped Langevin dynamics with stepsize
        h²/2.
    tau : float, schedule, list or SimulatedTempering, optional
        Temperature τ. Leave it out if the partition has a posterior.
    word : str, optional
        Splitting scheme over the letters A, B and O.
    weight_decay : float, schedule or list, optional
        Precision λ of the Gaussian prior, which adds λ|θ|²/2 to the loss.

    Raises
    ------
    WordError
        If the word lacks a letter, or γ = inf erases the force.

    Examples
    --------
    >>> import heatbath as hb
    >>> hb.Langevin(gamma=1.0, tau=1e-4)
    Langevin(gamma=1.0, tau=0.0001, word='BAOAB')
    """

    gamma: Coefficient = varying(FRICTION, "Friction.", symbol="γ")
    tau: Coefficient | None = varying(NON_NEGATIVE, "Temperature.", None, symbol="τ", tempered=True)
    word: str = "BAOAB"
    weight_decay: Coefficient = gaussian_prior()

    searched: ClassVar[dict[str, Between]] = {
        "h": between(0.03, 0.3),
        "gamma": between(1e-3, 10.0),
        "tau": between(1e-6, 1e-3),
    }

    adjustable = True
    letters: ClassVar[dict[str, Letter]] = {
        "A": DRIFT,
        "B": KICK,
        "O": Letter(
            _act,
            ((operations.S, _columns),),
            draws=True,
            reads=True,
            formula="dp = -γ p dt + √(2γτ) dW",
        ),
    }

    def check(self) -> None:
        """Raise WordError if a letter is missing, or if infinite friction would erase the force."""
        require(self.word, "Langevin", "ABO")
        _, highest_gamma = bounds(self.gamma)
        if math.isinf(highest_gamma) and erases_force(self.word):
            raise WordError(
                f"word {self.word!r} with gamma = inf: an O follows every B before any A, so the force would "
                "be erased: choose a finite gamma or a word such as 'BAOAB' or 'OBA'"
            )

    @property
    def linear(self) -> bool:
        """True: every letter is linear in (θ, p) and the noise for a quadratic loss."""
        return True
