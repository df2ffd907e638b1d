"""The definition of every method: NumPy, float64, no tricks.

`Reference` puts the maps of letters together: words, rotated for a loop that offers one gradient per step or
as they are written, a method for each part, many chains at once.

Letters: θ parameters, p momenta, G the negative gradient of the loss, all (chains, parameters); ξ the
friction of a thermostat; τ a temperature; s² the variance of a target's noise; n a step; k a target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
Noise: TypeAlias = Callable[[int, int], Array]


@dataclass
class State:
    """Chains between two steps, with all that a run needs to continue as if it had not stopped.

    Attributes
    ----------
    theta, p : array (chains, parameters)
        Parameters and momenta. Momentum keeps its velocity in p, and Adam its first moment.
    xi : dict of array (chains, thermostats)
        ξ of each adaptive part, by its name.
    second : array (chains, parameters)
        Adam's second moments.
    rung : array (chains)
        Place of each chain on the ladder of simulated tempering.
    step : int
        Number of steps made.
    noise : array (chains, targets)
        Variances of the targets; without columns if there are none.
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
    """A part as it is stepped: where its parameters are, how many each ξ serves, and its rotated word."""

    part: Part
    index: slice | NDArray[np.intp]
    sizes: NDArray[np.intp]
    rotation: Rotation

    @property
    def at_kick(self) -> bool:
        """True if θ is seen at the kick between two steps."""
        return self.rotation.seen == "kick"


