"""Training: a problem, a network and a partition, run on the engine."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from heatbath.checks import choice, whole
from heatbath.datasets import Problem
from heatbath.engine.dense import ACTIVATIONS, BLAS, LOSSES, Shape
from heatbath.engine.ensemble import Ensemble
from heatbath.engine.program import compile_program
from heatbath.methods import AdaptiveLangevin, Langevin
from heatbath.networks import Dense
from heatbath.partition import Part, Partition
from heatbath.results import Run

PATIENCE = 0.1  # seconds of compiled code at a time, so that Ctrl-C and progress stay responsive


@dataclass(frozen=True)
class Progress:
    """How far a run has come: what `progress` is called with, about ten times a second and at each record.

    `loss` is the mean test loss over the chains (train, without test data) and `temperature` the mean kinetic
    temperature by part, both at the last record.
    """

    step: int
    steps: int
    seconds: float
    loss: float
    temperature: dict[str, float]

    @property
    def speed(self) -> float:
        """Steps per second."""
        return self.step / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float:
        """Seconds to go."""
        return (self.steps - self.step) / self.speed if self.speed > 0 else float("inf")


def train(
    problem: Problem,
    network: Dense,
    partition: Partition,
    steps: int,
    batch: int,
    chains: int = 1,
    seed: int = 0,
    record: int | Sequence[int] = 100,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    *,
    epochs: bool = False,
    momenta: Literal["zero", "thermal"] = "zero",
    start: ArrayLike | None = None,
    weights: bool = False,
    dtype: Literal["float32", "float64"] = "float32",
) -> Run:
    """Train, or sample: `steps` steps of `chains` independent chains, on mini-batches of `batch` data.

    - `record`: a number of evenly spaced records, the last step always among them, or a list of steps (0 is
      the start). A record notes loss and accuracy on all training and test data, the temperatures and ξ, and
      the parameters too with `weights`.
    - `epochs`: mini-batches from shuffled epochs; otherwise each is a fresh subset without replacement.
    - `momenta`: "zero" at the start, or "thermal" for N(0, τ).
    - `start`: θ to start from, (chains, parameters) or one vector for all; otherwise the network's `init`.
    - `threads`: None for HEATBATH_THREADS, or all cores. It does not change the results, bit for bit.

    A chain that diverges is stopped and reported by a warning; if all do, that is an error.
    """
    _check_kinds(problem, network, partition)
    steps, chains = whole("steps", steps, low=1), whole("chains", chains, low=1)
    rows = problem.X_train.shape[1]
    batch = whole(f"batch (of {rows} training data)", batch, low=1, high=rows + 1)
    choice("momenta", momenta, ("zero", "thermal"))
    choice("dtype", dtype, ("float32", "float64"))
    seed = whole("seed", seed, low=0, high=2**64)
    at = _record_steps(record, steps)
    theta = _start(problem, network, start, chains, seed)
    shape = Shape(
        network.sizes(problem.inputs, problem.outputs), ACTIVATIONS[network.activation], LOSSES[problem.task]
    )
    program = compile_program(partition, network.layers(problem.inputs, problem.outputs))
    ensemble = Ensemble(
        program, shape, theta.astype(dtype), problem.X_train, problem.Y_train, batch,
        epochs=epochs, momenta=momenta, seed=seed, threads=threads,
    )  # fmt: skip
    recorder = _Recorder(problem, ensemble, at, weights)
    limits = threadpool_limits(1, "blas") if BLAS in shape.layers[:, 4] else nullcontext()
    with limits:
        _run(ensemble, steps, recorder, progress)
    _report_deaths(ensemble)
    settings = {
        "steps": steps,
        "batch": batch,
        "seed": seed,
        "epochs": epochs,
        "momenta": momenta,
        "dtype": dtype,
    }
    state = ensemble.chains
    return Run(
        problem,
        network,
        partition,
        program.parts,
        recorder.traces(),
        state.theta,
        state.p,
        state.died,
        settings,
    )


def _run(
    ensemble: Ensemble, steps: int, recorder: _Recorder, progress: Callable[[Progress], None] | None
) -> None:
    """All steps, in calls of about PATIENCE seconds that end where a record is due."""
    begin = time.perf_counter()
    stride = 16
    if 0 in recorder.at:
        recorder.record()
    while ensemble.step < steps:
        due = next(step for step in recorder.at if step > ensemble.step)
        called = time.perf_counter()
        now = min(stride, due - ensemble.step)
        ensemble.advance(now)
        took = time.perf_counter() - called
        if now == stride:
            stride = max(1, min(4 * stride, int(stride * PATIENCE / max(took, 1e-9))))
        if ensemble.step == due:
            recorder.record()
        if progress:
            elapsed = time.perf_counter() - begin
            progress(Progress(ensemble.step, steps, elapsed, recorder.last_loss, recorder.last_temperature))
        if (ensemble.chains.died >= 0).all():
            break


class _Recorder:
    """Collects what is noted at the records."""

    def __init__(self, problem: Problem, ensemble: Ensemble, at: list[int], weights: bool) -> None:
        self.problem, self.ensemble, self.at = problem, ensemble, at
        chains, size = ensemble.chains.theta.shape
        units = ensemble.program.units
        self.parts = [p for p in ensemble.program.parts if isinstance(p.method, (Langevin, AdaptiveLangevin))]
        self.thermostats = [u for u, unit in enumerate(units) if unit.part.thermostats]
        self.loss = np.full((2, chains, len(at)), np.nan)
        self.accuracy = np.full((2, chains, len(at)), np.nan)
        self.temperature = np.full((len(self.parts), chains, len(at)), np.nan)
        self.xi = np.full((len(self.thermostats), chains, len(at)), np.nan)
        self.theta = (
            np.full((chains, len(at), size), np.nan, ensemble.chains.theta.dtype) if weights else None
        )
        self.last_loss = float("nan")
        self.last_temperature: dict[str, float] = {}
        kind = ensemble.chains.theta.dtype
        self.splits = [
            (np.ascontiguousarray(X, kind), np.ascontiguousarray(Y, kind))
            for X, Y in ((problem.X_train, problem.Y_train), (problem.X_test, problem.Y_test))
        ]

    def record(self) -> None:
        """Note everything, as it is now; of a chain that has diverged, nothing."""
        i = self.at.index(self.ensemble.step)
        chains, units = self.ensemble.chains, self.ensemble.program.units
        alive = chains.died < 0
        for split, (X, Y) in enumerate(self.splits):
            if X.shape[1]:
                loss, accuracy = self.ensemble.evaluate(X, Y)
                self.loss[split, alive, i], self.accuracy[split, alive, i] = loss[alive], accuracy[alive]
        for row, part in enumerate(self.parts):
            own = [u for u, unit in enumerate(units) if unit.part == part]
            sizes = np.array([units[u].size for u in own])
            self.temperature[row, alive, i] = (chains.temperature[alive][:, own] @ sizes) / sizes.sum()
        self.xi[:, alive, i] = chains.xi[alive][:, self.thermostats].T
        if self.theta is not None:
            self.theta[alive, i] = chains.theta[alive]
        if alive.any():
            self.last_loss = float(np.mean(self.loss[1 if self.splits[1][0].shape[1] else 0, alive, i]))
            means = self.temperature[:, alive, i].mean(axis=1)
            self.last_temperature = {part.name: float(t) for part, t in zip(self.parts, means, strict=True)}

    def traces(self) -> xr.Dataset:
        """Everything noted, labelled."""
        of_chains = ("chain", "record")
        data: dict[str, Any] = {
            "loss": (("split", *of_chains), self.loss),
            "accuracy": (("split", *of_chains), self.accuracy),
            "temperature": (("part", *of_chains), self.temperature),
            "xi": (("thermostat", *of_chains), self.xi),
        }
        if self.theta is not None:
            data["weights"] = ((*of_chains, "parameter"), self.theta)
        return xr.Dataset(
            data,
            coords={
                "split": ["train", "test"],
                "chain": np.arange(self.loss.shape[1]),
                "step": ("record", self.at),
                "part": [part.name for part in self.parts],
                "thermostat": self._thermostat_names(),
            },
        )

    def _thermostat_names(self) -> list[str]:
        """The part's name, and where it has one for each tensor, a number: `hidden/1`, `hidden/2`."""
        names, seen = [], dict[str, int]()
        for u in self.thermostats:
            part: Part = self.ensemble.program.units[u].part
            seen[part.name] = seen.get(part.name, 0) + 1
            names.append(f"{part.name}/{seen[part.name]}" if len(part.thermostats) > 1 else part.name)
        return names


