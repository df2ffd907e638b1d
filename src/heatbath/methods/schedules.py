"""Coefficients that change: schedules for h, tau and the rest, and simulated tempering for tau.

A schedule is a value: `schedule(n)` is the coefficient during step n. All letters of step n of a word use the
coefficients of step n, wherever a rotated loop happens to carry them out.

A coefficient is a number, a schedule, or a list or tuple of them, which is an axis of a sweep; or a range,
`between(low, high)`, in which `tune` looks for it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

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

MOST_STEPS = 2**40  # steps of a run: as many as the address of a random number has room for


@dataclass(frozen=True)
class Constant:
    """The same value at every step."""

    value: float

    def __post_init__(self) -> None:
        store(self, value=real("Constant: value", self.value, Interval(infinite=True)))

    def __call__(self, step: int) -> float:
        """The value during `step`."""
        return self.value

    def range(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return self.value, self.value


@dataclass(frozen=True)
class Linear:
    """From `start` at step 0 in a straight line to `stop` at step `steps`, and constant from there on."""

    start: float
    stop: float
    steps: int

    def __post_init__(self) -> None:
        _check_annealing(self, FINITE)

    def __call__(self, step: int) -> float:
        """The value during `step`."""
        if step >= self.steps:
            return self.stop
        return self.start + (self.stop - self.start) * step / self.steps

    def range(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return min(self.start, self.stop), max(self.start, self.stop)


@dataclass(frozen=True)
class Exponential:
    """From `start` at step 0 by a constant factor per step to `stop` at step `steps`, then constant."""

    start: float
    stop: float
    steps: int

    def __post_init__(self) -> None:
        _check_annealing(self, POSITIVE)

    def __call__(self, step: int) -> float:
        """The value during `step`."""
        if step >= self.steps:
            return self.stop
        return self.start * math.exp((math.log(self.stop) - math.log(self.start)) * step / self.steps)

    def range(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return min(self.start, self.stop), max(self.start, self.stop)


@dataclass(frozen=True)
class Cyclical:
    """From `high` down towards `low` along half a cosine, again and again, `period` steps each time.

    `low` is approached and not reached: step `period` is back at `high`.
    """

    high: float
    low: float
    period: int

    def __post_init__(self) -> None:
        store(
            self,
            high=real("Cyclical: high", self.high),
            low=real("Cyclical: low", self.low),
            period=whole("Cyclical: period", self.period, low=1),
        )
        if self.low > self.high:
            raise ValueError(f"Cyclical: low must not exceed high, got low={self.low}, high={self.high}")

    def __call__(self, step: int) -> float:
        """The value during `step`."""
        share = 0.5 * (1.0 + math.cos(math.pi * (step % self.period) / self.period))
        return self.low + (self.high - self.low) * share

    def range(self) -> tuple[float, float]:
        """Smallest value taken, and the largest."""
        return self(self.period - 1), self.high


@dataclass(frozen=True)
class Piecewise:
    """One value after another, each a number or a schedule: values[i] until step steps[i], the last for ever.

    The steps count from the start of the run, for the schedules within as well. A run that is resumed with
    other coefficients has one of these for each that was changed.
    """

    values: Sequence[float | Constant | Linear | Exponential | Cyclical]
    steps: Sequence[int]

    def __post_init__(self) -> None:
        for name, given in (("values", self.values), ("steps", self.steps)):
            if not isinstance(given, (list, tuple)):
                raise TypeError(f"Piecewise: {name} must be a list, got {given!r}")
        values = tuple(
            value
            if isinstance(value, _SIMPLE)
            else real("Piecewise: a value", value, Interval(infinite=True))
            for value in self.values
        )
        steps = tuple(whole("Piecewise: a step", step, low=1) for step in self.steps)
        if len(values) != len(steps) + 1 or list(steps) != sorted(set(steps)):
            raise ValueError(
                "Piecewise: needs rising steps, and one value more than steps; got "
                f"{len(values)} values and the steps {list(self.steps)}"
            )
        store(self, values=values, steps=steps)

    def __call__(self, step: int) -> float:
        """The value during `step`."""
        return at(self.values[bisect_right(self.steps, step)], step)

    def range(self) -> tuple[float, float]:
        """Smallest and largest value."""
        ends = [(v, v) if isinstance(v, float) else v.range() for v in self.values]
        return min(low for low, _ in ends), max(high for _, high in ends)


_SIMPLE = (Constant, Linear, Exponential, Cyclical)


@dataclass(frozen=True)
class Repeated:
    """A schedule that begins anew after every `period` steps."""

    course: Constant | Linear | Exponential | Cyclical | Piecewise
    period: int

    def __post_init__(self) -> None:
        if not isinstance(self.course, (*_SIMPLE, Piecewise)):
            raise TypeError(f"Repeated: course must be another schedule, got {shown(self.course)}")
        store(self, period=whole("Repeated: period", self.period, low=1))

    def __call__(self, step: int) -> float:
        """The value during `step`."""
        return self.course(step % self.period)

    def range(self) -> tuple[float, float]:
        """Smallest and largest value of the schedule, in any period."""
        return self.course.range()


@dataclass(frozen=True)
class Cycle:
    """Cyclical sampling: explore with large steps, then sample with small ones, again and again.

    Each cycle has `period` steps. The stepsize falls from `high` towards `low` along half a cosine. The
    temperature is `exploring` at first, and `tau` in the last share `sampling` of the cycle, at the end of
    which, with small steps, `samples` states are to be collected, evenly spaced, the last of them at the end
    of the cycle. (Zhang, Li, Zhang, Chen and Wilson, 2020, with temperatures in place of noise that is on or
    off, as adaptive thermostats need one.) None: `low` is a tenth of `high`, `exploring` a hundredth of
    `tau`.

    `stepsize` and `temperature` are schedules for an optimiser or a method; `Samples(model, when=cycle)`
    collects.

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
        high, tau = real("Cycle: high", self.high, POSITIVE), real("Cycle: tau", self.tau, NON_NEGATIVE)
        store(
            self,
            period=whole("Cycle: period", self.period, low=1),
            high=high,
            tau=tau,
            low=high / 10 if self.low is None else real("Cycle: low", self.low, NON_NEGATIVE),
            exploring=tau / 100
            if self.exploring is None
            else real("Cycle: exploring", self.exploring, NON_NEGATIVE),
            sampling=real("Cycle: sampling", self.sampling, Interval(low=0.0, high=1.0, open=True)),
            samples=whole("Cycle: samples", self.samples, low=1),
        )
        if self.samples > self._length:
            raise ValueError(
                f"Cycle: {self.samples} samples do not fit into the last {self._length} steps of a cycle, "
                f"{self.sampling:g} of {self.period}: choose a longer period, or fewer samples"
            )
        _ = self.stepsize  # which checks that low is not above high

    @property
    def _length(self) -> int:
        """Steps at `tau` in each cycle."""
        return round(self.sampling * self.period)

    @property
    def _due(self) -> tuple[int, ...]:
        """After how many steps of a cycle a state is to be kept."""
        begin = self.period - self._length
        return tuple(begin + (i + 1) * self._length // self.samples for i in range(self.samples))

    @property
    def stepsize(self) -> Cyclical:
        """The schedule of the stepsize."""
        assert self.low is not None
        return Cyclical(self.high, self.low, self.period)

    @property
    def temperature(self) -> Repeated:
        """The schedule of the temperature."""
        assert self.exploring is not None
        begin = self.period - self._length
        values: Piecewise | Constant = Constant(self.tau)
        if begin:
            values = Piecewise([self.exploring, self.tau], [begin])
        return Repeated(values, self.period)

    def collects(self, steps: int) -> bool:
        """Whether the state is to be kept that so many steps have led to."""
        return steps > 0 and (steps - 1) % self.period + 1 in self._due

    def count(self, steps: int) -> int:
        """How many states were to be kept in so many steps."""
        cycles, within = divmod(steps, self.period)
        return cycles * self.samples + bisect_right(self._due, within)


@dataclass(frozen=True)
class SimulatedTempering:
    """A temperature that moves on a ladder by itself, for `tau` only.

    Before every `every`-th step a neighbouring rung is proposed, each side with probability 1/2 (a proposal
    off the ladder is refused), and accepted with probability min(1, exp(-(1/τ' - 1/τ) U(θ) + w' - w)); the
    momenta are then rescaled by sqrt(τ'/τ). U is the full-data loss plus the Gaussian prior, w a rung's
    weight. The chain starts on the first rung, and spends a share of its time proportional to
    exp(w_i) ∫ exp(-U/τ_i) dθ on rung i.

    One rung serves all parts. The law is exact (as exact as the word) when all parts are Langevin at this
    temperature; with other methods, or beside parts at a fixed temperature, it is a heuristic.
    """

    ladder: Sequence[float]
    every: int = 100
    weights: Sequence[float] = ()

    def __post_init__(self) -> None:
        ladder = reals("SimulatedTempering: ladder", self.ladder, POSITIVE)
        if len(ladder) < 2 or list(ladder) not in (sorted(set(ladder)), sorted(set(ladder), reverse=True)):
            raise ValueError(
                "SimulatedTempering: ladder must hold at least two temperatures, all rising or all falling, "
                f"got {self.ladder!r}"
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
        """Lowest and highest temperature."""
        return min(self.ladder), max(self.ladder)


Schedule: TypeAlias = Constant | Linear | Exponential | Cyclical | Piecewise | Repeated
Value: TypeAlias = float | Schedule | SimulatedTempering
Coefficient: TypeAlias = Value | Sequence[Value] | Between
Stepsize: TypeAlias = Coefficient | Literal["auto"]

_KINDS = {kind.__name__: kind for kind in (*_SIMPLE, Piecewise, Repeated, SimulatedTempering)}


def to_plain(schedule: Schedule | SimulatedTempering) -> dict[str, Any]:
    """A schedule as a dict of plain values, under `"schedule"` its name; `from_plain` reads it back.

    >>> to_plain(Linear(1e-3, 0.0, steps=100))
    {'schedule': 'Linear', 'start': 0.001, 'stop': 0.0, 'steps': 100}
    """

    def plain(value: object) -> object:
        if isinstance(value, tuple):
            return [plain(single) for single in value]
        return to_plain(value) if isinstance(value, Schedule) else value

    values = {field.name: plain(getattr(schedule, field.name)) for field in fields(schedule)}
    return {"schedule": type(schedule).__name__, **values}


def from_plain(plain: Mapping[str, Any]) -> Schedule | SimulatedTempering:
    """The schedule that `to_plain` wrote."""
    name = plain.get("schedule") if isinstance(plain, Mapping) else None
    if not isinstance(name, str) or name not in _KINDS:
        raise ValueError(f"a schedule is a dict with 'schedule' one of {', '.join(_KINDS)}, got {plain!r}")
    kind = _KINDS[name]
    given = {key: value for key, value in plain.items() if key != "schedule"}
    accepted = [field.name for field in fields(kind)]
    if unknown := [key for key in given if key not in accepted]:
        raise ValueError(f"{name} has no {', '.join(map(str, unknown))}; accepted: {', '.join(accepted)}")
    for key, value in given.items():
        if isinstance(value, list):
            given[key] = [from_plain(single) if isinstance(single, Mapping) else single for single in value]
        elif isinstance(value, Mapping):
            given[key] = from_plain(value)
    try:
        return kind(**given)
    except TypeError as error:  # of the wrong type, or missing: the message names the field
        raise ValueError(f"{name}: {error}") from None


def scaled(value: Any, factor: float) -> Any:
    """A coefficient times a number: each value of a schedule, and of a list."""
    if isinstance(value, (tuple, list)):
        return type(value)(scaled(single, factor) for single in value)
    if isinstance(value, Piecewise):
        return Piecewise([scaled(single, factor) for single in value.values], list(value.steps))
    if isinstance(value, Repeated):
        return Repeated(scaled(value.course, factor), value.period)
    if isinstance(value, Schedule):
        names = [f.name for f in fields(value) if f.name not in ("steps", "period")]
        return replace(value, **{name: factor * getattr(value, name) for name in names})
    return factor * value


def falling(value: Any, factor: float, step: int) -> Any:
    """A coefficient that is divided by a number from `step` on: each of a list."""
    if isinstance(value, tuple):
        return tuple(falling(single, factor, step) for single in value)
    if not isinstance(value, (float, *_SIMPLE)):
        raise ValueError(f"only a number or a simple schedule can fall on the way, got {value!r}")
    return Piecewise([value, scaled(value, 1 / factor)], [step])


def at(value: Coefficient, step: int) -> float:
    """The value during `step` of a coefficient that is neither an axis of a sweep nor tempered."""
    if isinstance(value, Schedule):
        return value(step)
    if not isinstance(value, float):
        raise TypeError(f"a single value is needed here, got {value!r}")
    return value


def bounds(value: Coefficient) -> tuple[float, float]:
    """The smallest and the largest value of a coefficient: over all steps, and over an axis or a range."""
    if isinstance(value, (tuple, list)):
        ends = [bounds(single) for single in value]
        return min(low for low, _ in ends), max(high for _, high in ends)
    if isinstance(value, (Schedule, SimulatedTempering, Between)):
        return value.range()
    assert isinstance(value, float)
    return value, value


def coefficient(label: str, given: object, accepted: Interval, *, tempering: bool = False) -> Coefficient:
    """`given` checked: a number as a float, a schedule that stays `accepted`, an axis of them as a tuple, a
    range with ends that are `accepted`."""
    if isinstance(given, Between):
        if not all(value in accepted for value in given.range()):
            raise ValueError(f"{label} must be {accepted}, got {given!r}")
        return given
    if isinstance(given, np.ndarray) and given.ndim == 1:
        given = given.tolist()
    if isinstance(given, (list, tuple)):
        if not given:
            raise ValueError(f"{label}: an axis of a sweep needs at least one value, got {given!r}")
        return tuple(_value(label, value, accepted, tempering) for value in given)
    return _value(label, given, accepted, tempering)


def _check_annealing(schedule: Linear | Exponential, accepted: Interval) -> None:
    name = type(schedule).__name__
    store(
        schedule,
        start=real(f"{name}: start", schedule.start, accepted),
        stop=real(f"{name}: stop", schedule.stop, accepted),
        steps=whole(f"{name}: steps", schedule.steps, low=1),
    )


def _value(label: str, given: object, accepted: Interval, tempering: bool) -> Value:
    if isinstance(given, SimulatedTempering) and not tempering:
        raise ValueError(f"{label} cannot be tempered, only tau can: got {given!r}")
    if isinstance(given, (Schedule, SimulatedTempering)):
        if not all(value in accepted for value in given.range()):
            raise ValueError(f"{label} must be {accepted} at every step, got {given!r}")
        return given
    if not is_real(given):
        raise TypeError(
            f"{label} must be a number ({accepted}), a schedule, or a list of them as an axis of a sweep; "
            f"got {shown(given)} of type {type(given).__name__}"
        )
    return real(label, given, accepted)
