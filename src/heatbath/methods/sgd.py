"""Gradient descent: θ are the parameters, G is the negative gradient, h the stepsize."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from heatbath.methods import operations
from heatbath.methods.base import Method, gaussian_prior
from heatbath.methods.letters import Array, Letter, Moment
from heatbath.methods.ranges import Between, between
from heatbath.methods.schedules import Coefficient


def sgd(theta: Array, G: Array, h: float) -> Array:
    """Return θ after a step of gradient descent: θ += h G."""
    return theta + h * G


def _act(moment: Moment) -> None:
    """Move θ along the negative gradient."""
    moment.theta = sgd(moment.theta, moment.force, moment.h)


@dataclass(frozen=True, repr=False)
class SGD(Method):
    """Gradient descent: θ += h G.

    Parameters
    ----------
    weight_decay : float, schedule or list, optional
        Precision λ of the Gaussian prior, which adds λ|θ|²/2 to the loss.

    Examples
    --------
    >>> import heatbath as hb
    >>> hb.SGD(weight_decay=1e-4)
    SGD(weight_decay=0.0001)
    """

    weight_decay: Coefficient = gaussian_prior()

    searched: ClassVar[dict[str, Between]] = {"h": between(0.01, 2.0)}

    word = "G"
    letters: ClassVar[dict[str, Letter]] = {
        "G": Letter(
            _act,
            ((operations.DESCEND, lambda values: [values.t, values.t * values.prior]),),
            moves=True,
            kicks=True,
        )
    }
