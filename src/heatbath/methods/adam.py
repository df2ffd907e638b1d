"""Adam.

θ are the parameters, G is the negative gradient, h the stepsize; m and s are the running means of G and G².
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


def adam(
    theta: Array, m: Array, s: Array, G: Array, count: int, h: float, beta1: float, beta2: float, eps: float
) -> tuple[Array, Array, Array]:
    """Return θ, m and s after step number `count` of Adam, counted from 1."""
    m = beta1 * m + (1 - beta1) * G
    s = beta2 * s + (1 - beta2) * G**2
    mean = m / (1 - beta1**count)
    scale = np.sqrt(s / (1 - beta2**count)) + eps
    return theta + h * mean / scale, m, s


def _act(moment: Moment) -> None:
    """Make a step of Adam, with the running means in p and in the second moments."""
    # the prior stays outside the running means (AdamW)
    decay = moment.h * moment["weight_decay"] * moment.unit**2 * moment.theta
    moment.theta, moment.p, moment.second = adam(
        theta=moment.theta - decay,
        m=moment.p,
        s=moment.second,
        G=moment.G,
        count=moment.step + 1,
        h=moment.h,
        beta1=moment["beta1"],
        beta2=moment["beta2"],
        eps=moment["eps"],
    )


def _columns(values: Values) -> Columns:
    """Return the columns of operation ADAM: h, β₁, β₂, eps, the factor of the prior, and β₂ once more."""
    return [
        values.t,
        values["beta1"],
        values["beta2"],
        values["eps"],
        values.t * values.prior,
        values["beta2"],
    ]


@dataclass(frozen=True, repr=False)
class Adam(Method):
    """Adam as in torch, with the Gaussian prior outside the moments, which torch calls AdamW.

    m = β₁ m + (1 - β₁) G, s = β₂ s + (1 - β₂) G², and at step n
    θ += h m/(1 - β₁ⁿ)/(sqrt(s/(1 - β₂ⁿ)) + eps). p is m.

    Parameters
    ----------
    beta1, beta2 : float, schedule or list, optional
        Decay β₁ of the mean of the gradient, and β₂ of the mean of its squares.
    eps : float, schedule or list, optional
        Number added to the root of the mean of squares.
    weight_decay : float, schedule or list, optional
        Precision λ of the Gaussian prior, which adds λ|θ|²/2 to the loss.

    Examples
    --------
    >>> import heatbath as hb
    >>> hb.Adam(beta1=0.8)
    Adam(beta1=0.8, beta2=0.999, eps=1e-08)
    """

    beta1: Coefficient = varying(SHARE, "Decay of the mean of the gradient.", 0.9, symbol="β₁")
    beta2: Coefficient = varying(SHARE, "Decay of the mean of its squares.", 0.999, symbol="β₂")
    eps: Coefficient = varying(NON_NEGATIVE, "Added to the root of the mean of squares.", 1e-8)
    weight_decay: Coefficient = gaussian_prior()

    searched: ClassVar[dict[str, Between]] = {
        "h": between(1e-4, 0.1),
        "beta1": between(0.5, 0.99, "complement"),
        "beta2": between(0.9, 0.9999, "complement"),
    }

    word = "M"
    keeps_second = True
    counts_steps = True
    letters: ClassVar[dict[str, Letter]] = {
        "M": Letter(_act, ((operations.ADAM, _columns),), moves=True, kicks=True)
    }
