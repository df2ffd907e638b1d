"""Adaptive Langevin dynamics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from heatbath._internal.checks import NON_NEGATIVE
from heatbath.methods import operations
from heatbath.methods.base import Method, gaussian_prior, option, singles, starting, varying
from heatbath.methods.letters import DRIFT, KICK, Array, Columns, Letter, Moment, Values
from heatbath.methods.ranges import Between, between
from heatbath.methods.schedules import Coefficient, SimulatedTempering, bounds, scaled
from heatbath.methods.splitting import WordError, require


def C(p: Array, t: float, xi: Array) -> Array:
    """Friction: dp = -ξ p dt with ξ held."""
    return np.exp(-t * xi) * p


def D(p: Array, R: Array, t: float, sigma: float) -> Array:
    """Driving noise: dp = σ dW."""
    return p + sigma * math.sqrt(t) * R


def E(xi: Array, kinetic: Array, target: Array, t: float, epsilon: float | Array) -> Array:
    """Thermostat: dξ = ε (p·p - N τ) dt with p held; kinetic is p·p and target N τ, or both over N."""
    return xi + t * epsilon * (kinetic - target)


def F(p: Array, R: Array, t: float, xi: Array, sigma: float) -> Array:
    """Friction and driving noise together: dp = -ξ p dt + σ dW with ξ held, for any sign of ξ."""
    return np.exp(-t * xi) * p + sigma * np.sqrt(t * phi(2 * t * xi)) * R


def phi(x: Array) -> Array:
    """(1 - exp(-x))/x, and 1 at x = 0."""
    nonzero = np.where(x == 0, 1.0, x)
    return np.where(x == 0, 1.0, -np.expm1(-nonzero) / nonzero)


def _friction(now: Moment) -> Array:
    """ξ for each parameter, in the SDE's form times ε."""
    return now["epsilon"] * now.friction if now.method.friction == "sde" else now.friction


def _act_c(now: Moment) -> None:
    now.p = C(now.p, now.t, _friction(now))


def _act_d(now: Moment) -> None:
    now.p = D(now.p, now.R, now.t, _drive(now))


def _act_e(now: Moment) -> None:
    if now["frequency"] > 0:  # ε = ω²/(2Nτ)
        target = np.asarray(now.sizes * now.tau, np.float64)
        now.xi = E(now.xi, now.squares, target, now.t, now["frequency"] ** 2 / (2 * target))
        return
    weight = 1 / now.sizes if now.method.kinetic == "mean" else 1
    target = np.asarray(weight * (now.sizes * now.tau), np.float64)
    now.xi = E(now.xi, weight * now.squares, target, now.t, now["epsilon"])


def _act_f(now: Moment) -> None:
    now.p = F(now.p, now.R, now.t, _friction(now), _drive(now))


def _drive(now: Moment) -> float:
    """σ, which a damping γ makes √(2γτ)."""
    return math.sqrt(2 * now["damping"] * float(now.tau)) if now["damping"] > 0 else now["sigma"]


def _time_of_friction(values: Values) -> object:
    """What ξ is multiplied by."""
    return values.t * values["epsilon"] if values.method.friction == "sde" else values.t


def _columns_c(values: Values) -> Columns:
    return [_time_of_friction(values)]


def driving_noise(values: Values | Mapping[str, float]) -> Any:
    """σ during some steps: as it is given, or from the damping."""
    damping = values["damping"]
    if not _is_set(damping):
        return values["sigma"]
    return np.where(damping > 0, np.sqrt(2 * damping * values["tau"]), values["sigma"])


def _is_set(value: Any) -> bool:
    """Whether a number, or any of an array, is not 0."""
    return value != 0 if isinstance(value, float) else bool(np.any(value))


def _columns_d(values: Values) -> Columns:
    return [1.0, driving_noise(values) * np.sqrt(values.t), 1.0]


def _columns_e(values: Values) -> Columns:
    epsilon, mean = values["epsilon"], 1.0 if values.method.kinetic == "mean" else 0.0
    frequency = values["frequency"]
    if not _is_set(frequency):
        return [values.t * epsilon, values.tau, mean]
    of_mean = frequency**2 / (2 * values["tau"])  # times p·p/N - τ, which is ω²/(2Nτ) times p·p - Nτ
    chosen = np.asarray(frequency) > 0
    return [values.t * np.where(chosen, of_mean, epsilon), values.tau, np.where(chosen, 1.0, mean)]


