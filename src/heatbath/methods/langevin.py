"""Langevin dynamics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from heatbath._internal.checks import FRICTION, NON_NEGATIVE
from heatbath.methods import operations
from heatbath.methods.base import Method, gaussian_prior, singles, varying
from heatbath.methods.letters import DRIFT, KICK, Array, Columns, Letter, Moment, Values
from heatbath.methods.ranges import Between, between
from heatbath.methods.schedules import Coefficient
from heatbath.methods.splitting import WordError, erases_force, require


def O(p: Array, R: Array, t: float, gamma: float, tau: float | Array) -> Array:
    """Ornstein-Uhlenbeck: dp = -γ p dt + sqrt(2γτ) dW. With γ = inf, p is drawn anew."""
    if math.isinf(gamma):
        return np.sqrt(tau) * R
    return math.exp(-gamma * t) * p + np.sqrt(tau * -math.expm1(-2 * gamma * t)) * R


def _act(now: Moment) -> None:
    now.p = O(now.p, now.R, now.t, now["gamma"], now.tau)


def _columns(values: Values) -> Columns:
    """The factor on p and the width of the noise: 0 and 1 where γ is infinite."""
    exponent = values["gamma"] * values.t
    return [np.exp(-exponent), np.sqrt(-np.expm1(-2 * exponent)), values.root_tau]


@dataclass(frozen=True, repr=False)
class Langevin(Method):
    """dθ = p dt, dp = G dt - γ p dt + sqrt(2γτ) dW: samples exp(-(L(θ) + |p|²/2)/τ).

    Words over A, B, O; `BAOAB` (the default) needs one gradient per step, is of order 2 and exact in θ on a
    quadratic. γ = inf redraws p at every O, which in BAOAB is overdamped Langevin dynamics with stepsize
    h²/2. Equations (6) and (7) of the paper; section 2.2 for the words.
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
            text="Ornstein-Uhlenbeck: friction and noise of one temperature.",
        ),
    }

    def check(self) -> None:
        """Every letter is needed, and the force must have an effect."""
        require(self.word, "Langevin", "ABO")
        infinite = any(
            math.isinf(gamma if isinstance(gamma, float) else gamma.range()[1])
            for gamma in singles(self.gamma)
        )
        if infinite and erases_force(self.word):
            raise WordError(
                f"word {self.word!r} with gamma = inf: an O follows every B before any A, so the force would "
                "be erased; choose a finite gamma or a word such as 'BAOAB' or 'OBA'"
            )

    @property
    def linear(self) -> bool:
        """Always."""
        return True
