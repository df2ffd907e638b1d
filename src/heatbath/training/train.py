"""Training: a problem, a network and a partition, run on the engine; one of them, or many at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack

from numpy.typing import ArrayLike

from heatbath._internal.checks import whole
from heatbath.datasets import Problem
from heatbath.methods.partition import Partition
from heatbath.models.dense import MLP
from heatbath.runs.distributed.pools import Pool, chosen_pool, using
from heatbath.runs.launch import simulate
from heatbath.runs.plan import Batch, Plan, RunSettings, make_plan
from heatbath.runs.progress import Progress
from heatbath.runs.run import Run
from heatbath.training.auto import AutomaticRun, prepare_automatic_run


class Manner(TypedDict, total=False):
    """How a plan is carried out, which does not change the results: see `train`."""

    threads: int | None
    progress: Callable[[Progress], None] | None
    checkpoint: str | os.PathLike[str] | None
    every: float


class Options(Manner, total=False):
    """What `sweep` and `compare` take beside their own arguments: see `train`."""

    seed: int
    record: int | Sequence[int]
    shuffled: bool
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
    dtype: Literal["float32", "float64"]
    folder: str | os.PathLike[str] | None
    executor: object


def train(
    problem: Problem,
    network: MLP,
    partition: Partition,
    steps: int | Literal["auto"],
    batch: Batch = None,
    chains: int = 1,
    *,
    budget: int | None = None,
    warm: int = 0,
    seed: int = 0,
    record: int | Sequence[int] = 100,
    shuffled: bool = False,
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
    dtype: Literal["float32", "float64"] = "float32",
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 60.0,
    folder: str | os.PathLike[str] | None = None,
) -> Run:
    """Train, or sample: `steps` steps of `chains` independent chains, on mini-batches of `batch` examples.

    - `batch`: None for 32, or all training examples where there are fewer; "all" for full gradients.
    - `steps`: "auto" until the predictions of the samples have converged (`diagnostics.convergence`: the
      worst R-hat at most 1.1, the median effective size at least 100; and the temperature is within 10 % of
      τ) or `budget` steps are made, 20,000 if that is not said. The samples (100 of each chain, or `samples`)
      are of the second half.
    - h may be "auto" in the partition, and the prior in its posterior: see `automatic` and `evidence`. What
      was found is in the run's plan, and how in `run.found`; a run at another temperature than it should
      have warns of that, `OffTemperatureWarning`.
    - `warm`: so many steps of Adam before, on the same posterior: they cost little and come far, and chains
      begin where they end. For methods with a temperature.
    - `record`: a number of evenly spaced records, the last step always among them, or a list of steps (0 is
      the start). A record notes the temperatures and ξ; with `weights` the parameters; with `histogram` =
      (low, high, bins) how many parameters of each part lie in each bin; and, at every `losses_every`-th
      record and the last, loss and accuracy on all training and test examples.
    - `samples`: how many samples of θ to keep of each chain. They are taken every `thin` steps after
      `burn_in` steps; two of the three decide the third (alone, `samples` are spread over the whole run;
      with `thin` they are the last of it).
    - `average`: inputs (examples, features) at which the outputs are averaged over all samples, or over every
      `thin`-th step after `burn_in` (every step after the start) if none are kept; for the last k steps,
      `burn_in` = steps - k. See `Run.averages`.
    - `shuffled`: mini-batches from shuffled epochs; otherwise each is a fresh subset without replacement.
    - `rotated`: cut the words for one gradient per step (see `splitting.Rotation`), or run the one word that
      all parts share as it is written; words with several gradients always are.
    - `momenta`: "zero" at the start, or "thermal" for N(0, τ).
    - `start`: θ to start from, (chains, parameters) or one vector for all; otherwise the network's `init`.
    - `threads`: None for HEATBATH_THREADS, or all cores. It does not change the results, bit for bit.
    - `progress`: a function that is called with a `Progress` about ten times a second.
    - `checkpoint`: a file that has the whole run up to now, replaced every `every` seconds and at the end.
      The same call with a checkpoint that is already there continues from it.
    - `folder`: for runs larger than memory. The chains are computed some at a time, and results are written
      into this folder as they come, at least every `every` seconds; the same call goes on from what is there.
      `run.data` are then arrays of Dask (`heatbath[dask]`), which are read when they are asked for, and
      `load` takes the folder. Ctrl-C is passed on.

    A chain that diverges is stopped and reported by a warning, `DivergedWarning`; if all do, that is an
    error. Ctrl-C stops between two steps, warns of it (`InterruptedWarning`) and returns the run up to there
    (or is passed on, as long as only short runs that find something have been made), which
    `resume` continues.

    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> run = hb.train(problem, hb.MLP((5,)), hb.AdLaLa(h=0.25), steps=200, chains=3, record=4)
    >>> run.data["step"].values.tolist()
    [50, 100, 150, 200]
    >>> run.accuracy("test").sizes
    Frozen({'chain': 3, 'record': 4})
    """
    settings = RunSettings(
        seed=seed,
        record=record,
        shuffled=shuffled,
        rotated=rotated,
        momenta=momenta,
        start=start,
        weights=weights,
        histogram=histogram,
        losses_every=losses_every,
        samples=samples,
        burn_in=burn_in,
        thin=thin,
        average=average,
        dtype=dtype,
    )
    manner: Manner = {"threads": threads, "progress": progress, "checkpoint": checkpoint, "every": every}
    prepared = prepare(problem, network, partition, steps, batch, chains, budget, warm, settings)
    return carry_out(prepared, folder, **manner)


def prepare(
    problem: Problem,
    network: MLP,
    partition: Partition,
    steps: int | Literal["auto"],
    batch: Batch = None,
    chains: int = 1,
    budget: int | None = None,
    warm: int = 0,
    settings: RunSettings = RunSettings(),  # noqa: B008 (a value)
) -> Plan | AutomaticRun:
    """What `train` carries out: a plan, or a search where something is "auto" or comes before; what is wrong
    is refused."""
    if budget is not None and steps != "auto":
        raise ValueError(f"budget is for steps='auto', and steps is {steps!r}: leave it out")
    warm = whole("warm", warm, low=0)
    if isinstance(partition, Partition) and (
        partition.finds_stepsize or partition.finds_prior or steps == "auto" or warm
    ):
        return prepare_automatic_run(
            problem, network, partition, steps, batch, chains, budget, warm, settings
        )
    return make_plan(problem, network, partition, steps, batch, chains, settings, call="train")


def carry_out(
    prepared: Plan | AutomaticRun,
    folder: str | os.PathLike[str] | None = None,
    pool: Pool | None = None,
    **manner: Unpack[Manner],
) -> Run:
    """The run of what was prepared; a search goes from one short run to the next, and has no use for others'
    workers."""
    if isinstance(prepared, AutomaticRun):
        if folder is not None:
            raise ValueError(
                'folder is for runs of which all is known before: nothing may be "auto", or warm'
            )
        with using(None):
            return replace(prepared, execution=dict(manner)).run()
    return simulate(prepared, folder=folder, pool=pool, **manner)


def sweep(
    problem: Problem,
    network: MLP,
    partition: Partition,
    steps: int,
    batch: Batch = None,
    chains: int = 1,
    **options: Unpack[Options],
) -> Run:
    """Train at every point of the grid that the lists in `partition` span, `chains` chains at each.

    The chains bear the values of their coefficients, and the number of their `repeat`, as coordinates. Where
    a chain starts, its noise and its mini-batches depend on its repeat only: the points are compared on equal
    terms, and each is, bit for bit, what `train` gives there (`run.select(tau=1e-4)` is that run). The lists
    make the grid in the order of `partition.axes()`, the last axis fastest. For the options see `train`.

    `executor` has the chains computed by others, in blocks: an executor of `concurrent.futures`, a client of
    Dask, the module `ray` or "ray"; without one, what `joblib.parallel_config` says. The result is the same,
    bit for bit. `threads` is then that of each block, 1 unless given. Blocks that are done are in the folder
    `checkpoint`.blocks until all of them are, and the same call goes on from there; with `folder` they stay
    in that one. Ctrl-C is passed on.

    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> run = hb.sweep(problem, hb.MLP((5,)), hb.AdLaLa(tau=[1e-5, 1e-4]), steps=100, chains=2, record=1)
    >>> run.data["tau"].values.tolist(), run.data["repeat"].values.tolist()
    ([1e-05, 1e-05, 0.0001, 0.0001], [0, 1, 0, 1])
    >>> run.select(tau=1e-4).partition == hb.AdLaLa(tau=1e-4)
    True
    """
    settings, manner = _sorted(options)
    plan = make_plan(problem, network, partition, steps, batch, chains, settings, call="sweep")
    return simulate(plan, pool=chosen_pool(manner.pop("executor", None)), **manner)


def compare(
    problem: Problem,
    network: MLP,
    partitions: Mapping[str, Partition],
    steps: int,
    batch: Batch = None,
    chains: int = 1,
    **options: Unpack[Options],
) -> Run:
    """Train with every one of some named partitions, `chains` chains each, on equal terms as in a `sweep`.

    The chains bear the name of their `method` and the number of their `repeat`; `run.select(method="Adam")`
    is, bit for bit, what `train` gives for it. For the options see `train` and, for `executor`, `sweep`.

    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> methods = {"AdLaLa": hb.AdLaLa(), "Adam": hb.Partition(hb.Adam(), h=0.005)}
    >>> run = hb.compare(problem, hb.MLP((5,)), methods, steps=100, chains=2, record=1)
    >>> run.data["method"].values.tolist()
    ['AdLaLa', 'AdLaLa', 'Adam', 'Adam']
    """
    settings, manner = _sorted(options)
    plan = make_plan(problem, network, partitions, steps, batch, chains, settings, call="compare")
    return simulate(plan, pool=chosen_pool(manner.pop("executor", None)), **manner)


def _sorted(options: Options) -> tuple[RunSettings, dict[str, Any]]:
    """The options that decide what is computed, and those that say how."""
    if unknown := [name for name in options if name not in Options.__annotations__]:
        accepted = ", ".join(Options.__annotations__)
        raise TypeError(f"there is no option {', '.join(unknown)}; accepted: {accepted}")
    how = {*Manner.__annotations__, "folder", "executor"}
    manner = {name: value for name, value in options.items() if name in how}
    settings: dict[str, Any] = {name: value for name, value in options.items() if name not in manner}
    return RunSettings(**settings), manner
