"""Run a plan: in this process, in blocks on an executor, or in a folder.

What has been computed already is not computed again: a run can continue another one, its checkpoint, or the
blocks in a folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from heatbath._internal.checks import NON_NEGATIVE, real
from heatbath._internal.warnings import InterruptedWarning, warn
from heatbath.engine.threads import thread_count
from heatbath.runs import file
from heatbath.runs.continuation import plan_differences
from heatbath.runs.dataset import check_memory, gather
from heatbath.runs.distributed.pools import Pool, pool_here
from heatbath.runs.distributed.scheduler import BlockScheduler, BlockSizes
from heatbath.runs.distributed.store import Store, check_dask, discard
from heatbath.runs.plan import Plan
from heatbath.runs.progress import Progress
from heatbath.runs.run import Run, begun_elsewhere, load
from heatbath.runs.simulation import Simulation, report_losses, warn_of_stale_noise


@dataclass(frozen=True)
class _Execution:
    """How a plan is run, which does not change its results: see `train`."""

    threads: int | None
    progress: Callable[[Progress], None] | None
    checkpoint: str | os.PathLike[str] | None
    every: float
    pool: Pool | None


def simulate(
    plan: Plan,
    earlier: Run | None = None,
    *,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 60.0,
    folder: str | os.PathLike[str] | None = None,
    pool: Pool | None = None,
) -> Run:
    """Return the run of a plan, computed from its start or from where an earlier run or a checkpoint stands.

    Parameters
    ----------
    plan
        The plan of the complete run.
    earlier
        A run that stands at an earlier step of the plan.
    threads, progress, every
        As in `train`.
    checkpoint
        A file for the run so far. If it exists and is further along than `earlier`, it must be of this very
        plan, and the run continues from there. Otherwise it may be of the earlier run, and is replaced. Any
        other file is left alone, with an error.
    folder
        A folder in which the run stays as blocks, instead of a checkpoint.
    pool
        The workers that compute the plan in blocks, which are in a folder beside the checkpoint until all of
        them are there; None for this process.
    """
    check_execution(threads, progress, checkpoint, every)
    execution = _Execution(threads, progress, checkpoint, every, pool)

    if folder is not None:
        if checkpoint is not None:
            raise ValueError("a run in a folder is its own checkpoint: leave out checkpoint")
        return _run_in_folder(plan, earlier, Path(folder), execution)

    if checkpoint is not None and os.path.exists(checkpoint):
        earlier = _furthest_run(plan, earlier, checkpoint)
    if earlier is not None and earlier.step == plan.steps:
        return earlier

    needs_joining = earlier is not None or len(plan.named) > 1
    copies = 2 if needs_joining else 1  # joining results takes a second copy of them
    check_memory(plan, copies)
    if earlier is not None and earlier.data.chunks:
        earlier = replace(earlier, data=earlier.data.compute())
    _warn_of_former(earlier)
    warn_of_stale_noise(plan, plan.steps)

    if pool is not None:
        return _run_in_blocks(plan, earlier, pool, execution)
    return _run_here(plan, earlier, execution)


def _run_here(plan: Plan, earlier: Run | None, execution: _Execution) -> Run:
    """Compute a plan in this process, and return its run; after Ctrl-C, the run so far.

    Parameters
    ----------
    plan
        The plan of the complete run.
    earlier
        The run that is continued; None to compute from the start.
    execution
        The number of threads, the function that is called with the progress, and the checkpoint: a file to
        which the run is written at once, every `execution.every` seconds and at its end. An error ends the
        run only when this file is written for the first time.
    """
    checkpoint = execution.checkpoint
    begin = 0 if earlier is None else earlier.step
    data = None if earlier is None else earlier.data
    former = "" if earlier is None else earlier.former
    simulation = Simulation(plan, begin, data, execution.threads)

    def run_so_far() -> Run:
        return Run(plan, simulation.step, gather(plan, simulation.groups, begin, data), former)

    def save_or_warn(run: Run | None = None) -> None:
        assert checkpoint is not None
        try:
            saved = run_so_far() if run is None else run  # may fail, too, as it takes memory
            saved.save(checkpoint)
        except (OSError, MemoryError) as error:
            warn(f"the checkpoint at step {simulation.step} failed, and the run continues: {error}")

    if checkpoint is None:
        is_finished = simulation.run(execution.progress)
        run = run_so_far()
    else:
        run_so_far().save(checkpoint)  # an error now is better than one in an hour
        is_finished = simulation.run(execution.progress, save_or_warn, execution.every)
        run = run_so_far()
        save_or_warn(run)

    report_losses(simulation.losses(), plan.total, begin)
    if not is_finished:
        message = f"interrupted at step {run.step} of {plan.steps}: resume() continues from there"
        warn(message, InterruptedWarning)
    return run


def _run_in_blocks(plan: Plan, earlier: Run | None, pool: Pool, execution: _Execution) -> Run:
    """Compute a plan in blocks of chains on the workers of a pool, and return the joined run.

    With a checkpoint the blocks are kept in a folder beside it, so that a call that was interrupted continues
    from them, and the folder is removed when the run is saved. The run starts at step 0, or where `earlier`
    stands.
    """
    checkpoint = execution.checkpoint
    folder = None
    if checkpoint is not None:
        file.check_replaceable(Path(checkpoint))
        folder = _blocks_folder(checkpoint)

    former = "" if earlier is None else earlier.former
    with Store.locked(plan, folder, earlier) as store:
        _compute_blocks(store, pool, execution.threads or 1, execution)
        run = Run(plan, plan.steps, store.joined(), former)
        if checkpoint is not None:
            run.save(checkpoint)
            store.remove()
    report_losses(store.losses(), plan.total, store.first)
    return run


def _run_in_folder(plan: Plan, earlier: Run | None, folder: Path, execution: _Execution) -> Run:
    """Compute a plan in blocks that stay in a folder, and return the run, whose arrays Dask reads from there.

    The blocks of an earlier run, which this one continues, are copied into the folder first. Blocks that are
    in the folder already are not computed again.
    """
    check_dask()
    _warn_of_former(earlier)
    warn_of_stale_noise(plan, plan.steps)

    with Store.locked(plan, folder, copied=earlier) as store:
        if store.done < plan.total:
            _complete_folder(store, earlier, execution)
    begin = 0 if earlier is None else earlier.step
    report_losses(store.losses(), plan.total, begin)
    return Run(plan, plan.steps, store.lazy(), store.former)


def _complete_folder(store: Store, earlier: Run | None, execution: _Execution) -> None:
    """Copy the run that a store continues into it, and compute all blocks that are then missing.

    Parameters
    ----------
    store
        The locked store of a folder, to which blocks are added.
    earlier
        The run to copy; None if the store begins at step 0.
    execution
        How to run the plan; without a pool the blocks are computed in this process, with all its threads.
    """
    workers: AbstractContextManager[Pool]
    if execution.pool is None:
        workers = pool_here()
        threads = execution.threads or thread_count(None)
    else:
        workers = nullcontext(execution.pool)
        threads = execution.threads or 1

    with workers as pool:
        if earlier is not None:
            chains_of_block = BlockSizes(store.plan, pool.workers(threads), threads, 0).even()
            store.copy_run(earlier, chains_of_block)
        _compute_blocks(store, pool, threads, execution)


def _compute_blocks(store: Store, pool: Pool, threads: int, execution: _Execution) -> None:
    """Compute all blocks that are missing in a store, and add them to it.

    Raises FloatingPointError if all chains diverged. After Ctrl-C, a warning says where the finished chains
    are, and KeyboardInterrupt is raised.
    """
    total = store.plan.total
    try:
        with pool:
            BlockScheduler(pool, store, threads, execution.every).run(execution.progress)
    except KeyboardInterrupt:
        kept = "lost: give a checkpoint"
        if store.folder:
            kept = f"in {store.folder}, and the same call continues from there"
        warn(f"interrupted: {store.done} of {total} chains are done and {kept}", InterruptedWarning)
        raise

    losses = store.losses()
    have_all_diverged = len(losses) == total
    if have_all_diverged:
        report_losses(losses, total, store.first)  # raises


def check_execution(threads: int | None, progress: object, checkpoint: object, every: object) -> None:
    """Raise if an argument that says how to run is wrong: see `train`."""
    thread_count(threads)
    real("every", every, NON_NEGATIVE)
    if not (progress is None or callable(progress)):
        raise TypeError(f"progress must be a function of a Progress, got {progress!r}")
    if not (checkpoint is None or isinstance(checkpoint, (str, os.PathLike))):
        raise TypeError(f"checkpoint must be a path, got {checkpoint!r}")


def _warn_of_former(earlier: Run | None) -> None:
    """Warn if a run was begun by a version that rounded otherwise."""
    if earlier is not None and earlier.former:
        warn(f"{begun_elsewhere(earlier)}: it continues, but not bit for bit as it would have there")


def _furthest_run(plan: Plan, earlier: Run | None, checkpoint: str | os.PathLike[str]) -> Run | None:
    """Return the run in a checkpoint if it is further along than the earlier run, or else the earlier run.

    Raises ValueError if the checkpoint is of another plan. Blocks that a finished run has left beside its
    checkpoint are removed.
    """
    saved = load(checkpoint, plan.problem)
    is_further = earlier is None or saved.step > earlier.step  # this very call was interrupted
    compared_until = None if is_further else saved.step
    different = plan_differences(plan, saved.plan, compared_until)
    if different:
        raise ValueError(
            f"{checkpoint} is of another run, with other {', '.join(different)}: it is left alone. Choose "
            "another name, or continue it with load(...).resume(...)"
        )
    if saved.finished:
        discard(_blocks_folder(checkpoint), saved.plan)
    return saved if is_further else earlier


def _blocks_folder(checkpoint: str | os.PathLike[str]) -> Path:
    """Return the folder beside a checkpoint that has the blocks of its run until all of them are there."""
    return Path(f"{os.fspath(checkpoint)}.blocks")
