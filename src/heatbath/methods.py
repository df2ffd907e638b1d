"""Methods: a word with its coefficients, as frozen values.

θ are the parameters of a part, p their momenta, N their number, G the negative gradient of the loss, h the
stepsize. Every coefficient may be a number, a schedule, or a list (an axis of a sweep).

Each method that moves has a Gaussian prior: `weight_decay` λ adds λ|θ|²/2 to the loss that G descends. The
loss is a mean over n data, so τ = 1/n with λ = (prior precision)/n samples the posterior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from heatbath.checks import FINITE, FRICTION, NON_NEGATIVE, SHARE, Interval, choice, store
from heatbath.schedules import Coefficient, Schedule, Value, coefficient
from heatbath.splitting import Substep, WordError, erases_force, gradients, parse, rotate


@dataclass(frozen=True, repr=False)
class Langevin:
    """dθ = p dt, dp = G dt - γ p dt + sqrt(2γτ) dW: samples exp(-(L(θ) + |p|²/2)/τ).

    Words over A, B, O; `BAOAB` (the default) needs one gradient per step, is of order 2 and exact in θ on a
    quadratic. γ = inf redraws p at every O, which in BAOAB is overdamped Langevin dynamics with stepsize
    h²/2. Equations (6) and (7) of the paper; section 2.2 for the words.
    """

    gamma: Coefficient
    tau: Coefficient
    word: str = "BAOAB"
    weight_decay: Coefficient = 0.0

    def __post_init__(self) -> None:
        _store_coefficients(self, gamma=FRICTION, tau=NON_NEGATIVE, weight_decay=NON_NEGATIVE)
        infinite = any(
            math.isinf(gamma if isinstance(gamma, float) else gamma.range()[1])
            for gamma in _singles(self.gamma)
        )
        if erases_force(self.substeps) and infinite:
            raise WordError(
                f"word {self.word!r} with gamma = inf: an O follows every B before any A, so the force would "
                "be erased; choose a finite gamma or a word such as 'BAOAB' or 'OBA'"
            )

    @property
    def substeps(self) -> tuple[Substep, ...]:
        """The letters of its word."""
        return parse(self.word, "Langevin")

    def __repr__(self) -> str:
        return _repr(self)


@dataclass(frozen=True, repr=False)
class AdaptiveLangevin:
    """dθ = p dt, dp = G dt - ξ p dt + σ dW, dξ = ε (p·p - Nτ) dt: a friction ξ that finds itself.

    Whatever white noise of variance s² the gradient carries, the law of (θ, p) is exp(-(L + |p|²/2)/τ), and
    that of ξ is N(γ_eff, ετ) with γ_eff = (h s² + σ²)/(2τ), up to O(h²). Words over A, B, E and either C, D
    or F; the default `BACDEDCAB` needs one gradient per step. The thermostat is stable while h²εNτ < 2 (with
    friction "sde" h²ε²Nτ < 2; with kinetic "mean" without the N). Equations (12) to (14) of the paper, with
    the friction of its map C.

    - `friction`: "map" is exp(-tξ), the paper's map C; "sde" is exp(-tεξ), its SDE. The map with ε is the
      SDE with sqrt(ε), and ξ_map = sqrt(ε) ξ_sde; in the SDE's form ξ ~ N(γ_eff/ε, τ).
    - `thermostat`: one ξ for the whole "part", or one for each "tensor" of it.
    - `kinetic`: "sum" is E as above; "mean" divides both its terms by N, for large parts.
    - `xi`: where ξ starts, a number or an axis of a sweep. ε = 0 keeps it there.
    """

    tau: Coefficient
    sigma: Coefficient
    epsilon: Coefficient
    word: str = "BACDEDCAB"
    xi: Coefficient = 0.1
    friction: Literal["map", "sde"] = "map"
    thermostat: Literal["part", "tensor"] = "part"
    kinetic: Literal["sum", "mean"] = "sum"
    weight_decay: Coefficient = 0.0

    def __post_init__(self) -> None:
        _store_coefficients(
            self,
            tau=NON_NEGATIVE,
            sigma=NON_NEGATIVE,
            epsilon=NON_NEGATIVE,
            xi=FINITE,
            weight_decay=NON_NEGATIVE,
        )
        if any(isinstance(xi, Schedule) for xi in _singles(self.xi)):
            raise TypeError(
                f"AdaptiveLangevin: xi is where ξ starts, so it cannot be a schedule: got {self.xi!r}"
            )
        choice("AdaptiveLangevin: friction", self.friction, ("map", "sde"))
        choice("AdaptiveLangevin: thermostat", self.thermostat, ("part", "tensor"))
        choice("AdaptiveLangevin: kinetic", self.kinetic, ("sum", "mean"))
        parse(self.word, "AdaptiveLangevin")

    @property
    def substeps(self) -> tuple[Substep, ...]:
        """The letters of its word."""
        return parse(self.word, "AdaptiveLangevin")

    def __repr__(self) -> str:
        return _repr(self)


@dataclass(frozen=True)
class SGLD:
    """θ += h G + σ sqrt(h) R: dθ = G dt + σ dW, which samples exp(-L/τ) at τ = σ²/2, to first order in h.

    Algorithm 3 of the paper.
    """

    sigma: Coefficient
    weight_decay: Coefficient = 0.0

    def __post_init__(self) -> None:
        _store_coefficients(self, sigma=NON_NEGATIVE, weight_decay=NON_NEGATIVE)


@dataclass(frozen=True)
class SGD:
    """θ += h G."""

    weight_decay: Coefficient = 0.0

    def __post_init__(self) -> None:
        _store_coefficients(self, weight_decay=NON_NEGATIVE)


@dataclass(frozen=True)
class Momentum:
    """Gradient descent with momentum; v starts at 0. Algorithm 2 of the paper.

    - kind 1: v = μ v + h G, θ += v. It is OBA at τ = 0 with stepsize sqrt(h), μ = exp(-γ sqrt(h)).
    - kind 2: v = μ v + (1 - μ) G, θ += h v.
    """

    mu: Coefficient
    kind: Literal[1, 2] = 1
    weight_decay: Coefficient = 0.0

    def __post_init__(self) -> None:
        _store_coefficients(self, mu=SHARE, weight_decay=NON_NEGATIVE)
        choice("Momentum: kind", self.kind, (1, 2))


@dataclass(frozen=True)
class Adam:
    """Adam as in torch, with the prior outside the moments (torch calls that AdamW)."""

    beta1: Coefficient = 0.9
    beta2: Coefficient = 0.999
    eps: Coefficient = 1e-8
    weight_decay: Coefficient = 0.0

    def __post_init__(self) -> None:
        _store_coefficients(self, beta1=SHARE, beta2=SHARE, eps=NON_NEGATIVE, weight_decay=NON_NEGATIVE)


@dataclass(frozen=True)
class Frozen:
    """Nothing moves, so there is nothing to set."""


Method: TypeAlias = Langevin | AdaptiveLangevin | SGLD | SGD | Momentum | Adam | Frozen


def axes(method: Method) -> dict[str, tuple[Value, ...]]:
    """The coefficients of a method that are axes of a sweep, with their values."""
    values = {field.name: getattr(method, field.name) for field in fields(method)}
    return {name: value for name, value in values.items() if isinstance(value, tuple)}


def _singles(value: Coefficient) -> tuple[Value, ...]:
    return value if isinstance(value, tuple) else (value,)


def _store_coefficients(method: Method, **accepted: Interval) -> None:
    """Check the named coefficients and store them as floats, schedules, or tuples of them."""
    for name, interval in accepted.items():
        label = f"{type(method).__name__}: {name}"
        given = getattr(method, name)
        store(method, **{name: coefficient(label, given, interval, tempering=name == "tau")})


def _repr(method: Langevin | AdaptiveLangevin) -> str:
    """As a dataclass, without most defaults, and with a note where θ is not seen at the word's end."""
    shown = [f for f in fields(method) if f.name == "word" or getattr(method, f.name) != f.default]
    values = ", ".join(f"{f.name}={getattr(method, f.name)!r}" for f in shown)
    at_kick = gradients(method.substeps) == 1 and rotate(method.substeps).seen == "kick"
    return f"{type(method).__name__}({values})" + (
        " <between steps θ is seen at the kick>" if at_kick else ""
    )
