"""Train networks on the engine: `train` runs one partition, `sweep` a grid, `compare` several methods."""

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


class ExecutionOptions(TypedDict, total=False):
    """Options of `train` that don't change its results."""

    threads: int | None
    progress: Callable[[Progress], None] | None
    checkpoint: str | os.PathLike[str] | None
    every: float


class Options(ExecutionOptions, total=False):
    """Options of `sweep` and `compare`: those of `train`, and `executor`."""

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


def train(  # noqa: PLR0913 # options by keyword
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
    """Train a network, or sample its posterior, with independent chains on mini-batches.

    Chains that diverge stop with a `DivergedWarning`; if all diverge, a FloatingPointError is raised. Ctrl-C
    stops between two steps and returns the run so far with an `InterruptedWarning`; `Run.resume` continues
    it. During a search for "auto" values, and with `folder`, Ctrl-C raises KeyboardInterrupt.

    Parameters
    ----------
    problem, network, partition
        **What to run.** The data, the network, and the methods of its parts with their stepsize h. With
        h="auto" or `Posterior(prior="auto")` they are searched first: `run.found` says how, the run's plan
        has the values. An `OffTemperatureWarning` says if the run still has the wrong temperature.
    batch
        Examples in a mini-batch; "all" for full gradients; None for 32, or all examples if there are fewer.
    shuffled
        True for mini-batches from shuffled epochs; otherwise each is a fresh subset without replacement.
    rotated
        True to rotate words to one gradient per step (see `splitting.Rotation`); False to run the word that
        all parts share as written. Words with several gradients always run as written.
    seed
        Seed of starts, noise and mini-batches.
    dtype
        Floating-point type of the computation.
    start
        Initial parameters, (chains, parameters) or one vector for all; None for the network's `init`.
    momenta
        Initial momenta: "zero", or "thermal" for N(0, τ).
    warm
        Steps of Adam on the same posterior before the run: a fast way to a good start. Needs methods with a
        temperature.

    steps
        **How long.** Number of steps; "auto" to run until the predictions of the samples have converged (the
        worst R-hat is at most 1.1, the median effective sample size at least 100, see
        `diagnostics.convergence`, and the temperature is within 10 % of τ).
    budget
        Largest number of steps for steps="auto"; None for 20,000.
    chains
        Number of independent chains.

    record
        **What to record.** Number of evenly spaced records, the last step included, or a list of steps (0 is
        the start). A record has temperatures and ξ.
    losses_every
        Every how many records (and at the last) to compute loss and accuracy on all training and test
        examples.
    weights
        True to record the parameters.
    histogram
        (low, high, bins) to record how many parameters of each part lie in each bin.
    samples, burn_in, thin
        Keep `samples` samples of θ per chain, one every `thin` steps after `burn_in` steps. Two of the three
        determine the third; `samples` alone are spread over the whole run, with `thin` they are its last.
        With steps="auto" the samples (100 unless given) come from the second half.
    average
        Inputs (examples, features) at which to average outputs over all samples or, without samples, over
        every `thin`-th step after `burn_in` (every step by default); see `Run.averages`.

    checkpoint
        **Where to save.** File with the run so far. The same call with an existing checkpoint continues it.
    folder
        Folder for a run larger than memory: chains are computed in turn, and results are written as they
        come. The same call continues. `run.data` has Dask arrays (`heatbath[dask]`), and `load` opens the
        folder.
    every
        Seconds between two writes of the checkpoint or folder.
    progress
        Function that is called with a `Progress` about ten times a second.
    threads
        Number of threads; None for HEATBATH_THREADS, or all cores. The results are identical, bit for bit.

    Returns
    -------
    Run
        Records, final states and samples of all chains.

    Examples
    --------
    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> run = hb.train(problem, hb.MLP((5,)), hb.AdLaLa(h=0.25), steps=200, chains=3, record=4)
    >>> run.data["step"].values.tolist()
    [50, 100, 150, 200]
    >>> run.accuracy("test").sizes
    Frozen({'chain': 3, 'record': 4})
    """
    settings = RunSettings(
        seed=seed, dtype=dtype, shuffled=shuffled, rotated=rotated, start=start, momenta=momenta,
        record=record, losses_every=losses_every, weights=weights, histogram=histogram,
        samples=samples, burn_in=burn_in, thin=thin, average=average,
    )  # fmt: skip
    prepared = prepare(problem, network, partition, steps, batch, chains, budget, warm, settings)
    return carry_out(prepared, folder, threads=threads, progress=progress, checkpoint=checkpoint, every=every)


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
    """Check the arguments of `train`, and return the plan of the run, or the search that finds its plan.

    Parameters
    ----------
    problem, network, partition, steps, batch, chains, budget, warm
        As in `train`.
    settings
        The arguments of `train` that describe sampling, records and start.

    Returns
    -------
    Plan or AutomaticRun
        A search if a value is "auto", or there are steps of Adam before the run.
    """
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
    **execution: Unpack[ExecutionOptions],
) -> Run:
    """Carry out a plan or a search, and return the run.

    Parameters
    ----------
    prepared
        The result of `prepare`.
    folder
        As in `train`; refused for a search.
    pool
        Workers that compute the chains of a plan. A search runs without: its short runs depend on each other.
    execution
        Options that don't change results.
    """
    if not isinstance(prepared, AutomaticRun):
        return simulate(prepared, folder=folder, pool=pool, **execution)
    if folder is not None:
        raise ValueError(
            "folder needs a run whose h, prior and steps are numbers, without warm steps: replace every "
            '"auto" by a number, or leave out folder'
        )
    with using(None):
        return replace(prepared, execution=dict(execution)).run()


