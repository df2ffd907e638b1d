"""RMSprop.

θ are the parameters, G is the negative gradient, s is the running mean of G², h the stepsize.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from heatbath._internal.checks import NON_NEGATIVE, SHARE
from heatbath.methods import operations
from heatbath.methods.base import Method, gaussian_prior, varying
from heatbath.methods.letters import Array, Columns, Letter, Moment, Values
from heatbath.methods.ranges import Between, between
from heatbath.methods.schedules import Coefficient


def rmsprop(theta: Array, s: Array, G: Array, h: float, alpha: float, eps: float) -> tuple[Array, Array]:
    """Return θ and s after a step: s = α s + (1 - α) G², θ += h G/(sqrt(s) + eps)."""
    s = alpha * s + (1 - alpha) * G**2
    return theta + h * G / (np.sqrt(s) + eps), s


def _act(moment: Moment) -> None:
    """Make a step of RMSprop; p becomes the last G."""
    decay = moment.h * moment["weight_decay"] * moment.unit**2 * moment.theta  # outside the mean of squares
    moment.theta, moment.second = rmsprop(
        moment.theta - decay, moment.second, moment.G, moment.h, moment["alpha"], moment["eps"]
    )
    moment.p = moment.G


def _columns(values: Values) -> Columns:
    """Return the columns of operation ADAM: with β₁ = 0, and s not corrected for its start at 0."""
    return [values.t, 0.0, values["alpha"], values["eps"], values.t * values.prior, 0.0]


@dataclass(frozen=True, repr=False)
class RMSprop(Method):
    """RMSprop as in torch, with the Gaussian prior outside the mean of squares.

    s = α s + (1 - α) G², θ += h G/(sqrt(s) + eps). p is the last G.

    Parameters
    ----------
    alpha : float, schedule or list, optional
        Decay α of the mean of squares.
    eps : float, schedule or list, optional
        Number added to the root of the mean of squares.
    weight_decay : float, schedule or list, optional
        Precision λ of the Gaussian prior, which adds λ|θ|²/2 to the loss.

    Examples
    --------
    >>> import heatbath as hb
    >>> hb.RMSprop(alpha=0.9)
    RMSprop(alpha=0.9, eps=1e-08)
    """

    alpha: Coefficient = varying(SHARE, "Decay of the mean of squares.", 0.99, symbol="α")
    eps: Coefficient = varying(NON_NEGATIVE, "Added to the root of the mean of squares.", 1e-8)
    weight_decay: Coefficient = gaussian_prior()

    searched: ClassVar[dict[str, Between]] = {
        "h": between(1e-4, 0.1),
        "alpha": between(0.9, 0.9999, "complement"),
    }

    word = "M"
    keeps_second = True
    letters: ClassVar[dict[str, Letter]] = {
        "M": Letter(_act, ((operations.ADAM, _columns),), moves=True, kicks=True),
    }
