"""Training: a problem, a network and a partition, run on the engine; one of them, or many at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

from numpy.typing import ArrayLike

from heatbath.datasets import Problem
from heatbath.networks import Dense
from heatbath.partition import Partition
from heatbath.runs.plan import Methods, Plan, sampling
from heatbath.runs.run import Run, load, simulate
from heatbath.runs.simulation import Progress
from heatbath.runs.storage import check_same


class Options(TypedDict, total=False):
    """What `sweep` and `compare` take beside their own arguments: see `train`."""

    seed: int
    record: int | Sequence[int]
    threads: int | None
    progress: Callable[[Progress], None] | None
    epochs: bool
    rotated: bool
    momenta: Literal["zero", "thermal"]
    start: ArrayLike | None
    weights: bool
    histogram: tuple[float, float, int] | None
    losses_every: int
    samples: int | None
    burn_in: int | None
    thin: int | None
    average: ArrayLike | None
    checkpoint: str | os.PathLike[str] | None
    every: float
    dtype: Literal["float32", "float64"]


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
    samples: int | None = None,
    burn_in: int | None = None,
    thin: int | None = None,
    average: ArrayLike | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 60.0,
    dtype: Literal["float32", "float64"] = "float32",
) -> Run:
    """Train, or sample: `steps` steps of `chains` independent chains, on mini-batches of `batch` data.

    - `record`: a number of evenly spaced records, the last step always among them, or a list of steps (0 is
      the start). A record notes the temperatures and ξ; with `weights` the parameters; with `histogram` =
      (low, high, bins) how many parameters of each part lie in each bin; and, at every `losses_every`-th
      record and the last, loss and accuracy on all training and test data.
    - `samples`: how many samples of θ to keep of each chain. They are taken every `thin` steps after
      `burn_in` steps; two of the three decide the third (alone, `samples` are spread over the whole run;
      with `thin` they are the last of it).
    - `average`: inputs (data, features) at which the outputs are averaged over all samples, or over every
      `thin`-th step after `burn_in` (every step after the start) if none are kept; for the last k steps,
      `burn_in` = steps - k. See `Run.averages`.
    - `epochs`: mini-batches from shuffled epochs; otherwise each is a fresh subset without replacement.
    - `rotated`: cut the words for one gradient per step (see `splitting.Rotation`), or run the one word that
      all parts share as it is written; words with several gradients always are.
    - `momenta`: "zero" at the start, or "thermal" for N(0, τ).
    - `start`: θ to start from, (chains, parameters) or one vector for all; otherwise the network's `init`.
    - `threads`: None for HEATBATH_THREADS, or all cores. It does not change the results, bit for bit.
    - `checkpoint`: a file that has the whole run up to now, replaced every `every` seconds and at the end.
      The same call with a checkpoint that is already there goes on from it.

    A chain that diverges is stopped and reported by a warning; if all do, that is an error. Ctrl-C stops
    between two steps and returns the run up to there, which `resume` goes on from.
    """
    options = {name: value for name, value in locals().items() if name in Options.__annotations__}
    _check_single(partition)
    return simulate(**_planned(problem, network, partition, steps, batch, chains, options))


def sweep(
    problem: Problem,
    network: Dense,
    partition: Partition,
    steps: int,
    batch: int,
    repeats: int = 1,
    **options: Unpack[Options],
) -> Run:
    """Train at every point of the grid that the lists in `partition` span, `repeats` chains at each.

    The chains bear the values of their coefficients, and the number of their `repeat`, as coordinates. Where
    a chain starts, its noise and its mini-batches depend on its repeat only: the points are compared on equal
    terms, and each is, bit for bit, what `train` gives there (`run.select(tau=1e-4)` is that run). The lists
    make the grid in the order of `partition.axes()`, the last axis fastest. For the options see `train`.
    """
    if not isinstance(partition, Partition):
        raise TypeError(
            f"partition must be a Partition, got {partition!r} of type {type(partition).__name__}"
        )
    if not partition.axes():
        raise ValueError(
            f"a sweep needs a list in some coefficient, such as tau=[1e-5, 1e-4]; got {partition!r}"
        )
    return simulate(**_planned(problem, network, partition, steps, batch, repeats, dict(options)))


def compare(
    problem: Problem,
    network: Dense,
    partitions: Mapping[str, Partition],
    steps: int,
    batch: int,
    repeats: int = 1,
    **options: Unpack[Options],
) -> Run:
    """Train with every one of some named partitions, `repeats` chains each, on equal terms as in a `sweep`.

    The chains bear the name of their `method` and the number of their `repeat`; `run.select(method="Adam")`
    is, bit for bit, what `train` gives for it. For the options see `train`.
    """
    if (
        not isinstance(partitions, Mapping)
        or not partitions
        or not all(isinstance(n, str) for n in partitions)
    ):
        raise TypeError(
            f"compare needs a dict of partitions by name, such as {{'LOL': LOL()}}; got {partitions!r}"
        )
    for partition in partitions.values():
        _check_single(partition)
    return simulate(**_planned(problem, network, dict(partitions), steps, batch, repeats, dict(options)))


def _planned(
    problem: Problem,
    network: Dense,
    partition: Methods,
    steps: int,
    batch: int,
    repeats: int,
    options: dict[str, Any],
) -> dict[str, Any]:
    """What `simulate` needs: a plan, where its checkpoint stands, if there is one, and how to go about it."""
    if unknown := [name for name in options if name not in Options.__annotations__]:
        accepted = ", ".join(Options.__annotations__)
        raise TypeError(f"there is no option {', '.join(unknown)}; accepted: {accepted}")
    chosen: dict[str, Any] = {"threads": None, "progress": None, "checkpoint": None, "every": 60.0}
    chosen = {name: options.pop(name, default) for name, default in chosen.items()}
    samples = options.pop("samples", None)
    burn_in, thin = options.pop("burn_in", None), options.pop("thin", None)
    if samples is None and options.get("average") is None and (burn_in, thin) != (None, None):
        raise ValueError("burn_in and thin are for samples: say samples=N, or average=X")
    options["burn_in"], options["thin"] = sampling(steps, samples, burn_in, thin)
    plan = Plan(
        problem=problem, network=network, partition=partition, steps=steps, batch=batch, repeats=repeats,
        keep=samples is not None, **options,
    )  # fmt: skip
    path, before = chosen["checkpoint"], None
    if not (path is None or isinstance(path, (str, os.PathLike))):
        raise TypeError(f"checkpoint must be the name of a file, got {path!r}")
    if path is not None and os.path.exists(path):
        before = load(path, problem)
        check_same(path, before.plan, plan)
    return {"plan": plan, "before": before, **chosen}


def _check_single(partition: object) -> None:
    """Refuse what is not a partition, or has lists."""
    if not isinstance(partition, Partition):
        raise TypeError(
            f"partition must be a Partition, got {partition!r} of type {type(partition).__name__}"
        )
    if axes := partition.axes():
        raise ValueError(
            f"{', '.join(axes)}: a list is an axis of a sweep, and here one value is needed; choose one, or "
            "call sweep"
        )
