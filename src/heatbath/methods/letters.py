"""Define letters: the exactly solvable pieces of the dynamics that words are made of.

A `Letter` has two independent descriptions, which check one another: its map in NumPy (`act`), which is the
definition, and its lowering to operations of the compiled kernel (`lower`). The letters A and B are defined
here because most methods have them. The others are defined beside their methods.

Symbols: θ are parameters, p their momenta and G the negative gradient of the loss, each (chains, parameters);
R are standard normal numbers of the same shape; t is the time for which a letter acts; ξ is a friction that
broadcasts against p; τ is a temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import getdoc
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from heatbath.methods import operations
from heatbath.methods.schedules import SimulatedTempering, at

Array: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.intp]
Columns: TypeAlias = Sequence[Any]  # numbers, or arrays over steps


@dataclass
class Moment:
    """State of one part of the reference while a letter acts on it.

    A letter's `act` assigns new arrays to the attributes that it changes. `moment["gamma"]` is a coefficient
    of the part's method during the step to which the letter belongs.

    Attributes
    ----------
    method : Method
        The part's method.
    step, h, t : int, float, float
        The step to which the letter belongs, the stepsize, and the time for which the letter acts.
    theta, p, second : array, (chains, parameters)
        Parameters, momenta and second moments.
    xi : array, (chains, thermostats)
        Friction of each thermostat.
    G, R : array, (chains, parameters)
        Negative gradient of the loss, and standard normal numbers.
    tau : float or array, (chains, 1)
        Temperature; one for each chain under simulated tempering.
    sizes : array of int, (thermostats,)
        Number of parameters that each ξ acts on.
    unit : float or array, (chains, 1)
        Unit of the momenta, which differs from 1 where the noise of the data is sampled.
    """

    method: Any
    step: int
    h: float
    t: float
    theta: Array
    p: Array
    second: Array
    xi: Array
    G: Array
    R: Array
    tau: float | Array
    sizes: Ints
    unit: float | Array = 1.0

    def __getitem__(self, name: str) -> float:
        """Return a coefficient of the method during the step."""
        return at(getattr(self.method, name), self.step)

    @property
    def force(self) -> Array:
        """Force on θ: G minus the gradient of the Gaussian prior, (chains, parameters)."""
        return np.asarray(self.G - at(self.method.prior, self.step) * self.unit**2 * self.theta)

    @property
    def friction(self) -> Array:
        """Friction ξ of each parameter, (chains, parameters)."""
        return np.repeat(self.xi, self.sizes, axis=1)

    @property
    def squares(self) -> Array:
        """Sum p·p over the parameters that each ξ acts on, (chains, thermostats)."""
        blocks = np.split(self.p, np.cumsum(self.sizes)[:-1], axis=1)
        return np.stack([np.sum(block**2, axis=1) for block in blocks], axis=1)

    @property
    def R_of_friction(self) -> Array:
        """Normal number for each ξ, (chains, thermostats): that of its first parameter."""
        return self.R[:, np.cumsum(self.sizes) - self.sizes]


class Values:
    """Coefficients of a method while a letter acts for a time t, as the letter's lowering reads them.

    `values["gamma"]` is a number, or an array over steps. A lowering must work on both, with the same bits.

    Parameters
    ----------
    method : Method
        The method of the letter.
    t : float or array over steps
        The time for which the letter acts.
    evaluate : callable
        Returns a coefficient by its name.
    """

    def __init__(self, method: Any, t: Any, evaluate: Callable[[str], Any]) -> None:
        """Store the method, the time, and the function that evaluates coefficients."""
        self.method = method
        self.t = t
        self._evaluate = evaluate

    def __getitem__(self, name: str) -> Any:
        """Return a coefficient by its name."""
        return self._evaluate(name)

    @property
    def prior(self) -> Any:
        """Precision λ of the Gaussian prior; 0 for a method without one."""
        return self._evaluate("weight_decay") if self.method.has_prior else 0.0

    @property
    def tau(self) -> Any:
        """Temperature τ; `TEMPERED` stands for that of the chain's rung."""
        return operations.TEMPERED if self._tempered else self._evaluate("tau")

    @property
    def root_tau(self) -> Any:
        """Square root of the temperature; `TEMPERED` stands for that of the chain's rung."""
        return operations.TEMPERED if self._tempered else np.sqrt(self._evaluate("tau"))

    @property
    def _tempered(self) -> bool:
        """True if the temperature is that of a rung of simulated tempering."""
        return isinstance(self.method.temperature, SimulatedTempering)


