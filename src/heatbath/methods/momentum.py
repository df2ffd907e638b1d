"""Gradient descent with momentum.

θ are the parameters, v is their velocity and μ its decay, G the negative gradient, h the stepsize.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from heatbath._internal.checks import SHARE
from heatbath.methods import operations
from heatbath.methods.base import Method, gaussian_prior, option, varying
from heatbath.methods.letters import Array, Columns, Letter, Moment, Values
from heatbath.methods.ranges import Between, between
from heatbath.methods.schedules import Coefficient


def momentum(theta: Array, v: Array, G: Array, h: float, mu: float, kind: int) -> tuple[Array, Array]:
    """Return θ and v after a step.

    Kind 1 is v = μ v + h G, θ += v. Kind 2 is v = μ v + (1 - μ) G, θ += h v.
    """
    if kind == 1:
        v = mu * v + h * G
        return theta + v, v
    v = mu * v + (1 - mu) * G
    return theta + h * v, v


def _act(moment: Moment) -> None:
    """Move θ with a velocity that follows the negative gradient."""
    v = moment.unit * moment.p
    moment.theta, v = momentum(moment.theta, v, moment.force, moment.h, moment["mu"], moment.method.kind)
    moment.p = v / moment.unit


def _kick(values: Values) -> Columns:
    """Return the columns of operation B: the factors on G and on θ (the prior)."""
    time = values.t if values.method.kind == 1 else 1 - values["mu"]
    return [time, time * values.prior]


def _drift(values: Values) -> Columns:
    """Return the column of operation A: the factor on v."""
    return [1.0 if values.method.kind == 1 else values.t]


@dataclass(frozen=True, repr=False)
class Momentum(Method):
    """Gradient descent with momentum; v starts at 0. Algorithm 2 of the paper.

    - kind 1: v = μ v + h G, θ += v. It is OBA at τ = 0 with stepsize sqrt(h), μ = exp(-γ sqrt(h)).
    - kind 2: v = μ v + (1 - μ) G, θ += h v.

    Parameters
    ----------
    mu : float, schedule or list
        Share μ of the velocity that remains after a step.
    kind : {1, 2}, optional
        Kind of momentum, as above.
    weight_decay : float, schedule or list, optional
        Precision λ of the Gaussian prior, which adds λ|θ|²/2 to the loss.

    Examples
    --------
    >>> import heatbath as hb
    >>> hb.Momentum(mu=0.9)
    Momentum(mu=0.9)
    """

    mu: Coefficient = varying(SHARE, "Share of the velocity that remains after a step.", symbol="μ")
    kind: Literal[1, 2] = option("Kind of momentum", 1, 2)
    weight_decay: Coefficient = gaussian_prior()

    searched: ClassVar[dict[str, Between]] = {"h": between(3e-4, 0.5), "mu": between(0.5, 0.99, "complement")}

    word = "M"
    letters: ClassVar[dict[str, Letter]] = {
        "M": Letter(
            _act,
            ((operations.S, lambda values: [values["mu"]]), (operations.B, _kick), (operations.A, _drift)),
            moves=True,
            kicks=True,
        )
    }
