"""The definition of every method: NumPy, float64, no tricks.

`Reference` puts the maps of `letters` together: words, rotated for a loop that offers one gradient per step
or as they are written, a method for each part, many chains at once. Arrays are (chains, parameters), and G is
the negative gradient of the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath import noise as numbers
from heatbath.checks import choice, whole
from heatbath.letters import A, Array, B, C, D, E, F, O, adam, momentum, sgd, sgld, temper
from heatbath.methods import SGD, SGLD, Adam, AdaptiveLangevin, Frozen, Langevin, Momentum
from heatbath.partition import Layers, Part, Partition
from heatbath.schedules import SimulatedTempering, at
from heatbath.splitting import Rotation, Substep, rotate

Gradient: TypeAlias = Callable[[Array, int], Array]
Observer: TypeAlias = Callable[[Part, Substep, int], None]


@dataclass
class State:
    """Chains between two steps, with all that a run needs to go on exactly as if it had not stopped.

    θ and p are (chains, parameters), ξ of each adaptive part is (chains, thermostats), `rung` is the place of
    each chain on the ladder of simulated tempering. Momentum keeps its velocity in p, and Adam its first
    moment, with the second in `second`.
    """

    theta: Array
    p: Array
    xi: dict[str, Array]
    second: Array
    rung: NDArray[np.intp]
    step: int = 0


@dataclass(frozen=True)
class _Member:
    """A part as it is stepped: where its parameters lie among all, and its rotated word."""

    part: Part
    index: NDArray[np.intp]
    rotation: Rotation

    @property
    def at_kick(self) -> bool:
        return self.rotation.seen == "kick"


class Reference:
    """Chains of (θ, p, ξ), advanced by a partition.

    - `gradient(theta, batch)`: the gradient of the loss at θ (chains, parameters) on mini-batch number
      `batch`. It is called once for each θ: the kick that closes a step and the one that opens the next
      share the call. All gradients of one rotated step use one mini-batch.
    - `start`: θ as an array (chains, parameters), or one chain as a vector; or a `State` to go on from.
    - `layers` as in `Partition.parts`; without it the parameters are a single layer.
    - `rotated`: cut the words for one gradient per step (see `splitting.Rotation`), or run the one word that
      all parts share as it is written, with as many gradients as it needs.
    - `momenta`: at the start, "zero" or "thermal" for N(0, τ).
    - `seed`: of the noise; or `noise(step, slot)`, an array (chains, parameters), in its place. It must give
      the same numbers whenever it is asked for the same step and slot.
    - `loss(theta)`: the full-data loss of each chain, needed for simulated tempering.

    `state` is the state between steps. `temperature` has p·p/N of each Langevin and Adaptive Langevin part,
    as its thermostat last read it: at E, or before O.
    """

    def __init__(
        self,
        gradient: Gradient,
        start: ArrayLike | State,
        partition: Partition,
        layers: Layers | None = None,
        *,
        rotated: bool = True,
        momenta: Literal["zero", "thermal"] = "zero",
        seed: int = 0,
        noise: Callable[[int, int], Array] | None = None,
        loss: Callable[[Array], Array] | None = None,
    ) -> None:
        if axes := partition.axes():
            raise ValueError(f"{', '.join(axes)}: a list is an axis of a sweep, and one value is needed here")
        choice("momenta", momenta, ("zero", "thermal"))
        theta = np.array(start.theta if isinstance(start, State) else start, dtype=np.float64, ndmin=2)
        if theta.ndim != 2:
            raise ValueError(f"theta must be (chains, parameters), got an array of shape {theta.shape}")
        chains, size = theta.shape
        parts = partition.parts({"theta": (size,)} if layers is None else layers)
        if (expected := sum(part.size for part in parts)) != size:
            raise ValueError(f"theta has {size} parameters, and the layers have {expected}")
        self.partition, self.gradient, self.loss = partition, gradient, loss
        self.seed = whole("seed", seed, low=0, high=2**64)
        self.word = () if rotated else _shared_word(parts)
        self.members = [_member(part, rotated) for part in parts]
        self._check_tempering()
        self._noise = lru_cache(maxsize=8)(_checked(noise or self._numbers, theta.shape))
        self._G: Array | None = None
        self.state = deepcopy(start) if isinstance(start, State) else self._start(theta, momenta)
        self.temperature = {
            m.part.name: np.full(chains, np.nan)
            for m in self.members
            if isinstance(m.part.method, (Langevin, AdaptiveLangevin))
        }

    def advance(self, steps: int, observe: Observer | None = None) -> None:
        """Make steps; `observe(part, substep, step)` is called before each letter, on the state it finds."""
        for _ in range(whole("steps", steps, low=0)):
            if self.word:
                self._written_step(observe)
            else:
                self._rotated_step(observe)
            self.state.step += 1

    def _rotated_step(self, observe: Observer | None) -> None:
        """Close the step that is under way and open the next, both with the gradient at the θ now seen."""
        n = self.state.step
        if n == 0:
            for m in self.members:
                if m.at_kick:
                    self._do(m, m.rotation.opening, 0, observe)
        self._G = self._negative_gradient(batch=n)
        for m in self.members:
            under_way = n if m.at_kick else n - 1
            if under_way >= 0:
                self._do(m, m.rotation.closing, under_way, observe)
        self._temper(n + any(m.at_kick for m in self._tempered()))
        for m in self.members:
            self._do(m, m.rotation.opening, n + m.at_kick, observe)

    def _written_step(self, observe: Observer | None) -> None:
        """The word from its first letter to its last, all parts together."""
        n = self.state.step
        self._temper(n)
        last_drift = max(s.place for s in self.word if s.letter == "A")
        for substep in self.word:
            if substep.letter == "B" and self._G is None:
                # a kick after the last drift shares gradient and mini-batch with the step that follows
                self._G = self._negative_gradient(batch=n + (substep.place > last_drift))
            for m in self.members:
                if not isinstance(m.part.method, Frozen):
                    self._do(m, (substep,), n, observe)
            if substep.letter == "A":
                self._G = None

    def _do(self, m: _Member, substeps: tuple[Substep, ...], n: int, observe: Observer | None = None) -> None:
        """Some letters of step n of a part's word, with that step's stepsize, coefficients and noise."""
        for substep in substeps:
            if substep.letter in "EO":
                self.temperature[m.part.name] = np.mean(self.state.p[:, m.index] ** 2, axis=1)
            if observe:
                observe(m.part, substep, n)
            self._act(m, substep, n)

    def _act(self, m: _Member, substep: Substep, n: int) -> None:
        method, i, name, state = m.part.method, m.index, m.part.name, self.state
        h = at(self.partition.h, n)
        t = float(substep.fraction) * h
        theta, p = state.theta[:, i], state.p[:, i]
        R = self._noise(n, substep.slot)[:, i] if substep.slot is not None else np.empty(0)

        match substep.letter, method:
            case "A", _:
                state.theta[:, i] = A(theta, p, t)
            case "B", _:
                state.p[:, i] = B(p, self._force(m, n), t)
            case "O", Langevin():
                state.p[:, i] = O(p, R, t, at(method.gamma, n), self._tau(method, n))
            case "C", AdaptiveLangevin():
                state.p[:, i] = C(p, t, self._friction(m, method, n))
            case "D", AdaptiveLangevin():
                state.p[:, i] = D(p, R, t, at(method.sigma, n))
            case "E", AdaptiveLangevin():
                N = np.array(m.part.thermostats)
                blocks = np.split(p, np.cumsum(N)[:-1], axis=1)
                kinetic = np.stack([np.sum(block**2, axis=1) for block in blocks], axis=1)
                weight = 1 / N if method.kinetic == "mean" else 1
                target = N * self._tau(method, n)
                state.xi[name] = E(
                    state.xi[name], weight * kinetic, weight * target, t, at(method.epsilon, n)
                )
            case "F", AdaptiveLangevin():
                state.p[:, i] = F(p, R, t, self._friction(m, method, n), at(method.sigma, n))
            case _, SGD():
                state.theta[:, i] = sgd(theta, self._force(m, n), h)
            case _, SGLD():
                state.theta[:, i] = sgld(theta, self._force(m, n), R, h, at(method.sigma, n))
            case _, Momentum():
                mu = at(method.mu, n)
                state.theta[:, i], state.p[:, i] = momentum(theta, p, self._force(m, n), h, mu, method.kind)
            case _, Adam():
                assert self._G is not None
                prior = h * at(method.weight_decay, n) * theta  # outside the moments
                beta1, beta2, eps = at(method.beta1, n), at(method.beta2, n), at(method.eps, n)
                state.theta[:, i], state.p[:, i], state.second[:, i] = adam(
                    theta - prior, p, state.second[:, i], self._G[:, i], n + 1, h, beta1, beta2, eps
                )

    def _negative_gradient(self, batch: int) -> Array:
        theta = self.state.theta
        gradient = np.asarray(self.gradient(theta.copy(), batch), dtype=np.float64)
        if gradient.shape != theta.shape:
            raise ValueError(
                f"gradient(theta, batch) must have theta's shape {theta.shape}, got {gradient.shape}"
            )
        return -gradient

    def _force(self, m: _Member, n: int) -> Array:
        """G of a part, its prior included."""
        assert self._G is not None
        assert not isinstance(m.part.method, Frozen)
        return np.asarray(
            self._G[:, m.index] - at(m.part.method.weight_decay, n) * self.state.theta[:, m.index]
        )

    def _tau(self, method: Langevin | AdaptiveLangevin, n: int) -> float | Array:
        """The temperature of a method at step n: a number, or one for each chain, (chains, 1)."""
        if isinstance(method.tau, SimulatedTempering):
            return np.array(method.tau.ladder)[self.state.rung][:, None]
        return at(method.tau, n)

    def _friction(self, m: _Member, method: AdaptiveLangevin, n: int) -> Array:
        """ξ for each parameter of a part, in the SDE's form times ε."""
        xi = np.repeat(self.state.xi[m.part.name], m.part.thermostats, axis=1)
        return at(method.epsilon, n) * xi if method.friction == "sde" else xi

    def _temper(self, n: int) -> None:
        """Propose a move on the ladder before step n."""
        tempering = self.partition.tempering
        if tempering is None or n == 0 or n % tempering.every:
            return
        chains = np.arange(len(self.state.theta))
        side, chance = numbers.uniforms(self.seed, numbers.TEMPERING, 0, chains, n, 0, 2).T
        ladder, weights = np.array(tempering.ladder), np.array(tempering.weights)
        self.state.rung, factor = temper(self.state.rung, self._potential(n), side, chance, ladder, weights)
        for m in self._tempered():
            self.state.p[:, m.index] *= factor[:, None]

    def _potential(self, n: int) -> Array:
        """The loss with the priors: what the force is the negative gradient of."""
        assert self.loss is not None
        theta = self.state.theta
        potential = np.array(self.loss(theta.copy()), dtype=np.float64)
        if potential.shape != (len(theta),):
            raise ValueError(
                f"loss(theta) must be one number for each of {len(theta)} chains, got {potential.shape}"
            )
        for m in self.members:
            if not isinstance(m.part.method, Frozen):
                decay = at(m.part.method.weight_decay, n)
                potential += decay / 2 * np.sum(theta[:, m.index] ** 2, axis=1)
        return potential

    def _tempered(self) -> list[_Member]:
        return [
            m for m in self.members if isinstance(getattr(m.part.method, "tau", None), SimulatedTempering)
        ]

    def _check_tempering(self) -> None:
        tempered = self._tempered()
        if tempered and self.loss is None:
            raise ValueError("simulated tempering needs loss=, the full-data loss of each chain")
        if len({m.at_kick for m in tempered}) > 1:
            raise ValueError(
                "simulated tempering moves between two steps of the word, so all tempered words must be seen "
                f"at the kick or none; got {', '.join(getattr(m.part.method, 'word', '') for m in tempered)}"
            )

    def _numbers(self, n: int, slot: int) -> Array:
        chains, size = self.state.theta.shape
        return numbers.normals(self.seed, numbers.NOISE, slot, np.arange(chains), n, 0, size)

    def _start(self, theta: Array, momenta: str) -> State:
        chains, size = theta.shape
        xi = {
            m.part.name: np.full((chains, len(m.part.thermostats)), at(m.part.method.xi, 0))
            for m in self.members
            if isinstance(m.part.method, AdaptiveLangevin)
        }
        p, second, rung = np.zeros_like(theta), np.zeros_like(theta), np.zeros(chains, dtype=np.intp)
        self.state = State(theta, p, xi, second, rung)
        if momenta == "thermal":
            z = numbers.normals(self.seed, numbers.START, 1, np.arange(chains), 0, 0, size)
            for m in self.members:
                if isinstance(m.part.method, (Langevin, AdaptiveLangevin)):
                    p[:, m.index] = np.sqrt(self._tau(m.part.method, 0)) * z[:, m.index]
        return self.state


