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

from heatbath.checks import choice, real, whole
from heatbath.datasets import Problem
from heatbath.engine.dense import ACTIVATIONS, BLAS, Shape
from heatbath.engine.ensemble import Ensemble
from heatbath.engine.loop import Notes
from heatbath.engine.losses import LOSSES
from heatbath.engine.program import compile_program
from heatbath.networks import Dense
from heatbath.partition import Partition
from heatbath.results import Run

PATIENCE = 0.1  # seconds of compiled code at a time, so that Ctrl-C and progress stay responsive


@dataclass(frozen=True)
class Progress:
    """How far a run has come: what `progress` is called with, about ten times a second.

    `loss` is the mean over the chains of the test loss (of the training loss, without test data) at the last
    record, and `temperature` their mean kinetic temperature by part, now.
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
    rotated: bool = True,
    momenta: Literal["zero", "thermal"] = "zero",
    start: ArrayLike | None = None,
    weights: bool = False,
    histogram: tuple[float, float, int] | None = None,
    losses_every: int = 1,
    dtype: Literal["float32", "float64"] = "float32",
) -> Run:
    """Train, or sample: `steps` steps of `chains` independent chains, on mini-batches of `batch` data.

    - `record`: a number of evenly spaced records, the last step always among them, or a list of steps (0 is
      the start). A record notes the temperatures and ξ; with `weights` the parameters; with `histogram` =
      (low, high, bins) how many parameters of each part lie in each bin; and, at every `losses_every`-th
      record and the last, loss and accuracy on all training and test data.
    - `epochs`: mini-batches from shuffled epochs; otherwise each is a fresh subset without replacement.
    - `rotated`: cut the words for one gradient per step (see `splitting.Rotation`), or run the one word that
      all parts share as it is written; words with several gradients always are.
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
    losses_every = whole("losses_every", losses_every, low=1)
    bins = (0.0, 1.0, 0) if histogram is None else _checked_histogram(histogram)
    at = _record_steps(record, steps)
    theta = _start(problem, network, start, chains, seed)
    shape = Shape(
        network.sizes(problem.inputs, problem.outputs), ACTIVATIONS[network.activation], LOSSES[problem.task]
    )
    program = compile_program(partition, network.layers(problem.inputs, problem.outputs), rotated)
    ensemble = Ensemble(
        program, shape, theta.astype(dtype), problem.X_train, problem.Y_train, batch,
        epochs=epochs, momenta=momenta, seed=seed, threads=threads,
    )  # fmt: skip
    losses = [(i + 1) % losses_every == 0 or step == steps for i, step in enumerate(at)]
    notes = ensemble.take_notes(at, losses, problem.X_test, problem.Y_test, weights=weights, histogram=bins)
    limits = threadpool_limits(1, "blas") if BLAS in shape.layers[:, 4] else nullcontext()
    with limits:
        _run(ensemble, steps, progress)
    _report_deaths(ensemble)
    settings = {
        "steps": steps,
        "batch": batch,
        "seed": seed,
        "epochs": epochs,
        "rotated": rotated,
        "momenta": momenta,
        "dtype": dtype,
    }
    state = ensemble.chains
    return Run(
        problem,
        network,
        partition,
        program.parts,
        _traces(ensemble, notes),
        state.theta,
        state.p,
        state.died,
        settings,
    )


def _run(ensemble: Ensemble, steps: int, progress: Callable[[Progress], None] | None) -> None:
    """All steps, in calls of about PATIENCE seconds."""
    begin = time.perf_counter()
    stride = 16
    while ensemble.step < steps and (ensemble.chains.died < 0).any():
        called = time.perf_counter()
        now = min(stride, steps - ensemble.step)
        ensemble.advance(now)
        took = time.perf_counter() - called
        stride = max(1, min(4 * stride, int(now * PATIENCE / max(took, 1e-9))))
        if progress:
            progress(_progress(ensemble, steps, time.perf_counter() - begin))