class Reference:
    """Chains of (θ, p, ξ), advanced by a partition.

    Parameters
    ----------
    gradient : callable
        gradient(theta, batch) returns the gradient of the loss at θ, (chains, parameters), on mini-batch
        number `batch`. It is called once for each θ: the kick that closes a step and the one that opens the
        next share the call. All gradients of one rotated step use one mini-batch. In a regression with
        `settled` it has a third argument, the weights of the targets in the loss, (chains, targets); with
        Student's law the variances s², (chains, targets), are the fourth.
    start : array or State
        θ as an array (chains, parameters), or one chain as a vector; or a `State` to continue from.
    partition : Partition
        The methods of the parts.
    layers : Layers, optional
        Names and sizes of the layers, as in `Partition.parts`; by default the parameters are a single layer.
    rotated : bool
        Cut the words for one gradient per step (see `splitting.Rotation`). Otherwise the one word that all
        parts share is run as it is written, with as many gradients as it needs.
    momenta : {"zero", "thermal"}
        Momenta at the start: 0, or drawn from N(0, τ).
    seed : int
        The seed of all random numbers.
    noise : callable, optional
        noise(step, slot) returns normal numbers (chains, parameters) in place of the seed's. It must return
        the same numbers whenever it is called with the same step and slot.
    loss : callable, optional
        loss(theta) returns the full-data loss of each chain, which simulated tempering needs.
    settled : Settled, optional
        What a posterior has set (`likelihood.settle`), in place of the partition's own values.
    squares : callable, optional
        squares(theta) returns the sum of squared residuals of each target over all data, (chains, targets),
        weighted by the weights over their mean; needed where variances are drawn. With Student's law it
        returns those of every single example, (chains, examples, targets), without weights; chain c has the
        set of data c % sets.

    Attributes
    ----------
    state : State
        The state between steps.
    temperature : dict of array (chains)
        p·p/N of each part with a letter that reads it, as it was last read: at E, or before O.

    Raises
    ------
    ValueError
        If an argument is missing, has another shape, or asks for something that the reference can't run.

    Examples
    --------
    >>> import numpy as np
    >>> import heatbath as hb
    >>> partition = hb.Partition(hb.Langevin(gamma=1.0, tau=0.1), h=0.1)
    >>> chains = hb.Reference(lambda theta, batch: theta, np.ones((4, 2)), partition)  # a loss of |θ|²/2
    >>> chains.advance(10)
    >>> chains.state.theta.shape
    (4, 2)
    """

    def __init__(  # noqa: PLR0913 # options by keyword
        self,
        gradient: Gradient,
        start: ArrayLike | State,
        partition: Partition,
        layers: Layers | None = None,
        *,
        rotated: bool = True,
        momenta: Literal["zero", "thermal"] = "zero",
        seed: int = 0,
        noise: Noise | None = None,
        loss: Callable[[Array], Array] | None = None,
        settled: Settled | None = None,
        squares: Callable[[Array], Array] | None = None,
    ) -> None:
        """Check the arguments, and set up the chains before their next step."""
        _check_single_run(partition)
        choice("momenta", momenta, ("zero", "thermal"))
        given_theta = start.theta if isinstance(start, State) else start
        theta = _as_chains(given_theta)
        if layers is None:
            layers = {"theta": (theta.shape[1],)}
        if settled is None:
            settled = _settle_without_posterior(partition, layers)
        if settled.draws is not None and squares is None:
            raise ValueError("variances that are drawn need squares=, the squared residuals of each target")
        _check_size(theta, settled.parts)

        self.partition = partition
        self.gradient = gradient
        self.loss = loss
        self.squares = squares
        self.draws = settled.draws
        self.degrees = settled.degrees
        self.seed = whole("seed", seed, low=0, high=2**64)
        self.word = () if rotated else _shared_word(settled.parts)
        self.members = [_member(part, rotated) for part in settled.parts]
        self._check_tempering()
        self._noise = lru_cache(maxsize=8)(_with_shape_check(noise or self._draw_noise, theta.shape))
        self._G: Array | None = None  # at the present θ, or None if θ has moved since
        self._batch = 0  # the mini-batch of _G

        if isinstance(start, State):
            self.state = deepcopy(start)
        else:
            self.state = self._starting_state(theta, momenta, settled)
        if settled.draws is not None and not self.state.noise.size:
            raise ValueError("variances that are drawn need a state with noise, (chains, targets)")
        reading_parts = [part for part in settled.parts if _reads_temperature(part)]
        self.temperature = {part.name: np.full(len(theta), np.nan) for part in reading_parts}

    def advance(self, steps: int, observe: Observer | None = None) -> None:
        """Make some steps of all chains, which changes `state` and `temperature`.

        Parameters
        ----------
        steps : int
            Number of steps.
        observe : callable, optional
            observe(part, substep, step) is called before each letter acts.
        """
        for _ in range(whole("steps", steps, low=0)):
            if self.word:
                self._step_as_written(observe)
            else:
                self._step_rotated(observe)
            self.state.step += 1

    def _step_rotated(self, observe: Observer | None) -> None:
        """Close the step of the word that is under way, and open the next.

        Both use the gradient at the present θ. A word seen at the kick is one opening ahead: its step n is
        opened before rotated step n, and closed in it. A word seen at the end closes its step n - 1.
        """
        n = self.state.step
        ahead = [member for member in self.members if member.at_kick]
        if n == 0:
            for member in ahead:
                self._apply(member, member.rotation.opening, 0, observe)

        self._G = self._negative_gradient(batch=n)
        for member in self.members:
            closing_step = n if member.at_kick else n - 1
            if closing_step >= 0:
                self._apply(member, member.rotation.closing, closing_step, observe)

        is_tempered_ahead = any(member.at_kick for member in self._tempered())
        ladder_step = n + 1 if is_tempered_ahead else n
        self._move_on_ladder(ladder_step)
        self._draw_variances(n)
        for member in self.members:
            opening_step = n + 1 if member.at_kick else n
            self._apply(member, member.rotation.opening, opening_step, observe)

    def _step_as_written(self, observe: Observer | None) -> None:
        """Apply the word from its first letter to its last, each letter to all parts that move.

        A gradient is computed when a kick needs one, and again after each drift.
        """
        n = self.state.step
        self._move_on_ladder(n)
        self._draw_variances(n)

        last_drift = max(substep.position for substep in self.word if substep.kind.moves)
        moving = [member for member in self.members if member.part.method.moves]
        for substep in self.word:
            if substep.kind.kicks and self._G is None:
                # a kick after the last drift shares gradient and mini-batch with the step that follows
                batch = n + 1 if substep.position > last_drift else n
                self._G = self._negative_gradient(batch)
            for member in moving:
                own_substep = member.part.method.substeps[substep.position]
                self._apply(member, [own_substep], n, observe)
            if substep.kind.moves:
                self._G = None

    def _apply(
        self, member: _Member, substeps: Sequence[Substep], n: int, observe: Observer | None = None
    ) -> None:
        """Apply letters of step n of a part's word, with that step's stepsize, coefficients and noise."""
        for substep in substeps:
            if substep.kind.reads:
                p = self.state.p[:, member.index]
                self.temperature[member.part.name] = np.mean(p**2, axis=1)
            if observe:
                observe(member.part, substep, n)
            self._apply_letter(member, substep, n)

    def _apply_letter(self, member: _Member, substep: Substep, n: int) -> None:
        """Change the state of a part by one letter of step n, by the letter's own map.

        Letters that need no gradient or noise get an empty array instead.
        """
        method = member.part.method
        name = member.part.name
        columns = member.index
        state = self.state
        h = at(self.partition.h, n)
        nothing = np.empty(0)
        G = nothing
        if self._G is not None and substep.kind.kicks:
            G = self._G[:, columns]
        R = nothing
        if substep.slot is not None:
            R = self._noise(n, substep.slot)[:, columns]
        unit = np.sqrt(self._mean_variance()) if self.draws is not None else 1.0
        moment = Moment(
            method=method,
            step=n,
            h=h,
            t=float(substep.fraction) * h,
            theta=state.theta[:, columns],
            p=state.p[:, columns],
            second=state.second[:, columns],
            xi=state.xi.get(name, nothing),
            G=G,
            R=R,
            tau=self._tau(method, n),
            sizes=member.sizes,
            unit=unit,
        )
        substep.kind.act(moment)

        state.theta[:, columns] = moment.theta
        state.p[:, columns] = moment.p
        state.second[:, columns] = moment.second
        if name in state.xi:
            state.xi[name] = moment.xi

    def _negative_gradient(self, batch: int) -> Array:
        """Return G, (chains, parameters), at the present θ on a mini-batch.

        The number of the mini-batch is stored for `_draw_variances`.
        """
        theta = self.state.theta
        noise = self.state.noise
        self._batch = batch
        arguments = []
        if noise.size:
            arguments.append(self._mean_variance() / noise)  # the weights of the targets in the loss
        if self.degrees < np.inf:
            arguments.append(noise.copy())
        gradient = np.asarray(self.gradient(theta.copy(), batch, *arguments), dtype=np.float64)
        if gradient.shape != theta.shape:
            raise ValueError(
                f"gradient(theta, batch) must have theta's shape {theta.shape}, got {gradient.shape}"
            )
        return -gradient

    def _mean_variance(self) -> Array:
        """Return the geometric mean of the variances of the targets, (chains, 1)."""
        return np.asarray(np.exp(np.log(self.state.noise).mean(axis=1, keepdims=True)))

    def _draw_variances(self, n: int) -> None:
        """Draw the noise variances of the state before step n, from their law at θ, if they are due.

        For target k this is (scale[k] + factor Σr²)/Gamma(shape), as in `Draws`. G is computed again if the
        new variances change the weights of the targets in the loss.
        """
        draws = self.draws
        if draws is None or self.squares is None or n == 0 or n % draws.every:
            return
        is_student = self.degrees < np.inf
        chains = np.arange(len(self.state.theta))
        squares = self.squares(self.state.theta.copy())
        if is_student:
            squares = self._student_squares(squares, draws.tails, n)
        for k, scale in enumerate(draws.scale):
            gammas = numbers.gammas(draws.shape, self.seed, numbers.VARIANCE, 2 * k, chains, n)
            self.state.noise[:, k] = (scale + draws.factor * squares[:, k]) / gammas

        changes_weights = len(draws.scale) > 1 or is_student
        if changes_weights and self._G is not None:
            self._G = self._negative_gradient(self._batch)

    def _student_squares(self, squares: Array, tails: Array, n: int) -> Array:
        """Return Σ g r²/(ν + r²/s²) over the examples, with a gamma number g drawn for each example.

        Parameters
        ----------
        squares : array (chains, examples, targets)
            The squared residuals r².
        tails : array (sets, examples)
            Shapes of the gamma numbers.
        n : int
            The step.

        Returns
        -------
        array (chains, targets)
        """
        chains, count, targets = squares.shape
        shapes = tails[np.arange(chains) % len(tails)]
        sums = np.empty((chains, targets))
        for k in range(targets):
            address = self.seed, numbers.TAIL, numbers.SLOTS * k, np.arange(chains), n
            gammas = numbers.example_gammas(shapes, *address, count)
            r2 = squares[:, :, k]
            sums[:, k] = np.sum(gammas * r2 / (self.degrees + r2 / self.state.noise[:, k, None]), axis=1)
        return sums

    def _tau(self, method: Method, n: int) -> float | Array:
        """Return the temperature of a method at step n: a number, or one for each chain, (chains, 1)."""
        if method.tempering:
            return np.array(method.tempering.ladder)[self.state.rung][:, None]
        return at(method.temperature, n) if method.temperature is not None else np.nan

    def _move_on_ladder(self, n: int) -> None:
        """Make the tempering move of every chain before step n, if it is due, and scale tempered momenta."""
        tempering = self.partition.tempering
        if tempering is None or n == 0 or n % tempering.every:
            return
        chains = np.arange(len(self.state.theta))
        side, chance = numbers.uniforms(self.seed, numbers.TEMPERING, 0, chains, n, 0, 2).T
        ladder = np.array(tempering.ladder)
        weights = np.array(tempering.weights)
        self.state.rung, factor = temper(self.state.rung, self._potential(n), side, chance, ladder, weights)
        for member in self._tempered():
            self.state.p[:, member.index] *= factor[:, None]

    def _potential(self, n: int) -> Array:
        """Return the loss plus the Gaussian priors of step n at the present θ, one number for each chain.

        The force is its negative gradient.
        """
        assert self.loss is not None
        theta = self.state.theta
        potential = np.array(self.loss(theta.copy()), dtype=np.float64)
        if potential.shape != (len(theta),):
            raise ValueError(
                f"loss(theta) must be one number for each of {len(theta)} chains, got {potential.shape}"
            )
        for member in self.members:
            decay = at(member.part.method.prior, n)
            potential += decay / 2 * np.sum(theta[:, member.index] ** 2, axis=1)
        return potential

    def _tempered(self) -> list[_Member]:
        """Return the parts whose temperature moves on a ladder."""
        return [member for member in self.members if member.part.method.tempering]

    def _check_tempering(self) -> None:
        """Raise ValueError if parts are tempered without a loss, or can't be tempered together."""
        tempered = self._tempered()
        if tempered and self.loss is None:
            raise ValueError("simulated tempering needs loss=, the full-data loss of each chain")
        if len({member.at_kick for member in tempered}) > 1:
            raise ValueError(
                "simulated tempering moves between two steps of the word, so all tempered words must be seen "
                f"at the kick or none; got {', '.join(member.part.method.spelling for member in tempered)}"
            )

    def _draw_noise(self, n: int, slot: int) -> Array:
        """Return the normal numbers (chains, parameters) of a noise letter in step n."""
        chains, size = self.state.theta.shape
        return numbers.normals(self.seed, numbers.NOISE, slot, np.arange(chains), n, 0, size)

    def _starting_state(self, theta: Array, momenta: str, settled: Settled) -> State:
        """Return the state at step 0 with θ, each ξ at its start, and momenta that are zero or thermal.

        It is also stored as `state`, since `_tau` reads the rungs.

        Parameters
        ----------
        theta : array, (chains, parameters)
        momenta : {"zero", "thermal"}
            Momenta p = 0, or p = √τ R with a normal number R for each parameter.
        settled : Settled
            What the posterior sets, such as the variances of the targets.
        """
        chains, size = theta.shape
        xi: dict[str, Array] = {}
        for member in self.members:
            thermostat_count = len(member.part.thermostats)
            if thermostat_count:
                start = at(member.part.method.start_of_friction, 0)
                xi[member.part.name] = np.full((chains, thermostat_count), start)
        variances = settled.for_chains(chains)
        noise = np.empty((chains, 0)) if variances is None else variances
        self.state = State(
            theta=theta,
            p=np.zeros_like(theta),
            xi=xi,
            second=np.zeros_like(theta),
            rung=np.zeros(chains, dtype=np.intp),
            noise=noise,
        )
        if momenta == "zero":
            return self.state

        R = numbers.normals(self.seed, numbers.START, 1, np.arange(chains), step=0, start=0, stop=size)
        for member in self.members:
            method = member.part.method
            if method.temperature is not None:
                self.state.p[:, member.index] = np.sqrt(self._tau(method, 0)) * R[:, member.index]
        return self.state


