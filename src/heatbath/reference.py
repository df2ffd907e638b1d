"""The definition of every method: NumPy, float64, no tricks.

`Reference` puts the maps of `letters` together: words, rotated for a loop that offers one gradient per step
or as they are written, a method for each part, many chains at once. Arrays are (chains, parameters), and G is
the negative gradient of the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath import noise as numbers
from heatbath.checks import choice, whole
from heatbath.letters import A, Array, B, C, D, E, F, O, adam, momentum, sgd, sgld
from heatbath.methods import SGD, SGLD, Adam, AdaptiveLangevin, Frozen, Langevin, Momentum
from heatbath.partition import Layers, Part, Partition
from heatbath.schedules import SimulatedTempering, at
from heatbath.splitting import Rotation, Substep, parse, rotate

Gradient: TypeAlias = Callable[[Array, int], Array]
Observer: TypeAlias = Callable[[Part, Substep, int], None]


@dataclass(frozen=True)
class _Member:
    """A part as it is stepped: where its parameters lie, how many each ξ serves, and its rotated word."""

    part: Part
    index: NDArray[np.intp]
    served: tuple[int, ...]
    rotation: Rotation


class Reference:
    """Chains of (θ, p, ξ), advanced by a partition.

    - `gradient(theta, batch)`: the gradient of the loss at θ (chains, parameters) on mini-batch number
      `batch`. It is called once for each θ: the kick that closes a step and the one that opens the next
      share the call. All gradients of one rotated step use one mini-batch.
    - `theta`: the start, (chains, parameters), or one chain as a vector. `layers` as in `Partition.parts`;
      without it the parameters are a single layer.
    - `rotated`: cut the words for one gradient per step (see `splitting.Rotation`), or run the one word that
      all parts share as it is written, with as many gradients as it needs.
    - `momenta`: "zero", "thermal" for N(0, τ), or an array.
    - `seed`: of the noise; or `noise(step, slot)`, an array (chains, parameters), in its place.
    - `loss(theta)`: the full-data loss of each chain, needed for simulated tempering.
    - `step`: how many steps were made before, to start in the middle of a run. At 0, the opening of a word
      that is seen at the kick is done here, before any observer.

    `theta`, `p` and `xi` (a dict: part to (chains, thermostats)) are the state between steps. For Momentum p
    is its velocity, for Adam the first moment.
    """

    def __init__(
        self,
        gradient: Gradient,
        theta: ArrayLike,
        partition: Partition,
        layers: Layers | None = None,
        *,
        rotated: bool = True,
        momenta: Literal["zero", "thermal"] | ArrayLike = "zero",
        seed: int = 0,
        noise: Callable[[int, int], Array] | None = None,
        loss: Callable[[Array], Array] | None = None,
        step: int = 0,
    ) -> None:
        if axes := partition.axes():
            raise ValueError(f"{', '.join(axes)}: a list is an axis of a sweep, and one value is needed here")
        self.theta: Array = np.array(theta, dtype=np.float64, ndmin=2)
        chains, size = self.theta.shape
        parts = partition.parts({"theta": (size,)} if layers is None else layers)
        if (expected := sum(part.size for part in parts)) != size:
            raise ValueError(f"theta has {size} parameters, and the layers have {expected}")
        self.partition, self.gradient, self.loss = partition, gradient, loss
        self.noise = noise or (
            lambda n, slot: numbers.normals(seed, numbers.NOISE, slot, np.arange(chains), n, 0, size)
        )
        self.seed = seed
        self.step = whole("step", step, low=0)
        self.word = () if rotated else _shared_word(parts)
        self.members = [_member(part, rotated) for part in parts]
        self.xi = {
            m.part.name: np.full((chains, len(m.served)), at(m.part.method.xi, 0))
            for m in self.members
            if isinstance(m.part.method, AdaptiveLangevin)
        }
        self.second = np.zeros_like(self.theta)  # Adam's second moment
        self.rung = np.zeros(chains, dtype=np.intp)
        self.tempering = self._find_tempering()
        self.p: Array = self._initial_momenta(momenta)
        self._G: Array | None = None
        if self.step == 0:
            for m in self._seen_at_kick():
                self._do(m, m.rotation.opening, 0)

    def advance(self, steps: int, observe: Observer | None = None) -> None:
        """Make steps; `observe(part, substep, step)` is called before each letter, on the state it finds."""
        for _ in range(whole("steps", steps, low=0)):
            if self.word:
                self._written_step(observe)
            else:
                self._rotated_step(observe)
            self.step += 1

    def kinetic_temperature(self, name: str) -> Array:
        """p·p/N of a part in each chain, in the state as it is now."""
        (member,) = (m for m in self.members if m.part.name == name)
        return np.asarray(np.mean(self.p[:, member.index] ** 2, axis=1))

    def _rotated_step(self, observe: Observer | None) -> None:
        """Close the step that is under way and open the next, both with the gradient at the θ now seen."""
        n = self.step
        self._G = self._negative_gradient(batch=n)
        at_kick = self._seen_at_kick()
        for m in self.members:
            under_way = n if m in at_kick else n - 1
            if under_way >= 0:
                self._do(m, m.rotation.closing, under_way, observe)
        self._temper(n + 1 if at_kick else n)
        for m in self.members:
            self._do(m, m.rotation.opening, n + 1 if m in at_kick else n, observe)

    def _written_step(self, observe: Observer | None) -> None:
        """The word from its first letter to its last, all parts together."""
        n = self.step
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
            if observe:
                observe(m.part, substep, n)
            self._act(m, substep, n)

    def _act(self, m: _Member, substep: Substep, n: int) -> None:
        method, i, name = m.part.method, m.index, m.part.name
        h = at(self.partition.h, n)
        t = float(substep.fraction) * h
        theta, p = self.theta[:, i], self.p[:, i]
        R = self.noise(n, substep.slot)[:, i] if substep.slot is not None else np.empty(0)

        match substep.letter, method:
            case "A", _:
                self.theta[:, i] = A(theta, p, t)
            case "B", _:
                self.p[:, i] = B(p, self._force(m, n), t)
            case "O", Langevin():
                self.p[:, i] = O(p, R, t, at(method.gamma, n), self._tau(method, n))
            case "C", AdaptiveLangevin():
                self.p[:, i] = C(p, t, self._friction(m, method, n))
            case "D", AdaptiveLangevin():
                self.p[:, i] = D(p, R, t, at(method.sigma, n))
            case "E", AdaptiveLangevin():
                N = np.array(m.served)
                blocks = np.split(p, np.cumsum(N)[:-1], axis=1)
                kinetic = np.stack([np.sum(block**2, axis=1) for block in blocks], axis=1)
                weight = 1 / N if method.kinetic == "mean" else 1
                target = N * self._tau(method, n)
                self.xi[name] = E(self.xi[name], weight * kinetic, weight * target, t, at(method.epsilon, n))
            case "F", AdaptiveLangevin():
                self.p[:, i] = F(p, R, t, self._friction(m, method, n), at(method.sigma, n))
            case _, SGD():
                self.theta[:, i] = sgd(theta, self._force(m, n), h)
            case _, SGLD():
                self.theta[:, i] = sgld(theta, self._force(m, n), R, h, at(method.sigma, n))
            case _, Momentum():
                self.theta[:, i], self.p[:, i] = momentum(
                    theta, p, self._force(m, n), h, at(method.mu, n), method.kind
                )
            case _, Adam():
                assert self._G is not None
                prior = h * at(method.weight_decay, n) * theta  # outside the moments
                beta1, beta2, eps = at(method.beta1, n), at(method.beta2, n), at(method.eps, n)
                self.theta[:, i], self.p[:, i], self.second[:, i] = adam(
                    theta - prior, p, self.second[:, i], self._G[:, i], n + 1, h, beta1, beta2, eps
                )

    def _negative_gradient(self, batch: int) -> Array:
        gradient = np.asarray(self.gradient(self.theta.copy(), batch), dtype=np.float64)
        if gradient.shape != self.theta.shape:
            raise ValueError(
                f"gradient(theta, batch) must have theta's shape {self.theta.shape}, got {gradient.shape}"
            )
        return -gradient

    def _force(self, m: _Member, n: int) -> Array:
        """G of a part, its prior included."""
        assert self._G is not None
        assert not isinstance(m.part.method, Frozen)
        force: Array = self._G[:, m.index] - at(m.part.method.weight_decay, n) * self.theta[:, m.index]
        return force

    def _tau(self, method: Langevin | AdaptiveLangevin, n: int) -> float | Array:
        """The temperature of a method at step n: a number, or one for each chain, (chains, 1)."""
        if isinstance(method.tau, SimulatedTempering):
            return np.array(method.tau.ladder)[self.rung][:, None]
        return at(method.tau, n)

    def _friction(self, m: _Member, method: AdaptiveLangevin, n: int) -> Array:
        """ξ for each parameter of a part, in the SDE's form times ε."""
        xi = np.repeat(self.xi[m.part.name], m.served, axis=1)
        return at(method.epsilon, n) * xi if method.friction == "sde" else xi

    def _temper(self, n: int) -> None:
        """Propose a move on the ladder before step n."""
        if self.tempering is None or n == 0 or n % self.tempering.every:
            return
        assert self.loss is not None
        ladder, weights = np.array(self.tempering.ladder), np.array(self.tempering.weights)
        chains = np.arange(len(self.theta))
        side, chance = numbers.uniforms(self.seed, numbers.TEMPERING, 0, chains, n, 0, 2).T
        proposed = self.rung + np.where(side < 0.5, -1, 1)
        possible = (proposed >= 0) & (proposed < len(ladder))
        proposed = np.where(possible, proposed, self.rung)
        ratio = ladder[proposed] / ladder[self.rung]
        gain = -(1 / ladder[proposed] - 1 / ladder[self.rung]) * self._potential(n)
        accepted = np.log(chance) < gain + weights[proposed] - weights[self.rung]
        for m in self.members:
            if getattr(m.part.method, "tau", None) == self.tempering:
                self.p[:, m.index] *= np.sqrt(np.where(accepted, ratio, 1.0))[:, None]
        self.rung = np.where(accepted, proposed, self.rung)

    def _potential(self, n: int) -> Array:
        """The loss with the priors: what the force is the negative gradient of."""
        assert self.loss is not None
        potential = np.array(self.loss(self.theta.copy()), dtype=np.float64)
        for m in self.members:
            if not isinstance(m.part.method, Frozen):
                decay = at(m.part.method.weight_decay, n)
                potential += decay / 2 * np.sum(self.theta[:, m.index] ** 2, axis=1)
        return potential

    def _seen_at_kick(self) -> list[_Member]:
        return [m for m in self.members if m.rotation.seen == "kick"]

    def _find_tempering(self) -> SimulatedTempering | None:
        taus = [getattr(m.part.method, "tau", None) for m in self.members]
        tempering = next((tau for tau in taus if isinstance(tau, SimulatedTempering)), None)
        if tempering and self.loss is None:
            raise ValueError("simulated tempering needs loss=, the full-data loss of each chain")
        if tempering and len({m.rotation.seen for m in self.members}) > 1:
            raise ValueError(
                "simulated tempering moves between two steps of the word, so all words must be seen at the "
                f"kick or none; got {', '.join(getattr(m.part.method, 'word', '-') for m in self.members)}"
            )
        return tempering

    def _initial_momenta(self, momenta: Literal["zero", "thermal"] | ArrayLike) -> Array:
        if not isinstance(momenta, str):
            return np.array(np.broadcast_to(np.asarray(momenta, dtype=np.float64), self.theta.shape))
        choice("momenta", momenta, ("zero", "thermal"))
        p = np.zeros_like(self.theta)
        if momenta == "thermal":
            chains, size = p.shape
            z = numbers.normals(self.seed, numbers.START, 1, np.arange(chains), 0, 0, size)
            for m in self.members:
                if isinstance(m.part.method, (Langevin, AdaptiveLangevin)):
                    p[:, m.index] = np.sqrt(self._tau(m.part.method, 0)) * z[:, m.index]
        return p