def _columns_f(values: Values) -> Columns:
    return [_time_of_friction(values), driving_noise(values) * np.sqrt(values.t)]


@dataclass(frozen=True, repr=False)
class AdaptiveLangevin(Method):
    """dθ = p dt, dp = G dt - ξ p dt + σ dW, dξ = ε (p·p - Nτ) dt: a friction ξ that finds itself.

    Whatever white noise of variance s² the gradient carries, the law of (θ, p) is exp(-(L + |p|²/2)/τ), and
    that of ξ is N(γ_eff, ετ) with γ_eff = (h s² + σ²)/(2τ), up to O(h²). Words over A, B, E and either C, D
    or F; the default `BACDEDCAB` needs one gradient per step. The thermostat is stable while h²εNτ < 2 (with
    friction "sde" h²ε²Nτ < 2; with kinetic "mean" without the N). Equations (12) to (14) of the paper, with
    the friction of its map C. The defaults are the paper's rules of thumb, but for ε, which it has at 0.05 to
    0.1: 0.03 was better on five problems (see "Which method" in the documentation).

    - `friction`: "map" is exp(-tξ), the paper's map C; "sde" is exp(-tεξ), its SDE. The map with ε is the
      SDE with sqrt(ε), and ξ_map = sqrt(ε) ξ_sde; in the SDE's form ξ ~ N(γ_eff/ε, τ).
    - `thermostat`: one ξ for the whole "part", or one for each "tensor" of it.
    - `kinetic`: "sum" is E as above; "mean" divides both its terms by N, for large parts.
    - `xi`: where ξ starts, a number or an axis of a sweep. ε = 0 keeps it there.

    ε and σ depend on how large a part is and how hot. Two others do not, and take their place where they are
    not 0:

    - `frequency`: ω of the thermostat, whose small oscillations have ω² = 2εNτ: ε is ω²/(2Nτ), also while τ
      changes. ξ ~ N(γ_eff, ω²/(2N)), and it is stable while hω < 2. For the friction of the map.
    - `damping`: the friction γ that ξ finds where gradients have no noise: σ is √(2γτ).
    """

    tau: Coefficient = varying(NON_NEGATIVE, "Temperature.", 1e-4, symbol="τ", tempered=True)
    sigma: Coefficient = varying(NON_NEGATIVE, "Driving noise.", 0.01, symbol="σ")
    epsilon: Coefficient = varying(NON_NEGATIVE, "Coupling of the thermostat.", 0.03, symbol="ε")
    word: str = "BACDEDCAB"
    xi: Coefficient = starting("Where the friction ξ starts.", 0.1)
    friction: Literal["map", "sde"] = option("Friction of the thermostat", "map", "sde")
    thermostat: Literal["part", "tensor"] = option("What has a ξ", "part", "tensor")
    kinetic: Literal["sum", "mean"] = option("Kinetic energy in the thermostat", "sum", "mean")
    weight_decay: Coefficient = gaussian_prior()
    frequency: Coefficient = varying(NON_NEGATIVE, "Frequency of the thermostat; if not 0, it sets ε.", 0.0)
    damping: Coefficient = varying(NON_NEGATIVE, "Friction without gradient noise; if not 0, it sets σ.", 0.0)

    searched: ClassVar[dict[str, Between]] = {
        "h": between(0.04, 0.4),
        "tau": between(2e-5, 2e-3),
        "sigma": between(1e-4, 0.05),
        "epsilon": between(3e-3, 0.3),
    }

    title = "AdL"
    letters: ClassVar[dict[str, Letter]] = {
        "A": DRIFT,
        "B": KICK,
        "C": Letter(
            _act_c,
            ((operations.C, _columns_c),),
            formula="dp = -ξ p dt",
            text="Friction ξ, which the thermostat moves.",
        ),
        "D": Letter(
            _act_d, ((operations.S, _columns_d),), draws=True, formula="dp = σ dW", text="Driving noise."
        ),
        "E": Letter(
            _act_e,
            ((operations.THERMOSTAT, _columns_e),),
            reads=True,
            formula="dξ = ε (p·p - Nτ) dt",
            text="Thermostat: ξ rises while p is too hot, and falls while it is too cold.",
        ),
        "F": Letter(
            _act_f,
            ((operations.F, _columns_f),),
            draws=True,
            formula="dp = -ξ p dt + σ dW",
            text="Friction ξ and driving noise together.",
        ),
    }

    def check(self) -> None:
        """A, B and E are needed, and C with D or F in their place."""
        word = self.word
        require(word, "AdaptiveLangevin", "ABE")
        if "F" in word and (clash := [letter for letter in "CD" if letter in word]):
            raise WordError(
                f"word {word!r}: F takes the place of C and D, so remove F or {' and '.join(clash)}; "
                "accepted are F alone or C with D"
            )
        if "F" not in word and (missing := [letter for letter in "CD" if letter not in word]):
            raise WordError(
                f"word {word!r}: AdaptiveLangevin needs both C and D, or F in their place; "
                f"missing: {', '.join(missing)}"
            )

        self._check_frequency()

    def _check_frequency(self) -> None:
        """A frequency and a damping need temperatures that are known and, the one, above 0."""
        tempered = any(isinstance(tau, SimulatedTempering) for tau in singles(self.tau))
        wrong = []
        for name, sets in (("frequency", "epsilon"), ("damping", "sigma")):
            if getattr(self, name) != 0 and tempered:
                wrong.append(f"{name} does not go with simulated tempering: give {sets}")
        if self.frequency != 0 and self.friction == "sde":
            wrong.append("frequency is for friction='map': with friction='sde' give epsilon")
        if self.frequency != 0 and not tempered and bounds(self.tau)[0] == 0:
            wrong.append(f"frequency needs tau > 0 at every step, got tau={self.tau!r}")
        if wrong:
            raise ValueError(f"AdaptiveLangevin: {'; '.join(wrong)}")

    @property
    def idle(self) -> frozenset[str]:
        """What others take the place of, beside a prior that is none."""
        return super().idle | {
            "epsilon" if self.frequency != 0 else "frequency",
            "sigma" if self.damping != 0 else "damping",
        }

    def thermostat_frequency(self, values: Mapping[str, float], size: int) -> float:
        """ω of a ξ that serves so many parameters."""
        if values["frequency"] > 0:
            return float(values["frequency"])
        count = 1 if self.kinetic == "mean" else size
        epsilon = float(values["epsilon"])
        epsilon = epsilon**2 if self.friction == "sde" else epsilon
        return math.sqrt(2 * epsilon * count * float(values["tau"]))

    def at_temperature(self, tau: float) -> Self:
        """With the σ, ε and start of ξ that leave the friction and its law as they are: σ²/τ and ετ (with
        friction "sde" ε²τ) stay. So do a damping and a frequency."""
        if not isinstance(self.tau, float) or self.tau == 0:
            raise ValueError(
                "AdaptiveLangevin: a posterior needs one tau > 0, the temperature that sigma and epsilon "
                f"are meant for; got {self!r}"
            )
        ratio = tau / self.tau
        root = math.sqrt(ratio)
        sde = self.friction == "sde"
        coupling = 1 / (root if sde else ratio) if self.frequency == 0 else 1.0
        return replace(
            self,
            tau=tau,
            sigma=scaled(self.sigma, root if self.damping == 0 else 1.0),
            epsilon=scaled(self.epsilon, coupling),
            xi=scaled(self.xi, root if sde else 1.0),
        )

    @property
    def linear(self) -> bool:
        """While ξ is held."""
        return self.epsilon == 0 and self.frequency == 0

    def gradient_noise(self, values: Mapping[str, float], h: float, xi: float | None) -> float | None:
        """s² from γ_eff = (h s² + σ²)/(2τ), the limit of small stepsizes."""
        if xi is None or h <= 0:
            return None
        scale = float(values["epsilon"]) if self.friction == "sde" else 1.0
        return (2 * float(values["tau"]) * scale * xi - float(driving_noise(values)) ** 2) / h