def _as_chains(theta: ArrayLike) -> Array:
    """Return a copy of θ as (chains, parameters); a vector is one chain."""
    array = np.array(theta, dtype=np.float64, ndmin=2)
    if array.ndim != 2:
        raise ValueError(f"theta must be (chains, parameters), got an array of shape {array.shape}")
    return array


def _check_size(theta: Array, parts: Sequence[Part]) -> None:
    """Raise ValueError if θ hasn't as many parameters as the layers of all parts."""
    size = theta.shape[1]
    expected = sum(part.size for part in parts)
    if expected != size:
        raise ValueError(f"theta has {size} parameters, and the layers have {expected}")


def _check_single_run(partition: Partition) -> None:
    """Raise ValueError if a partition is a sweep or has a stepsize that is yet to be found."""
    axes = partition.axes()
    if axes:
        raise ValueError(f"{', '.join(axes)}: a list is an axis of a sweep, and one value is needed here")
    if partition.finds_stepsize:
        raise ValueError("h='auto' is found by train: say a stepsize here, such as h=0.1")


def _settle_without_posterior(partition: Partition, layers: Layers) -> Settled:
    """Return the parts of a partition with its own values; raise ValueError if it has a posterior."""
    if partition.posterior is not None:
        raise ValueError("a partition with a posterior needs settled=, see likelihood.settle")
    return Settled(partition.parts(layers), None, None)