def _member(part: Part, rotated: bool) -> _Member:
    method = part.method
    index = np.concatenate([np.arange(span.start, span.stop) for span in part.tensors])
    by_tensor = isinstance(method, AdaptiveLangevin) and method.thermostat == "tensor"
    served = tuple(map(len, part.tensors)) if by_tensor else (part.size,)
    if isinstance(method, (Langevin, AdaptiveLangevin)) and rotated:
        rotation = rotate(parse(method.word, type(method).__name__))
    elif isinstance(method, Frozen) or not rotated:
        rotation = Rotation((), (), "end")
    else:  # a baseline is a step in one piece
        whole_step = Substep(
            type(method).__name__, Fraction(1), place=0, slot=0 if isinstance(method, SGLD) else None
        )
        rotation = Rotation((), (whole_step,), "end")
    return _Member(part, index, served, rotation)


def _shared_word(parts: tuple[Part, ...]) -> tuple[Substep, ...]:
    """The word of all parts that move, to be run as it is written."""
    moving = [part.method for part in parts if not isinstance(part.method, Frozen)]
    words = {getattr(method, "word", type(method).__name__): method for method in moving}
    if len(words) != 1 or not isinstance(method := moving[0], (Langevin, AdaptiveLangevin)):
        raise ValueError(
            f"rotated=False runs the one word that all parts share as it is written; got {', '.join(words)}"
        )
    return parse(method.word, type(method).__name__)
