"""Define schedules for stepsizes and other coefficients, and simulated tempering for temperatures.

`schedule(n)` is the coefficient during step n. All letters of step n of a word use the coefficients of step
n, even if a rotated loop executes them in the next step.

A coefficient is a number, a schedule, a list or tuple of them (an axis of a sweep), or a range,
`between(low, high)`, in which `tune` searches for it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from heatbath._internal.checks import (
    FINITE,
    NON_NEGATIVE,
    POSITIVE,
    Interval,
    is_real,
    real,
    reals,
    shown,
    store,
    whole,
)
from heatbath.methods.ranges import Between

MOST_STEPS = 2**40  # steps of a run: the address of a random number has 40 bits for them


@dataclass(frozen=True)
class Constant:
    """Schedule with the same value at every step.

    Parameters
    ----------
    value : float
        The value.
    """

    value: float

    def __post_init__(self) -> None:
        """Check all fields, and store them in their final types."""
        store(self, value=real("Constant: value", self.value, Interval(infinite=True)))

    def __call__(self, step: int) -> float:
        """Return the value during a step."""
        return self.value

    def range(self) -> tuple[float, float]:
        """Return the smallest and the largest value."""
        return self.value, self.value


@dataclass(frozen=True)
class _Annealing:
    """Base of schedules from `start` at step 0 to `stop` at step `steps`."""

    start: float
    stop: float
    steps: int

    accepted: ClassVar[Interval] = FINITE  # values of start and stop

    def __post_init__(self) -> None:
        """Check all fields, and store them in their final types."""
        name = type(self).__name__
        store(
            self,
            start=real(f"{name}: start", self.start, self.accepted),
            stop=real(f"{name}: stop", self.stop, self.accepted),
            steps=whole(f"{name}: steps", self.steps, low=1),
        )

    def range(self) -> tuple[float, float]:
        """Return the smallest and the largest value."""
        return min(self.start, self.stop), max(self.start, self.stop)


@dataclass(frozen=True)
class Linear(_Annealing):
    """Schedule that changes along a straight line from `start` to `stop`, and is then constant.

    Parameters
    ----------
    start, stop : float
        The first and the last value.
    steps : int
        The step at which `stop` is reached.

    Examples
    --------
    >>> schedule = Linear(0.2, 0.1, steps=100)
    >>> schedule(0), schedule(50), schedule(1000)
    (0.2, 0.15000000000000002, 0.1)
    """

    def __call__(self, step: int) -> float:
        """Return the value during a step."""
        if step >= self.steps:
            return self.stop
        return self.start + (self.stop - self.start) * step / self.steps


@dataclass(frozen=True)
class Exponential(_Annealing):
    """Schedule that changes by a constant factor per step from `start` to `stop`, and is then constant.

    Parameters
    ----------
    start, stop : float
        The first and the last value, both above 0.
    steps : int
        The step at which `stop` is reached.
    """

    accepted = POSITIVE

    def __call__(self, step: int) -> float:
        """Return the value during a step."""
        if step >= self.steps:
            return self.stop
        return self.start * math.exp((math.log(self.stop) - math.log(self.start)) * step / self.steps)


@dataclass(frozen=True)
class Cyclical:
    """Schedule that falls from `high` towards `low` along half a cosine, and repeats.

    Parameters
    ----------
    high, low : float
        The ends. `low` is approached but not reached, since step `period` is back at `high`.
    period : int
        Steps of each cycle.
    """

    high: float
    low: float
    period: int

    def __post_init__(self) -> None:
        """Check all fields, and store them in their final types."""
        store(
            self,
            high=real("Cyclical: high", self.high),
            low=real("Cyclical: low", self.low),
            period=whole("Cyclical: period", self.period, low=1),
        )
        if self.low > self.high:
            raise ValueError(f"Cyclical: low must not exceed high, got low={self.low}, high={self.high}")

    def __call__(self, step: int) -> float:
        """Return the value during a step."""
        fraction = 0.5 * (1.0 + math.cos(math.pi * (step % self.period) / self.period))
        return self.low + (self.high - self.low) * fraction

    def range(self) -> tuple[float, float]:
        """Return the smallest value that is reached, and the largest."""
        return self(self.period - 1), self.high


@dataclass(frozen=True)
class Piecewise:
    """Schedule with several values: values[i] until step steps[i], and then the last one.

    A run that is resumed with other coefficients has such a schedule for each coefficient that changed.

    Parameters
    ----------
    values : list of float or schedule
        The values. Schedules among them count their steps from the start of the run, too.
    steps : list of int
        Increasing steps at which the value changes, one fewer than values.

    Examples
    --------
    >>> schedule = Piecewise([0.1, 0.02], [1000])
    >>> schedule(999), schedule(1000)
    (0.1, 0.02)
    """

    values: Sequence[float | Constant | Linear | Exponential | Cyclical]
    steps: Sequence[int]

    def __post_init__(self) -> None:
        """Check that the steps increase and fit the values, and store both as tuples.

        Each value may itself be a schedule, but not another Piecewise.
        """
        for name, argument in (("values", self.values), ("steps", self.steps)):
            if not isinstance(argument, (list, tuple)):
                raise TypeError(f"Piecewise: {name} must be a list, got {argument!r}")
        values = tuple(self._checked_value(value) for value in self.values)
        steps = tuple(whole("Piecewise: a step", step, low=1) for step in self.steps)
        is_increasing = list(steps) == sorted(set(steps))
        if len(values) != len(steps) + 1 or not is_increasing:
            raise ValueError(
                "Piecewise: needs increasing steps, and one value more than steps; got "
                f"{len(values)} values and the steps {list(self.steps)}"
            )
        store(self, values=values, steps=steps)

    @staticmethod
    def _checked_value(value: object) -> object:
        """Return a schedule as it is, and a number as float."""
        if isinstance(value, _SIMPLE):
            return value
        return real("Piecewise: a value", value, Interval(infinite=True))

    def __call__(self, step: int) -> float:
        """Return the value during a step."""
        interval = bisect_right(self.steps, step)
        return at(self.values[interval], step)

    def range(self) -> tuple[float, float]:
        """Return the smallest and the largest value."""
        return bounds(tuple(self.values))


_SIMPLE = (Constant, Linear, Exponential, Cyclical)


@dataclass(frozen=True)
class Repeated:
    """Schedule that restarts another schedule after every `period` steps.

    Parameters
    ----------
    course : schedule
        The schedule to repeat.
    period : int
        Steps of each repetition.
    """

    course: Constant | Linear | Exponential | Cyclical | Piecewise
    period: int

    def __post_init__(self) -> None:
        """Check all fields, and store them in their final types."""
        if not isinstance(self.course, (*_SIMPLE, Piecewise)):
            raise TypeError(f"Repeated: course must be another schedule, got {shown(self.course)}")
        store(self, period=whole("Repeated: period", self.period, low=1))

    def __call__(self, step: int) -> float:
        """Return the value during a step."""
        return self.course(step % self.period)

    def range(self) -> tuple[float, float]:
        """Return the smallest and the largest value in any period."""
        return self.course.range()


@dataclass(frozen=True)
class Cycle:
    """Schedules for cyclical sampling: explore with large steps, then sample with small ones, and repeat.

    In each cycle the stepsize falls from `high` towards `low` along half a cosine. The temperature is
    `exploring` at first and `tau` in the last part of the cycle, where samples are collected. The method is
    that of Zhang, Li, Zhang, Chen and Wilson (2020), with two temperatures instead of noise that is on or
    off, because adaptive thermostats need a temperature.

    `stepsize` and `temperature` are schedules for an optimiser or a method. `Samples(model, when=cycle)`
    collects the samples.

    Parameters
    ----------
    period : int
        Steps of each cycle.
    high : float
        Largest stepsize, at the start of a cycle.
    tau : float
        Temperature while samples are collected.
    low : float, optional
        Smallest stepsize. The default is a tenth of `high`.
    exploring : float, optional
        Temperature before that. The default is a hundredth of `tau`.
    sampling : float, optional
        Share of the cycle in which the temperature is `tau`.
    samples : int, optional
        Samples of each cycle, evenly spaced over this share. The last one is at the end of the cycle.

    Examples
    --------
    >>> cycle = Cycle(100, high=0.2, tau=1e-4, samples=4)
    >>> [step for step in range(201) if cycle.collects(step)]
    [85, 90, 95, 100, 185, 190, 195, 200]
    >>> cycle.stepsize(0), cycle.temperature(79), cycle.temperature(80), cycle.temperature(100)
    (0.2, 1e-06, 0.0001, 1e-06)
    """

    period: int
    high: float
    tau: float
    low: float | None = None
    exploring: float | None = None
    sampling: float = 0.2
    samples: int = 4

    def __post_init__(self) -> None:
        """Check all fields, and store them in their final types with the defaults that depend on others.

        The samples must fit into the steps of a cycle that are at temperature `tau`.
        """
        high = real("Cycle: high", self.high, POSITIVE)
        tau = real("Cycle: tau", self.tau, NON_NEGATIVE)
        low = high / 10 if self.low is None else self.low
        exploring = tau / 100 if self.exploring is None else self.exploring
        store(
            self,
            period=whole("Cycle: period", self.period, low=1),
            high=high,
            tau=tau,
            low=real("Cycle: low", low, NON_NEGATIVE),
            exploring=real("Cycle: exploring", exploring, NON_NEGATIVE),
            sampling=real("Cycle: sampling", self.sampling, Interval(low=0.0, high=1.0, open=True)),
            samples=whole("Cycle: samples", self.samples, low=1),
        )
        if self.samples > self._sampling_steps:
            raise ValueError(
                f"Cycle: {self.samples} samples do not fit into the last {self._sampling_steps} steps of a "
                f"cycle, {self.sampling:g} of {self.period}: choose a longer period, or fewer samples"
            )
        _ = self.stepsize  # checks that low is not above high

    @property
    def _sampling_steps(self) -> int:
        """Number of steps at temperature `tau` in each cycle."""
        return round(self.sampling * self.period)

    @property
    def _sample_steps(self) -> tuple[int, ...]:
        """Steps of a cycle, counted from 1, after which a sample is collected."""
        exploring_steps = self.period - self._sampling_steps
        numbers = range(1, self.samples + 1)
        return tuple(exploring_steps + number * self._sampling_steps // self.samples for number in numbers)

    @property
    def stepsize(self) -> Cyclical:
        """Schedule of the stepsize."""
        assert self.low is not None
        return Cyclical(self.high, self.low, self.period)

    @property
    def temperature(self) -> Repeated:
        """Schedule of the temperature."""
        assert self.exploring is not None
        exploring_steps = self.period - self._sampling_steps
        cycle: Piecewise | Constant = Constant(self.tau)
        if exploring_steps:
            cycle = Piecewise([self.exploring, self.tau], [exploring_steps])
        return Repeated(cycle, self.period)

    def collects(self, steps: int) -> bool:
        """Return True if a sample is collected after this many steps."""
        if steps <= 0:
            return False
        step_of_cycle = (steps - 1) % self.period + 1
        return step_of_cycle in self._sample_steps

    def count(self, steps: int) -> int:
        """Return how many samples are collected during this many steps."""
        cycles, steps_of_last_cycle = divmod(steps, self.period)
        return cycles * self.samples + bisect_right(self._sample_steps, steps_of_last_cycle)


@dataclass(frozen=True)
class SimulatedTempering:
    """Temperature that moves by itself on a ladder of temperatures, for `tau` only.

    Before every `every`-th step a neighbouring rung is proposed, each side with probability 1/2; a proposal
    beyond the ladder is rejected. It is accepted with probability min(1, exp(-(1/τ' - 1/τ) U(θ) + w' - w)),
    and the momenta are then rescaled by sqrt(τ'/τ). U is the full-data loss plus the Gaussian prior, w a
    rung's weight. The chain starts on the first rung, and spends a share of its time proportional to exp(w_i)
    ∫ exp(-U/τ_i) dθ on rung i.

    All parts share one rung. The law is exact (as exact as the word) if all parts are Langevin at this
    temperature; with other methods, or beside parts at a fixed temperature, it is a heuristic.

    Parameters
    ----------
    ladder : list of float
        At least two temperatures τ_i, all increasing or all decreasing.
    every : int, optional
        Steps between proposals.
    weights : list of float, optional
        A weight w_i for each rung. The default is 0 for all.
    """

    ladder: Sequence[float]
    every: int = 100
    weights: Sequence[float] = ()

    def __post_init__(self) -> None:
        """Check that the ladder is monotonic and the weights fit it, and store all fields."""
        ladder = reals("SimulatedTempering: ladder", self.ladder, POSITIVE)
        increasing = sorted(set(ladder))
        if len(ladder) < 2 or list(ladder) not in (increasing, increasing[::-1]):
            raise ValueError(
                "SimulatedTempering: ladder must hold at least two temperatures, all increasing or all "
                f"decreasing, got {self.ladder!r}"
            )
        weights = reals("SimulatedTempering: weights", self.weights) or (0.0,) * len(ladder)
        if len(weights) != len(ladder):
            raise ValueError(
                f"SimulatedTempering: weights must be one number for each of the {len(ladder)} rungs, "
                f"got {len(weights)}"
            )
        every = whole("SimulatedTempering: every", self.every, low=1, high=MOST_STEPS)
        store(self, ladder=ladder, weights=weights, every=every)

    def range(self) -> tuple[float, float]:
        """Return the lowest and the highest temperature."""
        return min(self.ladder), max(self.ladder)


Schedule: TypeAlias = Constant | Linear | Exponential | Cyclical | Piecewise | Repeated
Value: TypeAlias = float | Schedule | SimulatedTempering
Coefficient: TypeAlias = Value | Sequence[Value] | Between
Stepsize: TypeAlias = Coefficient | Literal["auto"]

_KINDS = {kind.__name__: kind for kind in (*_SIMPLE, Piecewise, Repeated, SimulatedTempering)}


def to_plain(schedule: Schedule | SimulatedTempering) -> dict[str, Any]:
    """Return a schedule as a dict of plain values, with its name under "schedule"; see `from_plain`.

    >>> to_plain(Linear(1e-3, 0.0, steps=100))
    {'schedule': 'Linear', 'start': 0.001, 'stop': 0.0, 'steps': 100}
    """

    def plain_value(value: object) -> object:
        """Return a field's value with lists for tuples and dicts for schedules."""
        if isinstance(value, tuple):
            return [plain_value(item) for item in value]
        if isinstance(value, Schedule):
            return to_plain(value)
        return value

    values = {field.name: plain_value(getattr(schedule, field.name)) for field in fields(schedule)}
    return {"schedule": type(schedule).__name__, **values}


def from_plain(plain: Mapping[str, Any]) -> Schedule | SimulatedTempering:
    """Return the schedule that `to_plain` has written as a dict.

    Parameters
    ----------
    plain : mapping
        The name of the schedule under "schedule", and its fields.

    Raises
    ------
    ValueError
        If the name is unknown, or a field is missing, unknown or invalid.

    Examples
    --------
    >>> from_plain({"schedule": "Linear", "start": 0.001, "stop": 0.0, "steps": 100})
    Linear(start=0.001, stop=0.0, steps=100)
    """
    name = plain.get("schedule") if isinstance(plain, Mapping) else None
    if not isinstance(name, str) or name not in _KINDS:
        raise ValueError(f"a schedule is a dict with 'schedule' one of {', '.join(_KINDS)}, got {plain!r}")

    schedule_class = _KINDS[name]
    accepted = [field.name for field in fields(schedule_class)]
    plain_fields = {key: value for key, value in plain.items() if key != "schedule"}
    unknown = [str(key) for key in plain_fields if key not in accepted]
    if unknown:
        raise ValueError(f"{name} has no {', '.join(unknown)}; accepted: {', '.join(accepted)}")
    values: dict[str, Any] = {key: _from_plain_value(value) for key, value in plain_fields.items()}
    try:
        return schedule_class(**values)
    except TypeError as error:  # a value is missing or has the wrong type: the message names the field
        raise ValueError(f"{name}: {error}") from None


def _from_plain_value(value: object) -> object:
    """Return a field's value with schedules for the dicts in it, or in its list."""
    if isinstance(value, list):
        return [_from_plain_value(item) for item in value]
    if isinstance(value, Mapping):
        return from_plain(value)
    return value


def scaled(value: Any, factor: float) -> Any:
    """Return a coefficient multiplied by a number: all values of a schedule, all items of a list."""
    if isinstance(value, (tuple, list)):
        return type(value)(scaled(item, factor) for item in value)
    if isinstance(value, Piecewise):
        return Piecewise([scaled(item, factor) for item in value.values], list(value.steps))
    if isinstance(value, Repeated):
        return Repeated(scaled(value.course, factor), value.period)
    if isinstance(value, Schedule):
        names = [f.name for f in fields(value) if f.name not in ("steps", "period")]
        return replace(value, **{name: factor * getattr(value, name) for name in names})
    return factor * value


def falling(value: Any, factor: float, step: int) -> Any:
    """Return a coefficient that is divided by a number from `step` on, as a `Piecewise` schedule.

    Parameters
    ----------
    value : float, schedule or tuple
        The coefficient. All items of a tuple, an axis of a sweep, are divided.
    factor : float
        What it is divided by.
    step : int
        The first step with the lower value.

    Raises
    ------
    ValueError
        If it is piecewise, repeated or tempered already.
    """
    if isinstance(value, tuple):
        return tuple(falling(item, factor, step) for item in value)
    if not isinstance(value, (float, *_SIMPLE)):
        raise ValueError(
            "only a number, Constant, Linear, Exponential or Cyclical can be lowered during a run, "
            f"got {value!r}"
        )
    return Piecewise([value, scaled(value, 1 / factor)], [step])


def at(value: Coefficient, step: int) -> float:
    """Return the value of a coefficient during a step. It must be a number or a schedule."""
    if isinstance(value, Schedule):
        return value(step)
    if not isinstance(value, float):
        raise TypeError(f"a number or a schedule is needed here, got {value!r}")
    return value


def bounds(value: Coefficient) -> tuple[float, float]:
    """Return the smallest and the largest value of a coefficient, over all steps and all items of a list."""
    if isinstance(value, (tuple, list)):
        ends = [bounds(item) for item in value]
        return min(low for low, _ in ends), max(high for _, high in ends)
    if isinstance(value, (Schedule, SimulatedTempering, Between)):
        return value.range()
    assert isinstance(value, float)
    return value, value


def coefficient(label: str, value: object, accepted: Interval, *, tempering: bool = False) -> Coefficient:
    """Check a coefficient, and return it with numbers as float and a list as tuple.

    Parameters
    ----------
    label : str
        Its name in error messages.
    value : object
        A number, a schedule, a list or one-dimensional array of them (an axis of a sweep), or a range.
    accepted : Interval
        The accepted values, at every step and at both ends of a range.
    tempering : bool, optional
        True if a `SimulatedTempering` is accepted, too.

    Raises
    ------
    TypeError, ValueError
        If the value has another type, or is not accepted at some step; the message begins with the label.
    """
    if isinstance(value, Between):
        if not _is_within(accepted, value.range()):
            raise ValueError(f"{label} must be {accepted}, got {value!r}")
        return value

    items = value
    if isinstance(value, np.ndarray) and value.ndim == 1:
        items = value.tolist()
    if not isinstance(items, (list, tuple)):
        return _check_single(label, value, accepted, tempering)
    if not items:
        raise ValueError(f"{label}: an axis of a sweep needs at least one value, got {items!r}")
    return tuple(_check_single(label, item, accepted, tempering) for item in items)


def _is_within(accepted: Interval, ends: tuple[float, float]) -> bool:
    """Return True if both the smallest and the largest value are accepted."""
    low, high = ends
    return low in accepted and high in accepted


def _check_single(label: str, value: object, accepted: Interval, tempering: bool) -> Value:
    """Check a single value of a coefficient, and return it; numbers become floats.

    Parameters
    ----------
    label : str
        The name of the coefficient in error messages.
    value : object
        A number, a schedule or a `SimulatedTempering`.
    accepted : Interval
        The accepted values, at every step.
    tempering : bool
        True if a `SimulatedTempering` is accepted.
    """
    if isinstance(value, SimulatedTempering) and not tempering:
        raise ValueError(f"{label} cannot be tempered, only tau can: got {value!r}")
    if isinstance(value, (Schedule, SimulatedTempering)):
        if not _is_within(accepted, value.range()):
            raise ValueError(f"{label} must be {accepted} at every step, got {value!r}")
        return value
    if not is_real(value):
        raise TypeError(
            f"{label} must be a number ({accepted}), a schedule, or a list of them as an axis of a sweep; "
            f"got {shown(value)} of type {type(value).__name__}"
        )
    return real(label, value, accepted)