def _with_shape_check(noise: Noise, shape: tuple[int, ...]) -> Noise:
    """Return noise(step, slot) as float64, with a check that it has the shape of θ."""

    def checked_noise(step: int, slot: int) -> Array:
        """Return noise(step, slot) after a check of its shape."""
        drawn = np.asarray(noise(step, slot), dtype=np.float64)
        if drawn.shape != shape:
            raise ValueError(f"noise(step, slot) must have theta's shape {shape}, got {drawn.shape}")
        return drawn

    return checked_noise


def _reads_temperature(part: Part) -> bool:
    """Return True if a letter of a part's word reads the kinetic temperature."""
    return any(substep.kind.reads for substep in part.method.substeps)


def _member(part: Part, rotated: bool) -> _Member:
    """Return a part as it is stepped; as written, its word isn't rotated."""
    index = np.concatenate([np.arange(span.start, span.stop) for span in part.tensors])
    is_contiguous = np.array_equal(index, np.arange(index[0], index[0] + len(index)))
    elements = slice(int(index[0]), int(index[-1]) + 1) if is_contiguous else index  # a slice is quicker
    sizes = np.array(part.thermostats, dtype=np.intp)
    rotation = rotate(part.method.substeps) if rotated else Rotation((), (), "end")
    return _Member(part, elements, sizes, rotation)


def _shared_word(parts: tuple[Part, ...]) -> tuple[Substep, ...]:
    """Return the word of all parts that move, to be run as it is written."""
    methods = {part.method.spelling: part.method for part in parts if part.method.moves}
    if len(methods) != 1:
        raise ValueError(
            f"rotated=False runs the one word that all parts share as it is written; got {', '.join(methods)}"
        )
    return next(iter(methods.values())).substeps
