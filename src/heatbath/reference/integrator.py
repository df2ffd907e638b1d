"""The definition of every method: NumPy, float64, no tricks.

`Reference` puts the maps of `letters` together: words, rotated for a loop that offers one gradient per step
or as they are written, a method for each part, many chains at once. Arrays are (chains, parameters), and G is
the negative gradient of the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import choice, whole
from heatbath.methods import Method
from heatbath.methods.letters import Array, Moment, temper
from heatbath.methods.partition import Layers, Part, Partition
from heatbath.methods.posterior import Settled
from heatbath.methods.schedules import at
from heatbath.methods.splitting import Rotation, Substep, rotate
from heatbath.reference import random as numbers

Gradient: TypeAlias = Callable[..., Array]
Observer: TypeAlias = Callable[[Part, Substep, int], None]


@dataclass
class State:
    """Chains between two steps, with all that a run needs to go on exactly as if it had not stopped.

    θ and p are (chains, parameters), ξ of each adaptive part is (chains, thermostats), `rung` is the place of
    each chain on the ladder of simulated tempering. Momentum keeps its velocity in p, and Adam its first
    moment, with the second in `second`. `noise` are the variances of the targets, (chains, targets).
    """

    theta: Array
    p: Array
    xi: dict[str, Array]
    second: Array
    rung: NDArray[np.intp]
    step: int = 0
    noise: Array = field(default_factory=lambda: np.empty((0, 0)))


@dataclass(frozen=True)
class _Member:
    """A part as it is stepped: where its parameters lie among all, those of each ξ, and its rotated word."""

    part: Part
    index: slice | NDArray[np.intp]
    sizes: NDArray[np.intp]
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
    - `settled`: what a posterior has set (`likelihood.settle`), in place of the partition's own values. In a
      regression `gradient` then has a third argument, the shares of the targets in the loss, (chains,
      targets), and where their variances are drawn `squares(theta)` is needed, the sum of the squared
      residuals of each target over all data, (chains, targets), by their weights over the mean weight. Where
      the noise has Student's law, the variances s² are a fourth argument, (chains, targets), and `squares`
      are those of every single example, (chains, examples, targets), without weights; chain c has the set of
      data c % sets.

    `state` is the state between steps. `temperature` has p·p/N of each part with a letter that reads it, as
    it was last read: at E, or before O.
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
        settled: Settled | None = None,
        squares: Callable[[Array], Array] | None = None,
    ) -> None:
        if axes := partition.axes():
            raise ValueError(f"{', '.join(axes)}: a list is an axis of a sweep, and one value is needed here")
        if partition.finds_stepsize:
            raise ValueError("h='auto' is found by train: say a stepsize here, such as h=0.1")
        choice("momenta", momenta, ("zero", "thermal"))
        theta = np.array(start.theta if isinstance(start, State) else start, dtype=np.float64, ndmin=2)
        if theta.ndim != 2:
            raise ValueError(f"theta must be (chains, parameters), got an array of shape {theta.shape}")
        chains, size = theta.shape
        if settled is None:
            if partition.posterior is not None:
                raise ValueError("a partition with a posterior needs settled=, see likelihood.settle")
            settled = Settled(partition.parts({"theta": (size,)} if layers is None else layers), None, None)
        if settled.draws is not None and squares is None:
            raise ValueError("variances that are drawn need squares=, the squared residuals of each target")
        parts, self.draws, self.squares = settled.parts, settled.draws, squares
        self.degrees = settled.degrees
        if (expected := sum(part.size for part in parts)) != size:
            raise ValueError(f"theta has {size} parameters, and the layers have {expected}")
        self.partition, self.gradient, self.loss = partition, gradient, loss
        self.seed = whole("seed", seed, low=0, high=2**64)
        self.word = () if rotated else _shared_word(parts)
        self.members = [_member(part, rotated) for part in parts]
        self._check_tempering()
        self._noise = lru_cache(maxsize=8)(_checked(noise or self._numbers, theta.shape))
        self._G: Array | None = None
        self._batch = 0
        self.state = deepcopy(start) if isinstance(start, State) else self._start(theta, momenta)
        if not isinstance(start, State):
            variances = settled.for_chains(chains)
            self.state.noise = np.empty((chains, 0)) if variances is None else variances
        if settled.draws is not None and not self.state.noise.size:
            raise ValueError("variances that are drawn need a state with noise, (chains, targets)")
        self.temperature = {
            m.part.name: np.full(chains, np.nan)
            for m in self.members
            if any(substep.kind.reads for substep in m.part.method.substeps)
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
        self._draw(n)
        for m in self.members:
            self._do(m, m.rotation.opening, n + m.at_kick, observe)

    def _written_step(self, observe: Observer | None) -> None:
        """The word from its first letter to its last, all parts together."""
        n = self.state.step
        self._temper(n)
        self._draw(n)
        last_drift = max(s.place for s in self.word if s.kind.moves)
        for substep in self.word:
            if substep.kind.kicks and self._G is None:
                # a kick after the last drift shares gradient and mini-batch with the step that follows
                self._G = self._negative_gradient(batch=n + (substep.place > last_drift))
            for m in self.members:
                if m.part.method.moves:
                    self._do(m, (m.part.method.substeps[substep.place],), n, observe)
            if substep.kind.moves:
                self._G = None

    def _do(self, m: _Member, substeps: tuple[Substep, ...], n: int, observe: Observer | None = None) -> None:
        """Some letters of step n of a part's word, with that step's stepsize, coefficients and noise."""
        for substep in substeps:
            if substep.kind.reads:
                self.temperature[m.part.name] = np.mean(self.state.p[:, m.index] ** 2, axis=1)
            if observe:
                observe(m.part, substep, n)
            self._act(m, substep, n)

    def _act(self, m: _Member, substep: Substep, n: int) -> None:
        """One letter, by its own map."""
        method, i, name, state = m.part.method, m.index, m.part.name, self.state
        h = at(self.partition.h, n)
        none = np.empty(0)
        now = Moment(
            method=method,
            step=n,
            h=h,
            t=float(substep.fraction) * h,
            theta=state.theta[:, i],
            p=state.p[:, i],
            second=state.second[:, i],
            xi=state.xi.get(name, none),
            G=self._G[:, i] if self._G is not None and substep.kind.kicks else none,
            R=self._noise(n, substep.slot)[:, i] if substep.slot is not None else none,
            tau=self._tau(method, n),
            sizes=m.sizes,
            unit=np.sqrt(self._mean_noise()) if self.draws is not None else 1.0,
        )
        substep.kind.act(now)
        state.theta[:, i], state.p[:, i], state.second[:, i] = now.theta, now.p, now.second
        if name in state.xi:
            state.xi[name] = now.xi

    def _negative_gradient(self, batch: int) -> Array:
        theta, noise = self.state.theta, self.state.noise
        self._batch = batch
        shares = (self._mean_noise() / noise,) if noise.size else ()
        if self.degrees < np.inf:
            shares = (*shares, noise.copy())
        gradient = np.asarray(self.gradient(theta.copy(), batch, *shares), dtype=np.float64)
        if gradient.shape != theta.shape:
            raise ValueError(
                f"gradient(theta, batch) must have theta's shape {theta.shape}, got {gradient.shape}"
            )
        return -gradient

    def _mean_noise(self) -> Array:
        """The geometric mean of the variances of the targets, (chains, 1)."""
        return np.asarray(np.exp(np.log(self.state.noise).mean(axis=1, keepdims=True)))

    def _draw(self, n: int) -> None:
        """Draw the variances before step n, from their law at θ."""
        draws = self.draws
        if draws is None or self.squares is None or n == 0 or n % draws.every:
            return
        chains, squares = np.arange(len(self.state.theta)), self.squares(self.state.theta.copy())
        if self.degrees < np.inf:
            squares = self._in_tails(squares, draws.tails, n)
        for k, scale in enumerate(draws.scale):
            drawn = numbers.gammas(draws.shape, self.seed, numbers.VARIANCE, 2 * k, chains, n)
            self.state.noise[:, k] = (scale + draws.factor * squares[:, k]) / drawn
        changed = len(draws.scale) > 1 or self.degrees < np.inf  # the targets have other shares in the loss
        if changed and self._G is not None:
            self._G = self._negative_gradient(self._batch)

    def _in_tails(self, squares: Array, tails: Array, n: int) -> Array:
        """The sums Σλr²/ν over the examples of each target, with a λ drawn for each (`likelihood`)."""
        chains, count, targets = squares.shape
        shapes = tails[np.arange(chains) % len(tails)]
        sums = np.empty((chains, targets))
        for k in range(targets):
            address = self.seed, numbers.TAIL, numbers.SLOTS * k, np.arange(chains), n
            drawn = numbers.example_gammas(shapes, *address, count)
            r2 = squares[:, :, k]
            sums[:, k] = np.sum(drawn * r2 / (self.degrees + r2 / self.state.noise[:, k, None]), axis=1)
        return sums

    def _tau(self, method: Method, n: int) -> float | Array:
        """The temperature of a method at step n: a number, or one for each chain, (chains, 1)."""
        if method.tempering:
            return np.array(method.tempering.ladder)[self.state.rung][:, None]
        return at(method.temperature, n) if method.temperature is not None else np.nan

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
            decay = at(m.part.method.prior, n)
            potential += decay / 2 * np.sum(theta[:, m.index] ** 2, axis=1)
        return potential

    def _tempered(self) -> list[_Member]:
        return [m for m in self.members if m.part.method.tempering]

    def _check_tempering(self) -> None:
        tempered = self._tempered()
        if tempered and self.loss is None:
            raise ValueError("simulated tempering needs loss=, the full-data loss of each chain")
        if len({m.at_kick for m in tempered}) > 1:
            raise ValueError(
                "simulated tempering moves between two steps of the word, so all tempered words must be seen "
                f"at the kick or none; got {', '.join(m.part.method.spelling for m in tempered)}"
            )

    def _numbers(self, n: int, slot: int) -> Array:
        chains, size = self.state.theta.shape
        return numbers.normals(self.seed, numbers.NOISE, slot, np.arange(chains), n, 0, size)

    def _start(self, theta: Array, momenta: str) -> State:
        chains, size = theta.shape
        xi = {
            m.part.name: np.full((chains, len(m.part.thermostats)), at(m.part.method.start_of_friction, 0))
            for m in self.members
            if m.part.thermostats
        }
        p, second, rung = np.zeros_like(theta), np.zeros_like(theta), np.zeros(chains, dtype=np.intp)
        self.state = State(theta, p, xi, second, rung)
        if momenta == "thermal":
            z = numbers.normals(self.seed, numbers.START, 1, np.arange(chains), 0, 0, size)
            for m in self.members:
                if m.part.method.temperature is not None:
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
    index = np.concatenate([np.arange(span.start, span.stop) for span in part.tensors])
    together = np.array_equal(index, np.arange(index[0], index[0] + len(index)))
    where = slice(int(index[0]), int(index[-1]) + 1) if together else index  # a slice is quicker
    sizes = np.array(part.thermostats, dtype=np.intp)
    return _Member(part, where, sizes, rotate(part.method.substeps) if rotated else Rotation((), (), "end"))


def _shared_word(parts: tuple[Part, ...]) -> tuple[Substep, ...]:
    """The word of all parts that move, to be run as it is written."""
    methods = {part.method.spelling: part.method for part in parts if part.method.moves}
    if len(methods) != 1:
        raise ValueError(
            f"rotated=False runs the one word that all parts share as it is written; got {', '.join(methods)}"
        )
    return next(iter(methods.values())).substeps
