"""The tables of coefficients that the compiled loop reads: a row for each step, WIDTH numbers an operation.

Everything is computed elementwise on arrays over the steps, by the same operations whether a coefficient is
a number or on a schedule: so a schedule that happens to be constant gives the same bits as the number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.program import READ, TEMPER, WIDTH, A, B, Control, Operation, Program, S
from heatbath.methods import SGD, SGLD, Adam, AdaptiveLangevin, Langevin, Momentum
from heatbath.schedules import Coefficient, SimulatedTempering, at

Array = NDArray[np.float64]
TEMPERED = -1.0  # in place of a temperature: that of the chain's rung


class Steps:
    """The steps first to stop - 1, and the values of coefficients during them, each evaluated once."""

    def __init__(self, first: int, stop: int) -> None:
        self.first, self.count = first, stop - first
        self._known: dict[Coefficient, Array] = {}

    def numbers(self, offset: int) -> NDArray[np.int64]:
        """The steps, counted from an offset of -1, 0 or 1."""
        return np.arange(self.first, self.first + self.count) + offset

    def values(self, value: Coefficient, offset: int) -> Array:
        """What a coefficient is during these steps; before step 0, as at step 0."""
        if isinstance(value, float):
            return np.full(self.count, value)
        if value not in self._known:
            near = range(self.first - 1, self.first + self.count + 1)
            self._known[value] = np.array([at(value, max(step, 0)) for step in near])
        return np.ascontiguousarray(self._known[value][1 + offset :][: self.count])


def table(program: Program, controls: Sequence[Control], first: int, stop: int) -> Array:
    """The coefficients (steps, operations, WIDTH) of steps first to stop - 1."""
    operations = [operation for control in controls for operation in control.operations]
    steps = Steps(first, stop)
    made = np.zeros((stop - first, len(operations), WIDTH))
    for place, operation in enumerate(operations):
        _fill(made[:, place], operation, steps, program.partition.h)
    return made


def decays(program: Program, controls: Sequence[Control], first: int, stop: int) -> Array:
    """The prior of every unit (steps, units) as a tempering move among these controls sees it."""
    offset = max([control.batch for control in controls if control.kind == TEMPER], default=0)
    steps = Steps(first, stop)
    priors = [getattr(unit.part.method, "weight_decay", 0.0) for unit in program.units]
    return np.stack([steps.values(prior, offset) for prior in priors], axis=1)


def _fill(made: Array, operation: Operation, steps: Steps, h: Coefficient) -> None:
    """The numbers of an operation; before the first step of the word nothing happens."""
    method = operation.method
    if operation.kind == READ:
        return
    if operation.kind in (A, B):
        for fraction, offset in operation.terms:
            t = np.where(steps.numbers(offset) >= 0, fraction * steps.values(h, offset), 0.0)
            if isinstance(method, Momentum):
                t = _momentum_time(operation.letter, method, steps, t)
            made[:, 0] += t
            if operation.kind == B:
                made[:, 1] += t * steps.values(method.weight_decay, offset)  # type: ignore[union-attr]
        return
    fraction, offset = operation.terms[0]

    def now(value: Coefficient) -> Array:
        return steps.values(value, offset)

    t = fraction * now(h)
    columns: list[Array | float]
    match method:
        case Langevin():
            columns = _ornstein_uhlenbeck(now(method.gamma) * t, method.tau, now)
        case AdaptiveLangevin():
            columns = _adaptive(operation.letter, method, t, now)
        case Momentum():
            columns = [now(method.mu)]
        case Adam():
            columns = [t, now(method.beta1), now(method.beta2), now(method.eps), t * now(method.weight_decay)]
        case SGLD():
            columns = [t, t * now(method.weight_decay), now(method.sigma) * np.sqrt(t)]
        case SGD():
            columns = [t, t * now(method.weight_decay)]
        case _:
            raise AssertionError(f"no operation for {method!r}")
    for place, column in enumerate(columns):
        made[:, place] = column
    before = steps.numbers(offset) < 0
    made[before] = 0.0
    if operation.kind == S:
        made[before, 0] = 1.0


def _ornstein_uhlenbeck(exponent, tau, now):
    factor, width = np.exp(-exponent), np.sqrt(-np.expm1(-2 * exponent))  # 0 and 1 where γ is infinite
    root = TEMPERED if isinstance(tau, SimulatedTempering) else np.sqrt(now(tau))
    return [factor, width, root]


def _adaptive(letter, method, t, now):
    epsilon, sigma = now(method.epsilon), now(method.sigma)
    friction = t * epsilon if method.friction == "sde" else t  # times ξ
    match letter:
        case "C":
            return [friction]
        case "D":
            return [1.0, sigma * np.sqrt(t), 1.0]
        case "F":
            return [friction, sigma * np.sqrt(t)]
    mean = 1.0 if method.kinetic == "mean" else 0.0
    tau = TEMPERED if isinstance(method.tau, SimulatedTempering) else now(method.tau)
    return [t * epsilon, tau, mean]


def _momentum_time(letter: str, method: Momentum, steps: Steps, h: Array) -> Array:
    """The c of its B and A: kind 1 is v = μ v + h G, θ += v; kind 2 is v = μ v + (1 - μ) G, θ += h v."""
    if method.kind == 1:
        return h if letter == "B" else np.ones_like(h)
    return 1 - steps.values(method.mu, 0) if letter == "B" else h
