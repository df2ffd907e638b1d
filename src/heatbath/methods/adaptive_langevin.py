"""Adaptive Langevin dynamics.

θ are the parameters, p their momenta and N their number, G is the negative gradient, h the stepsize, ξ the
friction, τ the temperature, σ the driving noise, ε the coupling of the thermostat, t the time for which a
letter acts, W a Wiener process, R are normal numbers.
"""

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
    """Return p after friction: dp = -ξ p dt with ξ fixed."""
    return np.exp(-t * xi) * p


def D(p: Array, R: Array, t: float, sigma: float) -> Array:
    """Return p after driving noise: dp = σ dW."""
    return p + sigma * math.sqrt(t) * R


def E(xi: Array, kinetic: Array, target: Array, t: float, epsilon: float | Array) -> Array:
    """Return ξ after the thermostat: dξ = ε (p·p - N τ) dt with p fixed.

    `kinetic` is p·p and `target` N τ, or both divided by N.
    """
    return xi + t * epsilon * (kinetic - target)


def F(p: Array, R: Array, t: float, xi: Array, sigma: float) -> Array:
    """Return p after friction and driving noise together: dp = -ξ p dt + σ dW with ξ fixed, of any sign."""
    return np.exp(-t * xi) * p + sigma * np.sqrt(t * phi(2 * t * xi)) * R


def phi(x: Array) -> Array:
    """Return (1 - exp(-x))/x, which is 1 at x = 0."""
    nonzero = np.where(x == 0, 1.0, x)
    return np.where(x == 0, 1.0, -np.expm1(-nonzero) / nonzero)


def _friction(moment: Moment) -> Array:
    """Return the friction of each parameter: ξ, or εξ for friction "sde"."""
    return moment["epsilon"] * moment.friction if moment.method.friction == "sde" else moment.friction


def _act_c(moment: Moment) -> None:
    """Apply friction ξ, which the thermostat changes."""
    moment.p = C(moment.p, moment.t, _friction(moment))


def _act_d(moment: Moment) -> None:
    """Add driving noise."""
    moment.p = D(moment.p, moment.R, moment.t, _drive(moment))


def _act_e(moment: Moment) -> None:
    """Thermostat: raise ξ while p is too hot, and lower it while p is too cold."""
    if moment["frequency"] > 0:
        target = np.asarray(moment.sizes * moment.tau, np.float64)  # Nτ
        epsilon = moment["frequency"] ** 2 / (2 * target)  # ω²/(2Nτ)
        moment.xi = E(moment.xi, moment.squares, target, moment.t, epsilon)
        return
    weight = 1 / moment.sizes if moment.method.kinetic == "mean" else 1
    target = np.asarray(weight * (moment.sizes * moment.tau), np.float64)
    moment.xi = E(moment.xi, weight * moment.squares, target, moment.t, moment["epsilon"])


def _act_f(moment: Moment) -> None:
    """Apply friction ξ and driving noise together."""
    moment.p = F(moment.p, moment.R, moment.t, _friction(moment), _drive(moment))


def _drive(moment: Moment) -> float:
    """Return σ, which is √(2γτ) if there is a damping γ; the reference's own formula, to compare with."""
    return math.sqrt(2 * moment["damping"] * float(moment.tau)) if moment["damping"] > 0 else moment["sigma"]


def _time_of_friction(values: Values) -> object:
    """Return the factor on ξ in the exponent of the friction: t, or tε for friction "sde"."""
    return values.t * values["epsilon"] if values.method.friction == "sde" else values.t


def _columns_c(values: Values) -> Columns:
    """Return the column of operation C."""
    return [_time_of_friction(values)]


def driving_noise(values: Values | Mapping[str, float]) -> Any:
    """Return σ, which is √(2γτ) if there is a damping γ: a number, or an array over steps."""
    damping = values["damping"]
    if not _is_nonzero(damping):
        return values["sigma"]
    return np.where(damping > 0, np.sqrt(2 * damping * values["tau"]), values["sigma"])


def _is_nonzero(value: Any) -> bool:
    """Return True if a number, or any number of an array, is not 0."""
    return value != 0 if isinstance(value, float) else bool(np.any(value))


def _columns_d(values: Values) -> Columns:
    """Return the columns of operation S: p stays, and the noise has width σ√t."""
    return [1.0, driving_noise(values) * np.sqrt(values.t), 1.0]


def _columns_e(values: Values) -> Columns:
    """Return the columns of THERMOSTAT: the factor on p·p - Nτ, τ, and 1 if both are divided by N.

    At steps with a frequency ω the factor is t ω²/(2τ) on p·p/N - τ, which is t ω²/(2Nτ) on p·p - Nτ.
    """
    epsilon = values["epsilon"]
    frequency = values["frequency"]
    is_mean = 1.0 if values.method.kinetic == "mean" else 0.0
    if not _is_nonzero(frequency):
        return [values.t * epsilon, values.tau, is_mean]

    has_frequency = np.asarray(frequency) > 0
    coupling = np.where(has_frequency, frequency**2 / (2 * values["tau"]), epsilon)
    return [values.t * coupling, values.tau, np.where(has_frequency, 1.0, is_mean)]