def _checked(noise: Callable[[int, int], Array], shape: tuple[int, ...]) -> Callable[[int, int], Array]:
    def checked(step: int, slot: int) -> Array:
        drawn = np.asarray(noise(step, slot), dtype=np.float64)
        if drawn.shape != shape:
            raise ValueError(f"noise(step, slot) must have theta's shape {shape}, got {drawn.shape}")
        return drawn

    return checked


def _member(part: Part, rotated: bool) -> _Member:
    method = part.method
    index = np.concatenate([np.arange(span.start, span.stop) for span in part.tensors])
    if isinstance(method, (Langevin, AdaptiveLangevin)) and rotated:
        rotation = rotate(method.substeps)
    elif isinstance(method, Frozen) or not rotated:
        rotation = Rotation((), (), "end")
    else:  # a baseline is a step in one piece
        whole_step = Substep(
            type(method).__name__, Fraction(1), place=0, slot=0 if isinstance(method, SGLD) else None
        )
        rotation = Rotation((), (whole_step,), "end")
    return _Member(part, index, rotation)


def _shared_word(parts: tuple[Part, ...]) -> tuple[Substep, ...]:
    """The word of all parts that move, to be run as it is written."""
    moving = [part.method for part in parts if not isinstance(part.method, Frozen)]
    words = {getattr(method, "word", type(method).__name__): method for method in moving}
    if len(words) != 1 or not isinstance(method := moving[0], (Langevin, AdaptiveLangevin)):
        raise ValueError(
            f"rotated=False runs the one word that all parts share as it is written; got {', '.join(words)}"
        )
    return method.substeps