@dataclass(frozen=True)
class Letter:
    """One exactly solvable piece of the dynamics.

    Attributes
    ----------
    act : callable
        Its map: assigns new θ, p, ξ or second moments to a `Moment`.
    lower : tuple of (operation, function)
        The operations of the kernel that do the same. Each function returns the operation's columns of
        coefficients from `Values`.
    draws : bool
        True if it draws noise, which has its own slot.
    reads : bool
        True if it reads p·p. The kinetic temperature is measured there.
    moves : bool
        True if it changes θ.
    kicks : bool
        True if it needs the gradient at the θ that it starts from.
    formula : str
        Its equation, for the explorer, which also shows the docstring of `act`.
    """

    act: Callable[[Moment], None]
    lower: tuple[tuple[int, Callable[[Values], Columns]], ...]
    draws: bool = False
    reads: bool = False
    moves: bool = False
    kicks: bool = False
    formula: str = ""

    @property
    def description(self) -> str:
        """Docstring of `act`, or if there is none, a list of what the letter does."""
        effects = {
            "moves θ": self.moves,
            "needs the gradient": self.kicks,
            "draws noise": self.draws,
            "reads p·p": self.reads,
        }
        listed = ", ".join(effect for effect, applies in effects.items() if applies)
        return getdoc(self.act) or (listed and f"{listed[0].upper()}{listed[1:]}.")


def A(theta: Array, p: Array, t: float) -> Array:
    """Return θ after a drift, dθ = p dt, for a time t."""
    return theta + t * p


def B(p: Array, G: Array, t: float) -> Array:
    """Return p after a kick, dp = G dt, for a time t."""
    return p + t * G


def _drift(moment: Moment) -> None:
    """Drift: move the parameters with their momenta."""
    moment.theta = A(moment.theta, moment.unit * moment.p, moment.t)


def _kick(moment: Moment) -> None:
    """Kick: change the momenta by the force, the negative gradient."""
    moment.p = B(moment.p, moment.force / moment.unit, moment.t)


def _kick_columns(values: Values) -> Columns:
    """Return the columns of operation B: the factors on G and on θ (the prior)."""
    return [values.t, values.t * values.prior]


DRIFT = Letter(_drift, ((operations.A, lambda values: [values.t]),), moves=True, formula="θ += t p")
KICK = Letter(_kick, ((operations.B, _kick_columns),), kicks=True, formula="p += t G")


def temper(
    rung: Ints, U: Array, side: Array, chance: Array, ladder: Array, weights: Array
) -> tuple[Ints, Array]:
    """Make one move of simulated tempering in each chain.

    A neighbouring rung τ' is proposed, the lower one if side < 1/2, and accepted if `chance` is below
    exp(-(1/τ' - 1/τ) U + w' - w). A proposal beyond the ladder is rejected.

    Parameters
    ----------
    rung : array of int, (chains,)
        The current rung of each chain.
    U : array, (chains,)
        Full-data loss plus the Gaussian prior.
    side, chance : array, (chains,)
        Uniform numbers in (0, 1).
    ladder, weights : array, (rungs,)
        Temperature τ and weight w of each rung.

    Returns
    -------
    rung : array of int, (chains,)
        The new rung of each chain.
    factor : array, (chains,)
        The factor √(τ'/τ) on the momenta of each chain.
    """
    proposed = rung + np.where(side < 0.5, -1, 1)
    proposed = np.where((proposed >= 0) & (proposed < len(ladder)), proposed, rung)
    exponent = -(1 / ladder[proposed] - 1 / ladder[rung]) * U + weights[proposed] - weights[rung]
    moved = np.where(np.log(chance) < exponent, proposed, rung)
    return moved, np.sqrt(ladder[moved] / ladder[rung])