def _columns_f(values: Values) -> Columns:
    """Return the columns of operation F: the factor on ξ, and the width σ√t of the noise."""
    return [_time_of_friction(values), driving_noise(values) * np.sqrt(values.t)]


@dataclass(frozen=True, repr=False)
class AdaptiveLangevin(Method):
    """Langevin dynamics with adaptive friction: dp = G dt - ξ p dt + σ dW, dξ = ε (p·p - Nτ) dt.

    As in Langevin dynamics, dθ = p dt. If the gradient carries white noise of variance s², the law of (θ, p)
    is still exp(-(L + |p|²/2)/τ), and that of ξ is N(γ_eff, ετ) with γ_eff = (h s² + σ²)/(2τ), up to O(h²).
    The thermostat is stable while h²εNτ < 2 (with friction "sde" h²ε²Nτ < 2; with kinetic "mean" without the
    N). See equations (12) to (14) of the paper, with the friction of its map C. The defaults are the paper's
    rules of thumb, except for ε, which it has at 0.05 to 0.1: 0.03 was better on five problems (see "Which
    method" in the documentation).

    Suitable ε and σ depend on the size and temperature of a part. `frequency` and `damping` don't, and
    replace them if they are not 0.

    Parameters
    ----------
    tau : float, schedule, list or SimulatedTempering, optional
        Temperature τ.
    sigma : float, schedule or list, optional
        Driving noise σ.
    epsilon : float, schedule or list, optional
        Coupling ε of the thermostat. ε = 0 keeps ξ at its start.
    word : str, optional
        Splitting scheme over the letters A, B, E and either F, or C and D. The default `BACDEDCAB` needs one
        gradient per step.
    xi : float or list, optional
        Initial value of ξ.
    friction : {"map", "sde"}, optional
        "map" is exp(-tξ), the paper's map C; "sde" is exp(-tεξ), its SDE. The map with ε is the SDE with
        sqrt(ε), and ξ_map = sqrt(ε) ξ_sde; in the SDE's form ξ ~ N(γ_eff/ε, τ).
    thermostat : {"part", "tensor"}, optional
        One ξ for the whole part, or one for each tensor of it.
    kinetic : {"sum", "mean"}, optional
        "sum" is E as above; "mean" divides both its terms by N, for large parts.
    weight_decay : float, schedule or list, optional
        Precision λ of the Gaussian prior, which adds λ|θ|²/2 to the loss.
    frequency : float, schedule or list, optional
        Frequency ω of the thermostat, whose small oscillations have ω² = 2εNτ. If not 0, ε is ω²/(2Nτ), also
        while τ changes. Then ξ ~ N(γ_eff, ω²/(2N)), and it is stable while hω < 2. For friction "map" only.
    damping : float, schedule or list, optional
        Friction γ that ξ approaches if gradients have no noise. If not 0, σ is √(2γτ).

    Raises
    ------
    WordError
        If the word lacks a letter, or mixes F with C or D.
    ValueError
        If `frequency` or `damping` doesn't go with the temperature or the friction.

    Examples
    --------
    >>> import heatbath as hb
    >>> hb.AdaptiveLangevin(tau=1e-5)
    AdaptiveLangevin(tau=1e-05, sigma=0.01, epsilon=0.03, word='BACDEDCAB')
    """

    tau: Coefficient = varying(NON_NEGATIVE, "Temperature.", 1e-4, symbol="τ", tempered=True)
    sigma: Coefficient = varying(NON_NEGATIVE, "Driving noise.", 0.01, symbol="σ")
    epsilon: Coefficient = varying(NON_NEGATIVE, "Coupling of the thermostat.", 0.03, symbol="ε")
    word: str = "BACDEDCAB"
    xi: Coefficient = starting("Initial friction ξ.", 0.1)
    friction: Literal["map", "sde"] = option("Friction of the thermostat", "map", "sde")
    thermostat: Literal["part", "tensor"] = option("Scope of each friction ξ", "part", "tensor")
    kinetic: Literal["sum", "mean"] = option("Kinetic energy in the thermostat", "sum", "mean")
    weight_decay: Coefficient = gaussian_prior()
    frequency: Coefficient = varying(NON_NEGATIVE, "Frequency of the thermostat. If not 0, it sets ε.", 0.0)
    damping: Coefficient = varying(NON_NEGATIVE, "Friction without gradient noise. If not 0, it sets σ.", 0.0)

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
        "C": Letter(_act_c, ((operations.C, _columns_c),), formula="dp = -ξ p dt"),
        "D": Letter(_act_d, ((operations.S, _columns_d),), draws=True, formula="dp = σ dW"),
        "E": Letter(
            _act_e, ((operations.THERMOSTAT, _columns_e),), reads=True, formula="dξ = ε (p·p - Nτ) dt"
        ),
        "F": Letter(_act_f, ((operations.F, _columns_f),), draws=True, formula="dp = -ξ p dt + σ dW"),
    }

    def check(self) -> None:
        """Raise an error for a word with missing or clashing letters, or values that don't go together.

        Friction and driving noise are either F, or C and D.

        Raises
        ------
        WordError
            If a letter is missing, or F is mixed with C or D.
        ValueError
            If `frequency` or `damping` doesn't go with the temperature or the friction.
        """
        word = self.word
        require(word, "AdaptiveLangevin", "ABE")
        present = [letter for letter in "CD" if letter in word]
        missing = [letter for letter in "CD" if letter not in word]
        if "F" in word and present:
            raise WordError(
                f"word {word!r}: F replaces C and D, so remove F or {' and '.join(present)}; "
                "accepted are F alone or C with D"
            )
        if "F" not in word and missing:
            raise WordError(
                f"word {word!r}: AdaptiveLangevin needs both C and D, or F instead; "
                f"missing: {', '.join(missing)}"
            )
        self._check_frequency_and_damping()

    def _check_frequency_and_damping(self) -> None:
        """Raise ValueError if a frequency or damping doesn't go with the temperature or the friction.

        A frequency sets ε = ω²/(2Nτ), so it needs one temperature above 0; a damping sets σ = √(2γτ).
        """
        has_frequency = self.frequency != 0
        has_damping = self.damping != 0
        is_tempered = any(isinstance(tau, SimulatedTempering) for tau in singles(self.tau))
        problems = []
        if has_frequency and is_tempered:
            problems.append("frequency does not go with simulated tempering: give epsilon instead")
        if has_damping and is_tempered:
            problems.append("damping does not go with simulated tempering: give sigma instead")
        if has_frequency and self.friction == "sde":
            problems.append("frequency is for friction='map': with friction='sde' give epsilon")
        lowest_tau, _ = bounds(self.tau)
        if has_frequency and not is_tempered and lowest_tau == 0:
            problems.append(f"frequency needs tau > 0 at every step, got tau={self.tau!r}")
        if problems:
            raise ValueError(f"AdaptiveLangevin: {'; '.join(problems)}")

    @property
    def idle(self) -> frozenset[str]:
        """Coefficients without an effect: those that others replace, and a prior of precision 0."""
        unused_oscillation = "epsilon" if self.frequency != 0 else "frequency"
        unused_friction = "sigma" if self.damping != 0 else "damping"
        return super().idle | {unused_oscillation, unused_friction}

    def thermostat_frequency(self, values: Mapping[str, float], size: int) -> float:
        """Return the frequency ω of small oscillations of a ξ that acts on `size` parameters."""
        if values["frequency"] > 0:
            return float(values["frequency"])
        count = 1 if self.kinetic == "mean" else size
        epsilon = float(values["epsilon"])
        epsilon = epsilon**2 if self.friction == "sde" else epsilon
        return math.sqrt(2 * epsilon * count * float(values["tau"]))

    def at_temperature(self, tau: float) -> Self:
        """Return the method at another temperature, with the same friction and law of ξ.

        σ²/τ and ετ (with friction "sde" ε²τ) stay as they are, and so do a damping and a frequency.

        Raises
        ------
        ValueError
            If the present temperature isn't a number above 0.
        """
        if not isinstance(self.tau, float) or self.tau == 0:
            raise ValueError(
                "AdaptiveLangevin: a posterior needs one tau > 0, the temperature that sigma and epsilon "
                f"are meant for; got {self!r}"
            )
        ratio = tau / self.tau
        root = math.sqrt(ratio)
        is_sde = self.friction == "sde"
        epsilon_divisor = root if is_sde else ratio
        changes: dict[str, Any] = {"tau": tau}
        if self.damping == 0:  # otherwise σ has no effect
            changes["sigma"] = scaled(self.sigma, root)
        if self.frequency == 0:  # otherwise ε has no effect
            changes["epsilon"] = scaled(self.epsilon, 1 / epsilon_divisor)
        if is_sde:
            changes["xi"] = scaled(self.xi, root)
        return replace(self, **changes)

    @property
    def linear(self) -> bool:
        """True if ξ stays fixed: then a step on a quadratic loss is linear in (θ, p) and the noise."""
        return self.epsilon == 0 and self.frequency == 0

    def gradient_noise(self, values: Mapping[str, float], h: float, xi: float | None) -> float | None:
        """Return s² from the mean ξ by γ_eff = (h s² + σ²)/(2τ), the limit of small stepsizes."""
        if xi is None or h <= 0:
            return None
        scale = float(values["epsilon"]) if self.friction == "sde" else 1.0
        return (2 * float(values["tau"]) * scale * xi - float(driving_noise(values)) ** 2) / h