def _check_kinds(problem: object, network: object, partition: object) -> None:
    for name, value, kind in (
        ("problem", problem, Problem),
        ("network", network, Dense),
        ("partition", partition, Partition),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, got {value!r} of type {type(value).__name__}")
    assert isinstance(partition, Partition)
    if axes := partition.axes():
        raise ValueError(
            f"{', '.join(axes)}: a list is an axis of a sweep, and train takes one value; choose one"
        )


def _record_steps(record: int | Sequence[int], steps: int) -> list[int]:
    """The steps at which to record: always in order, and with the last."""
    if isinstance(record, (list, tuple, np.ndarray)):
        at = {whole("record: a step", step, low=0, high=steps + 1) for step in record}
        return sorted(at | {steps})
    count = min(whole("record", record, low=1), steps)
    return sorted({steps * (i + 1) // count for i in range(count)})


def _start(problem: Problem, network: Dense, start: ArrayLike | None, chains: int, seed: int) -> NDArray[Any]:
    if start is None:
        return network.start(problem.inputs, problem.outputs, np.arange(chains), seed)
    theta = np.asarray(start, dtype=np.float64)
    size = network.parameters(problem.inputs, problem.outputs)
    if theta.shape not in ((size,), (chains, size)):
        raise ValueError(f"start must have shape ({size},) or ({chains}, {size}), got {theta.shape}")
    if not np.isfinite(theta).all():
        raise ValueError("start holds values that are not finite")
    return np.array(np.broadcast_to(theta, (chains, size)))


def _report_deaths(ensemble: Ensemble) -> None:
    """Say which chains diverged, when, and in which part."""
    dead = np.flatnonzero(ensemble.chains.died >= 0)
    if not dead.size:
        return
    told = [
        f"chain {c} at step {ensemble.chains.died[c]} in {ensemble.diverged_part(c)!r}" for c in dead[:10]
    ]
    told += [f"and {dead.size - 10} more"] if dead.size > 10 else []
    if dead.size == len(ensemble.chains.died):
        raise FloatingPointError(
            f"all chains diverged ({'; '.join(told)}): choose a smaller h, or more friction"
        )
    warnings.warn(
        f"diverged and stopped: {'; '.join(told)}; a smaller h may help", RuntimeWarning, stacklevel=3
    )