def _progress(ensemble: Ensemble, steps: int, seconds: float) -> Progress:
    """How things stand, as of the last record with a loss."""
    notes, alive = ensemble.notes, ensemble.chains.died < 0
    split = 1 if notes.X_test.shape[1] else 0
    known = np.flatnonzero(notes.losses & (notes.steps <= ensemble.step))
    loss = notes.loss[alive, known[-1], split].mean() if known.size and alive.any() else np.nan
    temperature = _by_part(ensemble, ensemble.chains.temperature[alive]) if alive.any() else {}
    return Progress(
        ensemble.step,
        steps,
        seconds,
        float(loss),
        {name: float(t.mean()) for name, t in temperature.items() if np.isfinite(t).all()},
    )


def _units_of(ensemble: Ensemble) -> dict[str, list[int]]:
    """The units of each part."""
    units = ensemble.program.units
    return {
        part.name: [u for u, unit in enumerate(units) if unit.part.name == part.name]
        for part in ensemble.program.parts
    }


def _by_part(ensemble: Ensemble, temperature: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Temperatures (..., units) as those of the parts: means over parameters, NaN without a thermostat."""
    sizes = np.array([unit.size for unit in ensemble.program.units])
    return {
        name: temperature[..., own] @ sizes[own] / sizes[own].sum()
        for name, own in _units_of(ensemble).items()
    }


def _traces(ensemble: Ensemble, notes: Notes) -> xr.Dataset:
    """Everything noted, labelled."""
    of_chains = ("chain", "record")
    temperature = _by_part(ensemble, notes.temperature)
    heat = np.array(list(temperature.values()))
    names = _thermostat_names(ensemble)
    data: dict[str, Any] = {
        "loss": (("split", *of_chains), np.moveaxis(notes.loss, 2, 0)),
        "accuracy": (("split", *of_chains), np.moveaxis(notes.accuracy, 2, 0)),
        "temperature": (("part", *of_chains), heat.reshape(-1, *notes.loss.shape[:2])),
        "xi": (("thermostat", *of_chains), np.moveaxis(notes.xi[..., list(names)], 2, 0)),
    }
    if notes.theta.shape[2]:
        data["weights"] = ((*of_chains, "parameter"), notes.theta)
    bins = notes.histogram.shape[3]
    if bins:
        counts = [notes.histogram[:, :, own].sum(axis=2) for own in _units_of(ensemble).values()]
        data["histogram"] = (("part", *of_chains, "bin"), np.array(counts))
    edges = np.linspace(notes.low, notes.high, bins + 1)
    return xr.Dataset(
        data,
        coords={
            "split": ["train", "test"],
            "chain": np.arange(len(notes.loss)),
            "step": ("record", notes.steps),
            "part": list(temperature),
            "thermostat": list(names.values()),
            **({"bin": (edges[1:] + edges[:-1]) / 2} if bins else {}),
        },
    )


def _thermostat_names(ensemble: Ensemble) -> dict[int, str]:
    """The units that have a ξ, named as their part, or `hidden/1`, ... where it has one for each tensor."""
    names: dict[int, str] = {}
    for u, unit in enumerate(ensemble.program.units):
        if unit.part.thermostats:
            place = 1 + sum(name.partition("/")[0] == unit.part.name for name in names.values())
            names[u] = f"{unit.part.name}/{place}" if len(unit.part.thermostats) > 1 else unit.part.name
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
    if isinstance(record, (list, tuple, range, np.ndarray)):
        at = {whole("record: a step", step, low=0, high=steps + 1) for step in record}
        return sorted(at | {steps})
    count = min(whole("record", record, low=1), steps)
    return sorted({steps * (i + 1) // count for i in range(count)})


def _checked_histogram(histogram: object) -> tuple[float, float, int]:
    if not isinstance(histogram, (list, tuple)) or len(histogram) != 3:
        raise TypeError(f"histogram must be (low, high, bins) such as (-3, 3, 60), got {histogram!r}")
    low, high = real("histogram: low", histogram[0]), real("histogram: high", histogram[1])
    if low >= high:
        raise ValueError(f"histogram: low must be below high, got {histogram!r}")
    return low, high, whole("histogram: bins", histogram[2], low=1)


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
