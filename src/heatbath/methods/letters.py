"""Letters: the exactly solvable pieces of the dynamics, from which words are put together.

A `Letter` says what it does to (θ, p, ξ): by its map in NumPy, `act`, which is the definition, and apart from
it by its lowering, the operations of the compiled kernel that carry it out. A and B, which most methods have,
stand here; the others stand with their methods.

In the maps θ, p and G are arrays (chains, parameters), G is the negative gradient of the loss, R are standard
normal numbers, t is the time for which a letter acts, and ξ broadcasts against p.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    """A part of the reference while a letter acts on it; `act` replaces what the letter changes.

    `moment["gamma"]` is a coefficient of the part's method during the step that the letter belongs to. Of
    `tau` there is one for each chain, (chains, 1), where it is tempered.
    """

    method: Any
    step: int
    h: float
    t: float
    theta: Array
    p: Array
    second: Array
    xi: Array  # (chains, thermostats)
    G: Array
    R: Array
    tau: float | Array
    sizes: Ints  # how many parameters each ξ serves
    unit: float | Array = 1.0  # of the momenta, (chains, 1), where the noise of the data is sampled

    def __getitem__(self, name: str) -> float:
        return at(getattr(self.method, name), self.step)

    @property
    def force(self) -> Array:
        """G with the Gaussian prior."""
        return np.asarray(self.G - at(self.method.prior, self.step) * self.unit**2 * self.theta)

    @property
    def friction(self) -> Array:
        """ξ for each parameter."""
        return np.repeat(self.xi, self.sizes, axis=1)

    @property
    def squares(self) -> Array:
        """p·p of the parameters that each ξ serves, (chains, thermostats)."""
        blocks = np.split(self.p, np.cumsum(self.sizes)[:-1], axis=1)
        return np.stack([np.sum(block**2, axis=1) for block in blocks], axis=1)

    @property
    def R_of_friction(self) -> Array:
        """A normal number for each ξ, (chains, thermostats): that of the first parameter it serves."""
        return self.R[:, np.cumsum(self.sizes) - self.sizes]


class Values:
    """The coefficients of a method while a letter acts for a time `t`, for its lowering.

    `values["gamma"]` is a number, or an array over steps. A lowering works on both, and gives the same bits.
    """

    def __init__(self, method: Any, t: Any, of: Callable[[str], Any]) -> None:
        self.method, self.t, self._of = method, t, of

    def __getitem__(self, name: str) -> Any:
        return self._of(name)

    @property
    def prior(self) -> Any:
        """The precision of the Gaussian prior."""
        return self._of("weight_decay") if self.method.has_prior else 0.0

    @property
    def tau(self) -> Any:
        """The temperature, or that of the chain's rung."""
        return operations.TEMPERED if self._tempered else self._of("tau")

    @property
    def root_tau(self) -> Any:
        """Its square root."""
        return operations.TEMPERED if self._tempered else np.sqrt(self._of("tau"))

    @property
    def _tempered(self) -> bool:
        return isinstance(self.method.temperature, SimulatedTempering)


@dataclass(frozen=True)
class Letter:
    """One exactly solvable piece of the dynamics.

    - `act(moment)` is its map: it replaces θ, p, ξ or the second moment of a `Moment`.
    - `lower` are the operations that carry it out, each with a function that makes its columns from `Values`.
    - Whether it `draws` noise (it then has a slot of its own), `reads` p·p, which is where a temperature is
      read, `moves` θ, or `kicks`: needs the gradient at θ as it finds it.
    - `formula` and `text` describe it in the explorer.
    """

    act: Callable[[Moment], None]
    lower: tuple[tuple[int, Callable[[Values], Columns]], ...]
    draws: bool = False
    reads: bool = False
    moves: bool = False
    kicks: bool = False
    formula: str = ""
    text: str = ""

    @property
    def description(self) -> str:
        """Return its text. Without one, list what it does to θ and p."""
        effects = {
            "moves θ": self.moves,
            "needs the gradient": self.kicks,
            "draws noise": self.draws,
            "reads p·p": self.reads,
        }
        listed = ", ".join(effect for effect, applies in effects.items() if applies)
        return self.text or (listed and f"{listed[0].upper()}{listed[1:]}.")


def A(theta: Array, p: Array, t: float) -> Array:
    """Drift: dθ = p dt."""
    return theta + t * p


def B(p: Array, G: Array, t: float) -> Array:
    """Kick: dp = G dt."""
    return p + t * G


def _drift(now: Moment) -> None:
    now.theta = A(now.theta, now.unit * now.p, now.t)


def _kick(now: Moment) -> None:
    now.p = B(now.p, now.force / now.unit, now.t)


DRIFT = Letter(
    _drift,
    ((operations.A, lambda values: [values.t]),),
    moves=True,
    formula="θ += t p",
    text="Drift: the parameters move with their momenta.",
)
KICK = Letter(
    _kick,
    ((operations.B, lambda values: [values.t, values.t * values.prior]),),
    kicks=True,
    formula="p += t G",
    text="Kick: the momenta follow the force, the negative gradient.",
)


def temper(
    rung: Ints, U: Array, side: Array, chance: Array, ladder: Array, weights: Array
) -> tuple[Ints, Array]:
    """A move of simulated tempering: the new rung of each chain, and the factor on its momenta.

    A neighbour is proposed, below where side < 1/2, and accepted with probability
    min(1, exp(-(1/τ' - 1/τ) U + w' - w)); one off the ladder is refused.
    """
    proposed = rung + np.where(side < 0.5, -1, 1)
    proposed = np.where((proposed >= 0) & (proposed < len(ladder)), proposed, rung)
    exponent = -(1 / ladder[proposed] - 1 / ladder[rung]) * U + weights[proposed] - weights[rung]
    moved = np.where(np.log(chance) < exponent, proposed, rung)
    return moved, np.sqrt(ladder[moved] / ladder[rung])