def sweep(
    problem: Problem,
    network: MLP,
    partition: Partition,
    steps: int,
    batch: Batch = None,
    chains: int = 1,
    **options: Unpack[Options],
) -> Run:
    """Train at every point of a grid of coefficients.

    All points share the starts, the noise and the mini-batches of their chains, so they are compared on equal
    terms. Each is, bit for bit, the run of `train` at that point.

    Parameters
    ----------
    problem, network, steps, batch
        As in `train`.
    partition
        Methods whose coefficients may be lists. The lists span the grid in the order of `partition.axes()`,
        the last axis fastest.
    chains
        Number of chains at each point.
    options
        Options of `train`, and `executor`, which computes the chains in blocks: an executor of
        `concurrent.futures`, a client of Dask, the module `ray` or "ray"; by default that of
        `joblib.parallel_config`. The results are identical, bit for bit. `threads` then counts the threads of
        a block, by default 1. Finished blocks are kept in the folder `checkpoint`.blocks, or in `folder`, and
        the same call continues from there. Ctrl-C raises KeyboardInterrupt.

    Returns
    -------
    Run
        A run whose chains have their coefficients, and the number of their `repeat`, as coordinates:
        `run.select(tau=1e-4)` is the run of one point.

    Examples
    --------
    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> run = hb.sweep(problem, hb.MLP((5,)), hb.AdLaLa(tau=[1e-5, 1e-4]), steps=100, chains=2, record=1)
    >>> run.data["tau"].values.tolist(), run.data["repeat"].values.tolist()
    ([1e-05, 1e-05, 0.0001, 0.0001], [0, 1, 0, 1])
    >>> run.select(tau=1e-4).partition == hb.AdLaLa(tau=1e-4)
    True
    """
    settings, execution = _split_options(options)
    plan = make_plan(problem, network, partition, steps, batch, chains, settings, call="sweep")
    return simulate(plan, pool=chosen_pool(options.get("executor")), **execution)


def compare(
    problem: Problem,
    network: MLP,
    partitions: Mapping[str, Partition],
    steps: int,
    batch: Batch = None,
    chains: int = 1,
    **options: Unpack[Options],
) -> Run:
    """Train with several named partitions, on equal terms as in `sweep`.

    Parameters
    ----------
    problem, network, steps, batch
        As in `train`.
    partitions
        Partitions by name.
    chains
        Number of chains for each partition.
    options
        As in `sweep`.

    Returns
    -------
    Run
        A run whose chains have the name of their `method` and the number of their `repeat` as coordinates.
        `run.select(method="Adam")` is, bit for bit, the run of `train` with that partition.

    Examples
    --------
    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> methods = {"AdLaLa": hb.AdLaLa(), "Adam": hb.Partition(hb.Adam(), h=0.005)}
    >>> run = hb.compare(problem, hb.MLP((5,)), methods, steps=100, chains=2, record=1)
    >>> run.data["method"].values.tolist()
    ['AdLaLa', 'AdLaLa', 'Adam', 'Adam']
    """
    settings, execution = _split_options(options)
    plan = make_plan(problem, network, partitions, steps, batch, chains, settings, call="compare")
    return simulate(plan, pool=chosen_pool(options.get("executor")), **execution)


def _split_options(options: Options) -> tuple[RunSettings, dict[str, Any]]:
    """Return the options that determine the results, and those of `simulate` that don't, without `executor`.

    Raises
    ------
    TypeError
        If there is an unknown option.
    """
    unknown = [name for name in options if name not in Options.__annotations__]
    if unknown:
        accepted = ", ".join(Options.__annotations__)
        raise TypeError(f"there is no option {', '.join(unknown)}; accepted: {accepted}")
    execution_names = {*ExecutionOptions.__annotations__, "folder"}
    execution = {name: value for name, value in options.items() if name in execution_names}
    other_names = {*execution_names, "executor"}
    settings: dict[str, Any] = {name: value for name, value in options.items() if name not in other_names}
    return RunSettings(**settings), execution
